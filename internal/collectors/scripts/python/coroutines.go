package python

import (
	"encoding/binary"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

// A Coroutine stands at an await, and has the coroutines that it awaits: it is what a task of asyncio does.
type Coroutine struct {
	Address uint64 // of the outermost
	Calls   []Call // the innermost first
}

const (
	// typeOffset is the offset of an object's type, behind the number of references (Include/object.h).
	typeOffset = 8
	// maxAwaits bounds a chain of coroutines that await each other. Only damaged memory has a ring of them.
	maxAwaits = 64
	// coroutineSize is how much is read of a coroutine: its head, and its frame if it contains that, at most maxInline
	// bytes behind its beginning.
	maxInline, coroutineSize = 80, 80 + frameSize
	// maxStackTop bounds the number of values on its stack.
	maxStackTop = 4096
)

// A suspended coroutine, and what it awaits.
type suspended struct {
	call   Call
	awaits uint64 // address
}

// KnowsCoroutines reports whether coroutines can be found, which takes the symbol of their type.
func (p *Process) KnowsCoroutines() bool { return p.coroutineType != 0 }

// Coroutines finds the coroutines that stand at an await, by a search of the interpreter's memory for their type: the
// only list they are in is the collector's, which would have to be followed object by object. whole is false if there
// was more memory than is searched.
func (p *Process) Coroutines() (list []Coroutine, whole bool, err error) {
	found, whole, err := memory.Search(p.read, p.dir, []uint64{p.coroutineType}, typeOffset, p.suspended)
	if err != nil {
		return nil, false, err
	}
	awaited := map[uint64]bool{}
	for _, c := range found {
		awaited[c.awaits] = true
	}
	for at := range found {
		if !awaited[at] {
			list = append(list, Coroutine{at, chainOf(found, at)})
		}
	}
	return list, whole, nil
}

// chainOf follows who awaits whom, from the outermost on.
func chainOf(found map[uint64]suspended, at uint64) []Call {
	var calls []Call
	for range maxAwaits {
		c, ok := found[at]
		if !ok {
			break
		}
		calls = append([]Call{c.call}, calls...)
		at = c.awaits
	}
	return calls
}

// suspended reads a coroutine; ok is false if it is not one, or does not stand at an await.
func (p *Process) suspended(at uint64) (c suspended, ok bool) {
	var b [coroutineSize]byte
	if p.read(at, b[:]) != nil || !isObject(b[:]) {
		return c, false
	}
	frame, at, ok := p.frameOf(at, b[:])
	if !ok || !p.layout.stands(b[:], frame) {
		return c, false
	}
	top, ok := p.topOf(at, frame)
	if !ok {
		return c, false
	}
	call, own, err := p.call(frame)
	if err != nil || own {
		return c, false
	}
	c.call = call
	awaits, err := p.read.Word(top)
	c.awaits = awaits &^ 7 // from 3.14 on the lowest bits are marks (_PyStackRef)
	return c, err == nil
}

// isObject tells an object from freed memory, which has an address or zero in place of the number of references
// (pymalloc).
func isObject(b []byte) bool {
	n := binary.LittleEndian.Uint64(b)
	return n != 0 && n <= 1<<32
}

// frameOf returns the frame of a coroutine, and its address.
func (p *Process) frameOf(at uint64, object []byte) (frame []byte, address uint64, ok bool) {
	c := &p.layout.coroutine
	if !c.away {
		return object[c.frame : c.frame+frameSize], at + c.frame, true
	}
	address = binary.LittleEndian.Uint64(object[c.frame:])
	frame = make([]byte, frameSize)
	return frame, address, address != 0 && p.read(address, frame) == nil
}

// stands reports whether a coroutine stands at an await, by the bytes of the object and of its frame.
func (l *layout) stands(object, frame []byte) bool {
	c := &l.coroutine
	if c.state == 0 { // it has begun; what runs has no stack (topOf)
		return int32(binary.LittleEndian.Uint32(frame[l.instruction:])) >= 0
	}
	state := object
	if c.away {
		state = frame
	}
	n := int8(state[c.state])
	return c.first <= n && n <= c.last
}

// topOf returns the address of the value on top of a frame's stack.
func (p *Process) topOf(at uint64, frame []byte) (top uint64, ok bool) {
	c := &p.layout.coroutine
	if c.isAddress {
		top = binary.LittleEndian.Uint64(frame[c.top:])
		return top - 8*(1+c.above), top > 16
	}
	n := int32(binary.LittleEndian.Uint32(frame[c.top:]))
	begin := at + c.stack
	if c.away {
		begin = binary.LittleEndian.Uint64(frame[c.stack:])
	}
	return begin + 8*uint64(n-1), n >= 1 && n <= maxStackTop
}
