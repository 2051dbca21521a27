package compare

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// A Fate is what happened to a finding.
type Fate string

// The fates.
const (
	New     Fate = "new"
	Gone    Fate = "gone"
	Risen   Fate = "more severe"
	Fallen  Fate = "less severe"
	Stayed  Fate = "stayed"
	NotSeen Fate = "not comparable" // the check was not assessed in the other recording
)

// A Finding is a finding of either recording, or of both.
type Finding struct {
	ID     string         `json:"id"` // as in the report of the recording: after, unless it is gone
	Fate   Fate           `json:"fate"`
	Before *check.Finding `json:"before,omitempty"`
	After  *check.Finding `json:"after,omitempty"`
	// Doubt says why the change may be chance: in one half of a recording the check says the same as in the other
	// recording. Empty if not.
	Doubt string `json:"doubt,omitempty"`
	// Moved reports that it came with higher throughput: the bottleneck moved to it.
	Moved bool `json:"moved,omitempty"`
}

// Either returns the finding of the newer recording if it has it, else of the older one.
func (f *Finding) Either() *check.Finding {
	if f.After != nil {
		return f.After
	}
	return f.Before
}

// judgeFindings returns what happened to each finding, the most important first.
func judgeFindings(pairs []findingPair, before, after *diagnosis) []Finding {
	var out []Finding
	for _, p := range pairs {
		if p.before != nil && p.after != nil {
			out = append(out, both(p.before, p.after, before, after))
		} else {
			out = append(out, single(p, before, after))
		}
	}
	slices.SortStableFunc(out, func(x, y Finding) int { return rank(&x, before, after) - rank(&y, before, after) })
	return out
}

// both judges a finding of both recordings.
func both(b, a *check.Finding, before, after *diagnosis) Finding {
	f := Finding{ID: a.ID(), Before: b, After: a, Fate: Stayed}
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

// single judges a finding of one recording.
func single(p findingPair, before, after *diagnosis) Finding {
	f, has, lacks := p.after, after, before
	out := Finding{Fate: New, After: f}
	if f == nil {
		f, has, lacks = p.before, before, after
		out = Finding{Fate: Gone, Before: f}
	}
	out.ID = f.ID()
	switch {
	case !lacks.assessed(f.Check):
		out.Fate = NotSeen
		out.Doubt = "the check was not assessed in the other recording"
	case has.wavers(f.Check, f.Severity, 0) || lacks.wavers(f.Check, 0, f.Severity):
		out.Doubt = atThreshold
	}
	return out
}

// rank orders by importance, then by fate, then by the order of the recording's own report.
func rank(f *Finding, before, after *diagnosis) int {
	const perFate = 10_000
	at, list := f.After, after.whole.Findings
	if at == nil {
		at, list = f.Before, before.whole.Findings
	}
	n := slices.Index([]Fate{New, Risen, Gone, Fallen, Stayed, NotSeen}, f.Fate) * perFate
	if !f.decides() {
		n += 10 * perFate
	}
	return n + slices.IndexFunc(list, func(x check.Finding) bool { return x.ID() == at.ID() })
}

// Loudest returns the higher of the severities.
func (f *Finding) Loudest() check.Severity {
	loudest := f.Either().Severity
	if f.Before != nil {
		loudest = max(loudest, f.Before.Severity)
	}
	return loudest
}

// came reports whether the finding is new or more severe.
func (f *Finding) came() bool { return f.Fate == New || f.Fate == Risen }

// decides reports whether the finding says something about better or worse.
func (f *Finding) decides() bool {
	changed := f.Fate == New || f.Fate == Gone || f.Fate == Risen || f.Fate == Fallen
	return changed && f.Doubt == "" && f.Loudest() >= check.Warning && !f.foreign()
}

// others are the checks for what others do to the target: other guests of the machine, and other programs on its
// CPUs.
var others = []string{"cpu-steal", "cpu-hog"}

// foreign reports whether the finding is about others and says nothing about the target.
func (f *Finding) foreign() bool {
	return f.Either().Beside || slices.Contains(others, f.Either().Check)
}

const atThreshold = "half of one window alone says the other: it is at the threshold"

// wavers reports whether the check has the severity of the other recording in one half of the window, and not the
// severity of the whole. 0 means no finding. Halves that cannot be assessed say nothing. A finding that appeared
// within the window and was critical at its end has passed the threshold, and does not hover at it.
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
	if blind && slices.Max(said) < whole { // neither half has what the whole rests on
		return false
	}
	arose := other == 0 && whole == check.Critical && said[len(said)-1] == check.Critical
	return slices.Min(said) <= other && !arose
}
