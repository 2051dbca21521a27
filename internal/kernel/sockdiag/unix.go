package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A UnixListener is a listening socket of AF_UNIX.
type UnixListener struct {
	Inode   uint64
	Name    string   // its path, "@" and its name if it is abstract, "" if it has none
	Queue   uint32   // connections that wait for accept()
	Waiting []uint32 // inodes of their clients
	Backlog uint32   // connections that may wait; connect() fails or blocks with more (unix_recvq_full)
}

// UnixConn is a netlink socket for the sockets of AF_UNIX of one network namespace. It is not safe for concurrent use.
type UnixConn struct {
	conn    *netlink.Conn
	timeout time.Duration
}

// OpenUnix makes a UnixConn for the network namespace of the calling thread, as [Open] does. timeout bounds each call
// of Listeners.
func OpenUnix(timeout time.Duration) (*UnixConn, error) {
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return nil, fmt.Errorf("open sock_diag socket: %w", classify(err))
	}
	return &UnixConn{conn: conn, timeout: timeout}, nil
}

// Close releases the socket.
func (c *UnixConn) Close() error { return c.conn.Close() }

// What unix_diag.h (include/uapi/linux) has and x/sys lacks.
const (
	unixShowName, unixShowIcons, unixShowRQLen = 0x1, 0x8, 0x10
	unixAttrName, unixAttrIcons, unixAttrRQLen = 0, 3, 4
	unixMsgLen                                 = 16 // struct unix_diag_msg
)

// Listeners returns the listening sockets, in no order. A kernel without CONFIG_UNIX_DIAG answers [unix.ENOENT].
func (c *UnixConn) Listeners() ([]UnixListener, error) {
	if err := c.conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, fmt.Errorf("sock_diag: set its timeout: %w", err)
	}
	msgs, err := c.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request | netlink.Dump},
		Data:   unixRequest(),
	})
	if err != nil {
		return nil, fmt.Errorf("list the listening sockets of AF_UNIX: %w", err)
	}
	var list []UnixListener
	for _, m := range msgs {
		l, err := parseUnixListener(m.Data)
		if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

// unixRequest returns a struct unix_diag_req for all sockets in the state LISTEN.
func unixRequest() []byte {
	req := make([]byte, 24)
	req[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(req[4:], 1<<Listen)
	binary.NativeEndian.PutUint32(req[12:], unixShowName|unixShowIcons|unixShowRQLen)
	return req
}

var errUnixShort = errors.New("sock_diag: a message about a socket of AF_UNIX is cut off")

func parseUnixListener(data []byte) (l UnixListener, err error) {
	if len(data) < unixMsgLen {
		return l, errUnixShort
	}
	l.Inode = uint64(binary.NativeEndian.Uint32(data[4:]))
	attrs, err := netlink.NewAttributeDecoder(data[unixMsgLen:])
	if err != nil {
		return l, fmt.Errorf("sock_diag: a message about a socket of AF_UNIX: %w", err)
	}
	for attrs.Next() {
		value := attrs.Bytes()
		switch attrs.Type() {
		case unixAttrName:
			l.Name = unixName(value)
		case unixAttrIcons:
			for ; len(value) >= 4; value = value[4:] {
				l.Waiting = append(l.Waiting, binary.NativeEndian.Uint32(value))
			}
		case unixAttrRQLen:
			if len(value) < 8 {
				return l, errUnixShort
			}
			l.Queue, l.Backlog = binary.NativeEndian.Uint32(value), binary.NativeEndian.Uint32(value[4:])
		}
	}
	if err := attrs.Err(); err != nil {
		return l, fmt.Errorf("sock_diag: a message about a socket of AF_UNIX: %w", err)
	}
	return l, nil
}

// unixName reads sun_path, as ss prints it: an abstract name begins with a zero byte, and may have others in it; a path
// may end with one (unix_mkname in net/unix/af_unix.c).
func unixName(path []byte) string {
	if len(path) > 0 && path[0] == 0 {
		return "@" + string(path[1:])
	}
	for len(path) > 0 && path[len(path)-1] == 0 {
		path = path[:len(path)-1]
	}
	return string(path)
}
