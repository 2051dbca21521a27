// Package typecheck tells whether a program counter of a HotSpot JVM is in a type check that misses the one-entry
// cache of its class (JDK-8180450).
//
// HotSpot caches in each class the last interface that was asked for with success (Klass::_secondary_super_cache). A
// check compares with the cache. If it holds another interface, the check searches the class's list of interfaces and
// writes what it found into the cache (MacroAssembler::check_klass_subtype_slow_path in
// src/hotspot/cpu/x86/macroAssembler_x86.cpp, JDK 11 to 21). No frame shows any of it, because the compilers inline
// it. But only the search uses repne scasq in HotSpot, so the machine code around a program counter shows it, and
// that can be read from outside.
package typecheck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// Place says where in a type check a program counter is.
type Place string

// The places. A check that hits the cache only runs through the comparison, so Compare alone says nothing; but there
// a CPU waits for the cache line that another CPU has written.
const (
	Search    Place = "search"  // in the search, which runs only when the cache holds another interface
	Write     Place = "write"   // at the write that follows a search that found the interface
	Compare   Place = "compare" // just before the jump to a search
	Elsewhere Place = "elsewhere"
)

// Places lists them.
func Places() []Place { return []Place{Search, Write, Compare, Elsewhere} }

// Region is a range of addresses that holds compiled code.
type Region struct{ Start, End uint64 }

// Code is the compiled code of a JVM as it is now: it is read on demand.
type Code struct {
	Memory  io.ReaderAt // by address, such as /proc/PID/mem
	Regions []Region    // by ascending addresses
	search  map[uint64]bool
}

// ErrUnreadable says that code was gone or moved before it could be read.
var ErrUnreadable = errors.New("code could not be read")

// scas is repne scasq: rep prefix, REX.W, opcode.
var scas = []byte{0xf2, 0x48, 0xaf}

const (
	// setup is the size of the code before repne scasq that runs with it only: the load of the list and of its
	// length, the skip to its first element, and a test (4 + 2 or 3 + 4 + 3 bytes).
	setup = 14
	// result is the size of the code after it: pops of two registers, a jump, and the write (2 + 6 + 4 bytes).
	result = 16
	// ahead is how far before a jump to a search the comparison begins: load of the class (4 + 4), of its cache (4),
	// of a constant (10), the comparison (3), the jump (6).
	ahead = 32
	// entry is how far a search's repne scasq is after its first instruction: constant (10), moves of registers,
	// setup.
	entry = 48
	// longest is the size of a near jump on condition: 0f 84 or 0f 85, then 4 bytes.
	longest = 6
)

// Place returns where a program counter is. Outside of compiled code, as in the kernel or in a library, that is
// Elsewhere. Its error is ErrUnreadable, with the cause.
func (c *Code) Place(pc uint64) (Place, error) {
	r, ok := c.region(pc)
	if !ok {
		return Elsewhere, nil
	}
	from, to := r.clip(pc, result+len(scas), ahead+longest)
	b, err := c.read(from, to)
	if err != nil {
		return "", err
	}
	at := int(pc - from)
	if i := nearest(b, at); i >= 0 {
		if at > i && isWrite(b[at:]) {
			return Write, nil
		}
		return Search, nil
	}
	return c.comparison(pc, b[at:])
}

// clip returns the addresses around pc that lie in the region.
func (r Region) clip(pc uint64, before, after int) (from, to uint64) {
	from, to = pc-min(uint64(before), pc-r.Start), r.End
	if uint64(after) < r.End-pc {
		to = pc + uint64(after)
	}
	return from, to
}

func (c *Code) region(pc uint64) (Region, bool) {
	i, _ := slices.BinarySearchFunc(c.Regions, pc, func(r Region, pc uint64) int {
		if r.End <= pc {
			return -1
		}
		return 1
	})
	if i == len(c.Regions) || pc < c.Regions[i].Start {
		return Region{}, false
	}
	return c.Regions[i], true
}

func (c *Code) read(from, to uint64) ([]byte, error) {
	b := make([]byte, to-from)
	if _, err := c.Memory.ReadAt(b, int64(from)); err != nil {
		return nil, fmt.Errorf("%w: %d bytes at %#x: %w", ErrUnreadable, len(b), from, err)
	}
	return b, nil
}

// nearest returns the index of the repne scasq whose search the code at index at belongs to, or -1.
func nearest(b []byte, at int) int {
	for i := max(0, at-result); i <= min(at+setup, len(b)-len(scas)); i++ {
		if bytes.HasPrefix(b[i:], scas) {
			return i
		}
	}
	return -1
}

// isWrite reports whether the code is mov [register + 8 bits], register: REX.W with any extension, 89, a ModRM byte
// of mode 01. Register 4 stands for an address on the stack, which is no class.
func isWrite(b []byte) bool {
	return len(b) >= 4 && b[0]&0xf8 == 0x48 && b[1] == 0x89 && b[2]>>6 == 1 && b[2]&7 != 4
}

// comparison looks for a jump on equal or not equal whose target begins a search. It does not decode the code: bytes
// that only look like a jump do not lead to a search.
func (c *Code) comparison(pc uint64, b []byte) (Place, error) {
	for i := 0; i < min(ahead, len(b)-1); i++ {
		target, ok := jump(b[i:], pc+uint64(i))
		if !ok {
			continue
		}
		found, err := c.beginsSearch(target)
		if err != nil {
			return "", err
		}
		if found {
			return Compare, nil
		}
	}
	return Elsewhere, nil
}

// jump returns the target of je or jne at the address: 74 or 75 and 8 bits, 0f 84 or 0f 85 and 32 bits, both with a
// sign.
func jump(b []byte, address uint64) (target uint64, ok bool) {
	switch {
	case len(b) >= 2 && b[0]&0xfe == 0x74:
		return address + 2 + uint64(int64(int8(b[1]))), true
	case len(b) >= longest && b[0] == 0x0f && b[1]&0xfe == 0x84:
		return address + longest + uint64(int64(int32(binary.LittleEndian.Uint32(b[2:])))), true
	}
	return 0, false
}

// beginsSearch reports whether a repne scasq comes soon after the address. It keeps its answers, as a hot loop asks
// often.
func (c *Code) beginsSearch(address uint64) (bool, error) {
	if found, known := c.search[address]; known {
		return found, nil
	}
	r, ok := c.region(address)
	if !ok {
		return false, nil
	}
	from, to := r.clip(address, 0, entry)
	b, err := c.read(from, to)
	if err != nil {
		return false, err
	}
	if c.search == nil {
		c.search = map[uint64]bool{}
	}
	c.search[address] = bytes.Contains(b, scas)
	return c.search[address], nil
}

// maxRegions bounds what is kept of a process's mappings. HotSpot has three regions of code (profiled, not profiled,
// and its own), and each may be mapped in pieces.
const maxRegions = 4096

// ParseRegions reads /proc/PID/maps and returns the executable mappings without a file: code compiled at run time. A
// line that does not parse is an error that names it.
func ParseRegions(maps io.Reader) ([]Region, error) {
	var list []Region
	for m, err := range door.ParseMaps(maps) {
		switch {
		case err != nil:
			return nil, err
		case !m.Executable || !anonymous(m.Path):
		case len(list) == maxRegions:
			return nil, fmt.Errorf("more than %d regions of code", maxRegions)
		case len(list) > 0 && m.From < list[len(list)-1].End:
			return nil, fmt.Errorf("%#x is below the end of the mapping before", m.From)
		default:
			list = append(list, Region{m.From, m.To})
		}
	}
	return list, nil
}

// anonymous reports whether memory has no file: it has no name, or one given by prctl(2). Huge pages by
// -XX:+UseLargePages are a file without a name, /anon_hugepage.
func anonymous(name string) bool {
	return name == "" || strings.HasPrefix(name, "[anon") || strings.HasPrefix(name, "/anon_hugepage")
}
