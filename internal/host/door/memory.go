package door

import (
	"errors"
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
	pid int    // 0 where dir is not below /proc, so that its number is not this namespace's

	mu      sync.Mutex
	trusted bool
	looked  time.Time // when it was last asked whether it is
}

func (m *Memory) isTrusted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.looked) > trustLasts {
		m.trusted, m.looked = m.dir == self || ownsHost(m.dir), time.Now()
	}
	return m.trusted
}

// Name is the file in /proc by which it is known.
func (m *Memory) Name() string { return m.dir + "/mem" }

// Close has nothing to do: a helper serves all that is read.
func (m *Memory) Close() error { return nil }

// trustLasts is how long a process counts as root's: a server begins as root and becomes another user.
const trustLasts = time.Second

// self is this process, which a helper would take for itself.
const self = "/proc/self"

// MemoryOf is that of the process whose directory in /proc is dir.
func MemoryOf(dir string) *Memory {
	m := &Memory{dir: filepath.Clean(dir)}
	if filepath.Dir(m.dir) == "/proc" {
		m.pid, _ = strconv.Atoi(filepath.Base(m.dir)) // "self" is none
	}
	return m
}

// ReadAt fills a slice with what is at an address. Its error is EFAULT where some of it cannot be read, ESRCH of a
// process that has ended, [ErrServer] where the answer did not come.
func (m *Memory) ReadAt(into []byte, at int64) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	read := m.directly
	if serving := theHelpers(); serving != nil && !m.isTrusted() {
		read = func(into []byte, at uint64) (int, error) { return serving.read(m.dir, into, at) }
	}
	for done := 0; done < len(into); {
		piece := into[done:min(len(into), done+maxPiece)]
		n, err := read(piece, uint64(at)+uint64(done))
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

func (m *Memory) directly(into []byte, at uint64) (int, error) {
	if m.pid == 0 {
		return readMemory(m.dir, into, at)
	}
	local := []unix.Iovec{{Base: &into[0], Len: uint64(len(into))}}
	remote := []unix.RemoteIovec{{Base: uintptr(at), Len: len(into)}}
	n, err := unix.ProcessVMReadv(m.pid, local, remote, 0)
	return max(n, 0), err
}

// readMemory reads /proc/PID/mem (mem_rw in fs/proc/base.c): EIO is an address that leads nowhere, nothing read a
// process that has ended.
func readMemory(dir string, into []byte, at uint64) (int, error) {
	fd, err := retry(func() (int, error) { return unix.Open(dir+"/mem", unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if errors.Is(err, unix.ENOENT) {
		return 0, unix.ESRCH
	}
	if err != nil {
		return 0, err
	}
	defer closeQuietly(fd)
	n, err := unix.Pread(fd, into, int64(at))
	switch {
	case errors.Is(err, unix.EIO), errors.Is(err, unix.EINVAL):
		err = unix.EFAULT
	case err == nil && n == 0:
		err = unix.ESRCH
	}
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
