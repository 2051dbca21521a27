package door

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A page of a process's memory may be of a file that another process serves (FUSE), or a server elsewhere (NFS). Who
// reads such a page waits for the server; a server that took the request and never answers keeps the reader from
// ending, also by SIGKILL (request_wait_answer in fs/fuse/dev.c), and with it its process. No look at the mappings
// helps, as the process may change them between the look and the read. So memory is read by a process of its own, which
// is left behind when it hangs ([helpers]).

// A Memory reads the memory of a process by its addresses, with the right to trace it: nothing is attached, stopped or
// written.
type Memory struct {
	dir string // /proc/PID
	pid int    // 0 where dir is not in /proc, whose numbers are those of this namespace

	mu      sync.Mutex
	trusted bool
	looked  time.Time // when it was last asked whether it is
}

func (m *Memory) isTrusted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.looked) > trustLasts {
		m.trusted, m.looked = m.pid == os.Getpid() || ownsHost(m.dir), time.Now()
	}
	return m.trusted
}

// Name is the file in /proc by which it is known.
func (m *Memory) Name() string { return m.dir + "/mem" }

// Close has nothing to do: a helper serves all that is read.
func (m *Memory) Close() error { return nil }

// trustLasts is how long a process counts as root's: a server begins as root and becomes another user.
const trustLasts = time.Second

// MemoryOf is that of the process whose directory in /proc is dir.
func MemoryOf(dir string) *Memory {
	m := &Memory{dir: filepath.Clean(dir)}
	if filepath.Dir(m.dir) == "/proc" {
		m.pid, _ = strconv.Atoi(filepath.Base(m.dir))
	}
	if m.dir == "/proc/self" {
		m.pid = os.Getpid()
	}
	return m
}

// ReadAt fills a slice with what is at an address. Its error is EFAULT where some of it cannot be read, ESRCH of a
// process that has ended, [ErrServer] where the answer did not come.
func (m *Memory) ReadAt(into []byte, at int64) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	if m.pid <= 0 {
		return 0, fmt.Errorf("%s: it is read by the process ids of /proc only", m.Name())
	}
	read := readMemory
	if serving := theHelpers(); serving != nil && !m.isTrusted() {
		read = serving.read
	}
	for done := 0; done < len(into); {
		piece := into[done:min(len(into), done+maxPiece)]
		n, err := read(m.pid, piece, uint64(at)+uint64(done))
		done += n
		if err == nil && n < len(piece) {
			err = unix.EFAULT
		}
		if err != nil {
			return done, fmt.Errorf("%s: %w", m.Name(), err)
		}
	}
	return len(into), nil
}

// maxPiece is what is read at once, in bytes: an answer has to fit into a message of a socket (net.core.wmem_default
// is 208 KiB).
const maxPiece = 64 << 10

// readMemory reads the memory of a process by its addresses, and gives how many bytes lie before one that leads nowhere
// (process_vm_readv(2)).
func readMemory(pid int, into []byte, at uint64) (int, error) {
	local := []unix.Iovec{{Base: &into[0], Len: uint64(len(into))}}
	remote := []unix.RemoteIovec{{Base: uintptr(at), Len: len(into)}}
	n, err := unix.ProcessVMReadv(pid, local, remote, 0)
	return max(n, 0), err
}

// ownsHost tells of a process that may do anything to the host, so that nothing is to be feared of it: it can mount
// what it likes for all (CAP_SYS_ADMIN in the namespace of users in which this runs).
func ownsHost(dir string) bool {
	theirs, err := os.Readlink(filepath.Join(dir, "ns/user"))
	ours, ownErr := os.Readlink("/proc/self/ns/user")
	if err != nil || ownErr != nil || theirs != ours {
		return false
	}
	text, _, err := Read(filepath.Join(dir, "status"), maxStatus)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return err == nil && set&(1<<unix.CAP_SYS_ADMIN) != 0
		}
	}
	return false
}
