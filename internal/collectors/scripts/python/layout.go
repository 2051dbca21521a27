package python

import (
	"encoding/binary"
	"fmt"
)

// A Version is the version of a CPython interpreter. It determines how the interpreter's memory is laid out.
type Version struct{ Major, Minor int }

// String formats the version as "3.11".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// A lineTable is the form in which a code object says which line an instruction belongs to.
type lineTable uint8

const (
	lnotab     lineTable = iota // pairs of steps, to 3.9 (Objects/lnotab_notes.txt)
	linePairs                   // pairs, some without a line: 3.10 (the same file there)
	lineCounts                  // entries of several bytes, from 3.11 (Objects/locations.md)
)

// A layout has the offsets, in bytes, of the fields that are read of CPython's structures, on a machine of 64 bits.
type layout struct {
	interpreters uint64 // in _PyRuntimeState: interpreters.head

	nextInterpreter, threads uint64 // in PyInterpreterState

	// In PyThreadState. Before 3.11 there is only the id of pthread_self(3); nativeID is 0 then.
	nextThread, threadID, nativeID uint64
	// The innermost frame, or from 3.11 to 3.12 a _PyCFrame, which has it at inCFrame.
	frame    uint64
	isCFrame bool
	inCFrame uint64

	// In PyFrameObject to 3.10, in _PyInterpreterFrame from 3.11.
	previous, code, instruction, owner uint64
	// isPointer: the instruction is a pointer, not a number. hasOwner: there is an owner, which tells the
	// interpreter's own frames apart.
	isPointer, hasOwner bool

	// In PyCodeObject. qualName is 0 before 3.11; body is where its instructions begin.
	name, qualName, file, firstLine, lines, body uint64
	table                                        lineTable

	// In PyASCIIObject.
	length, state, ascii, compact uint64

	objectType, bytesSize, bytesData uint64

	coroutine coroutineLayout
	greenlet  greenletLayout
}

// A coroutineLayout says where a coroutine (PyCoroObject) has its frame, and where the frame has what it awaits: the
// value on top of its stack.
type coroutineLayout struct {
	frame uint64 // in the object: the frame itself, or its address
	away  bool   // it is the address

	// The state of the frame, in the object or, where the frame is away, in the frame. In the states from first to
	// last the coroutine stands at an await. Before 3.10 there is no state, and the offset is 0.
	state       uint64
	first, last int8

	// In the frame: the address behind the top of its stack, or how many values are on it. The values begin at stack
	// in the frame or, where the frame is away, at the address that is there.
	top       uint64
	isAddress bool
	stack     uint64
	above     uint64 // how many values lie above what is awaited
}

// inlineCoroutine returns the layout of 3.11 to 3.13, whose coroutines contain their frame.
func inlineCoroutine(frame uint64) coroutineLayout {
	return coroutineLayout{frame: frame, state: frame - 5, first: -1, last: -1, top: 64, stack: 72}
}

// layoutOf returns the structures of the versions that do not describe themselves. They are the same in all releases
// of a version, and on amd64 and arm64: offsetof() of the headers of 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1
// (Include/internal).
func layoutOf(v Version) (layout, bool) {
	if v.Major != 3 {
		return layout{}, false
	}
	l := layout{
		threads: 8, nextThread: 8, threadID: 176, frame: 24, interpreters: 32,
		previous: 24, code: 32, instruction: 104,
		name: 112, file: 104, firstLine: 40, lines: 120,
		length: 16, state: 32, ascii: 48, compact: 72,
		objectType: 8, bytesSize: 16, bytesData: 32,
	}
	switch v.Minor {
	case 8, 9:
		l.coroutine = coroutineLayout{frame: 16, away: true, top: 72, isAddress: true}
		l.greenlet = greenletLayout{runs: 116, value: 1} // f_executing
	case 10:
		l.instruction, l.table = 96, linePairs
		l.coroutine = coroutineLayout{frame: 16, away: true, state: 108, first: -1, last: -1, top: 80, stack: 64}
		l.greenlet = greenletLayout{runs: 108, value: 0} // f_state is FRAME_EXECUTING
	case 11:
		l.interpreters, l.threads, l.threadID, l.nativeID = 40, 16, 152, 160
		l.frame, l.isCFrame, l.inCFrame = 56, true, 8
		l.previous, l.code, l.instruction, l.isPointer = 48, 32, 56, true
		l.name, l.qualName, l.file, l.firstLine, l.lines, l.body, l.table = 120, 128, 112, 72, 136, 184, lineCounts
		l.coroutine, l.greenlet = inlineCoroutine(80), greenletLayout{frame: 24, owner: 69}
	case 12:
		l.interpreters, l.threads, l.threadID, l.nativeID = 40, 72, 136, 144
		l.frame, l.isCFrame, l.inCFrame = 56, true, 0
		l.previous, l.code, l.instruction, l.isPointer = 8, 0, 56, true
		l.owner, l.hasOwner = 70, true
		l.name, l.qualName, l.file, l.firstLine, l.lines, l.body, l.table = 120, 128, 112, 68, 136, 192, lineCounts
		l.ascii, l.compact = 40, 56
		l.coroutine, l.greenlet = inlineCoroutine(72), greenletLayout{frame: 24, owner: 70}
	default:
		return layout{}, false
	}
	return l, true
}

// cookie begins the description that 3.13 and later keep of themselves, at _PyRuntime.
const cookie = "xdebugpy"

// described is how many bytes of it are read: they hold all of the structures below.
const described = 8 * 112

// describedLayout reads the description (Include/internal/pycore_debug_offsets.h). Each minor version lays it out
// anew; the layouts of 3.13 to 3.15 are known.
func describedLayout(text []byte) (layout, Version, error) {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(text[8*i:]) }
	number := word(1) // PY_VERSION_HEX
	v := Version{int(number >> 24 & 0xff), int(number >> 16 & 0xff)}
	interpreter, thread, frame, code, object := 6, 19, 28, 34, 44
	ids, types, sets := 5, 4, 0 // ids: where a thread's ids are; types, sets: words of types, and of a set
	switch {
	case word(2) != 0:
		return layout{}, v, fmt.Errorf("CPython %s without a global lock is not read", v)
	case v == Version{3, 13}:
	case v == Version{3, 14}:
		// threads_main, and two generations, in the interpreter; two in the frame; one in the code; a set before dict.
		thread, frame, code, object, sets = 22, 31, 39, 50, 4
	case v == Version{3, 15}:
		// Three behind the thread's frame, four at its end and one behind it; two in the type, and two behind it.
		thread, frame, code, object, ids, types, sets = 22, 39, 47, 58, 8, 8, 4
	default:
		return layout{}, v, fmt.Errorf("CPython %s is not known: 3.8 to 3.15 are", v)
	}
	bytesAt := object + 2 + types + 3 + 3 + sets + 3 + 2 + 3 // tuple, list, set, dict, float, long
	l := layout{
		interpreters: word(5), nextInterpreter: word(interpreter + 2), threads: word(interpreter + 3),
		nextThread: word(thread + 2), frame: word(thread + 4), threadID: word(thread + ids),
		nativeID: word(thread + ids + 1),
		previous: word(frame + 1), code: word(frame + 2), instruction: word(frame + 3), owner: word(frame + 5),
		isPointer: true, hasOwner: true,
		file: word(code + 1), name: word(code + 2), qualName: word(code + 3), lines: word(code + 4),
		firstLine: word(code + 5), body: word(code + 9), table: lineCounts,
		objectType: word(object + 1), bytesSize: word(bytesAt + 1), bytesData: word(bytesAt + 2),
		state: word(bytesAt + 4), length: word(bytesAt + 5), ascii: word(bytesAt + 6),
	}
	l.greenlet = greenletLayout{frame: 24, owner: l.owner} // frame is in no description: offsetof() of 3.13 to 3.15
	behind := bytesAt + 3                                  // the bytes: strings and the collector, and then generators
	switch v.Minor {
	case 13: // not in the description: offsetof() of 3.13.0
		l.coroutine = inlineCoroutine(72)
		l.coroutine.first = -2
	case 14:
		l.coroutine = describedCoroutine(word, frame, behind+4+2)
		l.coroutine.first, l.coroutine.last = -2, -1
	case 15:
		l.coroutine = describedCoroutine(word, frame, behind+5+5)
		l.coroutine.first, l.coroutine.last = 1, 3
		l.coroutine.above = 1 // the index of an iterator that is not Python's own (Python/bytecodes.c: SEND)
	}
	l.compact = l.ascii + 16 // PyCompactUnicodeObject has a length and a pointer more
	return l, v, l.check()
}

// describedCoroutine reads where a coroutine has what it awaits, from the description's words of frames and
// generators.
func describedCoroutine(word func(int) uint64, frame, generator int) coroutineLayout {
	return coroutineLayout{
		frame: word(generator + 2), state: word(generator + 3), top: word(frame + 6), isAddress: true,
	}
}

// maxOffset bounds the offsets in a description: the largest is that of the threads in PyInterpreterState, some 10
// KiB.
const maxOffset = 1 << 20

func (l layout) check() error {
	for _, n := range []uint64{
		l.interpreters, l.nextInterpreter, l.threads, l.nextThread, l.threadID, l.nativeID, l.frame, l.name, l.ascii,
		l.bytesData, l.length, l.state,
	} {
		if n > maxOffset {
			return fmt.Errorf("the interpreter's description of itself is damaged")
		}
	}
	for _, n := range []uint64{l.previous, l.code, l.instruction, l.owner} {
		if n > frameSize-8 {
			return fmt.Errorf("the interpreter's description of its frames is damaged")
		}
	}
	if c := l.coroutine; c.frame > maxInline || c.state >= coroutineSize || c.top > frameSize-8 {
		return fmt.Errorf("the interpreter's description of its coroutines is damaged")
	}
	for _, n := range []uint64{l.name, l.qualName, l.file, l.firstLine, l.lines, l.objectType} {
		if n > codeSize-8 {
			return fmt.Errorf("the interpreter's description of its code is damaged")
		}
	}
	return nil
}
