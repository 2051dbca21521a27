package jfr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// window is how much of the file is in memory, and so it bounds one string. async-profiler cuts its strings at 8 KiB
// (MAX_STRING_LENGTH, src/flightRecorder.cpp).
const window = 256 << 10

// errShort says that a number, string or event extends beyond the end of what holds it.
var errShort = errors.New("the file is truncated or damaged")

// A cursor reads the part of a file up to end through a window. It keeps its first error, and every number after that
// is 0.
type cursor struct {
	r    io.ReaderAt
	buf  []byte // what is in memory, and not yet read from pos on
	pos  int
	base int64 // offset of buf[0] in the file
	end  int64 // of what is read, such as one event
	last int64 // of the part
	err  error
	kept []byte // buf as it was when err came
}

func newCursor(r io.ReaderAt, from, end int64) *cursor {
	return &cursor{r: r, buf: make([]byte, 0, window), base: from, end: end, last: end}
}

func (c *cursor) offset() int64 { return c.base + int64(c.pos) }

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err, c.kept = fmt.Errorf("at byte %d: %w", c.offset(), err), c.buf
	}
	c.buf, c.pos = c.buf[:0], 0
}

// restart continues at an offset before or after this one, and clears the error.
func (c *cursor) restart(to int64) {
	if c.err != nil {
		c.buf, c.err = c.kept, nil
	}
	if in := to - c.base; in >= 0 && in <= int64(len(c.buf)) {
		c.pos = int(in)
		return
	}
	c.buf, c.pos, c.base = c.buf[:0], 0, to
}

// fill loads n bytes into memory, at most window, or fewer if the end comes first.
func (c *cursor) fill(n int) {
	if len(c.buf)-c.pos >= n || c.err != nil || c.base+int64(len(c.buf)) >= c.last {
		return
	}
	have := copy(c.buf[:cap(c.buf)], c.buf[c.pos:])
	c.base += int64(c.pos)
	c.pos = 0
	want := min(int64(cap(c.buf)), c.last-c.base)
	got, err := c.r.ReadAt(c.buf[have:want], c.base+int64(have))
	c.buf = c.buf[:have+got]
	if int64(have+got) < want {
		c.fail(errors.Join(errShort, err))
	}
}

// seek continues at an offset that is not before this one.
func (c *cursor) seek(to int64) {
	switch {
	case to < c.offset() || to > c.end:
		c.fail(errShort)
	case to <= c.base+int64(len(c.buf)):
		c.pos = int(to - c.base)
	default:
		c.buf, c.pos, c.base = c.buf[:0], 0, to
	}
}

// number reads a variable-length integer: 7 bits a byte, the lowest first, and 8 in the ninth.
func (c *cursor) number() uint64 {
	const most = 9
	if c.pos < len(c.buf) && c.buf[c.pos] < 0x80 { // as most are
		c.pos++
		return uint64(c.buf[c.pos-1])
	}
	if len(c.buf)-c.pos < most {
		c.fill(most)
	}
	var v uint64
	for i, b := range c.buf[c.pos:min(c.pos+most, len(c.buf))] {
		if i == most-1 || b < 0x80 {
			c.pos += i + 1
			return v | uint64(b)<<(7*i)
		}
		v |= uint64(b&0x7f) << (7 * i)
	}
	c.fail(errShort)
	return 0
}

// count reads how many items follow, of at least a byte each.
func (c *cursor) count() int {
	n := c.number()
	if left := c.end - c.offset(); left < 0 || n > uint64(left) {
		c.fail(errShort)
		return 0
	}
	return int(n)
}

// bytes returns the next n bytes, valid until the next read.
func (c *cursor) bytes(n int) []byte {
	c.fill(n)
	if n > len(c.buf)-c.pos {
		c.fail(errShort)
		return nil
	}
	c.pos += n
	return c.buf[c.pos-n : c.pos]
}

func (c *cursor) byte() byte {
	if b := c.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) big64() uint64 {
	if b := c.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// The encodings of a string (jdk.jfr.internal.consumer.StringParser).
const (
	stringNull = iota
	stringEmpty
	stringPooled
	stringUTF8
	stringChars
	stringLatin1
)

// text reads a string if keep is set, and else skips it. async-profiler writes every string where it is used: one in
// the string pool is left empty.
func (c *cursor) text(keep bool) string {
	switch encoding := c.byte(); encoding {
	case stringNull, stringEmpty:
	case stringPooled:
		c.number()
	case stringUTF8, stringLatin1:
		return c.plain(keep, encoding == stringLatin1)
	case stringChars:
		var chars []rune
		for n := c.count(); n > 0 && c.err == nil; n-- {
			if char := c.number(); keep && len(chars) < window {
				chars = append(chars, rune(char))
			}
		}
		return string(chars)
	default:
		c.fail(fmt.Errorf("there is no string encoding %d", encoding))
	}
	return ""
}

func (c *cursor) plain(keep, latin1 bool) string {
	n := c.count()
	if !keep {
		c.seek(c.offset() + int64(n))
		return ""
	}
	b := c.bytes(n)
	if !latin1 {
		return string(b)
	}
	chars := make([]rune, len(b))
	for i, x := range b {
		chars[i] = rune(x)
	}
	return string(chars)
}
