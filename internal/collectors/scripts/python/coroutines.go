package python

import (
	"encoding/binary"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

// A Coroutine is one that stands at an await, with those that it awaits: what a task of asyncio does.
type Coroutine struct {
	Address uint64 // of the outermost
	Calls   []Call // the innermost first
}

const (
	// typeOffset is where an object has its type, behind the number of references (Include/object.h).
	typeOffset = 8
	// maxAwaits bounds a chain of those that await each other; a ring of them would be damage.
	maxAwaits = 64
	// coroutineSize is what is read of one: its head and its frame. maxStackTop bounds how far behind it the value lies
	// that it awaits, in words.
	coroutineSize, maxStackTop = 80 + frameSize, 4096
)

// A suspended coroutine, and what it awaits.
type suspended struct {
	call   Call
	awaits uint64 // address
}

// KnowsCoroutines tells whether the version's coroutines are known: those of 3.11 to 3.13 are.
func (p *Process) KnowsCoroutines() bool { return p.coroutineType != 0 && p.layout.coroutine != 0 }

// Coroutines finds the coroutines that stand at an await, by a search of the interpreter's memory for their type: they
// are in no list but the collector's, which would have to be followed object by object. whole is false where there was
// more memory than is searched.
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

// suspended reads a coroutine; ok is false of what is none, or does not stand at an await.
func (p *Process) suspended(at uint64) (c suspended, ok bool) {
	var b [coroutineSize]byte
	if p.read(at, b[:]) != nil {
		return c, false
	}
	l := &p.layout
	// Of memory that was given back the number of references is an address, or zero (pymalloc).
	if n := binary.LittleEndian.Uint64(b[:]); n == 0 || n > 1<<32 {
		return c, false
	}
	if state := int8(b[l.coroutineState]); state >= 0 || state <= l.created {
		return c, false
	}
	frame := b[l.coroutine : l.coroutine+frameSize]
	top := int32(binary.LittleEndian.Uint32(frame[l.stackTop:]))
	if top < 1 || top > maxStackTop {
		return c, false
	}
	call, own, err := p.call(frame)
	if err != nil || own {
		return c, false
	}
	c.call = call
	c.awaits, err = p.read.Word(at + l.coroutine + l.locals + 8*uint64(top-1))
	return c, err == nil
}
