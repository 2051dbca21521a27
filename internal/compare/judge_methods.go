package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"

	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
)

// A Method is one method, function or kind of work whose share of the CPU time changed. Shares refer to all samples
// of the recording.
type Method struct {
	Name   string  `json:"name"`
	Before float64 `json:"share_before"`
	After  float64 `json:"share_after"`
	// Factor is how much more of it there is, relative to most of the program: 1.5 if it takes half as much again
	// while the rest of the program is unchanged. The bounds are 99 % confidence bounds for all methods together.
	Factor float64 `json:"factor"`
	Low    float64 `json:"factor_low"`
	High   float64 `json:"factor_high"`
	// Extra is what it adds to the program's CPU time, as a share of the time before; negative if it takes time away.
	Extra   float64  `json:"extra"`
	Samples [2]int64 `json:"samples"`
	// With reports that all samples with the method on the stack count, except those of other methods of the lists:
	// no single callee changed by more than chance, but all together did.
	With bool `json:"with_callees,omitempty"`
}

// Methods is what two CPU profiles say about the methods.
type Methods struct {
	Engine  string     `json:"engine"`
	Samples [2]int64   `json:"samples"`
	Seconds [2]float64 `json:"cpu_seconds"` // that the samples stand for
	Tested  int        `json:"tested"`      // methods with enough samples to be tested
	Grown   []Method   `json:"grown"`
	Shrunk  []Method   `json:"shrunk"`
	// Clustering is by which factor the counts per second scatter more than independent samples would; 1 if they do
	// not, or if the profile has no times.
	Clustering float64 `json:"clustering"`
	// Against says what methods are compared against: "most of the program", "requests", or "shares" if there is
	// neither. With shares, growth of a method looks the same as shrinking of the rest, and nothing counts.
	Against string `json:"against,omitempty"`
	// Detectable says what change these samples could have shown, for methods of some shares.
	Detectable []Detectable `json:"detectable"`
	Reason     string       `json:"reason,omitempty"` // why there is no comparison
	// Net is the sum of all growth and all shrinking, as a share of the CPU time before.
	Net       float64 `json:"net"`
	Uncounted string  `json:"uncounted,omitempty"` // why some or all of them do not count
	netError  float64 // half the width of Net's bounds
	aside     string  // why none of them counts
	only      Result  // of the outcome: only what supports it counts
	between   float64 // as in [pair], for all methods
	scale     float64
	nodes     nodeTest
	ofCPU     float64 // spread of CPU time between runs
	ofWork    float64 // variance of the logarithm of the ratio of requests
}

// A Detectable is the least change of a method that would have been seen four times out of five.
type Detectable struct {
	Share  float64 `json:"share"`  // of the method before
	Factor float64 `json:"factor"` // by which it would have to grow
	Extra  float64 `json:"extra"`  // as a share of the program's CPU time
	// Seconds is the CPU time that a profile needs to show a growth by wanted of all CPU time; 0 if this one does.
	Seconds float64 `json:"seconds"`
	// Never reports that no profile would show it, because other programs on the host differ.
	Never bool `json:"never,omitempty"`
}

// wanted is the regression that a profile should be long enough to show.
const wanted = 0.05

// usualShare is the share of a method that is worth a look; a summary uses it.
const usualShare = 0.1

// power is the chance of seeing a change that is called detectable.
const power = 0.8

// longest caps how far the recording time is extrapolated: minutes become weeks.
const longest = 1e4

// shownMethods bounds each list: further methods are hardly worth a look.
const shownMethods = 10

// The values of Methods.Against.
const (
	AgainstMost     = "most of the program"
	AgainstRequests = "requests"
	AgainstShares   = "shares"
)

// judgeMethods compares the CPU profiles; nil if neither recording has one. beside is by how many CPUs other programs
// on the host differ.
func judgeMethods(before, after *reading, beside float64) *Methods {
	b, a := before.profile, after.profile
	switch {
	case b == nil && a == nil:
		return nil
	case b == nil || a == nil:
		return &Methods{Reason: "only one of the recordings has a CPU profile"}
	case b.Event != a.Event || b.Engine != a.Engine:
		return &Methods{Reason: fmt.Sprintf("one profile is by %s, the other by %s: they do not see the same", b.Engine,
			a.Engine)}
	}
	all := newNames()
	tb, ta := tallyOf(b, all), tallyOf(a, all)
	out := &Methods{
		Engine:  b.Engine,
		Samples: [2]int64{b.Profile.Total().Count, a.Profile.Total().Count}, Seconds: [2]float64{
			b.Sampled(),
			a.Sampled(),
		},
		Clustering: max(tb.clumps, ta.clumps), Grown: []Method{}, Shrunk: []Method{},
	}
	if tb.total < fewest || ta.total < fewest {
		out.Reason = "there are too few samples to compare"
		return out
	}
	out.ofCPU = keynumber.SpreadOfCPU(before.guest || after.guest)
	out.between = 2 * square(spreadBeside*beside/othersFull) // extrapolated beyond what was measured
	out.ofWork = before.workVariance() + after.workVariance()
	out.test(tb, ta, workOf(before, after), 1)
	return out
}

// workOf returns the ratio of the requests that the profiles after and before cover; 0 if it is not known.
func workOf(before, after *reading) float64 {
	b, a := before.work, after.work
	if !b.Known() || !a.Known() || b.PerSecond <= 0 || before.profile.Window <= 0 {
		return 0
	}
	return a.PerSecond * after.profile.Window / (b.PerSecond * before.profile.Window)
}

// test compares each method. work is the result of [workOf]; places is how many such comparisons are made of the same
// recordings.
func (m *Methods) test(b, a *tally, work float64, places int) {
	list := pairMethods(b, a, nil, m.between)
	m.Tested = len(list)
	tests := len(list) + len(wholes(b, a, nil))
	z := mathext.NormalQuantile(1 - familyError/2/float64(max(tests, 1)*places))
	z *= math.Sqrt(m.Clustering)
	most := m.reference(list, b, a, work, z)
	changed, with := m.changes(list, b, a, most, z)
	if len(with) > 0 { // what these call was counted as unchanged
		most = m.reference(pairMethods(b, a, with, m.between), b, a, work, z)
		changed, _ = m.changes(list, b, a, most, z)
	}
	m.scale = most.scale
	m.nodes = nodeTest{most, b.total, m.between, z, m.Against != AgainstShares}
	m.balance(changed, most, b.total, z)
	byExtra := func(x, y Method) int { return cmp.Compare(math.Abs(y.Extra), math.Abs(x.Extra)) }
	slices.SortStableFunc(m.Grown, byExtra)
	slices.SortStableFunc(m.Shrunk, byExtra)
	m.Grown, m.Shrunk = m.Grown[:min(len(m.Grown), shownMethods)], m.Shrunk[:min(len(m.Shrunk), shownMethods)]
	m.detectable(b, a, z)
}

// changes notes methods that changed by own time, and then methods that changed with all that they call, which it
// also returns as with.
func (m *Methods) changes(list []pair, b, a *tally, most reference, z float64) (changed []pair, with map[string]bool) {
	m.Grown, m.Shrunk = []Method{}, []Method{}
	for _, p := range list {
		if m.note(p.compare(b.total, a.total, most, z)) {
			changed = append(changed, p)
		}
	}
	own := len(changed)
	changed = m.callers(changed, b, a, most, z)
	with = map[string]bool{}
	for _, p := range changed[own:] {
		with[p.name] = true
	}
	return changed, with
}

// callers looks for methods that changed with all that they call although no single callee certainly changed: a loop
// that runs twice makes ten helpers more expensive, none of them by much. It notes the most certain method and sets
// its samples aside, until none is left. So the list has the method that the change belongs to, not its callers as
// well. changed are the methods that were found by their own time.
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
			if c := math.Abs(math.Log(x.Factor)) / math.Log(x.High/x.Factor); c > certainty &&
				math.Abs(x.Extra) >= leastExtra {
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

// note puts a method on its list, if it certainly changed and the change is worth mentioning.
func (m *Methods) note(x Method) bool {
	switch {
	case x.Low > 1 && x.Extra >= leastExtra:
		m.Grown = append(m.Grown, x)
	case x.High < 1 && x.Extra <= -leastExtra:
		m.Shrunk = append(m.Shrunk, x)
	default:
		return false
	}
	return true
}

// balance adds up what grew and what shrank. Work that moved from one method to another, or a renamed method, is
// both.
func (m *Methods) balance(changed []pair, most reference, total, z float64) {
	before, after, variance := 0.0, 0.0, 0.0
	for _, p := range changed {
		a := p.after / most.scale
		before, after = before+p.before, after+a
		variance += p.before + a/most.scale + a*a*p.between
	}
	m.Net = (after - before) / total
	m.netError = z * math.Sqrt(variance+after*after*most.variance) / total
}

// counting returns the methods that count for worse and for better. A certain change of the CPU time per request as a
// whole, or else the sum of growth and shrinking, outweighs its parts.
func (m *Methods) counting(whole Result) (grown, shrunk []Method) {
	uncertain := math.Abs(m.Net) <= max(m.netError, leastExtra)
	switch {
	case m.Against == AgainstShares || len(m.Grown)+len(m.Shrunk) == 0:
		return nil, nil
	case whole == Worse:
		return m.Grown, nil
	case whole == Improved:
		return nil, m.Shrunk
	case len(m.Grown) == 0 || len(m.Shrunk) == 0:
		return m.Grown, m.Shrunk
	case uncertain:
		return nil, nil
	case m.Net > 0:
		return m.Grown, nil
	}
	return nil, m.Shrunk
}

// A reference is what a method's counts are compared against: the factor by which there would be more samples after
// if the method were unchanged, and the variance of that factor's logarithm.
type reference struct{ scale, variance float64 }

// reference returns what to compare methods against: most of the program, if most of it changed by one ratio; else
// the requests; else only the total. If requests are known, a single method that is most of the program does not
// serve: it may be the one that changed. Nor do methods whose samples may belong to others (spreadOfInlined).
func (m *Methods) reference(list []pair, b, a *tally, work, z float64) reference {
	list = slices.DeleteFunc(slices.Clone(list), func(p pair) bool {
		return p.between > m.between+2*square(
			spreadOfKernel)
	})
	most, largest, n := bulk(list, z)
	dominated := largest.before > most.before/2 || largest.after > most.after/2
	if n >= leastBulk && most.before >= b.total/2 && most.after >= a.total/2 && !(dominated && work > 0) {
		m.Against = AgainstMost
		return reference{most.after / most.before, 1/most.before + 1/most.after}
	}
	if work > 0 {
		m.Against = AgainstRequests
		return reference{work, 2*square(m.ofCPU) + m.ofWork}
	}
	m.Against = AgainstShares
	return reference{a.total / b.total, 1/a.total + 1/b.total}
}

// counts holds the samples before and after.
type counts struct{ before, after float64 }

// bulk finds the methods with a ratio no further from the median ratio, and then from the ratio of all these
// together, than chance allows. It returns their samples, the samples of the largest and their number. Compared
// against them, a method that grew does not make all others shrink, and one that is gone does not make them grow; nor
// does a faster CPU or a heavier load.
func bulk(list []pair, z float64) (sum, largest counts, n int) {
	if len(list) == 0 {
		return counts{}, counts{}, 0
	}
	scale := medianRatio(list)
	for range 10 { // it is settled after two or three
		last := sum
		sum, largest, n = counts{}, counts{}, 0
		for _, p := range list {
			b, a := p.before+0.5, p.after+0.5
			if math.Abs(math.Log(a/b/scale)) <= z*math.Sqrt(1/b+1/a+p.between) {
				sum.before, sum.after, n = sum.before+p.before, sum.after+p.after, n+1
				largest.before, largest.after = max(largest.before, p.before), max(largest.after, p.after)
			}
		}
		if sum.before == 0 || sum.after == 0 {
			return counts{}, counts{}, 0
		}
		if sum == last {
			break
		}
		scale = sum.after / sum.before
	}
	return sum, largest, n
}

// medianRatio returns the median of the methods' ratios, weighted by their samples.
func medianRatio(list []pair) float64 {
	ratio := func(p pair) float64 { return (p.after + 0.5) / (p.before + 0.5) }
	ordered := slices.Clone(list)
	slices.SortFunc(ordered, func(x, y pair) int { return cmp.Compare(ratio(x), ratio(y)) })
	sum := 0.0
	for _, p := range ordered {
		sum += p.before + p.after
	}
	for _, p := range ordered {
		if sum -= 2 * (p.before + p.after); sum <= 0 {
			return ratio(p)
		}
	}
	return 1
}

// leastBulk is the number of methods from which on "most of them" has a meaning.
const leastBulk = 3

// compare returns the change of one method against most of the program. Counts are treated as Poisson; adding a half
// to each keeps the logarithm finite and removes its bias (J. B. S. Haldane, Annals of Human Genetics 20, 1956).
func (p pair) compare(totalBefore, totalAfter float64, most reference, z float64) Method {
	b, a, scale := p.before+0.5, p.after+0.5, most.scale
	factor := a / b / scale
	width := z * math.Sqrt(1/b+1/a+p.between+most.variance)
	return Method{
		Name: p.name, Before: p.before / totalBefore, After: p.after / totalAfter,
		Factor: factor, Low: factor * math.Exp(-width), High: factor * math.Exp(width),
		Extra: (p.after/scale - p.before) / totalBefore, Samples: [2]int64{int64(p.before), int64(p.after)},
	}
}

// detectable sets what would have been seen, for methods of some shares.
func (m *Methods) detectable(b, a *tally, z float64) {
	needs := z + mathext.NormalQuantile(power)*math.Sqrt(m.Clustering)
	for _, share := range []float64{0.02, usualShare, 0.3} {
		extra := func(longer float64) float64 {
			return max(leastExtra, share*(m.growth(share, longer*b.total, longer*a.total, needs)-1))
		}
		d := Detectable{Share: share, Factor: 1 + extra(1)/share, Extra: extra(1)}
		if d.Extra > wanted {
			longer := 1.0
			for longer < longest && extra(longer) > wanted {
				longer *= 1.1
			}
			if d.Never = longer >= longest; !d.Never {
				d.Seconds = m.Seconds[0] * longer
			}
		}
		m.Detectable = append(m.Detectable, d)
	}
}

// growth returns the factor whose logarithm is so many standard errors from zero, for a method with a share of so
// many samples. The error is the one of the counts including the growth, of the rest of the program, and of the
// difference between runs.
func (m *Methods) growth(share, before, after, errors float64) float64 {
	factor := 1.0
	rest := 1/before/(1-share) + 1/after/(1-share) + m.between
	for range 50 {
		factor = math.Exp(errors * math.Sqrt(1/(share*before+0.5)+1/(share*after*factor+0.5)+rest))
	}
	return factor
}
