package sockets

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/ebpf"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
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

const serverAddr = "10.9.0.2:8080"

// pair is a client and a server host, joined by a link.
type pair struct {
	*lab.Lab
	client, server *lab.Host
}

func newPair(t testing.TB) pair {
	t.Helper()
	l := labtest.New(t)
	p := pair{Lab: l, client: must(t)(l.Host("client")), server: must(t)(l.Host("server"))}
	if _, _, err := l.Link(p.client, p.server, "10.9.0.1/24", "10.9.0.2/24"); err != nil {
		t.Fatal(err)
	}
	return p
}

func must(t testing.TB) func(*lab.Host, error) *lab.Host {
	return func(h *lab.Host, err error) *lab.Host {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
}

func child(t testing.TB, h *lab.Host, o lab.ChildOptions) *lab.Child {
	t.Helper()
	c, err := h.StartChild(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came: %s", what)
		}
	}
}

func envOf(t testing.TB, pid int) collect.Env {
	t.Helper()
	h := host.Local()
	target, err := h.Resolve(t.Context(), host.Selector{PID: pid})
	if err != nil {
		t.Fatal(err)
	}
	if target.Namespaces.Net.Same {
		t.Fatal("the target has no network namespace of its own")
	}
	return collect.Env{Host: h, Target: target}
}

func openFor(t testing.TB, pid int) collect.Source {
	t.Helper()
	src, err := open(t.Context(), envOf(t, pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	return src
}

// record takes n samples of the source.
func record(t testing.TB, src collect.Source, n int) *recording.Recording {
	t.Helper()
	b := recording.NewBuilder()
	var status []recording.Missing
	for range n {
		a := b.Appender()
		if err := src.Sample(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		lost, missing := a.Commit()
		if len(lost) > 0 {
			t.Errorf("lost: %v", lost)
		}
		status = missing
		time.Sleep(time.Millisecond)
	}
	return b.Done(recording.Meta{Unsupported: status})
}

// want compares the last value of the only series that matches.
func want(t *testing.T, r *recording.Recording, g *metric.Gauge, value float64, match ...string) {
	t.Helper()
	s := r.Gauge(g, match...)
	if len(s) != 1 {
		t.Errorf("%s%q has %d series, want 1 of %v", g.Describe().Name, match, len(s), value)
		return
	}
	if got := s[0].Last(); got != value {
		t.Errorf("%s%q is %v, want %v", g.Describe().Name, match, got, value)
	}
}

func TestSidesAndOwners(t *testing.T) {
	const n = 13
	p := newPair(t)
	server := child(t, p.server, lab.ChildOptions{Mode: lab.ModeServer, Name: "srv \x01\xff", Addr: serverAddr})
	client := child(t, p.client, lab.ChildOptions{
		Mode: lab.ModeClient, Name: "cli", Addr: serverAddr, Client: lab.ClientOptions{
			Count: n, HoldOpen: true,
			Requests: 1,
		},
	})
	until(t, "13 connections", func() bool { return client.Stats().Units == n })
	pid := strconv.Itoa(client.Pid)

	r := record(t, openFor(t, client.Pid), 7)
	want(t, r, metric.DestinationSockets, n, "source", "10.9.0.1", "destination", serverAddr, "state", "ESTABLISHED")
	want(t, r, metric.DestinationSockets, 0, "destination", serverAddr, "state", "TIME_WAIT")
	want(t, r, metric.Sockets, n, "state", "ESTABLISHED")
	want(t, r, metric.Sockets, 0, "state", "LISTEN")
	want(t, r, metric.DestinationOwner, n, "destination", serverAddr, "pid", pid, "comm", "cli")
	// bytes_acked counts the SYN (net/ipv4/tcp_input.c)
	want(t, r, metric.DestinationBytes, n*(64+64+1), "destination", serverAddr)
	if rtt := r.Gauge(metric.DestinationRTT); len(rtt) != 1 || rtt[0].Last() <= 0 || rtt[0].Last() > 1 {
		t.Errorf("RTT: %v", rtt)
	}
	if r.Gauge(metric.ListenerSockets) != nil || r.Info(metric.TargetListenPorts) != nil {
		t.Error("a client has listeners")
	}

	r = record(t, openFor(t, server.Pid), 2)
	want(t, r, metric.ListenerSockets, n, "listener", serverAddr, "state", "ESTABLISHED")
	want(t, r, metric.ListenerPeers, n, "listener", serverAddr, "peer", "10.9.0.1")
	want(t, r, metric.ListenerQueue, 0, "listener", serverAddr, "pid", strconv.Itoa(server.Pid))
	want(t, r, metric.ListenerBacklog, 4096, "listener", serverAddr)
	if got := r.Info(metric.TargetListenPorts, "listener", serverAddr, "pid", strconv.Itoa(server.Pid)); len(got) != 1 {
		t.Errorf("listen ports of the target: %v", r.Info(metric.TargetListenPorts))
	}
	if got := r.Gauge(metric.DestinationSockets); got != nil {
		t.Errorf("server-side sockets count as client-side: %v", got)
	}
}

func TestYoungTimeWait(t *testing.T) {
	const n = 17
	p := newPair(t)
	if _, err := p.server.Listen(serverAddr, lab.ServeOptions{}); err != nil {
		t.Fatal(err)
	}
	anchor := child(t, p.client, lab.ChildOptions{Mode: lab.ModeSleep})
	src := openFor(t, anchor.Pid)
	load, err := p.client.Connect(serverAddr, lab.ClientOptions{Count: n, Requests: 1, CloseFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	if st := load.Wait(); st.Units != n {
		t.Fatalf("the load: %+v", st)
	}
	ended := time.Now()
	var r *recording.Recording
	until(t, "17 sockets in TIME_WAIT", func() bool {
		r = record(t, src, 1)
		return len(r.Gauge(metric.DestinationSockets, "state", "TIME_WAIT")) == 1 &&
			r.Gauge(metric.DestinationSockets, "state", "TIME_WAIT")[0].Last() == n
	})
	if time.Since(ended) < 500*time.Millisecond { // a stalled machine can make them old
		want(t, r, metric.DestinationYoungTW, n, "source", "10.9.0.1", "destination", serverAddr)
	}
	if got := r.Gauge(metric.DestinationOwner); got != nil {
		t.Errorf("TIME_WAIT sockets have an owner: %v", got)
	}
	time.Sleep(1100*time.Millisecond - time.Since(ended))
	r = record(t, src, 1)
	want(t, r, metric.DestinationYoungTW, 0, "destination", serverAddr)
	want(t, r, metric.DestinationSockets, n, "destination", serverAddr, "state", "TIME_WAIT")
}

func TestCloseWaitOwner(t *testing.T) {
	const n = 7
	p := newPair(t)
	if _, err := p.server.Listen(serverAddr, lab.ServeOptions{CloseFirst: true}); err != nil {
		t.Fatal(err)
	}
	leak := child(t, p.client, lab.ChildOptions{
		Mode: lab.ModeCloseWait, Name: "leak", Addr: serverAddr,
		Client: lab.ClientOptions{Count: n},
	})
	src := openFor(t, leak.Pid)
	until(t, "7 sockets in CLOSE_WAIT", func() bool {
		s := record(t, src, 1).Gauge(metric.Sockets, "state", "CLOSE_WAIT")
		return len(s) == 1 && s[0].Last() == n
	})
	r := record(t, src, 3)
	want(t, r, metric.ProcessSockets, n, "pid", strconv.Itoa(leak.Pid), "comm", "leak", "state", "CLOSE_WAIT")
}

func TestFullAcceptQueue(t *testing.T) {
	p := newPair(t)
	server := child(t, p.server, lab.ChildOptions{
		Mode: lab.ModeServer, Addr: serverAddr, Server: lab.ServeOptions{Backlog: 3, NeverAccept: true},
	})
	src := openFor(t, server.Pid)
	if _, err := p.client.Connect(serverAddr, lab.ClientOptions{Count: 4, HoldOpen: true}); err != nil {
		t.Fatal(err)
	}
	until(t, "an accept queue of backlog + 1", func() bool { // net/ipv4/tcp_ipv4.c: full is above the backlog
		s := record(t, src, 1).Gauge(metric.ListenerQueue)
		return len(s) == 1 && s[0].Last() == 4
	})
	r := record(t, src, 1)
	want(t, r, metric.ListenerBacklog, 3, "listener", serverAddr, "pid", strconv.Itoa(server.Pid))
}

func TestSynSentRetransmitting(t *testing.T) {
	p := newPair(t)
	if err := p.server.DropSYN(8080); err != nil {
		t.Skip(err)
	}
	client := child(t, p.client, lab.ChildOptions{
		Mode: lab.ModeClient, Addr: serverAddr, Client: lab.ClientOptions{Count: 5, Concurrency: 5},
	})
	src := openFor(t, client.Pid)
	until(t, "five retransmitted SYNs", func() bool { // after 1 s
		s := record(t, src, 1).Gauge(metric.SynSentRetrans, "destination", serverAddr)
		return len(s) == 1 && s[0].Last() == 5
	})
	want(t, record(t, src, 1), metric.DestinationSockets, 5, "destination", serverAddr, "state", "SYN_SENT")
}

// TestWithoutNetlink reads the text files, and must report what they do not contain.
func TestWithoutNetlink(t *testing.T) {
	p := newPair(t)
	server := child(t, p.server, lab.ChildOptions{Mode: lab.ModeServer, Addr: serverAddr})
	if _, err := p.client.Connect(serverAddr, lab.ClientOptions{Count: 3, HoldOpen: true, Requests: 1}); err != nil {
		t.Fatal(err)
	}
	until(t, "three connections", func() bool { return server.Stats().Conns == 3 })
	env := envOf(t, server.Pid)
	src := &source{env: env, table: newTable(), owners: newOwners(env), noDiag: sockdiag.ErrUnsupported}
	r := record(t, src, 1)
	want(t, r, metric.ListenerSockets, 3, "listener", serverAddr, "state", "ESTABLISHED")
	want(t, r, metric.ListenerQueue, 0, "listener", serverAddr)
	for _, m := range diagOnly() {
		reason, _ := r.Why(m)
		if r.Recorded(m) || !strings.Contains(reason, "does not tell it") {
			t.Errorf("%s: recorded %v, reason %q", m.Describe().Name, r.Recorded(m), reason)
		}
	}
}

func TestDumpHeedsItsDeadline(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &source{table: newTable()}
	add := s.adder(ctx)
	var err error
	for i := 0; i < 2*checkEvery && err == nil; i++ {
		err = add(socket(sockdiag.Established, "10.0.0.1:5", "10.0.0.2:80"))
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a dump went on past its context: %v", err)
	}
}

func socket(st sockdiag.State, local, remote string) *sockdiag.Socket {
	return &sockdiag.Socket{State: st, Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remote)}
}

func sampleTable(t *testing.T, tb *table) (*recording.Recording, []recording.Loss) {
	t.Helper()
	b := recording.NewBuilder()
	a := b.Appender()
	tb.keepLargest()
	tb.append(a, newOwners(collect.Env{}))
	lost, _ := a.Commit()
	return b.Done(recording.Meta{}), lost
}

func add(t *testing.T, tb *table, s *sockdiag.Socket) {
	t.Helper()
	if err := tb.add(s); err != nil {
		t.Fatal(err)
	}
}

func TestListenerOf(t *testing.T) {
	tb := newTable()
	for _, l := range []string{"10.0.0.1:80", "0.0.0.0:81", "[::]:82", "[fd00::1]:84"} {
		add(t, tb, socket(sockdiag.Listen, l, "0.0.0.0:0"))
	}
	only6 := socket(sockdiag.Listen, "[::]:83", "[::]:0")
	only6.V6Only = true
	add(t, tb, only6)
	for local, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1:80", "10.0.0.2:80": "", "10.0.0.2:81": "0.0.0.0:81", "[fd00::1]:81": "",
		"10.0.0.2:82":  "[::]:82",
		"[fd00::1]:82": "[::]:82", "[fd00::1]:83": "[::]:83", "10.0.0.2:83": "", "[fd00::1]:84": "[fd00::1]:84",
		"10.0.0.1:99": "",
	} {
		got := ""
		if l := tb.listenerOf(netip.MustParseAddrPort(local)); l != nil {
			got = l.addr.String()
		}
		if got != want {
			t.Errorf("%s belongs to listener %q, want %q", local, got, want)
		}
	}
}

func TestTwoSourcesToOneDestination(t *testing.T) {
	tb := newTable()
	for _, local := range []string{"10.0.0.1:5000", "10.0.0.2:5000", "10.0.0.2:5001"} {
		s := socket(sockdiag.SynSent, local, "10.0.0.9:80")
		s.Retransmits = 1
		add(t, tb, s)
		e := socket(sockdiag.Established, local, "10.0.0.9:80")
		e.HasInfo, e.Info = true, sockdiag.Info{
			RTT: 1000, MinRTT: 900, Len: 256, BytesAcked: 10, SegsOut: 2,
			TotalRetrans: 1,
		}
		add(t, tb, e)
	}
	r, lost := sampleTable(t, tb)
	if len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
	want(t, r, metric.SynSentRetrans, 3, "destination", "10.0.0.9:80")
	want(t, r, metric.DestinationBytes, 30, "destination", "10.0.0.9:80")
	want(t, r, metric.DestinationLost, 3, "destination", "10.0.0.9:80")
	want(t, r, metric.DestinationSegs, 6, "destination", "10.0.0.9:80")
	want(t, r, metric.DestinationRTT, 0.001, "destination", "10.0.0.9:80")
	want(t, r, metric.DestinationMin, 0.0009, "destination", "10.0.0.9:80")
	want(t, r, metric.DestinationSockets, 2, "source", "10.0.0.2", "state", "ESTABLISHED")
}

func TestBounds(t *testing.T) {
	tb := newTable()
	const surplus = 11
	for i := range maxFlows + surplus {
		addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		s := socket(sockdiag.TimeWait, "10.0.0.1:5000", "10.0.0.2:1")
		s.Remote = netip.AddrPortFrom(addr, 80)
		add(t, tb, s)
	}
	for range 3 {
		// known already: not lost, and the largest
		add(t, tb, socket(sockdiag.TimeWait, "10.0.0.1:5000", "10.0.0.7:80"))
	}
	for i := range maxCloseWaits + 3 {
		s := socket(sockdiag.CloseWait, "10.0.0.1:5000", "10.0.0.7:80")
		s.Inode = uint64(i + 1)
		add(t, tb, s)
	}
	r, lost := sampleTable(t, tb)
	if len(lost) != 2 || lost[0].Count != surplus || lost[1].Count != 3 {
		t.Errorf("lost: %v, want %d of pairs and 3 of CLOSE_WAIT", lost, surplus)
	}
	want(t, r, metric.Sockets, maxFlows+surplus+3, "state", "TIME_WAIT")
	want(t, r, metric.DestinationSockets, 4, "destination", "10.0.0.7:80", "state", "TIME_WAIT")
	if got := len(r.Gauge(metric.DestinationSockets, "state", "TIME_WAIT")); got != keptFlows {
		t.Errorf("%d pairs are recorded, want %d", got, keptFlows)
	}
	want(t, r, metric.DestinationSmaller, maxFlows-keptFlows)
	tb.reset()
	if _, lost := sampleTable(t, tb); len(lost) > 0 {
		t.Errorf("the next sample has lost %v again", lost)
	}
}

func TestKeptPairsHaveNoGaps(t *testing.T) {
	tb := newTable()
	add(t, tb, socket(sockdiag.Established, "10.0.0.1:1", "10.0.0.2:80"))
	sampleTable(t, tb)
	tb.reset()
	add(t, tb, socket(sockdiag.Established, "10.0.0.1:1", "10.0.0.2:80"))
	for i := range keptFlows { // each larger than the one kept
		for port := range 2 {
			add(t, tb, socket(sockdiag.Established, fmt.Sprintf("10.0.0.1:%d", 100+port),
				fmt.Sprintf("10.0.1.%d:80", i)))
		}
	}
	r, _ := sampleTable(t, tb)
	want(t, r, metric.DestinationSockets, 1, "destination", "10.0.0.2:80", "state", "ESTABLISHED")
}

// TestOwnersOfOtherProcesses: a listener of a process that is not the target's is found by the next search of all
// processes.
func TestOwnersOfOtherProcesses(t *testing.T) {
	p := newPair(t)
	anchor := child(t, p.server, lab.ChildOptions{Mode: lab.ModeSleep})
	src := openFor(t, anchor.Pid)
	record(t, src, 1)
	// after the first whole search
	other := child(t, p.server, lab.ChildOptions{Mode: lab.ModeServer, Name: "other", Addr: serverAddr})
	r := record(t, src, hostSearch+1)
	if got := r.Gauge(metric.ListenerQueue, "listener", serverAddr, "pid", strconv.Itoa(other.Pid), "comm",
		"other"); len(got) != 1 {
		t.Errorf("the listener's owner was not found in %d samples: %v", hostSearch+2, r.Gauge(metric.ListenerQueue))
	}
	if got := r.Info(metric.TargetListenPorts); got != nil {
		t.Errorf("another process's listener is the target's: %v", got[0].Labels)
	}
}

// timeWaits leaves n sockets in TIME_WAIT to one destination, and returns a source for their namespace.
func timeWaits(t testing.TB, counts ...int) (src collect.Source, next func()) {
	t.Helper()
	l := labtest.New(t)
	h := must(t)(l.Host("lo"))
	for key, value := range map[string]string{
		"net.ipv4.tcp_max_tw_buckets": "100000", "net.ipv4.ip_local_port_range": "1024 65000",
		// on loopback a port is reused after a second, which a busy machine needs for this
		"net.ipv4.tcp_tw_reuse": "0",
	} {
		if err := h.Sysctl(key, value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.StartServer("127.0.0.1:80", lab.ServeOptions{}); err != nil {
		t.Fatal(err)
	}
	anchor := child(t, h, lab.ChildOptions{Mode: lab.ModeSleep})
	return openFor(t, anchor.Pid), func() {
		c, err := h.StartClient("127.0.0.1:80", lab.ClientOptions{
			Count: counts[0], Concurrency: 8, Requests: 1, CloseFirst: true, Duration: 20 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		if st, err := c.Wait(); err != nil || st.Units < uint64(counts[0]) {
			t.Fatalf("%d connections: %v, %v", st.Units, st.Errors, err)
		}
		counts = counts[1:]
	}
}

// TestAllocationsDoNotGrowWithSockets: a sample whose sockets need no search for an owner allocates as often for 11,000
// as for 1,000. The least of several samples is compared. On a busy machine the server closes its ends more slowly, and
// the samples that see those ends search for their owners, as each hostSearch-th sample does. Allocations of other
// goroutines in the meantime count as well.
func TestAllocationsDoNotGrowWithSockets(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 11,000 connections")
	}
	src, more := timeWaits(t, 1000, 10_000)
	b := recording.NewBuilder()
	allocs := func() float64 {
		least := math.Inf(1)
		for range 4 * hostSearch {
			least = min(least, testing.AllocsPerRun(1, func() {
				if err := src.Sample(t.Context(), b.Appender()); err != nil {
					t.Fatal(err)
				}
			}))
		}
		return least
	}
	more()
	few := allocs()
	more()
	many := allocs()
	t.Logf("a sample of 1,000 sockets allocates %.0f times, one of 11,000 %.0f times", few, many)
	if many > few*1.1 {
		t.Errorf("a sample of 1,000 sockets allocates %.0f times, one of 11,000 %.0f times", few, many)
	}
	want(t, record(t, src, 1), metric.Sockets, 11_000, "state", "TIME_WAIT")
}

func BenchmarkSocketsSample(b *testing.B) {
	src, fill := timeWaits(b, 20_000)
	fill()
	rec := recording.NewBuilder()
	b.ReportAllocs()
	for b.Loop() {
		if err := src.Sample(b.Context(), rec.Appender()); err != nil {
			b.Fatal(err)
		}
	}
}

// openPrograms is openFor with the programs loaded before the first sample.
func openPrograms(t testing.TB, pid int) *source {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.BPF)
	src, err := open(t.Context(), envOf(t, pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	src.load(&ebpf.Loader{})
	if err := src.programs.Wait(); err != nil {
		t.Fatal(err)
	}
	return src
}

// TestOwnersAreCounted: two processes connect to one destination. The iterator counts the sockets of each, and /proc
// names both from a sample of them.
func TestOwnersAreCounted(t *testing.T) {
	p := newPair(t)
	server := child(t, p.server, lab.ChildOptions{Mode: lab.ModeServer, Name: "srv", Addr: serverAddr})
	hold := func(name string, n int) *lab.Child {
		c := child(t, p.client, lab.ChildOptions{
			Mode: lab.ModeClient, Name: name, Addr: serverAddr, Client: lab.ClientOptions{
				Count: n, HoldOpen: true,
				Requests: 1,
			},
		})
		until(t, name, func() bool { return c.Stats().Units == uint64(n) })
		return c
	}
	few, many := hold("few", 3), hold("many", 409)
	label := func(c *lab.Child) []string { return []string{"destination", serverAddr, "pid", strconv.Itoa(c.Pid)} }

	r := record(t, openPrograms(t, few.Pid), 2)
	want(t, r, metric.DestinationOwner, 3, label(few)...)
	want(t, r, metric.DestinationOwner, 409, label(many)...)
	if !r.Recorded(metric.BPFRuns) {
		t.Error("the programs' cost is not recorded")
	}
	r = record(t, openFor(t, few.Pid), 2)
	s := r.Gauge(metric.DestinationOwner, label(many)...)
	if len(s) != 1 || s[0].Last() < flowInodes/2 {
		t.Errorf("by /proc the large owner has %v of %d sockets looked at", s, flowInodes)
	}

	r = record(t, openPrograms(t, server.Pid), 2)
	want(t, r, metric.ListenerQueue, 0, "listener", serverAddr, "pid", strconv.Itoa(server.Pid), "comm", "srv")
	if got := r.Info(metric.TargetListenPorts, "listener", serverAddr, "pid", strconv.Itoa(server.Pid)); len(got) != 1 {
		t.Errorf("listen ports of the target: %v", r.Info(metric.TargetListenPorts))
	}
	if got := r.Gauge(metric.DestinationOwner); got != nil {
		t.Errorf("server-side sockets count as client-side: %v", got)
	}
}

// TestReadByIterator forces the choice that many sockets cause, and compares both ways of reading.
func TestReadByIterator(t *testing.T) {
	p := newPair(t)
	if _, err := p.server.Listen(serverAddr, lab.ServeOptions{CloseFirst: true}); err != nil {
		t.Fatal(err)
	}
	leak := child(t, p.client, lab.ChildOptions{
		Mode: lab.ModeCloseWait, Name: "leak", Addr: serverAddr,
		Client: lab.ClientOptions{Count: 37},
	})
	src := openPrograms(t, leak.Pid)
	until(t, "37 sockets in CLOSE_WAIT", func() bool {
		s := record(t, src, 1).Gauge(metric.Sockets, "state", "CLOSE_WAIT")
		return len(s) == 1 && s[0].Last() == 37
	})
	src.table.states[sockdiag.Established] = 1_000_000 // of the sample before
	src.owners = newOwners(src.env)
	src.owners.programs = src.programs
	r := record(t, src, 1)
	if !src.iterated {
		t.Fatal("a million connections are not read by the iterator")
	}
	want(t, r, metric.Sockets, 37, "state", "CLOSE_WAIT")
	want(t, r, metric.DestinationSockets, 37, "destination", serverAddr, "state", "CLOSE_WAIT")
	want(t, r, metric.DestinationOwner, 37, "destination", serverAddr, "pid", strconv.Itoa(leak.Pid), "comm", "leak")
	want(t, r, metric.ProcessSockets, 37, "pid", strconv.Itoa(leak.Pid), "comm", "leak", "state", "CLOSE_WAIT")
	record(t, src, 1)
	if !src.iterated {
		t.Error("the sockets of a target are not read by the iterator, which knows which requests have no answer")
	}
	src.env.Target = host.Target{}
	record(t, src, 1)
	if src.iterated {
		t.Error("37 sockets are read by the iterator, which is dearer")
	}
}

func TestIteratorPays(t *testing.T) {
	for _, c := range []struct {
		established, timeWait int
		want                  bool
	}{
		{0, 0, false},
		{6000, 0, false},
		{7000, 0, true},
		{7000, 10_000, false},
		{0, 100_000, false},
		{100_000, 100_000, true},
	} {
		tb := newTable()
		tb.states[sockdiag.Established], tb.states[sockdiag.TimeWait] = c.established, c.timeWait
		if got := tb.iteratorPays(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
