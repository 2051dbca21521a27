package lab

import "golang.org/x/sys/unix"

// ownSocket makes a non-blocking socket in the calling thread's namespace. It is for a child: all of its threads are
// in the same namespace.
func ownSocket(family, kind int) (int, error) {
	return unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// Socket makes a non-blocking socket in the host, for a load of this process. It is a load.Dialer. A socket keeps the
// namespace it was made in (sk_net, net/core/sock.c), so everything after that can run on any thread. Socket costs
// two thread switches, some 10 µs: a load with many short connections belongs in its own process ([ModeLoad]).
func (h *Host) Socket(family, kind int) (int, error) {
	fd := -1
	err := h.keep.do(func() error {
		var err error
		fd, err = ownSocket(family, kind)
		return err
	})
	return fd, err
}
