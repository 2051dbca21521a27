package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/report/junit"
)

// JUnit writes the report as one suite of JUnit's XML. Each finding is a case that fails if the finding is at warning
// or above, so the document has failures exactly when [Data.ExitCode] is 3. Each check that was fine is a case that
// passed, and each check that was not assessed is a case that was skipped. The document has one error, the case
// "verdict", exactly when the exit code is 4.
func (d *Data) JUnit(w io.Writer) error {
	s := junit.Suite{
		Name: "perfdoctor: " + clean(targetName(d.Target)), Seconds: d.Window.Seconds, Started: d.Window.Started,
		Facts: []junit.Fact{
			{Name: "perfdoctor", Value: clean(d.Version)},
			{Name: "exit_code", Value: strconv.Itoa(d.ExitStatus)},
			{Name: "result", Value: string(d.Verdict.Result)},
			{Name: "principal", Value: clean(d.Verdict.Principal)},
			{Name: "summary", Value: clean(d.Verdict.Summary)},
		},
	}
	if names := d.Pseudonyms(); names != "" {
		s.Facts = append(s.Facts, junit.Fact{Name: "redacted", Value: clean(names)})
	}
	if d.ExitStatus == exitIncomplete {
		s.Cases = append(s.Cases, d.junitIncomplete())
	}
	for i := range d.Findings {
		s.Cases = append(s.Cases, junitFinding(&d.Findings[i]))
	}
	for _, f := range d.Fine {
		c := junit.Case{Class: junitClass(f.Stage.String()), Name: f.Check}
		for _, v := range f.Read {
			c.Out += clean(v.String()) + "\n"
		}
		s.Cases = append(s.Cases, c)
	}
	s.Cases = append(s.Cases, junitGaps(d.NotAssessed, "not assessed")...)
	s.Cases = append(s.Cases, junitGaps(d.NoConcern, "does not apply")...)
	if err := junit.Write(w, []junit.Suite{s}); err != nil {
		return fmt.Errorf("write the JUnit report: %w", err)
	}
	return nil
}

// junitClass groups the cases by stage; servers show the dot as a package.
func junitClass(of string) string { return "perfdoctor." + of }

// junitIncomplete is a case in error, because a server counts a suite of skipped cases as passed.
func (d *Data) junitIncomplete() junit.Case {
	m := junit.Message{Text: clean(d.Verdict.Summary), Type: string(Incomplete)}
	return junit.Case{Class: junitClass("verdict"), Name: "verdict", Error: &m}
}

func junitFinding(f *Finding) junit.Case {
	c := junit.Case{Class: junitClass(f.Stage.String()), Name: clean(f.ID)}
	if f.Severity < check.Warning {
		c.Out = clean(f.Summary) + "\n" + junitBody(f)
		return c
	}
	c.Failure = &junit.Message{Text: clean(f.Summary), Type: f.Severity.String(), Body: "\n" + junitBody(f)}
	return c
}

// junitBody is what a reader needs to act on a finding and to doubt it, one item per line.
func junitBody(f *Finding) string {
	lines := []string{fmt.Sprintf("%s, %s, confidence %s", f.Role, f.Severity, sure(f))}
	if f.Cause != "" {
		lines = append(lines, "consequence of "+f.Cause)
	}
	for _, e := range f.Evidence {
		lines = append(lines, e.String())
	}
	lines = append(lines, f.Notes...)
	if len(f.FixFirst) > 0 {
		lines = append(lines, "first fix "+strings.Join(f.FixFirst, ", "))
	}
	for _, r := range f.Remedies {
		lines = append(lines, "fix: "+r.Action)
		if r.Command != "" {
			lines = append(lines, "$ "+string(r.Command))
		}
		lines = append(lines, "expected effect: "+r.Effect, "risk: "+r.Risk)
	}
	for _, p := range f.Placebos {
		lines = append(lines, "won't help: "+p)
	}
	if f.Disproof != "" {
		lines = append(lines, "disproved if: "+f.Disproof)
	}
	lines = append(lines, "next: perfdoctor checks explain "+f.Check)
	for i, l := range lines {
		lines[i] = clean(l)
	}
	return strings.Join(lines, "\n") + "\n"
}

func junitGaps(gaps []Gap, why string) []junit.Case {
	var out []junit.Case
	for _, g := range gaps {
		text := why + ": " + g.Reason
		if g.Remedy != "" {
			text += " -> " + g.Remedy
		}
		for _, name := range g.Checks {
			out = append(out, junit.Case{
				Class: junitClass("unassessed"), Name: name,
				Skipped: &junit.Message{Text: clean(text)},
			})
		}
	}
	return out
}
