package python

import (
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// A code is what is known of a code object: a function, a class body or a module.
type code struct {
	head       [codeSize]byte // to notice that another object has taken its place
	looked     int            // when that was last checked
	name, file string
	first      int // line
	table      []byte
	lines      map[uint64]int
}

const (
	// maxCodes bounds the code objects that are kept: a program runs some thousands.
	maxCodes = 1 << 15
	// maxString bounds a name or a path, in characters, and maxTable the line table of one function, in bytes: that of
	// a module with 20,000 lines has 60 KB.
	maxString = 1024
	maxTable  = 256 << 10
	// maxTables bounds the size of all tables.
	maxTables = 16 << 20
)

// lookAgain is for how many lists of the threads a code object is trusted, one or two seconds. Another object may take
// the place of one that is gone, but in few programs this happens often.
const lookAgain = 16

// code returns the code object at an address. Now and then it compares the first bytes of the object with those that
// it read before.
func (p *Process) code(at uint64) (*code, error) {
	known := p.codes[at]
	if known != nil && p.look-known.looked < lookAgain {
		return known, nil
	}
	var head [codeSize]byte
	if err := p.read(at, head[:]); err != nil {
		return nil, err
	}
	l := &p.layout
	if binary.LittleEndian.Uint64(head[l.objectType:]) != p.codeType {
		return nil, ErrChanged
	}
	if known != nil && p.same(&known.head, &head) {
		known.looked = p.look
		return known, nil
	}
	word := func(offset uint64) uint64 { return binary.LittleEndian.Uint64(head[offset:]) }
	c := &code{head: head, looked: p.look, first: int(int32(word(l.firstLine))), lines: map[uint64]int{}}
	name := l.name
	if l.qualName != 0 {
		name = l.qualName
	}
	var err error
	if c.name, err = p.text(word(name)); err != nil {
		return nil, err
	}
	if c.file, err = p.text(word(l.file)); err != nil {
		return nil, err
	}
	if c.table, err = p.bytes(word(l.lines)); err != nil {
		return nil, err
	}
	if known == nil && len(p.codes) >= maxCodes {
		return c, nil
	}
	p.codes[at] = c
	return c, nil
}

// same reports whether two looks at one address saw the same object, by what it points to.
func (p *Process) same(x, y *[codeSize]byte) bool {
	for _, at := range []uint64{p.layout.name, p.layout.file, p.layout.lines} {
		if [8]byte(x[at:at+8]) != [8]byte(y[at:at+8]) {
			return false
		}
	}
	return [4]byte(x[p.layout.firstLine:]) == [4]byte(y[p.layout.firstLine:])
}

// bytes reads a bytes object; it returns nothing for one that is too large.
func (p *Process) bytes(at uint64) ([]byte, error) {
	size, err := p.read.Word(at + p.layout.bytesSize)
	if err != nil || size == 0 || size > maxTable || p.tables+int(size) > maxTables {
		return nil, err
	}
	out := make([]byte, size)
	p.tables += len(out)
	return out, p.read(at+p.layout.bytesData, out)
}

// kindShift is how many bits precede the kind of a string in its state: those of interned (cpython/unicodeobject.h).
const kindShift = 2

// text reads a string. All forms but those of subclasses hold their characters behind the head (PEP 393).
func (p *Process) text(at uint64) (string, error) {
	l := &p.layout
	length, err := p.read.Word(at + l.length)
	if err != nil {
		return "", err
	}
	var state [4]byte
	if err := p.read(at+l.state, state[:]); err != nil {
		return "", err
	}
	bits := binary.LittleEndian.Uint32(state[:]) >> kindShift
	width, isCompact, isASCII := uint64(bits&7), bits>>3&1 == 1, bits>>4&1 == 1
	if length == 0 || !isCompact || width != 1 && width != 2 && width != 4 {
		return "", ErrChanged
	}
	begin := l.compact
	if isASCII {
		begin = l.ascii
	}
	raw := make([]byte, min(length, maxString)*width)
	if err := p.read(at+begin, raw); err != nil {
		return "", err
	}
	return decode(raw, int(width)), nil
}

// decode reads characters of one, two or four bytes each.
func decode(raw []byte, width int) string {
	var out []byte
	for i := 0; i+width <= len(raw); i += width {
		r := rune(raw[i])
		switch width {
		case 2:
			r = rune(binary.LittleEndian.Uint16(raw[i:]))
		case 4:
			r = rune(binary.LittleEndian.Uint32(raw[i:]) & 0x1fffff)
		}
		if utf16.IsSurrogate(r) { // a byte of a file name that is not text (PEP 383)
			r = utf8.RuneError
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}

// line returns the line of an instruction, which is given in bytes, or in 3.10 in units, from the beginning.
func (c *code) line(instruction uint64, table lineTable) int {
	if line, known := c.lines[instruction]; known {
		return line
	}
	line := 0
	switch table {
	case lnotab:
		line = lineOfNotab(c.table, c.first, instruction)
	case linePairs:
		line = lineOfPairs(c.table, c.first, 2*instruction) // units of two bytes
	case lineCounts:
		line = lineOfCounts(c.table, c.first, instruction)
	}
	c.lines[instruction] = line
	return line
}

// lineOfNotab follows the steps of an address and a line (PyCode_Addr2Line of 3.9).
func lineOfNotab(table []byte, line int, at uint64) int {
	address := uint64(0)
	for i := 0; i+1 < len(table); i += 2 {
		if address += uint64(table[i]); address > at {
			break
		}
		line += int(int8(table[i+1]))
	}
	return line
}

// noLine is the step of an entry without a line (Objects/lnotab_notes.txt of 3.10).
const noLine = -128

// lineOfPairs follows ranges: each entry has the number of bytes that it covers, and the step to its line.
func lineOfPairs(table []byte, line int, at uint64) int {
	end := uint64(0)
	for i := 0; i+1 < len(table); i += 2 {
		step := int(int8(table[i+1]))
		if step != noLine {
			line += step
		}
		if end += uint64(table[i]); at < end {
			if step == noLine {
				return 0
			}
			return line
		}
	}
	return 0
}

// lineOfCounts reads the table of locations (Objects/locations.md of 3.11): each entry begins with a byte whose highest
// bit is set, with a code of four bits and the number of units of two bytes, less one.
func lineOfCounts(table []byte, line int, at uint64) int {
	end := uint64(0)
	for i := 0; i < len(table); {
		kind := table[i] >> 3 & 15
		end += 2 * uint64(table[i]&7+1)
		i++
		step, has := 0, true
		switch {
		case kind == 15:
			has = false
		case kind == 13 || kind == 14:
			step, _ = signedNumber(table[i:])
		case kind >= 10:
			step = int(kind) - 10
		}
		line += step
		if at < end {
			if !has {
				return 0
			}
			return line
		}
		for i < len(table) && table[i]&0x80 == 0 {
			i++
		}
	}
	return 0
}

// signedNumber reads a number in groups of six bits, the lowest first, whose lowest bit is its sign; n is how many
// bytes it took.
func signedNumber(b []byte) (value, n int) {
	number := uint32(0)
	for shift := 0; n < len(b) && shift < 30; shift += 6 {
		number |= uint32(b[n]&0x3f) << shift
		n++
		if b[n-1]&0x40 == 0 {
			break
		}
	}
	if number&1 != 0 {
		return -int(number >> 1), n
	}
	return int(number >> 1), n
}
