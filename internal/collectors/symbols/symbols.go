package symbols

import (
	"cmp"
	"debug/elf"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/host/gotable"
)

// A symbol is a function's name at its address.
type symbol struct {
	at   uint64
	end  uint64
	name string
}

// A span is a function of a file, without its name. A file has up to 200,000 of them.
type span struct {
	at   uint64
	size uint32
	// ref says where the name is: a number of a table in the lower bits, and the table's own in the upper ones. It also
	// keeps the order of functions with the same address.
	ref uint32
}

func (s span) end() uint64 { return s.at + uint64(s.size) }

// A KernelFunction is a function of the kernel, as the kernel itself names it.
type KernelFunction struct {
	Begin, End   uint64 // its first address, and the first behind it
	Name, Module string // no module: it is in the core
}

// sortSpans sorts functions by address. If several have the same address, the first in the tables stays the first.
func sortSpans(list []span) {
	slices.SortFunc(list, func(a, b span) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.ref, b.ref)) })
}

// find returns the function that an address is in.
func find(list []span, at uint64) (span, bool) {
	i, exact := search(list, at)
	if !exact {
		i--
	}
	if i < 0 || at >= list[i].end() {
		return span{}, false
	}
	return list[i], true
}

// search returns where the first function at an address or behind it is in the list.
func search(list []span, at uint64) (i int, exact bool) {
	return slices.BinarySearchFunc(list, at, func(s span, at uint64) int { return cmp.Compare(s.at, at) })
}

// parseMaps keeps the executable mappings. Memory without a file, where code is made at run time, has no path then.
func parseMaps(r io.Reader) ([]door.Mapping, error) {
	var list []door.Mapping
	for m, err := range door.ParseMaps(r) {
		if err != nil {
			return nil, fmt.Errorf("maps: %w", err)
		}
		if !m.Executable {
			continue
		}
		if strings.HasPrefix(m.Path, "[anon:") || strings.HasPrefix(m.Path, "//anon") ||
			strings.HasPrefix(m.Path, "/memfd:") {
			m.Path = "" // memory with a label
		}
		list = append(list, m)
	}
	return list, nil
}

// An objectFile is the functions of an ELF file, and where its parts are loaded.
type objectFile struct {
	functions []span
	tables    []*door.SymbolTable // of functions; they read the file
	found     []string            // names of functions that have none in a table
	table     *gotable.Table      // of a Go program; it reads the file, too
	loads     []elf.ProgHeader
	buildID   string // of a stripped one, in hexadecimal digits
	chooses   bool   // it has functions that are chosen when it is loaded, and that have no symbol of their own
	asked     bool   // those were looked for
}

const (
	// tableShift is where the number of the table begins in a reference: the largest table has less than 2^22 symbols.
	tableShift = 30
	// foundTable is the number of the names that were found otherwise; a file has two tables at most, and its debug
	// file has one.
	foundTable = 3
)

// readBinary reads the symbol tables of an ELF file. A stripped file has only its dynamic symbols and Go's table. The
// file must stay open: names are read when they are asked for.
func readBinary(r io.ReaderAt, left *door.TableBudget) (*objectFile, error) {
	f, err := door.ELF(r)
	if err != nil {
		return nil, err
	}
	b := &objectFile{loads: loadsOf(f)}
	if f.Section(".symtab") == nil {
		b.buildID = buildID(f)
	}
	most := 0
	for _, kind := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
		t, err := door.SymbolsOf(f, kind)
		if err != nil {
			return nil, err
		}
		if t == nil || t.Len() < most { // a whole table has the dynamic symbols, too
			continue
		}
		most = t.Len()
		if err := b.add(t, left, func(uint64) bool { return true }); err != nil {
			return nil, err
		}
	}
	if b.table, err = gotable.Open(f, left); err != nil {
		return nil, err
	}
	return b, nil
}

// add adds the functions of a table at addresses that are wanted.
func (b *objectFile) add(t *door.SymbolTable, left *door.TableBudget, wanted func(at uint64) bool) error {
	number := uint32(len(b.tables)) << tableShift
	b.tables = append(b.tables, t)
	err := t.Each(func(n uint32, s door.Symbol) {
		b.chooses = b.chooses || s.Kind == elf.STT_GNU_IFUNC && s.Index != elf.SHN_UNDEF
		if s.Kind == elf.STT_FUNC && s.Value != 0 && s.Named() && wanted(s.Value) && left.Take() {
			size := uint32(min(max(s.Size, 1), math.MaxUint32))
			b.functions = append(b.functions, span{at: s.Value, size: size, ref: number | n})
		}
	})
	sortSpans(b.functions)
	return err
}

// addFound adds functions whose names were found otherwise.
func (b *objectFile) addFound(list []symbol) {
	for _, s := range list {
		ref := foundTable<<tableShift | uint32(len(b.found))
		b.functions = append(b.functions, span{at: s.at, size: uint32(s.end - s.at), ref: ref})
		b.found = append(b.found, s.name)
	}
	sortSpans(b.functions)
}

// nameOf reads the name of a function; "" if that fails.
func (b *objectFile) nameOf(s span) string {
	table, n := s.ref>>tableShift, s.ref&(1<<tableShift-1)
	if table == foundTable {
		return b.found[n]
	}
	return b.tables[table].Name(n)
}

// maxNear is how far a function may be from another one of its source file: the largest, parsers and interpreters,
// have that much code.
const maxNear = 32 << 10

// nearest returns the name of the function, among those with a symbol, that is nearest to an address; "" if none is
// near.
func (b *objectFile) nearest(at uint64) (name string) {
	i, _ := search(b.functions, at)
	far, near := uint64(maxNear), -1
	if i > 0 {
		if d := at - min(at, b.functions[i-1].end()); d < far {
			far, near = d, i-1
		}
	}
	if i < len(b.functions) && b.functions[i].at-at < far {
		near = i
	}
	if near < 0 {
		return ""
	}
	return b.nameOf(b.functions[near])
}

// address returns the address that an offset of the file is loaded at.
func (b *objectFile) address(offset uint64) (at uint64, ok bool) {
	for _, p := range b.loads {
		if offset >= p.Off && offset-p.Off < p.Filesz {
			return offset - p.Off + p.Vaddr, true
		}
	}
	return 0, false
}

// function returns the function at an offset of the file. Its name is empty if reading it failed.
func (b *objectFile) function(offset uint64) (s symbol, ok bool) {
	f, _, ok := b.spanAt(offset)
	if !ok {
		return symbol{}, false
	}
	return symbol{at: f.at, end: f.end(), name: f.name()}, true
}

// into returns how far an offset of the file is into its function, without reading the function's name.
func (b *objectFile) into(offset uint64) (bytes uint64, ok bool) {
	f, at, ok := b.spanAt(offset)
	return at - f.at, ok
}

// A namedSpan is a function with the way to its name: a table of symbols is read for it, Go's has it at hand.
type namedSpan struct {
	span
	name func() string
}

// spanAt returns the function at an offset of the file, and the address that the offset is loaded at.
func (b *objectFile) spanAt(offset uint64) (s namedSpan, at uint64, ok bool) {
	at, ok = b.address(offset)
	if !ok {
		return namedSpan{}, 0, false
	}
	if f, ok := find(b.functions, at); ok {
		return namedSpan{f, func() string { return b.nameOf(f) }}, at, true
	}
	if b.table == nil {
		return namedSpan{}, 0, false
	}
	f, ok := b.table.Find(at)
	return namedSpan{span{at: f.Begin, size: uint32(f.End - f.Begin)}, func() string { return f.Name }}, at, ok
}

// calls returns the functions of Go at an offset of the file, the innermost first; none if it is not Go.
func (b *objectFile) calls(offset uint64) []gotable.Call {
	at, ok := b.address(offset)
	if !ok || b.table == nil {
		return nil
	}
	return b.table.Calls(at)
}
