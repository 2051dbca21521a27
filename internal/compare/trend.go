package compare

import (
	"cmp"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
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
	Name   string                `json:"name"`
	Label  string                `json:"label"`
	Unit   quantity.Unit         `json:"unit"`
	Better keynumber.Better      `json:"better,omitempty"`
	Values []*keynumber.Estimate `json:"values"` // in the order of the recordings; null where it is not known
	floor  float64               // as of [keynumber.Number]
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

// rows sets the numbers of all recordings beside each other. The 99th percentiles of the first are what counts as slow in all.
func (t *Trend) rows(list []Source) {
	var first *keynumber.Source
	var numbers [][]keynumber.Number // of each recording, all in one order
	for _, s := range list {
		source := keynumber.NewSource(s.Recording, 0)
		if first == nil {
			first = source
		}
		source.SlowerThan(first)
		numbers = append(numbers, source.Numbers())
	}
	if len(numbers) == 0 {
		return
	}
	for i, n := range numbers[0] {
		r := Row{Name: n.Name, Label: n.Label, Unit: n.Unit, Better: n.Better, floor: n.Floor}
		known := false
		for _, of := range numbers {
			r.Values = append(r.Values, of[i].Estimate)
			known = known || of[i].Estimate != nil
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

// Regressed tells whether it ended worse than it began.
func (t *Trend) Regressed() bool { return t.Verdict == Worse || t.Verdict == Mixed }

// Span gives the time from the first recording to the last.
func (t *Trend) Span() (first, last time.Time) {
	if len(t.Runs) == 0 {
		return first, last
	}
	return t.Runs[0].Started, t.Runs[len(t.Runs)-1].Started
}
