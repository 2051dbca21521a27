package report

import (
	"fmt"
	"io"

	"github.com/perfdoctor/perfdoctor/internal/compare"
)

// Test renders the outcome of findings that were put to the test.
type Test struct{ *compare.Test }

// JSON writes it as one indented JSON object (docs/report-schema.md).
func (t Test) JSON(w io.Writer) error { return writeJSON(w, t.Test) }

// ExitCode is 3 if a finding falls, 4 if no finding can be judged, else 0.
func (t Test) ExitCode() int {
	switch {
	case t.Count(compare.Falls) > 0:
		return exitFindings
	case t.Count(compare.Stands) == 0 && len(t.Findings) > 0:
		return exitIncomplete
	}
	return exitFine
}

// standingStyles colour the outcome of a finding.
var standingStyles = map[compare.Standing]style{
	compare.Stands: green, compare.Falls: red, compare.Unsure: yellow,
}

// Text writes it for a person.
func (t Test) Text(w io.Writer, opts TextOptions) error {
	p := newPage(opts)
	p.line(bold, "first window   ", "               ", sideText(&t.Recording))
	if t.Second != nil {
		p.line(bold, "second window  ", "               ", sideText(t.Second)+"; "+t.Load)
	}
	if len(t.Findings) == 0 {
		p.blank()
		p.line(plain, "", "", "There is no finding at warning or above to disprove.")
	}
	for i := range t.Findings {
		f := &t.Findings[i]
		p.blank()
		p.line(standingStyles[f.Result], string(f.Result)+"  ", "  ", f.Finding)
		if f.Summary != "" {
			p.line(plain, "  ", "  ", f.Summary)
		}
		p.line(bold, "  because       ", "    ", f.Because)
		for _, l := range f.Looks {
			p.line(faint, fmt.Sprintf("  %-13s ", l.At), "    ", string(l.Seen))
		}
		if f.Disproof != "" {
			p.line(bold, "  disproved if  ", "    ", f.Disproof)
		}
	}
	if _, err := io.WriteString(w, p.b.String()); err != nil {
		return fmt.Errorf("write the test of findings: %w", err)
	}
	return nil
}
