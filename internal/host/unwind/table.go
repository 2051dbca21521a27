// Package unwind walks the stack of a program that keeps no frame pointers. It uses the frame information that its
// files hold for exceptions: .eh_frame_hdr and .eh_frame (Linux Standard Base 5.0, 10.6; DWARF 5, 6.4). The files and
// the stack may be hostile: the package reads only what an address needs, each within a bound.
package unwind

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

const (
	// maxLoads bounds the segments kept of a file: linkers write four to six.
	maxLoads = 32
	// maxEntry bounds one entry of .eh_frame, in bytes: the interpreter loop of PostgreSQL has 2 KB.
	maxEntry = 64 << 10
	// maxRules bounds the rules kept of a file, of 100 bytes each: most stacks are made of some hundred places.
	maxRules = 2048
	// tableEntry is the size of an entry of the sorted table: two numbers of 4 bytes.
	tableEntry = 8
)

var errNoTable = errors.New("the file has no sorted table of its frames")

// A Table is what an ELF file says about its frames. It reads from the file as long as it is used, and is not for
// concurrent use.
type Table struct {
	file    io.ReaderAt
	loads   []elf.ProgHeader
	names   registerNames
	address uint64 // of .eh_frame_hdr
	entries uint64 // number in its table, which begins 12 bytes later
	rules   map[uint64]*rule
}

// registerNames are DWARF's numbers of registers.
type registerNames struct{ fp, sp, ra uint64 }

// Read finds the table of a file for amd64 or arm64.
func Read(file io.ReaderAt) (*Table, error) {
	f, err := door.ELF(file)
	if err != nil {
		return nil, err
	}
	t := &Table{file: file, rules: map[uint64]*rule{}}
	switch {
	case f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB:
		return nil, errNoTable
	case f.Machine == elf.EM_X86_64:
		t.names = registerNames{fp: 6, sp: 7, ra: 16} // System V ABI for x86-64, figure 3.36
	case f.Machine == elf.EM_AARCH64:
		t.names = registerNames{fp: 29, sp: 31, ra: 30} // DWARF for the Arm 64-bit Architecture, 4.1
	default:
		return nil, errNoTable
	}
	for _, p := range f.Progs {
		switch {
		case p.Type == elf.PT_LOAD && len(t.loads) < maxLoads:
			t.loads = append(t.loads, p.ProgHeader)
		case p.Type == elf.PT_GNU_EH_FRAME:
			t.address = p.Vaddr
		}
	}
	var header [12]byte
	// Version 1, then three encodings: relative to itself, a plain number, relative to the header, each of 4 bytes,
	// as all linkers write it.
	if t.address == 0 || !t.read(t.address, header[:]) || string(header[:4]) != "\x01\x1b\x03\x3b" {
		return nil, errNoTable
	}
	t.entries = uint64(binary.LittleEndian.Uint32(header[8:]))
	return t, nil
}

// Address returns the address, in the file's own terms, of what lies at an offset of the file.
func (t *Table) Address(offset uint64) (address uint64, ok bool) {
	for _, p := range t.loads {
		if offset >= p.Off && offset-p.Off < p.Filesz {
			return offset - p.Off + p.Vaddr, true
		}
	}
	return 0, false
}

// read fills a slice with what is at an address of the file.
func (t *Table) read(address uint64, into []byte) bool {
	for _, p := range t.loads {
		if at := address - p.Vaddr; at < p.Filesz && p.Filesz-at >= uint64(len(into)) {
			_, err := t.file.ReadAt(into, int64(p.Off+at))
			return err == nil
		}
	}
	return false
}

// rule returns the rule for leaving the function at an address; nil if the file has none.
func (t *Table) rule(pc uint64) *rule {
	if r, known := t.rules[pc]; known {
		return r
	}
	if len(t.rules) >= maxRules {
		clear(t.rules)
	}
	var found *rule
	if at, ok := t.search(pc); ok {
		found = t.follow(at, pc)
	}
	t.rules[pc] = found
	return found
}

// search returns the address of the entry of the last function that begins at or before an address.
func (t *Table) search(pc uint64) (entry uint64, ok bool) {
	var pair [tableEntry]byte
	low, high := uint64(0), t.entries // the last is at low-1
	for low < high {
		middle := (low + high) / 2
		if !t.read(t.address+12+middle*tableEntry, pair[:]) {
			return 0, false
		}
		if begin := t.address + signed(pair[:]); begin <= pc {
			entry, ok, low = t.address+signed(pair[4:]), true, middle+1
		} else {
			high = middle
		}
	}
	return entry, ok
}

// signed reads a signed number of 4 bytes, to be added to an address.
func signed(b []byte) uint64 { return uint64(int64(int32(binary.LittleEndian.Uint32(b)))) }

// entry reads an entry of .eh_frame. A length of 8 bytes is not read: no section is that long.
func (t *Table) entry(address uint64) (c cursor, ok bool) {
	var size [4]byte
	if !t.read(address, size[:]) {
		return c, false
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n < 4 || n > maxEntry {
		return c, false
	}
	c = cursor{rest: make([]byte, n), address: address + 4}
	return c, t.read(c.address, c.rest)
}

// A common is what several functions share (CIE).
type common struct {
	codeUnit uint64
	dataUnit int64
	pointers byte // how addresses are written
	extended bool // functions have more data before their instructions
	signal   bool // the frame of a signal: the function was not called
	code     cursor
}

func (t *Table) common(address uint64) (c common, ok bool) {
	e, ok := t.entry(address)
	if !ok || e.number(4) != 0 { // the mark of a common part
		return c, false
	}
	version := e.number(1)
	augmentation := e.text()
	c.codeUnit, c.dataUnit = e.unsigned(), e.signed()
	ra := e.number(1)
	if version != 1 && ra >= 0x80 { // from version 3 on it is a LEB128, and no register has a larger number
		return c, false
	}
	c.code = e
	if len(augmentation) == 0 {
		return c, ra == t.names.ra && !e.bad
	}
	data := cursor{rest: e.block(), address: e.address}
	c.code, c.extended = e, true
	known := augmentation[0] == 'z'
	for _, letter := range augmentation[1:] {
		known = known && c.augment(letter, &data)
	}
	return c, known && ra == t.names.ra && !e.bad && !data.bad
}

// augment reads the data for a letter of the augmentation (LSB 5.0, 10.6.1.1.1; AADWARF64, 5).
func (c *common) augment(letter byte, data *cursor) (known bool) {
	switch letter {
	case 'R':
		c.pointers = byte(data.number(1))
	case 'P':
		how := byte(data.number(1))
		data.pointer(how &^ indirect)
	case 'L':
		data.number(1)
	case 'S':
		c.signal = true
	case 'B', 'G': // which key signs return addresses; memory tags
	default:
		return false
	}
	return true
}

// Function returns where the function at an address begins, which a stripped file says, too. ok is false if the file
// has no function there. A function whose rare parts the compiler put elsewhere counts as several.
func (t *Table) Function(address uint64) (begin uint64, ok bool) {
	entry, ok := t.search(address)
	if !ok {
		return 0, false
	}
	_, _, begin, ok = t.enter(entry, address)
	return begin, ok
}

// enter reads the head of a function's entry, which its rules follow, and where the function begins. ok is false if
// the function ends before pc, or its entry is written in an unknown way.
func (t *Table) enter(entry, pc uint64) (e cursor, c common, begin uint64, ok bool) {
	if e, ok = t.entry(entry); !ok {
		return e, c, 0, false
	}
	at := e.address
	if c, ok = t.common(at - e.number(4)); !ok {
		return e, c, 0, false
	}
	begin = e.pointer(c.pointers)
	size := e.pointer(c.pointers & sizeOfPointer)
	if c.extended {
		e.block()
	}
	return e, c, begin, !e.bad && pc-begin < size
}

// follow reads the entry of a function up to an address in it; it returns nil if [Table.enter] finds none.
func (t *Table) follow(entry, pc uint64) *rule {
	e, c, begin, ok := t.enter(entry, pc)
	if !ok {
		return nil
	}
	m := machine{names: t.names, common: &c, at: begin, pc: pc}
	m.run(c.code)
	m.initial = m.row
	m.run(e)
	if m.failed {
		return nil
	}
	m.row.signal = c.signal
	return &m.row
}
