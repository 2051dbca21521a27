package compare

import (
	"regexp"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
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

// Loudest gives the higher of the severities.
func (f *Finding) Loudest() check.Severity {
	loudest := f.Either().Severity
	if f.Before != nil {
		loudest = max(loudest, f.Before.Severity)
	}
	return loudest
}

// counts tells whether the finding says something about better or worse.
func (f *Finding) counts() bool {
	changed := f.Fate == New || f.Fate == Gone || f.Fate == Risen || f.Fate == Fallen
	return changed && f.Doubt == "" && f.Loudest() >= check.Warning
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

// diagnosis is what the checks say of one recording, and of its two halves.
type diagnosis struct {
	whole  *check.Result
	halves []half
}

// half is what the checks say of a half of the window. Those that read a profile, or what was read once at the end, are blind there.
type half struct {
	*check.Result
	blind map[string]bool
}

func diagnose(rec *recording.Recording, checks []*check.Check, opts check.Options) *diagnosis {
	d := &diagnosis{whole: check.Run(rec, checks, opts)}
	length := time.Duration(rec.Meta.Duration * float64(time.Second))
	if length < 4*time.Second { // of less than two seconds no check says anything
		return d
	}
	for _, part := range []*recording.Recording{rec.Between(0, length/2), rec.Between(length/2, length)} {
		d.halves = append(d.halves, half{check.Run(part, checks, opts), blind(checks, rec, part)})
	}
	return d
}

// blind gives the checks that read something in the whole recording which is not in a part of it.
func blind(checks []*check.Check, whole, part *recording.Recording) map[string]bool {
	out := map[string]bool{}
	for _, c := range checks {
		for _, m := range slices.Concat(c.Needs, c.Uses) {
			if whole.Recorded(m) && !part.Recorded(m) {
				out[c.Name] = true
			}
		}
	}
	return out
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

const atThreshold = "half of one window alone says the other: it is at the threshold"

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

func (d *diagnosis) assessed(name string) bool { return state(d.whole, name) != check.Unassessed }

func state(r *check.Result, name string) check.State {
	for _, o := range r.Outcomes {
		if o.Check == name {
			return o.State
		}
	}
	return check.Unassessed
}

// wavers tells whether a half of the window has the check speak as loudly as the other recording does, and not as the whole does. 0 is
// silence. Halves that cannot be assessed say nothing. What came up within the window and was critical at its end has passed the
// threshold, and is not at it.
func (d *diagnosis) wavers(name string, whole, other check.Severity) bool {
	var said []check.Severity
	blind := true
	for _, h := range d.halves {
		if st := state(h.Result, name); st == check.Found || st == check.Fine {
			said = append(said, loudest(h.Result, name))
			blind = blind && h.blind[name]
		}
	}
	if len(said) == 0 {
		return false
	}
	if other > whole {
		return slices.Max(said) >= other
	}
	if blind && slices.Max(said) < whole { // what the whole rests on is in neither
		return false
	}
	arose := other == 0 && whole == check.Critical && said[len(said)-1] == check.Critical
	return slices.Min(said) <= other && !arose
}

// loudest gives the highest severity of a check's findings; 0 without any.
func loudest(r *check.Result, name string) check.Severity {
	out := check.Severity(0)
	for _, f := range r.Findings {
		if f.Check == name {
			out = max(out, f.Severity)
		}
	}
	return out
}
