package door

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
)

const (
	// MaxArguments bounds cmdline and environ: execve(2) takes 2 MiB of both with the usual stack of 8 MiB, and a
	// process can show any part of its memory in their place (PR_SET_MM_MAP, prctl(2)).
	MaxArguments = 2 << 20
	// MaxMaps bounds maps: 65,530 mappings, the default of vm.max_map_count, of 120 bytes. A process may give each
	// one a path of 4096 bytes.
	MaxMaps = 8 << 20
)

// Read reads at most limit bytes of a file below /proc/PID; cut says that it has more.
func Read(file string, limit int) (text []byte, cut bool, err error) {
	if !isOfMemory(filepath.Base(file)) {
		return read(file, limit)
	}
	type result struct {
		text []byte
		cut  bool
	}
	r, err := patient(filepath.Dir(file), func() (r result, err error) {
		r.text, r.cut, err = read(file, limit)
		return r, err
	})
	return r.text, r.cut, err
}

// isOfMemory reports whether the kernel takes the lock of the process's memory for this file in /proc/PID.
func isOfMemory(name string) bool { return name == "cmdline" || name == "environ" || name == "maps" }

const (
	// patience is how long the kernel may take for what needs the lock of a process's memory (mmap_lock). The lock is
	// held for microseconds, or milliseconds while pages come from a disk. A process holds it for ever if it maps
	// something over a page that has yet to be written to a file whose server does not answer.
	patience = time.Second
	// maxHeld bounds the processes that keep perfdoctor waiting, each with one of its threads. After that perfdoctor
	// reads nothing that needs the lock of a process's memory, until one of them lets go.
	maxHeld = 16
)

// ErrHeld is why a process is not looked at: it keeps its readers waiting.
var ErrHeld = errors.New("the kernel lets nobody look at it, as it holds the lock of its own memory")

// held are the processes that keep perfdoctor waiting, by their directories in /proc.
type held struct {
	mu   sync.Mutex
	dirs map[string]bool
}

var theHeld = sync.OnceValue(func() *held { return &held{dirs: map[string]bool{}} })

// patient runs do, which needs the lock of the memory of the process whose directory in /proc is dir. If a process
// keeps perfdoctor waiting, it is not asked again until it has let go. do runs on a thread of its own, with
// perfdoctor's rights, whatever rights the caller's thread has given up. The wait ends with perfdoctor, unlike the
// wait for a page ([Memory]): mmap_read_lock_killable in fs/proc.
func patient[T any](dir string, do func() (T, error)) (T, error) {
	h := theHeld()
	var none T
	if h.refuses(dir) {
		return none, fmt.Errorf("%s: %w", dir, ErrHeld)
	}
	over := false
	value, err := clock.Within(patience, func() (T, error) {
		value, err := do()
		h.mu.Lock()
		defer h.mu.Unlock()
		over = true
		delete(h.dirs, dir)
		return value, err
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		return value, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !over {
		h.dirs[dir] = true
	}
	return none, fmt.Errorf("%s: %w", dir, ErrHeld)
}

func (h *held) refuses(dir string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dirs[dir] || len(h.dirs) >= maxHeld
}

// read is [Read] of a file that does not wait for the process.
func read(file string, limit int) (text []byte, cut bool, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	text, err = io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if len(text) > limit {
		return text[:limit], true, err
	}
	return text, false, err
}

// Maps reads a process's list of mappings, /proc/PID/maps: the whole lines in the first [MaxMaps] bytes.
func Maps(dir string) (io.ReadCloser, error) {
	text, cut, err := Read(dir+"/maps", MaxMaps)
	if err != nil {
		return nil, err
	}
	if cut {
		text = text[:bytes.LastIndexByte(text, '\n')+1]
	}
	return io.NopCloser(bytes.NewReader(text)), nil
}

// Descriptors lists at most so many of the names in /proc/PID/fd, which are numbers: a process may have a billion open
// (fs.nr_open).
func Descriptors(dir string, most int) ([]string, error) {
	f, err := os.Open(dir + "/fd")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(most)
	if errors.Is(err, io.EOF) { // it has none
		err = nil
	}
	return names, err
}

// Executable returns the text of the link to the program that a process runs. It does not follow the link.
func Executable(dir string) (string, error) { return os.Readlink(dir + "/exe") }

// Descriptor returns the text of a link in /proc/PID/fd: "socket:[123]", "pipe:[45]" or a path. It does not follow
// the link.
func Descriptor(dir, name string) (string, error) {
	return os.Readlink(dir + "/fd/" + name)
}
