package sockdiag

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// enterNamespace moves the test into a network namespace of its own with loopback up. The thread stays locked,
// so it ends with the test, and the namespace with the thread and the test's sockets.
func enterNamespace(t testing.TB) {
	t.Helper()
	testenv.Need(t, testenv.Root)
	runtime.LockOSThread()
	check(t, unix.Unshare(unix.CLONE_NEWNET))
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	check(t, err)
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	check(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr))
	// Loopback reuses a port in TIME_WAIT after a second (net.ipv4.tcp_tw_reuse 2 since Linux 4.19), which
	// would spoil the counts, as would a reset that ends a TIME_WAIT (RFC 1337) when a busy machine answers a
	// FIN after its retransmission. The range must hold the benchmark's ports.
	for name, value := range map[string]string{
		"tcp_tw_reuse": "0", "tcp_rfc1337": "1", "tcp_max_tw_buckets": "300000", "ip_local_port_range": "1024 65000",
	} {
		check(t, os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0))
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listen opens a listener whose port the kernel picks, closed with the test.
func listen(t testing.TB, addr unix.Sockaddr, backlog int) (fd, port int) {
	t.Helper()
	fd, err := unix.Socket(familyOf(addr), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	check(t, unix.Bind(fd, addr))
	check(t, unix.Listen(fd, backlog))
	return fd, portOf(t, fd)
}

func familyOf(addr unix.Sockaddr) int {
	if _, ok := addr.(*unix.SockaddrInet6); ok {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func portOf(t testing.TB, fd int) int {
	t.Helper()
	name, err := unix.Getsockname(fd)
	check(t, err)
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return a.Port
	case *unix.SockaddrInet6:
		return a.Port
	}
	t.Fatalf("address of type %T", name)
	return 0
}

// connect makes one connection and returns its two ends. The caller closes them.
func connect(t testing.TB, listener int, to unix.Sockaddr) (client, server int) {
	t.Helper()
	client, err := unix.Socket(familyOf(to), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	check(t, unix.Connect(client, to))
	server, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC)
	check(t, err)
	return client, server
}

// connections makes n connections that are closed with the test.
func connections(t testing.TB, n, listener int, to unix.Sockaddr) (clients, servers []int) {
	t.Helper()
	for range n {
		c, s := connect(t, listener, to)
		t.Cleanup(func() { unix.Close(c); unix.Close(s) })
		clients, servers = append(clients, c), append(servers, s)
	}
	return clients, servers
}

// timeWaits leaves n client sockets in TIME_WAIT: the side that closes first keeps it.
func timeWaits(t testing.TB, n, listener int, to unix.Sockaddr) {
	t.Helper()
	eof := make([]byte, 1)
	for range n {
		c, s := connect(t, listener, to)
		check(t, unix.Close(c))
		// Without waiting for the FIN both sides might close at once, and both keep a TIME_WAIT.
		if n, err := unix.Read(s, eof); n != 0 || err != nil {
			t.Fatalf("read %d bytes, error %v, want the end", n, err)
		}
		check(t, unix.Close(s))
	}
	awaitNone(t, StatesOf(FinWait1, Closing, LastAck))
}

// awaitNone waits until no socket is in one of the passing states. Loopback packets go through a softirq that may be
// deferred to ksoftirqd.
func awaitNone(t testing.TB, states States) {
	t.Helper()
	c := open(t)
	for start := time.Now(); time.Since(start) < testTimeout; time.Sleep(time.Millisecond) {
		n := 0
		check(t, c.Dump(unix.AF_UNSPEC, states, false, func(*Socket) error { n++; return nil }))
		if n == 0 {
			return
		}
	}
	t.Fatalf("still sockets in states %#x after %v", uint32(states), testTimeout)
}

// stateCounts is how many sockets of each state there are, by "STATE" or "STATE ipv6".
type stateCounts map[string]int

func (c stateCounts) add(s *Socket) error {
	if s.Family == unix.AF_INET6 {
		c[s.State.String()+" ipv6"]++
	} else {
		c[s.State.String()]++
	}
	return nil
}

func openProc(t testing.TB, name string) *os.File {
	t.Helper()
	// /proc/self is the process's first thread, which is in the namespace the test came from.
	f, err := os.Open(fmt.Sprintf("/proc/self/task/%d/net/%s", unix.Gettid(), name))
	check(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}
