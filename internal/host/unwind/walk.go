package unwind

import (
	"encoding/binary"
	"runtime"
)

// MaxFrames bounds a stack, as the kernel does (PERF_MAX_STACK_DEPTH in include/uapi/linux/perf_event.h).
const MaxFrames = 127

// Registers are those of a stopped program. LR is the register of the return address, on arm64 only.
type Registers struct {
	PC, SP, FP, LR uint64
	// OnlySP says that FP and LR are not known, as for a thread that waits in a system call.
	OnlySP bool
}

// A Finder returns the table of the file that an address of the process is in, nil for code without a table, and the
// address in the file's own terms. ok is false where there is no code.
type Finder func(pc uint64) (t *Table, address uint64, ok bool)

// walker is the state of a walk.
type walker struct {
	Registers
	find      Finder
	bottom    uint64 // address of stack
	stack     []byte
	exact     bool // PC is no return address
	knowsSP   bool
	knowsFP   bool
	innermost bool
}

// Walk returns the addresses of a stack, the innermost first: where the program was stopped, then return addresses.
// stack holds the memory from SP on. Walk leaves code without a table by its frame pointer. If the innermost code has
// no table, it returns nothing. whole is false if the walk ended before the function that begins the thread, which is
// left out.
func Walk(r Registers, stack []byte, find Finder) (addresses []uint64, whole bool) {
	w := newWalker(r, stack, find)
	for len(addresses) < MaxFrames {
		r, ok := w.rule()
		if !ok {
			return addresses, false
		}
		begins := r != nil && r.ra.how == savedLost
		if !begins || w.innermost {
			addresses = append(addresses, w.PC)
		}
		if begins {
			return addresses, true
		}
		if !w.step(r) {
			return addresses, false
		}
		if w.PC == 0 {
			return addresses, true
		}
	}
	return addresses, true
}

func newWalker(r Registers, stack []byte, find Finder) *walker {
	return &walker{
		Registers: r, find: find, bottom: r.SP, stack: stack,
		exact: true, knowsSP: true, knowsFP: !r.OnlySP, innermost: true,
	}
}

// Beyond walks as [Walk] does, up to the innermost function that no table describes, such as code made at run time,
// and returns its frame pointer. ok is false if there is no such function, or its frame pointer is not known.
func Beyond(r Registers, stack []byte, find Finder) (fp uint64, ok bool) {
	w := newWalker(r, stack, find)
	for range MaxFrames {
		r, ok := w.rule()
		switch {
		case !ok, r != nil && r.ra.how == savedLost:
			return 0, false
		case r == nil:
			return w.FP, w.knowsFP
		}
		if !w.step(r) || w.PC == 0 {
			return 0, false
		}
	}
	return 0, false
}

// rule returns how to leave the function, nil for by its frame pointer. ok is false if there is no code, or code that
// cannot be left.
func (w *walker) rule() (r *rule, ok bool) {
	at := w.PC
	if !w.exact {
		at-- // the call is before it, and may be the last instruction of its function
	}
	t, address, ok := w.find(at)
	if t != nil {
		r = t.rule(address)
	}
	return r, ok && (r != nil || !w.innermost)
}

// step goes from a function to its caller; it returns false if that cannot be found. A PC of 0 is no function's.
func (w *walker) step(r *rule) bool {
	was, leave := w.SP, w.byFramePointer
	if r != nil {
		leave = func() bool { return w.byRule(r) }
	}
	ok := leave()
	if runtime.GOARCH == "arm64" {
		w.PC &^= signBits
	}
	goesUp := w.SP > was || w.innermost || w.PC == 0 // a walk that does not go up has no end
	w.innermost = false
	return ok && goesUp
}

// signBits are the bits of the signature above a signed return address of arm64, with addresses of 48 bits.
const signBits = uint64(0xffff) << 48

// byRule leaves a function as its file says.
func (w *walker) byRule(r *rule) bool {
	frame, ok := w.frame(r)
	if !ok {
		return false
	}
	switch {
	case r.ra.how == savedAt:
		w.PC, ok = w.word(frame + uint64(r.ra.at))
	case r.ra.how == savedNot && w.innermost && !w.OnlySP:
		w.PC = w.LR
	default:
		return false
	}
	switch r.fp.how {
	case savedAt:
		w.FP, w.knowsFP = w.word(frame + uint64(r.fp.at))
	case savedLost, savedUnknown:
		w.knowsFP = false
	}
	w.SP, w.knowsSP, w.exact = frame, true, r.signal
	return ok
}

// frame returns the frame's address.
func (w *walker) frame(r *rule) (at uint64, ok bool) {
	switch {
	case r.base == baseSP && w.knowsSP:
		at = w.SP
	case r.base == baseFP && w.knowsFP:
		at = w.FP
	case r.base == baseFP && w.OnlySP && runtime.GOARCH == "amd64":
		return w.frameOfCall(r)
	default:
		return 0, false
	}
	at += uint64(r.offset)
	if r.stub != 0 && byte(w.PC&15) >= r.stub {
		at += 8
	}
	if !r.loaded {
		return at, true
	}
	at, ok = w.word(at)
	return at + uint64(r.added), ok
}

const (
	// directCall is the call instruction with a 32-bit distance to a function, 5 bytes long (Intel SDM 2A, CALL).
	directCall, directCallSize = 0xe8, 5
	// maxFrameWords bounds the search for a return address: a frame of 16 KiB is one with large buffers.
	maxFrameWords = 2048
)

// frameOfCall finds the frame of a function that is left by its frame pointer, if that is not known. It looks for the
// return address: the first word of the stack that is an address right after a direct call of this function. It does
// not find the frame of a function that was called through a pointer or from another file.
func (w *walker) frameOfCall(r *rule) (at uint64, ok bool) {
	pc := w.PC
	if !w.exact {
		pc--
	}
	t, address, ok := w.find(pc)
	if !ok || t == nil || r.loaded || r.ra.how != savedAt {
		return 0, false
	}
	begin, ok := t.Function(address)
	if !ok {
		return 0, false
	}
	bias := pc - address // from the file's addresses to those of the process, in this file
	for i := range uint64(maxFrameWords) {
		returns, ok := w.word(w.SP + i*8)
		if !ok {
			return 0, false
		}
		if t.calls(returns-bias, begin) {
			return w.SP + i*8 - uint64(r.ra.at), true
		}
	}
	return 0, false
}

// calls reports whether the code before an address is a direct call of a function; both are in the file's terms.
func (t *Table) calls(returns, function uint64) bool {
	var code [directCallSize]byte
	return t.read(returns-directCallSize, code[:]) && code[0] == directCall && returns+signed(code[1:]) == function
}

// byFramePointer leaves a function that keeps a frame pointer: the caller's is where it points to, followed by the
// return address. On arm64 the two may be anywhere in a frame.
func (w *walker) byFramePointer() bool {
	if w.knowsFP && w.FP == 0 { // the outermost frame (System V ABI for x86-64, 3.4.1; AAPCS64, 6.4.6)
		w.PC = 0
		return true
	}
	if !w.knowsFP || w.FP < w.SP {
		return false
	}
	fp, okFP := w.word(w.FP)
	pc, okPC := w.word(w.FP + 8)
	w.SP, w.knowsSP = w.FP+16, runtime.GOARCH != "arm64"
	w.PC, w.FP, w.exact = pc, fp, false
	return okFP && okPC
}

// word reads the stack.
func (w *walker) word(at uint64) (word uint64, ok bool) {
	i := at - w.bottom
	if i > uint64(len(w.stack)) || uint64(len(w.stack))-i < 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(w.stack[i:]), true
}
