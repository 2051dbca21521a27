package network

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func TestMain(m *testing.M) {
	if code, child := lab.RunIfChild(); child {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// record takes one sample of a collector. Missing metrics are in the recording's meta.
func record(t *testing.T, c collect.Collector, env collect.Env) *recording.Recording {
	t.Helper()
	src, err := c.Open(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	b := recording.NewBuilder()
	a := b.Appender()
	if err := src.Sample(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	_, missing := a.Commit()
	if err := src.Close(); err != nil {
		t.Error(err)
	}
	return b.Done(recording.Meta{Unsupported: missing})
}

func want(t *testing.T, r *recording.Recording, g *metric.Gauge, value float64) {
	t.Helper()
	if s := r.Gauge(g, "netns", metric.NetNSTarget); len(s) != 1 || s[0].Last() != value {
		t.Errorf("%s: %v, want %v", g.Describe().Name, s, value)
	}
}

// tree unpacks testdata/trees/network/<name>.txtar and returns a host that reads it.
func tree(t *testing.T, name string) *host.Host {
	t.Helper()
	ar, err := txtar.ParseFile("../../../testdata/trees/network/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, f := range ar.Files {
		path := filepath.Join(root, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &host.Host{Proc: root, Sys: root, Etc: root}
}

// TestOldKernel: what 2.6.32 has is read, and what it lacks is reported.
func TestOldKernel(t *testing.T) {
	env := collect.Env{Host: tree(t, "linux-2.6.32")}
	r := record(t, netstatCollector(), env)
	for c, value := range map[*metric.Counter]float64{
		metric.TCPActiveOpens: 53, metric.TCPRetransSegs: 7, metric.ListenOverflows: 3, metric.TWEntered: 41,
		metric.UDPInDatagrams: 9,
		metric.IPForwarded:    1,
	} {
		if s := r.Counter(c); len(s) != 1 || s[0].Points[0].Value != value {
			t.Errorf("%s: %v, want %v", c.Describe().Name, s, value)
		}
	}
	for _, m := range []metric.Metric{
		metric.TCPSynRetrans, metric.TCPRcvQDrop, metric.TCPTimeWaitOverflow,
		metric.TCPMemoryPressureMs,
	} {
		if reason, _ := r.Why(m); r.Recorded(m) || !strings.Contains(reason, "this kernel does not count") {
			t.Errorf("%s: recorded %v, %q", m.Describe().Name, r.Recorded(m), reason)
		}
	}
	want(t, r, metric.TCPTimeWait, 12)

	r = record(t, sysctlCollector(), env)
	want(t, r, metric.PortRangeLow, 32768)
	want(t, r, metric.PortRangeHigh, 61000)
	want(t, r, metric.TCPMemHigh, 3)
	for _, m := range []metric.Metric{metric.TWReuseDelay, metric.ReservedPorts} { // 6.14, 2.6.35
		if reason, _ := r.Why(m); r.Recorded(m) || !strings.Contains(reason, "this kernel has no") {
			t.Errorf("%s: recorded %v, %q", m.Describe().Name, r.Recorded(m), reason)
		}
	}
	if _, err := conntrackCollector().Open(t.Context(), env); err == nil || !strings.Contains(err.Error(),
		"not in use") {
		t.Errorf("conntrack without nf_conntrack: %v", err)
	}
	r = record(t, deviceCollector(), env)
	for labels, value := range map[[2]string]float64{{"eth0", "receive"}: 3, {"eth0", "transmit"}: 6} {
		s := r.Counter(metric.DeviceErrors, "device", labels[0], "direction", labels[1])
		if len(s) != 1 || s[0].Points[0].Value != value {
			t.Errorf("errors of %v: %v, want %v: frame and carrier errors are among them", labels, s, value)
		}
	}
}

func TestParseNetstatErrors(t *testing.T) {
	for text, want := range map[string]string{
		"Tcp A B": "no group", "Tcp: A B": "no values", "Tcp: A\nUdp: 1": "missing",
		"Tcp: A B\nTcp: 1": "2 names and 1 values",
		"Tcp: A\nTcp: x":   `bad number "x"`, "Tcp: A\nTcp: 99999999999999999999": "bad number", "\n": "no group",
		"Tcp: " + strings.Repeat("A", 2<<20): "too long",
	} {
		if err := parseNetstat(strings.NewReader(text), map[string]float64{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want an error with %q", text, err, want)
		}
	}
	got := map[string]float64{}
	if err := parseNetstat(strings.NewReader("Tcp: MaxConn InSegs\nTcp: -1 18446744073709551615\nMPTcpExt: "+
		"X\nMPTcpExt: 3\n"), got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"Tcp MaxConn": -1, "Tcp InSegs": 1 << 64, "MPTcpExt X": 3},
		got); diff != "" {
		t.Error(diff)
	}
}

// TestParseUDP6 reads the UDP lines of the file, and no others.
func TestParseUDP6(t *testing.T) {
	got := map[string]float64{}
	const text = "Ip6InReceives  \t7\nUdp6InDatagrams                \t18446744073709551615\nUdp6NoPorts \t3\n" +
		"UdpLite6InDatagrams \t9\n"
	if err := parseUDP6([]byte(text), got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"Udp6 InDatagrams": 1 << 64, "Udp6 NoPorts": 3}, got); diff != "" {
		t.Error(diff)
	}
	if err := parseUDP6([]byte("Udp6NoPorts -1\n"), got); err == nil || !strings.Contains(err.Error(), "bad number") {
		t.Errorf("a number below zero: %v", err)
	}
}

func FuzzParseUDP6(f *testing.F) {
	f.Add("Udp6InDatagrams \t3\n")
	f.Fuzz(func(t *testing.T, text string) {
		values := map[string]float64{}
		if parseUDP6([]byte(text), values) == nil && len(values) > len(text) {
			t.Fatal("more values than letters")
		}
	})
}

func TestCountReserved(t *testing.T) {
	for _, tc := range []struct {
		list      string
		low, high int
		want      int
	}{
		{"", 1, 65535, 0},
		{"80", 1, 100, 1},
		{"80", 81, 100, 0},
		{"90-110", 100, 200, 11},
		{"1-65535", 100, 199, 100},
		{"80,100-102,200", 100, 200, 4},
		{"9-5", 1, 100, 0},
		{"0", 0, 0, 1},
		{"5", 10, 1, 0},
	} {
		if got, err := countReserved(tc.list, tc.low, tc.high); err != nil || got != tc.want {
			t.Errorf("%q in %d-%d: %d, %v; want %d", tc.list, tc.low, tc.high, got, err, tc.want)
		}
	}
	for _, list := range []string{"x", "1,", "1-", "-1", "65536", "1 2", "1-2-3"} {
		if got, err := countReserved(list, 1, 100); err == nil {
			t.Errorf("%q is %d ports", list, got)
		}
	}
}

func FuzzParseNetstat(f *testing.F) {
	f.Add("Tcp: A B\nTcp: 1 -1\nUdp: C\nUdp: 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		values := map[string]float64{}
		if parseNetstat(strings.NewReader(text), values) == nil && len(values) > len(text) {
			t.Fatal("more values than letters")
		}
	})
}

func FuzzCountReserved(f *testing.F) {
	f.Add("80,100-102", 1, 65535)
	f.Fuzz(func(t *testing.T, list string, low, high int) {
		if n, err := countReserved(list, low, high); n < 0 || err != nil && n != 0 {
			t.Fatalf("%d ports, %v", n, err)
		}
	})
}

// namespaced starts a process in a network namespace of its own.
func namespaced(t *testing.T) (*lab.Host, collect.Env) {
	t.Helper()
	h, err := labtest.New(t).Host("target")
	if err != nil {
		t.Fatal(err)
	}
	c, err := h.StartChild(nil, lab.ChildOptions{Mode: lab.ModeSleep})
	if err != nil {
		t.Fatal(err)
	}
	local := host.Local()
	target, err := local.Resolve(t.Context(), host.Selector{PID: c.Pid})
	if err != nil {
		t.Fatal(err)
	}
	return h, collect.Env{Host: local, Target: target}
}

func TestSettingsAreTheTargets(t *testing.T) {
	h, env := namespaced(t)
	var ports []string
	for i := range 300 { // 6 bytes each: more than the 512 bytes of a first read
		ports = append(ports, strconv.Itoa(20001+2*i))
	}
	for key, value := range map[string]string{
		"net.ipv4.ip_local_port_range": "20000 20999", "net.ipv4.tcp_tw_reuse": "1", "net.ipv4.ip_forward": "1",
		"net.core.somaxconn": "137", "net.ipv4.ip_local_reserved_ports": "80," + strings.Join(ports, ","),
	} {
		if err := h.Sysctl(key, value); err != nil {
			t.Fatal(err)
		}
	}
	r := record(t, sysctlCollector(), env)
	for g, value := range map[*metric.Gauge]float64{
		metric.PortRangeLow: 20000, metric.PortRangeHigh: 20999, metric.TWReuse: 1, metric.IPForward: 1,
		metric.Somaxconn:     137,
		metric.ReservedPorts: 300,
	} {
		want(t, r, g, value)
	}
	own, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	low := r.Gauge(metric.PortRangeLow, "netns", metric.NetNSHost)
	if len(low) != 1 || fmt.Sprint(low[0].Last()) != strings.Fields(string(own))[0] {
		t.Errorf("the host's port range is %s, recorded %v", own, low)
	}
	for _, m := range r.Meta.Unsupported {
		if mm, _ := metric.ByName(m.Metric); r.Recorded(mm) {
			t.Errorf("%s is recorded and said to be missing", m.Metric)
		}
	}
}

func TestCountersAreTheTargets(t *testing.T) {
	const n = 19
	h, env := namespaced(t)
	if _, err := h.Listen("127.0.0.1:80", lab.ServeOptions{}); err != nil {
		t.Fatal(err)
	}
	load, err := h.Connect("127.0.0.1:80", lab.ClientOptions{Count: n, Requests: 1, CloseFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	if st := load.Wait(); st.Units != n {
		t.Fatalf("%+v", st)
	}
	r := record(t, netstatCollector(), env)
	for _, c := range []*metric.Counter{metric.TCPActiveOpens, metric.TCPPassiveOpens} {
		if s := r.Counter(c, "netns", metric.NetNSTarget); len(s) != 1 || s[0].Points[0].Value != n {
			t.Errorf("%s: %v, want %d", c.Describe().Name, s, n)
		}
		if s := r.Counter(c, "netns", metric.NetNSHost); len(s) != 1 {
			t.Errorf("%s of the host: %v", c.Describe().Name, s)
		}
	}
	r = record(t, deviceCollector(), env)
	if s := r.Counter(metric.DevicePackets, "netns", metric.NetNSTarget); len(s) != 2 || s[0].Label("device") != "lo" ||
		s[0].Points[0].Value < 8*n {
		t.Errorf("devices of the target: %v", s)
	}
}

func TestConntrackOfTheTarget(t *testing.T) {
	h, env := namespaced(t)
	if _, err := os.Stat("/proc/sys/net/netfilter/nf_conntrack_count"); err != nil {
		t.Skip("the kernel has no connection tracking")
	}
	if err := h.Masquerade("eth9"); err != nil { // turns tracking on, and translates nothing: there is no such device
		t.Skip(err)
	}
	const n = 11
	if err := h.Sysctl("net.netfilter.nf_conntrack_tcp_timeout_time_wait", "77"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Listen("127.0.0.1:80", lab.ServeOptions{}); err != nil {
		t.Fatal(err)
	}
	load, err := h.Connect("127.0.0.1:80", lab.ClientOptions{Count: n, Requests: 1, CloseFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	if st := load.Wait(); st.Units != n {
		t.Fatalf("%+v", st)
	}
	r := record(t, conntrackCollector(), env)
	want(t, r, metric.ConntrackEntries, n)
	want(t, r, metric.ConntrackTimeWait, 77)
	for _, m := range []metric.Metric{metric.ConntrackDrops, metric.ConntrackInsertFailed, metric.ConntrackEarlyDrops} {
		if reason, _ := r.Why(m); !r.Recorded(m) && strings.HasPrefix(reason, "the recording has no") {
			t.Errorf("%s: silence", m.Describe().Name)
		}
	}
	r = record(t, netfilterCollector(), env)
	want(t, r, metric.NATRules, 1)
}

func TestTargetThatEnded(t *testing.T) {
	h, env := namespaced(t)
	c, err := h.StartChild(nil, lab.ChildOptions{Mode: lab.ModeSleep})
	if err != nil {
		t.Fatal(err)
	}
	env.Target, err = env.Host.Resolve(t.Context(), host.Selector{PID: c.Pid})
	if err != nil {
		t.Fatal(err)
	}
	for _, col := range []collect.Collector{netstatCollector(), deviceCollector()} {
		src, err := col.Open(t.Context(), env)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Stop(); err != nil {
			t.Fatal(err)
		}
		b := recording.NewBuilder()
		a := b.Appender()
		if err := src.Sample(t.Context(), a); err != nil {
			t.Errorf("%s: %v: a target that ends must not fail the collector", col.Name, err)
		}
		a.Commit()
		if !b.Done(recording.Meta{}).Recorded(col.Provides[0]) {
			t.Errorf("%s: the host's numbers are lost with the target", col.Name)
		}
	}
}
