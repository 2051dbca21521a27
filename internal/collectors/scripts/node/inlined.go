package node

import "strings"

// V8 compiles small functions into the functions that call them (src/compiler/js-inlining.cc), and then their frames
// are missing. The compiled code keeps what it would need to make these frames again, and begins with the list of the
// functions (DeoptimizationData in src/objects/code.h and deoptimization-data.h). An anonymous function, such as a
// server's handler, is named after them: otherwise a reader learns only its line. This was tried with V8 11.3 and 12.4
// (Node.js 20 and 22). In V8 10.2 nothing is found, and 13.6 does not say where a function has its code.

const (
	// maxInlinedFunctions bounds the functions of one code; V8 puts in some 30 at most
	// (max_inlined_bytecode_size_cumulative).
	maxInlinedFunctions = 64
	// namedInlined bounds those in a name.
	namedInlined = 3
)

// inlining says where compiled code has the list of these functions. It is zero if V8 does not say.
type inlining struct {
	own                 uint64 // the code in JSFunction, since V8 12
	feedback, prototype uint64 // before, the code is between these (src/objects/js-function.tq)
	data                uint64 // in Code, until V8 11
	count, literals     int    // in that data, by index
	codeType, trusted   uint16 // the type of code, and since V8 12 that of the data
}

// code returns where JSFunction has its code; 0 if that is not known.
func (i *inlining) code() uint64 {
	switch {
	case i.codeType == 0 || i.literals == 0:
		return 0
	case i.own != 0:
		return i.own
	case i.data != 0 && i.prototype == i.feedback+2*wordSize:
		return i.feedback + wordSize
	}
	return 0
}

// dataAt returns where Code has that data. Since V8 12 it is the first field (CODE_DATA_FIELDS in src/objects/code.h),
// which V8 does not say.
func (i *inlining) dataAt() uint64 {
	if i.data == 0 {
		return wordSize
	}
	return i.data
}

// nameInlined names an anonymous function after those that V8 compiled into it. The name stays if another object of the
// function has no compiled code yet.
func (p *Process) nameInlined(f *function, code uint64) {
	if f.name != "" || f.code == code {
		return
	}
	f.code = code
	var names []string
	for _, g := range p.inlinedIn(code) {
		if g.name != "" && g.file != "" && !strings.HasPrefix(g.file, "node:") && len(names) < namedInlined {
			names = append(names, g.name)
		}
	}
	if len(names) > 0 {
		f.inlined = "(anonymous)+" + strings.Join(names, "+")
	}
}

// inlinedIn returns the functions that are compiled into a code; none if it is not V8's optimized code.
func (p *Process) inlinedIn(code uint64) (out []*function) {
	l := &p.layout.inlining
	at, typ, err := p.heap.object(code)
	if err != nil || typ != l.codeType {
		return nil
	}
	data, typ, err := p.heap.field(at + l.dataAt())
	if err != nil || typ != p.layout.arrayType && typ != l.trusted {
		return nil
	}
	count, err := p.heap.read.Word(p.element(data, l.count))
	if err != nil || !isSmall(count) || small(count) <= 0 || small(count) > maxInlinedFunctions {
		return nil
	}
	literals, _, err := p.heap.field(p.element(data, l.literals)) // each of them is checked below
	if err != nil {
		return nil
	}
	for i := range small(count) {
		word, err := p.heap.read.Word(p.element(literals, i))
		if err != nil {
			return out
		}
		if f, err := p.sharedOf(word &^ weak); err == nil {
			out = append(out, f)
		}
	}
	return out
}

// weak is the bit by which a reference that the collector does not follow differs from one that it does
// (kWeakHeapObjectTag in include/v8-internal.h).
const weak = 2

// element returns the address of an element of an array.
func (p *Process) element(array uint64, i int) uint64 {
	return array + p.heap.layout.arrayData + uint64(i)*wordSize
}
