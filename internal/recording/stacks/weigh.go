package stacks

import (
	"errors"
	"fmt"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// What decoding pprof costs, in bytes of memory: pprof's structures with their places in lists and maps, and what the
// builder makes from them. All are rather too high.
const (
	messageWeight = 320 // Sample, Location, Function or Mapping
	nestedWeight  = 640 // Label: two or three maps of a sample; Line
	numberWeight  = 24  // a location of a sample: its id in a list that grows, and the pointer
	textWeight    = 32  // a string's header, in a list that grows
)

// The fields of pprof's Profile and of its messages that repeat (proto/profile.proto).
const (
	fieldSample  = 2
	fieldStrings = 6
)

var errPprofWire = errors.New("it is damaged")

// weighPprof estimates the memory that decoding takes, without decoding: an empty message may have two bytes in the
// file, and hundreds in memory. It stops once the estimate is above limit.
func weighPprof(data []byte, limit int) error {
	weight := len(data)
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errPprofWire
		}
		data = data[n:]
		n = protowire.ConsumeFieldValue(field, kind, data)
		if n < 0 {
			return errPprofWire
		}
		own, err := weighField(field, kind, data[:n])
		if err != nil {
			return err
		}
		if weight += own; weight > limit {
			return fmt.Errorf("decoding it takes more than %d MiB of memory", limit>>20)
		}
		data = data[n:]
	}
	return nil
}

func weighField(field protowire.Number, kind protowire.Type, value []byte) (int, error) {
	if kind != protowire.BytesType {
		return numberWeight, nil
	}
	content, n := protowire.ConsumeBytes(value)
	if n < 0 {
		return 0, errPprofWire
	}
	if field == fieldStrings {
		return textWeight, nil
	}
	weight := messageWeight
	for len(content) > 0 {
		_, kind, n := protowire.ConsumeTag(content)
		if n < 0 {
			// Not a message: packed numbers, each of a byte or more.
			return weight + len(content)*numberWeight, nil
		}
		content = content[n:]
		if n = protowire.ConsumeFieldValue(1, kind, content); n < 0 {
			return weight + len(content)*numberWeight, nil
		}
		weight += weighNested(field, kind, content[:n])
		content = content[n:]
	}
	return weight, nil
}

func weighNested(field protowire.Number, kind protowire.Type, value []byte) int {
	if kind != protowire.BytesType {
		return numberWeight
	}
	packed, n := protowire.ConsumeBytes(value)
	if n < 0 {
		return nestedWeight
	}
	if field != fieldSample {
		return nestedWeight
	}
	// Packed numbers of a sample, or a label: two to five numbers.
	numbers := 0
	for _, b := range packed {
		if b < 1<<7 { // the last byte of a varint
			numbers++
		}
	}
	return max(nestedWeight/4, numbers*numberWeight)
}

// Weight estimates the memory that the profile holds, in bytes. Stacks that samples share count once.
func (p *Profile) Weight() int {
	weight := len(p.Samples)*int(unsafe.Sizeof(Sample{})) + len(p.Frames)*int(unsafe.Sizeof(Frame{})) +
		len(p.Threads)*int(unsafe.Sizeof(Thread{}))
	for _, f := range p.Frames {
		weight += len(f.Name) + len(f.Module)
	}
	for _, t := range p.Threads {
		weight += len(t.Name)
	}
	seen := map[*int]bool{}
	for _, s := range p.Samples {
		weight += len(s.Class)
		if first := unsafe.SliceData(s.Stack); len(s.Stack) > 0 && !seen[first] {
			seen[first] = true
			weight += len(s.Stack) * int(unsafe.Sizeof(s.Stack[0]))
		}
	}
	return weight
}
