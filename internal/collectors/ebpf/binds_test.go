package ebpf

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const bindsName = "bpf-binds"

// bindOnce binds a fresh socket and keeps it until the test ends. The error is bind()'s.
func bindOnce(t *testing.T, h *lab.Host, kind int, to unix.Sockaddr, later bool) (int, error) {
	t.Helper()
	family := unix.AF_INET
	if _, ok := to.(*unix.SockaddrInet6); ok {
		family = unix.AF_INET6
	}
	fd, err := h.Socket(family, kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if later {
		if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
			t.Fatal(err)
		}
	}
	return fd, unix.Bind(fd, to)
}

// TestBinds counts the sockets that let bind() choose a port, and those among them that found none.
func TestBinds(t *testing.T) {
	h := newHost(t)
	if err := h.Sysctl("net.ipv4.ip_local_port_range", "20000 20096"); err != nil { // 97 ports
		t.Fatal(err)
	}
	o := openNamed(t, bindsName, inHost(t, h))
	anyPort := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 3}}
	full := 0
	for range 150 {
		_, err := bindOnce(t, h, unix.SOCK_STREAM, anyPort, false)
		switch {
		case errors.Is(err, unix.EADDRINUSE):
			full++
		case err != nil:
			t.Fatal(err)
		}
	}
	for i, other := range []struct {
		kind  int
		to    unix.Sockaddr
		later bool
	}{
		{unix.SOCK_STREAM, anyPort, true},
		{unix.SOCK_DGRAM, anyPort, false},
		{unix.SOCK_STREAM, &unix.SockaddrInet4{Addr: anyPort.Addr, Port: 9}, false},
	} {
		if _, err := bindOnce(t, h, other.kind, other.to, other.later); err != nil {
			t.Fatalf("case %d: %v", i, err)
		}
	}
	six := [16]byte{15: 1}
	for range 31 {
		if _, err := bindOnce(t, h, unix.SOCK_STREAM, &unix.SockaddrInet6{Addr: six}, false); err != nil {
			t.Fatal(err)
		}
	}
	rec := o.done()
	if full < 50 {
		t.Fatalf("%d of 150 binds found none of 97 ports", full)
	}
	mine := []string{"netns", "target", "source", "127.0.0.3", "pid", strconv.Itoa(os.Getpid())}
	want(t, rec, 150, metric.BindsAsked, mine...)
	want(t, rec, float64(150-full), metric.BindsFound, mine...)
	want(t, rec, 31, metric.BindsAsked, "source", "::1")
	want(t, rec, 31, metric.BindsFound, "source", "::1")
	want(t, rec, 181, metric.BindsAsked)
	if s := total(rec, metric.BindSearchSeconds, mine...); s <= 0 {
		t.Errorf("%v s of searching for ports", s)
	}
}

// TestConnectsBound: a connect tells whether bind() chose its port.
func TestConnectsBound(t *testing.T) {
	for _, c := range []struct {
		name  string
		bind  unix.Sockaddr
		later bool
		bound float64
	}{
		{name: "not bound"},
		{name: "by bind", bind: &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 3}}, bound: 7},
		{name: "by connect", bind: &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 3}}, later: true},
		{name: "by the program", bind: &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 3}, Port: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			listen(t, h, "127.0.0.1:7", lab.ServeOptions{HoldOpen: true})
			o := openNamed(t, connectionsName, inHost(t, h))
			for i := range 7 {
				connectBound(t, h, c.bind, c.later, i)
			}
			rec := o.done()
			want(t, rec, 7, metric.ConnectAttempts, "side", "client")
			want(t, rec, c.bound, metric.ConnectsBound)
			if got := total(rec, metric.BPFRuns, "program", bpf.ConnectionsProgSetState); got < 14 {
				t.Errorf("the program ran %v times", got)
			}
		})
	}
}

func connectBound(t *testing.T, h *lab.Host, to unix.Sockaddr, later bool, i int) {
	t.Helper()
	if to == nil {
		dialOnce(t, h, 7, 0)
		return
	}
	if in := *to.(*unix.SockaddrInet4); in.Port != 0 {
		in.Port = 30000 + i
		to = &in
	}
	fd, err := bindOnce(t, h, unix.SOCK_STREAM, to, later)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 7, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
}
