package compare

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A Standing is the result of testing a finding.
type Standing string

// The results.
const (
	Stands Standing = "stands"
	Falls  Standing = "falls"
	Unsure Standing = "cannot be told"
)

// A Sight is what another window shows of a finding.
type Sight string

// The sights.
const (
	There     Sight = "there"
	Weaker    Sight = "less severe"
	Elsewhere Sight = "of another subject"
	OtherCode Sight = "other code"
	NotThere  Sight = "not there"
	Blind     Sight = "not seen" // it could not be assessed there
)

// A Look is what one window says about a finding.
type Look struct {
	At   string `json:"at"` // "first half", "second half" or "second window"
	Seen Sight  `json:"seen"`
	Says string `json:"says"` // its summary there, the numbers that were read, or why nothing was seen
}

// A Tested is a finding that was tested, or a check that found nothing although somebody says it should.
type Tested struct {
	Finding  string   `json:"finding"` // check and subject
	Severity string   `json:"severity,omitempty"`
	Summary  string   `json:"summary,omitempty"`
	Disproof string   `json:"disproof,omitempty"`
	Result   Standing `json:"result"`
	Because  string   `json:"because"`
	Looks    []Look   `json:"looks,omitempty"`
}

// A Test is the result of testing a recording's findings.
type Test struct {
	Schema    int      `json:"schema"`
	Recording Side     `json:"recording"`
	Second    *Side    `json:"second,omitempty"` // the second window, if there is one
	Load      string   `json:"load,omitempty"`   // of the second window compared to the first
	Findings  []Tested `json:"findings"`
}

// Count returns how many findings had this result.
func (t *Test) Count(s Standing) (n int) {
	for i := range t.Findings {
		if t.Findings[i].Result == s {
			n++
		}
	}
	return n
}

// Overlap says why two recordings are not two independent windows; empty if they are.
func Overlap(first, second *recording.Recording) string {
	a, b := first.Meta, second.Meta
	end := func(m recording.Meta) time.Time {
		return m.Started.Add(time.Duration(m.Duration * float64(time.Second)))
	}
	switch {
	case reflect.DeepEqual(a, b):
		return "both are one recording"
	case a.Started.Before(end(b)) && b.Started.Before(end(a)):
		return "the two windows have seconds in common"
	}
	return ""
}

// Disprove looks for each finding at warning or above in the halves of its recording and, if there is one, in a
// second window. named are checks with all findings tested; a named check without findings falls if the recording
// passes it. second may be nil. The result for a named check that is not among opts.Checks is Unsure.
func Disprove(first, second *recording.Recording, named []string, opts Options) *Test {
	x := &tester{
		first: first, second: second, opts: opts, before: diagnose(first, opts.Checks, opts.Check),
		load: loadsOf(first, second),
	}
	t := &Test{Schema: Schema, Recording: sideOf(first, x.before.whole)}
	if second != nil {
		x.after = check.Run(second, opts.Checks, opts.Check)
		side := sideOf(second, x.after)
		t.Second, t.Load = &side, x.load.text
	}
	for i := range x.before.whole.Findings {
		f := &x.before.whole.Findings[i]
		if len(named) == 0 && f.Severity >= check.Warning || slices.Contains(named, f.Check) {
			t.Findings = append(t.Findings, x.test(f))
		}
	}
	for _, name := range named {
		if state(x.before.whole, name) != check.Found {
			t.Findings = append(t.Findings, x.absent(name))
		}
	}
	return t
}

// tester holds what all tests of a recording's findings read.
type tester struct {
	first, second *recording.Recording
	opts          Options
	before        *diagnosis
	after         *check.Result
	load          loads
}

// absent judges a check that finds nothing in the recording.
func (x *tester) absent(name string) Tested {
	t := Tested{Finding: name, Result: Unsure}
	switch o := outcome(x.before.whole, name); o.State {
	case check.Fine:
		t.Result, t.Because = Falls, "the recording passes this check"+wasRead(o)
	case check.Inapplicable:
		t.Result, t.Because = Falls, o.Reason
	default:
		t.Because = "it was not assessed: " + o.Reason
	}
	return t
}

// test looks for a finding in all windows.
func (x *tester) test(f *check.Finding) Tested {
	t := Tested{
		Finding: f.ID(), Severity: f.Severity.String(), Summary: f.Summary, Disproof: f.Disproof, Result: Unsure,
	}
	names := []string{"first half", "second half"}
	for i, h := range x.before.halves {
		look := x.look(f, names[i], h.Result, x.first)
		if (look.Seen == NotThere || look.Seen == Blind) && h.blind[f.Check] {
			look.Seen, look.Says = Blind, "a profile, or what was read once, cannot be divided"
		}
		t.Looks = append(t.Looks, look)
	}
	if x.second == nil {
		t.Result, t.Because = halves(f, t.Looks)
		return t
	}
	look := x.look(f, "second window", x.after, x.second)
	if lacks := x.lacks(f); look.Seen == NotThere && lacks != "" {
		look.Seen, look.Says = Blind, lacks
	}
	t.Looks = append(t.Looks, look)
	t.Result, t.Because = x.judge(f, look)
	if c := x.checkOf(f); t.Result == Stands && c != nil && c.Beyond != "" {
		t.Result, t.Because = Unsure, "its numbers are there again, but what would disprove it is "+c.Beyond
	}
	return t
}

// look returns what a window shows of a finding.
func (x *tester) look(f *check.Finding, at string, res *check.Result, rec *recording.Recording) Look {
	o := outcome(res, f.Check)
	switch o.State {
	case check.Unassessed:
		return Look{at, Blind, "not assessed: " + o.Reason}
	case check.Fine, check.Inapplicable:
		return Look{at, NotThere, strings.TrimPrefix(wasRead(o), ": ")}
	}
	for _, p := range pairFindings([]check.Finding{*f}, res.Findings) {
		if p.before == nil || p.after == nil {
			continue
		}
		says := p.after.Summary
		switch {
		case nature(f.Subject) != nature(p.after.Subject):
			return Look{at, Elsewhere, p.after.Subject.String() + ": " + says}
		case p.after.Severity < min(f.Severity, check.Warning):
			return Look{at, Weaker, says}
		case x.otherCode(f, p.after, rec):
			return Look{at, OtherCode, says}
		}
		return Look{at, There, says}
	}
	return Look{at, NotThere, "the check finds something else there"}
}

// otherCode reports whether two findings about the program's own code have no function in common.
func (x *tester) otherCode(f, g *check.Finding, rec *recording.Recording) bool {
	if f.Stage != check.Code || len(f.Marks) == 0 || len(g.Marks) == 0 {
		return false
	}
	a, b := marked(x.first, f), marked(rec, g)
	for name := range a {
		if b[name] {
			return false
		}
	}
	return len(a) > 0 && len(b) > 0
}

// marked returns the functions that a finding names.
func marked(rec *recording.Recording, f *check.Finding) map[string]bool {
	out := map[string]bool{}
	for _, m := range f.Marks {
		if p, ok := rec.Ranked(m.Event); ok && m.At < len(m.Stack) && m.Stack[m.At] < len(p.Frames) {
			out[p.Frames[m.Stack[m.At]].Name] = true
		}
	}
	return out
}

// halves judges by the recording alone. It may show that a finding lasts, but never that it is wrong: what is gone in
// one half may come back.
func halves(f *check.Finding, looks []Look) (Standing, string) {
	const again = "; give a second window (--pid N, or another recording)"
	there, blind := 0, 0
	for _, l := range looks {
		switch l.Seen {
		case There:
			there++
		case Blind:
			blind++
		}
	}
	switch {
	case len(looks) == 0:
		return Unsure, "the recording is too short to be divided" + again
	case there == len(looks):
		return Stands, "each half of the recording has it"
	case there > 0 && f.Event:
		return Stands, "it happened, which does not undo itself"
	case blind > 0:
		return Unsure, "a half of the recording cannot tell: " + firstBlind(looks) + again
	case there > 0:
		return Unsure, "it is in one half of the recording alone" + again
	}
	return Unsure, "each half of the recording alone has too little of it" + again
}

func firstBlind(looks []Look) string {
	for _, l := range looks {
		if l.Seen == Blind {
			return l.Says
		}
	}
	return ""
}

// judge judges by a second window, which read the numbers again that would disprove the finding.
func (x *tester) judge(f *check.Finding, l Look) (Standing, string) {
	switch l.Seen {
	case There:
		return Stands, "the second window has it: " + l.Says
	case Weaker:
		return Unsure, "it does less harm in the second window: " + l.Says
	case Elsewhere:
		return Unsure, "the second window has it of another subject: " + l.Says
	case Blind:
		return Unsure, "the second window cannot tell: " + l.Says
	case OtherCode:
		return x.unless(f, "the second window has other code on top: "+l.Says)
	}
	return x.unless(f, "the second window does not have it"+after(l.Says))
}

// after puts a colon before s, unless s is empty.
func after(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

// leastWindow is the least length of a second window relative to the first for an absence to mean something: a window
// of five seconds misses an event that comes once in ten seconds half of the time, and a shorter one nearly always.
const leastWindow = 0.5

// unless returns that a finding falls, unless what is absent could not have been seen.
func (x *tester) unless(f *check.Finding, why string) (Standing, string) {
	lost := x.second.Losses(nil)
	if c := x.checkOf(f); c != nil {
		lost = x.second.Losses(slices.Concat(c.Needs, c.Uses))
	}
	switch {
	case f.Event:
		return Unsure, "it happened once, and need not happen again"
	case x.passed(f):
		return Unsure, why + ", but it had passed before the first window ended"
	case x.second.Meta.Duration < leastWindow*x.first.Meta.Duration:
		return Unsure, fmt.Sprintf("%s, which is %s against %s: observe for longer", why, x.second.Window().Text(),
			x.first.Window().Text())
	case len(lost) > 0:
		return Unsure, why + ", but samples were lost there: " + lost[0]
	case !x.load.known:
		return Unsure, why + ", but " + x.load.text
	case x.load.ratio < sameLoad:
		return Unsure, why + ", but there is less to do: " + x.load.text
	}
	return Falls, why + "; " + x.load.text
}

// passed reports whether the second half of the first window no longer has the finding.
func (x *tester) passed(f *check.Finding) bool {
	if len(x.before.halves) == 0 {
		return false
	}
	last := x.before.halves[len(x.before.halves)-1]
	return !last.blind[f.Check] && x.look(f, "", last.Result, x.first).Seen == NotThere
}

// lacks names what the check read in the first window but the second window lacks, and why.
func (x *tester) lacks(f *check.Finding) string {
	c := x.checkOf(f)
	if c == nil {
		return ""
	}
	for _, m := range slices.Concat(c.Needs, c.Uses) {
		if x.first.Recorded(m) && !x.second.Recorded(m) {
			reason, _ := x.second.Why(m)
			return fmt.Sprintf("it has no %s: %s", m.Describe().Name, reason)
		}
	}
	return ""
}

func (x *tester) checkOf(f *check.Finding) *check.Check {
	i := slices.IndexFunc(x.opts.Checks, func(c *check.Check) bool { return c.Name == f.Check })
	if i < 0 {
		return nil
	}
	return x.opts.Checks[i]
}

func outcome(r *check.Result, name string) check.Outcome {
	for _, o := range r.Outcomes {
		if o.Check == name {
			return o
		}
	}
	return check.Outcome{State: check.Unassessed, Reason: "it was not run"}
}

// wasRead returns the numbers that a check read when it found nothing.
func wasRead(o check.Outcome) string {
	const shown = 3
	var parts []string
	for _, v := range o.Read[:min(len(o.Read), shown)] {
		parts = append(parts, v.Label()+" "+v.Text())
	}
	return after(strings.Join(parts, ", "))
}

// loads is the load of a second window relative to the first.
type loads struct {
	known bool
	ratio float64
	text  string
}

const (
	// sameLoad is the share of the load below which a fault may be absent for lack of work: the CPU time of one
	// program under one load differs by 12 % between runs (docs/decisions/0012), and a fault may be at its threshold.
	sameLoad = 0.8
	// leastUse is the least CPU time per second that shows a load if requests are not known, as for the key numbers.
	leastUse = 0.02
)

// loadsOf compares by requests if both windows know them, else by CPU time.
func loadsOf(first, second *recording.Recording) loads {
	if second == nil {
		return loads{}
	}
	a, b := keynumber.NewSource(first, keynumber.Told{}), keynumber.NewSource(second, keynumber.Told{})
	if p, q := a.Work(), b.Work(); p.Known() && q.Recorded && p.Counted == q.Counted {
		return loadsBy("requests", p.PerSecond, q.PerSecond, "1/s")
	}
	p, known := a.Used()
	q, ok := b.Used()
	if !known || !ok || p < leastUse {
		return loads{text: "how much there was to do in both windows is not known"}
	}
	return loadsBy("CPUs in use", p, q, quantity.CPUs)
}

func loadsBy(label string, p, q float64, unit quantity.Unit) loads {
	text := func(x float64) string { return quantity.Of("", x, unit).Text() }
	l := loads{known: true, ratio: q / p, text: fmt.Sprintf("%s %s -> %s", label, text(p), text(q))}
	if math.IsNaN(l.ratio) || math.IsInf(l.ratio, 0) {
		return loads{text: "how much there was to do in both windows is not known"}
	}
	return l
}
