package ebpf

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
	"unsafe"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/host/unwind"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
)

const (
	// membersLast is how long a list of the target's processes is used, and the mappings of one that has none where its
	// code runs.
	membersLast = time.Second
	// readEvery is how long stacks of processes that were there at first may wait to be walked: the program wakes the
	// reader earlier when a quarter of the room is taken, and for each of other processes, which may end.
	readEvery = 250 * time.Millisecond
	// maxUnwindFiles bounds the files whose frames are read, each of which stays open: a PostgreSQL with its extensions
	// has 30.
	maxUnwindFiles = 64
	// maxUnwound bounds the stacks that are kept, of 1 KB each at most.
	maxUnwound = 16384
	// maxMappings bounds the mappings that are kept of all processes, in bytes: 1000 of 60 have 6 MB.
	maxMappings = 16 << 20
	// mappingSize is what one takes besides its path.
	mappingSize = 64
	// The walks of a window may take this share of it, and so much more: 1000 a second, the most that are taken, take
	// 1 % of a CPU, and opening a program's files some milliseconds. A hostile one cannot take more.
	unwindShare = 0.05
	unwindStart = 200 * time.Millisecond
)

// unknownCaller is the address in a stack for what called its outermost function, where a walk ended early. No mapping
// has it.
const unknownCaller = 1

// An unwinder walks the stacks of the target's programs while they are sampled. What it cannot walk keeps the stack
// that the kernel took by frame pointers.
type unwinder struct {
	host    *host.Host
	target  host.Target
	dumped  *cilium.Map
	reader  *ringbuf.Reader
	names   *symbolizer   // for its mappings
	kernels *unwind.Table // of the code that the kernel lends to programs, nil if it cannot be read
	files   map[fileID]*unwindFile
	mapped  map[mappedFile]*unwindFile // nil of one that cannot be read
	fresh   map[uint32]time.Time       // since when mappings are known
	room    int                        // of maxMappings
	members time.Time                  // when they were listed
	oldest  uint32                     // the target's process, or one of the first list; 0 before that
	found   map[unwound]uint64
	began   time.Time
	spent   time.Duration
	fault   error // the first, of perfdoctor itself
	done    chan error
}

// unwound is a sample; stack are addresses of 8 bytes each, "" where the kernel's stack is as good.
type unwound struct {
	at    bpf.CPUProfileWhere
	stack string
}

type unwindFile struct {
	file  *os.File
	table *unwind.Table // nil: it has none
}

// newUnwinder prepares to walk stacks that somebody else takes.
func newUnwinder(h *host.Host, target host.Target) *unwinder {
	return &unwinder{
		host: h, target: target, names: newSymbolizer(h.Proc, nil), kernels: vdso(), files: map[fileID]*unwindFile{},
		mapped: map[mappedFile]*unwindFile{}, fresh: map[uint32]time.Time{}, found: map[unwound]uint64{},
		room: maxMappings, began: time.Now(), done: make(chan error, 1),
	}
}

// startUnwinder reads the stacks that the program takes, until it is stopped.
func startUnwinder(ctx context.Context, h *host.Host, target host.Target, maps map[string]*cilium.Map) (*unwinder,
	error,
) {
	reader, err := ringbuf.NewReader(maps[bpf.CPUProfileMapDumps])
	if err != nil {
		return nil, fmt.Errorf("read the stacks of programs: %w", err)
	}
	u := newUnwinder(h, target)
	u.dumped, u.reader = maps[bpf.CPUProfileMapDumped], reader
	go func() { u.done <- u.run(context.WithoutCancel(ctx)) }()
	return u, nil
}

// stop ends it once all that was taken is read.
func (u *unwinder) stop() error {
	if u == nil || u.reader == nil {
		return nil
	}
	err := u.reader.Flush()
	if err == nil {
		err = <-u.done
	}
	err = errors.Join(err, u.reader.Close())
	u.reader = nil
	return err
}

// close stops it and gives the files back.
func (u *unwinder) close() error {
	if u == nil {
		return nil
	}
	err := u.stop()
	for _, f := range u.files {
		_ = f.file.Close() // nothing was written
	}
	u.files = nil
	return err
}

// kept gives a file of a process that has ended, if its code was met while it ran.
func (u *unwinder) kept(pid uint32, m door.Mapping) (*os.File, error) {
	f := u.mapped[mappedFile{pid, m.Path, m.Deleted}]
	if f == nil {
		return nil, fmt.Errorf("%s of pid %d was not opened while it ran: %w", m.Path, pid, fs.ErrNotExist)
	}
	fd, err := unix.FcntlInt(f.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s of pid %d: %w", m.Path, pid, err)
	}
	return os.NewFile(uintptr(fd), f.file.Name()), nil
}

func (u *unwinder) run(ctx context.Context) error {
	var record ringbuf.Record
	for {
		if time.Since(u.members) >= membersLast {
			u.list(ctx)
		}
		u.reader.SetDeadline(time.Now().Add(readEvery))
		err := u.reader.ReadInto(&record)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case errors.Is(err, ringbuf.ErrFlushed):
			return nil
		case err != nil:
			return fmt.Errorf("read the stacks of programs: %w", err)
		case len(record.RawSample) < int(unsafe.Sizeof(bpf.CPUProfileDump{})):
			continue
		}
		u.take((*bpf.CPUProfileDump)(unsafe.Pointer(&record.RawSample[0])))
	}
}

// list tells the program the target's processes. One past the map's size, and those of a target that ends, keep their
// stacks by frame pointers. Those that are new since the first list may end unread, and stand under one that was there.
func (u *unwinder) list(ctx context.Context) {
	u.members = time.Now()
	list, err := u.host.LateMembers(ctx, u.target)
	if err != nil {
		return
	}
	first := u.oldest == 0
	if first && len(u.target.PIDs) > 0 {
		u.oldest = uint32(u.target.PIDs[0])
	}
	for _, m := range list {
		u.oldest = cmp.Or(u.oldest, uint32(m.PID))
		of := u.oldest
		if first {
			of = uint32(m.PID)
		}
		_ = u.dumped.Update(uint32(m.PID), of, cilium.UpdateNoExist) // it is known, or there is no room: see above
	}
}

// take walks one stack, as far as the time allows.
func (u *unwinder) take(d *bpf.CPUProfileDump) {
	began := time.Now()
	key := unwound{at: d.At}
	if u.spent <= unwindStart+time.Duration(unwindShare*float64(began.Sub(u.began))) && len(u.found) < maxUnwound {
		stack, err := firewall.Parse("the frames of a program", func() (string, error) { return u.walk(d), nil })
		key.stack, u.fault = stack, cmp.Or(u.fault, err)
	}
	u.found[key]++
	u.spent += time.Since(began)
}

// walk gives a stack, "" of one that cannot be walked.
func (u *unwinder) walk(d *bpf.CPUProfileDump) string {
	r := unwind.Registers{PC: d.Regs[0], SP: d.Regs[1], FP: d.Regs[2], LR: d.Regs[3]}
	stack := d.Stack[:min(d.Size, uint64(len(d.Stack)))]
	list, whole := unwind.Walk(r, stack, func(pc uint64) (*unwind.Table, uint64, bool) { return u.find(d.At.Tgid, pc) })
	if len(list) == 0 {
		return ""
	}
	if !whole {
		list = append(list, unknownCaller)
	}
	var b []byte
	for _, at := range list {
		b = binary.NativeEndian.AppendUint64(b, at)
	}
	return string(b)
}

// each gives what was found once it is stopped.
func (u *unwinder) each(do func(unwound, uint64)) {
	if u == nil {
		return
	}
	for w, count := range u.found {
		do(w, count)
	}
}

func (w unwound) addresses() (list []uint64) {
	for b := []byte(w.stack); len(b) > 0; b = b[8:] {
		list = append(list, binary.NativeEndian.Uint64(b))
	}
	return list
}

// mappings reads those of a process, as far as there is room: without any its stacks are not walked.
func (u *unwinder) mappings(pid uint32) {
	size := func(list []door.Mapping) (n int) {
		for _, m := range list {
			n += mappingSize + len(m.Path)
		}
		return n
	}
	u.fresh[pid] = time.Now()
	u.room += size(u.names.maps[pid])
	delete(u.names.maps, pid)
	n := size(u.names.mapsOf(pid))
	if n > u.room {
		u.names.maps[pid], n = nil, 0
	}
	u.room -= n
}

// find is an [unwind.Finder] for a process.
func (u *unwinder) find(pid uint32, pc uint64) (t *unwind.Table, address uint64, ok bool) {
	m, ok := door.Mapping{}, false
	if _, known := u.names.maps[pid]; known {
		m, ok = u.names.mappingOf(pid, pc)
	}
	if !ok && time.Since(u.fresh[pid]) >= membersLast { // it is new, or has loaded a library or another program
		u.mappings(pid)
		m, ok = u.names.mappingOf(pid, pc)
	}
	if !ok {
		return nil, 0, false
	}
	if t = u.tableOf(pid, m); t == nil {
		return nil, 0, true
	}
	if address, ok = t.Address(pc - m.From + m.Offset); !ok {
		return nil, 0, true
	}
	return t, address, true
}

// tableOf gives what a mapped file says of its frames; nil if it says nothing, or cannot be read.
func (u *unwinder) tableOf(pid uint32, m door.Mapping) *unwind.Table {
	if m.Path == vdsoName {
		return u.kernels
	}
	f := u.fileOf(pid, m)
	if f == nil {
		return nil
	}
	return f.table
}

// fileOf gives a mapped file; nil if it cannot be read, or is past the bound.
func (u *unwinder) fileOf(pid uint32, m door.Mapping) *unwindFile {
	key := mappedFile{pid, m.Path, m.Deleted}
	of, known := u.mapped[key]
	if known || !strings.HasPrefix(m.Path, "/") || len(u.files) >= maxUnwindFiles {
		return of
	}
	u.mapped[key] = nil
	f, err := u.names.openMapped(pid, m)
	if err != nil {
		return nil
	}
	id, err := identify(f)
	if of = u.files[id]; err != nil || of != nil {
		_ = f.Close()
	}
	if err != nil {
		return nil
	}
	if of == nil {
		of = &unwindFile{file: f}
		if t, err := unwind.Read(f); err == nil {
			of.table = t
		}
		u.files[id] = of
	}
	u.mapped[key] = of
	return of
}

// vdsoName is what the kernel calls the code that it maps into every program, and vdsoMost more than it has: 8 KiB.
const (
	vdsoName = "[vdso]"
	vdsoMost = 64 << 10
)

// vdso reads that code in this process: it is the same in all programs of 64 bits. It is in no file.
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
