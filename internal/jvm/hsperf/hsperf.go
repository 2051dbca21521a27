// Package hsperf reads the counters that HotSpot keeps in a file in shared memory, /tmp/hsperfdata_USER/PID.
//
// The layout is that of PerfDataPrologue and PerfDataEntry in src/hotspot/share/runtime/perfMemory.hpp, version 2.0
// since JDK 5. The file belongs to the target and changes while it is read: nothing in it is trusted, and a number may
// be one update older than its neighbour.
package hsperf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Snapshot holds the counters at one moment. Names are those of `jcmd PID PerfCounter.print`. Times are in ticks, see
// [Snapshot.Seconds].
type Snapshot struct {
	Longs map[string]int64
	Texts map[string]string
}

// ErrStarting says that the JVM has not yet filled in the file.
var ErrStarting = errors.New("the JVM is starting: its counters are not ready")

// MaxSize bounds the file: it has -XX:PerfDataMemorySize bytes, 32 KiB unless set, and a JVM with every counter of
// every collector needs about half of that.
const MaxSize = 4 << 20

// Offsets and sizes in the prologue and in an entry.
const (
	magic          = 0xcafec0c0 // always big-endian
	offByteOrder   = 4
	offMajor       = 5
	offAccessible  = 7
	offEntryOffset = 24
	offNumEntries  = 28
	prologueSize   = 32

	entName       = 4
	entVector     = 8
	entType       = 12
	entDataOffset = 16
	entryHead     = 20
)

// Parse reads a whole file. An entry that does not fit into the file, or a number of a type that HotSpot does not
// write, is an error.
func Parse(b []byte) (Snapshot, error) {
	s := Snapshot{Longs: map[string]int64{}, Texts: map[string]string{}}
	if err := each(b, func(_ int, name string, entry []byte, order binary.ByteOrder) error {
		return s.value(entry, name, order)
	}); err != nil {
		return Snapshot{}, err
	}
	return s, nil
}

// Part says where some counters are in the file. HotSpot never moves them, so a frequent reader need not read the
// others.
type Part struct {
	At, Size int // the part of the file that holds them
	entries  map[string]place
	order    binary.ByteOrder
}

type place struct{ at, size int }

// Locate finds the counters with these names. Missing ones are left out of the part.
func Locate(b []byte, names map[string]bool) (Part, error) {
	p := Part{At: len(b), entries: map[string]place{}}
	end := 0
	err := each(b, func(at int, name string, entry []byte, order binary.ByteOrder) error {
		if names[name] {
			p.entries[name] = place{at, len(entry)}
			p.At, end, p.order = min(p.At, at), max(end, at+len(entry)), order
		}
		return nil
	})
	p.Size = max(end-p.At, 0)
	return p, err
}

// Has reports whether the part has a counter.
func (p Part) Has(name string) bool { return p.entries[name].size > 0 }

// Parse reads the counters of the part from b, its present content.
func (p Part) Parse(b []byte) (Snapshot, error) {
	s := Snapshot{Longs: map[string]int64{}, Texts: map[string]string{}}
	if len(b) != p.Size {
		return s, fmt.Errorf("%d bytes of %d", len(b), p.Size)
	}
	for name, e := range p.entries {
		if err := s.value(b[e.at-p.At:][:e.size], name, p.order); err != nil {
			return s, err
		}
	}
	return s, nil
}

// each calls visit for each entry.
func each(b []byte, visit func(at int, name string, entry []byte, order binary.ByteOrder) error) error {
	order, err := prologue(b)
	if err != nil {
		return err
	}
	at := int(int32(order.Uint32(b[offEntryOffset:])))
	n := int(int32(order.Uint32(b[offNumEntries:])))
	// Each entry takes at least its head and the end of its name.
	if at < prologueSize || at > len(b) || n < 0 || n > (len(b)-at)/entryHead {
		return fmt.Errorf("%d counters from byte %d on do not fit into %d bytes", n, at, len(b))
	}
	for i := range n {
		entry, name, err := first(b[at:], order)
		if err == nil {
			err = visit(at, name, entry, order)
		}
		if err != nil {
			return fmt.Errorf("counter %d of %d, at byte %d: %w", i+1, n, at, err)
		}
		at += len(entry)
	}
	return nil
}

func prologue(b []byte) (binary.ByteOrder, error) {
	if len(b) < prologueSize {
		return nil, fmt.Errorf("%d bytes are too few for the head of the counters", len(b))
	}
	if m := binary.BigEndian.Uint32(b); m != magic {
		return nil, fmt.Errorf("the file begins with %#x, not with %#x", m, uint32(magic))
	}
	if b[offMajor] != 2 {
		return nil, fmt.Errorf("version %d of the counters is not known", b[offMajor])
	}
	if b[offAccessible] != 1 {
		return nil, ErrStarting
	}
	switch b[offByteOrder] {
	case 0:
		return binary.BigEndian, nil
	case 1:
		return binary.LittleEndian, nil
	}
	return nil, fmt.Errorf("byte order %d is not known", b[offByteOrder])
}

// first returns the entry that b begins with, and its name.
func first(b []byte, order binary.ByteOrder) (entry []byte, name string, err error) {
	if len(b) < entryHead {
		return nil, "", errors.New("it is cut short")
	}
	size := int(int32(order.Uint32(b)))
	if size < entryHead || size > len(b) {
		return nil, "", fmt.Errorf("its size of %d bytes does not fit into the %d that are left", size, len(b))
	}
	b = b[:size]
	name, ok := text(b, int(int32(order.Uint32(b[entName:]))))
	if !ok || name == "" {
		return nil, "", errors.New("it has no name")
	}
	return b, name, nil
}

// value adds the value of the entry in b.
func (s *Snapshot) value(b []byte, name string, order binary.ByteOrder) error {
	data, length := int(int32(order.Uint32(b[entDataOffset:]))), int(int32(order.Uint32(b[entVector:])))
	if data < 0 || data > len(b) || length < 0 || length > len(b)-data {
		return fmt.Errorf("the value of %.80q does not fit into it", name)
	}
	switch kind := b[entType]; {
	case kind == 'J' && length == 0 && len(b)-data >= 8:
		s.Longs[name] = int64(order.Uint64(b[data:]))
	case kind == 'B' && length > 0:
		v, _, _ := bytes.Cut(b[data:data+length], []byte{0})
		s.Texts[name] = string(v)
	default:
		return fmt.Errorf("%.80q has the unknown type %q of length %d", name, kind, length)
	}
	return nil
}

// text returns the zero-terminated string at an offset.
func text(b []byte, at int) (string, bool) {
	if at < 0 || at >= len(b) {
		return "", false
	}
	v, _, ok := bytes.Cut(b[at:], []byte{0})
	return string(v), ok
}

// Seconds returns a time counter in seconds; ok is false when the JVM lacks the counter or the length of its ticks.
func (s Snapshot) Seconds(name string) (seconds float64, ok bool) {
	ticks, ok := s.Longs[name]
	hz := s.Longs["sun.os.hrt.frequency"]
	if !ok || hz <= 0 || ticks < 0 {
		return 0, false
	}
	return float64(ticks) / float64(hz), true
}
