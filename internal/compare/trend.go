package compare

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
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

// A Run is one recording.
type Run struct {
	Name string `json:"name"` // name of its file
	Side
}

// A Row is one number over all recordings.
type Row struct {
	Name   string                `json:"name"`
	Label  string                `json:"label"`
	Unit   quantity.Unit         `json:"unit"`
	Better keynumber.Better      `json:"better,omitempty"`
	Values []*keynumber.Estimate `json:"values"` // in the order of the recordings; null if it is not known
	floor  float64               // as in [keynumber.Number]
}

// A Mark is one check's findings at warning or above over all recordings.
type Mark struct {
	Check string `json:"check"`
	Seen  []Seen `json:"seen"` // in the order of the recordings
}

// Seen is the outcome of a check in one recording.
type Seen string

// The outcomes.
const (
	SeenNot      Seen = "not assessed"
	SeenFine     Seen = "fine"
	SeenWarning  Seen = "warning"
	SeenCritical Seen = "critical"
)

// A Step is where a lasting change began.
type Step struct {
	At      int      `json:"at"`   // index of the first recording after it
	Name    string   `json:"name"` // of a number or a check
	Label   string   `json:"label"`
	Result  Result   `json:"result"`
	Summary string   `json:"summary"`
	Before  float64  `json:"before"` // mean of the recordings up to it, back to the step before
	After   float64  `json:"after"`
	Methods *Methods `json:"methods,omitempty"` // all profiles before it against all after
}

// A Source is a recording that is opened when its turn comes, and the name to show for it.
type Source struct {
	Name    string
	Started time.Time
	Open    func() (*recording.Recording, error)
}

// A point is what is kept of one recording. The recording itself is not kept: many do not fit into memory.
type point struct {
	run     Run
	result  *check.Result
	numbers []keynumber.Number // in the same order for all recordings
	part    *part              // in the pool of profiles; nil without a profile
	work    requests           // that the profile covers
}

// A past is what is kept of all recordings, in the order of time.
type past struct {
	points []point
	pool   *pool
	guest  bool    // at least one was recorded in a virtual machine
	used   float64 // CPUs of the busiest recording

	slowConnect, slowWait float64 // what counts as slow: the 99th percentiles of the first
}

// MakeTrend puts recordings in order and finds the steps. It leaves out a recording that cannot be opened, and names
// it among the doubts.
func MakeTrend(sources []Source, checks []*check.Check, opts check.Options) *Trend {
	list := slices.Clone(sources)
	slices.SortStableFunc(list, func(x, y Source) int {
		return cmp.Or(x.Started.Compare(y.Started),
			cmp.Compare(x.Name, y.Name))
	})
	t := &Trend{Schema: Schema, Runs: []Run{}, Rows: []Row{}, Marks: []Mark{}, Steps: []Step{}, Verdict: Same}
	h := &past{pool: newPool()}
	for _, s := range list {
		rec, err := s.Open()
		if err != nil {
			t.Doubts = append(t.Doubts, fmt.Sprintf("%s is left out: %v", s.Name, err))
			continue
		}
		h.add(s.Name, rec, checks, opts)
	}
	var results []*check.Result
	for _, p := range h.points {
		results = append(results, p.result)
		t.Runs = append(t.Runs, p.run)
	}
	t.rows(h.points)
	t.marks(checks, results)
	t.steps(h)
	t.decide()
	if h.pool.full {
		t.Doubts = append(t.Doubts,
			fmt.Sprintf("the profiles have more than %d different stacks: of the rest only what ran counts, not what "+
				"called it", maxPoolCalls))
	}
	return t
}

func (h *past) add(name string, rec *recording.Recording, checks []*check.Check, opts check.Options) {
	res := check.Run(rec, checks, opts)
	source := keynumber.NewSource(rec, keynumber.Told{})
	if len(h.points) == 0 {
		source.SlowerThan(source)
		h.slowConnect, h.slowWait = source.Slow()
	}
	source.SlowAs(h.slowConnect, h.slowWait)
	p := point{run: Run{name, sideOf(rec, res)}, result: res, numbers: source.Numbers()}
	h.guest, h.used = h.guest || keynumber.IsGuest(rec), max(h.used, usedBy(p.numbers))
	if c, ok := hotcode.CPUOf(rec); ok {
		p.part = h.pool.add(tallyOf(c, h.pool.names))
		if w := source.Work(); w.Known() {
			p.work = requests{w.PerSecond * c.Window, workVariance(p.numbers)}
		}
	}
	h.points = append(h.points, p)
}

// rows puts the numbers of all recordings side by side.
func (t *Trend) rows(points []point) {
	if len(points) == 0 {
		return
	}
	for i, n := range points[0].numbers {
		r := Row{Name: n.Name, Label: n.Label, Unit: n.Unit, Better: n.Better, floor: n.Floor}
		known := false
		for _, p := range points {
			r.Values = append(r.Values, p.numbers[i].Estimate)
			known = known || p.numbers[i].Estimate != nil
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

// Regressed reports whether the trend ended worse than it began.
func (t *Trend) Regressed() bool { return t.Verdict == Worse || t.Verdict == Mixed }

// Span returns the time from the first recording to the last.
func (t *Trend) Span() (first, last time.Time) {
	if len(t.Runs) == 0 {
		return first, last
	}
	return t.Runs[0].Started, t.Runs[len(t.Runs)-1].Started
}
