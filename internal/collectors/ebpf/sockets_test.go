package ebpf

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/kernel/sockdiag"
)

// alone moves the test into a network namespace of its own, on a thread that ends with it, and opens the iterators and
// sock_diag there.
func alone(t testing.TB) (*Sockets, *sockdiag.Conn) {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.BPF)
	runtime.LockOSThread()
	check(t, unix.Unshare(unix.CLONE_NEWNET))
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	check(t, err)
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	check(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo))
	// a TIME_WAIT that is used again, or ended by a reset, would spoil the counts
	for name, value := range map[string]string{
		"tcp_tw_reuse": "0", "tcp_rfc1337": "1", "tcp_max_tw_buckets": "300000", "ip_local_port_range": "1024 65000",
	} {
		check(t, os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0))
	}
	s, err := OpenSockets(t.Context(), &Loader{}, ownEnv(t), 0)
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	c, err := sockdiag.Open(10 * time.Second)
	check(t, err)
	t.Cleanup(func() { check(t, c.Close()) })
	return s, c
}

// ownEnv is the environment of the test's thread.
func ownEnv(t testing.TB) collect.Env {
	t.Helper()
	var st unix.Stat_t
	check(t, unix.Stat("/proc/thread-self/ns/net", &st))
	return collect.Env{
		Host:   host.Local(),
		Target: host.Target{Namespaces: host.Namespaces{Net: host.Namespace{Inode: st.Ino}}},
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listenOn opens a listener on any port of an address.
func listenOn(t testing.TB, addr string, backlog int) (fd int, at netip.AddrPort) {
	t.Helper()
	a := netip.MustParseAddr(addr)
	fd, err := unix.Socket(family(a), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	check(t, unix.Bind(fd, sockaddr(netip.AddrPortFrom(a, 0))))
	check(t, unix.Listen(fd, backlog))
	name, err := unix.Getsockname(fd)
	check(t, err)
	switch n := name.(type) {
	case *unix.SockaddrInet4:
		return fd, netip.AddrPortFrom(a, uint16(n.Port))
	case *unix.SockaddrInet6:
		return fd, netip.AddrPortFrom(a, uint16(n.Port))
	}
	t.Fatalf("address of type %T", name)
	return 0, netip.AddrPort{}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// dial makes n connections and returns both ends.
func dial(t testing.TB, n, listener int, to netip.AddrPort) (clients, servers []int) {
	t.Helper()
	for range n {
		c := syn(t, to)
		s, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		check(t, err)
		clients, servers = append(clients, c), append(servers, s)
	}
	t.Cleanup(func() {
		for i := range clients {
			unix.Close(clients[i])
			unix.Close(servers[i])
		}
	})
	return clients, servers
}

func syn(t testing.TB, to netip.AddrPort) int {
	t.Helper()
	c, err := unix.Socket(family(to.Addr()), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	check(t, unix.Connect(c, sockaddr(to)))
	return c
}

// TestMultipathListener finds the owner of a listener of Go 1.24 and later, which is an MPTCP listener if the kernel
// supports it.
func TestMultipathListener(t *testing.T) {
	testenv.Need(t, testenv.BPF)
	s, err := OpenSockets(t.Context(), &Loader{}, ownEnv(t), 0)
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	var config net.ListenConfig
	config.SetMultipathTCP(true)
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	found := 0
	check(t, s.Holders(t.Context(), func(h *Holder) error {
		if h.PID == os.Getpid() && h.State == sockdiag.Listen && h.Local.String() == l.Addr().String() {
			found++
		}
		return nil
	}))
	if found != 1 {
		t.Errorf("found %d times", found)
	}
}

// leaveTimeWaits leaves n sockets in TIME_WAIT. The side that closes first keeps it, and its FIN must have been
// acknowledged.
func leaveTimeWaits(t testing.TB, n, listener int, to netip.AddrPort) {
	t.Helper()
	for range n {
		c := syn(t, to)
		s, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		check(t, err)
		check(t, unix.Close(c))
		if n, err := unix.Read(s, make([]byte, 1)); n != 0 || err != nil {
			t.Fatalf("read %d bytes, %v: want the end", n, err)
		}
		check(t, unix.Close(s))
	}
}

// a socketKey names a socket of a namespace: listeners may share an address.
type socketKey struct {
	local, remote netip.AddrPort
	inode         uint64
}

// byDiag and byIterator read from the two sources.
func byDiag(t testing.TB, c *sockdiag.Conn) map[socketKey]sockdiag.Socket {
	t.Helper()
	out := map[socketKey]sockdiag.Socket{}
	for _, states := range []sockdiag.States{
		sockdiag.StatesOf(sockdiag.Listen),
		sockdiag.AllStates &^ sockdiag.StatesOf(sockdiag.Listen),
	} {
		check(t, c.Dump(unix.AF_UNSPEC, states, true, func(s *sockdiag.Socket) error {
			k := *s
			if k.State != sockdiag.Listen { // the iterator tells no more about these
				k.RQueue, k.WQueue = 0, 0
			}
			if k.State != sockdiag.SynSent {
				k.Retransmits = 0
			}
			if k.State != sockdiag.Established {
				k.Info, k.HasInfo = sockdiag.Info{}, false
			}
			if k.Timer != sockdiag.TimerTimeWait {
				k.Timer, k.Expires = sockdiag.TimerNone, 0
			}
			i := k.Info
			if k.HasInfo {
				k.Info = sockdiag.Info{
					Len: sockdiag.InfoToDataSegs, RTT: i.RTT, MinRTT: i.MinRTT, TotalRetrans: i.TotalRetrans,
					Notsent: i.Notsent, Unacked: i.Unacked, SndMSS: i.SndMSS,
					SegsOut:    i.SegsOut,
					BytesAcked: i.BytesAcked, BytesReceived: i.BytesReceived,
					DataSegsIn: i.DataSegsIn, DataSegsOut: i.DataSegsOut,
				}
			}
			k.Cookie, k.Interface, k.UID = 0, 0, 0
			if k.State != sockdiag.Listen && k.State != sockdiag.CloseWait {
				k.Inode = 0
			}
			out[socketKey{k.Local, k.Remote, k.Inode}] = k
			return nil
		}))
	}
	return out
}

func byIterator(t testing.TB, s *Sockets) map[socketKey]sockdiag.Socket {
	t.Helper()
	out := map[socketKey]sockdiag.Socket{}
	listening := true
	check(t, s.Each(t.Context(), func(s *sockdiag.Socket) error {
		if s.State == sockdiag.Listen && !listening {
			return errors.New("a listener after other sockets")
		}
		listening = s.State == sockdiag.Listen
		k := socketKey{s.Local, s.Remote, s.Inode}
		if _, twice := out[k]; twice {
			t.Errorf("twice: %+v", *s)
		}
		stable := *s
		stable.Info.LastDataSent, stable.Info.LastDataRecv = 0, 0 // they change from one look to the next
		stable.Info.Last = sockdiag.SideUnknown                   // sock_diag has no such thing
		out[k] = stable
		return nil
	}))
	return out
}

// counts is the number of sockets by state and family.
func counts(all map[socketKey]sockdiag.Socket) map[string]int {
	out := map[string]int{}
	for _, s := range all {
		name := s.State.String()
		if s.Family == unix.AF_INET6 {
			name += " ipv6"
		}
		out[name]++
	}
	return out
}

// settle waits until both sources see the same numbers twice, because a FIN may be on its way.
func settle(t testing.TB, c *sockdiag.Conn, done func(map[string]int) bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		n := counts(byDiag(t, c))
		if done(n) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never settled: %v", n)
		}
	}
}

// TestSocketIterator makes a known number of sockets in each state that lasts, and reads them by the iterator and by
// sock_diag.
func TestSocketIterator(t *testing.T) {
	s, c := alone(t)
	l4, at4 := listenOn(t, "127.0.0.1", 4096)
	l6, at6 := listenOn(t, "::1", 511)
	both, atBoth := listenOn(t, "::", 100)
	only6, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { unix.Close(only6) })
	check(t, unix.SetsockoptInt(only6, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1))
	check(t, unix.Listen(only6, 7))

	clients, servers := dial(t, 101, l4, at4)
	dial(t, 53, l6, at6)
	// of AF_INET and AF_INET6, mapped
	dial(t, 19, both, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), atBoth.Port()))
	leaveTimeWaits(t, 211, l4, at4)
	leaveTimeWaits(t, 97, l6, at6)
	for i := range 11 { // in CLOSE_WAIT here, in FIN_WAIT2 there
		check(t, unix.Shutdown(clients[i], unix.SHUT_WR))
	}
	data := make([]byte, 3001)
	_, err = unix.Write(clients[50], data)
	check(t, err)
	_, err = unix.Write(servers[60], data)
	check(t, err)
	deferring, atDeferring := listenOn(t, "127.0.0.1", 100)
	check(t, unix.SetsockoptInt(deferring, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 60))
	for range 13 { // the client's handshake is done, the server waits for data
		fd := syn(t, atDeferring)
		t.Cleanup(func() { unix.Close(fd) })
	}
	_, atWaiting := listenOn(t, "127.0.0.1", 20)
	for range 17 { // in the accept queue: without a file
		fd := syn(t, atWaiting)
		t.Cleanup(func() { unix.Close(fd) })
	}
	want := map[string]int{
		"LISTEN": 3, "LISTEN ipv6": 3, "ESTABLISHED": 2*101 - 22 + 19 + 13 + 2*17, "ESTABLISHED ipv6": 2*53 + 19,
		"CLOSE_WAIT": 11, "FIN_WAIT2": 11, "TIME_WAIT": 211, "TIME_WAIT ipv6": 97, "SYN_RECV": 13,
	}
	settle(t, c, func(n map[string]int) bool { return cmp.Equal(n, want) })
	time.Sleep(50 * time.Millisecond) // acknowledgements that may be delayed
	got, other := byIterator(t, s), byDiag(t, c)
	if diff := cmp.Diff(want, counts(got)); diff != "" {
		t.Errorf("iterator (-want +got):\n%s", diff)
	}
	// The time left in TIME_WAIT passes between the two.
	left := cmpopts.IgnoreFields(sockdiag.Socket{}, "Expires")
	if diff := cmp.Diff(other, got, left, cmp.AllowUnexported(socketKey{}), cmp.Comparer(equalAddr)); diff != "" {
		t.Errorf("sock_diag, iterator (-diag +iterator):\n%.3000s", diff)
	}
	for k, s := range got {
		if d := int(s.Expires) - int(other[k].Expires); d < -20 || d > 2000 {
			t.Errorf("%v expires in %d ms, by sock_diag a moment later in %d ms", k, s.Expires, other[k].Expires)
		}
	}
	for range 3 { // an iterator's pass leaves nothing behind
		if diff := cmp.Diff(want, counts(byIterator(t, s))); diff != "" {
			t.Errorf("again (-want +got):\n%s", diff)
		}
	}
}

func equalAddr(a, b netip.AddrPort) bool { return a == b }

// TestHolders finds every descriptor of the namespace's TCP sockets, and none of another namespace.
func TestHolders(t *testing.T) {
	outside, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { unix.Close(outside) })
	s, c := alone(t)
	l4, at4 := listenOn(t, "127.0.0.1", 4096)
	l6, at6 := listenOn(t, "::1", 512)
	clients, _ := dial(t, 97, l4, at4)
	dial(t, 31, l6, at6)
	leaveTimeWaits(t, 29, l4, at4)
	again, err := unix.Dup(clients[5])
	check(t, err)
	t.Cleanup(func() { unix.Close(again) })
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { unix.Close(udp) })

	diag := map[uint64]socketKey{}
	check(t, c.Dump(unix.AF_UNSPEC, sockdiag.AllStates, false, func(s *sockdiag.Socket) error {
		if s.Inode != 0 {
			diag[s.Inode] = socketKey{s.Local, s.Remote, s.Inode}
		}
		return nil
	}))
	name, err := os.ReadFile("/proc/self/comm")
	check(t, err)
	held := map[uint64]int{}
	check(t, s.Holders(t.Context(), func(h *Holder) error {
		k, ok := diag[h.Inode]
		if !ok || k.local != h.Local || k.remote != h.Remote && h.State != sockdiag.Listen {
			t.Errorf("a socket that sock_diag does not have: %+v", *h)
		}
		if h.PID != os.Getpid() || h.Comm+"\n" != string(name) {
			t.Errorf("held by %d %q, want %d %q", h.PID, h.Comm, os.Getpid(), name)
		}
		var st unix.Stat_t
		if err := unix.Fstat(h.FD, &st); err != nil || st.Ino != h.Inode {
			t.Errorf("descriptor %d has inode %d, want %d (%v)", h.FD, h.Inode, st.Ino, err)
		}
		held[h.Inode]++
		return nil
	}))
	if want := 2 + 2*97 + 2*31; len(held) != want || len(diag) != want {
		t.Errorf("%d sockets are held, sock_diag has %d with a file, want %d", len(held), len(diag), want)
	}
	var st unix.Stat_t
	check(t, unix.Fstat(again, &st))
	for inode, n := range held {
		if n != 1 && inode != st.Ino || inode == st.Ino && n != 2 {
			t.Errorf("inode %d is held by %d descriptors", inode, n)
		}
	}
}

func TestTicks(t *testing.T) {
	hz, err := ticks()
	check(t, err)
	if hz != 100 && hz != 250 && hz != 300 && hz != 1000 { // kernel/Kconfig.hz
		t.Errorf("CONFIG_HZ %d", hz)
	}
}

// TestWhoIsAsked: the kernel's times of the last data are only as exact as a tick. By these times, requests that follow
// an answer at once look the same as answers that follow a request at once.
//
// BBR paces, which moves the signs of who was last.
func TestWhoIsAsked(t *testing.T) {
	for _, control := range []string{"reno", "bbr"} {
		t.Run(control, func(t *testing.T) { whoIsAsked(t, control) })
	}
}

func whoIsAsked(t *testing.T, control string) {
	s, _ := alone(t)
	err := os.WriteFile("/proc/sys/net/ipv4/tcp_congestion_control", []byte(control), 0)
	if control != "reno" && errors.Is(err, unix.ENOENT) {
		t.Skipf("the kernel has no %s", control)
	}
	check(t, err)
	listener, to := listenOn(t, "127.0.0.1", 8)
	clients, servers := dial(t, 2, listener, to)
	pass := func(from, at int) {
		_, err := unix.Write(from, []byte("a line"))
		check(t, err)
		_, err = unix.Read(at, make([]byte, 64))
		check(t, err)
	}
	for range 30 { // so many that the kernel's acknowledgements are delayed
		for i := range clients {
			pass(clients[i], servers[i])
			pass(servers[i], clients[i])
		}
	}
	pass(clients[0], servers[0])
	local := func(fd int) netip.AddrPort {
		name, err := unix.Getsockname(fd)
		check(t, err)
		return netip.AddrPortFrom(to.Addr(), uint16(name.(*unix.SockaddrInet4).Port))
	}
	asks, idle := local(clients[0]), local(clients[1])
	for _, after := range []time.Duration{0, 100 * time.Millisecond} { // 40 ms and less delay an acknowledgement
		time.Sleep(after)
		asked, owes := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
		for _, k := range byIteratorAsIs(t, s) {
			if k.State == sockdiag.Established && k.Local != to {
				asked[k.Local] = k.Info.Asked()
			} else if k.State == sockdiag.Established {
				owes[k.Remote] = k.Info.Owes()
			}
		}
		want := map[netip.AddrPort]bool{asks: true, idle: false}
		if d := cmp.Diff(want, asked, cmpopts.EquateComparable(netip.AddrPort{})); d != "" {
			t.Errorf("after %s the clients ask: -want +got:\n%s", after, d)
		}
		if d := cmp.Diff(want, owes, cmpopts.EquateComparable(netip.AddrPort{})); d != "" {
			t.Errorf("after %s the server owes: -want +got:\n%s", after, d)
		}
	}
}

func byIteratorAsIs(t testing.TB, s *Sockets) (out []sockdiag.Socket) {
	t.Helper()
	check(t, s.Each(t.Context(), func(k *sockdiag.Socket) error {
		out = append(out, *k)
		return nil
	}))
	return out
}
