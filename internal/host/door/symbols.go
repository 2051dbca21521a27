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
	// maxSymbols bounds the functions kept of all files: libjvm.so has 120,000. At 56 bytes each they are 56 MiB.
	maxSymbols = 1 << 20
	// symbolsAtOnce is how much of a symbol table is read at once, in bytes: 2730 entries.
	symbolsAtOnce = 64 << 10
	// freedAtOnce is the size, in bytes, from which on names do not wait for the garbage collector: those of
	// libjvm.so have 10 MB.
	freedAtOnce = 32 << 20
	// namesAtOnce is how much room for names is allocated at once, in bytes: one allocation per name takes longer
	// than reading it. A name that is kept keeps that much memory.
	namesAtOnce = 4 << 10
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

// Symbol is an entry of a symbol table (gABI, Symbol Table) with its name.
type Symbol struct {
	Name        string
	Kind        elf.SymType
	Index       elf.SectionIndex // of the section that it is in
	Value, Size uint64           // address and bytes
}

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

// EachSymbol calls do for each entry of the symbol tables of a kind. A file without one has no entries. Until it
// returns, no table of another file is read.
func EachSymbol(f *elf.File, kind elf.SectionType, left *TableBudget, do func(Symbol)) error {
	table := f.SectionByType(kind)
	if table == nil {
		return nil
	}
	if uint64(table.Link) >= uint64(len(f.Sections)) {
		return errors.New("the symbol table has no names")
	}
	if table.Size > maxSymbolTable {
		return fmt.Errorf("%w: section %.20q has %d bytes, at most %d are read", ErrTooLarge, table.Name, table.Size,
			maxSymbolTable)
	}
	oneTable.Lock()
	defer oneTable.Unlock()
	err := eachOf(f, table, left, do)
	if f.Sections[table.Link].Size > freedAtOnce {
		debug.FreeOSMemory() // before the next table is read
	}
	return err
}

func eachOf(f *elf.File, table *elf.Section, left *TableBudget, do func(Symbol)) error {
	data, err := Section(f.Sections[table.Link], maxSymbolTable)
	if err != nil {
		return err
	}
	names := NameTable{Data: data, Left: left, once: namesAtOnce}
	entry := make([]byte, elf.Sym64Size)
	if f.Class == elf.ELFCLASS32 {
		entry = entry[:elf.Sym32Size]
	}
	r := bufio.NewReaderSize(table.Open(), symbolsAtOnce) // else each entry would be a system call
	for read := uint64(0); read+uint64(len(entry)) <= table.Size; read += uint64(len(entry)) {
		if _, err := io.ReadFull(r, entry); err != nil {
			return fmt.Errorf("symbol table: %w", err)
		}
		do(decodeSymbol(f, entry, &names))
	}
	return nil
}

func decodeSymbol(f *elf.File, b []byte, names *NameTable) Symbol {
	o := f.ByteOrder
	if f.Class == elf.ELFCLASS32 {
		return Symbol{
			Name: names.At(o.Uint32(b)), Value: uint64(o.Uint32(b[4:])), Size: uint64(o.Uint32(b[8:])),
			Kind: elf.ST_TYPE(b[12]), Index: elf.SectionIndex(o.Uint16(b[14:])),
		}
	}
	return Symbol{
		Name: names.At(o.Uint32(b)), Kind: elf.ST_TYPE(b[4]), Index: elf.SectionIndex(o.Uint16(b[6:])),
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
