package node

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

// An Async is an asynchronous function that stands at an await, with the functions that await it.
type Async struct {
	Address uint64 // of the innermost
	Calls   []Call // the innermost first
}

const (
	// maxAwaits bounds a chain of functions that await each other, and maxReactions the reactions to one promise.
	maxAwaits, maxReactions = 64, 4
	// maxMaps bounds the maps of maps: there is one, and one for each realm (vm.createContext).
	maxMaps = 64
)

// Offsets that V8 does not export, in bytes. All are the same in V8 10 to 13.
const (
	// JSGeneratorObject and JSAsyncFunctionObject (src/objects/js-generator.tq), behind map, properties and elements.
	asyncFunction, asyncContinuation, asyncPromise, asyncSize = 24, 64, 80, 88
	// JSPromise (src/objects/js-promise.tq).
	promiseReactions = 24
	// PromiseReaction (src/objects/promise.tq).
	reactionNext, reactionHandler = 8, 24
	// The context of the code that goes on after an await: its third slot has the function that awaits (AwaitContext
	// in src/builtins/builtins-async-gen.cc; EXTENSION_INDEX in src/objects/contexts.h).
	awaitSlot = 32
)

// suspended is a function that stands at an await.
type suspended struct {
	call  Call
	outer uint64 // address of the function that awaits it; 0 if none does
}

// KnowsAsync reports whether the suspended functions can be found. For that it looks for their map, which V8 makes
// when it starts.
func (p *Process) KnowsAsync() bool {
	l := &p.layout
	known := l.asyncType != 0 && l.mapType != 0 && l.promiseType != 0 && l.reactionType != 0 && l.closure != 0
	return known && p.findAsyncMaps() == nil && len(p.asyncMaps) > 0
}

// Async finds the asynchronous functions that stand at an await, by a search of the memory for their map. No list has
// them: only whoever ends an await knows what goes on after it. Dead functions that the collector has not freed yet do
// not stand at an await: a function that has ended says so. whole is false if there was more memory than is searched.
func (p *Process) Async() (list []Async, whole bool, err error) {
	p.now = time.Now()
	found, whole, err := memory.Search(p.heap.read, p.dir, p.asyncMaps, 0, p.suspended)
	if err != nil {
		return nil, false, err
	}
	awaits := map[uint64]bool{}
	for _, f := range found {
		awaits[f.outer] = true
	}
	for at := range found {
		if !awaits[at] {
			list = append(list, Async{at, chainOf(found, at)})
		}
	}
	return list, whole, nil
}

// chainOf follows who awaits whom, from the innermost on.
func chainOf(found map[uint64]suspended, at uint64) (calls []Call) {
	for range maxAwaits {
		f, ok := found[at]
		if !ok {
			break
		}
		calls = append(calls, f.call)
		at = f.outer
	}
	return calls
}

// findAsyncMaps finds the maps through the map of maps, which begins with itself.
func (p *Process) findAsyncMaps() error {
	var metas []uint64
	err := p.heap.read.Words(p.dir, func(at, word uint64) {
		if word == at+1 && len(metas) < maxMaps && p.isMap(word, p.layout.mapType) {
			metas = append(metas, word)
		}
	})
	if err != nil {
		return err
	}
	return p.heap.read.Words(p.dir, func(at, word uint64) {
		if slices.Contains(metas, word) && len(p.asyncMaps) < maxMaps && p.isMap(at+1, p.layout.asyncType) {
			p.asyncMaps = append(p.asyncMaps, at+1)
		}
	})
}

// isMap reports whether a word is the map of objects of a type.
func (p *Process) isMap(word uint64, typ uint16) bool {
	var b [2]byte
	return p.heap.read(word&^3+p.heap.layout.instanceType, b[:]) == nil && binary.LittleEndian.Uint16(b[:]) == typ
}

// suspended reads a function; ok is false if it is not one, or does not stand at an await.
func (p *Process) suspended(at uint64) (f suspended, ok bool) {
	var b [asyncSize]byte
	if p.heap.read(at, b[:]) != nil {
		return f, false
	}
	// A function that runs, or has ended, has a negative number here (kGeneratorExecuting in
	// src/objects/js-generator.h).
	if c := wordAt(b[:], asyncContinuation/wordSize); !isSmall(c) || small(c) < 0 {
		return f, false
	}
	word := wordAt(b[:], asyncFunction/wordSize)
	head := make([]byte, p.layout.headSize())
	if !isObject(word) || p.heap.read(word&^3, head) != nil {
		return f, false
	}
	of, err := p.functionOf(head)
	if err != nil {
		return f, false
	}
	f.call = Call{Function: of.name, File: of.file, Line: of.line}
	f.outer = p.awaiting(wordAt(b[:], asyncPromise/wordSize))
	return f, true
}

// awaiting returns the function that awaits a promise, 0 if none does.
func (p *Process) awaiting(promise uint64) uint64 {
	at, typ, err := p.heap.object(promise)
	if err != nil || typ != p.layout.promiseType {
		return 0
	}
	at += promiseReactions
	for range maxReactions {
		reaction, typ, err := p.heap.field(at)
		if err != nil || typ != p.layout.reactionType {
			return 0
		}
		if f := p.awaitedBy(reaction); f != 0 {
			return f
		}
		at = reaction + reactionNext
	}
	return 0
}

// awaitedBy returns the function that goes on with a reaction, 0 if something else does.
func (p *Process) awaitedBy(reaction uint64) uint64 {
	l := &p.layout
	handler, typ, err := p.heap.field(reaction + reactionHandler)
	if err != nil || typ < l.firstFunction || typ > l.lastFunction {
		return 0
	}
	context, err := p.heap.read.Word(handler + l.closure)
	if err != nil || !isObject(context) {
		return 0
	}
	f, typ, err := p.heap.field(context&^3 + awaitSlot)
	if err != nil || typ != l.asyncType {
		return 0
	}
	return f
}
