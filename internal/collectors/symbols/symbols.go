package symbols

import (
	"cmp"
	"debug/elf"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/host/gotable"
)

// A symbol is a function's name at its address.
type symbol struct {
	at   uint64
	end  uint64 // 0: unknown
	name string

	order uint32 // the place in the tables of its file
}

// A KernelFunction is a function of the kernel, as the kernel itself names it.
type KernelFunction struct {
	Begin, End   uint64 // its first address, and the first behind it
	Name, Module string // no module: it is in the core
}

// sortSymbols sorts symbols by address. If several have the same address, the first in the tables stays the first, by
// its order: a stable sort moves symbols much more often.
func sortSymbols(list []symbol) {
	for i := range list {
		list[i].order = uint32(i)
	}
	slices.SortFunc(list, func(a, b symbol) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
	})
}

// find returns the symbol that an address is in.
func find(list []symbol, at uint64) (symbol, bool) {
	i, exact := slices.BinarySearchFunc(list, at, func(s symbol, at uint64) int { return cmp.Compare(s.at, at) })
	if !exact {
		i--
	}
	if i < 0 || list[i].end != 0 && at >= list[i].end {
		return symbol{}, false
	}
	return list[i], true
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
	functions []symbol
	table     *gotable.Table // of a Go program
	loads     []elf.ProgHeader
	buildID   string // of a stripped one, in hexadecimal digits
	chooses   bool   // it has functions that are chosen when it is loaded, and that have no symbol of their own
	asked     bool   // those were looked for
}

// readBinary reads the symbol tables of an ELF file. A stripped file has only its dynamic symbols and Go's table;
// that table reads the file again when it is used.
func readBinary(r io.ReaderAt, left *door.TableBudget) (*objectFile, error) {
	f, err := door.ELF(r)
	if err != nil {
		return nil, err
	}
	b := &objectFile{loads: loadsOf(f)}
	if f.Section(".symtab") == nil {
		b.buildID = buildID(f)
	}
	for _, kind := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
		err := door.EachSymbol(f, kind, left, func(s door.Symbol) {
			b.chooses = b.chooses || s.Kind == elf.STT_GNU_IFUNC && s.Index != elf.SHN_UNDEF
			if s.Kind == elf.STT_FUNC && s.Value != 0 && s.Name != "" && left.Take() {
				b.functions = append(b.functions, symbol{at: s.Value, end: s.Value + max(s.Size, 1), name: s.Name})
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if b.table, err = gotable.Open(f, left); err != nil {
		return nil, err
	}
	sortSymbols(b.functions)
	return b, nil
}

// maxNear is how far a function may be from another one of its source file: the largest, parsers and interpreters,
// have that much code.
const maxNear = 32 << 10

// nearest returns the name of the function, among those with a symbol, that is nearest to an address; "" if none is
// near.
func (b *objectFile) nearest(at uint64) (name string) {
	i, _ := slices.BinarySearchFunc(b.functions, at, func(s symbol, at uint64) int { return cmp.Compare(s.at, at) })
	far := uint64(maxNear)
	if i > 0 {
		before := b.functions[i-1]
		if d := at - min(at, max(before.at, before.end)); d < far {
			far, name = d, before.name
		}
	}
	if i < len(b.functions) && b.functions[i].at-at < far {
		name = b.functions[i].name
	}
	return name
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

// function returns the function at an offset of the file, and how far into it that is.
func (b *objectFile) function(offset uint64) (s symbol, into uint64, ok bool) {
	at, ok := b.address(offset)
	if !ok {
		return symbol{}, 0, false
	}
	if s, ok = find(b.functions, at); !ok && b.table != nil {
		var f gotable.Function
		f, ok = b.table.Find(at)
		s = symbol{at: f.Begin, end: f.End, name: f.Name}
	}
	return s, at - s.at, ok
}

// calls returns the functions of Go at an offset of the file, the innermost first; none if it is not Go.
func (b *objectFile) calls(offset uint64) []gotable.Call {
	at, ok := b.address(offset)
	if !ok || b.table == nil {
		return nil
	}
	return b.table.Calls(at)
}
