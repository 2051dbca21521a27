// Package jfr reads the recording that async-profiler makes of a JVM, in the format of JDK Flight Recorder, into
// profiles.
//
// The package has a reader of its own because the file comes from the diagnosed process. It believes no size in the
// file, and bounds its memory whatever the file says: it holds only a window of the file, and only the constants that
// samples use. github.com/grafana/jfr-parser v0.9.3 needs the file and all its constants in memory (219 MB for a file
// of 98 MB, where this reader takes 71) and panics on a file with a damaged size.
//
// The layout of every event and constant comes from the description in the file itself (jdk.jfr.internal.consumer has
// no other document), and the meaning of the values from async-profiler 4.6, src/flightRecorder.cpp.
package jfr

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// ErrFormat is wrapped by every error about the content of a file.
var ErrFormat = errors.New("not a usable JFR file of async-profiler")

// maxSize bounds the time that reading takes. async-profiler begins a new chunk after 100 MiB; 10 s of a large JVM are
// 4 MiB.
const maxSize = 2 << 30

// Options say how to read.
type Options struct {
	// Bucket is the length of the time buckets of [stacks.Sample].At; 0 is one second.
	Bucket time.Duration
	// ThreadID maps a thread id in the target's own pid namespace to the one on the host, 0 if it is not known. It is
	// nil for a target in the host's own namespace.
	ThreadID func(nstid int) int
}

// Read returns a profile of each event that the profiler was told to take, even one without samples, in the order
// cpu, wall, lock, alloc. Values are scaled: a CPU or wall-clock sample counts as an interval, an allocation sample
// as the bytes that it stands for, and a wait as at least the interval of the lock profile, because shorter waits are
// sampled in proportion to their length (updateCounter, src/engine.h).
//
// A file without its end, from a profiler that still runs or was killed, is an error: it lacks the names of its
// methods. A damaged event costs its samples, which count as lost. If a [firewall.Fault] cost nothing else, Read
// returns profiles with it.
func Read(r io.ReaderAt, size int64, o Options) ([]*stacks.Profile, error) {
	if o.Bucket <= 0 {
		o.Bucket = time.Second
	}
	rd := &reader{options: o, settings: map[string]string{}, builders: map[stacks.Event]*stacks.Builder{}}
	if size > maxSize {
		return nil, fmt.Errorf("%w: %d bytes are more than %d", ErrFormat, size, maxSize)
	}
	for at := int64(0); at < size || at == 0; {
		next, err := rd.chunk(r, at, size)
		if err != nil {
			return nil, fmt.Errorf("%w: chunk at byte %d: %w", ErrFormat, at, err)
		}
		at = next
	}
	out, err := rd.profiles()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return out, rd.fault
}

// A reader gathers the samples of all chunks.
type reader struct {
	options  Options
	settings map[string]string // those of the first chunk: later ones have none (Recording::switchChunk)
	builders map[stacks.Event]*stacks.Builder
	lost     [len(eventKinds)]int64
	fault    error // the last one that cost an event
	began    int64 // of the first chunk, in nanoseconds since 1970
	length   time.Duration
}

// header is the first 68 bytes of a chunk (jdk.jfr.internal.consumer.ChunkHeader).
type header struct {
	size, pool, metadata, began, length, ticks, perSecond uint64
}

const headerSize = 68

func readHeader(c *cursor) (header, error) {
	magic, major := string(c.bytes(4)), c.bytes(2)
	if c.err != nil || magic != "FLR\x00" {
		return header{}, errors.New("it does not begin as one")
	}
	if major[0] != 0 || major[1] != 2 {
		return header{}, fmt.Errorf("version %d of the format, not 2", int(major[0])<<8|int(major[1]))
	}
	c.bytes(2)
	h := header{}
	for _, field := range []*uint64{&h.size, &h.pool, &h.metadata, &h.began, &h.length, &h.ticks, &h.perSecond} {
		*field = c.big64()
	}
	switch {
	case c.err != nil:
		return header{}, c.err
	case h.pool == 0 || h.metadata == 0:
		return header{}, errors.New("the profiler did not end it: it still runs, or was killed")
	case h.size < headerSize || h.metadata < headerSize || h.metadata >= h.size:
		return header{}, errors.New("its header is damaged")
	case h.perSecond == 0 || h.began > math.MaxInt64/2 || h.length > uint64(24*time.Hour):
		return header{}, errors.New("its clock is damaged")
	}
	return h, nil
}

// nanoseconds converts a time from start in ticks; ok is false when it is past what a duration can hold.
func (h header) nanoseconds(ticks uint64) (ns int64, ok bool) {
	high, low := bits.Mul64(ticks, 1e9)
	if high >= h.perSecond {
		return 0, false
	}
	q, _ := bits.Div64(high, low, h.perSecond)
	return int64(q), q <= math.MaxInt64
}

// The types of the events that describe others (jdk.jfr.internal.consumer).
const (
	eventMetadata = 0
	eventPool     = 1
)

// chunk reads a chunk and returns where the next one begins. It reads all events first and then the constants, so
// that it need only keep the constants that the events use.
func (rd *reader) chunk(r io.ReaderAt, at, size int64) (next int64, err error) {
	h, err := readHeader(newCursor(r, at, size))
	if err != nil {
		return 0, err
	}
	if h.size > uint64(size-at) {
		return 0, fmt.Errorf("it has %d bytes and says %d: the file is cut, or the profiler still writes it", size-at,
			h.size)
	}
	end := at + int64(h.size)
	types, err := readMetadata(newCursor(r, at+int64(h.metadata), end))
	if err != nil {
		return 0, err
	}
	if rd.began == 0 {
		rd.began = int64(h.began)
	}
	ck := &chunk{reader: rd, header: h, types: types, index: newIndex()}
	if err := ck.plan(); err != nil {
		return 0, err
	}
	if err := ck.events(newCursor(r, at+headerSize, end)); err != nil {
		return 0, err
	}
	ck.index = index{} // not needed for what follows
	pool, err := ck.readPools(r, end)
	if err != nil {
		return 0, err
	}
	rd.length += time.Duration(h.length)
	return end, ck.build(pool)
}

// profiles ends the reading and returns the profiles.
func (rd *reader) profiles() ([]*stacks.Profile, error) {
	version, engine := rd.settings["version"], rd.settings["engine"]
	if version == "" || engine == "" {
		return nil, errors.New("it has no settings of async-profiler: another program made it")
	}
	var out []*stacks.Profile
	for kind, e := range eventKinds {
		if !rd.taken(e) {
			continue
		}
		interval, err := rd.interval(e)
		if err != nil {
			return nil, err
		}
		b := rd.builders[e]
		if b == nil {
			b = stacks.NewBuilder(e)
		}
		p := b.Profile()
		p.Engine, p.Interval, p.Duration = "async-profiler "+version, interval, rd.length
		p.Bucket = rd.options.Bucket
		if e == stacks.CPU {
			p.Engine += " " + engine
		}
		p.Lost += rd.lost[kind]
		if err := p.Validate(); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}
