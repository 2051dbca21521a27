package stacks

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// A Node is a call in two profiles at once, with everything that it calls.
type Node struct {
	Frame         Frame   // without line and kind, as [Method] returns it; empty at the root
	Kind          Kind    // of the first sample that has it
	Before, After int64   // samples, with everything that it calls
	Calls         []*Node // in the order of their names
}

// Both is the stacks of two profiles laid over each other, by method or function. It is a sorted list of stacks: a
// tree of all their calls would take a hundred bytes for each frame of each stack.
type Both struct {
	Before, After int64 // samples
	methods       []Frame
	list          []laid
}

// laid is a stack of one of the profiles.
type laid struct {
	calls []int32 // numbers of methods, in the order of their names, the innermost call first
	kinds []Kind  // of the profile's frames
	stack []int   // the frames
	after bool
	count int64
	at    int // its place among all samples
}

// call returns the method at a depth, counted from outside.
func (l *laid) call(of []int32, depth int) int32 { return of[l.stack[len(l.stack)-1-depth]] }

// Diff lays two profiles over each other.
func Diff(before, after *Profile) *Both {
	b := &Both{Before: before.Total().Count, After: after.Total().Count}
	profiles := [...]*Profile{before, after}
	numbers := b.number(profiles[:])
	for side, p := range profiles {
		kinds := make([]Kind, len(p.Frames))
		for i, f := range p.Frames {
			kinds[i] = f.Kind
		}
		for _, s := range p.Samples {
			b.list = append(b.list, laid{numbers[side], kinds, s.Stack, side == 1, s.Count, len(b.list)})
		}
	}
	slices.SortFunc(b.list, compareLaid)
	return b
}

// number returns the number of the method of each profile's frames. Methods are numbered in the order of their names.
func (b *Both) number(profiles []*Profile) (numbers [][]int32) {
	places := map[Frame]int32{}
	for _, p := range profiles {
		for _, f := range p.Frames {
			if m := Method(f); places[m] == 0 {
				places[m] = 1
				b.methods = append(b.methods, m)
			}
		}
	}
	slices.SortFunc(b.methods, compareFrames)
	for i, m := range b.methods {
		places[m] = int32(i)
	}
	for _, p := range profiles {
		own := make([]int32, len(p.Frames))
		for i, f := range p.Frames {
			own[i] = places[Method(f)]
		}
		numbers = append(numbers, own)
	}
	return numbers
}

// compareLaid orders stacks from the outermost call inwards. Stacks that go on come before those that end.
func compareLaid(x, y laid) int {
	for i := 0; i < len(x.stack) && i < len(y.stack); i++ {
		if c := cmp.Compare(x.call(x.calls, i), y.call(y.calls, i)); c != 0 {
			return c
		}
	}
	return cmp.Or(len(y.stack)-len(x.stack), x.at-y.at)
}

// A run is a part of the list: stacks with the same outermost calls, as many as its depth.
type run struct {
	list  []laid
	depth int
}

// count adds up the samples of each profile.
func (r run) count() (before, after int64) {
	for i := range r.list {
		if l := &r.list[i]; l.after {
			after += l.count
		} else {
			before += l.count
		}
	}
	return before, after
}

// calls returns a run for each method that is called next, and the stacks that end here.
func (r run) calls() (next []run, ends run) {
	list := r.list
	for len(list) > 0 && len(list[0].stack) > r.depth {
		n := 1
		for n < len(list) && len(list[n].stack) > r.depth && list[n].call(list[n].calls, r.depth) == list[0].call(
			list[0].calls, r.depth) {
			n++
		}
		next = append(next, run{list[:n], r.depth + 1})
		list = list[n:]
	}
	return next, run{list, r.depth}
}

// node returns the last call that the run's stacks have in common, without what it calls. Its kind is the first
// sample's.
func (r run) node(of *Both) *Node {
	n := &Node{}
	n.Before, n.After = r.count()
	if r.depth == 0 {
		return n
	}
	first := &r.list[0]
	for i := range r.list {
		if r.list[i].at < first.at {
			first = &r.list[i]
		}
	}
	frame := len(first.stack) - r.depth
	n.Frame, n.Kind = of.methods[first.calls[first.stack[frame]]], first.kinds[first.stack[frame]]
	return n
}

// Tree returns the calls with at least so many samples in one of the profiles, in the order of their names, so that
// equal stacks stand at equal places.
func (b *Both) Tree(before, after float64) *Node { return b.tree(run{list: b.list}, before, after) }

func (b *Both) tree(r run, before, after float64) *Node {
	n := r.node(b)
	next, _ := r.calls()
	for _, c := range next {
		if x, y := c.count(); float64(x) >= before || float64(y) >= after {
			n.Calls = append(n.Calls, b.tree(c, before, after))
		}
	}
	return n
}

// Size returns the number of nodes that [Both.Tree] would make.
func (b *Both) Size(before, after float64) int { return size(run{list: b.list}, before, after) }

func size(r run, before, after float64) int {
	n := 1
	next, _ := r.calls()
	for _, c := range next {
		if x, y := c.count(); float64(x) >= before || float64(y) >= after {
			n += size(c, before, after)
		}
	}
	return n
}

// WriteFolded writes folded stacks with two columns, samples before and after, as difffolded.pl writes them and
// flamegraph.pl draws them: the outermost call first, the mark of its kind behind each name. It replaces what would
// end a name, a line or a column.
func (b *Both) WriteFolded(w io.Writer) error {
	bw := bufio.NewWriter(w)
	if err := b.fold(bw, run{list: b.list}, nil); err != nil {
		return fmt.Errorf("write the folded stacks: %w", err)
	}
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("write the folded stacks: %w", err)
	}
	return nil
}

func (b *Both) fold(w *bufio.Writer, r run, path []string) error {
	next, ends := r.calls()
	for _, c := range next {
		if err := b.fold(w, c, append(path, folded(c.node(b)))); err != nil {
			return err
		}
	}
	before, after := ends.count()
	if before == 0 && after == 0 {
		return nil
	}
	if len(path) == 0 {
		path = []string{"[no stack]"}
	}
	_, err := fmt.Fprintf(w, "%s %d %d\n", strings.Join(path, ";"), before, after)
	return err
}

func folded(n *Node) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r == ';':
			return ':'
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, n.Frame.Name)
	return name + "_[" + marks[n.Kind] + "]"
}
