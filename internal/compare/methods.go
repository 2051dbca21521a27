package compare

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A Method is one method, function or kind of work whose part of the CPU time changed. Shares are of all samples of the recording.
type Method struct {
	Name   string  `json:"name"`
	Before float64 `json:"share_before"`
	After  float64 `json:"share_after"`
	// Factor is how much more of it there is, set against what most of the program takes: 1.5 when it takes half as much again while
	// the rest of the program is as it was. The bounds hold it with a certainty of 99 % for all methods together.
	Factor float64 `json:"factor"`
	Low    float64 `json:"factor_low"`
	High   float64 `json:"factor_high"`
	// Extra is what it adds to the program's CPU time, as a share of that before: negative for what it takes away.
	Extra   float64  `json:"extra"`
	Samples [2]int64 `json:"samples"`
	// With tells that all is counted in which the method is on the stack, but for what other methods of the lists have: none of what it
	// calls changed by more than chance, all of it together did.
	With bool `json:"with_callees,omitempty"`
}

// Methods is what two CPU profiles say of the methods.
type Methods struct {
	Engine  string     `json:"engine"`
	Samples [2]int64   `json:"samples"`
	Seconds [2]float64 `json:"cpu_seconds"` // that the samples stand for
	Tested  int        `json:"tested"`      // methods with samples enough to be tested
	Grown   []Method   `json:"grown"`
	Shrunk  []Method   `json:"shrunk"`
	// Clustering is how many times more the counts of a second scatter than independent samples would; 1 if they do not, or if the profile
	// has no times.
	Clustering float64 `json:"clustering"`
	// Against says what methods are set against: "most of the program", "requests", or "shares" where there is neither, so that what
	// grew cannot be told from what the rest shrank, and none of it counts.
	Against string `json:"against,omitempty"`
	// Detectable says what change these samples could have shown, for methods of some shares.
	Detectable []Detectable `json:"detectable"`
	Reason     string       `json:"reason,omitempty"` // why there is no comparison
	// Net is what all that grew and all that shrank add up to, as a share of the CPU time before.
	Net       float64 `json:"net"`
	Uncounted string  `json:"uncounted,omitempty"` // why some or all of them do not count
	netError  float64 // half the width of Net's bounds
	between   float64 // as of [pair], of all methods
	scale     float64
	ofCPU     float64 // spread of CPU time between runs
}

// Detectable is the least change of a method that would have been seen four times out of five.
type Detectable struct {
	Share   float64 `json:"share"`   // of the method before
	Factor  float64 `json:"factor"`  // by which it would have to grow
	Extra   float64 `json:"extra"`   // as a share of the program's CPU time
	Seconds float64 `json:"seconds"` // of CPU time that a profile would need to show a growth by wanted of all CPU time; 0: this one does
	// Never tells that no profile would, since what else runs on the host differs.
	Never bool `json:"never,omitempty"`
}

// wanted is the regression that a profile should be long enough to show.
const wanted = 0.05

// usualShare is that of a method which is worth a look, and the one that a summary speaks of.
const usualShare = 0.1

// power is the chance of seeing what is said to be detectable.
const power = 0.8

// longest is how many times as long a profile is thought of: minutes become weeks.
const longest = 1e4

// shownMethods bounds each list: past them there is little that is worth a look.
const shownMethods = 10

// fewest is the number of samples, of both profiles together, from which on a method is tested: below, even all of them in one profile
// and none in the other would not be certain.
const fewest = 20

// enough is the number of samples from which on a method is tested, of both profiles together. With fewer than leastExtra of those before
// it cannot be worth a word, and each further test makes the others weaker.
func enough(before *tally) float64 { return max(fewest, leastExtra*before.total) }

// A tally is the samples of one recording by what they are in.
type tally struct {
	engine  string
	seconds float64 // of CPU time that the samples stand for
	counts  map[string]float64
	kernel  map[string]float64 // of the counts, those taken in the kernel
	inlined map[string]float64 // of the counts, those in code that is compiled into one with other methods'
	total   float64
	clumps  float64 // see Methods.Clustering
	calls   []call
}

// call is samples by whose time they are and what they were called for.
type call struct {
	hotcode.Attribution
	n        float64
	inKernel bool
}

// below tells whether one of these methods is on the stack.
func (c *call) below(methods map[string]bool) bool {
	return slices.ContainsFunc(c.Callers, func(x hotcode.Caller) bool { return methods[x.Name] })
}

// The values of Methods.Against.
const (
	AgainstMost     = "most of the program"
	AgainstRequests = "requests"
	AgainstShares   = "shares"
)

// methods compares the CPU profiles; nil where neither recording has one. beside is by how many CPUs what else ran on the host differs.
func methods(before, after *side, beside float64) *Methods {
	b, okB := hotcode.CPUOf(before.rec)
	a, okA := hotcode.CPUOf(after.rec)
	switch {
	case !okB && !okA:
		return nil
	case !okB || !okA:
		return &Methods{Reason: "only one of the recordings has a CPU profile"}
	case b.Event != a.Event || b.Engine != a.Engine:
		return &Methods{Reason: fmt.Sprintf("one profile is by %s, the other by %s: they do not see the same", b.Engine, a.Engine)}
	}
	tb, ta := tallyOf(b), tallyOf(a)
	out := &Methods{
		Engine:  b.Engine,
		Samples: [2]int64{b.Profile.Total().Count, a.Profile.Total().Count}, Seconds: [2]float64{b.Sampled(), a.Sampled()},
		Clustering: max(tb.clumps, ta.clumps), Grown: []Method{}, Shrunk: []Method{},
	}
	if tb.total < fewest || ta.total < fewest {
		out.Reason = "there are too few samples to compare"
		return out
	}
	out.ofCPU = cpuSpread(before.rec, after.rec)
	out.between = 2 * square(spreadBeside*min(beside/othersFull, 1))
	out.test(tb, ta, workOf(before, b, after, a), 1)
	return out
}

// address is what differs in the names of classes and stubs from one run to the next.
var address = regexp.MustCompile(`0x[0-9a-f]+|\$\$Lambda[$/.][^.]*|\$Proxy\d+|GeneratedMethodAccessor\d+|LambdaForm\$\w+[/.]?\w*`)

func newTally(engine string, seconds float64) *tally {
	return &tally{
		engine: engine, seconds: seconds,
		counts: map[string]float64{}, kernel: map[string]float64{}, inlined: map[string]float64{},
	}
}

func (t *tally) add(c call) {
	t.calls = append(t.calls, c)
	t.counts[c.Name] += c.n
	t.total += c.n
	if c.inKernel {
		t.kernel[c.Name] += c.n
	}
	if c.Inlined {
		t.inlined[c.Name] += c.n
	}
}

func tallyOf(c *hotcode.CPU) *tally {
	t := newTally(c.Engine, c.Sampled())
	buckets := map[time.Duration]map[string]float64{}
	for i, a := range c.Attributed() {
		s := c.Samples[i]
		a.Name = address.ReplaceAllString(a.Name, "*")
		for j := range a.Callers {
			a.Callers[j].Name = address.ReplaceAllString(a.Callers[j].Name, "*")
		}
		x := call{a, float64(s.Count), len(s.Stack) > 0 && c.Frames[s.Stack[0]].Kind == stacks.Kernel}
		t.add(x)
		if buckets[s.At] == nil {
			buckets[s.At] = map[string]float64{}
		}
		buckets[s.At][x.Name] += x.n
	}
	t.clumps = t.clustering(buckets)
	return t
}

// clustering compares the scatter of the counts from second to second with that of independent samples (Pearson's chi-square per
// degree of freedom, over the methods with enough samples): a program that does one thing for a second and another in the next gives
// samples that tell less than their number says.
func (t *tally) clustering(buckets map[time.Duration]map[string]float64) float64 {
	const (
		leastBuckets = 4
		leastPerCell = 5 // the usual bound for chi-square
	)
	if len(buckets) < leastBuckets {
		return 1
	}
	chi, freedom := 0.0, 0.0
	for name, n := range t.counts {
		if n/float64(len(buckets)) < leastPerCell {
			continue
		}
		for _, counts := range buckets {
			all := 0.0
			for _, x := range counts {
				all += x
			}
			want := n * all / t.total
			if want > 0 {
				chi += square(counts[name]-want) / (want * (1 - n/t.total + 1e-9))
				freedom += 1 - 1/float64(len(buckets))
			}
		}
	}
	if freedom == 0 {
		return 1
	}
	return max(1, chi/freedom)
}

// pair is the counts of one method.
type pair struct {
	name          string
	before, after float64
	between       float64 // variance of the logarithm of their ratio between two runs of one program, beside that of sampling
}

// spreadOfKernel is how much the kernel's part of a method differs between runs of one program: who handles an interrupt, and in whose
// time a packet is received, is chosen anew in each. In a program's own code there is no such part (docs/decisions/0012: 11 % and none).
const spreadOfKernel = 0.15

// spreadOfInlined is how much the samples of a method that is compiled into one piece of code with others differ between starts of a JVM:
// the compiler keeps track of whose an instruction is by halves, also with -XX:+DebugNonSafepoints. Measured in three starts of one
// program, JDK 17: 11, 11 and 23 % of its time in one method, 7, 19 and 7 % in the one that calls it.
const spreadOfInlined = 0.5

// spreadBeside is how much a method differs between runs beside others and without: what misses the cache gets dearer, and what computes
// does not. Measured with a neighbour of 0.3 CPUs: 2.65 times the samples in a method of 2 %, at 22 and 36 samples. Of a smaller
// difference it is a part.
const spreadBeside = 0.25

func pairOf(name string, b, a *tally) pair {
	p := pair{name: name, before: b.counts[name], after: a.counts[name]}
	if all := p.before + p.after; all > 0 {
		p.between = spreadOf((b.kernel[name]+a.kernel[name])/all, (b.inlined[name]+a.inlined[name])/all)
	}
	return p
}

// spreadOf gives pair.between of a method of which such shares are in the kernel, and in code that is compiled into one with others'.
func spreadOf(kernel, inlined float64) float64 {
	return 2 * (square(spreadOfKernel*kernel) + square(spreadOfInlined*inlined))
}

// workOf gives how many times as many requests the profile after covers; 0 if that is not known.
func workOf(before *side, b *hotcode.CPU, after *side, a *hotcode.CPU) float64 {
	wb, okB := before.work()
	wa, okA := after.work()
	if !okB || !okA || wb.perSecondTotal() <= 0 || b.Window <= 0 {
		return 0
	}
	return wa.perSecondTotal() * a.Window / (wb.perSecondTotal() * b.Window)
}

// test compares each method. work is as of [workOf]; places is how many such comparisons are made of the same recordings.
func (m *Methods) test(b, a *tally, work float64, places int) {
	list := m.pairs(b, a, nil)
	m.Tested = len(list)
	tests := len(list) + len(wholes(b, a, nil))
	z := quantileNormal(1 - familyError/2/float64(max(tests, 1)*places))
	z *= math.Sqrt(m.Clustering)
	most := m.reference(list, b, a, work, z)
	changed, with := m.changes(list, b, a, most, z)
	if len(with) > 0 { // what these call was taken for a part of what did not change
		most = m.reference(m.pairs(b, a, with), b, a, work, z)
		changed, _ = m.changes(list, b, a, most, z)
	}
	m.scale = most.scale
	m.balance(changed, most, b.total, z)
	byExtra := func(x, y Method) int { return cmp.Compare(math.Abs(y.Extra), math.Abs(x.Extra)) }
	slices.SortStableFunc(m.Grown, byExtra)
	slices.SortStableFunc(m.Shrunk, byExtra)
	m.Grown, m.Shrunk = m.Grown[:min(len(m.Grown), shownMethods)], m.Shrunk[:min(len(m.Shrunk), shownMethods)]
	m.detectable(b, a, z)
}

// pairs gives the methods with samples enough, by the time that is their own, but for the samples below those without.
func (m *Methods) pairs(b, a *tally, without map[string]bool) []pair {
	b, a = b.but(without), a.but(without)
	var list []pair
	for name := range union(b.counts, a.counts) {
		if p := pairOf(name, b, a); p.before+p.after >= enough(b) {
			p.between += m.between
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(x, y pair) int { return cmp.Compare(x.name, y.name) })
	return list
}

// but gives a tally without the samples that have one of these methods on the stack.
func (t *tally) but(without map[string]bool) *tally {
	if len(without) == 0 {
		return t
	}
	out := newTally(t.engine, t.seconds)
	for _, c := range t.calls {
		if !c.below(without) {
			out.add(c)
		}
	}
	out.total = t.total
	return out
}

// changes notes what changed by its own time, and then with all that it calls: with are the latter.
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

// note puts a method on its list, if it certainly changed and that is worth a word.
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

// balance adds up what grew and what shrank. Work that has moved from one method to another, or a method that has another name since, is
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

// counting gives what of the methods speaks for worse and for better. What the CPU time of a request as a whole certainly did, or else what
// grew and shrank together, outweighs its parts.
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

// leastExtra is the least growth that is taken for the program's, as a share of all CPU time. Where a run's data and code lie in memory
// moves some of it, which can all be in one method: measured, 2.4 % of all CPU time in a loop of 4 %, in two runs of one program that
// takes a lock. A regression below that is not told from it, however long the profiles are.
const leastExtra = 0.025

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

// reference is what a method's counts are set against: by what factor there would be more samples after, were the method as it was, and the
// variance of that factor's logarithm.
type reference struct{ scale, variance float64 }

// reference finds what to set methods against: most of the program, if most of it changed in one ratio; else the requests; else nothing
// but the total. A single method that is most of the program is no witness where requests are known: it may be the one that changed.
// Methods whose samples can as well be others' (spreadOfInlined) are no measure.
func (m *Methods) reference(list []pair, b, a *tally, work, z float64) reference {
	list = slices.DeleteFunc(slices.Clone(list), func(p pair) bool { return p.between > m.between+2*square(spreadOfKernel) })
	most, largest, n := bulk(list, z)
	dominated := largest.before > most.before/2 || largest.after > most.after/2
	if n >= leastBulk && most.before >= b.total/2 && most.after >= a.total/2 && !(dominated && work > 0) {
		m.Against = AgainstMost
		return reference{most.after / most.before, 1/most.before + 1/most.after}
	}
	if work > 0 {
		m.Against = AgainstRequests
		return reference{work, 2 * square(m.ofCPU)}
	}
	m.Against = AgainstShares
	return reference{a.total / b.total, 1/a.total + 1/b.total}
}

// counts are samples before and after.
type counts struct{ before, after float64 }

// bulk finds the methods whose ratio is no further from the median's than chance allows, then from that of all these together, and how many
// they are, and how many samples the largest of them has. Set against them, one that grew does not make all others shrink, and one that is
// gone does not make them grow; nor does a faster CPU or a heavier load.
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

// medianRatio is the median of the methods' ratios, each with the weight of its samples.
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

// leastBulk is the number of methods from which on one can speak of most of them.
const leastBulk = 3

// compare gives the change of one method against most of the program. Counts are taken as Poisson's; adding a half to each keeps the
// logarithm finite and takes off its bias (J. B. S. Haldane, Annals of Human Genetics 20, 1956).
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

// detectable says what would have been seen, for methods of some shares.
func (m *Methods) detectable(b, a *tally, z float64) {
	needs := z + quantileNormal(power)*math.Sqrt(m.Clustering)
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

// growth is the factor whose logarithm is so many standard errors from none, for a method of a share of so many samples; the error is that
// of the counts with the growth in them, of the rest of the program, and what differs between runs.
func (m *Methods) growth(share, before, after, errors float64) float64 {
	factor := 1.0
	rest := 1/before/(1-share) + 1/after/(1-share) + m.between
	for range 50 {
		factor = math.Exp(errors * math.Sqrt(1/(share*before+0.5)+1/(share*after*factor+0.5)+rest))
	}
	return factor
}
