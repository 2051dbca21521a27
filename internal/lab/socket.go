package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/lab/load"
)

// socketFunc makes a non-blocking socket in the namespace that a load is to use.
type socketFunc func(family, kind int) (int, error)

// ownSocket makes the socket in the calling thread's namespace: for a child, all of whose threads are in one.
func ownSocket(family, kind int) (int, error) {
	return unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// Socket makes a non-blocking socket in the host, for a load of this process: it is a load.Dialer. It costs two changes of
// threads, some 10 µs; a load that makes many short connections belongs in a process of its own ([ModeLoad]).
func (h *Host) Socket(family, kind int) (int, error) { return h.socket(family, kind) }

// socket makes the socket on the host's thread. A socket keeps the namespace it was made in (sk_net, net/core/sock.c),
// so that everything after can run on any thread.
func (h *Host) socket(family, kind int) (int, error) {
	fd := -1
	err := h.keep.do(func() error {
		var err error
		fd, err = ownSocket(family, kind)
		return err
	})
	return fd, err
}

func sockaddr(addr netip.AddrPort) (unix.Sockaddr, int) {
	if addr.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}, unix.AF_INET
	}
	return &unix.SockaddrInet6{Addr: addr.Addr().As16(), Port: int(addr.Port())}, unix.AF_INET6
}

func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), nil
	default:
		return netip.AddrPort{}, fmt.Errorf("socket address of type %T", sa)
	}
}

// bindTo says from which address to connect, and whether the port is left for connect to choose.
type bindTo struct {
	ip     netip.Addr // invalid: no bind
	noPort bool
}

// dial connects within timeout. The file is on the runtime's poller: deadlines work.
func dial(ctx context.Context, open socketFunc, to netip.AddrPort, from bindTo, timeout time.Duration) (*os.File, error) {
	sa, family := sockaddr(to)
	fd, err := open(family, unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	if err := bindClient(fd, from); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	if err := unix.Connect(fd, sa); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return nil, errors.Join(err, unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), "socket")
	if err := within(ctx, file, timeout, func() error { return load.AwaitConnected(file) }); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func bindClient(fd int, from bindTo) error {
	if !from.ip.IsValid() {
		return nil
	}
	if from.noPort {
		// IP_BIND_ADDRESS_NO_PORT, ip(7), also for IPv6 sockets (net/ipv6/af_inet6.c reads the same bit).
		if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
			return err
		}
	}
	sa, _ := sockaddr(netip.AddrPortFrom(from.ip, 0))
	return unix.Bind(fd, sa)
}

// listen opens a TCP listener.
func listen(open socketFunc, addr netip.AddrPort, backlog int) (*os.File, netip.AddrPort, error) {
	sa, family := sockaddr(addr)
	fd, err := open(family, unix.SOCK_STREAM)
	if err != nil {
		return nil, addr, err
	}
	bound, err := bindListener(fd, sa, backlog)
	if err != nil {
		return nil, addr, fmt.Errorf("listen on %s: %w", addr, errors.Join(err, unix.Close(fd)))
	}
	return os.NewFile(uintptr(fd), "listener"), bound, nil
}

func bindListener(fd int, sa unix.Sockaddr, backlog int) (netip.AddrPort, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return netip.AddrPort{}, err
	}
	if err := unix.Bind(fd, sa); err != nil {
		return netip.AddrPort{}, err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return netip.AddrPort{}, err
	}
	return localAddr(fd)
}

// accept waits for the next connection, until the listener's deadline.
func accept(listener *os.File) (*os.File, error) {
	raw, err := listener.SyscallConn()
	if err != nil {
		return nil, err
	}
	conn := -1
	var result error
	err = raw.Read(func(fd uintptr) bool {
		conn, _, result = unix.Accept4(int(fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		return !errors.Is(result, unix.EAGAIN) && !errors.Is(result, unix.EINTR)
	})
	if err := errors.Join(err, result); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(conn), "connection"), nil
}
