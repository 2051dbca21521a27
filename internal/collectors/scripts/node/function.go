package node

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

// A function is what is known of a function, however many objects were made of it.
type function struct {
	name, file string
	line       int
	head       []byte // of its SharedFunctionInfo, to notice that another object has taken its place
	checked    time.Time
	code       uint64 // that inlined was read from
	inlined    string // the name of an anonymous function, after those compiled into it
}

// label returns the function's name; "" for an anonymous one of which no more is known.
func (f *function) label() string {
	if f.name == "" {
		return f.inlined
	}
	return f.name
}

// A script is what is known of a source file.
type script struct {
	head [2]uint64 // name and source, to notice that another object has taken its place
	name string
	ends []int // positions of the ends of its lines
}

const (
	// maxShared bounds the functions that are kept: a program runs some thousands.
	maxShared = 1 << 14
	// maxScripts bounds the files, and maxText what is read of their source for the ends of the lines, in characters.
	maxScripts, maxText = 1 << 10, 32 << 20
	// maxLines bounds the lines of a file.
	maxLines = 1 << 18
)

// headSize is how much is read of a JSFunction: all up to the last field that is read of it.
func (l *layout) headSize() int { return int(max(l.shared, l.inlining.code())) + wordSize }

// functionOf returns the function whose JSFunction begins with these bytes.
func (p *Process) functionOf(head []byte) (*function, error) {
	l := &p.layout
	typ, err := p.heap.typeOf(binary.LittleEndian.Uint64(head))
	if err != nil {
		return nil, err
	}
	if typ < l.firstFunction || typ > l.lastFunction {
		return nil, errObject
	}
	f, err := p.sharedOf(binary.LittleEndian.Uint64(head[l.shared:]))
	if at := l.inlining.code(); err == nil && at != 0 {
		p.nameInlined(f, binary.LittleEndian.Uint64(head[at:]))
	}
	return f, err
}

// sharedOf returns the function of a SharedFunctionInfo.
func (p *Process) sharedOf(shared uint64) (*function, error) {
	if f := p.shared[shared]; f != nil && p.isStill(f, shared) {
		return f, nil
	}
	f, err := p.readShared(shared)
	if err == nil {
		if len(p.shared) >= maxShared {
			clear(p.shared)
		}
		p.shared[shared] = f
	}
	return f, err
}

// keep is how long a function is trusted to be at its address: the collector moves few functions, since those that run
// for a while are old.
const keep = 2 * time.Second

// isStill reports whether a function is still at its address, which it checks from time to time.
func (p *Process) isStill(f *function, word uint64) bool {
	if p.now.Sub(f.checked) < keep {
		return true
	}
	f.checked = p.now
	head := make([]byte, len(f.head))
	return p.heap.read(word&^3, head) == nil && bytes.Equal(head, f.head)
}

// readShared reads the SharedFunctionInfo of a function (src/objects/shared-function-info.tq).
func (p *Process) readShared(word uint64) (*function, error) {
	l := &p.layout
	at, typ, err := p.heap.object(word)
	if err != nil {
		return nil, err
	}
	if typ != l.sharedType {
		return nil, errObject
	}
	f, position := &function{head: make([]byte, max(l.name, l.script)+wordSize), checked: p.now}, -1
	if err := p.heap.read(at, f.head); err != nil {
		return nil, err
	}
	name := binary.LittleEndian.Uint64(f.head[l.name:])
	if scope, typ, err := p.heap.object(name); err == nil && typ == l.scopeType {
		f.name, position = p.scope(scope)
	} else if err == nil {
		f.name, _ = p.heap.name(name) // this is a function of V8's own
	}
	if s := p.scriptAt(at + l.script); s != nil {
		f.file = s.name
		if position >= 0 {
			f.line = s.line(position)
		}
	}
	return f, nil
}

// maxScope bounds the words of a ScopeInfo before the name and the position, and the words of these: the longest has
// seven (src/objects/scope-info.tq).
const maxScope = 10

// maxLocals bounds the variables of a function that others see.
const maxLocals = 1 << 16

// maxInlined is the number of variables from which on a ScopeInfo has their names in a table
// (kScopeInfoMaxInlinedLocalNamesSize in src/objects/scope-info.h).
const maxInlined = 75

// scope reads a function's name, and where its source begins, from its ScopeInfo; the position is -1 if it is not
// known. Behind the variables may come a number, the name and a number, or the name that V8 worked out, and up to V8
// 12.7 the positions of the beginning and the end. From then on these two are before the variables, at the third word.
// Flags say which of them there are, but each version has the flags in other places, so the words are recognized by
// their types.
func (p *Process) scope(at uint64) (name string, position int) {
	l := &p.layout
	head := make([]byte, (l.variables+1)*wordSize)
	body := at + wordSize // after the map
	if l.locals < 0 || l.locals >= l.variables || l.variables > maxScope || p.heap.read(body, head) != nil {
		return "", -1
	}
	position = -1
	const begin = 3
	if w := wordAt(head, begin); l.variables > begin+1 && isSmall(w) {
		position = small(w)
	}
	locals := small(wordAt(head, l.locals))
	names := locals
	if locals >= maxInlined {
		names = 1
	}
	rest := make([]byte, maxScope*wordSize)
	if locals < 0 || locals > maxLocals || p.heap.read(body+uint64(l.variables+names+locals)*wordSize, rest) != nil {
		return "", position
	}
	name, found := p.scopeEnd(rest)
	if position < 0 {
		position = found
	}
	return name, position
}

// scopeEnd reads what may come behind the variables: the first string, and the last two numbers side by side before or
// after it.
func (p *Process) scopeEnd(rest []byte) (name string, position int) {
	position = -1
	var numbers []int // side by side
	for i := range maxScope {
		w := wordAt(rest, i)
		if isSmall(w) {
			numbers = append(numbers, small(w))
			continue
		}
		if len(numbers) >= 2 {
			return name, numbers[len(numbers)-2]
		}
		numbers = nil
		if text, err := p.heap.name(w); err == nil && name == "" {
			name = text
		}
	}
	return name, position
}

func wordAt(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i*wordSize:]) }

// scriptAt returns the script that a field leads to; nil if it is not one.
func (p *Process) scriptAt(field uint64) *script {
	l := &p.layout
	at, typ, err := p.heap.field(field)
	if err != nil || typ != l.scriptType {
		return nil
	}
	name, err1 := p.heap.read.Word(at + l.scriptName)
	source, err2 := p.heap.read.Word(at + l.source)
	if err1 != nil || err2 != nil {
		return nil
	}
	if s := p.scripts[at]; s != nil && s.head == [2]uint64{name, source} {
		return s
	}
	s := &script{head: [2]uint64{name, source}}
	s.name, _ = p.heap.name(name)
	s.name = strings.TrimPrefix(s.name, "file://") // as in the name of a module
	s.ends = p.lineEnds(at, source)
	if len(p.scripts) >= maxScripts {
		clear(p.scripts)
	}
	p.scripts[at] = s
	return s
}

// lineEnds returns where lines end: V8 keeps that once it was asked for; otherwise the source is searched.
func (p *Process) lineEnds(at, source uint64) []int {
	l := &p.layout
	if array, typ, err := p.heap.field(at + l.lineEnds); err == nil && typ == l.arrayType {
		if ends := p.numbers(array); len(ends) > 0 {
			return ends
		}
	}
	var ends []int
	position, parts := 0, maxParts
	_ = p.heap.text(source, &parts, func(part []uint16) bool { // as far as it can be read
		for i, c := range part {
			if c == '\n' {
				ends = append(ends, position+i)
			}
		}
		position += len(part)
		p.text += len(part)
		return len(ends) < maxLines && p.text < maxText
	})
	return ends
}

// numbers reads an array of small integers.
func (p *Process) numbers(array uint64) []int {
	h := &p.heap
	length, err := h.read.Word(array + h.layout.arrayLength)
	if err != nil || !isSmall(length) || small(length) <= 0 || small(length) > maxLines {
		return nil
	}
	raw := make([]byte, small(length)*wordSize)
	if h.read(array+h.layout.arrayData, raw) != nil {
		return nil
	}
	out := make([]int, 0, len(raw)/wordSize)
	for i := 0; i < len(raw); i += wordSize {
		out = append(out, small(binary.LittleEndian.Uint64(raw[i:])))
	}
	if !slices.IsSorted(out) {
		return nil
	}
	return out
}

// line returns the line of a position, from 1; 0 if the ends are not known.
func (s *script) line(position int) int {
	if len(s.ends) == 0 {
		return 0
	}
	i, _ := slices.BinarySearch(s.ends, position)
	return i + 1
}
