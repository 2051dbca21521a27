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

// A page of a process's memory may belong to a file that another process serves (FUSE), or a server elsewhere (NFS).
// Whoever reads such a page waits for the server. A server that took the request and never answers keeps the reader,
// and with it its process, from ending, even by SIGKILL (request_wait_answer in fs/fuse/dev.c). Looking at the
// mappings first does not help, as the process may change them between the look and the read. So a separate process
// reads memory, and is left behind when it hangs ([helpers]).

// A Memory reads the memory of a process by its addresses. It needs the right to trace the process, but attaches to
// nothing, stops nothing and writes nothing.
type Memory struct {
	dir string // /proc/PID
	pid int    // 0 if dir is not in /proc, whose numbers are those of this namespace

	mu      sync.Mutex
	trusted bool
	looked  time.Time // when that was last looked up
}

func (m *Memory) isTrusted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.looked) > trustLasts {
		m.trusted, m.looked = m.pid == os.Getpid() || ownsHost(m.dir), time.Now()
	}
	return m.trusted
}

// Name returns the file in /proc that stands for the memory.
func (m *Memory) Name() string { return m.dir + "/mem" }

// Close does nothing: a helper serves all reads.
func (m *Memory) Close() error { return nil }

// trustLasts is how long a process counts as root's: a server begins as root and becomes another user.
const trustLasts = time.Second

// MemoryOf returns the memory of the process whose directory in /proc is dir.
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

// ReadAt fills a slice with what is at an address. Its error is EFAULT if some of it cannot be read, ESRCH if the
// process has ended, and [ErrServer] if no answer came.
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

// maxPiece bounds what is read at once, in bytes: an answer has to fit into one message of a socket
// (net.core.wmem_default is 208 KiB).
const maxPiece = 64 << 10

// readMemory reads the memory of a process by its addresses, and returns how many bytes lie before an address that
// leads nowhere (process_vm_readv(2)).
func readMemory(pid int, into []byte, at uint64) (int, error) {
	local := []unix.Iovec{{Base: &into[0], Len: uint64(len(into))}}
	remote := []unix.RemoteIovec{{Base: uintptr(at), Len: len(into)}}
	n, err := unix.ProcessVMReadv(pid, local, remote, 0)
	return max(n, 0), err
}

// ownsHost reports whether a process may do anything to the host, so that there is nothing to fear from it: it can
// mount what it likes for all (CAP_SYS_ADMIN in the user namespace in which this runs).
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
