package network

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func netstatCollector() collect.Collector {
	provides := []metric.Metric{metric.TCPOrphans, metric.TCPMemory, metric.TCPTimeWait}
	for _, c := range metric.NetstatCounters() {
		provides = append(provides, c)
	}
	return collect.Collector{
		Name:     "netstat",
		Doc:      "Protocol counters of a network namespace and its socket totals.",
		Overhead: "0.2 ms a sample and namespace",
		Provides: provides,
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			return &netstatSource{proc: env.Host.Proc, namespaces: namespaces(env)}, nil
		},
	}
}

type netstatSource struct {
	proc       string
	namespaces []namespace
	buf        []byte
}

// Sample appends one sample.
func (s *netstatSource) Sample(_ context.Context, a *recording.Appender) error {
	for _, n := range s.namespaces {
		if err := s.sampleOne(n, a); err != nil && !n.gone(s.proc, err) {
			return err
		}
	}
	return nil
}

// Close has nothing to do.
func (s *netstatSource) Close() error { return nil }

func (s *netstatSource) sampleOne(n namespace, a *recording.Appender) error {
	dir := n.procDir(s.proc)
	values := map[string]float64{}
	for _, file := range []string{"snmp", "netstat"} {
		var err error
		if s.buf, err = host.ReadFile(filepath.Join(dir, "net", file), s.buf); err != nil {
			return err
		}
		if err := parseNetstat(bytes.NewReader(s.buf), values); err != nil {
			return fmt.Errorf("%s/net/%s: %w", dir, file, err)
		}
	}
	var err error
	s.buf, err = host.ReadFile(filepath.Join(dir, "net", "snmp6"), s.buf)
	if err == nil {
		err = parseUDP6(s.buf, values)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel may have no IPv6
		return fmt.Errorf("%s/net/snmp6: %w", dir, err)
	}
	for _, c := range metric.NetstatCounters() {
		if v, ok := values[c.Describe().Source]; ok {
			a.Counter(c, v, n.label)
		} else {
			a.Missing(c, recording.StatusUnsupported, "this kernel does not count "+c.Describe().Source, "")
		}
	}
	return sampleSockstat(dir, n, a)
}

// parseNetstat reads /proc/net/snmp and /proc/net/netstat (net/ipv4/proc.c): pairs of lines, names and then values,
// each behind the group's name. Keys of the result are "GROUP FIELD". procfs is not used: its structures drop the
// fields it does not know, and several that the rules need are newer than it.
func parseNetstat(r io.Reader, values map[string]float64) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 8<<10), 1<<20)
	for sc.Scan() {
		group, names, ok := strings.Cut(sc.Text(), ": ")
		if !ok {
			return fmt.Errorf("line %.40q has no group", sc.Text())
		}
		if !sc.Scan() {
			return fmt.Errorf("group %.40q has names and no values", group)
		}
		rest, ok := strings.CutPrefix(sc.Text(), group+": ")
		if !ok {
			return fmt.Errorf("the values of group %.40q are missing", group)
		}
		if err := parsePairs(group, strings.Fields(names), strings.Fields(rest), values); err != nil {
			return err
		}
	}
	return sc.Err()
}

// parseUDP6 reads the counters of UDP in /proc/net/snmp6 (net/ipv6/proc.c), which has a name and a number in each
// line. procfs reads the file only for a process by its pid, but the host's namespace is that of /proc/self.
func parseUDP6(data []byte, values map[string]float64) error {
	for line := range strings.Lines(string(data)) {
		name, number, _ := strings.Cut(line, " ")
		field, ok := strings.CutPrefix(strings.TrimSpace(name), "Udp6")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
		if err != nil {
			return fmt.Errorf("%.40s: bad number %.40q", name, number)
		}
		values["Udp6 "+field] = float64(n)
	}
	return nil
}

func parsePairs(group string, names, nums []string, values map[string]float64) error {
	if len(names) != len(nums) {
		return fmt.Errorf("group %.40q has %d names and %d values", group, len(names), len(nums))
	}
	for i, name := range names {
		v, err := strconv.ParseUint(nums[i], 10, 64)
		if err != nil {
			signed, serr := strconv.ParseInt(nums[i], 10, 64) // Tcp MaxConn is -1
			if serr != nil {
				return fmt.Errorf("%.40s %.40s: bad number %.40q", group, name, nums[i])
			}
			values[group+" "+name] = float64(signed)
			continue
		}
		values[group+" "+name] = float64(v)
	}
	return nil
}

// sampleSockstat reads DIR/net/sockstat; procfs reads the net/ below whatever directory it is given.
func sampleSockstat(dir string, n namespace, a *recording.Appender) error {
	fs, err := procfs.NewFS(dir)
	if err != nil {
		return err
	}
	st, err := fs.NetSockstat()
	if err != nil {
		return err
	}
	var tcp procfs.NetSockstatProtocol
	for _, p := range st.Protocols {
		if p.Protocol == "TCP" {
			tcp = p
		}
	}
	for _, g := range []struct {
		metric *metric.Gauge
		value  *int
	}{{metric.TCPOrphans, tcp.Orphan}, {metric.TCPMemory, tcp.Mem}, {metric.TCPTimeWait, tcp.TW}} {
		if g.value != nil {
			a.Gauge(g.metric, float64(*g.value), n.label)
		} else {
			a.Missing(g.metric, recording.StatusUnsupported, "this kernel's net/sockstat does not tell it", "")
		}
	}
	return nil
}
