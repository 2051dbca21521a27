package proc

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func memoryCollector() collect.Collector {
	provides := []metric.Metric{
		metric.MemoryTotal, metric.MemoryAvailable, metric.SwapTotal, metric.SwapFree,
		metric.AllocStalls,
	}
	for _, f := range vmstatFields() {
		provides = append(provides, f.metric)
	}
	return collect.Collector{
		Name:     "memory",
		Doc:      "Memory, paging and reclaim of the host.",
		Overhead: "0.2 ms a sample",
		Provides: provides,
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			fs, err := openFS(env)
			if err != nil {
				return nil, err
			}
			return &memorySource{fs: fs, path: filepath.Join(env.Host.Proc, "vmstat")}, nil
		},
	}
}

type memorySource struct {
	fs   procfs.FS
	path string
	buf  []byte
}

// Sample appends one sample.
func (s *memorySource) Sample(_ context.Context, a *recording.Appender) error {
	m, err := s.fs.Meminfo()
	if err != nil {
		return err
	}
	for _, g := range []struct {
		name   string
		metric *metric.Gauge
		bytes  *uint64
	}{
		{"MemTotal", metric.MemoryTotal, m.MemTotalBytes},
		{"MemAvailable", metric.MemoryAvailable, m.MemAvailableBytes},
		{"SwapTotal", metric.SwapTotal, m.SwapTotalBytes},
		{"SwapFree", metric.SwapFree, m.SwapFreeBytes},
	} {
		if g.bytes != nil { // MemAvailable is missing before kernel 3.14
			a.Gauge(g.metric, float64(*g.bytes))
		} else {
			a.Missing(g.metric, recording.StatusUnsupported, "this kernel's /proc/meminfo has no "+g.name, "")
		}
	}
	if s.buf, err = host.ReadFile(s.path, s.buf); err != nil {
		return err
	}
	v, err := parseVMStat(bytes.NewReader(s.buf))
	if err != nil {
		return err
	}
	appendVMStat(a, v)
	return nil
}

// Close has nothing to do.
func (s *memorySource) Close() error { return nil }

type vmstatField struct {
	name   string
	metric *metric.Counter
}

// vmstatFields lists the fields of /proc/vmstat (mm/vmstat.c) that the rules read as they are.
func vmstatFields() []vmstatField {
	return []vmstatField{
		{"pgfault", metric.MinorFaults},
		{"pgmajfault", metric.MajorFaults},
		{"pswpin", metric.SwapIn},
		{"pswpout", metric.SwapOut},
		{"pgscan_direct", metric.DirectScan},
		{"pgsteal_direct", metric.DirectReclaimed},
		{"compact_stall", metric.CompactStalls},
		{"thp_split_page", metric.THPSplits},
		{"oom_kill", metric.HostOOMKills},
	}
}

func appendVMStat(a *recording.Appender, v map[string]uint64) {
	for _, f := range append(vmstatFields(), vmstatField{"allocstall", metric.AllocStalls}) {
		if n, ok := sumZones(v, f.name); ok {
			a.Counter(f.metric, float64(n))
			continue
		}
		a.Missing(f.metric, recording.StatusUnsupported, "this kernel's /proc/vmstat has no "+f.name, "")
	}
}

// sumZones returns the field, or the sum of its fields per memory zone: allocstall has one for each since kernel 4.8,
// pgscan_direct and pgsteal_direct had one before that (include/linux/vm_event_item.h).
func sumZones(v map[string]uint64, name string) (sum uint64, found bool) {
	if n, ok := v[name]; ok {
		return n, true
	}
	for _, zone := range []string{"dma", "dma32", "normal", "high", "movable", "device"} {
		n, ok := v[name+"_"+zone]
		sum, found = sum+n, found || ok
	}
	return sum, found
}

// parseVMStat reads /proc/vmstat: a name and a number per line.
func parseVMStat(r io.Reader) (map[string]uint64, error) {
	out := map[string]uint64{}
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		name, num, ok := strings.Cut(sc.Text(), " ")
		if !ok {
			return nil, fmt.Errorf("vmstat: line %.40q has no number", sc.Text())
		}
		n, err := strconv.ParseInt(strings.TrimSpace(num), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("vmstat: %s: bad number %.40q", name, num)
		}
		out[name] = uint64(max(n, 0)) // per-CPU sums of gauges can be below zero for a moment; no counter above is
	}
	return out, sc.Err()
}
