// Package hsperf reads the counters that HotSpot keeps in a file in shared memory, /tmp/hsperfdata_USER/PID.
//
// The layout is that of PerfDataPrologue and PerfDataEntry in src/hotspot/share/runtime/perfMemory.hpp, version 2.0 since
// JDK 5. The file belongs to the target and changes while it is read: nothing in it is trusted, and a number may be one
// update older than its neighbour.
package hsperf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Snapshot is what the counters were at one moment. Names are those of `jcmd PID PerfCounter.print`. Times
// are in ticks, see [Snapshot.Seconds].
type Snapshot struct {
	Longs map[string]int64
	Texts map[string]string
}

// ErrStarting says that the JVM has not yet filled in the file.
var ErrStarting = errors.New("the JVM is starting: its counters are not ready")

// MaxSize bounds the file: it has -XX:PerfDataMemorySize bytes, 32 KiB unless set, and a JVM with every counter of every
// collector needs about half of that.
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

// Parse reads a whole file. An entry that does not fit into the file, or a number of a type that HotSpot does not write, is an error.
func Parse(b []byte) (Snapshot, error) {
	return parse(b, func(string) bool { return true })
}

// Pick reads only the counters with these names, as [Parse] does, for who looks often.
func Pick(b []byte, names map[string]bool) (Snapshot, error) {
	return parse(b, func(name string) bool { return names[name] })
}

func parse(b []byte, wanted func(name string) bool) (Snapshot, error) {
	order, err := prologue(b)
	if err != nil {
		return Snapshot{}, err
	}
	at := int(int32(order.Uint32(b[offEntryOffset:])))
	n := int(int32(order.Uint32(b[offNumEntries:])))
	// Each entry takes at least its head and the end of its name.
	if at < prologueSize || at > len(b) || n < 0 || n > (len(b)-at)/entryHead {
		return Snapshot{}, fmt.Errorf("%d counters from byte %d on do not fit into %d bytes", n, at, len(b))
	}
	s := Snapshot{Longs: map[string]int64{}, Texts: map[string]string{}}
	for i := range n {
		size, err := s.entry(b[at:], order, wanted)
		if err != nil {
			return Snapshot{}, fmt.Errorf("counter %d of %d, at byte %d: %w", i+1, n, at, err)
		}
		at += size
	}
	return s, nil
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

// entry adds the counter that b begins with, if it is wanted, and gives the entry's size.
func (s *Snapshot) entry(b []byte, order binary.ByteOrder, wanted func(string) bool) (int, error) {
	if len(b) < entryHead {
		return 0, errors.New("it is cut short")
	}
	size := int(int32(order.Uint32(b)))
	if size < entryHead || size > len(b) {
		return 0, fmt.Errorf("its size of %d bytes does not fit into the %d that are left", size, len(b))
	}
	b = b[:size]
	name, ok := text(b, int(int32(order.Uint32(b[entName:]))))
	if !ok || name == "" {
		return 0, errors.New("it has no name")
	}
	if !wanted(name) {
		return size, nil
	}
	return size, s.value(b, name, order)
}

// value adds the value of the entry that b is.
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

// text gives the string that ends with a zero.
func text(b []byte, at int) (string, bool) {
	if at < 0 || at >= len(b) {
		return "", false
	}
	v, _, ok := bytes.Cut(b[at:], []byte{0})
	return string(v), ok
}

// Seconds gives a counter of time in seconds; ok is false when the JVM does not have it, or not the length of its ticks.
func (s Snapshot) Seconds(name string) (seconds float64, ok bool) {
	ticks, ok := s.Longs[name]
	hz := s.Longs["sun.os.hrt.frequency"]
	if !ok || hz <= 0 || ticks < 0 {
		return 0, false
	}
	return float64(ticks) / float64(hz), true
}
