// Package gotable names the functions of a Go program by their addresses. It reads the table that the program keeps
// for its own stack traces: a stripped program has it, too.
package gotable

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// maxSize bounds .gopclntab, in bytes: the kubelet's has 30 MB.
const maxSize = 64 << 20

// A Function is code of a program; its addresses are those in the file.
type Function struct {
	Begin, End uint64
	Name       string // as net/http.(*conn).serve
}

// A Table keeps in memory where each function begins, 4 bytes each. It reads a name only when an address is looked
// up: all names of a program are megabytes, and a profile meets a hundred. debug/gosym unpacks every entry, and names
// without a bound. A Table reads its file, which must stay open, and is not for concurrent use.
type Table struct {
	file             *elf.File
	section          io.ReaderAt
	order            binary.ByteOrder
	address          uint64   // of the section
	start            uint64   // address of the text
	begins           []uint32 // of each function, from start; the last is the end of all
	names, functions uint64   // offsets in the section
	size             uint64   // of the section, in bytes
	left             *door.TableBudget
	known            map[uint64]string // names by function, those looked up so far

	// for Calls
	numbers  uint64 // offset of the tables of numbers
	quantum  uint64 // instructions are multiples of so many bytes
	inlines  bool   // descriptions of functions are as in Go 1.20
	asked    bool   // for funcData
	funcData io.ReaderAt
}

// Open opens the table of a Go program; it returns nil for other programs, and for one built by Go before 1.18
// (2022).
func Open(f *elf.File, left *door.TableBudget) (*Table, error) {
	var table *elf.Section
	// the latter in a position-independent program
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s := f.Section(name); s != nil {
			table = s
			break
		}
	}
	text := f.Section(".text")
	// No running program has such a section compressed or not in the file.
	if table == nil || text == nil || table.ReaderAt == nil || table.Type == elf.SHT_NOBITS {
		return nil, nil
	}
	if table.Size > maxSize {
		return nil, fmt.Errorf("table of Go functions: %w: section %.20q has %d bytes, at most %d are read",
			door.ErrTooLarge, table.Name, table.Size, maxSize)
	}
	t := &Table{
		file: f, section: table, address: table.Addr, order: f.ByteOrder, size: table.Size, left: left,
		known: map[uint64]string{},
	}
	if err := t.open(text.SectionHeader); err != nil {
		return nil, fmt.Errorf("table of Go functions: %w", err)
	}
	if len(t.begins) == 0 {
		return nil, nil
	}
	return t, nil
}

// headerSize is magic, two zeros, instruction size, pointer size, and eight fields of that size (src/runtime/symtab.go,
// pcHeader): functions, files, start of the text, names, compilation units, files' names, tables of numbers, functions.
const headerSize = 8 + 8*8

// open reads the header and where the functions begin.
func (t *Table) open(text elf.SectionHeader) error {
	const (
		magic118 = 0xfffffff0 // Go 1.18
		magic120 = 0xfffffff1 // Go 1.20
	)
	var header [headerSize]byte
	if t.size < headerSize {
		return nil
	}
	if _, err := t.section.ReadAt(header[:], 0); err != nil {
		return err
	}
	pointer := header[7]
	if pointer != 8 && pointer != 4 || !slices.Contains([]uint32{magic118, magic120}, t.order.Uint32(header[:])) {
		return nil
	}
	word := func(i int) uint64 { // pointer-sized field i
		if pointer == 4 {
			return uint64(t.order.Uint32(header[8+4*i:]))
		}
		return t.order.Uint64(header[8+8*i:])
	}
	// A file that is relocated does not know the start yet; Go's text begins with .text, unless C's start-up code
	// does.
	t.start, t.names, t.numbers, t.functions = word(2), word(3), word(6), word(7)
	t.quantum, t.inlines = uint64(header[6]), pointer == 8 && t.order.Uint32(header[:]) == magic120
	if t.start < text.Addr || t.start-text.Addr >= text.Size {
		t.start = text.Addr
	}
	if t.names >= t.size || t.functions >= t.size {
		return nil
	}
	return t.index(word(0))
}

// index reads the table of functions (src/runtime/symtab.go, functab): pairs of 4-byte offsets, from the text and
// from the table itself, then a last offset from the text. A count that leads out of the section is cut at its end.
func (t *Table) index(count uint64) error {
	count = min(count, (t.size-t.functions)/8)
	r := bufio.NewReaderSize(io.NewSectionReader(t.section, int64(t.functions), int64(t.size-t.functions)), 64<<10)
	var pair [8]byte
	for i := uint64(0); i < count && t.left.Take(); i++ {
		if _, err := io.ReadFull(r, pair[:]); err != nil {
			return err
		}
		t.begins = append(t.begins, t.order.Uint32(pair[:]))
	}
	if _, err := io.ReadFull(r, pair[:4]); err == nil {
		t.begins = append(t.begins, t.order.Uint32(pair[:]))
	}
	return nil
}

// Find returns the function at an address, if its name can be read.
func (t *Table) Find(at uint64) (Function, bool) {
	i, ok := t.indexOf(at)
	if !ok {
		return Function{}, false
	}
	return t.function(i)
}

// function returns a function by its number, if its name can be read.
func (t *Table) function(i uint64) (Function, bool) {
	name, ok := t.known[i]
	if !ok {
		name = t.name(i)
		t.known[i] = name
	}
	return Function{t.start + uint64(t.begins[i]), t.start + uint64(t.begins[i+1]), name}, name != ""
}

// indexOf returns the number of the function at an address.
func (t *Table) indexOf(at uint64) (i uint64, ok bool) {
	if at < t.start || at-t.start > 1<<32-1 {
		return 0, false
	}
	n, exact := slices.BinarySearch(t.begins, uint32(at-t.start))
	if !exact {
		n--
	}
	return uint64(max(n, 0)), n >= 0 && n+1 < len(t.begins)
}

// description returns the offset in the section of a function's description (_func).
func (t *Table) description(i uint64) (offset int64, ok bool) {
	var place [4]byte
	if _, err := t.section.ReadAt(place[:], int64(t.functions+i*8+4)); err != nil {
		return 0, false
	}
	return int64(t.functions) + int64(t.order.Uint32(place[:])), true
}

// name reads the name of a function: its description begins with the offsets of its entry and of its name, of 4 bytes
// each. It returns "" for an offset that leads out of the section.
func (t *Table) name(i uint64) string {
	from, ok := t.description(i)
	var two [8]byte
	if !ok {
		return ""
	}
	if _, err := t.section.ReadAt(two[:], from); err != nil {
		return ""
	}
	return t.nameAt(t.order.Uint32(two[4:]))
}

// nameAt reads the name at an offset among the names.
func (t *Table) nameAt(offset uint32) string {
	at := t.names + uint64(offset)
	if at >= t.size {
		return ""
	}
	text := make([]byte, min(door.MaxName, t.size-at))
	n, err := t.section.ReadAt(text, int64(at))
	if err != nil && n < len(text) {
		return ""
	}
	table := door.NameTable{Data: text, Left: t.left}
	return table.At(0)
}
