package compare

import (
	"cmp"
	"math"
	"slices"
)

// callers looks for methods that changed with all that they call, where none of what they call did for certain: a loop that is walked
// twice makes ten helpers dearer, none of them by much. The most certain is noted and its samples are set aside, until none is left; so of
// a method and its callers the one stands in the list that the change is of. changed are the methods that were found by their own time.
func (m *Methods) callers(changed []pair, b, a *tally, most reference, z float64) []pair {
	without := map[string]bool{}
	for _, p := range changed {
		without[p.name] = true
	}
	for range shownMethods {
		best, certainty := pair{}, 1.0
		for _, p := range wholes(b, a, without) {
			p.between += m.between
			x := p.compare(b.total, a.total, most, z)
			if c := math.Abs(math.Log(x.Factor)) / math.Log(x.High/x.Factor); c > certainty && math.Abs(x.Extra) >= leastExtra {
				best, certainty = p, c
			}
		}
		if best.name == "" {
			break
		}
		x := best.compare(b.total, a.total, most, z)
		x.With = true
		m.note(x)
		changed = append(changed, best)
		without[best.name] = true
	}
	return changed
}

// wholes gives the application's methods with all that they call, but for the samples that are of or below those without. Left out are
// methods that call nothing, and those that are on the same stacks as one that they call: these say the same.
func wholes(b, a *tally, without map[string]bool) []pair {
	if b.names == nil { // of a tally without calls
		return nil
	}
	list := make([]whole, len(b.names.list))
	set := b.names.set(without)
	for i := range b.calls {
		b.calls[i].addTo(list, set, func(w *whole) *float64 { return &w.before })
	}
	for i := range a.calls {
		a.calls[i].addTo(list, set, func(w *whole) *float64 { return &w.after })
	}
	var out []pair
	depths := map[string]int{}
	for i, w := range list {
		name := b.names.list[i]
		itself := w.before == b.counts[name] && w.after == a.counts[name]
		if all := w.before + w.after; all > 0 && all >= enough(b) && !itself {
			depths[name] = w.depth
			out = append(out, pair{name: name, before: w.before, after: w.after, between: spreadOf(w.kernel/all, w.inlined/all)})
		}
	}
	slices.SortFunc(out, func(x, y pair) int { return cmp.Or(depths[x.name]-depths[y.name], cmp.Compare(x.name, y.name)) })
	seen := map[[2]float64]bool{}
	return slices.DeleteFunc(out, func(p pair) bool {
		k := [2]float64{p.before, p.after}
		double := seen[k]
		seen[k] = true
		return double
	})
}

// whole is the samples that have one method on the stack.
type whole struct {
	before, after, kernel, inlined float64
	depth                          int // the outermost place it has on a stack
}

// addTo counts a call for each of its callers, by the numbers of their names, unless it is of or below one of those without.
func (c *call) addTo(list []whole, without []bool, side func(*whole) *float64) {
	if without[c.name] || c.below(without) {
		return
	}
	for depth, x := range c.callers {
		w := &list[x.name()]
		*side(w) += c.n
		if c.inKernel {
			w.kernel += c.n
		}
		if x.inlined() {
			w.inlined += c.n
		}
		w.depth = max(w.depth, depth)
	}
}
