package ruby

import "math/bits"

// The places of a method's lines are packed (succ_index_table in iseq.c): the first 54 instructions in six words of
// nine counts of seven bits, the others in blocks of 512 bits, each with the count before it and those of its words.
const (
	inCounts     = 54
	perCounts    = 9
	countBits    = 7
	blocksAt     = inCounts / perCounts * word
	blockBits    = 512
	blockSize    = 80
	blockRanks   = 8
	rankBits     = 9
	blockContent = 16
	maxLines     = 1 << 17
	maxPlace     = 1 << 24
)

// line returns the line of an instruction; 0 if it is not known. The counter is at the next instruction.
func (p *Process) line(m *method, counter uint64) int {
	place := (counter - m.code) / word
	if place > 0 {
		place--
	}
	if m.count == 0 || m.count > maxLines || place > maxPlace {
		return 0
	}
	if line, ok := m.known[place]; ok {
		return line
	}
	i, line := uint64(1), 0
	if m.count > 1 { // a single line has no places
		i = p.lineIndex(m.places, place)
	}
	if i > 0 && i <= uint64(m.count) {
		var text [4]byte
		if p.read(m.lines+(i-1)*p.layout.line, text[:]) == nil {
			line = int(word32(text[:], 0))
		}
	}
	if p.lines < maxKnownLines {
		m.known[place] = line
		p.lines++
	}
	return line
}

// lineIndex counts the lines that begin at a place or before it; 0 if the number is not known.
func (p *Process) lineIndex(places, place uint64) uint64 {
	if place < inCounts {
		counts, err := p.read.Word(places + place/perCounts*word)
		if err != nil {
			return 0
		}
		return counts >> (place % perCounts * countBits) & (1<<countBits - 1)
	}
	place -= inCounts
	var block [blockSize]byte
	if p.read(places+blocksAt+place/blockBits*blockSize, block[:]) != nil {
		return 0
	}
	bit := place % blockBits
	n := uint64(word32(block[:], 0))
	if i := bit / 64; i > 0 {
		n += word64(block[:], blockRanks) >> ((i - 1) * rankBits) & (1<<rankBits - 1)
	}
	content := word64(block[:], blockContent+int(bit/64)*word)
	return n + uint64(bits.OnesCount64(content<<(63-bit%64)))
}
