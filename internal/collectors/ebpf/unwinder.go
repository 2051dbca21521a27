package ebpf

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collectors/symbols"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/unwind"
)

const (
	// membersLast is how long a list of the target's processes is used.
	membersLast = time.Second
	// readEvery is how long stacks of processes that were there at first may wait to be walked. The program wakes the
	// reader earlier when a quarter of the room is taken, and for each stack of other processes, which may end.
	readEvery = 250 * time.Millisecond
	// maxUnwound bounds the stacks that are kept, of 1 KB each at most.
	maxUnwound = 16384
	// The walks of a window may take unwindShare of it, and unwindStart more: 1000 a second, the most that are taken,
	// take 1 % of a CPU, and opening a program's files takes some milliseconds. A hostile program cannot take more.
	unwindShare = 0.05
	unwindStart = 200 * time.Millisecond
)

// unknownCaller stands in a stack for the caller of its outermost function, where a walk ended early. No mapping has
// this address.
const unknownCaller = 1

// An unwinder walks the stacks of the target's programs while they are sampled. A sample that it cannot walk keeps the
// stack that the kernel took by frame pointers.
type unwinder struct {
	host    *host.Host
	target  host.Target
	dumped  *cilium.Map
	reader  *ringbuf.Reader
	walks   *symbols.Walker
	members time.Time // when they were listed
	oldest  uint32    // the target's process, or one of the first list; 0 before that
	found   map[unwound]uint64
	began   time.Time
	spent   time.Duration
	fault   error // the first, of perfdoctor itself
	done    chan error
}

// unwound is a sample. stack holds addresses of 8 bytes each; it is "" where the kernel's stack is as good.
type unwound struct {
	at    bpf.CPUProfileWhere
	stack string
}

// startUnwinder begins to read the stacks that the program takes.
func startUnwinder(ctx context.Context, h *host.Host, target host.Target, maps map[string]*cilium.Map) (*unwinder,
	error,
) {
	reader, err := ringbuf.NewReader(maps[bpf.CPUProfileMapDumps])
	if err != nil {
		return nil, fmt.Errorf("read the stacks of programs: %w", err)
	}
	u := &unwinder{
		host: h, target: target, dumped: maps[bpf.CPUProfileMapDumped], reader: reader,
		walks: symbols.NewWalker(h.Proc), found: map[unwound]uint64{}, began: time.Now(), done: make(chan error, 1),
	}
	go func() { u.done <- u.run(context.WithoutCancel(ctx)) }()
	return u, nil
}

// stop ends the unwinder once it has read every stack that was taken.
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

// close stops the unwinder and closes its files.
func (u *unwinder) close() error {
	if u == nil {
		return nil
	}
	err := u.stop()
	u.walks.Close()
	return err
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

// list tells the program the target's processes. Processes past the map's size, and those of a target that ends, keep
// their stacks by frame pointers. Processes that are new since the first list may end unread, so they are entered
// under one that was in it.
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
		stack, err := u.walk(d)
		key.stack, u.fault = stack, cmp.Or(u.fault, err)
	}
	u.found[key]++
	u.spent += time.Since(began)
}

// walk returns a stack, "" for one that cannot be walked.
func (u *unwinder) walk(d *bpf.CPUProfileDump) (string, error) {
	r := unwind.Registers{PC: d.Regs[0], SP: d.Regs[1], FP: d.Regs[2], LR: d.Regs[3]}
	stack := d.Stack[:min(d.Size, uint64(len(d.Stack)))]
	list, whole, err := u.walks.Walk(d.At.Tgid, r, stack)
	if len(list) == 0 {
		return "", err
	}
	if !whole {
		list = append(list, unknownCaller)
	}
	var b []byte
	for _, at := range list {
		b = binary.NativeEndian.AppendUint64(b, at)
	}
	return string(b), nil
}

// each calls do with what was found, once the unwinder is stopped.
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
