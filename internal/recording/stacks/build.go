package stacks

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds on a profile, so that neither a busy host nor a hostile file costs more memory. A second of 64 CPUs at 10 ms
// is 6,400 samples, most of them equal; a wall-clock window of 1,000 idle threads is 10,000.
const (
	maxSamples = 100_000
	maxName    = 4096 // bytes: the longest C++ names add nothing of use beyond that
)

// A Builder makes a Profile from samples in any order: it merges equal frames, threads and samples.
type Builder struct {
	event    Event
	frames   table[Frame]
	threads  table[Thread]
	contexts table[context]
	stacks   [][]int
	byHash   map[uint64]int // a stack by its hash, or by the next free number after that
	seed     maphash.Seed   // random: nobody can make stacks that collide
	samples  []Sample
	total    Weight
	byKey    map[sampleKey]int
	lost     int64
	key      []byte // reused
}

// sampleKey is what makes two samples equal. It is small because a profile has many samples and few contexts.
type sampleKey struct{ stack, context int32 }

type context struct {
	thread int
	class  string
	state  State
	at     time.Duration
}

// A table numbers distinct values in the order of their first use.
type table[T comparable] struct {
	list  []T
	index map[T]int
}

func (t *table[T]) add(v T) int {
	if i, ok := t.index[v]; ok {
		return i
	}
	if t.index == nil {
		t.index = map[T]int{}
	}
	t.index[v] = len(t.list)
	t.list = append(t.list, v)
	return len(t.list) - 1
}

// NewBuilder starts a profile of an event.
func NewBuilder(event Event) *Builder {
	return &Builder{event: event, byHash: map[uint64]int{}, seed: maphash.MakeSeed(), byKey: map[sampleKey]int{}}
}

// Frame returns the index of a frame for [Sample].Stack. It brings names into the form that a profile may hold: valid
// UTF-8 of at most 4 KiB, and [Unnamed] for none.
func (b *Builder) Frame(f Frame) int {
	f.Name, f.Module, f.Line = clean(f.Name), clean(f.Module), max(f.Line, 0)
	if f.Name == "" {
		f.Name = Unnamed
	}
	return b.frames.add(f)
}

// Thread returns the index of a thread for [Sample].Thread: -1 if neither name nor id is known.
func (b *Builder) Thread(t Thread) int {
	t.Name, t.ID = clean(t.Name), max(t.ID, 0)
	if t == (Thread{}) {
		return -1
	}
	return b.threads.add(t)
}

// Add counts a sample. Its stack, which is copied, and its thread come from [Builder.Frame] and [Builder.Thread]. If
// the profile is full, or its sums would overflow, the sample is counted as lost.
func (b *Builder) Add(s Sample) {
	s.Class = clean(s.Class)
	full := len(b.samples) >= maxSamples
	stack := b.stack(s.Stack, full)
	c := context{s.Thread, s.Class, s.State, s.At}
	if _, known := b.contexts.index[c]; stack < 0 || full && !known || !b.total.fits(s) {
		b.lost += s.Count
		return
	}
	key := sampleKey{int32(stack), int32(b.contexts.add(c))}
	i, ok := b.byKey[key]
	switch {
	case ok:
		b.samples[i].Count += s.Count
		b.samples[i].Value += s.Value
	case full:
		b.lost += s.Count
		return
	default:
		s.Stack = b.stacks[stack]
		b.byKey[key] = len(b.samples)
		b.samples = append(b.samples, s)
	}
	b.total.Add(s)
}

// stack returns the number of an equal stack, or -1 for a new one if the profile is full.
func (b *Builder) stack(stack []int, full bool) int {
	b.key = b.key[:0]
	for _, f := range stack {
		b.key = binary.AppendUvarint(b.key, uint64(f))
	}
	hash := maphash.Bytes(b.seed, b.key)
	for ; ; hash++ {
		i, ok := b.byHash[hash]
		if !ok {
			break
		}
		if slices.Equal(b.stacks[i], stack) {
			return i
		}
	}
	if full {
		return -1
	}
	b.byHash[hash] = len(b.stacks)
	b.stacks = append(b.stacks, slices.Clone(stack))
	return len(b.stacks) - 1
}

// Profile returns what was added in the canonical order: frames by name, threads by name and id, samples by thread,
// time, state, class and stack, and no frame or thread without a sample. Equal data yields equal profiles, whatever
// way it took. The builder must not be used afterwards. Lost is what [Builder.Add] lost; the caller adds its own, and
// the rest of the fields.
func (b *Builder) Profile() *Profile {
	usedFrames, usedThreads := make([]bool, len(b.frames.list)), make([]bool, len(b.threads.list))
	for _, s := range b.samples {
		for _, f := range s.Stack {
			usedFrames[f] = true
		}
		if s.Thread >= 0 {
			usedThreads[s.Thread] = true
		}
	}
	frames, newFrame := sorted(b.frames.list, usedFrames, compareFrames)
	threads, newThread := sorted(b.threads.list, usedThreads, compareThreads)
	for _, stack := range b.stacks { // samples share stacks: each is renumbered once
		for i, f := range stack {
			stack[i] = newFrame[f]
		}
	}
	for i := range b.samples {
		if t := &b.samples[i].Thread; *t >= 0 {
			*t = newThread[*t]
		}
	}
	slices.SortFunc(b.samples, compareSamples)
	return &Profile{Event: b.event, Lost: b.lost, Frames: frames, Threads: threads, Samples: b.samples}
}

// sorted returns the used values in order, and the new index of each.
func sorted[T any](list []T, used []bool, compare func(T, T) int) (out []T, index []int) {
	var order []int
	for i := range list {
		if used[i] {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(x, y int) int { return compare(list[x], list[y]) })
	index = make([]int, len(list))
	for i, old := range order {
		index[old] = i
		out = append(out, list[old])
	}
	return out, index
}

func compareFrames(x, y Frame) int {
	return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.Module, y.Module),
		cmp.Compare(x.Line, y.Line), cmp.Compare(x.Kind, y.Kind))
}

func compareThreads(x, y Thread) int {
	return cmp.Or(strings.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID))
}

func compareSamples(x, y Sample) int {
	return cmp.Or(cmp.Compare(x.Thread, y.Thread), cmp.Compare(x.At, y.At), cmp.Compare(x.State, y.State),
		strings.Compare(x.Class, y.Class), slices.Compare(x.Stack, y.Stack))
}

func clean(name string) string {
	name = strings.ToValidUTF8(name, "\uFFFD")
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName-len("…")], "") + "…"
	}
	return name
}

// Merge adds up profiles of one event, in the canonical order that [Builder.Profile] describes. For one profile it
// returns the canonical form. The duration is the longest, so profiles of one window yield that window. Engine and
// interval are the first profile's. Another profile with different ones is an error: their values could not be
// compared.
func Merge(profiles ...*Profile) (*Profile, error) {
	if len(profiles) == 0 {
		return nil, fmt.Errorf("merge profiles: there is none")
	}
	first := profiles[0]
	b := NewBuilder(first.Event)
	out := Profile{Engine: strings.TrimSpace(clean(first.Engine)), Interval: first.Interval, Bucket: first.Bucket}
	for _, p := range profiles {
		if err := p.Validate(); err != nil {
			return nil, err
		}
		if p.Event != first.Event || p.Engine != first.Engine || p.Interval != first.Interval {
			return nil, fmt.Errorf("merge profiles: %s by %q every %d and %s by %q every %d are not of one kind",
				first.Event, first.Engine, first.Interval, p.Event, p.Engine, p.Interval)
		}
		out.Duration = max(out.Duration, p.Duration)
		if out.Bucket != p.Bucket {
			out.Bucket = 0 // for findBucket
		}
		if out.Lost > math.MaxInt64-p.Lost {
			return nil, fmt.Errorf("merge profiles: the lost samples overflow")
		}
		out.Lost += p.Lost
		b.addAll(p)
	}
	sum := b.Profile()
	sum.Engine, sum.Interval, sum.Duration = out.Engine, out.Interval, out.Duration
	sum.Lost += out.Lost
	sum.Bucket = out.Bucket
	sum.findBucket()
	return sum, nil
}

// findBucket sets the length of the time buckets in a profile that does not have it, as in older recordings: the
// longest one that divides all its times. If all samples are at the beginning, there are no times.
func (p *Profile) findBucket() {
	if p.Bucket > 0 {
		return
	}
	for _, s := range p.Samples {
		a, b := p.Bucket, s.At
		for b > 0 {
			a, b = b, a%b
		}
		p.Bucket = a
	}
}

func (b *Builder) addAll(p *Profile) {
	frames, threads := make([]int, len(p.Frames)), make([]int, len(p.Threads))
	for i, f := range p.Frames {
		frames[i] = b.Frame(f)
	}
	for i, t := range p.Threads {
		threads[i] = b.Thread(t)
	}
	var stack []int
	for _, s := range p.Samples {
		stack = stack[:0]
		for _, f := range s.Stack {
			stack = append(stack, frames[f])
		}
		s.Stack = stack
		if s.Thread >= 0 {
			s.Thread = threads[s.Thread]
		}
		b.Add(s)
	}
}

// Validate returns what is wrong with a profile that somebody else made: an unknown event, kind or state, an index
// that leads nowhere, a negative number, a name that is missing or not UTF-8, or sums that overflow.
func (p *Profile) Validate() error {
	if !slices.Contains(Events(), p.Event) {
		return fmt.Errorf("profile: there is no event %.40q", p.Event)
	}
	if p.Interval < 0 || p.Duration < 0 || p.Lost < 0 || p.Bucket < 0 {
		return fmt.Errorf("profile of %s: interval %d, duration %d, time bucket %d or lost samples %d are negative",
			p.Event, p.Interval, p.Duration, p.Bucket, p.Lost)
	}
	if len(p.Samples) > maxSamples {
		return fmt.Errorf("profile of %s: %d samples are more than %d", p.Event, len(p.Samples), maxSamples)
	}
	if !valid(p.Engine) {
		return fmt.Errorf("profile of %s: engine %.40q is too long or not UTF-8", p.Event, p.Engine)
	}
	if err := p.validateTables(); err != nil {
		return err
	}
	return p.validateSamples()
}

func (p *Profile) validateTables() error {
	for i, f := range p.Frames {
		if f.Name == "" || !valid(f.Name) || !valid(f.Module) || f.Line < 0 || f.Kind > Kernel {
			return fmt.Errorf("profile of %s: frame %d (%.40q) has a bad name, module, line or kind", p.Event, i,
				f.Name)
		}
	}
	for i, t := range p.Threads {
		if t == (Thread{}) || !valid(t.Name) || t.ID < 0 {
			return fmt.Errorf("profile of %s: thread %d (%.40q) has a bad name or id", p.Event, i, t.Name)
		}
	}
	return nil
}

func (p *Profile) validateSamples() error {
	var sum Weight
	for i, s := range p.Samples {
		switch {
		case s.Count < 0 || s.Value < 0 || s.At < 0:
			return fmt.Errorf("profile of %s: sample %d has a negative count, value or time", p.Event, i)
		case s.Thread < -1 || s.Thread >= len(p.Threads):
			return fmt.Errorf("profile of %s: sample %d is of thread %d of %d", p.Event, i, s.Thread, len(p.Threads))
		case s.State > Sleeping || !valid(s.Class):
			return fmt.Errorf("profile of %s: sample %d has a bad state or class", p.Event, i)
		case !sum.fits(s):
			return fmt.Errorf("profile of %s: the sum of the samples overflows", p.Event)
		}
		sum.Add(s)
		for _, f := range s.Stack {
			if f < 0 || f >= len(p.Frames) {
				return fmt.Errorf("profile of %s: sample %d has frame %d of %d", p.Event, i, f, len(p.Frames))
			}
		}
	}
	return nil
}

func valid(name string) bool { return len(name) <= maxName && utf8.ValidString(name) }
