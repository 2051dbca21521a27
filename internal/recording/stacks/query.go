package stacks

import (
	"cmp"
	"math"
	"slices"
)

// A Weight is a sum over samples.
type Weight struct {
	Count int64 // samples or events
	Value int64 // nanoseconds or bytes
}

// Add adds a sample.
func (w *Weight) Add(s Sample) {
	w.Count += s.Count
	w.Value += s.Value
}

func (w *Weight) fits(s Sample) bool {
	return s.Count <= math.MaxInt64-w.Count && s.Value <= math.MaxInt64-w.Value
}

// A Set is a set of frames of one profile, by their index in Profile.Frames.
type Set []bool

// Set returns the frames that match.
func (p *Profile) Set(match func(Frame) bool) Set {
	set := make(Set, len(p.Frames))
	for i, f := range p.Frames {
		set[i] = match(f)
	}
	return set
}

// Innermost returns the position in the sample's stack of the innermost frame in the set, or -1 if there is none.
func (s Sample) Innermost(set Set) int {
	return slices.IndexFunc(s.Stack, func(f int) bool { return set[f] })
}

// Outermost returns the position in the sample's stack of the outermost frame in the set, or -1 if there is none.
func (s Sample) Outermost(set Set) int {
	for i := len(s.Stack) - 1; i >= 0; i-- {
		if set[s.Stack[i]] {
			return i
		}
	}
	return -1
}

// Total returns the sum over all samples.
func (p *Profile) Total() Weight {
	var w Weight
	for _, s := range p.Samples {
		w.Add(s)
	}
	return w
}

// Inclusive returns the sum over the samples that have a frame of the set anywhere: the time in these calls and
// everything they call.
func (p *Profile) Inclusive(set Set) Weight { return p.Containing(set).Total() }

// Self returns the sum over the samples whose innermost frame is in the set: the time in these calls alone.
func (p *Profile) Self(set Set) Weight {
	return p.Filter(func(s Sample) bool { return len(s.Stack) > 0 && set[s.Stack[0]] }).Total()
}

// Filter returns the profile with the samples to keep. It shares frames and threads, so sets stay valid for it.
func (p *Profile) Filter(keep func(Sample) bool) *Profile {
	out := *p
	out.Samples = nil
	for _, s := range p.Samples {
		if keep(s) {
			out.Samples = append(out.Samples, s)
		}
	}
	return &out
}

// Containing returns the samples that have a frame of the set, whole.
func (p *Profile) Containing(set Set) *Profile {
	return p.Filter(func(s Sample) bool { return s.Innermost(set) >= 0 })
}

// Without returns the samples that have no frame of the set.
func (p *Profile) Without(set Set) *Profile {
	return p.Filter(func(s Sample) bool { return s.Innermost(set) < 0 })
}

// Below returns the sub-trees of the set's frames: the samples that have such a frame, each cut to the outermost one
// and what it calls. Below(substring).Inclusive(newString) is the time of newString under substring.
func (p *Profile) Below(set Set) *Profile {
	out := p.Containing(set)
	for i, s := range out.Samples {
		out.Samples[i].Stack = s.Stack[:s.Outermost(set)+1]
	}
	return out
}

// A Row is what a profile says about one frame, or about a group of frames.
type Row struct {
	Frame Frame
	Self  Weight // as the innermost call
	Total Weight // with everything that it calls; a recursive call counts once
}

// Method removes line and kind from a frame, so that [Profile.Top] and [Profile.Callers] group by method or function.
func Method(f Frame) Frame { return Frame{Name: f.Name, Module: f.Module} }

// Top returns a row for each group of frames, in falling order of their total. by maps a frame to its group
// ([Method], a package or a module).
func (p *Profile) Top(by func(Frame) Frame) []Row {
	group, rows := p.groups(by)
	last := make([]int, len(rows)) // the last sample that counted into the row, from 1
	for i, s := range p.Samples {
		for depth, f := range s.Stack {
			row := &rows[group[f]]
			if depth == 0 {
				row.Self.Add(s)
			}
			if last[group[f]] != i+1 {
				last[group[f]] = i + 1
				row.Total.Add(s)
			}
		}
	}
	return ranked(rows)
}

// Callers says who is to blame for the frames of a set: for each sample that has such a frame, the nearest call
// outside of the innermost one that is in callers, such as the application's own code. A frame in both sets is its
// own caller. Each caller has a row, grouped as in [Profile.Top], where Self is the weight of the samples. A row with
// an empty Frame is for samples without a caller.
func (p *Profile) Callers(set, callers Set, by func(Frame) Frame) []Row {
	group, rows := p.groups(by)
	none := Row{}
	for _, s := range p.Samples {
		at := s.Innermost(set)
		if at < 0 {
			continue
		}
		row := &none
		if up := (Sample{Stack: s.Stack[at:]}).Innermost(callers); up >= 0 {
			row = &rows[group[s.Stack[at+up]]]
		}
		row.Self.Add(s)
		row.Total.Add(s)
	}
	return ranked(append(rows, none))
}

// groups returns the group of each frame, and an empty row for each group.
func (p *Profile) groups(by func(Frame) Frame) (group []int, rows []Row) {
	var t table[Frame]
	for _, f := range p.Frames {
		group = append(group, t.add(by(f)))
	}
	for _, f := range t.list {
		rows = append(rows, Row{Frame: f})
	}
	return group, rows
}

// ranked sorts by total, then self, then name, and drops rows without samples.
func ranked(rows []Row) []Row {
	rows = slices.DeleteFunc(rows, func(r Row) bool { return r.Total == Weight{} })
	slices.SortFunc(rows, func(x, y Row) int {
		return cmp.Or(compareWeights(y.Total, x.Total), compareWeights(y.Self, x.Self), compareFrames(x.Frame, y.Frame))
	})
	return rows
}

func compareWeights(x, y Weight) int {
	return cmp.Or(cmp.Compare(x.Value, y.Value), cmp.Compare(x.Count, y.Count))
}

// A Share is the weight of the samples with one key.
type Share[K comparable] struct {
	Key K
	Weight
}

// Group sums samples by any key, such as class, state, time or thread, in falling order of their value. Equal values
// are in the order of the samples.
func Group[K comparable](p *Profile, key func(Sample) K) []Share[K] {
	var t table[K]
	var out []Share[K]
	for _, s := range p.Samples {
		i := t.add(key(s))
		if i == len(out) {
			out = append(out, Share[K]{Key: t.list[i]})
		}
		out[i].Add(s)
	}
	slices.SortStableFunc(out, func(x, y Share[K]) int { return compareWeights(y.Weight, x.Weight) })
	return out
}

// ThreadOf returns the thread of a sample, or the zero Thread if it is unknown.
func (p *Profile) ThreadOf(s Sample) Thread {
	if s.Thread < 0 {
		return Thread{}
	}
	return p.Threads[s.Thread]
}
