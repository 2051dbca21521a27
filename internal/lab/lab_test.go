package lab

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab/vm/guest"
)

func TestMain(m *testing.M) {
	if code, child := RunIfChild(); child {
		os.Exit(code)
	}
	testenv.DefaultSignals()
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newHost(t *testing.T, l *Lab, name string) *Host {
	t.Helper()
	h, err := l.Host(name)
	must(t, err)
	return h
}

// pair is a client and a server host with a veth pair, 10.90.0.1 and 10.90.0.2.
func pair(t *testing.T) (*Lab, *Host, *Host) {
	t.Helper()
	l := forTest(t)
	client, server := newHost(t, l, "client"), newHost(t, l, "server")
	_, _, err := l.Link(client, server, "10.90.0.1/24", "10.90.0.2/24")
	must(t, err)
	return l, client, server
}

const serverAddr = "10.90.0.2:9000"

// timeWaits counts a host's TIME_WAIT sockets, state 06 in /proc/net/tcp.
func timeWaits(t *testing.T, h *Host) int {
	t.Helper()
	n := 0
	must(t, h.Do(func() error {
		data, err := os.ReadFile("/proc/thread-self/net/tcp")
		for line := range bytes.Lines(data) {
			if field := bytes.Fields(line); string(field[3]) == "06" {
				n++
			}
		}
		return err
	}))
	return n
}

// ports200 is a range of exactly 200 local ports, without reuse of those in TIME_WAIT.
func ports200(t *testing.T, h *Host) {
	t.Helper()
	must(t, h.Sysctl("net.ipv4.ip_local_port_range", "40000 40199"))
	must(t, h.Sysctl("net.ipv4.tcp_tw_reuse", "0"))
	// If the machine stalls for an RTO, the server's second FIN ends in a RST, which would free a port in TIME_WAIT.
	must(t, h.Sysctl("net.ipv4.tcp_rfc1337", "1"))
}

func TestExhaustionClientClosesFirst(t *testing.T) {
	_, client, server := pair(t)
	ports200(t, client)
	_, err := server.StartServer(serverAddr, ServeOptions{})
	must(t, err)
	child, err := client.StartClient(serverAddr, ClientOptions{Count: 250, Concurrency: 4, CloseFirst: true})
	must(t, err)
	got, err := child.Wait()
	must(t, err)
	if got.Conns != 200 || got.Units != 200 || !got.Done {
		t.Errorf("got %+v, want exactly 200 connections", got)
	}
	if diff := cmp.Diff(map[string]uint64{"EADDRNOTAVAIL": 50}, got.Errors); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	// The last ones get there after the server has closed its end, too.
	n := timeWaits(t, client)
	for deadline := time.Now().Add(5 * time.Second); n < 200 && time.Now().Before(deadline); n = timeWaits(t, client) {
		time.Sleep(10 * time.Millisecond)
	}
	if n != 200 {
		t.Errorf("client has %d TIME_WAIT, want 200", n)
	}
}

func TestServerClosesFirst(t *testing.T) {
	_, client, server := pair(t)
	ports200(t, client)
	serving, err := server.Listen(serverAddr, ServeOptions{CloseFirst: true, Requests: 1})
	must(t, err)
	load, err := client.Connect(serverAddr, ClientOptions{Count: 150, Concurrency: 4, Requests: 1})
	must(t, err)
	got := load.Wait()
	if got.Units != 150 || len(got.Errors) != 0 {
		t.Errorf("got %+v, want 150 connections and no error", got)
	}
	if n := timeWaits(t, client); n != 0 {
		t.Errorf("client has %d TIME_WAIT, want 0", n)
	}
	// The client reuses a port that is in TIME_WAIT at the server, so these are fewer than the connections.
	if n := timeWaits(t, server); n < 20 || n > 150 {
		t.Errorf("server has %d TIME_WAIT, want about 100, the even ports", n)
	}
	if s := serving.Stop(); s.Conns != 150 || s.Units != 150 || !s.Done {
		t.Errorf("server %+v, want 150 connections with a request each", s)
	}
}

func TestBindWithoutNoPortFailsWithAddrInUse(t *testing.T) {
	for _, noPort := range []bool{false, true} {
		t.Run(fmt.Sprintf("noPort=%v", noPort), func(t *testing.T) {
			_, client, server := pair(t)
			ports200(t, client)
			_, err := server.Listen(serverAddr, ServeOptions{})
			must(t, err)
			load, err := client.Connect(serverAddr, ClientOptions{
				Count: 210, CloseFirst: true, BindIP: "10.90.0.1", BindNoPort: noPort,
			})
			must(t, err)
			want := map[string]uint64{"EADDRINUSE": 10}
			if noPort {
				want = map[string]uint64{"EADDRNOTAVAIL": 10}
			}
			if diff := cmp.Diff(want, load.Wait().Errors); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKeepAliveUsesOneConnectionAWorker(t *testing.T) {
	_, client, server := pair(t)
	_, err := server.Listen(serverAddr, ServeOptions{Delay: 2 * time.Millisecond})
	must(t, err)
	load, err := client.Connect(serverAddr, ClientOptions{Count: 100, Concurrency: 2, KeepAlive: true})
	must(t, err)
	got := load.Wait()
	if got.Conns != 2 || got.Units != 100 || len(got.Errors) != 0 {
		t.Errorf("got %+v, want 100 requests on 2 connections", got)
	}
	if got.Latency.P50 < 2*time.Millisecond || got.Latency.Max < got.Latency.P99 {
		t.Errorf("latency %+v: want a median of at least the server's 2 ms", got.Latency)
	}
}

func TestAcceptQueueHoldsBacklogPlusOne(t *testing.T) {
	_, client, server := pair(t)
	_, err := server.Listen(serverAddr, ServeOptions{Backlog: 3, NeverAccept: true})
	must(t, err)
	load, err := client.Connect(serverAddr, ClientOptions{
		// At a rate, because handshakes at the same time are all let in before the first of them fills the queue.
		Count: 8, Concurrency: 8, Rate: 50, HoldOpen: true,
		Timeout: 500 * time.Millisecond, Duration: 900 * time.Millisecond, // before the SYN is sent again after 1 s
	})
	must(t, err)
	got := load.Wait()
	if got.Conns != 4 || got.Errors["ETIMEDOUT"] != 4 {
		t.Errorf("got %+v, want backlog + 1 = 4 connections and 4 timeouts", got)
	}
}

func TestDropSYN(t *testing.T) {
	_, client, server := pair(t)
	_, err := server.Listen(serverAddr, ServeOptions{})
	must(t, err)
	_, err = server.Listen("10.90.0.2:9001", ServeOptions{})
	must(t, err)
	must(t, server.DropSYN(9000))
	for addr, want := range map[string]map[string]uint64{serverAddr: {"ETIMEDOUT": 1}, "10.90.0.2:9001": {}} {
		load, err := client.Connect(addr, ClientOptions{Count: 1, CloseFirst: true, Timeout: 300 * time.Millisecond})
		must(t, err)
		if diff := cmp.Diff(want, load.Wait().Errors); diff != "" {
			t.Errorf("%s: errors (-want +got):\n%s", addr, diff)
		}
	}
}

// TestDropOneSYNIn loses the first SYN of three. The first connection waits for its retransmission, which comes after 1
// s (TCP_TIMEOUT_INIT, include/net/tcp.h), and the second does not.
func TestDropOneSYNIn(t *testing.T) {
	_, client, server := pair(t)
	_, err := server.Listen(serverAddr, ServeOptions{})
	must(t, err)
	must(t, server.DropOneSYNIn(3, 9000))
	var took []time.Duration
	for range 2 {
		load, err := client.Connect(serverAddr, ClientOptions{Count: 1, CloseFirst: true})
		must(t, err)
		s := load.Wait()
		if s.Units != 1 {
			t.Fatalf("stats %+v", s)
		}
		took = append(took, s.Latency.Max)
	}
	if took[0] < 900*time.Millisecond || took[1] > 900*time.Millisecond {
		t.Errorf("connections took %v, want the first alone to wait for a second", took)
	}
	for _, n := range []int{0, maxOneIn + 1} {
		if err := server.DropOneSYNIn(n, 9000); err == nil {
			t.Errorf("one in %d: no error", n)
		}
	}
}

func TestMasqueradeThroughBridge(t *testing.T) {
	l := forTest(t)
	inside, gateway, outside := newHost(t, l, "inside"), newHost(t, l, "gateway"), newHost(t, l, "outside")
	_, err := l.Bridge(gateway, "10.91.0.1/24", Port{Host: inside, CIDR: "10.91.0.2/24"})
	must(t, err)
	out, _, err := l.Link(gateway, outside, "10.92.0.1/24", "10.92.0.2/24")
	must(t, err)
	must(t, inside.Route("default", "10.91.0.1"))
	must(t, gateway.Forward())
	connect := func() Stats { // outside has no route back: only a rewritten source gets an answer
		load, err := inside.Connect("10.92.0.2:9000", ClientOptions{
			Count: 1, Requests: 1, CloseFirst: true, Timeout: 300 * time.Millisecond,
		})
		must(t, err)
		return load.Wait()
	}
	_, err = outside.Listen("10.92.0.2:9000", ServeOptions{})
	must(t, err)
	if got := connect(); got.Conns != 0 {
		t.Fatalf("without masquerade: got %+v, want no connection", got)
	}
	must(t, gateway.Masquerade(out))
	must(t, gateway.LinearRules(100))
	if got := connect(); got.Units != 1 || len(got.Errors) != 0 {
		t.Errorf("with masquerade: got %+v, want one connection", got)
	}
}

func TestLinearRulesLoadInSeconds(t *testing.T) {
	l := forTest(t)
	h := newHost(t, l, "gateway")
	start := time.Now()
	must(t, h.LinearRules(20_000))
	took := time.Since(start)
	t.Logf("20000 rules in %v", took)
	if took > 20*time.Second { // 10 times what an idle machine needs
		t.Errorf("20000 rules took %v", took)
	}
	conn, err := h.nft()
	must(t, err)
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "pd_linear"}
	rules, err := conn.GetRules(table, &nftables.Chain{Name: "forward", Table: table})
	must(t, err)
	if len(rules) != 20_000 {
		t.Errorf("the chain has %d rules, want 20000", len(rules))
	}
}

// TestMachineSysctl also runs in a guest (package vm), where it is allowed.
func TestMachineSysctl(t *testing.T) {
	const key, file = "net.core.netdev_max_backlog", "/proc/sys/net/core/netdev_max_backlog"
	read := func() string {
		value, err := os.ReadFile(file)
		must(t, err)
		return strings.TrimSpace(string(value))
	}
	l := forTest(t)
	before := read()
	err := l.MachineSysctl(key, "4321")
	if !guest.Inside() {
		if err == nil || read() != before {
			t.Errorf("this machine's %s is now %s, error %v", key, read(), err)
		}
		return
	}
	must(t, err)
	if got := read(); got != "4321" {
		t.Errorf("%s is %s", key, got)
	}
	for _, bad := range []string{"net.core.no_such", "net/../../../etc/passwd", ""} {
		if err := l.MachineSysctl(bad, "1"); err == nil {
			t.Errorf("sysctl %q: no error", bad)
		}
	}
	must(t, l.Close())
	if got := read(); got != before {
		t.Errorf("%s is %s after Close, was %s", key, got, before)
	}
}

func TestSysctl(t *testing.T) {
	l := forTest(t)
	h := newHost(t, l, "a")
	for _, key := range []string{
		"net.core.netdev_max_backlog", "net.netfilter.nf_conntrack_max", "net.nf_conntrack_max",
		"net/core/netdev_max_backlog", "net/../kernel/pid_max", "kernel.pid_max", "vm.swappiness",
		"net.core.rps_sock_flow_entries",
	} {
		if err := h.Sysctl(key, "65536"); err == nil {
			t.Errorf("%s: written, want a refusal: it is global", key)
		}
	}
	before, err := os.ReadFile("/proc/sys/net/ipv4/tcp_fin_timeout")
	must(t, err)
	must(t, h.Sysctl("net.ipv4.tcp_fin_timeout", "17"))
	must(t, h.Do(func() error {
		got, err := os.ReadFile("/proc/sys/net/ipv4/tcp_fin_timeout")
		if string(got) != "17\n" {
			t.Errorf("in the host: %q, want 17", got)
		}
		return err
	}))
	after, err := os.ReadFile("/proc/sys/net/ipv4/tcp_fin_timeout")
	must(t, err)
	if !bytes.Equal(before, after) {
		t.Errorf("the machine's tcp_fin_timeout went from %q to %q", before, after)
	}
}

func TestRPS(t *testing.T) {
	_, client, _ := pair(t)
	must(t, client.RPS("eth0", "1"))
	must(t, client.Do(func() error {
		sys, err := detachedSysfs()
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(sys) }()
		got, err := os.ReadFile(fmt.Sprintf("/proc/thread-self/fd/%d/class/net/eth0/queues/rx-0/rps_cpus", sys))
		if strings.Trim(string(got), "0,\n") != "1" {
			t.Errorf("rps_cpus is %q, want 1", got)
		}
		return err
	}))
	if err := client.RPS("eth9", "1"); err == nil {
		t.Error("rps of a device that is not there: want an error")
	}
}

func TestQuotaThrottles(t *testing.T) {
	l := forTest(t)
	h := newHost(t, l, "a")
	group, err := l.Cgroup("pod", "app")
	must(t, err)
	must(t, group.SetQuota(50*time.Millisecond, 10*time.Millisecond))
	begun := time.Now()
	child, err := h.StartChild(group, ChildOptions{
		Mode: ModeSpin, Duration: time.Second,
		Spin: SpinOptions{Threads: 2},
	})
	must(t, err)
	pids, err := group.Pids()
	must(t, err)
	if !slices.Equal(pids, []int{child.Pid}) {
		t.Errorf("the group has pids %v, want %d", pids, child.Pid)
	}
	_, err = child.Wait()
	must(t, err)
	used := child.cmd.ProcessState.UserTime() + child.cmd.ProcessState.SystemTime()
	// Its start is under the quota, too, and on an emulated CPU takes seconds for that reason. Without the quota it is
	// 100 to 200 %.
	if lived := time.Since(begun); used > lived*2/5 {
		t.Errorf("the child used %v in %v with a quota of 20 %%", used, lived)
	}
	got, err := group.Throttling()
	must(t, err)
	if got.Throttled < 3 || 3*got.Throttled < got.Periods || got.Throttled > got.Periods || got.Time <= 0 {
		t.Errorf("throttling %+v, want most of up to 20 periods", got)
	}
	must(t, group.SetQuota(50*time.Millisecond, 0))
}

func TestAddedProcessSurvivesClose(t *testing.T) {
	if os.Getenv("PD_TEST_OTHER") == "1" {
		time.Sleep(30 * time.Second)
		return
	}
	l := forTest(t)
	// in a guest there is no other program
	other := exec.Command("/proc/self/exe", "-test.run=^TestAddedProcessSurvivesClose$")
	other.Env = append(os.Environ(), "PD_TEST_OTHER=1")
	must(t, other.Start())
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	file := fmt.Sprintf("/proc/%d/cgroup", other.Process.Pid)
	before, err := os.ReadFile(file)
	must(t, err)
	group, err := l.Cgroup("added")
	must(t, err)
	must(t, group.Add(other.Process.Pid))
	must(t, group.SetMemoryLimit(64<<20))
	inside, err := os.ReadFile(file)
	must(t, err)
	if n := strings.Count(string(inside), group.Path()); n < 1 {
		t.Errorf("the process is not in %s:\n%s", group.Path(), inside)
	}
	must(t, l.Close())
	after, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("its groups after Close (-before +after):\n%s", diff)
	}
}

func TestChildModes(t *testing.T) {
	_, client, server := pair(t)
	sink, err := server.StartServer(serverAddr, ServeOptions{CloseFirst: true})
	must(t, err)
	for _, test := range []struct {
		options ChildOptions
		want    uint64 // units when it ends
	}{
		{ChildOptions{Mode: ModeOpenFDs, FDs: FDOptions{Count: 50, Limit: 4096}}, 50},
		{ChildOptions{Mode: ModeOpenFDs, FDs: FDOptions{Count: 20, PerSecond: 100}}, 20},
		{ChildOptions{Mode: ModeCloseWait, Addr: serverAddr, Client: ClientOptions{Count: 20, Rate: 100}}, 20},
		{ChildOptions{
			Mode: ModeSpin, Name: "bursty", Spin: SpinOptions{Burst: time.Millisecond, Every: 20 * time.Millisecond},
		}, 20},
		{ChildOptions{Mode: ModeSleep}, 0},
	} {
		t.Run(string(test.options.Mode), func(t *testing.T) {
			test.options.Duration = 5 * time.Second
			child, err := client.StartChild(nil, test.options)
			must(t, err)
			for range 50 {
				if child.Stats().Units >= test.want {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			checkChild(t, child, test.options.Mode)
			got, err := child.Stop()
			must(t, err)
			if got.Units < test.want || got.ErrorCount() != 0 || !got.Done {
				t.Errorf("got %+v, want %d units and no error", got, test.want)
			}
		})
	}
	_, err = sink.Stop()
	must(t, err)
}

// checkChild looks at the child from outside, as perfdoctor does.
func checkChild(t *testing.T, child *Child, mode Mode) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d", child.Pid)
	if mode == ModeOpenFDs {
		files, err := os.ReadDir(proc + "/fd")
		must(t, err)
		if len(files) < 20 {
			t.Errorf("the child has %d open files, want at least 20", len(files))
		}
	}
	if mode == ModeCloseWait {
		data, err := os.ReadFile(proc + "/net/tcp")
		must(t, err)
		if n := bytes.Count(data, []byte(" 08 ")); n != 20 { // state 08 is CLOSE_WAIT
			t.Errorf("the child's host has %d CLOSE_WAIT, want 20", n)
		}
	}
	if mode == ModeSpin {
		comm, err := os.ReadFile(proc + "/comm")
		must(t, err)
		if string(comm) != "bursty\n" {
			t.Errorf("comm is %q, want bursty", comm)
		}
	}
}

func TestUDPFloodKeepsItsRate(t *testing.T) {
	_, client, server := pair(t)
	var received int
	must(t, server.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 7777}); err != nil {
			return err
		}
		child, err := client.StartChild(nil, ChildOptions{
			Mode: ModeUDPFlood, Addr: "10.90.0.2:7777", Duration: 500 * time.Millisecond,
			Flood: FloodOptions{PPS: 100, Sockets: 4, Size: 32},
		})
		if err != nil {
			return err
		}
		got, err := child.Wait()
		due := uint64(100 * got.Elapsed.Seconds())
		if got.Units < due/4 || got.Units > due+1 {
			t.Errorf("sent %d datagrams in %v, want about %d and no more", got.Units, got.Elapsed, due)
		}
		var buf [64]byte
		for {
			if _, err := unix.Read(fd, buf[:]); err != nil {
				break
			}
			received++
		}
		if uint64(received) != got.Units {
			t.Errorf("received %d of %d datagrams", received, got.Units)
		}
		return err
	}))
}

func TestStartRunsInHost(t *testing.T) {
	l := forTest(t)
	h := newHost(t, l, "a")
	var out bytes.Buffer
	cmd := exec.Command("readlink", "/proc/self/ns/net")
	cmd.Stdout = &out
	p, err := h.Start(cmd)
	must(t, err)
	must(t, p.Wait())
	inode, err := h.Inode()
	must(t, err)
	if want := fmt.Sprintf("net:[%d]\n", inode); out.String() != want {
		t.Errorf("the program ran in %q, want %q", out.String(), want)
	}
	if _, err := h.Start(exec.Command("/does/not/exist")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("start of a missing program: %v", err)
	}
}

// TestCloseLeavesNothing looks for every trace: threads and files in the namespaces, devices, groups, processes.
func TestCloseLeavesNothing(t *testing.T) {
	l, client, server := pair(t)
	group, err := l.Cgroup("a", "b")
	must(t, err)
	must(t, group.SetMemoryLimit(256<<20))
	child, err := client.StartChild(group, ChildOptions{Mode: ModeSleep})
	must(t, err)
	started, write, err := os.Pipe()
	must(t, err)
	cmd := exec.Command("sh", "-c", "trap '' TERM; sleep 60 & echo started; wait")
	cmd.Stdout = write
	shell, err := client.Start(cmd)
	must(t, errors.Join(err, write.Close()))
	_, err = started.Read(make([]byte, 8))
	must(t, errors.Join(err, started.Close()))
	_, err = server.Listen(serverAddr, ServeOptions{})
	must(t, err)
	_, err = client.Connect(serverAddr, ClientOptions{Count: 5, HoldOpen: true, Duration: time.Minute})
	must(t, err)
	var inodes []string
	for _, h := range []*Host{client, server} {
		inode, err := h.Inode()
		must(t, err)
		inodes = append(inodes, fmt.Sprintf("net:[%d]", inode))
	}
	if got := groupMembers(t, shell.Pid); len(got) != 2 {
		t.Fatalf("the shell's group is %v, want the shell and its sleep: the search is broken", got)
	}
	if got := holders(t, inodes); len(got) < 4 {
		t.Fatalf("while open, found %q, want at least two threads and two files: the search is broken", got)
	}
	cpu, err := group.Dir("cpu")
	must(t, err)
	memory, err := group.Dir("memory")
	must(t, err)

	must(t, l.Close())
	must(t, l.Close())

	for deadline := time.Now().Add(2 * time.Second); len(holders(t, inodes)) > 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond) // a killed grandchild is reaped by init
	}
	if got := holders(t, inodes); len(got) > 0 {
		t.Errorf("the namespaces are still held by %q", got)
	}
	for _, dir := range []string{cpu, memory} {
		if top := filepath.Dir(filepath.Dir(dir)); exists(top) {
			t.Errorf("%s is still there", top)
		}
	}
	for _, p := range []*Process{child.Process, shell} {
		if pids := groupMembers(t, p.Pid); len(pids) > 0 {
			t.Errorf("of process group %d, %v still run", p.Pid, pids)
		}
	}
	links, err := netlink.LinkList()
	must(t, err)
	for _, link := range links {
		if strings.HasPrefix(link.Attrs().Alias, l.Name()) {
			t.Errorf("device %s is still there", link.Attrs().Name)
		}
	}
	if _, err := l.Host("late"); err == nil {
		t.Error("a closed lab made a host")
	}
	if _, err := client.Start(exec.Command("true")); !errors.Is(err, errHostClosed) {
		t.Errorf("start in a closed host: %v, want %v", err, errHostClosed)
	}
}

// groupMembers lists the processes of a process group, without zombies that init has yet to reap. In /proc/<pid>/stat
// "(comm) state ppid pgrp" follow the pid.
func groupMembers(t *testing.T, pgrp int) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	var members []string
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		field := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		if field[2] == strconv.Itoa(pgrp) && field[0] != "Z" {
			members = append(members, path)
		}
	}
	return members
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// holders lists the threads in, and the open files of, the namespaces, in all processes.
func holders(t *testing.T, inodes []string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/proc/[0-9]*/task/[0-9]*/ns/net", "/proc/self/fd/[0-9]*"} {
		paths, err := filepath.Glob(pattern)
		must(t, err)
		for _, path := range paths {
			target, err := os.Readlink(path)
			if err == nil && slices.Contains(inodes, target) {
				found = append(found, path)
			}
		}
	}
	return found
}

// TestKilledParentLeavesNoChild runs a lab in a child that is killed, and looks for the grandchild.
func TestKilledParentLeavesNoChild(t *testing.T) {
	if os.Getenv("PD_TEST_KILLED") == "1" {
		l := forTest(t)
		child, err := newHost(t, l, "a").StartChild(nil, ChildOptions{Mode: ModeSleep})
		must(t, err)
		_, err = l.Cgroup("stale")
		must(t, err)
		fmt.Printf("pid %d %s\n", child.Pid, l.Name())
		time.Sleep(time.Minute)
	}
	l := forTest(t)
	h := newHost(t, l, "a")
	read, write, err := os.Pipe()
	must(t, err)
	defer func() { _ = read.Close() }()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledParentLeavesNoChild$")
	cmd.Env = append(os.Environ(), "PD_TEST_KILLED=1")
	cmd.Stdout = write
	p, err := h.Start(cmd)
	must(t, errors.Join(err, write.Close()))
	var pid int
	var name string
	_, err = fmt.Fscanf(read, "pid %d %s\n", &pid, &name)
	must(t, err)
	if !running(pid) {
		t.Fatalf("grandchild %d does not run", pid)
	}
	must(t, p.Signal(unix.SIGKILL))
	<-p.Done()
	for deadline := time.Now().Add(2 * time.Second); running(pid) && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if running(pid) {
		t.Errorf("grandchild %d outlived its parent", pid)
	}
	tree, err := findHierarchy("cpu")
	must(t, err)
	if !exists(filepath.Join(tree.root, name)) {
		t.Fatalf("the killed lab left no group %s: the rest of the test shows nothing", name)
	}
	next, err := New("next")
	must(t, err)
	must(t, next.Close())
	if exists(filepath.Join(tree.root, name)) {
		t.Errorf("group %s of a killed lab was not swept", name)
	}
}

// running says whether pid is there and no zombie.
func running(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func TestHistogram(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 15, 16, 17, 31, 32, 1000, time.Millisecond, time.Hour, 1<<63 - 1} {
		bound := upperBound(bucketOf(d))
		if bound < d || float64(bound-d) > float64(d)/subBuckets {
			t.Errorf("%d: bucket %d ends at %d, want at most 1/64 above", d, bucketOf(d), bound)
		}
	}
	var h histogram
	for n := range 100 {
		h[bucketOf(time.Duration(n+1)*time.Millisecond)]++
	}
	for q, want := range map[float64]time.Duration{0.5: 50 * time.Millisecond, 0.99: 99 * time.Millisecond} {
		if got := h.quantile(q, 100); got < want || got > want+want/subBuckets {
			t.Errorf("quantile %v is %v, want %v or up to 1/64 more", q, got, want)
		}
	}
}

func TestLatencySince(t *testing.T) {
	times := func(ms ...int) Stats {
		var h histogram
		for _, n := range ms {
			h[bucketOf(time.Duration(n)*time.Millisecond)]++
		}
		return Stats{Times: h.times()}
	}
	before := times(900, 900, 900)
	got, ok := times(900, 900, 900, 10, 10, 40).LatencySince(before)
	if !ok || got.P50.Round(time.Millisecond) != 10*time.Millisecond ||
		got.Max.Round(time.Millisecond) != 40*time.Millisecond {
		t.Errorf("got %+v, %v; want a median of 10 ms and 40 ms at most: what was before does not count", got, ok)
	}
	if _, ok := before.LatencySince(before); ok {
		t.Error("nothing was done since: want ok to be false")
	}
	some := times(0, 10, 10, 40, 90_000)
	counted := uint64(0)
	some.EachTime(func(atMost time.Duration, n uint64) {
		exact := false
		for _, d := range []time.Duration{0, 10 * time.Millisecond, 40 * time.Millisecond, 90 * time.Second} {
			exact = exact || atMost >= d && atMost <= d+d/16+subBuckets
		}
		if !exact {
			t.Errorf("%d took at most %v, which is none of their times", n, atMost)
		}
		counted += n
	})
	if counted != 5 {
		t.Errorf("%d of 5 have a bound", counted)
	}
}

func TestHierarchyIn(t *testing.T) {
	const v1 = "cgroup /c/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n"
	const v2 = "cgroup2 /c cgroup2 rw 0 0\n"
	for _, test := range []struct {
		name, mounts string
		inV2         bool
		want         hierarchy
		ok           bool
	}{
		{"v1 beside v2", v2 + v1, false, hierarchy{root: "/c/cpu,cpuacct"}, true},
		{"v2 alone", v2, true, hierarchy{root: "/c", v2: true}, true},
		{"v2 without the controller", v2, false, hierarchy{}, false},
		{"cpuset is not cpu", "cgroup /c/cpuset cgroup rw,cpuset 0 0\n", false, hierarchy{}, false},
		{"short line", "cgroup\n", false, hierarchy{}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := hierarchyIn([]byte(test.mounts), "cpu", func(string) bool { return test.inV2 })
			if got != test.want || ok != test.ok {
				t.Errorf("got %+v %v, want %+v %v", got, ok, test.want, test.ok)
			}
		})
	}
}

func TestParseThrottling(t *testing.T) {
	got, err := parseThrottling([]byte("usage_usec 5\nnr_periods 7\nnr_throttled 3\nthrottled_usec 2000\n"))
	must(t, err)
	if diff := cmp.Diff(Throttling{Periods: 7, Throttled: 3, Time: 2 * time.Millisecond}, got); diff != "" {
		t.Errorf("v2 (-want +got):\n%s", diff)
	}
	if _, err := parseThrottling([]byte("nr_periods many\n")); err == nil {
		t.Error("a bad number: want an error")
	}
}

// TestNoLabInChild guards against children that start children without end.
func TestNoLabInChild(t *testing.T) {
	testenv.Need(t, testenv.Root)
	t.Setenv(childEnv, "{}")
	if _, err := New("child"); err == nil {
		t.Fatal("a child could make a lab")
	}
}

// forTest is labtest.New, which cannot be imported here.
func forTest(t testing.TB) *Lab {
	t.Helper()
	testenv.Need(t, testenv.Root)
	l, err := New(fmt.Sprintf("t%08x", rand.Uint32()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close lab: %v", err)
		}
	})
	return l
}

// A job in the background of a shell script ignores SIGINT; what it starts in a host must not.
func TestProcessHeedsInterrupt(t *testing.T) {
	l := forTest(t)
	h, err := l.Host("alone")
	must(t, err)
	signal.Ignore(os.Interrupt)
	defer signal.Reset(os.Interrupt)
	sleep, err := h.Start(exec.Command("sleep", "30"))
	must(t, err)
	must(t, sleep.Signal(unix.SIGINT))
	select {
	case <-sleep.Done():
	case <-time.After(3 * time.Second):
		t.Error("still running 3 s after SIGINT")
	}
}

// TestAffinity: a process and a child see their CPUs from the start. A process started later from the same thread sees
// all.
func TestAffinity(t *testing.T) {
	l := forTest(t)
	h, err := l.Host("alone")
	must(t, err)
	one := Place{Affinity: []int{0}}
	program, err := h.StartIn(one, exec.Command("sleep", "30"))
	must(t, err)
	child, err := h.StartChild(nil, ChildOptions{Mode: ModeSleep, Affinity: one.Affinity})
	must(t, err)
	for name, pid := range map[string]int{"program": program.Pid, "child": child.Pid} {
		if got := affinity(t, pid); got.Count() != 1 || !got.IsSet(0) {
			t.Errorf("%s: %d CPUs, CPU 0 %v; want CPU 0 alone", name, got.Count(), got.IsSet(0))
		}
	}
	later, err := h.Start(exec.Command("sleep", "30"))
	must(t, err)
	if got, want := affinity(t, later.Pid), affinity(t, os.Getpid()); got != want {
		t.Errorf("later: %d CPUs, want the test's %d", got.Count(), want.Count())
	}
	_, err = h.StartIn(Place{Affinity: []int{1023}}, exec.Command("true"))
	if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "affinity to CPUs [1023]") {
		t.Errorf("a CPU that is not there: %v", err)
	}
}

func affinity(t *testing.T, pid int) unix.CPUSet {
	t.Helper()
	var set unix.CPUSet
	must(t, unix.SchedGetaffinity(pid, &set))
	return set
}
