package ruby

import (
	"strings"
)

// A Call is a method that is running.
type Call struct {
	Function string // total, with its class from Ruby 3.4 on; Array#include?; empty for an unnamed one of Ruby's own
	File     string // empty for Ruby's own methods
	Line     int    // the line that runs; 0 if unknown
	Core     bool   // it is one of Ruby's own, in C or not
}

const (
	// maxDepth bounds a stack; the outermost calls are left out. A page of a web framework takes some 200.
	maxDepth = 1024
	// maxText bounds a name, in bytes, maxKnown the methods that are kept, and maxKnownLines the lines of all of them.
	maxText, maxKnown, maxKnownLines = 1 << 10, 1 << 14, 1 << 16
	// maxStack bounds the stack of the virtual machine, in words: a thread has 128 Ki (RUBY_THREAD_VM_STACK_SIZE in
	// vm_core.h), and some millions if more was asked for.
	maxStack = 1 << 26
)

// Offsets in a frame (rb_control_frame_t in vm_core.h).
const (
	frameCounter      = 0
	frameInstructions = 16
	frameEnvironment  = 32
)

// Kinds of frames, as they stand at the environment of one (VM_FRAME_MAGIC_CFUNC in vm_core.h).
const (
	kindMask = 0x7fff0001
	kindOfC  = 0x55550001
)

// The type of an object is in the lowest bits of its flags (include/ruby/internal/value_type.h). Objects of the
// virtual machine's own have their type in other bits (imemo_type in internal/imemo.h).
const (
	typeMask   = 0x1f
	typeString = 0x05
	typeArray  = 0x07
	typeOwn    = 0x1a

	ownShift, ownMask = 12, 0xf
	ownMethod         = 6
	ownInstructions   = 7

	// isElsewhere is set if a string's text is not in the object, and isInside if an array's items are
	// (RSTRING_NOEMBED, RARRAY_EMBED_FLAG).
	isElsewhere, isInside = 1 << 13, 1 << 13
)

func isOwn(flags uint64, kind uint64) bool {
	return flags&typeMask == typeOwn && flags>>ownShift&ownMask == kind
}

// Stack returns the calls of a thread, the innermost first; none if it runs no script. The error is [ErrChanged].
func (p *Process) Stack(t Thread) ([]Call, error) {
	var context [3 * word]byte // stack, its size and the innermost frame (rb_execution_context_struct in vm_core.h)
	at, err := p.read.Word(t.address + p.layout.thread)
	if err != nil || p.read(at, context[:]) != nil {
		return nil, ErrChanged
	}
	stack, size, frame := word64(context[:], 0), word64(context[:], word), word64(context[:], 2*word)
	if stack == 0 {
		return nil, nil
	}
	if size > maxStack || frame < stack || frame > stack+size*word {
		return nil, ErrChanged
	}
	n := min((stack+size*word-frame)/p.layout.frame, maxDepth)
	frames := make([]byte, n*p.layout.frame)
	if p.read(frame, frames) != nil {
		return nil, ErrChanged
	}
	var calls []Call
	for ; len(frames) > 0; frames = frames[p.layout.frame:] {
		call, ok, err := p.call(frames)
		if err != nil {
			return nil, ErrChanged
		}
		if ok {
			calls = append(calls, call)
		}
	}
	return calls, nil
}

// call returns what a frame runs; ok is false if it runs no method, as the outermost frame.
func (p *Process) call(frame []byte) (c Call, ok bool, err error) {
	counter, environment := word64(frame, frameCounter), word64(frame, frameEnvironment)
	if counter == 0 {
		kind, err := p.read.Word(environment)
		if err != nil || kind&kindMask != kindOfC {
			return c, false, err
		}
		return Call{Function: p.coreMethod(environment), Core: true}, true, nil
	}
	at := word64(frame, frameInstructions)
	var head [3 * word]byte // flags, wrapper, body (rb_iseq_struct in vm_core.h)
	if err := p.read(at, head[:]); err != nil {
		return c, false, err
	}
	if !isOwn(word64(head[:], 0), ownInstructions) {
		return c, false, ErrChanged
	}
	m, err := p.method(word64(head[:], 2*word))
	if err != nil {
		return c, false, err
	}
	c = Call{Function: m.name, File: m.file, Core: isCore(m.file)}
	if c.Core {
		c.File = ""
		return c, true, nil
	}
	c.Line = p.line(m, counter)
	// The frame that leads to the script has the script's name, and no line.
	return c, c.Line > 0 || c.Function != "<main>", nil
}

// nameOf returns the name of a method without its class.
func nameOf(function string) string {
	return function[strings.LastIndexAny(function, "#.")+1:]
}

// key tells methods apart: the memory of a method that is gone is used again.
type key struct{ body, path, label uint64 }

// A method is what is known of a method.
type method struct {
	name, file string
	code       uint64 // address of its instructions
	lines      uint64 // address of its lines, or the only one
	count      uint32 // of its lines
	places     uint64 // address of the places of its lines
	known      map[uint64]int
}

// Offsets in a body (rb_iseq_constant_body and rb_iseq_location_struct in vm_core.h), and in its lines from their
// beginning (insns_info): the lines, their places before they are packed, their number, and their packed places.
const (
	bodyCode  = 8
	bodyPath  = 64
	bodyLabel = 80
	bodySize  = 160

	lineCount  = 16
	linePlaces = 24
)

// method returns what the body of a method says.
func (p *Process) method(at uint64) (*method, error) {
	var body [bodySize]byte
	if err := p.read(at, body[:]); err != nil {
		return nil, err
	}
	k := key{at, word64(body[:], bodyPath), word64(body[:], bodyLabel)}
	if m := p.methods[k]; m != nil {
		return m, nil
	}
	label, err := p.text(k.label)
	if err != nil {
		return nil, err
	}
	file, err := p.file(k.path)
	if err != nil {
		return nil, err
	}
	lines := body[p.layout.lines:]
	m := &method{
		name: outOf(label), file: file, code: word64(body[:], bodyCode), known: map[uint64]int{},
		lines: word64(lines, 0), count: word32(lines, lineCount), places: word64(lines, linePlaces),
	}
	if len(p.methods) < maxKnown {
		p.methods[k] = m
	}
	return m, nil
}

// outOf returns the method that a part belongs to: "block in total" belongs to total.
func outOf(label string) string {
	if i := strings.LastIndex(label, " in "); i >= 0 {
		return label[i+len(" in "):]
	}
	return label
}

// file reads the name of a file: a text, or an array of the name that was given and of the full one (pathobj in
// vm_core.h).
func (p *Process) file(at uint64) (string, error) {
	flags, err := p.read.Word(at)
	if err != nil {
		return "", err
	}
	if flags&typeMask == typeArray {
		items, n, err := p.array(at)
		if err != nil || n < 2 {
			return "", ErrChanged
		}
		var names [2 * word]byte
		if err := p.read(items, names[:]); err != nil {
			return "", err
		}
		// The full one is nil if there is no file (RUBY_Qnil, which is not the address of a text).
		if text, err := p.text(word64(names[:], word)); err == nil {
			return text, nil
		}
		at = word64(names[:], 0)
	}
	return p.text(at)
}

// array returns where the items of an array are, and how many (RArray in include/ruby/internal/core/rarray.h).
func (p *Process) array(at uint64) (items, n uint64, err error) {
	const size, address, inside, sizeShift, sizeMask = 16, 32, 16, 15, 0x7f
	var head [address + word]byte
	if err := p.read(at, head[:]); err != nil {
		return 0, 0, err
	}
	flags := word64(head[:], 0)
	if flags&typeMask != typeArray {
		return 0, 0, ErrChanged
	}
	if flags&isInside != 0 {
		return at + inside, flags >> sizeShift & sizeMask, nil
	}
	return word64(head[:], address), word64(head[:], size), nil
}

// text reads a string (RString in include/ruby/internal/core/rstring.h).
func (p *Process) text(at uint64) (string, error) {
	const size, address, sizeShift, sizeMask = 16, 24, 14, 0x1f
	var head [address + word]byte
	if at == 0 || at%word != 0 {
		return "", ErrChanged
	}
	if err := p.read(at, head[:]); err != nil {
		return "", err
	}
	flags, n := word64(head[:], 0), word64(head[:], size)
	if flags&typeMask != typeString {
		return "", ErrChanged
	}
	from := word64(head[:], address)
	if flags&isElsewhere == 0 {
		from = at + uint64(p.layout.text)
		if !p.layout.textHasSize {
			n = flags >> sizeShift & sizeMask
		}
	}
	if n == 0 || n > maxText {
		return "", ErrChanged
	}
	text := make([]byte, n)
	if err := p.read(from, text); err != nil {
		return "", err
	}
	return string(text), nil
}
