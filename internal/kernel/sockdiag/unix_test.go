package sockdiag

import (
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestUnixListeners: a listener with two clients that are not accepted, by a path and by an abstract name.
func TestUnixListeners(t *testing.T) {
	conn, err := OpenUnix(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	path := filepath.Join(t.TempDir(), "s")
	for _, name := range []string{path, "@perfdoctor-test-" + filepath.Base(t.TempDir())} {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
			t.Fatal(err)
		}
		if err := unix.Listen(fd, 7); err != nil {
			t.Fatal(err)
		}
		var inodes []uint32
		for range 2 {
			c, err := net.Dial("unix", name)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			inodes = append(inodes, inodeOf(t, c.(*net.UnixConn)))
		}
		list, err := conn.Listeners()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(list, func(l UnixListener) bool { return l.Name == name })
		if i < 0 {
			t.Fatalf("no listener %s among %d", name, len(list))
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		want := UnixListener{Inode: st.Ino, Name: name, Queue: 2, Waiting: inodes, Backlog: 7}
		if d := cmp.Diff(want, list[i]); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
}

func inodeOf(t *testing.T, c *net.UnixConn) (inode uint32) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) }); err != nil {
		t.Fatal(err)
	}
	return uint32(st.Ino)
}

// FuzzUnixListener: the message is the kernel's, and the name in it somebody else's.
func FuzzUnixListener(f *testing.F) {
	f.Add(make([]byte, unixMsgLen))
	f.Add(append(make([]byte, unixMsgLen), 12, 0, 4, 0, 1, 0, 0, 0, 7, 0, 0, 0, 7, 0, 0, 0, 0, 'a', 'b'))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := parseUnixListener(data)
		if err == nil && len(l.Name)+len(l.Waiting) > len(data)+1 {
			t.Errorf("%d bytes give a name of %d and %d clients", len(data), len(l.Name), len(l.Waiting))
		}
	})
}
