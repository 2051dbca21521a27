package jfr

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// eventKinds are the profiles of a file, in the order in which Read returns them.
var eventKinds = [...]stacks.Event{stacks.CPU, stacks.Wall, stacks.Lock, stacks.Alloc}

const (
	kindCPU = iota
	kindWall
	kindLock
	kindAlloc
)

// Bounds on what one chunk keeps in memory. A sample here is a stack of a thread in a time bucket, as in a profile,
// which holds 100,000 at most.
const (
	maxKeys   = 100_000   // for each event
	maxFrames = 4_000_000 // of all stacks that samples use
	maxNames  = 64 << 20  // bytes of all names in the pools
	maxPooled = 2_000_000 // methods, classes, symbols or threads
	maxDepth  = 10_000    // frames of a stack; async-profiler takes 2,048
	maxPools  = 10_000    // events with constants: HotSpot flushes one a second
	maxBatch  = 1_000     // samples in one wall-clock event (MAX_IDLE_BATCH, src/wallClock.cpp)
	maxValue  = 1 << 53   // of a count, nanoseconds or bytes in one event: beyond, it is damage
)

// The slots of the wanted fields of events.
const (
	slotTime = iota
	slotThread
	slotStack
	slotState
	slotClass
	slotLength // duration, or how long a batch took
	slotValue
	slotSize
)

// source says how one type of event yields samples.
type source struct {
	kind   int
	fields []string // by slot
	ops    []op
}

var sources = map[string]source{
	"jdk.ExecutionSample": {kind: kindCPU, fields: fields("sampledThread", "state", "", "", "")},
	"profiler.WallClockSample": {
		kind: kindWall, fields: fields("sampledThread", "state", "", "timeSpan", "samples"),
	},
	"jdk.JavaMonitorEnter": {kind: kindLock, fields: fields("eventThread", "", "monitorClass", "duration", "")},
	"jdk.ThreadPark":       {kind: kindLock, fields: fields("eventThread", "", "parkedClass", "duration", "")},
	"jdk.ObjectAllocationInNewTLAB": {
		kind: kindAlloc, fields: append(fields("eventThread", "", "objectClass", "", "allocationSize"), "tlabSize"),
	},
	"jdk.ObjectAllocationOutsideTLAB": {kind: kindAlloc, fields: fields("eventThread", "", "objectClass", "",
		"allocationSize")},
}

// fields returns the names by slot; every event has a time and a stack.
func fields(thread, state, class, length, value string) []string {
	return []string{
		slotTime: "startTime", slotThread: thread, slotStack: "stackTrace", slotState: state, slotClass: class,
		slotLength: length, slotValue: value,
	}
}

// settingEvent has the profiler's options: name and value, at the first two slots.
const settingEvent = "jdk.ActiveSetting"

// A chunk is one part of a file with its own types and constants.
type chunk struct {
	*reader
	header  header
	types   *classes
	sources map[uint64]*source
	setting uint64
	setOps  []op
	pools   []int64 // where the events with constants begin
	samples []rawSample
	index   index // empty when all events are read

	keys    [len(eventKinds)]int // samples of each kind
	waiting []waiting
	loaded  int64

	// of the event being read: where the next one begins, 0 before that is known, and what it yields samples of
	next   int64
	source *source
}

// sampleKey is what makes two samples of a chunk equal.
type sampleKey struct {
	stack, thread, class, state uint64
	bucket, kind                int32
}

type rawSample struct {
	sampleKey
	count, value int64
}

// plan finds out how to read the events that matter.
func (ck *chunk) plan() error {
	ck.sources = map[uint64]*source{}
	for name, s := range sources {
		id, ok := ck.types.id(name)
		if !ok {
			continue
		}
		ops, err := ck.types.plan(id, s.fields...)
		if err != nil {
			return err
		}
		s.ops = ops
		ck.sources[id] = &s
	}
	if id, ok := ck.types.id(settingEvent); ok {
		ops, err := ck.types.plan(id, "name", "value")
		if err != nil {
			return err
		}
		ck.setting, ck.setOps = id, ops
	}
	return nil
}

// events reads all events of the chunk. An event that is damaged, or holds more than perfdoctor can read, costs its
// samples; the next one begins where its size says.
func (ck *chunk) events(c *cursor) error {
	for {
		err := firewall.Run("an event of the profiler's recording", func() error { return ck.eventsFrom(c) })
		if !firewall.IsFault(err) || ck.next == 0 {
			return err
		}
		ck.fault = err
		ck.lose(c)
	}
}

func (ck *chunk) eventsFrom(c *cursor) error {
	var v values
	for ck.next = 0; c.err == nil && c.offset() < c.last; ck.next = 0 {
		start := c.offset()
		size, kind := c.number(), c.number()
		if c.err != nil {
			break
		}
		if size == 0 || size > uint64(c.last-start) {
			return fmt.Errorf("at byte %d: an event of %d bytes does not fit", start, size)
		}
		ck.next, ck.source = start+int64(size), ck.sources[kind]
		c.end = ck.next
		if kind == eventPool {
			ck.pools = append(ck.pools, start)
		}
		if len(ck.pools) > maxPools {
			return errors.New("too many constant pools")
		}
		if !ck.event(c, kind, &v) {
			ck.lose(c)
		}
		c.restart(ck.next)
	}
	ck.flush()
	return c.err
}

// event takes what matters of an event; it returns false if the event is damaged.
func (ck *chunk) event(c *cursor, kind uint64, v *values) bool {
	switch whole := func() bool { return c.err == nil && c.offset() <= c.end }; {
	case ck.source != nil:
		v.number = [slots]uint64{} // no event that is a sample has a wanted text
		c.read(ck.source.ops, v)
		return whole() && ck.add(ck.source, v)
	case kind == ck.setting && ck.setOps != nil:
		*v = values{}
		c.read(ck.setOps, v)
		if !whole() {
			return false
		}
		ck.set(v.text[0], v.text[1])
	}
	return true
}

// lose gives up the event being read.
func (ck *chunk) lose(c *cursor) {
	if ck.source != nil {
		ck.lost[ck.source.kind]++
	}
	c.restart(ck.next)
}

// set keeps a setting. The first value of a name stands: the settings of the recording come before those of other
// events.
func (ck *chunk) set(name, value string) {
	if _, ok := ck.settings[name]; !ok && slices.Contains(settingNames, name) {
		ck.settings[name] = value
	}
}

// settingNames are the settings that matter (Recording::writeSettings, src/flightRecorder.cpp).
var settingNames = []string{"version", "engine", "event", "interval", "wall", "nobatch", "alloc", "lock"}

// add counts one event; it returns false if one of its numbers is out of range.
func (ck *chunk) add(s *source, v *values) bool {
	n := &v.number
	if n[slotLength] > math.MaxInt64 || n[slotValue] > maxValue || n[slotSize] > maxValue {
		return false
	}
	in := sampleKey{
		stack: n[slotStack], thread: n[slotThread], class: n[slotClass], state: n[slotState],
		kind: int32(s.kind),
	}
	switch s.kind {
	case kindCPU:
		in.state = 0 // a thread sampled by perf_events or a timer was running
		ck.count(in, n[slotTime], 1, 1)
	case kindWall:
		ck.batch(in, n[slotTime], n[slotLength], int64(n[slotValue]))
	case kindLock:
		ns, ok := ck.header.nanoseconds(n[slotLength])
		least, err := ck.number("lock", 0)
		if !ok || ns > maxValue || err != nil {
			return false
		}
		ck.count(in, n[slotTime], 1, max(ns, least))
	case kindAlloc:
		value := n[slotSize] // what the sample stands for: at least the interval (src/objectSampler.cpp)
		if value == 0 {
			value = n[slotValue]
		}
		ck.count(in, n[slotTime], 1, int64(value))
	}
	return true
}

// batch counts the samples of a wall-clock event, which may stand for many of one idle thread, in the time buckets it
// covers.
func (ck *chunk) batch(in sampleKey, from, span uint64, samples int64) {
	if samples < 2 || samples > maxBatch || from > math.MaxUint64-span {
		ck.count(in, from, samples, samples)
		return
	}
	last := ck.bucket(from)
	pending := int64(0)
	for i := range samples {
		at := ck.bucket(from + span/uint64(samples-1)*uint64(i))
		if at != last {
			ck.countIn(in, last, pending, pending)
			last, pending = at, 0
		}
		pending++
	}
	ck.countIn(in, last, pending, pending)
}

func (ck *chunk) count(in sampleKey, ticks uint64, count, value int64) {
	ck.countIn(in, ck.bucket(ticks), count, value)
}

// countIn counts samples in a time bucket. They wait until there is a batch of them, see [chunk.flush].
func (ck *chunk) countIn(in sampleKey, bucket int32, count, value int64) {
	in.bucket = bucket
	ck.waiting = append(ck.waiting, waiting{rawSample: rawSample{in, count, value}, hash: ck.index.hash(&in)})
	if len(ck.waiting) == batch {
		ck.flush()
	}
}

// batch is the number of samples that are counted together.
const batch = 256

type waiting struct {
	rawSample
	hash  uint64
	guess int32
}

// flush counts the waiting samples. In a large file each sample is at another place in memory, and loading it takes
// the CPU longer than all the rest. So flush makes the CPU load the samples of a batch at once, before they are
// needed one after the other.
func (ck *chunk) flush() {
	for i := range ck.waiting {
		ck.waiting[i].guess = ck.index.guess(ck.waiting[i].hash)
	}
	for i := range ck.waiting {
		if at := int(ck.waiting[i].guess); at < len(ck.samples) {
			ck.loaded += ck.samples[at].count // nobody reads it: it only makes the CPU load the sample
		}
	}
	for i := range ck.waiting {
		ck.keep(&ck.waiting[i])
	}
	ck.waiting = ck.waiting[:0]
}

func (ck *chunk) keep(w *waiting) {
	i := ck.index.find(ck.samples, &w.sampleKey, w.hash)
	switch {
	case i < 0 && ck.keys[w.kind] >= maxKeys:
		ck.lost[w.kind] += w.count
	case i < 0:
		ck.keys[w.kind]++
		ck.samples = append(ck.samples, w.rawSample)
		ck.index.add(w.hash, ck.samples)
	case ck.samples[i].value > math.MaxInt64-w.value:
		ck.lost[w.kind] += w.count
	default:
		ck.samples[i].count += w.count
		ck.samples[i].value += w.value
	}
}

// bucket returns the number of the time bucket of a moment, counted from the beginning of the file. Threads read the
// clock side by side, so an event may be a moment before its chunk or after it: it then counts in the first or last
// bucket.
func (ck *chunk) bucket(ticks uint64) int32 {
	var ns int64
	if ticks > ck.header.ticks {
		var ok bool
		if ns, ok = ck.header.nanoseconds(ticks - ck.header.ticks); !ok {
			ns = int64(ck.header.length)
		}
	}
	ns = min(ns, max(int64(ck.header.length)-1, 0))
	since := max(int64(ck.header.began)-ck.began, 0) + ns
	return int32(min(since/int64(ck.options.Bucket), math.MaxInt32))
}

// number reads a numeric setting, in nanoseconds or bytes.
func (rd *reader) number(name string, unset int64) (int64, error) {
	text := rd.settings[name]
	if text == "" {
		return unset, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxValue {
		return 0, fmt.Errorf("the setting %s is %.40q", name, text)
	}
	if n == 0 {
		return unset, nil
	}
	return n, nil
}

// taken reports whether the profiler was told to take a profile of the event.
func (rd *reader) taken(e stacks.Event) bool {
	switch e {
	case stacks.CPU:
		return rd.settings["event"] != "" && !rd.onlyWall()
	case stacks.Wall:
		return rd.settings["wall"] != "" || rd.onlyWall()
	case stacks.Lock:
		return rd.settings["lock"] != ""
	default:
		return rd.settings["alloc"] != ""
	}
}

// onlyWall reports whether event=wall was given, without a CPU profile beside it; its interval is then the only one.
func (rd *reader) onlyWall() bool { return rd.settings["event"] == "wall" }

// cpuEvents are the events whose samples are time on a CPU. Any other is a counter of the hardware or a method.
var cpuEvents = []string{"cpu", "cpu-clock", "task-clock", "ctimer", "itimer"}

// interval returns the sampling interval of an event, with async-profiler's defaults for what was not set.
func (rd *reader) interval(e stacks.Event) (int64, error) {
	switch e {
	case stacks.CPU:
		if name := rd.settings["event"]; !slices.Contains(cpuEvents, name) {
			return 0, fmt.Errorf("its event is %.40q, and not cpu, ctimer or itimer", name)
		}
		return rd.number("interval", int64(10*time.Millisecond)) // DEFAULT_INTERVAL, src/arguments.h
	case stacks.Wall:
		if rd.settings["nobatch"] == "true" {
			return 0, errors.New("it was made with nobatch, which mixes wall-clock with CPU samples")
		}
		if rd.onlyWall() && rd.settings["wall"] == "" {
			return rd.number("interval", int64(50*time.Millisecond))
		}
		return rd.number("wall", int64(50*time.Millisecond)) // WallClock::start, src/wallClock.cpp
	case stacks.Lock:
		return rd.number("lock", 0)
	default:
		return rd.number("alloc", 0)
	}
}

// build adds the chunk's samples to the profiles, with the names of its constants.
func (ck *chunk) build(p *pools) error {
	for kind, e := range eventKinds {
		if !ck.taken(e) || ck.keys[kind] == 0 {
			continue
		}
		scale := int64(1)
		if kind == kindCPU || kind == kindWall {
			interval, err := ck.interval(e)
			if err != nil {
				return err
			}
			scale = interval
		}
		if ck.builders[e] == nil {
			ck.builders[e] = stacks.NewBuilder(e)
		}
		if err := ck.buildOne(p, kind, ck.builders[e], scale); err != nil {
			return err
		}
	}
	return nil
}

func (ck *chunk) buildOne(p *pools, kind int, b *stacks.Builder, scale int64) error {
	frames := make([]int, len(p.rawFrames))
	for i := range frames {
		frames[i] = -1
	}
	var stack []int
	for _, s := range ck.samples {
		if s.kind != int32(kind) {
			continue
		}
		if s.value > math.MaxInt64/scale {
			return errors.New("the sum of its samples overflows")
		}
		if p.dropped[s.stack] || p.overflowed(s.stack) {
			ck.lost[kind] += s.count
			continue
		}
		stack = stack[:0]
		for _, f := range p.stacks[s.stack] {
			if frames[f] < 0 {
				frames[f] = b.Frame(p.frame(p.rawFrames[f]))
			}
			stack = append(stack, frames[f])
		}
		b.Add(stacks.Sample{
			Stack: stack, Thread: b.Thread(ck.thread(p.threads[s.thread])), Class: p.className(s.class),
			State: p.states[s.state],
			At:    time.Duration(s.bucket) * ck.options.Bucket, Count: s.count, Value: s.value * scale,
		})
	}
	return nil
}

// thread returns a thread with its id on the host.
func (rd *reader) thread(t stacks.Thread) stacks.Thread {
	if rd.options.ThreadID != nil && t.ID != 0 {
		t.ID = rd.options.ThreadID(t.ID)
	}
	return t
}

// readPools reads the constants of the chunk that its samples use.
func (ck *chunk) readPools(r io.ReaderAt, end int64) (*pools, error) {
	p := newPools(ck.types)
	for _, s := range ck.samples {
		p.stacks[s.stack] = nil
	}
	for _, at := range ck.pools {
		if err := p.read(newCursor(r, at, end)); err != nil {
			return nil, fmt.Errorf("constant pool at byte %d: %w", at, err)
		}
	}
	return p, nil
}
