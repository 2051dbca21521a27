package ebpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Whoever owns a program owns what its ELF file says, such as a table of 40 GB in a sparse file or a compressed section.
// So debug/elf reads the headers only; tables are read here, within bounds.
const (
	// maxSymbolTable bounds a symbol table and its names, in bytes: libjvm.so has 3 MB and 10 MB, a Chromium 24 and 60.
	maxSymbolTable = 64 << 20
	// maxNames bounds the names kept of all files, in bytes. Symbols may share the end of one long name, so the size of
	// the table of names does not. libjvm.so has 10 MB.
	maxNames = 32 << 20
	// maxSymbols bounds the functions kept of all files: libjvm.so has 120,000. At 48 bytes each they are 48 MiB.
	maxSymbols = 1 << 20
	// maxName bounds one name, in bytes. The longest that g++ wrote for Boost are some 3,000.
	maxName = 4096
	// maxGoTable bounds .gopclntab, in bytes: the kubelet's has 30 MB.
	maxGoTable = 64 << 20
)

// errTooLarge is wrapped by the errors about tables past these bounds.
var errTooLarge = errors.New("its tables are larger than perfdoctor reads")

// A tableBudget is what may still be kept of all files' tables.
type tableBudget struct {
	symbols, names int // functions; bytes
}

func newTableBudget() *tableBudget { return &tableBudget{symbols: maxSymbols, names: maxNames} }

// take says whether one more function may be kept.
func (b *tableBudget) take() bool {
	if b.symbols <= 0 {
		return false
	}
	b.symbols--
	return true
}

// elfSymbol is an entry of a symbol table (gABI, Symbol Table) with its name.
type elfSymbol struct {
	name        string
	kind        elf.SymType
	section     elf.SectionIndex
	value, size uint64
}

// boundedSection reads a section. Its size is what it unpacks to where it is compressed, and debug/elf reads no more.
func boundedSection(s *elf.Section, most uint64) ([]byte, error) {
	if s.Size > most {
		return nil, fmt.Errorf("%w: section %.20q has %d bytes, at most %d are read", errTooLarge, s.Name, s.Size, most)
	}
	if s.Type == elf.SHT_NOBITS {
		return nil, fmt.Errorf("section %.20q is not in the file", s.Name)
	}
	return s.Data()
}

// eachSymbol calls do for each entry of the symbol tables of a kind. A file without one has no entries.
func eachSymbol(f *elf.File, kind elf.SectionType, left *tableBudget, do func(elfSymbol)) error {
	table := f.SectionByType(kind)
	if table == nil {
		return nil
	}
	if uint64(table.Link) >= uint64(len(f.Sections)) {
		return errors.New("the symbol table has no names")
	}
	if table.Size > maxSymbolTable {
		return fmt.Errorf("%w: section %.20q has %d bytes, at most %d are read", errTooLarge, table.Name, table.Size, maxSymbolTable)
	}
	data, err := boundedSection(f.Sections[table.Link], maxSymbolTable)
	if err != nil {
		return err
	}
	names := nameTable{data: data, left: left}
	entry := make([]byte, elf.Sym64Size)
	if f.Class == elf.ELFCLASS32 {
		entry = entry[:elf.Sym32Size]
	}
	r := table.Open()
	for read := uint64(0); read+uint64(len(entry)) <= table.Size; read += uint64(len(entry)) {
		if _, err := io.ReadFull(r, entry); err != nil {
			return fmt.Errorf("symbol table: %w", err)
		}
		do(decodeSymbol(f, entry, &names))
	}
	return nil
}

func decodeSymbol(f *elf.File, b []byte, names *nameTable) elfSymbol {
	o := f.ByteOrder
	if f.Class == elf.ELFCLASS32 {
		return elfSymbol{
			name: names.at(o.Uint32(b)), value: uint64(o.Uint32(b[4:])), size: uint64(o.Uint32(b[8:])),
			kind: elf.ST_TYPE(b[12]), section: elf.SectionIndex(o.Uint16(b[14:])),
		}
	}
	return elfSymbol{
		name: names.at(o.Uint32(b)), kind: elf.ST_TYPE(b[4]), section: elf.SectionIndex(o.Uint16(b[6:])),
		value: o.Uint64(b[8:]), size: o.Uint64(b[16:]),
	}
}

// nameTable gives the names of a table of strings that end with a zero, within a budget.
type nameTable struct {
	data []byte
	left *tableBudget
}

// at gives the name at an offset, cut at maxName; "" outside of the table and when the budget is spent.
func (t *nameTable) at(offset uint32) string {
	if uint64(offset) >= uint64(len(t.data)) {
		return ""
	}
	name := t.data[offset:min(uint64(offset)+maxName, uint64(len(t.data)))]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	if len(name) > t.left.names {
		return ""
	}
	t.left.names -= len(name)
	return string(name)
}

// goFunctions reads the table that a Go program keeps for its own stack traces, also when it is stripped; nothing of other
// programs, and of one built by Go before 1.18 (2022). debug/gosym unpacks every entry, and names without a bound.
func goFunctions(f *elf.File, left *tableBudget) ([]symbol, error) {
	var table *elf.Section
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} { // the latter of a position-independent program
		if s := f.Section(name); s != nil {
			table = s
			break
		}
	}
	text := f.Section(".text")
	if table == nil || text == nil {
		return nil, nil
	}
	data, err := boundedSection(table, maxGoTable)
	if err != nil {
		return nil, fmt.Errorf("table of Go functions: %w", err)
	}
	return parseGoTable(data, f.ByteOrder, text.SectionHeader, left), nil
}

// parseGoTable reads the header and the table of functions (src/runtime/symtab.go: pcHeader, functab, _func): pairs of
// 4-byte offsets, from the text and from the table itself, then a last offset from the text. An entry that leads out of
// the data ends it.
func parseGoTable(data []byte, order binary.ByteOrder, text elf.SectionHeader, left *tableBudget) []symbol {
	const (
		magic118 = 0xfffffff0 // Go 1.18
		magic120 = 0xfffffff1 // Go 1.20
		header   = 8          // magic, two zeros, instruction size, pointer size
	)
	if len(data) < header || data[7] != 8 && data[7] != 4 {
		return nil
	}
	if m := order.Uint32(data); m != magic118 && m != magic120 {
		return nil
	}
	word := func(i uint64) uint64 { // pointer-sized field i of the header
		at := header + i*uint64(data[7])
		switch {
		case at+8 > uint64(len(data)):
			return 0
		case data[7] == 4:
			return uint64(order.Uint32(data[at:]))
		}
		return order.Uint64(data[at:])
	}
	// The fields are: functions, files, start of the text, names, compilation units, files' names, tables of numbers,
	// functions. The start is not yet known to a file that is relocated; it begins with .text unless C's start-up does.
	count, start, nameAt, funcAt := word(0), word(2), word(3), word(7)
	if start < text.Addr || start-text.Addr >= text.Size {
		start = text.Addr
	}
	if nameAt >= uint64(len(data)) || funcAt >= uint64(len(data)) {
		return nil
	}
	names, functions := nameTable{data: data[nameAt:], left: left}, data[funcAt:]
	var list []symbol
	for i := uint64(0); i < count && (i+1)*8+4 <= uint64(len(functions)) && left.take(); i++ {
		from, info, to := order.Uint32(functions[i*8:]), uint64(order.Uint32(functions[i*8+4:])), order.Uint32(functions[i*8+8:])
		if info+8 > uint64(len(functions)) {
			break
		}
		// _func begins with the offset of its entry and that of its name, of 4 bytes each.
		name := names.at(order.Uint32(functions[info+4:]))
		list = append(list, symbol{at: start + uint64(from), end: start + uint64(to), name: name})
	}
	return list
}
