package python

import (
	"encoding/binary"
	"errors"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

// ErrChanged says that a thread ran on while its stack was read, so the stack is not known.
var ErrChanged = errors.New("the thread ran on while its stack was read")

// A Call is one function on the stack of a thread.
type Call struct {
	Function string // with its class from 3.11 on: Shop.cart
	File     string // as the interpreter knows it; may be relative, or <string>
	Line     int    // the line that runs; 0 if unknown
}

// A Thread is one of an interpreter's threads.
type Thread struct {
	// ID is the kernel's id, in the pid namespace of the process; 0 where it is not known.
	ID    int
	frame uint64 // address that leads to its innermost frame
}

const (
	// maxInterpretersRun and maxThreads bound what is looked at: a damaged list may be a ring.
	maxInterpretersRun = 64
	maxThreads         = 2000
	// maxDepth bounds a stack; the outermost calls are left out. A script ends with an error at 1,000, unless it asks
	// for more (sys.setrecursionlimit).
	maxDepth = 1024
	// What is read of a frame and of a code object at once: their largest offsets above, and eight bytes.
	frameSize = 112
	codeSize  = 208
)

// Threads lists the threads of all interpreters of the process. ids says which numbers are threads of the process:
// before 3.11 an interpreter knows its threads only by pthread_self(3).
func (p *Process) Threads(ids func(int) bool) ([]Thread, error) {
	var out []Thread
	p.look++
	l := &p.layout
	interpreter, err := p.read.Word(p.runtime + l.interpreters)
	for n := 0; err == nil && interpreter != 0 && n < maxInterpretersRun; n++ {
		var state uint64
		state, err = p.read.Word(interpreter + l.threads)
		for err == nil && state != 0 && len(out) < maxThreads {
			var id int
			if id, err = p.threadID(state, ids); err != nil {
				break
			}
			out = append(out, Thread{ID: id, frame: state + l.frame})
			state, err = p.read.Word(state + l.nextThread)
		}
		if err == nil {
			interpreter, err = p.read.Word(interpreter + l.nextInterpreter)
		}
	}
	if errors.Is(err, memory.ErrNowhere) { // a thread ended meanwhile
		err = ErrChanged
	}
	return out, err
}

func (p *Process) threadID(state uint64, ids func(int) bool) (int, error) {
	if at := p.layout.nativeID; at != 0 {
		id, err := p.read.Word(state + at)
		if err != nil || ids(int(uint32(id))) {
			return int(uint32(id)), err
		}
		// If a server forks by itself (uWSGI), its children have the id of the thread that forked.
	}
	pthread, err := p.read.Word(state + p.layout.threadID)
	if err != nil {
		return 0, err
	}
	return p.read.ThreadID(pthread, ids), nil
}

// Stack returns the calls of a thread, the innermost first; none if it runs no function of a script.
func (p *Process) Stack(t Thread) ([]Call, error) {
	calls, err := p.stack(t)
	if errors.Is(err, memory.ErrNowhere) {
		err = ErrChanged
	}
	return calls, err
}

// innermost returns the address of a thread's innermost frame; 0 if it runs no function of a script.
func (p *Process) innermost(t Thread) (frame uint64, err error) {
	frame, err = p.read.Word(t.frame)
	if err == nil && p.layout.isCFrame && frame != 0 {
		frame, err = p.read.Word(frame + p.layout.inCFrame)
	}
	return frame, err
}

func (p *Process) stack(t Thread) ([]Call, error) {
	frame, err := p.innermost(t)
	if err != nil {
		return nil, err
	}
	var calls []Call
	err = p.walk(frame, func(_ uint64, c Call, own bool) {
		if !own {
			calls = append(calls, c)
		}
	})
	if err != nil {
		return nil, err
	}
	return calls, nil
}

// walk calls do with each frame from the given one outwards: its address, what it runs, and whether it is the
// interpreter's own.
func (p *Process) walk(frame uint64, do func(at uint64, c Call, own bool)) error {
	p.block.bytes = p.block.bytes[:0]
	for range maxDepth {
		if frame == 0 {
			return nil
		}
		b, err := p.frameAt(frame)
		if err != nil {
			return err
		}
		call, own, err := p.call(b)
		if err != nil {
			return err
		}
		do(frame, call, own)
		frame = binary.LittleEndian.Uint64(b[p.layout.previous:])
	}
	return nil
}

// blockSize is how much is read at once where frames lie side by side, one to two hundred bytes each: a system call
// takes longer than copying a page.
const blockSize = 4096

// A block is memory that was read once, for several frames.
type block struct {
	from  uint64
	bytes []byte
	space [blockSize]byte
}

// frameAt returns the bytes of a frame. From 3.11 on most of its callers' frames lie before it
// (Include/internal/pycore_frame.h: the data stack of a thread).
func (p *Process) frameAt(at uint64) ([]byte, error) {
	k := &p.block
	if i := at - k.from; at >= k.from && i+frameSize <= uint64(len(k.bytes)) {
		return k.bytes[i : i+frameSize], nil
	}
	k.from, k.bytes = at, k.space[:frameSize]
	if p.layout.isPointer && at > blockSize {
		from := at + frameSize - blockSize
		if p.read(from, k.space[:]) == nil {
			k.from, k.bytes = from, k.space[:]
			return k.bytes[blockSize-frameSize:], nil
		}
	}
	err := p.read(at, k.bytes)
	if err != nil {
		k.bytes = nil
	}
	return k.bytes, err
}

// ownedByC is the lowest owner of the interpreter's own frames, which lie between those of scripts (enum _frameowner:
// 3, and from 3.14 on 4, too).
const ownedByC = 3

// call returns what a frame runs; own says that it is the interpreter's own.
func (p *Process) call(b []byte) (c Call, own bool, err error) {
	l := &p.layout
	if l.hasOwner && b[l.owner] >= ownedByC {
		if b[l.owner] > ownedByC+1 {
			return c, false, ErrChanged
		}
		return c, true, nil
	}
	at := binary.LittleEndian.Uint64(b[l.code:]) &^ 7 // from 3.14 on the lowest bits are marks (_PyStackRef)
	code, err := p.code(at)
	if err != nil {
		return c, false, err
	}
	instruction := binary.LittleEndian.Uint64(b[l.instruction:])
	if l.isPointer {
		instruction -= at + l.body
	} else {
		instruction &= 1<<32 - 1 // an int
	}
	return Call{Function: code.name, File: code.file, Line: code.line(instruction, l.table)}, false, nil
}
