package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mathext"

	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
)

// fewestRuns is the least number of recordings on each side of a step: a single one is not lasting.
const fewestRuns = 2

func (t *Trend) steps(h *past) {
	tests := 0
	for _, r := range t.Rows {
		if r.Better != keynumber.Neither {
			tests++
		}
	}
	rules := rules(h.guest, h.used)
	for i := range t.Rows {
		row := &t.Rows[i]
		if row.Better == keynumber.Neither {
			continue
		}
		for _, s := range stepsOf(row, rules[row.Name], tests) {
			s.Methods = pooledMethods(h, s.from, s.At, s.to, 1)
			t.Steps = append(t.Steps, s.Step)
		}
	}
	for _, m := range t.Marks {
		if s, ok := stepOfMark(m); ok {
			t.Steps = append(t.Steps, s)
		}
	}
	t.byOutcome(rules, tests)
	slices.SortStableFunc(t.Steps, func(x, y Step) int { return cmp.Compare(x.At, y.At) })
	t.hiddenStep(h)
}

// hiddenStep looks for a step that no number shows: for each recording in turn it compares the methods of all
// profiles before it with all profiles after. This finds the regressions that the spread between runs hides from the
// numbers.
func (t *Trend) hiddenStep(h *past) {
	if len(t.Steps) > 0 {
		return
	}
	var best *Methods
	n := len(h.points)
	at, most := 0, 0.0
	look := func(i int) {
		m := pooledMethods(h, 0, i, n, n-2*fewestRuns+1)
		if m == nil {
			return
		}
		grown, _ := m.counting(Unknown)
		for _, x := range grown {
			// Certainty decides between the places: how far the bounds are from no change, per width.
			if certainty := math.Log(x.Factor) / math.Log(x.High/x.Low); certainty > most {
				best, at, most = m, i, certainty
			}
		}
	}
	stride := strideOf(n)
	for i := fewestRuns; i+fewestRuns <= n; i += stride {
		look(i)
	}
	for middle, i := at, max(fewestRuns, at-stride+1); best != nil && i < middle+stride && i+fewestRuns <= n; i++ {
		if i != middle {
			look(i)
		}
	}
	if best != nil {
		t.Steps = append(t.Steps, Step{
			At: at, Name: "methods", Label: "methods", Result: Worse, Summary: best.Grown[0].Text(),
			Before: best.Grown[0].Before,
			After:  best.Grown[0].After, Methods: best,
		})
	}
}

// strideOf returns the stride of the first pass over the places between so many recordings: with 500, looking at
// every place would take minutes. A lasting step also shows from its neighbourhood; there every place is looked at
// then.
func strideOf(n int) int {
	const few = 40
	if n <= few {
		return 1
	}
	return int(math.Sqrt(float64(n)))
}

// A span is a step with the recordings that it was found in: from index from up to, not including, index to.
type span struct {
	Step
	from, to int
}

// A level is a number in one recording.
type level struct {
	at int // index of the recording
	keynumber.Estimate
}

func levelsOf(values []*keynumber.Estimate) []level {
	var out []level
	for i, v := range values {
		if v != nil {
			out = append(out, level{i, *v})
		}
	}
	return out
}

func means(list []level) []float64 {
	out := make([]float64, len(list))
	for i, l := range list {
		out[i] = l.Mean
	}
	return out
}

// stepsOf divides a number's recordings into stretches of one level, and returns the places between two stretches
// with certainly different means.
func stepsOf(row *Row, r rule, tests int) []span {
	list := levelsOf(row.Values)
	if len(list) < 2*fewestRuns {
		return nil
	}
	tests *= len(list) - 2*fewestRuns + 1
	cuts := stretches(list, r, tests)
	number := &keynumber.Number{Name: row.Name, Label: row.Label, Unit: row.Unit, Better: row.Better, Floor: row.floor}
	var out []span
	for i := 1; i+1 < len(cuts); i++ {
		from, at, to := cuts[i-1], cuts[i], cuts[i+1]
		b, a := pooled(list[from:at], r), pooled(list[at:to], r)
		c := difference(b, a, spread{}, tests) // the spread between runs is in the two errors already
		result := r.judge(number, b.Mean, a.Mean, c)
		if result == Same {
			continue
		}
		n := Number{Label: row.Label, Unit: row.Unit, Before: &b, After: &a, Change: &c}
		out = append(out, span{
			Step{
				At: list[at].at, Name: row.Name, Label: row.Label, Result: result, Before: b.Mean, After: a.Mean,
				Summary: n.Text(),
			},
			list[from].at, list[to-1].at + 1,
		})
	}
	return out
}

// stretches returns the bounds of the stretches, from 0 to the number of recordings: the bounds that leave the least
// scatter, where each further bound must remove more scatter than chance would (optimal partitioning, B. Jackson et
// al., IEEE Signal Processing Letters 12, 2005).
func stretches(list []level, r rule, tests int) []int {
	n := len(list)
	price := square(mathext.NormalQuantile(1 - familyError/2/float64(tests)))
	variance := noise(list, r)
	values := means(list)
	least := make([]float64, n+1)
	last := make([]int, n+1)
	for end := 1; end <= n; end++ {
		least[end] = math.Inf(1)
		for begin := 0; begin+fewestRuns <= end; begin++ {
			_, squares := scatter(values[begin:end])
			cost := least[begin] + squares/variance
			if begin > 0 {
				cost += price
			}
			if cost < least[end] {
				least[end], last[end] = cost, begin
			}
		}
	}
	cuts := []int{n}
	for at := n; at > 0; at = last[at] {
		cuts = append([]int{last[at]}, cuts...)
	}
	return cuts
}

// scatter returns the mean and the sum of squared deviations from it.
func scatter(values []float64) (mean, squares float64) {
	mean = floats.Sum(values) / float64(len(values))
	for _, v := range values {
		squares += square(v - mean)
	}
	return mean, squares
}

// own returns the variance of one recording's mean from its own samples and the spread between runs.
func (r rule) own(l level) float64 { return square(l.StdErr) + square(r.spread.at(l.Mean)) }

// noise returns the variance of one recording's mean. It comes from the differences between neighbours, which contain
// no step in at least half of the cases, and is no less than the measured spread.
func noise(list []level, r rule) float64 {
	var steps []float64
	expected := 0.0
	for i, l := range list {
		expected += r.own(l) / float64(len(list))
		if i > 0 {
			steps = append(steps, math.Abs(l.Mean-list[i-1].Mean))
		}
	}
	slices.Sort(steps)
	// The median of the absolute difference of two normal values is 0.954 standard deviations.
	const perDeviation = 0.954
	return max(square(steps[len(steps)/2]/perDeviation), expected, math.SmallestNonzeroFloat64)
}

// pooled returns the mean of several recordings, with an error from their differences that is never less than the
// measured spread between runs and their own errors would give.
func pooled(list []level, r rule) keynumber.Estimate {
	n := float64(len(list))
	own := 0.0
	for _, l := range list {
		own += r.own(l)
	}
	mean, squares := scatter(means(list))
	e := keynumber.Estimate{Mean: mean, Samples: len(list)}
	seen, expected := squares/(n-1)/n, own/n/n
	if expected >= seen {
		e.StdErr, e.DF = math.Sqrt(expected), spreadFreedom
	} else {
		e.StdErr, e.DF = math.Sqrt(seen), n-1
	}
	return e
}

// stepOfMark finds a check that has findings in all recordings from one on, and in none before, or the other way
// round.
func stepOfMark(m Mark) (Step, bool) {
	var known []int
	for i, s := range m.Seen {
		if s != SeenNot {
			known = append(known, i)
		}
	}
	loud := func(i int) bool { return m.Seen[known[i]] == SeenWarning || m.Seen[known[i]] == SeenCritical }
	cut := 0
	for i := 1; i < len(known); i++ {
		if loud(i) != loud(i-1) {
			if cut > 0 {
				return Step{}, false
			}
			cut = i
		}
	}
	if cut < fewestRuns || len(known)-cut < fewestRuns {
		return Step{}, false
	}
	s := Step{At: known[cut], Name: m.Check, Label: m.Check, Result: Worse, Summary: m.Check + " is found from then on"}
	if !loud(cut) {
		s.Result, s.Summary = Improved, m.Check+" is no longer found"
	}
	return s, true
}

// pooledMethods adds up the profiles of several recordings: the more there are, the smaller the change that shows.
func pooledMethods(h *past, from, at, to, places int) *Methods {
	b, a := h.pool.sum(h.points[from:at]), h.pool.sum(h.points[at:to])
	if b == nil || a == nil || b.engine != a.engine || b.total < fewest || a.total < fewest {
		return nil
	}
	m := &Methods{
		Engine: b.engine, Samples: [2]int64{int64(b.total), int64(a.total)}, Seconds: [2]float64{b.seconds, a.seconds},
		Clustering: max(b.clumps, a.clumps), Grown: []Method{}, Shrunk: []Method{},
	}
	before, after := requestsOf(h.points[from:at]), requestsOf(h.points[at:to])
	work := 0.0
	if before.count > 0 && after.count > 0 {
		work = after.count / before.count
		m.ofCPU, m.ofWork = keynumber.SpreadOfCPU(h.guest), before.variance+after.variance
	}
	m.test(b, a, work, places)
	if len(m.Grown)+len(m.Shrunk) == 0 || m.Against == AgainstShares {
		return nil
	}
	return m
}

// requests is the number of requests that a profile covers; count is 0 if it is not known. variance is the variance
// of its logarithm.
type requests struct{ count, variance float64 }

// requestsOf adds up the requests of several recordings: not known if one is not known.
func requestsOf(points []point) requests {
	var sum requests
	for _, p := range points {
		if p.work.count <= 0 {
			return requests{}
		}
		sum.count += p.work.count
		sum.variance += square(p.work.count) * p.work.variance
	}
	sum.variance /= square(sum.count)
	return sum
}

// decide judges the state at the end: a step for the worse that a later step for the better undid is over.
func (t *Trend) decide() {
	last := map[string]Result{}
	for _, s := range t.Steps {
		if s.Result != Changed {
			last[s.Name] = s.Result
		}
	}
	for _, r := range last {
		if t.Verdict != Same && t.Verdict != r {
			t.Verdict = Mixed
			break
		}
		t.Verdict = r
	}
	targets := map[string]bool{}
	kernels := map[string]bool{}
	for _, r := range t.Runs {
		targets[r.Target.Kind+" "+r.Target.Name] = true
		kernels[r.Kernel] = true
	}
	if len(targets) > 1 {
		t.Doubts = append(t.Doubts, fmt.Sprintf("the recordings are of %d different targets", len(targets)))
	}
	if len(kernels) > 1 {
		t.Doubts = append(t.Doubts, fmt.Sprintf("they were made under %d different kernels", len(kernels)))
	}
}
