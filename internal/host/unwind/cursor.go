package unwind

import (
	"bytes"
	"encoding/binary"
)

// A cursor reads numbers. Past the end all numbers are 0, and bad is set.
type cursor struct {
	rest    []byte
	address uint64 // of rest
	bad     bool
}

func (c *cursor) take(n uint64) []byte {
	if n > uint64(len(c.rest)) {
		n, c.bad = uint64(len(c.rest)), true
	}
	b := c.rest[:n]
	c.rest, c.address = c.rest[n:], c.address+n
	return b
}

// number reads an unsigned number of up to 8 bytes.
func (c *cursor) number(size uint64) uint64 {
	var b [8]byte
	copy(b[:], c.take(size))
	return binary.LittleEndian.Uint64(b[:])
}

func (c *cursor) text() []byte {
	n := bytes.IndexByte(c.rest, 0)
	if n < 0 {
		c.bad = true
		return nil
	}
	b := c.take(uint64(n))
	c.take(1)
	return b
}

// block reads a number, and then so many bytes.
func (c *cursor) block() []byte { return c.take(c.unsigned()) }

// unsigned reads a ULEB128 (DWARF 5, 7.6). It keeps the low 64 bits of a longer number.
func (c *cursor) unsigned() uint64 {
	n, _ := c.leb128()
	return n
}

// signed reads an SLEB128.
func (c *cursor) signed() int64 {
	n, bits := c.leb128()
	if bits < 64 && n>>(bits-1)&1 != 0 {
		n |= ^uint64(0) << bits
	}
	return int64(n)
}

func (c *cursor) leb128() (n uint64, bits uint) {
	for {
		b := c.number(1)
		n |= b & 0x7f << bits
		bits += 7
		if b < 0x80 {
			return n, bits
		}
	}
}

// How an address is written (LSB 5.0, 10.5.1): its size and sign, and what it counts from.
const (
	sizeOfPointer = 0x0f
	fromHere      = 0x10
	indirect      = 0x80
)

func (c *cursor) pointer(how byte) uint64 {
	here, n := uint64(0), uint64(0)
	switch how &^ sizeOfPointer {
	case 0:
	case fromHere:
		here = c.address
	default:
		c.bad = true
	}
	switch how & sizeOfPointer {
	case 0x00, 0x04, 0x0c:
		n = c.number(8)
	case 0x03:
		n = c.number(4)
	case 0x0b:
		n = uint64(int64(int32(c.number(4))))
	default:
		c.bad = true
	}
	return here + n
}
