package stacks

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// What decoding takes at most, in bytes: the sizes of github.com/google/pprof's structs with their maps and slices, and of
// what is made of them. An empty message takes two bytes in the file, and 200 and more in memory.
const (
	maxDecoded   = 96 << 20 // of all profiles of a recording; 100,000 samples of 25 frames are 90 MiB
	weightObject = 256      // a sample, location, function or mapping
	weightLabel  = 512      // a label is two entries of maps
	weightByte   = 24       // of a list of numbers, which has a byte and more for each, and of names
	weightText   = 32       // a byte of the text form, where a name may have one
)

// The fields of pprof's proto/profile.proto that repeat.
const (
	fieldSample, fieldString = 2, 6
	fieldSampleLabel         = 3
)

// A Budget is the memory that decoding profiles may still take.
type Budget struct{ left int64 }

// NewBudget gives the budget of one recording.
func NewBudget() *Budget { return &Budget{left: maxDecoded} }

// TakeText takes what a profile in text form needs. The error says that it is more than is left.
func (b *Budget) TakeText(text []byte) error { return b.take(int64(len(text)) * weightText) }

func (b *Budget) take(n int64) error {
	if b.left -= n; b.left < 0 {
		return fmt.Errorf("the profiles would take more than %d MiB of memory", maxDecoded>>20)
	}
	return nil
}

// takePprof takes what an unpacked pprof file needs once it is decoded, and looks at its messages only for that.
func (b *Budget) takePprof(data []byte) error {
	return eachField(data, func(field protowire.Number, value []byte) error {
		switch field {
		case fieldString:
			return b.take(weightByte + int64(len(value)))
		case fieldSample:
			return b.takeSample(value)
		}
		return b.takeObject(value)
	})
}

func (b *Budget) takeSample(data []byte) error {
	if err := b.take(weightObject); err != nil {
		return err
	}
	return eachField(data, func(field protowire.Number, value []byte) error {
		if field == fieldSampleLabel {
			return b.take(weightLabel)
		}
		return b.take(weightByte * int64(max(len(value), 1)))
	})
}

// takeObject takes a message or list of another kind. A location has lines in it.
func (b *Budget) takeObject(data []byte) error {
	return b.take(weightObject + weightByte*int64(len(data)))
}

// eachField calls do for each field of a message, with the content of one that has a length.
func eachField(data []byte, do func(protowire.Number, []byte) error) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		var value []byte
		if kind == protowire.BytesType {
			value, n = protowire.ConsumeBytes(data)
		} else {
			n = protowire.ConsumeFieldValue(field, kind, data)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := do(field, value); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
