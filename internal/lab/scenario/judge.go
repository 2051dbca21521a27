package scenario

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// judge compares a phase with what was expected of it.
type judge struct {
	phase   *Phase
	result  *check.Result
	replace *strings.Replacer // replaces ${pid NAME}
}

func (j *judge) assert(kind string, held bool, got, what string, args ...any) {
	j.phase.Assertions = append(j.phase.Assertions, Assertion{
		What: fmt.Sprintf(what, args...), Kind: kind, Held: held,
		Got: got,
	})
}

// describe fills in the findings.
func (j *judge) describe() {
	p := j.phase
	p.Verdict, p.Findings = VerdictNone, []string{}
	for i := range j.result.Findings {
		f := &j.result.Findings[i]
		p.Findings = append(p.Findings, fmt.Sprintf("%s (%s)", f.ID(), f.Severity))
	}
	f := j.result.Principal()
	if f == nil {
		return
	}
	p.Verdict, p.Subject, p.Severity, p.Summary = f.Check, f.Subject.String(), f.Severity.String(), f.Summary
	for _, v := range f.Evidence {
		if v.Work() != "" {
			p.Arithmetic = v.Work() + " = " + v.Text()
			break
		}
	}
}

// finds reports whether the check has a finding of any severity.
func (j *judge) finds(name string) bool {
	return slices.ContainsFunc(j.result.Findings, func(f check.Finding) bool { return f.Check == name })
}

// accuses reports whether the check has a finding at warning or above.
func (j *judge) accuses(name string) bool {
	return slices.ContainsFunc(j.result.Findings, func(f check.Finding) bool {
		return f.Check == name && f.Severity >= check.Warning
	})
}

// found reports whether the check has a finding of any severity.
func (j *judge) found(name string) bool {
	return slices.ContainsFunc(j.result.Findings, func(f check.Finding) bool { return f.Check == name })
}

// blames reports whether the check has a finding at warning or above that no other finding explains. An explained
// finding is shown as a consequence of the other, and blames nobody.
func (j *judge) blames(name string) bool {
	return slices.ContainsFunc(j.result.Findings, func(f check.Finding) bool {
		return f.Check == name && f.Severity >= check.Warning && f.ExplainedBy == ""
	})
}

func (j *judge) findings() string {
	if len(j.phase.Findings) == 0 {
		return "no finding"
	}
	return strings.Join(j.phase.Findings, ", ")
}

func (j *judge) expect(e *Expect) {
	j.verdict(e.Verdict, e.Or...)
	if e.Severity != "" {
		j.assert("severity", j.phase.Severity == e.Severity, j.phase.Severity, "the verdict is %s", e.Severity)
	}
	if e.Subject != "" {
		want := j.replace.Replace(e.Subject)
		j.assert("subject", strings.Contains(j.phase.Subject, want), j.phase.Subject, "the offender is %s", want)
	}
	if len(e.Evidence) > 0 {
		text := j.text()
		for _, part := range e.Evidence {
			want := j.replace.Replace(part)
			j.assert("evidence", strings.Contains(text, want), j.phase.Summary, "the verdict says %q", want)
		}
	}
	for _, name := range e.Required {
		j.assert("required", j.finds(name), j.findings(), "%s is found", name)
	}
	for _, name := range e.Forbidden {
		j.assert("forbidden", !j.blames(name), j.findings(), "%s is not raised", name)
	}
}

// The texts of assertions about a verdict.
const (
	healthyWhat = "nothing is at warning or above"
	verdictWhat = "the verdict is "
)

func (j *judge) verdict(want string, or ...string) {
	switch want {
	case VerdictOpen, "":
	case VerdictNone:
		j.assert("verdict", j.phase.Verdict == VerdictNone, j.findings(), healthyWhat)
	default:
		list := append([]string{want}, or...)
		j.assert("verdict", slices.Contains(list, j.phase.Verdict), j.phase.Verdict, "%s%s", verdictWhat,
			strings.Join(list, " or "))
	}
}

// text is everything the verdict says.
func (j *judge) text() string {
	f := j.result.Principal()
	if f == nil {
		return ""
	}
	lines := append([]string{f.Summary, f.Disproof}, f.Notes...)
	for _, v := range f.Evidence {
		lines = append(lines, v.String())
	}
	for _, r := range f.Remedies {
		lines = append(lines, r.Action, string(r.Command), r.Effect)
	}
	return strings.Join(append(lines, f.Placebos...), "\n")
}

// phaseOf judges a phase by what its spec expects, and by the phases before it. sick is what is expected without a
// fix.
func (j *judge) phaseOf(sick *Expect, spec phaseSpec, before []Phase) {
	if spec.expect != nil {
		j.expect(spec.expect)
	}
	if spec.trial != nil {
		j.trial(sick, spec.kind, spec.trial)
	}
	if len(before) > 0 {
		j.phase.Before = before[spec.from].Name
		j.moves(spec, &before[spec.from])
	}
	j.foretold(spec.foretold)
}

func (j *judge) trial(sick *Expect, kind string, t *Trial) {
	gone, still := t.Gone, t.Still
	isCheck := sick.Verdict != VerdictNone && sick.Verdict != VerdictOpen
	if isCheck && kind == KindCure && len(gone)+len(still) == 0 && t.Verdict == "" {
		gone = append([]string{sick.Verdict}, sick.Required...)
	}
	if isCheck && kind == KindPlacebo && len(gone)+len(still) == 0 && t.Verdict == "" {
		still = []string{sick.Verdict}
	}
	j.verdict(t.Verdict)
	for _, name := range gone {
		j.assert("gone", !j.accuses(name), j.findings(), "%s is gone", name)
	}
	for _, name := range still {
		j.assert("still", j.finds(name), j.findings(), "%s is still found", name)
	}
}

// regression compares two states of a regression: the one after its fix, which stands for the version before, and the
// one before the fix.
func (j *judge) regression(spec phaseSpec, phases []Phase, o Options) {
	if spec.rung == nil || len(spec.rung.Regression) == 0 || o.Compare == nil {
		return
	}
	with := &phases[spec.from]
	worse, words := o.Compare(j.phase.Recording, with.Recording, [2]float64{
		j.phase.Measured[Throughput],
		with.Measured[Throughput],
	})
	j.phase.Compared = &Compared{Worse: worse, Words: words}
	if spec.loose {
		return
	}
	said := strings.Join(worse, "; ")
	for _, part := range spec.rung.Regression {
		j.assert("regression", strings.Contains(said, part), cmp.Or(said, "nothing got worse"),
			"the comparison says %q", part)
	}
}

// moves asserts what a change moved. It asserts nothing when the change fixed a fault that was not the first: the
// file foretells nothing about that.
func (j *judge) moves(spec phaseSpec, before *Phase) {
	if spec.loose {
		return
	}
	for i := range spec.moves {
		m := &spec.moves[i]
		j.move(m, before)
		j.predict(Prediction{Metric: m.Metric, Because: m.Because, Bounds: m.bounds()})
	}
}

func (j *judge) move(m *Move, from *Phase) {
	after, ok := j.phase.Measured[m.Metric]
	if !ok {
		j.assert("moves", false, "not measured", "%s is measured", m.Metric)
		return
	}
	got := metricText(m.Metric, after)
	if m.AtLeast != nil {
		j.assert("moves", after >= *m.AtLeast, got, "%s is at least %s", m.Metric, metricText(m.Metric, *m.AtLeast))
	}
	if m.AtMost != nil {
		j.assert("moves", after <= *m.AtMost, got, "%s is at most %s", m.Metric, metricText(m.Metric, *m.AtMost))
	}
	if m.FactorAtLeast == nil && m.FactorAtMost == nil {
		return
	}
	before, ok := from.Measured[m.Metric]
	if !ok {
		j.assert("moves", false, "not measured before", "%s is measured before", m.Metric)
		return
	}
	got = fmt.Sprintf("%s -> %s", metricText(m.Metric, before), got)
	if m.FactorAtLeast != nil {
		j.assert("moves", after > 0 && after >= before**m.FactorAtLeast, got, "%s x %v or more", m.Metric,
			*m.FactorAtLeast)
	}
	if m.FactorAtMost != nil {
		j.assert("moves", after <= before**m.FactorAtMost, got, "%s x %v or less", m.Metric, *m.FactorAtMost)
	}
}

func (m *Move) bounds() string {
	var all []string
	if m.FactorAtLeast != nil {
		all = append(all, fmt.Sprintf("x %v or more", *m.FactorAtLeast))
	}
	if m.FactorAtMost != nil {
		all = append(all, fmt.Sprintf("x %v or less", *m.FactorAtMost))
	}
	if m.AtLeast != nil {
		all = append(all, metricText(m.Metric, *m.AtLeast)+" or more")
	}
	if m.AtMost != nil {
		all = append(all, metricText(m.Metric, *m.AtMost)+" or less")
	}
	return strings.Join(all, ", ")
}

// predict notes the prediction for a metric beside what was measured. It prefers a value to bounds, because a value
// says more.
func (j *judge) predict(p Prediction) {
	if measured, ok := j.phase.Measured[p.Metric]; ok {
		p.Measured = &measured
	}
	j.phase.Foretold = append(j.phase.Foretold, p)
}

func (j *judge) foretold(list []Foretold) {
	for _, f := range list {
		j.predict(Prediction{Metric: f.Metric, Because: f.Because, Foretold: &f.Value})
		if measured, ok := j.phase.Measured[f.Metric]; f.Within != nil {
			held := ok && math.Abs(measured-f.Value) <= *f.Within*f.Value
			j.assert("foretold", held, metricText(f.Metric, measured), "%s is within %.0f %% of %s = %s", f.Metric,
				*f.Within*100,
				f.Because, metricText(f.Metric, f.Value))
		}
	}
}
