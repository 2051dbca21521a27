package html

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// packVersion is in the header of a packed profile; web/src/unpack.ts reads this version.
const packVersion = 2

// A header describes a packed profile. Columns of numbers follow it, see [pack].
type header struct {
	Version  int          `json:"version"`
	Event    stacks.Event `json:"event"`
	Unit     string       `json:"unit"` // ns or B
	Engine   string       `json:"engine"`
	Interval int64        `json:"interval"`
	Duration float64      `json:"duration"` // seconds
	Lost     int64        `json:"lost"`
	Bucket   float64      `json:"bucket"` // length of a time bucket in seconds; 0 if the samples have no times
	Scale    int64        `json:"scale"`  // of the values
	Names    []string     `json:"names"`
	Modules  []string     `json:"modules"`
	Classes  []string     `json:"classes"`
	Frames   frameTable   `json:"frames"`
	Threads  []threadRow  `json:"threads"`
	Marks    []markRow    `json:"marks"`
	Stacks   int          `json:"stacks"`
	Samples  int          `json:"samples"`
}

// frameTable holds one entry for each frame in each list.
type frameTable struct {
	Name   []int `json:"name"`
	Module []int `json:"module"`
	Line   []int `json:"line"`
	Kind   []int `json:"kind"`  // stacks.Kind
	Owner  []int `json:"owner"` // hotcode.Owner
}

type threadRow struct {
	Name   string `json:"name"`
	ID     int    `json:"id"`
	Pool   string `json:"pool"`
	Target bool   `json:"target"`
}

// A markRow is the part of the profile that shows a finding: frames wherever they are, or places, each a stack and a
// depth in it. Stacks are all stacks that have such a place: a frame's other callees are not the finding's.
type markRow struct {
	Finding int      `json:"finding"`
	Frames  []int    `json:"frames"`
	Places  [][2]int `json:"places"`
	Stacks  []int    `json:"stacks"`
}

// pack writes a profile so that 50,000 stacks stay small and unpack fast: a length of four bytes (little endian), the
// header as JSON, and columns of varints. Stacks begin with the outermost call and are sorted, so that each shares
// its beginning with the one before it: the number of equal frames, the number of new ones, and the new ones as
// [callCoder] encodes them. Samples are in the order of stacks: how many stacks further, thread + 1, bucket, state,
// class, count, and value / scale if that is not count.
func pack(rec *recording.Recording, p *stacks.Profile, marks []profileMark) ([]byte, error) {
	t := newStackTable(p)
	h := t.header(rec, p)
	h.Marks = t.marks(marks)
	frameMarks(&h, marks)
	var columns [11][]byte
	put := func(column int, n int64) { columns[column] = binary.AppendUvarint(columns[column], uint64(n)) }
	var before []int
	calls := callCoder{callees: make([][]int, len(t.frames)+1)}
	for _, s := range t.stacks {
		same := shared(before, s)
		put(0, int64(same))
		put(1, int64(len(s)-same))
		for i := same; i < len(s); i++ {
			place, frame := calls.code(s, i)
			put(2, int64(place))
			if place == 0 {
				put(3, int64(frame))
			}
		}
		before = s
	}
	state := stateOf(rec, p)
	last := 0
	for _, s := range t.samples {
		put(4, int64(s.stack-last))
		last = s.stack
		put(5, int64(s.sample.Thread+1))
		put(6, bucketOf(s.sample.At, h.Bucket))
		put(7, state(s.sample))
		put(8, int64(t.class[s.sample.Class]))
		put(9, s.sample.Count)
		if h.Scale > 0 {
			put(10, s.sample.Value/h.Scale)
		}
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(head)))
	out = append(out, head...)
	return append(out, bytes.Join(columns[:], nil)...), nil
}

// idle is the state of a thread that waits for work, in addition to [stacks.State]; web/src/tree.ts has it, too.
const idle = 3

// stateOf tells idle threads of a wall-clock profile from threads that wait for something else.
func stateOf(rec *recording.Recording, p *stacks.Profile) func(stacks.Sample) int64 {
	if p.Event != stacks.Wall && p.Event != stacks.Goroutine {
		return func(s stacks.Sample) int64 { return int64(s.State) }
	}
	waits := hotcode.WaitsOf(p, hotcode.OwnersOf(rec))
	return func(s stacks.Sample) int64 {
		if wait, _ := waits.Of(s); wait == hotcode.Idle {
			return idle
		}
		return int64(s.State)
	}
}

// A callCoder encodes a call by its place among the callees of its caller, the one called last first. Most functions
// call few others, so nearly all places are small and compress to a bit or two. Frames are numbered in the order of
// their first use.
type callCoder struct {
	callees [][]int // by caller; the last is for frames that nobody calls
	known   int     // frames seen so far
}

// code returns the place of a stack's i-th call among the callees of the call before it, from 1. It is 0 for a new
// callee: frame then is its number + 1, or 0 for the next frame that was never seen before.
func (c *callCoder) code(stack []int, i int) (place, frame int) {
	caller, f := len(c.callees)-1, stack[i]
	if i > 0 {
		caller = stack[i-1]
	}
	list := c.callees[caller]
	at := slices.Index(list, f)
	if at >= 0 {
		copy(list[1:at+1], list[:at])
		list[0] = f
		return at + 1, 0
	}
	c.callees[caller] = slices.Insert(list, 0, f)
	if f == c.known {
		c.known++
		return 0, 0
	}
	return 0, f + 1
}

func shared(a, b []int) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// A stackTable numbers the frames, stacks and classes of a profile.
type stackTable struct {
	frame   []int // new number of each frame of the profile, or -1
	frames  []int // the frame of the profile by its new number
	stacks  [][]int
	index   map[string]int // by key
	samples []packedSample
	class   map[string]int
	classes []string
}

type packedSample struct {
	stack  int
	sample stacks.Sample
}

func newStackTable(p *stacks.Profile) *stackTable {
	t := &stackTable{frame: make([]int, len(p.Frames)), index: map[string]int{}, class: map[string]int{}}
	for f := range p.Frames {
		t.frame[f] = f
	}
	distinct := map[string][]int{}
	keys := make([]string, len(p.Samples))
	for i, s := range p.Samples {
		stack := t.outermostFirst(s.Stack)
		keys[i] = key(stack)
		distinct[keys[i]] = stack
		if _, known := t.class[s.Class]; !known {
			t.class[s.Class] = len(t.classes)
			t.classes = append(t.classes, s.Class)
		}
	}
	for _, s := range distinct {
		t.stacks = append(t.stacks, s)
	}
	slices.SortFunc(t.stacks, slices.Compare)
	for i, s := range t.stacks {
		t.index[key(s)] = i
	}
	for i, s := range p.Samples {
		t.samples = append(t.samples, packedSample{t.index[keys[i]], s})
	}
	slices.SortStableFunc(t.samples, func(a, b packedSample) int { return cmp.Compare(a.stack, b.stack) })
	t.number()
	return t
}

// number numbers the frames in the order in which the stacks use them, for [callCoder].
func (t *stackTable) number() {
	for f := range t.frame {
		t.frame[f] = -1
	}
	clear(t.index)
	for i, s := range t.stacks {
		for k, f := range s {
			if t.frame[f] < 0 {
				t.frame[f] = len(t.frames)
				t.frames = append(t.frames, f)
			}
			s[k] = t.frame[f]
		}
		t.index[key(s)] = i
	}
}

func (t *stackTable) outermostFirst(stack []int) []int {
	out := make([]int, 0, len(stack))
	for _, f := range slices.Backward(stack) {
		out = append(out, t.frame[f])
	}
	return out
}

func key(stack []int) string {
	b := make([]byte, 0, 2*len(stack))
	for _, f := range stack {
		b = binary.AppendUvarint(b, uint64(f))
	}
	return string(b)
}

func (t *stackTable) header(rec *recording.Recording, p *stacks.Profile) header {
	h := header{
		Version: packVersion, Event: p.Event, Unit: "ns", Engine: visible(p.Engine), Interval: p.Interval,
		Duration: p.Duration.Seconds(),
		Lost:     p.Lost, Bucket: bucketLength(p).Seconds(), Scale: scaleOf(p), Stacks: len(t.stacks),
		Samples: len(t.samples),
		Names:   []string{}, Modules: []string{}, Threads: []threadRow{}, Classes: []string{}, Marks: []markRow{},
	}
	if p.Event == stacks.Alloc {
		h.Unit = "B"
	}
	owners := hotcode.OwnersOf(rec)
	names, modules := map[string]int{}, map[string]int{}
	for _, f := range t.frames {
		fr := p.Frames[f]
		h.Frames.Name = append(h.Frames.Name, numbered(&h.Names, names, fr.Name))
		h.Frames.Module = append(h.Frames.Module, numbered(&h.Modules, modules, fr.Module))
		h.Frames.Line = append(h.Frames.Line, fr.Line)
		h.Frames.Kind = append(h.Frames.Kind, int(fr.Kind))
		h.Frames.Owner = append(h.Frames.Owner, int(owners.Of(fr)))
	}
	for _, c := range t.classes {
		h.Classes = append(h.Classes, visible(c))
	}
	h.Threads = threadsOf(rec, p)
	return h
}

// threadsOf returns each thread with its pool: the pool that the runtime reports, else the thread's name without its
// number. In a profile of the whole host a thread's id is its process's, and the thread belongs to the target or not.
func threadsOf(rec *recording.Recording, p *stacks.Profile) []threadRow {
	pools := map[string]string{}
	for _, s := range rec.Info(metric.JVMThread) {
		pools[s.Label("tid")] = s.Label("pool")
	}
	target := map[string]bool{}
	for _, s := range rec.Counter(metric.ProcessCPU, "member", "target") {
		target[s.Label("pid")] = true
	}
	out := []threadRow{}
	for _, t := range p.Threads {
		id := strconv.Itoa(t.ID)
		pool := pools[id]
		if pool == "" || p.Event == stacks.HostCPU {
			pool = cmp.Or(strings.TrimRight(t.Name, "0123456789 -_#.:/[]()"), t.Name, "unknown")
		}
		out = append(out, threadRow{visible(t.Name), t.ID, visible(pool), p.Event != stacks.HostCPU || target[id]})
	}
	return out
}

// bucketLength is at least a millisecond: the page counts buckets in 32 bits.
func bucketLength(p *stacks.Profile) time.Duration {
	if p.Bucket == 0 {
		return 0
	}
	return max(p.Bucket, time.Millisecond)
}

// bucketOf returns the number of the time bucket that begins at a time.
func bucketOf(at time.Duration, length float64) int64 {
	if length <= 0 {
		return 0
	}
	return int64(at.Seconds()/length + 0.5)
}

// scaleOf returns the factor of all values. It is 0 if each value is its count times the interval and need not be
// written.
func scaleOf(p *stacks.Profile) int64 {
	derived, multiples := p.Interval > 0, p.Interval > 0
	for _, s := range p.Samples {
		if p.Interval > 0 {
			derived = derived && s.Value == s.Count*p.Interval
			multiples = multiples && s.Value%p.Interval == 0
		}
	}
	switch {
	case derived:
		return 0
	case multiples:
		return p.Interval
	}
	return 1
}

// A profileMark is what a finding points at in one profile.
type profileMark struct {
	finding int
	frames  map[string]bool // by name
	places  []place
	event   stacks.Event
}

// A place is a frame in a stack, which is innermost first as in a profile.
type place struct {
	stack []int
	at    int
}

// maxPlaces bounds the places of one finding in one profile: a reader looks at the widest, and the file stays small.
const maxPlaces = 2000

// marks turns what findings point at into numbers of the packed profile. It merges places with the same outer calls.
func (t *stackTable) marks(list []profileMark) []markRow {
	out := []markRow{}
	for _, m := range list {
		r := markRow{Finding: m.finding, Frames: []int{}, Places: [][2]int{}, Stacks: []int{}}
		seen, counted := map[string]bool{}, map[int]bool{}
		for _, p := range m.places {
			stack := t.outermostFirst(p.stack)
			depth := len(stack) - 1 - p.at
			prefix := key(stack[:depth+1])
			i, known := t.index[key(stack)]
			if known && !counted[i] {
				counted[i] = true
				r.Stacks = append(r.Stacks, i)
			}
			if !known || seen[prefix] || len(r.Places) >= maxPlaces {
				continue
			}
			seen[prefix] = true
			r.Places = append(r.Places, [2]int{i, depth})
		}
		out = append(out, r)
	}
	return out
}

// frameMarks adds the frames that are marked by their names.
func frameMarks(h *header, list []profileMark) {
	for i, m := range list {
		for f, name := range h.Frames.Name {
			if m.frames[h.Names[name]] {
				h.Marks[i].Frames = append(h.Marks[i].Frames, f)
			}
		}
	}
}

// compressed returns data as gzip at its best level: the browser's DecompressionStream reads it.
func compressed(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}
