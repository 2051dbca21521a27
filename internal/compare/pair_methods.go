package compare

import (
	"cmp"
	"slices"
)

// A pair is the counts of one method.
type pair struct {
	name          string
	before, after float64
	// between is the variance of the logarithm of their ratio between two runs of one program, besides the variance
	// of sampling.
	between float64
}

// spreadOfKernel is how much the kernel's part of a method differs between runs of one program: each run chooses anew
// who handles an interrupt, and in whose time a packet is received. A program's own code has no such part
// (docs/decisions/0012: 11 % and none).
const spreadOfKernel = 0.15

// spreadOfInlined is how much the samples of a method that is compiled into one piece of code with others differ
// between starts of a JVM: the compiler only half tracks which method an instruction belongs to, even with
// -XX:+DebugNonSafepoints. Measured in three starts of one program, JDK 17: 11, 11 and 23 % of its time in one
// method, 7, 19 and 7 % in the one that calls it.
const spreadOfInlined = 0.5

// spreadBeside is how much a method differs between runs with and without other programs: code that misses the cache
// gets more expensive, and code that computes does not. Measured with a neighbour of 0.3 CPUs: 2.65 times the samples
// in a method of 2 %, at 22 and 36 samples. A smaller neighbour causes a part of it.
const spreadBeside = 0.25

// fewest is the number of samples, of both profiles together, from which on a method is tested: with fewer, even all
// in one profile and none in the other would not be certain.
const fewest = 20

// leastExtra is the least growth that is attributed to the program, as a share of all CPU time. The placement of a
// run's data and code in memory shifts some CPU time, possibly all in one method: measured, 2.4 % of all CPU time in
// a loop of 4 %, in two runs of one program that takes a lock. A smaller regression cannot be distinguished from
// that, however long the profiles are.
const leastExtra = 0.025

// enough returns the number of samples, of both profiles together, from which on a method is tested. With fewer than
// leastExtra of the samples before, a method cannot be worth mentioning, and each further test makes the others
// weaker.
func enough(before *tally) float64 { return max(fewest, leastExtra*before.total) }

func pairOf(name string, b, a *tally) pair {
	p := pair{name: name, before: b.counts[name], after: a.counts[name]}
	if all := p.before + p.after; all > 0 {
		p.between = spreadOf((b.kernel[name]+a.kernel[name])/all, (b.inlined[name]+a.inlined[name])/all)
	}
	return p
}

// spreadOf returns pair.between of a method with such shares in the kernel, and in code compiled into one piece with
// others'.
func spreadOf(kernel, inlined float64) float64 {
	return 2 * (square(spreadOfKernel*kernel) + square(spreadOfInlined*inlined))
}

func union(x, y map[string]float64) map[string]bool {
	out := map[string]bool{}
	for k := range x {
		out[k] = true
	}
	for k := range y {
		out[k] = true
	}
	return out
}

// pairMethods returns the methods with enough samples, by own time, leaving out samples below the methods of without.
// between is the variance that all methods have besides their own.
func pairMethods(b, a *tally, without map[string]bool, between float64) []pair {
	b, a = b.but(without), a.but(without)
	var list []pair
	for name := range union(b.counts, a.counts) {
		if p := pairOf(name, b, a); p.before+p.after >= enough(b) {
			p.between += between
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(x, y pair) int { return cmp.Compare(x.name, y.name) })
	return list
}

// wholes returns the application's methods with all that they call, leaving out samples of or below the methods of
// without. It leaves out methods that call nothing, and methods on the same stacks as one of their callees: these say
// the same.
func wholes(b, a *tally, without map[string]bool) []pair {
	if b.names == nil { // a tally without calls
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
			out = append(out, pair{
				name: name, before: w.before, after: w.after,
				between: spreadOf(w.kernel/all, w.inlined/all),
			})
		}
	}
	slices.SortFunc(out, func(x, y pair) int {
		return cmp.Or(depths[x.name]-depths[y.name],
			cmp.Compare(x.name, y.name))
	})
	seen := map[[2]float64]bool{}
	return slices.DeleteFunc(out, func(p pair) bool {
		k := [2]float64{p.before, p.after}
		double := seen[k]
		seen[k] = true
		return double
	})
}

// A whole is the samples that have one method on the stack.
type whole struct {
	before, after, kernel, inlined float64
	depth                          int // its outermost place on a stack
}

// addTo counts a call for each of its callers, by the numbers of their names, unless it is of or below a method of
// without.
func (c *call) addTo(list []whole, without []bool, side func(*whole) *float64) {
	if without[c.name] || c.below(without) {
		return
	}
	for depth, x := range c.above {
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
