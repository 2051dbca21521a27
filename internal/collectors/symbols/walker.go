package symbols

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/host/unwind"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
)

const (
	// mappingsLast is how long a process's mappings are used although none of them is where its code runs.
	mappingsLast = time.Second
	// maxWalkedFiles bounds the files whose frames are read; each stays open. A PostgreSQL with its extensions has
	// 30.
	maxWalkedFiles = 64
	// maxMappings bounds the mappings that are kept of all processes, in bytes: 1000 processes with 60 each take 6
	// MB.
	maxMappings = 16 << 20
	// mappingSize is what a mapping takes besides its path.
	mappingSize = 64
)

// A Walker walks copied stacks of programs by what their files say about frames. It keeps the files and mappings that
// it meets, so that a stack from a known place costs 1 µs, and code still has names after its process has ended
// ([Symbolizer.Learn]). It is not safe for concurrent use.
type Walker struct {
	names   *Symbolizer   // for its mappings
	kernels *unwind.Table // of the code that the kernel lends to programs, nil if it cannot be read
	files   map[fileID]*walkedFile
	mapped  map[mappedFile]*walkedFile // nil for one that cannot be read
	fresh   map[uint32]time.Time       // since when mappings are known
	room    int                        // of maxMappings
}

type walkedFile struct {
	file  *os.File
	table *unwind.Table // nil: it has none
}

// NewWalker returns a Walker for stacks of the processes in the procfs at proc.
func NewWalker(proc string) *Walker {
	return &Walker{
		names: New(proc, nil), kernels: vdso(), files: map[fileID]*walkedFile{}, mapped: map[mappedFile]*walkedFile{},
		fresh: map[uint32]time.Time{}, room: maxMappings,
	}
}

// Walk returns the addresses of a thread's stack, the innermost first, from its registers and a copy of the stack's
// memory from the stack pointer on: none if it cannot be walked. whole says whether the walk reached the outermost
// function. The error is a fault of perfdoctor itself.
func (w *Walker) Walk(pid uint32, r unwind.Registers, stack []byte) (addresses []uint64, whole bool, err error) {
	err = firewall.Run("the frames of a program", func() error {
		find := func(pc uint64) (*unwind.Table, uint64, bool) { return w.find(pid, pc) }
		addresses, whole = unwind.Walk(r, stack, find)
		return nil
	})
	return addresses, whole, err
}

// Waiting returns what the walk of a thread in a blocking system call starts with: its registers as far as they are
// known, and its stack, which is read from the memory of the process into buf. It ends where the stack does.
func (w *Walker) Waiting(pid int, pc, sp uint64, buf []byte) (r unwind.Registers, stack []byte) {
	memory := door.MemoryOf(w.names.proc + "/" + strconv.Itoa(pid))
	n, _ := memory.ReadAt(buf, int64(sp)) // none if the process has ended
	return unwind.Registers{PC: pc, SP: sp, OnlySP: true}, buf[:n]
}

// Beyond returns the frame pointer of a thread's innermost function that no file describes: see [unwind.Beyond]. The
// error is a fault of perfdoctor itself.
func (w *Walker) Beyond(pid uint32, r unwind.Registers, stack []byte) (fp uint64, ok bool, err error) {
	err = firewall.Run("the frames of a program", func() error {
		fp, ok = unwind.Beyond(r, stack, func(pc uint64) (*unwind.Table, uint64, bool) { return w.find(pid, pc) })
		return nil
	})
	return fp, ok, err
}

// Close closes the files. A symbolizer that has learnt from the walker must have nothing left to name.
func (w *Walker) Close() {
	for _, f := range w.files {
		_ = f.file.Close() // nothing was written
	}
	w.files = nil
}

// open opens a file of a process that has ended, if its code was met while it ran.
func (w *Walker) open(pid uint32, m door.Mapping) (*os.File, error) {
	f := w.mapped[mappedFile{pid, m.Path, m.Deleted}]
	if f == nil {
		return nil, fmt.Errorf("%s of pid %d was not opened while it ran: %w", m.Path, pid, fs.ErrNotExist)
	}
	fd, err := unix.FcntlInt(f.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s of pid %d: %w", m.Path, pid, err)
	}
	return os.NewFile(uintptr(fd), f.file.Name()), nil
}

// mappings reads the mappings of a process if there is room for them; without any, its stacks are not walked.
func (w *Walker) mappings(pid uint32) {
	size := func(list []door.Mapping) (n int) {
		for _, m := range list {
			n += mappingSize + len(m.Path)
		}
		return n
	}
	w.fresh[pid] = time.Now()
	w.room += size(w.names.maps[pid])
	delete(w.names.maps, pid)
	n := size(w.names.mapsOf(pid))
	if n > w.room {
		w.names.maps[pid], n = nil, 0
	}
	w.room -= n
}

// find is an [unwind.Finder] for a process.
func (w *Walker) find(pid uint32, pc uint64) (t *unwind.Table, address uint64, ok bool) {
	m, ok := door.Mapping{}, false
	if _, known := w.names.maps[pid]; known {
		m, ok = w.names.mappingOf(pid, pc)
	}
	if !ok && time.Since(w.fresh[pid]) >= mappingsLast { // it is new, or has loaded a library or another program
		w.mappings(pid)
		m, ok = w.names.mappingOf(pid, pc)
	}
	if !ok {
		return nil, 0, false
	}
	if t = w.tableOf(pid, m); t == nil {
		return nil, 0, true
	}
	if address, ok = t.Address(pc - m.From + m.Offset); !ok {
		return nil, 0, true
	}
	return t, address, true
}

// tableOf returns what a mapped file says about its frames; nil if it says nothing, or cannot be read.
func (w *Walker) tableOf(pid uint32, m door.Mapping) *unwind.Table {
	if m.Path == vdsoName {
		return w.kernels
	}
	f := w.fileOf(pid, m)
	if f == nil {
		return nil
	}
	return f.table
}

// fileOf returns a mapped file; nil if it cannot be read, or is past the bound.
func (w *Walker) fileOf(pid uint32, m door.Mapping) *walkedFile {
	key := mappedFile{pid, m.Path, m.Deleted}
	of, known := w.mapped[key]
	if known || !strings.HasPrefix(m.Path, "/") || len(w.files) >= maxWalkedFiles {
		return of
	}
	w.mapped[key] = nil
	f, err := w.names.openMapped(pid, m)
	if err != nil {
		return nil
	}
	id, err := identify(f)
	if of = w.files[id]; err != nil || of != nil {
		_ = f.Close()
	}
	if err != nil {
		return nil
	}
	if of == nil {
		of = &walkedFile{file: f}
		if t, err := unwind.Read(f); err == nil {
			of.table = t
		}
		w.files[id] = of
	}
	w.mapped[key] = of
	return of
}

// vdsoName is the kernel's name for the code that it maps into every program. vdsoMost is more than its size, 8 KiB.
const (
	vdsoName = "[vdso]"
	vdsoMost = 64 << 10
)

// vdso reads that code in this process: it is the same in all 64-bit programs. It is in no file.
func vdso() *unwind.Table {
	text, err := door.Maps("/proc/self")
	if err != nil {
		return nil
	}
	defer text.Close()
	memory := door.MemoryOf("/proc/self")
	for m, err := range door.ParseMaps(text) {
		if err != nil || m.Path != vdsoName || m.To-m.From > vdsoMost {
			continue
		}
		code := make([]byte, m.To-m.From)
		if _, err := memory.ReadAt(code, int64(m.From)); err != nil {
			return nil
		}
		t, err := unwind.Read(bytes.NewReader(code))
		if err != nil {
			return nil
		}
		return t
	}
	return nil
}
