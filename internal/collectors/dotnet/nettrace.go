package dotnet

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"

	"github.com/perfdoctor/perfdoctor/internal/jvm/perfmap"
)

// The format of a NetTrace stream, version 4, is in microsoft/perfview,
// src/TraceEvent/EventPipe/NetTraceFormat_v5.md: objects one after another, most of them blocks of events.
const (
	streamMagic = "Nettrace\x14\x00\x00\x00!FastSerialization.1"
	// traceSize is the size of the first object, which says when and where the stream was made.
	traceSize = 48
	// maxBlock bounds a block: the runtime's are 100 KiB (EventPipeBlock in src/native/eventpipe/ep-block.c).
	maxBlock = 4 << 20
	// maxKinds bounds the kinds of events: the runtime has some 300.
	maxKinds = 10_000
	// maxMethods is the bound of a perf map, too: 100 bytes each.
	maxMethods = 600_000
)

// The tags of the stream.
const (
	tagNull = 1 // the end of the stream
	tagEnd  = 6 // of an object
)

// methodEnd is MethodDCEndVerbose of the provider below: a method that is compiled when the session ends
// (src/coreclr/vm/ClrEtwAll.man). The first fields are the same in all versions of the event.
const (
	rundown   = "Microsoft-Windows-DotNETRuntimeRundown"
	methodEnd = 144
)

var errCut = errors.New("its stream of events does not hold what it says")

// A kind of events, as the stream describes it.
type kind struct {
	provider string
	id       uint32
}

// decoder reads a stream. The bytes are the target's: each length is checked before it is used.
type decoder struct {
	in      *bufio.Reader
	at      int64 // bytes read
	kinds   map[uint32]kind
	methods []perfmap.Entry
}

// methodsOf returns the methods that a stream says are compiled.
func methodsOf(r io.Reader) ([]perfmap.Entry, error) {
	d := &decoder{in: bufio.NewReaderSize(r, 64<<10), kinds: map[uint32]kind{}}
	head, err := d.take(len(streamMagic))
	if err != nil {
		return nil, err
	}
	if string(head) != streamMagic {
		return nil, errors.New("it does not answer in the NetTrace format")
	}
	for {
		more, err := d.object()
		if err != nil || !more {
			return d.methods, err
		}
	}
}

func (d *decoder) take(n int) ([]byte, error) {
	b := make([]byte, n)
	read, err := io.ReadFull(d.in, b)
	d.at += int64(read)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: it ends in the middle", errCut)
	}
	return b, err
}

func (d *decoder) word() (uint32, error) {
	b, err := d.take(4)
	return binary.LittleEndian.Uint32(b), err
}

// object reads the next object; more is false at the end of the stream.
func (d *decoder) object() (more bool, err error) {
	tag, err := d.take(1)
	if err != nil || tag[0] == tagNull {
		return false, err
	}
	const fixed = 2 + 4 + 4 // two more tags, the version of the object, and of the reader it asks for
	if _, err := d.take(fixed); err != nil {
		return false, err
	}
	name, err := d.typeName()
	if err != nil {
		return false, err
	}
	if name == "Trace" {
		_, err = d.take(traceSize)
	} else {
		err = d.block(name)
	}
	if err != nil {
		return false, err
	}
	return true, d.end()
}

// typeName reads the name of an object's type, and its end.
func (d *decoder) typeName() (string, error) {
	const longest = 64
	n, err := d.word()
	if err != nil || n > longest {
		return "", errors.Join(err, errCut)
	}
	b, err := d.take(int(n))
	if err != nil {
		return "", err
	}
	return string(b), d.end()
}

func (d *decoder) end() error {
	b, err := d.take(1)
	if err == nil && b[0] != tagEnd {
		err = errCut
	}
	return err
}

// block reads a block of events, or of the descriptions of their kinds. It skips other blocks.
func (d *decoder) block(name string) error {
	size, err := d.word()
	if err != nil || size > maxBlock {
		return errors.Join(err, errCut)
	}
	if _, err := d.take(int(-d.at & 3)); err != nil { // the block begins at a multiple of four
		return err
	}
	b, err := d.take(int(size))
	if err != nil || name != "MetadataBlock" && name != "EventBlock" {
		return err
	}
	const flags, compressed = 2, 1
	if len(b) < 4 || int(binary.LittleEndian.Uint16(b)) > len(b) {
		return errCut
	}
	if binary.LittleEndian.Uint16(b[flags:])&compressed == 0 {
		return errors.New("its events have headers that are not compressed, as no release since .NET Core 3.0 has")
	}
	events := &fields{rest: b[binary.LittleEndian.Uint16(b):]}
	return d.events(events, name == "MetadataBlock")
}

// events reads the events of a block. A header has only what differs from the previous event's.
func (d *decoder) events(b *fields, describe bool) error {
	var id uint32
	var size uint64
	for len(b.rest) > 0 && !b.cut {
		flags := b.bytes(1)[0]
		id, size = b.header(flags, id, size)
		payload := &fields{rest: b.bytes(size)}
		switch {
		case b.cut:
		case describe:
			d.describe(payload)
		case d.kinds[id] == kind{rundown, methodEnd}:
			d.method(payload)
		}
		if len(d.methods) > maxMethods || len(d.kinds) > maxKinds {
			return fmt.Errorf("more than %d methods, or %d kinds of events", maxMethods, maxKinds)
		}
	}
	if b.cut {
		return errCut
	}
	return nil
}

// describe notes a kind of events.
func (d *decoder) describe(b *fields) {
	id := b.word()
	k := kind{provider: b.text()}
	k.id = b.word()
	if !b.cut {
		d.kinds[id] = k
	}
}

// method notes a method, if its event is complete.
func (d *decoder) method(b *fields) {
	const ids, tokenAndFlags = 16, 8 // of method and module
	b.bytes(ids)
	at := binary.LittleEndian.Uint64(b.bytes(8))
	size := b.word()
	b.bytes(tokenAndFlags)
	class, name := b.text(), b.text()
	if b.cut || size == 0 || name == "" || at+uint64(size) < at {
		return
	}
	if class != "" {
		name = class + "." + name
	}
	d.methods = append(d.methods, perfmap.Entry{Start: at, Size: uint64(size), Name: name})
}

// fields are what is left of a piece of the stream; cut says that more was asked for than is there.
type fields struct {
	rest []byte
	cut  bool
}

// bytes takes the next n bytes. If there are fewer, it returns zeros, enough for any read of a fixed length.
func (f *fields) bytes(n uint64) []byte {
	if n > uint64(len(f.rest)) {
		f.cut, f.rest = true, nil
		const longest = 16 // the longest read of a fixed length
		return make([]byte, longest)
	}
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) word() uint32 { return binary.LittleEndian.Uint32(f.bytes(4)) }

func (f *fields) varint() uint64 {
	v, n := binary.Uvarint(f.rest)
	if n <= 0 {
		f.cut, f.rest = true, nil
		return 0
	}
	f.rest = f.rest[n:]
	return v
}

// header reads the compressed header of an event, and returns the event's kind and size. It is given those of the
// previous event, which hold where the header leaves them out.
func (f *fields) header(flags byte, id uint32, size uint64) (kind uint32, payload uint64) {
	has := func(bit int) bool { return flags>>bit&1 != 0 }
	numbers := func(n int) {
		for range n {
			f.varint()
		}
	}
	if has(0) {
		id = uint32(f.varint())
	}
	if has(1) {
		numbers(3) // the number in its sequence, the thread and the CPU that wrote it
	}
	if has(2) {
		numbers(1) // the event's thread
	}
	if has(3) {
		numbers(1) // the stack
	}
	numbers(1) // the time
	const activity = 16
	for bit := 4; bit <= 5; bit++ {
		if has(bit) {
			f.bytes(activity)
		}
	}
	if has(7) { // 6 says that the events are sorted
		size = f.varint()
	}
	return id, size
}

// text takes a string in UTF-16 that ends with a zero.
func (f *fields) text() string {
	var units []uint16
	for {
		u := binary.LittleEndian.Uint16(f.bytes(2))
		if f.cut || u == 0 {
			return string(utf16.Decode(units))
		}
		units = append(units, u)
	}
}
