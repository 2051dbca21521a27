package goroutines

import (
	"encoding/binary"
	"errors"
	"regexp"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/gotable"
)

// A state is what a goroutine does.
type state uint8

// The states. A goroutine in a system call may wait there or run.
const (
	gone    state = iota // it has ended; its memory is kept for the next one
	ready                // it waits for a CPU
	runs                 // on a CPU
	inCall               //
	waiting              //
)

// stateOf returns the state for a status number of src/runtime/runtime2.go. One bit says that the garbage collector
// scans the stack.
func stateOf(number uint32) state {
	const scan = 0x1000
	switch number &^ scan {
	case 1, 8, 9: // runnable, stack being moved, preempted
		return ready
	case 2:
		return runs
	case 3:
		return inCall
	case 4, 10: // 10: nobody can wake it any more (Go 1.26)
		return waiting
	}
	return gone
}

// A goroutine is what was read of one goroutine at one moment.
type goroutine struct {
	id     uint64
	state  state
	frames []gotable.Call // the innermost first
	entry  string         // what it was started with
}

// runtimes reports whether the goroutine is one of the Go runtime's own, such as its garbage collector and its
// timers.
func (g *goroutine) runtimes() bool {
	return g.entry == "" || strings.HasPrefix(g.entry, "runtime.") && g.entry != "runtime.main"
}

// errChanged says that a goroutine was not read because it ran meanwhile.
var errChanged = errors.New("it went on")

// goroutine reads the goroutine at an address.
func (p *program) goroutine(at uint64, g *goroutine) error {
	var head, after [headSize]byte
	if err := p.read(at, head[:]); err != nil {
		return err
	}
	*g = goroutine{frames: g.frames[:0]}
	status := binary.LittleEndian.Uint32(head[p.layout.status:])
	if g.state = stateOf(status); g.state == gone {
		return nil
	}
	g.id = word(head[:], int(p.layout.id))
	start := word(head[:], int(p.layout.start))
	if g.state == runs {
		g.entry = p.entryOf(start)
		return nil
	}
	sp, pc, frame := p.stopped(head[:], g.state)
	p.walk(g, sp, pc, frame, word(head[:], stackEnd))
	if err := p.read(at, after[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(after[p.layout.status:]) != status ||
		[16]byte(after[schedSP:]) != [16]byte(head[schedSP:]) {
		return errChanged
	}
	if g.state == inCall && p.layout.inCallFrame == 0 { // the functions between are not known
		g.entry = p.entryOf(start)
		g.frames = append(g.frames, gotable.Call{Name: g.entry})
		return nil
	}
	p.learn(g, start)
	return nil
}

// stopped returns where a goroutine that is not running has stopped.
func (p *program) stopped(head []byte, s state) (sp, pc, frame uint64) {
	if s != inCall {
		return word(head, schedSP), word(head, schedPC), word(head, int(p.layout.frame))
	}
	sp, pc = word(head, int(p.layout.inCall)), word(head, int(p.layout.inCall)+8)
	if p.layout.inCallFrame != 0 {
		frame = word(head, int(p.layout.inCallFrame))
	}
	return sp, pc, frame
}

// walk follows the frame pointers, which Go keeps on amd64 and arm64: each points to the next one, with the return
// address behind it (fpTracebackPCs in src/runtime/tracer.go).
func (p *program) walk(g *goroutine, sp, pc, frame, end uint64) {
	g.frames = append(g.frames, p.calls(pc)...)
	from, have := sp, p.stackAt(sp, end)
	for range maxDepth {
		if frame%8 != 0 || frame < sp || end < 16 || frame > end-16 {
			return
		}
		if frame-from+16 > uint64(len(have)) {
			from, have = frame, p.stackAt(frame, end)
		}
		if have == nil {
			return
		}
		sp = frame + 16 // stacks grow down: a caller's frame lies above
		frame, pc = word(have, int(frame-from)), word(have, int(frame-from)+8)
		if pc == 0 {
			return
		}
		g.frames = append(g.frames, p.calls(pc-1)...) // the call is before the return address
	}
}

// stackAt reads a piece of a stack that ends at a given address; nil if that cannot be read.
func (p *program) stackAt(from, end uint64) []byte {
	size := min(stackAtOnce, end-min(end, from))
	if size < 16 || p.read(from, p.stack[:size]) != nil {
		return nil
	}
	return p.stack[:size]
}

// calls returns the functions at a code address, the innermost first; none if there is no code.
func (p *program) calls(pc uint64) []gotable.Call {
	calls, known := p.called[pc]
	if !known {
		calls = p.table.Calls(pc - p.file.Bias)
	}
	if !known && len(p.called) < maxNames {
		p.called[pc] = calls
	}
	return calls
}

// name returns the function at a code address; "" if there is none.
func (p *program) name(pc uint64) string {
	f, _ := p.table.Find(pc - p.file.Bias)
	return f.Name
}

// wrapper matches the functions that the compiler generates for a go statement with arguments (since Go 1.22).
var wrapper = regexp.MustCompile(`\.gowrap[0-9]+$`)

// learn sets what a goroutine was started with: its outermost function that is in somebody's source. The frames
// further out are the same in every goroutine, and are left out.
func (p *program) learn(g *goroutine, start uint64) {
	for n := len(g.frames); n > 0; n-- {
		f := g.frames[n-1].Name
		if f != "runtime.goexit" && !wrapper.MatchString(f) {
			g.entry = f
			break
		}
		g.frames = g.frames[:n-1]
	}
	if before, known := p.entry[start]; known && before != g.entry {
		p.entry[start] = p.name(start) // one go statement starts several functions
	} else if !known && g.entry != "" && len(p.entry) < maxNames {
		p.entry[start] = g.entry
	}
}

// entryOf returns what goroutines with this start function were seen to be started with, else the function itself.
func (p *program) entryOf(start uint64) string {
	if name, ok := p.entry[start]; ok {
		return name
	}
	return p.name(start)
}
