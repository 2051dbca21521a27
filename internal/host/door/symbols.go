package door

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"
)

// The owner of a program controls what its ELF file says, such as a table of 40 GB in a sparse file or a compressed
// section. So debug/elf only reads the headers; this file reads the tables, within bounds.
const (
	// maxSymbolTable bounds a symbol table and its names, in bytes: libjvm.so has 3 MB and 10 MB, a Chromium 24 MB
	// and 60 MB.
	maxSymbolTable = 64 << 20
	// maxNames bounds the names kept of all files, in bytes. Symbols may share the end of one long name, so the size of
	// the table of names does not. libjvm.so has 10 MB.
	maxNames = 32 << 20
	// maxSymbols bounds the functions kept of all files: libjvm.so has 120,000. At 16 bytes each they are 16 MiB.
	maxSymbols = 1 << 20
	// symbolsAtOnce is how much of a symbol table is read at once, in bytes: 2730 entries.
	symbolsAtOnce = 64 << 10
	// freedAtOnce is the size, in bytes, from which on names do not wait for the garbage collector: those of
	// libjvm.so have 10 MB.
	freedAtOnce = 32 << 20
	// namesAtOnce is how much room for names is allocated at once, in bytes: one allocation per name takes longer
	// than reading it. A name that is kept keeps that much memory.
	namesAtOnce = 4 << 10
	// usualName is how much is read of a name at first, in bytes: three in four of libjvm.so and node are shorter.
	usualName = 128
	// MaxName bounds one name, in bytes. The longest that g++ wrote for Boost are some 3,000.
	MaxName = 4096
)

// oneTable allows one table in memory at a time: collectors look into files concurrently, and 64 MiB for each of them
// are more than the unit grants.
var oneTable sync.Mutex

// ErrTooLarge is wrapped by the errors about tables past these bounds.
var ErrTooLarge = errors.New("its tables are larger than perfdoctor reads")

// A TableBudget is what may still be kept of all files' tables.
type TableBudget struct {
	symbols int // functions
	names   int // bytes
}

// NewTableBudget returns the budget of one run.
func NewTableBudget() *TableBudget { return &TableBudget{symbols: maxSymbols, names: maxNames} }

// Take reports whether one more function may be kept.
func (b *TableBudget) Take() bool {
	if b.symbols <= 0 {
		return false
	}
	b.symbols--
	return true
}

// Symbol is an entry of a symbol table (gABI, Symbol Table).
type Symbol struct {
	Kind        elf.SymType
	Index       elf.SectionIndex // of the section that it is in
	Value, Size uint64           // address and bytes

	nameAt uint32     // where its name begins in the table of names
	names  *NameTable // nil in [SymbolTable.Each]
}

// Named reports whether the symbol has a name.
func (s Symbol) Named() bool { return s.nameAt != 0 }

// Name returns the name of a symbol of [EachSymbol], which takes a part of the budget.
func (s Symbol) Name() string { return s.names.At(s.nameAt) }

// Section reads a section of at most so many bytes. The size of a compressed section is that after decompression, and
// debug/elf reads no more. [elf.Section.Data] would take twice the memory, as it grows what it reads into.
func Section(s *elf.Section, most uint64) ([]byte, error) {
	if s.Size > most {
		return nil, fmt.Errorf("%w: section %.20q has %d bytes, at most %d are read", ErrTooLarge, s.Name, s.Size, most)
	}
	if s.Type == elf.SHT_NOBITS {
		return nil, fmt.Errorf("section %.20q is not in the file", s.Name)
	}
	data := make([]byte, s.Size)
	_, err := io.ReadFull(s.Open(), data)
	return data, err
}

// A SymbolTable is a symbol table of a file. It reads the table once, and a name when it is asked for, so that it keeps
// neither in memory. The file must stay open meanwhile.
type SymbolTable struct {
	file         *elf.File
	table, names *elf.Section
	entry        int // size of one symbol in bytes
}

// SymbolsOf returns the symbol table of a kind; nil if the file has none. Its error is a table past the bounds, or one
// that does not say where its names are.
func SymbolsOf(f *elf.File, kind elf.SectionType) (*SymbolTable, error) {
	table := f.SectionByType(kind)
	if table == nil {
		return nil, nil
	}
	if uint64(table.Link) >= uint64(len(f.Sections)) {
		return nil, errors.New("the symbol table has no names")
	}
	for _, s := range []*elf.Section{table, f.Sections[table.Link]} {
		if s.Size > maxSymbolTable {
			return nil, fmt.Errorf("%w: section %.20q has %d bytes, at most %d are read", ErrTooLarge, s.Name, s.Size,
				maxSymbolTable)
		}
	}
	t := &SymbolTable{file: f, table: table, names: f.Sections[table.Link], entry: elf.Sym64Size}
	if f.Class == elf.ELFCLASS32 {
		t.entry = elf.Sym32Size
	}
	return t, nil
}

// Len is the number of symbols.
func (t *SymbolTable) Len() int { return int(t.table.Size) / t.entry }

// Each calls do for each symbol with its number, and without its name.
func (t *SymbolTable) Each(do func(n uint32, s Symbol)) error {
	entry := make([]byte, t.entry)
	r := bufio.NewReaderSize(t.table.Open(), symbolsAtOnce) // else each entry would be a system call
	for n := range t.Len() {
		if _, err := io.ReadFull(r, entry); err != nil {
			return fmt.Errorf("symbol table: %w", err)
		}
		do(uint32(n), decodeSymbol(t.file, entry))
	}
	return nil
}

// Name reads the name of a symbol by its number, cut at MaxName; it returns "" if it cannot be read, or if the section
// is compressed, which linkers do not do to names.
func (t *SymbolTable) Name(n uint32) string {
	var at [4]byte
	if t.table.ReaderAt == nil || t.names.ReaderAt == nil {
		return ""
	}
	if _, err := t.table.ReadAt(at[:], int64(n)*int64(t.entry)); err != nil {
		return ""
	}
	offset := int64(t.file.ByteOrder.Uint32(at[:]))
	for _, size := range []int{usualName, MaxName} {
		b := make([]byte, size)
		read, err := t.names.ReadAt(b, offset)
		if i := bytes.IndexByte(b[:read], 0); i >= 0 {
			return string(b[:i])
		}
		if err != nil { // the section ends within the name
			return ""
		}
		if size == MaxName {
			return string(b)
		}
	}
	return ""
}

// EachSymbol calls do for each entry of the symbol tables of a kind. A file without one has no entries. Until it
// returns, no table of another file is read.
func EachSymbol(f *elf.File, kind elf.SectionType, left *TableBudget, do func(Symbol)) error {
	t, err := SymbolsOf(f, kind)
	if t == nil || err != nil {
		return err
	}
	oneTable.Lock()
	defer oneTable.Unlock()
	data, err := Section(t.names, maxSymbolTable)
	if err != nil {
		return err
	}
	names := NameTable{Data: data, Left: left, once: namesAtOnce}
	err = t.Each(func(_ uint32, s Symbol) {
		s.names = &names
		do(s)
	})
	if t.names.Size > freedAtOnce {
		debug.FreeOSMemory() // before the next table is read
	}
	return err
}

func decodeSymbol(f *elf.File, b []byte) Symbol {
	o := f.ByteOrder
	if f.Class == elf.ELFCLASS32 {
		return Symbol{
			nameAt: o.Uint32(b), Value: uint64(o.Uint32(b[4:])), Size: uint64(o.Uint32(b[8:])),
			Kind: elf.ST_TYPE(b[12]), Index: elf.SectionIndex(o.Uint16(b[14:])),
		}
	}
	return Symbol{
		nameAt: o.Uint32(b), Kind: elf.ST_TYPE(b[4]), Index: elf.SectionIndex(o.Uint16(b[6:])),
		Value: o.Uint64(b[8:]), Size: o.Uint64(b[16:]),
	}
}

// NameTable reads names from a table of zero-terminated strings, within a budget.
type NameTable struct {
	Data []byte
	Left *TableBudget
	once int             // room to allocate at once, if more than for one name
	room strings.Builder // of the last names returned
}

// At returns the name at an offset, cut at MaxName; it returns "" outside of the table and when the budget is spent.
func (t *NameTable) At(offset uint32) string {
	if uint64(offset) >= uint64(len(t.Data)) {
		return ""
	}
	name := t.Data[offset:min(uint64(offset)+MaxName, uint64(len(t.Data)))]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	if len(name) > t.Left.names {
		return ""
	}
	t.Left.names -= len(name)
	if t.room.Cap()-t.room.Len() < len(name) {
		t.room = strings.Builder{}
		t.room.Grow(max(len(name), t.once))
	}
	from := t.room.Len()
	t.room.Write(name)
	return t.room.String()[from:]
}
