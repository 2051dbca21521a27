package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// A Trend is many recordings of one program, in the order of time.
type Trend struct {
	Schema  int      `json:"schema"`
	Runs    []Run    `json:"recordings"`
	Rows    []Row    `json:"numbers"`
	Marks   []Mark   `json:"findings"`
	Steps   []Step   `json:"steps"` // lasting changes, in the order of time
	Verdict Result   `json:"result"`
	Doubts  []string `json:"doubts,omitempty"`
}

// Run is one recording.
type Run struct {
	Name string `json:"name"` // of its file
	Side
}

// Row is one number over all recordings.
type Row struct {
	Name   string        `json:"name"`
	Label  string        `json:"label"`
	Unit   quantity.Unit `json:"unit"`
	Better Better        `json:"better,omitempty"`
	Values []*Estimate   `json:"values"` // in the order of the recordings; null where it is not known
}

// Mark is one check's findings at warning or above over all recordings.
type Mark struct {
	Check string `json:"check"`
	Seen  []Seen `json:"seen"` // in the order of the recordings
}

// Seen is what became of a check in one recording.
type Seen string

// What can become of a check.
const (
	SeenNot      Seen = "not assessed"
	SeenFine     Seen = "fine"
	SeenWarning  Seen = "warning"
	SeenCritical Seen = "critical"
)

// Step is where a lasting change began.
type Step struct {
	At      int      `json:"at"`   // index of the first recording after it
	Name    string   `json:"name"` // of a number or a check
	Label   string   `json:"label"`
	Result  Result   `json:"result"`
	Summary string   `json:"summary"`
	Before  float64  `json:"before"` // mean of the recordings up to it, back to the step before
	After   float64  `json:"after"`
	Methods *Methods `json:"methods,omitempty"` // of all profiles before it against all after
}

// A Source is a recording and the name to show for it.
type Source struct {
	Name      string
	Recording *recording.Recording
}

// fewestRuns is the number of recordings on each side of a step: one alone is not lasting.
const fewestRuns = 2

// MakeTrend puts recordings in order and finds the steps.
func MakeTrend(sources []Source, checks []*check.Check, opts check.Options) *Trend {
	list := slices.Clone(sources)
	slices.SortStableFunc(list, func(x, y Source) int {
		return cmp.Or(x.Recording.Meta.Started.Compare(y.Recording.Meta.Started), cmp.Compare(x.Name, y.Name))
	})
	t := &Trend{Schema: Schema, Runs: []Run{}, Rows: []Row{}, Marks: []Mark{}, Steps: []Step{}, Verdict: Same}
	var results []*check.Result
	for _, s := range list {
		res := check.Run(s.Recording, checks, opts)
		results = append(results, res)
		t.Runs = append(t.Runs, Run{s.Name, sideOf(s.Recording, res)})
	}
	t.rows(list)
	t.marks(checks, results)
	t.steps(list)
	t.decide()
	return t
}

func (t *Trend) rows(list []Source) {
	var sides []*side
	for _, s := range list {
		sides = append(sides, &side{rec: s.Recording})
	}
	for _, s := range sides {
		tails(sides[0], s)
	}
	for _, m := range measures() {
		r := Row{Name: m.name, Label: m.label, Unit: m.unit, Better: m.better}
		known := false
		for _, s := range sides {
			values, _ := m.of(s)
			e, ok := estimate(values)
			if !ok {
				r.Values = append(r.Values, nil)
				continue
			}
			known = true
			r.Values = append(r.Values, &e)
		}
		switch m.name {
		case "slow_connects":
			r.Label = tailLabel("connects", sides[0].slowConnect)
		case "slow_cpu_waits":
			r.Label = tailLabel("waits for a CPU", sides[0].slowWait)
		}
		if known {
			t.Rows = append(t.Rows, r)
		}
	}
}

func (t *Trend) marks(checks []*check.Check, results []*check.Result) {
	for _, c := range checks {
		m := Mark{Check: c.Name}
		loud := false
		for _, r := range results {
			seen := seenIn(r, c.Name)
			loud = loud || seen == SeenWarning || seen == SeenCritical
			m.Seen = append(m.Seen, seen)
		}
		if loud {
			t.Marks = append(t.Marks, m)
		}
	}
}

func seenIn(r *check.Result, name string) Seen {
	switch state(r, name) {
	case check.Unassessed:
		return SeenNot
	case check.Fine, check.Inapplicable:
		return SeenFine
	}
	loudest := check.Info
	for _, f := range r.Findings {
		if f.Check == name {
			loudest = max(loudest, f.Severity)
		}
	}
	switch loudest {
	case check.Critical:
		return SeenCritical
	case check.Warning:
		return SeenWarning
	}
	return SeenFine
}

func recordings(list []Source) (out []*recording.Recording) {
	for _, s := range list {
		out = append(out, s.Recording)
	}
	return out
}

func (t *Trend) steps(list []Source) {
	tests := 0
	for _, r := range t.Rows {
		if r.Better != Neither {
			tests++
		}
	}
	for _, m := range measures(recordings(list)...) {
		i := slices.IndexFunc(t.Rows, func(r Row) bool { return r.Name == m.name })
		if i < 0 || m.better == Neither {
			continue
		}
		for _, s := range stepsOf(&m, t.Rows[i].Values, tests) {
			s.Methods = pooledMethods(list, s.from, s.At, s.to, 1)
			t.Steps = append(t.Steps, s.Step)
		}
	}
	for _, m := range t.Marks {
		if s, ok := stepOfMark(m); ok {
			t.Steps = append(t.Steps, s)
		}
	}
	slices.SortStableFunc(t.Steps, func(x, y Step) int { return cmp.Compare(x.At, y.At) })
	t.hiddenStep(list)
}

// hiddenStep looks where no number shows a step: of all profiles before and after each recording in turn, do methods differ? Those are
// the regressions that the spread between runs hides from the numbers.
func (t *Trend) hiddenStep(list []Source) {
	if len(t.Steps) > 0 {
		return
	}
	var best *Methods
	at, most := 0, 0.0
	for i := fewestRuns; i+fewestRuns <= len(list); i++ {
		m := pooledMethods(list, 0, i, len(list), len(list)-2*fewestRuns+1)
		if m == nil {
			continue
		}
		grown, _ := m.counting(Unknown)
		for _, x := range grown {
			// Certainty decides between the places: how far the bounds are from no change, per width.
			if certainty := math.Log(x.Factor) / math.Log(x.High/x.Low); certainty > most {
				best, at, most = m, i, certainty
			}
		}
	}
	if best != nil {
		t.Steps = append(t.Steps, Step{
			At: at, Name: "methods", Label: "methods", Result: Worse, Summary: best.Grown[0].Text(), Before: best.Grown[0].Before,
			After: best.Grown[0].After, Methods: best,
		})
	}
}

// span is a step with the recordings that it was found in: from before it to before to.
type span struct {
	Step
	from, to int
}

// stepsOf divides a number's recordings into stretches of one level, and gives the places between two stretches whose means certainly
// differ.
func stepsOf(m *measure, values []*Estimate, tests int) []span {
	var known []int
	for i, v := range values {
		if v != nil {
			known = append(known, i)
		}
	}
	if len(known) < 2*fewestRuns {
		return nil
	}
	tests *= len(known) - 2*fewestRuns + 1
	cuts := stretches(m, values, known, tests)
	var out []span
	for i := 1; i+1 < len(cuts); i++ {
		from, at, to := cuts[i-1], cuts[i], cuts[i+1]
		b, a := pooled(m, values, known[from:at]), pooled(m, values, known[at:to])
		c := difference(b, a, spread{}, tests) // the spread between runs is in the two errors already
		result := m.judge(b.Mean, a.Mean, c)
		if result == Same {
			continue
		}
		out = append(out, span{
			Step{
				At: known[at], Name: m.name, Label: m.label, Result: result, Before: b.Mean, After: a.Mean,
				Summary: m.summary(b.Mean, a.Mean),
			},
			known[from], known[to-1] + 1,
		})
	}
	return out
}

// stretches gives the bounds of the stretches, from 0 to the number of recordings: those that leave the least scatter, where each
// further bound must take away more than chance would give it (optimal partitioning, B. Jackson et al., IEEE Signal Processing
// Letters 12, 2005).
func stretches(m *measure, values []*Estimate, known []int, tests int) []int {
	n := len(known)
	price := square(quantileNormal(1 - familyError/2/float64(tests)))
	variance := noise(m, values, known)
	least := make([]float64, n+1)
	last := make([]int, n+1)
	for end := 1; end <= n; end++ {
		least[end] = math.Inf(1)
		for begin := 0; begin+fewestRuns <= end; begin++ {
			cost := least[begin] + scatter(values, known[begin:end])/variance
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

// scatter is the sum of the squares of the deviations from the mean.
func scatter(values []*Estimate, at []int) float64 {
	mean, sum := 0.0, 0.0
	for _, i := range at {
		mean += values[i].Mean / float64(len(at))
	}
	for _, i := range at {
		sum += square(values[i].Mean - mean)
	}
	return sum
}

// noise is the variance of one recording's mean: what neighbours differ by, half of whose differences no step is in, and no less than the
// measured spread.
func noise(m *measure, values []*Estimate, known []int) float64 {
	var steps []float64
	expected := 0.0
	for i, k := range known {
		expected += (square(values[k].stderr) + square(m.between().at(values[k].Mean))) / float64(len(known))
		if i > 0 {
			steps = append(steps, math.Abs(values[k].Mean-values[known[i-1]].Mean))
		}
	}
	slices.Sort(steps)
	// The median of the absolute difference of two normal values is 0.954 standard deviations.
	const perDeviation = 0.954
	return max(square(steps[len(steps)/2]/perDeviation), expected, math.SmallestNonzeroFloat64)
}

func (m *measure) summary(before, after float64) string {
	n := Number{Label: m.label, Unit: m.unit, Before: &Estimate{Mean: before}, After: &Estimate{Mean: after}, Change: &Change{}}
	if before != 0 {
		r := (after - before) / before
		n.Change.Relative = &r
	}
	return n.Text()
}

// pooled gives the mean of several recordings with an error from how they differ, and never less than the measured spread between
// runs and their own errors would give.
func pooled(m *measure, values []*Estimate, at []int) Estimate {
	n := float64(len(at))
	e := Estimate{Samples: len(at), df: n - 1}
	own := 0.0
	for _, i := range at {
		e.Mean += values[i].Mean / n
		own += square(values[i].stderr) + square(m.between().at(values[i].Mean))
	}
	scatter := 0.0
	for _, i := range at {
		scatter += square(values[i].Mean - e.Mean)
	}
	seen := scatter / (n - 1) / n
	if expected := own / n / n; expected >= seen {
		e.stderr, e.df = math.Sqrt(expected), spreadFreedom
	} else {
		e.stderr = math.Sqrt(seen)
	}
	return e
}

// stepOfMark finds a check that speaks in all recordings from one on, and in none before, or the other way round.
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

// pooledMethods adds the profiles of several recordings up: the more there are, the smaller a change that shows.
func pooledMethods(list []Source, from, at, to, places int) *Methods {
	b, a := poolOf(list[from:at]), poolOf(list[at:to])
	if b == nil || a == nil || b.engine != a.engine || b.total < fewest || a.total < fewest {
		return nil
	}
	m := &Methods{
		Engine: b.engine, Samples: [2]int64{int64(b.total), int64(a.total)}, Seconds: [2]float64{b.seconds, a.seconds},
		Clustering: max(b.clumps, a.clumps), Grown: []Method{}, Shrunk: []Method{},
	}
	m.test(b, a, 0, places)
	if len(m.Grown)+len(m.Shrunk) == 0 || m.Against == AgainstShares {
		return nil
	}
	return m
}

// poolOf is nil where a recording has no profile, or they are of two kinds.
func poolOf(list []Source) *tally {
	var sum *tally
	for _, s := range list {
		c, ok := hotcode.CPUOf(s.Recording)
		if !ok {
			return nil
		}
		t := tallyOf(c)
		if sum == nil {
			sum = t
			continue
		}
		if sum.engine != t.engine {
			return nil
		}
		for _, c := range t.calls {
			sum.add(c)
		}
		sum.seconds, sum.clumps = sum.seconds+t.seconds, max(sum.clumps, t.clumps)
	}
	return sum
}

// decide judges what is so at the end: a step for the worse that a later one for the better took back is over.
func (t *Trend) decide() {
	last := map[string]Result{}
	for _, s := range t.Steps {
		last[s.Name] = s.Result
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

// Regressed tells whether it ended worse than it began.
func (t *Trend) Regressed() bool { return t.Verdict == Worse || t.Verdict == Mixed }

// Span gives the time from the first recording to the last.
func (t *Trend) Span() (first, last time.Time) {
	if len(t.Runs) == 0 {
		return first, last
	}
	return t.Runs[0].Started, t.Runs[len(t.Runs)-1].Started
}
