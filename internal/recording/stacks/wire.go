package stacks

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of pprof's messages that are read here (proto/profile.proto). pprof's own reader makes three maps and
// two lists for each sample, a kilobyte and more, so it reads only the tables.
const (
	fieldSampleLocations = 1
	fieldSampleValues    = 2
	fieldSampleLabels    = 3
	fieldLabelKey        = 1
	fieldLabelString     = 2
	fieldLabelNumber     = 3
)

// A wireField is one field of a message: bytes, or a number.
type wireField struct {
	number protowire.Number
	whole  []byte // with the tag
	bytes  []byte // nil for a number
	value  uint64
}

func eachField(data []byte, each func(wireField) error) error {
	for len(data) > 0 {
		number, kind, tag := protowire.ConsumeTag(data)
		if tag < 0 {
			return errPprofWire
		}
		n := protowire.ConsumeFieldValue(number, kind, data[tag:])
		if n < 0 {
			return errPprofWire
		}
		f := wireField{number: number, whole: data[:tag+n]}
		switch kind {
		case protowire.BytesType:
			f.bytes, _ = protowire.ConsumeBytes(data[tag:])
		case protowire.VarintType:
			f.value, _ = protowire.ConsumeVarint(data[tag:])
		default: // pprof has no fields of fixed length
			return errPprofWire
		}
		if err := each(f); err != nil {
			return err
		}
		data = data[tag+n:]
	}
	return nil
}

// splitPprof returns the message without its samples, and the table of strings to which the samples refer.
func splitPprof(data []byte) (tables []byte, strs []string, err error) {
	err = eachField(data, func(f wireField) error {
		if f.number == fieldSample {
			return nil
		}
		if f.number == fieldStrings {
			strs = append(strs, string(f.bytes))
		}
		tables = append(tables, f.whole...)
		return nil
	})
	return bytes.Clone(tables), strs, err // without what append keeps in reserve
}

// pprofSamples reads samples one by one. A sample's lists are valid until the next.
type pprofSamples struct {
	strings []string
	frames  map[uint64]int
	stack   []int
	values  []uint64
}

var errPprofSample = errors.New("a sample has a bad number, location, thread, state or class")

func (p *pprofSamples) read(data []byte) (Sample, Thread, error) {
	p.stack, p.values = p.stack[:0], p.values[:0]
	var s Sample
	var t Thread
	state := ""
	err := eachField(data, func(f wireField) error {
		switch f.number {
		case fieldSampleLocations:
			return eachNumber(f, p.addFrame)
		case fieldSampleValues:
			return eachNumber(f, func(v uint64) error {
				p.values = append(p.values, v)
				return nil
			})
		case fieldSampleLabels:
			return p.label(f.bytes, &s, &t, &state)
		}
		return nil
	})
	if err != nil {
		return s, t, err
	}
	if len(p.values) != 2 {
		return s, t, fmt.Errorf("a sample has %d values, want 2", len(p.values))
	}
	s.Count, s.Value = int64(p.values[0]), int64(p.values[1])
	i := slices.Index(stateNames[:], state)
	if s.Count < 0 || s.Value < 0 || s.At < 0 || i < 0 || t.ID < 0 || t.ID > 1<<31-1 || !valid(t.Name) ||
		!valid(s.Class) {
		return s, t, errPprofSample
	}
	s.State, s.Stack = State(i), p.stack
	return s, t, nil
}

func (p *pprofSamples) addFrame(id uint64) error {
	frame, known := p.frames[id]
	if !known {
		return errPprofSample
	}
	p.stack = append(p.stack, frame)
	return nil
}

// label reads a label. If a label is there twice, the first counts.
func (p *pprofSamples) label(data []byte, s *Sample, t *Thread, state *string) error {
	var key, text string
	var number int64
	err := eachField(data, func(f wireField) (err error) {
		switch f.number {
		case fieldLabelKey:
			key, err = p.text(f.value)
		case fieldLabelString:
			text, err = p.text(f.value)
		case fieldLabelNumber:
			number = int64(f.value)
		}
		return err
	})
	if err != nil {
		return err
	}
	switch key {
	case labelThread:
		t.Name = first(t.Name, text)
	case labelClass:
		s.Class = first(s.Class, text)
	case labelState:
		*state = first(*state, text)
	case labelTID:
		t.ID = first(t.ID, int(number))
	case labelAt:
		s.At = first(s.At, time.Duration(number))
	}
	return nil
}

func (p *pprofSamples) text(i uint64) (string, error) {
	if i >= uint64(len(p.strings)) {
		return "", errPprofSample
	}
	return p.strings[i], nil
}

// first returns x, unless it is the zero value.
func first[T comparable](x, y T) T {
	var none T
	if x != none {
		return x
	}
	return y
}

// eachNumber takes a number, or several that are packed.
func eachNumber(f wireField, each func(uint64) error) error {
	if f.bytes == nil {
		return each(f.value)
	}
	for data := f.bytes; len(data) > 0; {
		v, n := protowire.ConsumeVarint(data)
		if n < 0 {
			return errPprofWire
		}
		if err := each(v); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
