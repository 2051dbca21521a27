package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Dialer makes a non-blocking, close-on-exec socket of an address family (unix.AF_INET, unix.AF_INET6) and a kind
// (unix.SOCK_STREAM). A socket keeps the network namespace of the thread it was made on (sk_net, net/core/sock.c), so
// the Dialer alone decides where a load or a server lives. A nil Dialer uses the calling thread's namespace. A Dialer
// is called from many goroutines.
type Dialer func(family, kind int) (fd int, err error)

func (d Dialer) socket(family int) (int, error) {
	if d != nil {
		return d(family, unix.SOCK_STREAM)
	}
	return unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// Sockaddr returns an address and its family for a system call. It makes a new one each time, because a call writes
// the kernel's form into it.
func Sockaddr(addr netip.AddrPort) (unix.Sockaddr, int) {
	if ip := addr.Addr().Unmap(); ip.Is4() {
		return &unix.SockaddrInet4{Addr: ip.As4(), Port: int(addr.Port())}, unix.AF_INET
	}
	return &unix.SockaddrInet6{Addr: addr.Addr().As16(), Port: int(addr.Port())}, unix.AF_INET6
}

// next returns the target whose turn it is.
func (r *Runner) next() netip.AddrPort {
	return r.targets[(r.turn.Add(1)-1)%uint64(len(r.targets))]
}

// prepare makes the client's socket and starts to connect it.
func (r *Runner) prepare(to netip.AddrPort) (*os.File, error) {
	target, family := Sockaddr(to)
	fd, err := r.dialer.socket(family)
	if err != nil {
		return nil, err
	}
	if err := r.configure(fd); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	if err := unix.Connect(fd, target); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "connection"), nil
}

func (r *Runner) configure(fd int) error {
	if r.plan.TLS != NoTLS {
		// A handshake ends with two small writes. Nagle's algorithm holds back the second until the first is
		// acknowledged: up to 40 ms. A plain request is one write with nothing in flight before it.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return err
		}
	}
	if !r.source.IsValid() {
		return nil
	}
	if r.plan.BindNoPort {
		// IP_BIND_ADDRESS_NO_PORT, ip(7), also for IPv6 sockets (net/ipv6/af_inet6.c reads the same bit).
		if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
			return err
		}
	}
	source, _ := Sockaddr(netip.AddrPortFrom(r.source, 0))
	return unix.Bind(fd, source)
}

// AwaitConnected waits until the pending connect of a non-blocking socket has ended, at most until the file's
// deadline. It returns the error of the connect: an errno, or os.ErrDeadlineExceeded.
func AwaitConnected(file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = raw.Write(func(fd uintptr) bool {
		var ended bool
		ended, result = connectResult(int(fd))
		return ended
	})
	if err != nil {
		return err
	}
	return result
}

// connectResult reports whether a non-blocking connect has ended, and how. SO_ERROR is also 0 while it is under way.
func connectResult(fd int) (ended bool, err error) {
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return true, err
	}
	if errno != 0 {
		return true, unix.Errno(errno)
	}
	_, err = unix.Getpeername(fd)
	if errors.Is(err, unix.ENOTCONN) {
		return false, nil
	}
	return true, err
}

// reset makes the following close send RST and free the port at once (SO_LINGER, socket(7)).
func reset(file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = raw.Control(func(fd uintptr) {
		result = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	return errors.Join(err, result)
}

// setOption turns a TCP option on.
func setOption(file *os.File, option int) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = raw.Control(func(fd uintptr) {
		result = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, option, 1)
	})
	return errors.Join(err, result)
}

// sayGoodbye sends close_notify in one segment with the FIN of the following close (TCP_CORK, tcp(7)): a peer that
// received close_notify alone would close at once, and could be the first to close. The side that closes second sends
// none, because RST would answer it.
func sayGoodbye(file *os.File, conn *tls.Conn) error {
	if err := setOption(file, unix.TCP_CORK); err != nil {
		return err
	}
	return conn.CloseWrite()
}

// listen makes a listening socket. It returns the socket's address with the port the kernel chose.
func listen(dialer Dialer, addr netip.AddrPort, backlog int) (*os.File, netip.AddrPort, error) {
	sa, family := Sockaddr(addr)
	fd, err := dialer.socket(family)
	if err != nil {
		return nil, addr, fmt.Errorf("listen on %s: %w", addr, err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), // despite TIME_WAIT of an earlier run
		unix.Bind(fd, sa),
	)
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err == nil {
		addr, err = localAddr(fd)
	}
	if err != nil {
		return nil, addr, fmt.Errorf("listen on %s: %w", addr, errors.Join(err, unix.Close(fd)))
	}
	return os.NewFile(uintptr(fd), "listener"), addr, nil
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

// stream is a socket for crypto/tls, which uses addresses only to print them. A [net.FileConn] would duplicate the
// descriptor and cost more system calls on each connection.
type stream struct{ *os.File }

func (stream) LocalAddr() net.Addr  { return &net.TCPAddr{} }
func (stream) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// tlsClient returns a configuration that trusts any server. With resume, all connections share one session cache.
func tlsClient(name string, session Session) *tls.Config {
	config := &tls.Config{
		ServerName:             name,
		InsecureSkipVerify:     true, // the peer is a scenario's server with a certificate of its own
		SessionTicketsDisabled: session != ResumeTLS,
	}
	if session == ResumeTLS {
		config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	return config
}

// past is a deadline that ends every wait at once.
func past() time.Time { return time.Unix(1, 0) }
