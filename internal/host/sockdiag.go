package host

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// sockDiagByFamily is SOCK_DIAG_BY_FAMILY of include/uapi/linux/sock_diag.h.
	sockDiagByFamily = 20
	// inetDiagReqLen is sizeof(struct inet_diag_req_v2) of include/uapi/linux/inet_diag.h.
	inetDiagReqLen = 56
	// tcpClosing is TCP_CLOSING of include/net/tcp_states.h: the state with the fewest sockets, usually none, so the
	// answer is one small message.
	tcpClosing = 11
)

// probeSockDiag asks for the IPv4 TCP sockets in CLOSING.
func (h *Host) probeSockDiag() Probe {
	kind, err := askSockDiag()
	switch {
	case err == nil && kind != unix.NLMSG_ERROR:
		return available("inet_diag answers for TCP")
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EPROTONOSUPPORT):
		return Probe{
			Status: Unsupported, Reason: fmt.Sprintf("inet_diag for TCP: %v", err),
			Remedy: "modprobe tcp_diag, or a kernel with CONFIG_INET_TCP_DIAG; else /proc/net/tcp is read, which " +
				"is slower",
		}
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return Probe{
			Status: Denied, Reason: fmt.Sprintf("inet_diag for TCP: %v", err),
			Remedy: "allow netlink sockets in the seccomp or SELinux policy",
		}
	}
	return failed(fmt.Errorf("inet_diag for TCP: %w", err))
}

// askSockDiag sends the request and returns the type of the first message of the answer.
func askSockDiag() (uint16, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }() // the answer is read by then
	// A kernel that never answers must not hold up preflight; the answer takes well under a millisecond.
	timeout := unix.Timeval{Sec: 1}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return 0, err
	}
	if err := unix.Sendto(fd, sockDiagRequest(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	buf := make([]byte, 8192)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return 0, err
	}
	return parseNetlinkHead(buf[:n])
}

func sockDiagRequest() []byte {
	b := make([]byte, unix.NLMSG_HDRLEN+inetDiagReqLen)
	e := binary.NativeEndian
	e.PutUint32(b[0:], uint32(len(b)))
	e.PutUint16(b[4:], sockDiagByFamily)
	e.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := b[unix.NLMSG_HDRLEN:]
	body[0], body[1] = unix.AF_INET, unix.IPPROTO_TCP
	e.PutUint32(body[4:], 1<<tcpClosing)
	return b
}

// parseNetlinkHead returns the type of a message, and the errno of an error message or of the end of a dump.
func parseNetlinkHead(b []byte) (uint16, error) {
	if len(b) < unix.NLMSG_HDRLEN {
		return 0, fmt.Errorf("netlink answer of %d bytes", len(b))
	}
	kind := binary.NativeEndian.Uint16(b[4:])
	if kind != unix.NLMSG_ERROR && kind != unix.NLMSG_DONE {
		return kind, nil
	}
	if len(b) < unix.NLMSG_HDRLEN+4 {
		return kind, fmt.Errorf("netlink answer of %d bytes", len(b))
	}
	if code := int32(binary.NativeEndian.Uint32(b[unix.NLMSG_HDRLEN:])); code < 0 {
		return kind, unix.Errno(-code)
	}
	return kind, nil
}
