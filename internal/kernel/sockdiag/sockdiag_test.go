package sockdiag

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const testTimeout = 10 * time.Second

func open(t testing.TB) *Conn {
	t.Helper()
	c, err := Open(testTimeout)
	check(t, err)
	t.Cleanup(func() { check(t, c.Close()) })
	return c
}

// population makes prime numbers of sockets in the states that a test can hold, and returns their counts.
func population(t testing.TB) stateCounts {
	t.Helper()
	to4 := func(port int) unix.Sockaddr { return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}} }
	l4, p4 := listen(t, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, 128)
	l6, p6 := listen(t, &unix.SockaddrInet6{}, 128)
	to6 := &unix.SockaddrInet6{Port: p6, Addr: netip.IPv6Loopback().As16()}
	connections(t, 53, l4, to4(p4))
	connections(t, 17, l6, to6)
	connections(t, 7, l6, to4(p6)) // an IPv4 client of a dual-stack server
	clients, _ := connections(t, 13, l4, to4(p4))
	for _, c := range clients { // leaves FIN_WAIT2 here and CLOSE_WAIT over there
		check(t, unix.Shutdown(c, unix.SHUT_WR))
	}
	awaitNone(t, StatesOf(FinWait1))
	timeWaits(t, 211, l4, to4(p4))
	timeWaits(t, 19, l6, to6)
	return stateCounts{
		"LISTEN": 1, "LISTEN ipv6": 1,
		"ESTABLISHED": 2*53 + 7, "ESTABLISHED ipv6": 2*17 + 7,
		"FIN_WAIT2": 13, "CLOSE_WAIT": 13,
		"TIME_WAIT": 211, "TIME_WAIT ipv6": 19,
	}
}

func TestDumpCountsExactly(t *testing.T) {
	enterNamespace(t)
	want := population(t)
	c := open(t)
	both, single, proc := stateCounts{}, stateCounts{}, stateCounts{}
	check(t, c.Dump(unix.AF_UNSPEC, AllStates, true, both.add))
	check(t, c.Dump(unix.AF_INET, AllStates, false, single.add))
	check(t, c.Dump(unix.AF_INET6, AllStates, false, single.add))
	check(t, DumpProc(openProc(t, "tcp"), openProc(t, "tcp6"), proc.add))
	for name, got := range map[string]stateCounts{"both families": both, "one by one": single, "/proc": proc} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The two ways to read the same table agree on everything that both know.
func TestDumpEqualsProc(t *testing.T) {
	enterNamespace(t)
	population(t)
	collect := func(into *[]Socket) func(*Socket) error {
		return func(s *Socket) error {
			common := *s
			common.Cookie, common.V6Only, common.Interface = 0, false, 0
			if s.State == Listen {
				common.WQueue, common.HasBacklog = 0, false
			}
			if s.Timer != TimerTimeWait && s.Timer != TimerNone && s.Timer != TimerKeepalive {
				t.Errorf("a socket at rest has timer %d: %+v", s.Timer, *s)
			}
			common.Expires = 0 // it runs
			*into = append(*into, common)
			return nil
		}
	}
	var diag, proc []Socket
	check(t, open(t).Dump(unix.AF_UNSPEC, AllStates, false, collect(&diag)))
	check(t, DumpProc(openProc(t, "tcp"), openProc(t, "tcp6"), collect(&proc)))
	order := func(a, b Socket) int {
		if a.Family != b.Family {
			return int(a.Family) - int(b.Family)
		}
		if c := a.Local.Compare(b.Local); c != 0 {
			return c
		}
		return a.Remote.Compare(b.Remote)
	}
	slices.SortFunc(diag, order)
	slices.SortFunc(proc, order)
	if diff := cmp.Diff(diag, proc, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("netlink and /proc differ (-netlink +proc):\n%s", diff)
	}
}

func TestDumpStateMask(t *testing.T) {
	enterNamespace(t)
	want := population(t)
	c := open(t)
	for _, tc := range []struct {
		name   string
		family uint8
		states States
		want   stateCounts
	}{
		{"time wait", unix.AF_UNSPEC, StatesOf(TimeWait), stateCounts{"TIME_WAIT": 211, "TIME_WAIT ipv6": 19}},
		{"time wait of IPv4", unix.AF_INET, StatesOf(TimeWait), stateCounts{"TIME_WAIT": 211}},
		{"two states", unix.AF_UNSPEC, StatesOf(CloseWait, Listen), stateCounts{
			"CLOSE_WAIT": 13, "LISTEN": 1, "LISTEN ipv6": 1,
		}},
		{"IPv6", unix.AF_INET6, StatesOf(Established), stateCounts{
			"ESTABLISHED ipv6": want["ESTABLISHED ipv6"],
		}},
		{"none there", unix.AF_UNSPEC, StatesOf(SynSent), stateCounts{}},
	} {
		got := stateCounts{}
		check(t, c.Dump(tc.family, tc.states, false, got.add))
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestDumpFullAcceptQueue(t *testing.T) {
	enterNamespace(t)
	const backlog = 5
	fd, port := listen(t, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, backlog)
	to := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	for range backlog + 2 { // backlog+1 fit; the last one stays in SYN_SENT
		c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		check(t, err)
		t.Cleanup(func() { unix.Close(c) })
		if err := unix.Connect(c, to); !errors.Is(err, unix.EINPROGRESS) && err != nil {
			t.Fatal(err)
		}
	}
	var stat unix.Stat_t
	check(t, unix.Fstat(fd, &stat))
	var got []Socket
	check(t, open(t).Dump(unix.AF_INET, StatesOf(Listen), true, func(s *Socket) error {
		got = append(got, *s)
		return nil
	}))
	if len(got) != 1 {
		t.Fatalf("%d listeners, want 1", len(got))
	}
	s := got[0]
	if s.RQueue != backlog+1 || s.WQueue != backlog || !s.HasBacklog {
		t.Errorf("accept queue %d of %d (known: %v), want %d of %d", s.RQueue, s.WQueue, s.HasBacklog, backlog+1,
			backlog)
	}
	if s.HasInfo {
		t.Error("a listener has tcp_info of a connection")
	}
	if s.Inode != stat.Ino || s.Local != netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)) {
		t.Errorf("listener %v inode %d, want port %d inode %d", s.Local, s.Inode, port, stat.Ino)
	}
	proc := map[State]uint32{}
	check(t, DumpProc(openProc(t, "tcp"), nil, func(s *Socket) error {
		proc[s.State] = max(proc[s.State], s.RQueue)
		return nil
	}))
	if proc[Listen] != backlog+1 {
		t.Errorf("/proc: accept queue %d, want %d", proc[Listen], backlog+1)
	}
	if _, ok := proc[SynSent]; !ok {
		t.Error("no client waits in SYN_SENT: the queue was not full")
	}
}

func TestDumpInfo(t *testing.T) {
	enterNamespace(t)
	const sent, unread, rounds = 1000, 300, 7
	l, port := listen(t, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, 1)
	clients, servers := connections(t, 1, l, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	buf := make([]byte, sent)
	for range rounds {
		_, err := unix.Write(clients[0], buf)
		check(t, err)
		for n := 0; n < sent; {
			m, err := unix.Read(servers[0], buf)
			check(t, err)
			n += m
		}
	}
	_, err := unix.Write(clients[0], buf[:unread])
	check(t, err)
	awaitAck(t, clients[0])
	cookie, err := unix.GetsockoptUint64(clients[0], unix.SOL_SOCKET, unix.SO_COOKIE)
	check(t, err)
	want, err := unix.GetsockoptTCPInfo(clients[0], unix.IPPROTO_TCP, unix.TCP_INFO)
	check(t, err)
	var client, server Socket
	check(t, open(t).Dump(unix.AF_INET, StatesOf(Established), true, func(s *Socket) error {
		if int(s.Local.Port()) == port {
			server = *s
		} else {
			client = *s
		}
		return nil
	}))
	if !client.HasInfo || !server.HasInfo {
		t.Fatalf("no tcp_info: client %v, server %v", client.HasInfo, server.HasInfo)
	}
	if client.Cookie != cookie {
		t.Errorf("cookie %#x, want %#x", client.Cookie, cookie)
	}
	ci, si := &client.Info, &server.Info
	if !ci.HasBytes() || !ci.HasSegs() || !ci.HasMinRTT() || !ci.HasDataSegs() || !ci.HasDeliveryRate() ||
		!ci.HasBusyTime() {
		t.Errorf("%d bytes of tcp_info on a kernel of today", ci.Len)
	}
	const total = rounds*sent + unread
	// The SYN counts as an acknowledged byte (tcp_clean_rtx_queue).
	if ci.BytesAcked != total+1 || si.BytesReceived != total || server.RQueue != unread || server.WQueue != 0 {
		t.Errorf("acked %d, received %d, unread %d; want %d, %d, %d",
			ci.BytesAcked, si.BytesReceived, server.RQueue, total+1, total, unread)
	}
	if ci.DataSegsOut != rounds+1 || si.DataSegsIn != rounds+1 {
		t.Errorf("data segments %d out, %d in, want %d", ci.DataSegsOut, si.DataSegsIn, rounds+1)
	}
	// Nothing changes any more. So getsockopt's answer, decoded by x/sys's struct, is the same except for the clocks.
	if ci.RTT != want.Rtt || ci.RTTVar != want.Rttvar || ci.MinRTT != want.Min_rtt || ci.RTT == 0 ||
		ci.SndCwnd != want.Snd_cwnd || ci.SegsIn != want.Segs_in || ci.SegsOut != want.Segs_out ||
		ci.DeliveryRate != want.Delivery_rate || ci.BusyTime != want.Busy_time ||
		ci.TotalRetrans != want.Total_retrans {
		t.Errorf("got %+v\nwant %+v", *ci, *want)
	}
	if ci.LastDataSent > 5000 || si.LastDataRecv > 5000 {
		t.Errorf("last data %d ms and %d ms ago", ci.LastDataSent, si.LastDataRecv)
	}
}

// awaitAck waits until the peer has acknowledged everything, which it may delay by 40 ms and more.
func awaitAck(t *testing.T, fd int) {
	t.Helper()
	for start := time.Now(); time.Since(start) < testTimeout; time.Sleep(time.Millisecond) {
		unacked, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		check(t, err)
		if unacked == 0 {
			return
		}
	}
	t.Fatalf("data not acknowledged in %v", testTimeout)
}

func TestDumpDualStack(t *testing.T) {
	enterNamespace(t)
	l6, port := listen(t, &unix.SockaddrInet6{}, 8)
	connections(t, 1, l6, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 9}})
	only, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { unix.Close(only) })
	check(t, unix.SetsockoptInt(only, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1))
	check(t, unix.Listen(only, 8))
	onlyPort := portOf(t, only)
	seen := 0
	check(t, open(t).Dump(unix.AF_INET6, AllStates, false, func(s *Socket) error {
		switch p := int(s.Local.Port()); {
		case s.State == Listen && p == port && !s.V6Only && !s.DualStack,
			s.State == Listen && p == onlyPort && s.V6Only,
			s.State == Established && s.DualStack && s.Local.Addr() == netip.MustParseAddr("127.0.0.9"):
			seen++
		default:
			t.Errorf("unexpected %+v", *s)
		}
		return nil
	}))
	if seen != 3 {
		t.Errorf("%d sockets, want 3", seen)
	}
}

// A dump ended by fn leaves the Conn usable, in the same datagram as the end of the dump or far before it.
func TestDumpAfterAbort(t *testing.T) {
	enterNamespace(t)
	listener, port := listen(t, &unix.SockaddrInet4{}, 8)
	c := open(t)
	stop := errors.New("stop")
	for _, n := range []int{1, 1009} {
		timeWaits(t, n, listener, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, byte(n)}})
		if err := c.Dump(unix.AF_INET, AllStates, false, func(*Socket) error { return stop }); !errors.Is(err, stop) {
			t.Fatalf("error %v, want fn's own", err)
		}
	}
	wantTimeWaits(t, c, 1010)
}

func TestDumpDeadline(t *testing.T) {
	enterNamespace(t)
	listener, port := listen(t, &unix.SockaddrInet4{}, 8)
	timeWaits(t, 1009, listener, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	c, err := Open(20 * time.Millisecond)
	check(t, err)
	defer c.Close()
	slow := func(*Socket) error { time.Sleep(time.Millisecond); return nil }
	if err := c.Dump(unix.AF_INET, AllStates, false, slow); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v, want a deadline", err)
	}
	c.timeout = testTimeout
	wantTimeWaits(t, c, 1009)
}

// wantTimeWaits: a Conn whose last dump did not end returns the whole table.
func wantTimeWaits(t *testing.T, c *Conn, want int) {
	t.Helper()
	got := stateCounts{}
	check(t, c.Dump(unix.AF_INET, StatesOf(TimeWait), false, got.add))
	if got["TIME_WAIT"] != want {
		t.Errorf("%d sockets in TIME_WAIT, want %d", got["TIME_WAIT"], want)
	}
}

// The Conn belongs to the namespace in which it was opened, whatever thread uses it.
func TestConnKeepsNamespace(t *testing.T) {
	enterNamespace(t)
	listen(t, &unix.SockaddrInet4{}, 1)
	c := open(t)
	count := make(chan int)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		got := stateCounts{}
		if err := c.Dump(unix.AF_UNSPEC, AllStates, false, got.add); err != nil {
			t.Error(err)
		}
		total := 0
		for _, n := range got {
			total += n
		}
		count <- total
	}()
	if n := <-count; n != 1 {
		t.Errorf("%d sockets seen from another thread, want 1", n)
	}
}

func TestDumpAllocations(t *testing.T) {
	enterNamespace(t)
	listener, port := listen(t, &unix.SockaddrInet4{}, 8)
	timeWaits(t, 2003, listener, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	c := open(t)
	n := 0
	allocs := testing.AllocsPerRun(10, func() {
		check(t, c.Dump(unix.AF_UNSPEC, AllStates, false, func(*Socket) error { n++; return nil }))
	})
	if n != 11*2004 {
		t.Errorf("%d sockets in 11 dumps, want %d", n, 11*2004)
	}
	if allocs > 8 {
		t.Errorf("%.0f allocations for a dump of 2004 sockets, want a handful", allocs)
	}
}

func TestDumpBadArguments(t *testing.T) {
	if _, err := Open(0); err == nil {
		t.Error("timeout 0: no error")
	}
	c := open(t)
	for name, err := range map[string]error{
		"no state": c.Dump(unix.AF_INET, 0, false, nil),
		"family":   c.Dump(unix.AF_UNIX, AllStates, false, nil),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The kernel has no handler for SOCK_DIAG_BY_FAMILY with AF_UNSPEC. That is why Dump uses the old request for both
// families, and what a kernel without tcp_diag answers.
func TestUnsupportedIsTold(t *testing.T) {
	c := open(t)
	req, err := request(unix.AF_INET, AllStates, false)
	check(t, err)
	req[hdrLen] = unix.AF_UNSPEC
	_, err = unix.Write(c.fd, req)
	check(t, err)
	c.pending = true
	err = c.receive(time.Now().Add(testTimeout))
	if !errors.Is(err, ErrUnsupported) || !errors.Is(err, unix.ENOENT) {
		t.Errorf("error %v, want ErrUnsupported and ENOENT", err)
	}
	if !errors.Is(classify(unix.EPERM), ErrPermission) || errors.Is(classify(unix.EIO), ErrPermission) {
		t.Error("EPERM and only EPERM is ErrPermission")
	}
}
