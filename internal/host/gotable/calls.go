package gotable

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"io"
	"slices"
)

// A Call is a function at an address, and the line in it.
type Call struct {
	Name string
	Line int // in the function's source file; 0 if unknown
}

// description is what a program records about a function (src/runtime/runtime2.go, _func, Go 1.20 to 1.26): ten
// numbers of 4 bytes and four of one byte, then the places of the function's tables of numbers and of its data.
type description struct {
	lines     uint32 // offset of the table of lines
	calls     uint32 // offset of the table of inlined calls by address; 0 if it has none
	tree      uint32 // where the inlined calls are
	isInlined bool
}

const (
	descriptionSize = 44
	noData          = 1<<32 - 1
	callsTable      = 2  // PCDATA_InlTreeIndex (src/internal/abi/symtab.go)
	treeData        = 3  // FUNCDATA_InlTree
	maxTables       = 64 // there are five (src/internal/abi/symtab.go, PCDATA)
	// inlinedSize is the size of an inlinedCall (src/runtime/symtabinl.go): kind, name, the caller's address, first
	// line.
	inlinedSize = 16
	// maxDepth bounds the nested calls at one address: perfdoctor itself has eight at most.
	maxDepth = 64
	// maxNumbers bounds a table of numbers, in bytes: the largest of 6,000 functions of kubectl has 3 KB.
	maxNumbers = 256 << 10
)

// Calls returns the functions at an address, the innermost first: the compiler inlines small ones into their callers,
// and records who called whom. Without that record, as with Go before 1.20, it returns the one function of
// [Table.Find].
func (t *Table) Calls(at uint64) []Call {
	i, ok := t.indexOf(at)
	if !ok {
		return nil
	}
	f, ok := t.function(i)
	if !ok {
		return nil
	}
	d, ok := t.describe(i)
	if !ok {
		return []Call{{Name: f.Name}}
	}
	var out []Call
	into, inner := at-f.Begin, maxNumbers
	for len(out) < maxDepth && d.isInlined {
		i, ok := t.number(d.calls, into)
		// A caller comes before its callees. In the init that the linker makes of a package's variables, some
		// functions call themselves.
		if !ok || i < 0 || i >= inner {
			break
		}
		inner = i
		name, caller, ok := t.inlined(uint64(d.tree) + uint64(i)*inlinedSize)
		if !ok || caller >= f.End-f.Begin {
			break
		}
		line, _ := t.number(d.lines, into)
		out = append(out, Call{name, max(line, 0)})
		into = caller
	}
	line, _ := t.number(d.lines, into)
	return append(out, Call{f.Name, max(line, 0)})
}

// describe reads the description of a function.
func (t *Table) describe(i uint64) (d description, ok bool) {
	from, found := t.description(i)
	if !found || !t.inlines {
		return d, false
	}
	var fixed [descriptionSize]byte
	if _, err := t.section.ReadAt(fixed[:], from); err != nil {
		return d, false
	}
	d.lines = t.order.Uint32(fixed[24:])
	tables, data := t.order.Uint32(fixed[28:]), uint32(fixed[descriptionSize-1])
	if tables <= callsTable || data <= treeData || tables > maxTables {
		return d, true
	}
	further := make([]byte, 4*(tables+treeData+1))
	if _, err := t.section.ReadAt(further, from+descriptionSize); err != nil {
		return d, true
	}
	d.calls, d.tree = t.order.Uint32(further[4*callsTable:]), t.order.Uint32(further[4*(tables+treeData):])
	d.isInlined = d.calls != 0 && d.tree != noData && t.data() != nil
	return d, true
}

// number returns the value of a table of numbers for an address, which counts from the function's beginning. The
// table holds pairs: how much the value changes, and for how many bytes of code it holds (src/runtime/symtab.go,
// pcvalue).
func (t *Table) number(table uint32, into uint64) (value int, ok bool) {
	from := t.numbers + uint64(table)
	if table == 0 || from >= t.size {
		return 0, false
	}
	r := bufio.NewReaderSize(io.NewSectionReader(t.section, int64(from), int64(min(t.size-from, maxNumbers))), 512)
	n, end := int32(-1), uint64(0)
	for first := true; ; first = false {
		by, err := binary.ReadUvarint(r)
		if err != nil || by == 0 && !first {
			return 0, false
		}
		if by&1 != 0 {
			n += int32(^(by >> 1))
		} else {
			n += int32(by >> 1)
		}
		span, err := binary.ReadUvarint(r)
		if err != nil {
			return 0, false
		}
		if end += span * t.quantum; into < end {
			return int(n), true
		}
	}
}

// inlined reads an inlined call: the name, and the caller's address from the function's beginning.
func (t *Table) inlined(at uint64) (name string, caller uint64, ok bool) {
	var call [inlinedSize]byte
	if _, err := t.data().ReadAt(call[:], int64(at)); err != nil {
		return "", 0, false
	}
	name = t.nameAt(t.order.Uint32(call[4:]))
	return name, uint64(t.order.Uint32(call[8:])), name != ""
}

// data returns the functions' data, which includes the inlined calls; it returns nil if it is not found.
func (t *Table) data() io.ReaderAt {
	if !t.asked {
		t.asked = true
		t.funcData = t.findData()
	}
	return t.funcData
}

// moduleSections may hold the runtime's description of the program: the first two since Go 1.26, the third before.
var moduleSections = []string{".go.module", ".data.rel.ro.go.module", ".noptrdata", ".data"}

// The words of a moduledata that perfdoctor reads (src/runtime/symtab.go, Go 1.20 to 1.27): where the code is, for a
// check, where types begin and end, and where the functions' data is. Since 1.27 the size of the types stands before
// their end, and two more words follow the end. The end is an address beyond the beginning of the types, and a size
// is not.
const (
	moduleText  = 22
	moduleTypes = 37
	moduleData  = 40
	moduleMore  = 3
	moduleWords = moduleData + moduleMore + 1
)

// findData reads where the functions' data begins. The program has its address in a description that begins with the
// address of the table. In a position-independent program the linker may leave the address to the program's start.
func (t *Table) findData() io.ReaderAt {
	for _, name := range moduleSections {
		s := t.file.Section(name)
		if s == nil || s.ReaderAt == nil || s.Type != elf.SHT_PROGBITS || s.Size > maxSize {
			continue
		}
		if at, ok := t.dataOf(s); ok {
			return t.sectionAt(at)
		}
	}
	return nil
}

// dataOf looks for the description in a section.
func (t *Table) dataOf(s *elf.Section) (address uint64, ok bool) {
	const word = 8
	r := bufio.NewReaderSize(io.NewSectionReader(s.ReaderAt, 0, int64(s.Size)), 64<<10)
	var one [word]byte
	for at := int64(0); ; at += word {
		if _, err := io.ReadFull(r, one[:]); err != nil {
			return 0, false
		}
		if t.order.Uint64(one[:]) != t.address {
			continue
		}
		var module [moduleWords * word]byte
		if _, err := s.ReadAt(module[:], at); err != nil {
			return 0, false
		}
		of := func(i int) uint64 { return t.order.Uint64(module[i*word:]) }
		if of(moduleText) != t.start {
			continue
		}
		if of(moduleTypes+1) < of(moduleTypes) {
			return of(moduleData + moduleMore), true
		}
		return of(moduleData), true
	}
}

// sectionAt returns the section that holds an address, from the address on.
func (t *Table) sectionAt(address uint64) io.ReaderAt {
	i := slices.IndexFunc(t.file.Sections, func(s *elf.Section) bool {
		return s.Type == elf.SHT_PROGBITS && s.ReaderAt != nil && address >= s.Addr && address-s.Addr < s.Size
	})
	if i < 0 || address == 0 {
		return nil
	}
	s := t.file.Sections[i]
	from := address - s.Addr
	return io.NewSectionReader(s.ReaderAt, int64(from), int64(s.Size-from))
}
