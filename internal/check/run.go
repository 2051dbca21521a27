package check

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A State is the outcome of a check.
type State string

// The outcomes. A check that does not apply is not a gap: it is about another kind of target.
const (
	Found        State = "findings"
	Fine         State = "fine"
	Unassessed   State = "not assessed"
	Inapplicable State = "does not apply"
)

// An Outcome is the outcome of one check, with its reason.
type Outcome struct {
	Check  string           `json:"check"`
	Stage  Stage            `json:"stage"`
	State  State            `json:"state"`
	Read   []quantity.Value `json:"read,omitempty"`   // what was looked at
	Reason string           `json:"reason,omitempty"` // why not assessed, or why it does not apply
	Remedy string           `json:"remedy,omitempty"` // what would make it assessable

	// Blocked reports that what the check needs exists but could not be read, for lack of a permission or because of
	// a failure.
	Blocked bool `json:"blocked,omitempty"`
	// Matters reports that something is used up, and that the check would have said by what; or that its finding
	// would be a warning if no samples were lost.
	Matters bool `json:"matters,omitempty"`
}

// A Result is the diagnosis of one recording.
type Result struct {
	// Findings are in the order in which a reader should act on them: the target's before others', causes before
	// consequences, then by severity, by how much could be won back, and by the fix order. The first is the principal
	// finding if it is at warning or above.
	Findings []Finding `json:"findings"`
	Outcomes []Outcome `json:"outcomes"`
}

// Principal returns the finding to act on first; nil if nothing is at warning or above.
func (r *Result) Principal() *Finding {
	if len(r.Findings) > 0 && r.Findings[0].Severity >= Warning && r.Findings[0].ExplainedBy == "" {
		return &r.Findings[0]
	}
	return nil
}

// Options adjust a run.
type Options struct {
	Params map[*Param]float64 // thresholds other than their defaults
	Causes Causes             // which findings may cause which others
}

// shortWindow is the number of seconds below which rates of a few events are luck: ten intervals of the default
// duration are sampled, and half of them is where one burst stops dominating the mean.
const shortWindow = 5

// Run runs the checks over the recording. A check that panics is "not assessed"; the others go on.
func Run(rec *recording.Recording, checks []*Check, opts Options) *Result {
	res := &Result{}
	shared := map[reflect.Type]any{}
	for _, c := range checks {
		p := &Pass{Recording: rec, check: c, values: opts.Params, shared: shared}
		o := runOne(p)
		res.Outcomes = append(res.Outcomes, o)
		if o.State == Found {
			res.Findings = append(res.Findings, p.findings...)
		}
	}
	lowerConfidence(rec, checks, res.Findings)
	s := sceneOf(rec)
	explain(opts.Causes, s, res.Findings)
	for i := range res.Findings {
		res.Findings[i].Beside = s.beside(res.Findings[i].Subject)
	}
	slices.SortStableFunc(res.Findings, compare)
	fixFirst(s, res.Findings)
	return res
}

func runOne(p *Pass) (o Outcome) {
	c := p.check
	o = Outcome{Check: c.Name, Stage: c.Stage}
	if names, ok := c.Only.Excludes(p); ok {
		o.State, o.Reason = Inapplicable, "there is no "+names+" among the target's processes"
		return o
	}
	for _, m := range c.Needs {
		if !p.Recorded(m) {
			o.State = Unassessed
			o.Reason, o.Remedy = p.Why(m)
			o.Blocked = p.Blocked(m)
			return o
		}
	}
	err := firewall.Run("the check", func() error { return c.Run(p) })
	var na *NotAssessedError
	var fault *firewall.Fault
	switch {
	case errors.As(err, &na):
		o.State, o.Reason, o.Remedy, o.Matters = Unassessed, na.Reason, na.Remedy, na.Matters
	case errors.As(err, &fault):
		o.State, o.Reason, o.Remedy = Unassessed, "the check failed: "+fault.Why+" ("+fault.Where+")", bugRemedy
	case err != nil:
		o.State, o.Reason, o.Remedy = Unassessed, "the check failed: "+err.Error(), bugRemedy
	case len(p.findings) > 0:
		if lost := settle(p); lost != "" {
			o.Reason, o.Remedy = lost+", which could turn over what "+c.Name+" found", "a longer window (--duration)"
			o.Matters = true
		}
		o.State = Found
	default:
		o.State = Fine
	}
	o.Read = p.read
	return o
}

const bugRemedy = "report this as a bug with the recording (--save)"

// lowerConfidence lowers the confidence of findings by one step if their data was lost, late or short, and says why.
func lowerConfidence(rec *recording.Recording, checks []*Check, findings []Finding) {
	for i := range findings {
		f := &findings[i]
		c := byName(checks, f.Check)
		doubts := rec.Losses(slices.Concat(c.Needs, c.Uses))
		if rec.Meta.Duration < shortWindow {
			doubts = append(doubts, fmt.Sprintf("only %s were observed", rec.Window().Text()))
		}
		if len(doubts) > 0 && f.Confidence > Low {
			f.Confidence--
		}
		f.Doubts = append(f.Doubts, doubts...)
	}
}

func byName(checks []*Check, name string) *Check {
	for _, c := range checks {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// fixFirst sets, for findings from profiles, which causes of earlier stages to fix before them: a program that waits
// for a CPU, or spends its CPU time in the kernel, spends its time differently once that is fixed.
func fixFirst(s *scene, findings []Finding) {
	for i := range findings {
		late := &findings[i]
		for j := range findings {
			early := &findings[j]
			if late.Stage >= Runtime && early.Stage < late.Stage && early.Severity >= Warning &&
				early.ExplainedBy == "" &&
				early.ID() != late.ExplainedBy && s.related(early.Subject, late.Subject) {
				late.FixFirst = append(late.FixFirst, early.ID())
			}
		}
	}
}

func compare(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)),
		cmp.Compare(size(a), size(b)),
		cmp.Compare(a.Stage, b.Stage),
		cmp.Compare(b.Confidence, a.Confidence),
		cmp.Compare(b.Weight, a.Weight),
		strings.Compare(a.Check, b.Check),
		strings.Compare(a.Subject.String(), b.Subject.String()),
	)
}

// rank puts the target's findings before others', causes before consequences, and the worse first.
func rank(f Finding) int {
	const severities = int(Critical) + 1
	n := int(Critical - f.Severity)
	if f.ExplainedBy != "" {
		n += severities
	}
	if f.Beside {
		n += 2 * severities
	}
	return n
}

// The sizes of findings, the largest first (docs/decisions/0064). Within one size, findings are so close to each
// other that the fix order decides: shares are known to some tenths of themselves. A finding with an unknown share
// ranks behind those that own a quarter, and before those that own less than a tenth.
const (
	half    = 0.5
	quarter = 0.25
	tenth   = 0.1
)

func size(f Finding) int {
	switch {
	case f.Weight >= half:
		return 0
	case f.Weight >= quarter:
		return 1
	case f.Weight >= tenth, f.Weight == 0:
		return 2
	}
	return 3
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
