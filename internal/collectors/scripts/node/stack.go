package node

import (
	"encoding/binary"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/kernel/perfevent"
)

// A Call is one function on the stack of a thread.
type Call struct {
	Function string // without its class; "" for an anonymous one, "(anonymous)+a+b" if a and b are compiled into it
	File     string // as V8 has it, without file://; "" for a function of V8's own
	Line     int    // the line that it begins at; 0 if unknown
}

// RegExp is the call of a compiled regular expression.
var RegExp = Call{Function: "RegExp"}

// maxFrames bounds a stack: 32 KiB hold some 250 frames of functions.
const maxFrames = 512

// frames are the frames of one stack that run something of a script.
type frames struct {
	words     []uint64 // of their functions, the innermost first; 0 for a regular expression
	addresses []uint64 // of the functions, each once
	index     map[uint64]int
	heads     []byte
}

// Stack returns the calls of a thread, the innermost first; none if it runs no function of a script.
//
// Where the frame pointer register leads to no frames, it holds something else, as in code of other languages that
// uses it for other purposes. That code saved the caller's frame pointer on the stack: it is the innermost word that
// leads to a function.
func (p *Process) Stack(s perfevent.StackSample) []Call {
	p.now = time.Now()
	d := dump{s.SP, s.Stack}
	calls, frames := p.callsFrom(d, s.FP)
	if frames >= trusted {
		return calls
	}
	tries := maxTries
	for i := 0; i+wordSize <= len(d.bytes) && len(calls) == 0 && tries > 0; i += wordSize {
		fp := binary.LittleEndian.Uint64(d.bytes[i:])
		if fp > d.from+uint64(i) && d.isFrame(fp) {
			calls, _ = p.callsFrom(d, fp)
			tries--
		}
	}
	return calls
}

const (
	// trusted is how many frames the register must lead to. If it does, and none is a function's, then no function
	// runs: words that lead to functions are left over from earlier calls.
	trusted = 3
	// maxTries bounds the words that are tried. Each takes some 5 µs.
	maxTries = 16
)

// callsFrom returns the calls of a frame and of those that it leads to, and the number of these frames.
func (p *Process) callsFrom(d dump, fp uint64) (calls []Call, frames int) {
	frames = p.walk(d, fp)
	known := p.functions()
	for _, word := range p.seen.words {
		if word == 0 {
			calls = append(calls, RegExp)
		} else if f := known[word]; f != nil {
			calls = append(calls, Call{Function: f.label(), File: f.file, Line: f.line})
		}
	}
	return calls, frames
}

// walk goes from frame to frame. A function has its context and itself beneath the frame pointer, and other code of
// V8 the type of its frame (src/execution/frame-constants.h).
func (p *Process) walk(d dump, fp uint64) int {
	l := &p.layout
	p.seen.words = p.seen.words[:0]
	for n := range maxFrames {
		if !d.isFrame(fp) {
			return n
		}
		context, ok1 := d.at(fp, l.context)
		function, ok2 := d.at(fp, l.function)
		switch {
		case ok1 && l.regexp != 0 && context == uint64(l.regexp)<<1:
			p.seen.words = append(p.seen.words, 0)
		case ok1 && ok2 && isObject(context) && isObject(function):
			p.seen.words = append(p.seen.words, function)
		}
		next := d.word(fp)
		if next <= fp {
			return n + 1
		}
		fp = next
	}
	return maxFrames
}

// functions reads the functions of the frames that were seen, by their words.
func (p *Process) functions() map[uint64]*function {
	seen := &p.seen
	seen.addresses, seen.index = seen.addresses[:0], map[uint64]int{}
	for _, word := range seen.words {
		if _, known := seen.index[word]; word != 0 && !known {
			seen.index[word] = len(seen.addresses)
			seen.addresses = append(seen.addresses, word&^3)
		}
	}
	out := map[uint64]*function{}
	if len(seen.addresses) == 0 {
		return out
	}
	size := p.layout.headSize()
	if need := len(seen.addresses) * size; len(seen.heads) < need {
		seen.heads = make([]byte, need)
	}
	for i := 0; i < len(seen.addresses); i++ { // one that leads nowhere is left out
		n := p.heap.read.Each(seen.addresses[i:], size, seen.heads[i*size:])
		if i += n; i < len(seen.addresses) {
			clear(seen.heads[i*size : (i+1)*size])
		}
	}
	for word, i := range seen.index {
		if f, err := p.functionOf(seen.heads[i*size : (i+1)*size]); err == nil {
			out[word] = f
		}
	}
	return out
}

// A dump is the content of a stack, from an address on.
type dump struct {
	from  uint64
	bytes []byte
}

// at reads the word at an offset from an address.
func (d dump) at(address uint64, offset int) (uint64, bool) {
	i := address + uint64(offset) - d.from
	if i > uint64(len(d.bytes)) || uint64(len(d.bytes))-i < wordSize {
		return 0, false
	}
	return binary.LittleEndian.Uint64(d.bytes[i:]), true
}

func (d dump) word(address uint64) uint64 {
	w, _ := d.at(address, 0)
	return w
}

// isFrame reports whether an address may be a frame pointer: the caller's and the return address are there.
func (d dump) isFrame(fp uint64) bool {
	_, ok := d.at(fp, wordSize)
	return ok && fp >= d.from && fp%wordSize == 0
}
