package node

import (
	"encoding/binary"
	"errors"
	"unicode/utf16"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

// errObject says that an object is not of the expected type.
var errObject = errors.New("it is another object")

// A heap reads objects of V8. A word is the address of an object if its lowest two bits are 01. If its lowest bit is
// 0, it has a small integer in its upper half (include/v8-internal.h; Node does not compress pointers).
type heap struct {
	read   memory.Reader
	layout heapLayout
	types  map[uint64]uint16 // by the addresses of maps
}

func isObject(word uint64) bool { return word&3 == 1 }

func isSmall(word uint64) bool { return word&(1<<32-1) == 0 }

func small(word uint64) int { return int(int32(word >> 32)) }

// maxTypes bounds the maps that are kept.
const maxTypes = 1 << 12

// object checks that a word is the address of an object, and returns the address and the object's type.
func (h *heap) object(word uint64) (at uint64, typ uint16, err error) {
	if !isObject(word) {
		return 0, 0, errObject
	}
	at = word &^ 3
	m, err := h.read.Word(at)
	if err != nil {
		return 0, 0, err
	}
	typ, err = h.typeOf(m)
	return at, typ, err
}

// typeOf returns the type that a map stands for.
func (h *heap) typeOf(m uint64) (uint16, error) {
	if !isObject(m) {
		return 0, errObject
	}
	if typ, known := h.types[m]; known {
		return typ, nil
	}
	var b [2]byte
	if err := h.read(m&^3+h.layout.instanceType, b[:]); err != nil {
		return 0, err
	}
	typ := binary.LittleEndian.Uint16(b[:])
	if len(h.types) < maxTypes {
		h.types[m] = typ
	}
	return typ, nil
}

// field reads the object that a field leads to.
func (h *heap) field(at uint64) (object uint64, typ uint16, err error) {
	word, err := h.read.Word(at)
	if err != nil {
		return 0, 0, err
	}
	return h.object(word)
}

const (
	// maxName bounds a name or a path, in characters.
	maxName = 1024
	// maxParts bounds the strings that a string is made of, including itself: a name that V8 worked out has a few.
	maxParts = 16
)

// name returns the first characters of a string.
func (h *heap) name(word uint64) (string, error) {
	var units []uint16
	parts := maxParts
	err := h.text(word, &parts, func(part []uint16) bool {
		units = append(units, part[:min(len(part), maxName-len(units))]...)
		return len(units) < maxName
	})
	return string(utf16.Decode(units)), err
}

// text passes a string to take piece by piece, until take does not want more. It fails if the string has more than
// that many parts.
func (h *heap) text(word uint64, parts *int, take func([]uint16) (more bool)) error {
	l := &h.layout
	at, typ, err := h.object(word)
	if err != nil {
		return err
	}
	if typ >= l.firstNonString || *parts == 0 {
		return errObject
	}
	*parts--
	var size [4]byte
	if err := h.read(at+l.length, size[:]); err != nil {
		return err
	}
	length := uint64(binary.LittleEndian.Uint32(size[:]))
	width := uint64(2)
	if typ&l.encoding == l.isOneByte {
		width = 1
	}
	switch typ & l.representation {
	case l.seq:
		if width == 1 {
			return h.characters(at+l.oneByte, length, 1, take)
		}
		return h.characters(at+l.twoByte, length, 2, take)
	case l.external:
		return h.externalText(at, length, width, take)
	case l.thin:
		return h.textAt(at+l.actual, parts, take)
	case l.cons:
		more := true
		err := h.textAt(at+l.first, parts, func(part []uint16) bool {
			more = take(part)
			return more
		})
		if err != nil || !more {
			return err
		}
		return h.textAt(at+l.second, parts, take)
	}
	return errObject // a slice: no name or source is one
}

func (h *heap) textAt(at uint64, parts *int, take func([]uint16) bool) error {
	word, err := h.read.Word(at)
	if err != nil {
		return err
	}
	return h.text(word, parts, take)
}

// externalText reads a string whose characters are outside of the heap, as in Node's own scripts: a resource has its
// table of functions, and then the address of the characters (node::StaticExternalByteResource,
// src/node_union_bytes.h).
func (h *heap) externalText(at, length, width uint64, take func([]uint16) bool) error {
	resource, err := h.read.Word(at + h.layout.resource)
	if err != nil {
		return err
	}
	data, err := h.read.Word(resource + wordSize)
	if err != nil {
		return err
	}
	return h.characters(data, length, width, take)
}

// piece is how many characters are read at once.
const piece = 16 << 10

func (h *heap) characters(at, length, width uint64, take func([]uint16) bool) error {
	raw := make([]byte, min(length, piece)*width)
	units := make([]uint16, 0, min(length, piece))
	for length > 0 {
		n := min(length, piece)
		if err := h.read(at, raw[:n*width]); err != nil {
			return err
		}
		units = units[:0]
		for i := range n {
			if width == 1 {
				units = append(units, uint16(raw[i]))
			} else {
				units = append(units, binary.LittleEndian.Uint16(raw[2*i:]))
			}
		}
		if !take(units) {
			return nil
		}
		at, length = at+n*width, length-n
	}
	return nil
}
