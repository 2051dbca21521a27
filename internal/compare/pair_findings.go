package compare

import (
	"regexp"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// A Fate is what became of a finding.
type Fate string

// The fates.
const (
	New     Fate = "new"
	Gone    Fate = "gone"
	Risen   Fate = "more severe"
	Fallen  Fate = "less severe"
	Stayed  Fate = "stayed"
	NotSeen Fate = "not comparable" // the other recording cannot tell: the check was not assessed there
)

// A Finding is one of either recording, or of both.
type Finding struct {
	ID     string         `json:"id"` // as in the report of the recording: after, unless it is gone
	Fate   Fate           `json:"fate"`
	Before *check.Finding `json:"before,omitempty"`
	After  *check.Finding `json:"after,omitempty"`
	// Doubt says why the change may be chance: in a half of one recording the check says what it says of the other. Empty if not.
	Doubt string `json:"doubt,omitempty"`
}

// Either gives the finding as the newer recording has it, if it does.
func (f *Finding) Either() *check.Finding {
	if f.After != nil {
		return f.After
	}
	return f.Before
}

// changing are the parts of a subject that differ from one run of the same program to the next: process ids, numbers of containers
// and of runs, addresses of locks.
var changing = regexp.MustCompile(`0x[0-9a-f]+|[0-9a-f]{12,}|\d+`)

// nature is a subject without what changes from run to run. Destinations and listeners are told apart by their numbers, others by their
// names.
func nature(s check.Subject) string {
	if s.Kind == "destination" || s.Kind == "listener" {
		return s.String()
	}
	return s.Kind + " " + changing.ReplaceAllString(s.ID, "#")
}

// findings pairs those of both recordings: by check and subject, then by what does not change from run to run, then by the check alone,
// since two runs may show the same fault at another thread, CPU or destination.
func findings(before, after *diagnosis) []Finding {
	b, a := slices.Clone(before.whole.Findings), slices.Clone(after.whole.Findings)
	var out []Finding
	for _, same := range []func(x, y *check.Finding) bool{
		func(x, y *check.Finding) bool { return x.ID() == y.ID() },
		func(x, y *check.Finding) bool { return x.Check == y.Check && nature(x.Subject) == nature(y.Subject) },
		func(x, y *check.Finding) bool { return x.Check == y.Check && x.Subject.Kind == y.Subject.Kind },
	} {
		for i := 0; i < len(a); i++ {
			j := slices.IndexFunc(b, func(x check.Finding) bool { return same(&x, &a[i]) })
			if j < 0 {
				continue
			}
			out = append(out, both(b[j], a[i], before, after))
			a, b = slices.Delete(a, i, i+1), slices.Delete(b, j, j+1)
			i--
		}
	}
	for _, f := range a {
		out = append(out, single(f, New, before, after))
	}
	for _, f := range b {
		out = append(out, single(f, Gone, before, after))
	}
	slices.SortStableFunc(out, func(x, y Finding) int { return rank(&x, before, after) - rank(&y, before, after) })
	return out
}

func both(b, a check.Finding, before, after *diagnosis) Finding {
	f := Finding{ID: a.ID(), Before: &b, After: &a, Fate: Stayed}
	switch {
	case a.Severity > b.Severity:
		f.Fate = Risen
	case a.Severity < b.Severity:
		f.Fate = Fallen
	default:
		return f
	}
	if before.wavers(b.Check, b.Severity, a.Severity) || after.wavers(a.Check, a.Severity, b.Severity) {
		f.Doubt = atThreshold
	}
	return f
}

func single(f check.Finding, fate Fate, before, after *diagnosis) Finding {
	out := Finding{ID: f.ID(), Fate: fate}
	has, lacks := after, before
	if fate == New {
		out.After = &f
	} else {
		out.Before = &f
		has, lacks = before, after
	}
	switch {
	case !lacks.assessed(f.Check):
		out.Fate = NotSeen
		out.Doubt = "the check was not assessed in the other recording"
	case has.wavers(f.Check, f.Severity, 0) || lacks.wavers(f.Check, 0, f.Severity):
		out.Doubt = atThreshold
	}
	return out
}

// rank puts what counts first, then goes by the fate, then by the order of the recording's own report.
func rank(f *Finding, before, after *diagnosis) int {
	const perFate = 10_000
	at, list := f.After, after.whole.Findings
	if at == nil {
		at, list = f.Before, before.whole.Findings
	}
	n := slices.Index([]Fate{New, Risen, Gone, Fallen, Stayed, NotSeen}, f.Fate) * perFate
	if !f.counts() {
		n += 10 * perFate
	}
	return n + slices.IndexFunc(list, func(x check.Finding) bool { return x.ID() == at.ID() })
}
