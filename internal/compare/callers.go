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
	counts, depths := map[string]*pair{}, map[string]int{}
	kernel, inlined := map[string]float64{}, map[string]float64{}
	for _, t := range []*tally{b, a} {
		for _, c := range t.calls {
			if without[c.Name] || c.below(without) {
				continue
			}
			for depth, x := range c.Callers {
				name := x.Name
				if counts[name] == nil {
					counts[name] = &pair{name: name}
				}
				p := counts[name]
				if t == b {
					p.before += c.n
				} else {
					p.after += c.n
				}
				if c.inKernel {
					kernel[name] += c.n
				}
				if x.Inlined {
					inlined[name] += c.n
				}
				depths[name] = max(depths[name], depth)
			}
		}
	}
	var out []pair
	for name, p := range counts {
		itself := p.before == b.counts[name] && p.after == a.counts[name]
		if all := p.before + p.after; all >= enough(b) && !itself {
			p.between = spreadOf(kernel[name]/all, inlined[name]/all)
			out = append(out, *p)
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
