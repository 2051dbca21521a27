package lab

import "golang.org/x/sys/unix"

// ownSocket makes a non-blocking socket in the calling thread's namespace: for a child, all of whose threads are in
// one.
func ownSocket(family, kind int) (int, error) {
	return unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// Socket makes a non-blocking socket in the host, for a load of this process: it is a load.Dialer. A socket keeps the
// namespace it was made in (sk_net, net/core/sock.c), so that everything after can run on any thread. It costs two
// changes of threads, some 10 µs; a load that makes many short connections belongs in a process of its own
// ([ModeLoad]).
func (h *Host) Socket(family, kind int) (int, error) {
	fd := -1
	err := h.keep.do(func() error {
		var err error
		fd, err = ownSocket(family, kind)
		return err
	})
	return fd, err
}
