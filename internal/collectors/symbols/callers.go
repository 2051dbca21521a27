package symbols

import (
	"bytes"
	"encoding/binary"
	"io"
	"runtime"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// Every C library has functions without a frame of their own, such as memcpy, a spin lock or a system call wrapper.
// In a stack such a function is followed by its caller's caller: the walk follows frame pointers, and the register
// still holds the caller's. The caller is where the function returns to, at the top of the stack (x86) or in a
// register (arm64). The program itself shows whether the value there is that address or something else: the
// instruction before it calls this very function.

// returned is an address that a function may return to; callee is where the function begins.
type returned struct {
	pid    uint32
	to     uint64
	callee uint64
}

// WithCaller inserts the caller of the innermost function into a stack of a process, the innermost address first, if
// it is missing and can be proven. caller is the value where that function's return address should be; 0 if it is not
// known. The given stack is not changed.
func (s *Symbolizer) WithCaller(pid uint32, user []uint64, caller uint64) []uint64 {
	if len(user) == 0 || caller == 0 || len(user) > 1 && user[1] == caller {
		return user
	}
	begin, ok := s.functionAt(pid, user[0])
	if !ok || !s.isCall(returned{pid, caller, begin}) {
		return user
	}
	if len(user) > 1 && s.isCall(returned{pid, user[1], begin}) { // it has a frame, and the caller is the next address
		return user
	}
	return slices.Insert(slices.Clone(user), 1, caller)
}

// functionAt returns where the function that contains an address begins, as an address in the process.
func (s *Symbolizer) functionAt(pid uint32, at uint64) (begin uint64, ok bool) {
	s.UserFrames(pid, at) // finds names that a file lacks
	m, ok := s.mappingOf(pid, at)
	if !ok {
		return 0, false
	}
	b := s.binaries[mappedFile{pid, m.Path, m.Deleted}]
	if b == nil {
		return 0, false
	}
	var into uint64
	s.ask(pid, m, b, func() { into, ok = b.into(at - m.From + m.Offset) })
	return at - into, ok
}

// isCall reports whether the instruction before an address calls the function. It reads the program's code, if the
// kernel allows it (PTRACE_MODE_ATTACH).
func (s *Symbolizer) isCall(r returned) bool {
	if known, ok := s.called[r]; ok {
		return known
	}
	s.called[r] = false
	if _, ok := s.mappingOf(r.pid, r.to-1); !ok {
		return false
	}
	memory := door.MemoryOf(s.pidPath(r.pid, ""))
	callee := calleeOfX86
	if runtime.GOARCH == "arm64" {
		callee = calleeOfARM
	}
	s.called[r] = callee(memory, r.to, r.callee)
	return s.called[r]
}

// tail is how much of a function is searched for a jump to another function at its end: runtime.memequal and
// IndexByte of Go do nothing else, in 30 bytes.
const tail = 128

// calleeOfX86 reports whether a call before the address leads to the function: directly, through a pointer to it,
// through a stub of the linkage table, which jumps by such a pointer, or through a short function that ends with a
// jump to it (Intel SDM, volume 2, CALL and JMP; System V ABI for x86-64, 5.2).
func calleeOfX86(memory io.ReaderAt, to, function uint64) bool {
	var code [6]byte
	if _, err := memory.ReadAt(code[:], int64(to)-6); err != nil {
		return false
	}
	next := to + signed(code[2:])
	if code[0] == 0xff && code[1] == 0x15 && pointsTo(memory, next, function) { // call *distance(%rip)
		return true
	}
	if code[1] != 0xe8 { // call distance
		return false
	}
	if next == function {
		return true
	}
	var called [tail]byte
	n, _ := memory.ReadAt(called[:], int64(next))                        // it may end early
	rest := bytes.TrimPrefix(called[:n], []byte{0xf3, 0x0f, 0x1e, 0xfa}) // endbr64
	rest = bytes.TrimPrefix(rest, []byte{0xf2})                          // bnd
	if bytes.HasPrefix(rest, []byte{0xff, 0x25}) && len(rest) >= 6 {     // jmp *distance(%rip)
		after := next + uint64(n-len(rest)) + 6
		return pointsTo(memory, after+signed(rest[2:]), function)
	}
	for i := 0; i+5 <= n; i++ {
		if called[i] == 0xe9 && next+uint64(i)+5+signed(called[i+1:]) == function { // jmp distance
			return true
		}
	}
	return false
}

func pointsTo(memory io.ReaderAt, at, function uint64) bool {
	var word [8]byte
	_, err := memory.ReadAt(word[:], int64(at))
	return err == nil && binary.LittleEndian.Uint64(word[:]) == function
}

// calleeOfARM is the same for arm64: BL, a stub of ADRP, LDR, ADD and BR, maybe after a BTI, and B (Arm ARM, C6.2;
// ELF for the Arm 64-bit Architecture, 5.8). Where an indirect call leads cannot be known.
func calleeOfARM(memory io.ReaderAt, to, function uint64) bool {
	var code [4]byte
	if _, err := memory.ReadAt(code[:], int64(to)-4); err != nil {
		return false
	}
	next, found := uint64(0), false
	callsOfARM(code[:], to-4, func(c call) { next, found = c.to, true })
	if !found || next == function {
		return found
	}
	var called [tail]byte
	n, _ := memory.ReadAt(called[:], int64(next)) // it may end early
	if n < 16 {
		return false
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(called[4*i:]) }
	for at := 0; at < n/4; at++ {
		// B, 000101 and the distance in words
		if w := word(at); w>>26 == 5 && next+uint64(4*at)+uint64(int64(int32(w<<6)>>4)) == function {
			return true
		}
	}
	i := 0
	if word(0) == 0xd503245f { // BTI c
		i = 1
	}
	page, load := word(i), word(i+1)
	if page&0x9f000000 != 0x90000000 || load&0xffc00000 != 0xf9400000 {
		return false
	}
	pages := int64(int32((page>>5&0x7ffff)<<13))>>11 | int64(page>>29&3) // 21 bits with a sign, in two parts
	at := ((next + uint64(4*i)) &^ 0xfff) + uint64(pages<<12) + uint64(load>>10&0xfff)*8
	return pointsTo(memory, at, function)
}
