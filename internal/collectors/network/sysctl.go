package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// setting is one sysctl: which word of its file, and what one unit of the file is in the metric's unit.
type setting struct {
	metric *metric.Gauge
	word   int
	scale  float64
}

func settings() []setting {
	return []setting{
		{metric.PortRangeLow, 0, 1},
		{metric.PortRangeHigh, 1, 1},
		{metric.TWReuse, 0, 1},
		{metric.TWReuseDelay, 0, 1e-3}, // milliseconds
		{metric.MaxTWBuckets, 0, 1},
		{metric.Timestamps, 0, 1},
		{metric.Somaxconn, 0, 1},
		{metric.MaxSynBacklog, 0, 1},
		{metric.Syncookies, 0, 1},
		{metric.AbortOnOverflow, 0, 1},
		{metric.IPForward, 0, 1},
		{metric.MaxOrphans, 0, 1},
		{metric.TCPMemPressure, 1, 1},
		{metric.TCPMemHigh, 2, 1},
		{metric.NetdevMaxBacklog, 0, 1},
		{metric.NetdevBudget, 0, 1},
	}
}

func sysctlCollector() collect.Collector {
	provides := []metric.Metric{metric.ReservedPorts}
	for _, s := range settings() {
		provides = append(provides, s.metric)
	}
	return collect.Collector{
		Name:     "sysctl",
		Doc:      "Network settings that the rules read.",
		Overhead: "0.3 ms, once",
		Provides: provides,
		Pace:     collect.Once,
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			return collect.SourceFunc(func(_ context.Context, a *recording.Appender) error {
				return sampleSettings(env, a)
			}), nil
		},
	}
}

func sampleSettings(env collect.Env, a *recording.Appender) error {
	read := map[metric.Metric]bool{} // a global setting is not shown in the target's namespace, but in the host's
	for _, n := range namespaces(env) {
		err := n.enter(env, func() error { return readSettings(env.Host.Proc, n, a, read) })
		if err != nil && n.label == metric.NetNSTarget {
			missingAll(a, sysctlCollector().Provides, err)
			return nil
		}
	}
	for _, m := range sysctlCollector().Provides {
		if !read[m] {
			a.Missing(m, recording.StatusUnsupported, "this kernel has no "+m.Describe().Source, "")
		}
	}
	return nil
}

// readSettings reads in the namespace of the calling thread: /proc/sys/net shows the namespace of the thread that
// opens the file.
func readSettings(proc string, n namespace, a *recording.Appender, read map[metric.Metric]bool) error {
	for _, s := range settings() {
		v, err := readSetting(proc, s)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		a.Gauge(s.metric, v, n.label)
		read[s.metric] = true
	}
	count, err := readReserved(proc)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	a.Gauge(metric.ReservedPorts, float64(count), n.label)
	read[metric.ReservedPorts] = true
	return nil
}

func readSetting(proc string, s setting) (float64, error) {
	path := sysctlPath(proc, s.metric.Describe().Source)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	words := strings.Fields(string(b))
	if len(words) <= s.word {
		return 0, fmt.Errorf("%s: %.40q has no word %d", path, b, s.word+1)
	}
	v, err := strconv.ParseInt(words[s.word], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: bad number %.40q", path, words[s.word])
	}
	return float64(v) * s.scale, nil
}

func sysctlPath(proc, key string) string {
	return filepath.Join(proc, "sys", strings.ReplaceAll(key, ".", "/"))
}

// reservedBytes holds the longest list of reserved ports, every second one: 32768 numbers of up to 5 digits and a
// comma.
const reservedBytes = 32768*6 + 1

// readReserved counts the reserved ports inside the range: only those are missing from it. The file is read by one
// call: the kernel returns what fits into the buffer and nothing after it (kernel/sysctl.c proc_do_large_bitmap), so
// that os.ReadFile, which begins with 512 bytes, would cut the list.
func readReserved(proc string) (int, error) {
	low, err := readSetting(proc, setting{metric.PortRangeLow, 0, 1})
	if err != nil {
		return 0, err
	}
	high, err := readSetting(proc, setting{metric.PortRangeHigh, 1, 1})
	if err != nil {
		return 0, err
	}
	b, err := host.ReadFile(sysctlPath(proc, metric.ReservedPorts.Describe().Source), make([]byte, reservedBytes))
	if err != nil {
		return 0, err
	}
	return countReserved(strings.TrimSpace(string(b)), int(low), int(high))
}

// countReserved counts the ports of a list such as "8080,9000-9100" that lie in low..high. The kernel writes it sorted
// and merged.
func countReserved(list string, low, high int) (int, error) {
	count := 0
	if list == "" {
		return 0, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		f, err1 := strconv.ParseUint(from, 10, 16)
		t, err2 := strconv.ParseUint(to, 10, 16)
		if err := errors.Join(err1, err2); err != nil {
			return 0, fmt.Errorf("ip_local_reserved_ports: bad part %.40q", part)
		}
		count += max(0, min(int(t), high)-max(int(f), low)+1)
	}
	return count, nil
}
