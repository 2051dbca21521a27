package html

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"

	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/report"
	"github.com/perfdoctor/perfdoctor/internal/report/html/bundle"
)

var (
	//go:embed compare.html
	compareTemplate string
	//go:embed compare.css
	compareStyle string
)

// compareView is what the template of a comparison reads.
type compareView struct {
	*compare.Data
	Policy  string
	Title   string
	Top     string // the numbers that everybody asks for, in one line
	Missing string // why there is no program
	Rows    []report.ComparisonRow
}

// WriteComparison writes a comparison as one page that loads nothing: verdict, findings, numbers, methods, and, if
// there are profiles, the differential flame graph, which the program draws.
func WriteComparison(w io.Writer, c report.Comparison) error {
	program, err := bundle.Bundled()
	v := &compareView{Data: c.Data, Title: c.Title(), Top: c.Headline(), Rows: c.Rows()}
	if err != nil {
		v.Missing = err.Error()
	}
	page, err := v.page(program)
	if err != nil {
		return fmt.Errorf("write the HTML comparison: %w", err)
	}
	if _, err := w.Write(page); err != nil {
		return fmt.Errorf("write the HTML comparison: %w", err)
	}
	return nil
}

func (v *compareView) page(program bundle.Program) ([]byte, error) {
	style := pageStyle + compareStyle
	v.Policy = policy(style, program.Script)
	return assemble(compareTemplate, style, program.Script, v, v.data)
}

// data writes what the program draws, if there is something.
func (v *compareView) data(out *bytes.Buffer) error {
	if v.Stacks == nil {
		return nil
	}
	packed, err := packDiff(v.Stacks)
	if err != nil {
		return err
	}
	return block(out, "diff", packed)
}
