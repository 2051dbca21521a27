package ebpf

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const connectionsName = "bpf-connections"

func newHost(t testing.TB) *lab.Host {
	t.Helper()
	h, err := labtest.New(t).Host("target")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func listen(t testing.TB, h *lab.Host, addr string, o lab.ServeOptions) string {
	t.Helper()
	server, err := h.Listen(addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop() })
	return server.Stats().Addr
}

func connect(t testing.TB, h *lab.Host, addr string, o lab.ClientOptions) lab.Stats {
	t.Helper()
	load, err := h.Connect(addr, o)
	if err != nil {
		t.Fatal(err)
	}
	return load.Wait()
}

// settled waits until a server has seen the end of all connections.
func settled() { time.Sleep(100 * time.Millisecond) }

// netCounter is the second source: the namespace's own counter.
func netCounter(t testing.TB, file, group, name string) float64 {
	t.Helper()
	b, err := os.ReadFile("/proc/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, group) {
			continue
		}
		if names == nil {
			names = strings.Fields(line)
			continue
		}
		i := slices.Index(names, name)
		if i < 0 {
			break
		}
		n, err := strconv.ParseFloat(strings.Fields(line)[i], 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Fatalf("%s has no %s %s", file, group, name)
	return 0
}

// TestShortConnections makes a prime number of connections. Every number that counts them must be exactly that.
func TestShortConnections(t *testing.T) {
	const n, requestBytes = 1009, 64
	for _, c := range []struct {
		name, listen string
		clientFirst  bool
		requests     int
		first, other string
	}{
		{name: "client closes", listen: "127.0.0.1:0", clientFirst: true, requests: 1, first: "local", other: "peer"},
		{name: "server closes", listen: "127.0.0.1:0", requests: 1, first: "peer", other: "local"},
		{name: "three requests", listen: "127.0.0.1:0", clientFirst: true, requests: 3, first: "local", other: "peer"},
		{name: "IPv6", listen: "[::1]:0", clientFirst: true, requests: 1, first: "local", other: "peer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var addr string
			var opening time.Time
			run := func() (*recording.Recording, bool) {
				h := newHost(t)
				addr = listen(t, h, c.listen, lab.ServeOptions{CloseFirst: !c.clientFirst, Requests: c.requests})
				env := inHost(t, h)
				env.Deep = true // to see the server's side
				opening = time.Now()
				o := openNamed(t, connectionsName, env)
				defer o.close()
				o.sample()
				st := connect(t, h, addr, lab.ClientOptions{
					Count: n, Concurrency: 4, Requests: c.requests,
					CloseFirst: c.clientFirst,
				})
				if st.Conns != n || st.ErrorCount() != 0 {
					t.Fatalf("the load itself: %+v", st)
				}
				settled()
				return o.done(), o.missed
			}
			rec, missed := run()
			// An interrupt during a run of a program cannot run it (bpf_prog_active). The recording says so, and is no
			// test of the counts.
			for try := 2; missed && try <= 3; try++ {
				rec, missed = run()
			}
			least := 6.0 * n
			if time.Since(opening) > measuredFor {
				least = 1 // past the meter's first interval it is an estimate, for a load that has ended or not begun
			}
			turns := float64(n * c.requests)
			client := []string{"netns", "target", "side", "client", "endpoint", addr, "pid", strconv.Itoa(os.Getpid())}
			server := []string{"netns", "target", "side", "server", "endpoint", addr}
			for _, side := range [][]string{client, server} {
				want(t, rec, n, metric.ConnectAttempts, side...)
				want(t, rec, n, metric.Connects, side...)
				want(t, rec, n, metric.ConnectionLives, side...)
				want(t, rec, turns, metric.ConnectionTurns, side...)
				want(t, rec, turns*requestBytes, metric.ConnectionBytes, append(side, "direction", "received")...)
				want(t, rec, turns*requestBytes, metric.ConnectionBytes, append(side, "direction", "sent")...)
			}
			want(t, rec, n, metric.ConnectionsClosed, append(client, "first", c.first)...)
			want(t, rec, n, metric.ConnectionsClosed, append(server, "first", c.other)...)
			want(t, rec, n, metric.ConnectDurations, client...)
			want(t, rec, n, metric.PortSearches, client...)
			want(t, rec, 2*n, metric.ConnectAttempts) // and nothing else
			want(t, rec, 0, metric.ConnectFailures)
			if sum, life := total(rec, metric.ConnectSeconds, client...), total(rec, metric.PortSearchSeconds,
				client...); life <= 0 || life >= sum {
				t.Errorf("port search %v s of %v s connecting", life, sum)
			}
			if got := total(rec, metric.BPFRuns, "program", bpf.ConnectionsProgSetState); got < least {
				t.Errorf("the program ran %v times for %d connections", got, n)
			}
		})
	}
}

// TestTurnedAway has connections that a server closes with a request unread, after one answer, and after four.
func TestTurnedAway(t *testing.T) {
	const n = 53
	for _, c := range []struct {
		name            string
		answers         int
		none, few, turn float64
	}{
		{"unread", 0, n, 0, 0}, {"one answer", 1, 0, n, n}, {"four answers", 4, 0, 0, 4 * n},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec, address, missed := turnAway(t, n, c.answers)
			for try := 2; missed && try <= 3; try++ { // an interrupt came while a program ran
				rec, address, missed = turnAway(t, n, c.answers)
			}
			server := []string{"netns", "target", "side", "server", "endpoint", address}
			want(t, rec, c.none, metric.ConnectionsTurnedAway, append(server, "exchanges", metric.ExchangesNone)...)
			want(t, rec, c.few, metric.ConnectionsTurnedAway, append(server, "exchanges", metric.ExchangesFew)...)
			want(t, rec, c.turn, metric.ConnectionTurns, server...)
		})
	}
}

// TestTurnedAwayWithAWord: if the client closes first, only connections that got no more than a short word count.
func TestTurnedAwayWithAWord(t *testing.T) {
	const n = 20
	for _, c := range []struct {
		name  string
		bytes int
		want  float64
	}{
		{"an error", 150, n}, {"a greeting", 400, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			l := listenIn(t, h)
			go greet(l, c.bytes)
			o := openNamed(t, connectionsName, inHost(t, h))
			defer o.close()
			o.sample()
			for range n {
				check(t, h.Do(func() error { return hear(l.Addr().String(), c.bytes) }))
			}
			settled()
			want(t, o.done(), c.want, metric.ConnectionsTurnedAway, "side", "server", "endpoint", l.Addr().String(),
				"exchanges", metric.ExchangesFew)
		})
	}
}

// greet sends so many bytes after the first byte of each client, and closes when the client has closed.
func greet(l net.Listener, bytes int) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // the test has ended
		}
		_, _ = io.ReadFull(c, make([]byte, 1))
		_, _ = c.Write(make([]byte, bytes))
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
}

// hear sends a byte, reads so many, and closes.
func hear(address string, bytes int) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	_, sent := c.Write([]byte{1})
	_, got := io.ReadFull(c, make([]byte, bytes))
	return errors.Join(sent, got, c.Close())
}

// turnAway makes n connections to a server that closes each after so many answers.
func turnAway(t *testing.T, n, answers int) (rec *recording.Recording, address string, missed bool) {
	t.Helper()
	h := newHost(t)
	l := listenIn(t, h)
	go closeAfter(l, answers)
	o := openNamed(t, connectionsName, inHost(t, h))
	defer o.close()
	o.sample()
	for range n {
		if err := h.Do(func() error { return askUntilClosed(l.Addr().String()) }); err != nil {
			t.Fatal(err)
		}
	}
	settled()
	return o.done(), l.Addr().String(), o.missed
}

// listenIn listens on the loopback of a host, until the test ends.
func listenIn(t *testing.T, h *lab.Host) (l net.Listener) {
	t.Helper()
	if err := h.Do(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// closeAfter serves so many bytes on each connection and then closes it. If the number is 0, it closes while the first
// byte is unread.
func closeAfter(l net.Listener, answers int) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // the test has ended
		}
		if answers == 0 {
			time.Sleep(time.Millisecond) // so that the byte is there
		}
		for range answers {
			_, _ = io.CopyN(c, c, 1)
		}
		_ = c.Close()
	}
}

// askUntilClosed sends byte after byte, each when the last one came back.
func askUntilClosed(address string) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	for b := []byte{1}; ; {
		if _, err := c.Write(b); err != nil {
			return nil // closed meanwhile
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return nil
		}
	}
}

// TestGivenUp has connections that the client closes or resets while it waits for an answer, and connections whose
// clients say good-bye or were answered. A reset counts at both ends if an answer was outstanding.
func TestGivenUp(t *testing.T) {
	const n, waits, jiffy = 10, 250 * time.Millisecond, 10 * time.Millisecond // the longest, of CONFIG_HZ 100
	for _, c := range []struct {
		name         string
		talk         func(c *net.TCPConn) error
		given, reset float64
	}{
		{"a time-out", func(c *net.TCPConn) error { return say(c, waits) }, n, 0},
		{"a time-out, and a reset", func(c *net.TCPConn) error {
			return errors.Join(c.SetLinger(0), say(c, waits))
		}, n, n},
		{"answered, and a reset", func(c *net.TCPConn) error {
			return errors.Join(c.SetLinger(0), echo(c))
		}, 0, 0},
		{"a second request", func(c *net.TCPConn) error {
			err := echo(c)
			time.Sleep(2 * jiffy) // what comes within one jiffy has no order
			return errors.Join(err, say(c, waits))
		}, n, 0},
		{"good-bye", func(c *net.TCPConn) error { return errors.Join(echo(c), say(c, 0)) }, 0, 0},
		{"answered", func(c *net.TCPConn) error {
			err := echo(c)
			time.Sleep(waits)
			return err
		}, 0, 0},
		{"nothing asked", func(*net.TCPConn) error {
			time.Sleep(waits)
			return nil
		}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rec, address := giveUp(t, n, c.talk)
			client := []string{"netns", "target", "side", "client", "endpoint", address}
			want(t, rec, c.given, metric.RequestsGivenUp, client...)
			want(t, rec, c.reset, metric.ResetsUnanswered, client...)
			server := []string{"netns", "target", "side", "server", "endpoint", address}
			want(t, rec, c.reset, metric.ResetsUnanswered, server...)
			waited, least := total(rec, metric.RequestsGivenUpSeconds, client...), c.given*(waits-jiffy).Seconds()
			if waited < least || (c.given == 0) != (waited == 0) {
				t.Errorf("they waited for %v s, want %v s and more", waited, least)
			}
		})
	}
}

// TestGoodBye: what a client says after the server has closed is not a request, though the answer is a reset. TLS has
// such a good-bye.
func TestGoodBye(t *testing.T) {
	const n, jiffy = 10, 10 * time.Millisecond
	h := newHost(t)
	l := listenIn(t, h)
	go closeAfter(l, 1)
	o := openNamed(t, connectionsName, inHost(t, h))
	defer o.close()
	o.sample()
	for range n {
		if err := h.Do(func() error { return goodBye(l.Addr().String(), 2*jiffy) }); err != nil {
			t.Fatal(err)
		}
	}
	settled()
	rec := o.done()
	client := []string{"netns", "target", "side", "client", "endpoint", l.Addr().String()}
	want(t, rec, n, metric.FlowResets, append(client, "direction", "received")...)
	want(t, rec, 0, metric.ResetsUnanswered, client...)
}

// goodBye asks a server that closes after the first answer, and says something a while later.
func goodBye(address string, later time.Duration) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := echo(c.(*net.TCPConn)); err != nil {
		return err
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the server has not closed: %w", err)
	}
	time.Sleep(later) // what is sent within a jiffy of the answer counts as answered
	_, err = c.Write([]byte{1})
	time.Sleep(later)
	return err
}

// giveUp makes n connections. Each talks to a server that answers only the first byte.
func giveUp(t *testing.T, n int, talk func(*net.TCPConn) error) (rec *recording.Recording, address string) {
	t.Helper()
	h := newHost(t)
	l := listenIn(t, h)
	go answerOnes(l)
	o := openNamed(t, connectionsName, inHost(t, h))
	defer o.close()
	o.sample()
	for range n {
		if err := h.Do(func() error {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				return err
			}
			return errors.Join(talk(c.(*net.TCPConn)), c.Close())
		}); err != nil {
			t.Fatal(err)
		}
	}
	settled()
	return o.done(), l.Addr().String()
}

// answerOnes answers each byte 1, and reads all others.
func answerOnes(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // the test has ended
		}
		go func() {
			defer c.Close()
			for b := make([]byte, 1); ; {
				if _, err := c.Read(b); err != nil {
					return
				}
				if b[0] == 1 {
					_, _ = c.Write(b)
				}
			}
		}()
	}
}

// echo sends what is answered and waits for the answer.
func echo(c *net.TCPConn) error {
	b := []byte{1}
	_, err := c.Write(b)
	_, err2 := io.ReadFull(c, b)
	return errors.Join(err, err2)
}

// say sends what is not answered and waits a while.
func say(c *net.TCPConn, wait time.Duration) error {
	_, err := c.Write([]byte{2})
	time.Sleep(wait)
	return err
}

// TestProcesses: each process has its own flow, and the namespace's counter is their sum.
func TestProcesses(t *testing.T) {
	h := newHost(t)
	addr := listen(t, h, "127.0.0.1:0", lab.ServeOptions{})
	o := openNamed(t, connectionsName, inHost(t, h))
	short, err := h.StartClient(addr, lab.ClientOptions{Count: 503, Concurrency: 2, Requests: 1, CloseFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := h.StartClient(addr, lab.ClientOptions{Count: 701, Concurrency: 2, KeepAlive: true, CloseFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*lab.Child{short, kept} {
		if st, err := c.Wait(); err != nil || st.ErrorCount() != 0 {
			t.Fatalf("%+v, %v", st, err)
		}
	}
	settled()
	var opens float64
	if err := h.Do(
		func() error { opens = netCounter(t, "thread-self/net/snmp", "Tcp:", "ActiveOpens"); return nil }); err != nil {
		t.Fatal(err)
	}
	rec := o.done()
	want(t, rec, opens, metric.ConnectAttempts, "side", "client")
	pid := func(c *lab.Child) []string { return []string{"side", "client", "pid", strconv.Itoa(c.Pid)} }
	want(t, rec, 503, metric.Connects, pid(short)...)
	want(t, rec, 503, metric.ConnectionTurns, pid(short)...)
	want(t, rec, 2, metric.Connects, pid(kept)...)
	want(t, rec, 701, metric.ConnectionTurns, pid(kept)...)
	if s := rec.Counter(metric.Connects, pid(short)...); len(s) != 1 || s[0].Label("comm") == "" {
		t.Errorf("flows of the process: %v", s)
	}
}

// TestFailures: each kind of failure has its own name.
func TestFailures(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		h := newHost(t)
		o := openNamed(t, connectionsName, inHost(t, h))
		for range 53 {
			dialOnce(t, h, 9, unix.ECONNREFUSED)
		}
		rec := o.done()
		want(t, rec, 53, metric.ConnectFailures, "error", "ECONNREFUSED", "endpoint", "127.0.0.1:9")
		want(t, rec, 53, metric.ConnectFailures)
		want(t, rec, 53, metric.ConnectAttempts)
	})
	t.Run("no port", func(t *testing.T) {
		h := newHost(t)
		// An even number: for an odd one, connect() may leave a port out (remaining &= ~1U in __inet_hash_connect,
		// inet_hashtables.c).
		if err := h.Sysctl("net.ipv4.ip_local_port_range", "20000 20097"); err != nil {
			t.Fatal(err)
		}
		addr := listen(t, h, "127.0.0.1:7", lab.ServeOptions{HoldOpen: true})
		o := openNamed(t, connectionsName, inHost(t, h))
		for range 98 {
			dialOnce(t, h, 7, 0)
		}
		for range 211 {
			dialOnce(t, h, 7, unix.EADDRNOTAVAIL)
		}
		rec := o.done()
		want(t, rec, 211, metric.ConnectFailures, "error", "EADDRNOTAVAIL", "endpoint", addr)
		want(t, rec, 211, metric.ConnectFailures)
		want(t, rec, 98, metric.Connects, "side", "client")
		want(t, rec, 309, metric.PortSearches)
	})
	t.Run("no answer", func(t *testing.T) {
		h := newHost(t)
		if err := h.DropSYN(7); err != nil {
			t.Fatal(err)
		}
		if err := h.Sysctl("net.ipv4.tcp_syn_retries", "1"); err != nil {
			t.Fatal(err)
		}
		o := openNamed(t, connectionsName, inHost(t, h))
		dialOnce(t, h, 7, unix.ETIMEDOUT)
		rec := o.done()
		var again float64
		if err := h.Do(func() error {
			again = netCounter(t, "thread-self/net/netstat", "TcpExt:",
				"TCPSynRetrans")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if again == 0 {
			t.Fatal("the namespace counted no SYN retransmit")
		}
		want(t, rec, 1, metric.ConnectFailures, "error", "ETIMEDOUT")
		want(t, rec, again, metric.FlowRetransmits, "kind", "syn", "endpoint", "127.0.0.1:7")
		want(t, rec, again, metric.FlowRetransmits)
	})
	t.Run("reset", func(t *testing.T) {
		h := newHost(t)
		addr := listen(t, h, "127.0.0.1:7", lab.ServeOptions{HoldOpen: true})
		env := inHost(t, h)
		env.Deep = true
		o := openNamed(t, connectionsName, env)
		for range 31 {
			fd := dialOnce(t, h, 7, 0)
			if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
				t.Fatal(err)
			}
			if err := unix.Close(fd); err != nil {
				t.Fatal(err)
			}
		}
		settled()
		rec := o.done()
		want(t, rec, 31, metric.FlowResets, "side", "client", "endpoint", addr, "direction", "sent")
		want(t, rec, 31, metric.FlowResets, "side", "server", "endpoint", addr, "direction", "received")
		want(t, rec, 31, metric.ConnectionsClosed, "side", "client", "first", "reset")
	})
}

// dialOnce connects to a port of the host's loopback and expects this error, or success for 0. The descriptor is closed
// with the test.
func dialOnce(t *testing.T, h *lab.Host, port int, expect unix.Errno) int {
	t.Helper()
	fd, err := h.Socket(unix.AF_INET, unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // the test may have closed it
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if expect == 0 && err != nil || expect != 0 && !errors.Is(err, expect) {
		t.Fatalf("connect: %v, want %v", err, expect)
	}
	return fd
}

// TestOtherNamespace: with a target, only its network namespace is looked at. With the whole host, all namespaces are,
// each by its name.
func TestOtherNamespace(t *testing.T) {
	l := labtest.New(t)
	target, err := l.Host("target")
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Host("other")
	if err != nil {
		t.Fatal(err)
	}
	env := inHost(t, target)
	whole := env
	whole.Target.Kind = "host"
	narrow, wide := openNamed(t, connectionsName, env), openNamed(t, connectionsName, whole)
	connect(t, other, listen(t, other, "127.0.0.1:80", lab.ServeOptions{}), lab.ClientOptions{
		Count: 101, Requests: 1,
		CloseFirst: true,
	})
	settled()
	rec := narrow.done()
	want(t, rec, 0, metric.ConnectAttempts)
	ino, err := other.Inode()
	if err != nil {
		t.Fatal(err)
	}
	want(t, wide.done(), 101, metric.Connects, "netns", fmt.Sprintf("net:[%d]", ino), "side", "client")
}

// TestPortSearch: beyond half of the port range the search takes many times as long. The programs see it before any
// connection fails.
func TestPortSearch(t *testing.T) {
	h := newHost(t)
	if err := h.Sysctl("net.ipv4.ip_local_port_range", "20000 27999"); err != nil {
		t.Fatal(err)
	}
	listen(t, h, "127.0.0.1:7", lab.ServeOptions{HoldOpen: true})
	o := openNamed(t, connectionsName, inHost(t, h))
	mean := func(fill int) float64 {
		before := searchTime(o)
		for range fill {
			dialOnce(t, h, 7, 0)
		}
		after := searchTime(o)
		return (after.seconds - before.seconds) / (after.searches - before.searches)
	}
	below := mean(3000)
	mean(1200) // past the half
	above := mean(500)
	t.Logf("search for a port: %.1f µs below half of the range, %.1f µs above", below*1e6, above*1e6)
	if above < 3*below {
		t.Errorf("%.1f µs is not many times %.1f µs", above*1e6, below*1e6)
	}
	want(t, o.done(), 0, metric.ConnectFailures)
}

// TestLeftEntries: entries of ended sockets stay for the next sockets, but not if there are many.
func TestLeftEntries(t *testing.T) {
	const n = 211
	for _, c := range []struct {
		name  string
		there uint64 // entries, as the program counts them
		left  bool
	}{{"few", 0, true}, {"many", 1 << 14, false}} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			addr := listen(t, h, "127.0.0.1:0", lab.ServeOptions{})
			o := openNamed(t, connectionsName, inHost(t, h))
			maps := o.src.(*connections).set.collection.Maps
			check(t, maps[".bss"].Put(uint32(0), c.there))
			connect(t, h, addr, lab.ClientOptions{Count: n, Concurrency: 3, Requests: 1, CloseFirst: true})
			settled()
			left := uint64(0)
			check(t, readHash(maps[bpf.ConnectionsMapConnections], func(uint64, *bpf.ConnectionsConnection) { left++ }))
			var counted uint64
			check(t, maps[".bss"].Lookup(uint32(0), &counted))
			if (left > 0) != c.left || left >= n || counted != c.there+left {
				t.Errorf("%d entries left of %d connections, %d counted, %d before", left, n, counted, c.there)
			}
			rec := o.done()
			want(t, rec, n, metric.Connects, "side", "client")
			want(t, rec, n, metric.ConnectionLives, "side", "client")
		})
	}
}

type search struct{ searches, seconds float64 }

func searchTime(o *opened) search {
	b := recording.NewBuilder()
	a := b.Appender()
	if err := o.src.Sample(o.t.Context(), a); err != nil {
		o.t.Fatal(err)
	}
	a.Commit()
	rec := b.Done(recording.Meta{})
	return search{total(rec, metric.PortSearches), total(rec, metric.PortSearchSeconds)}
}
