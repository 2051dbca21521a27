package html

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/report"
)

var (
	//go:embed trend.html
	trendTemplate string
	//go:embed trend.css
	trendStyle string
)

// trendView is what the template of a trend reads.
type trendView struct {
	Policy  string
	Title   string
	Doubts  []string
	Steps   []trendStep
	Numbers []trendCurve
	Marks   []compare.Mark
	Head    []string
	Table   [][]string
}

type trendStep struct {
	Result  compare.Result
	Text    string
	Methods []string // that grew or shrank with it
}

// A trendCurve is a number as the path of an SVG picture.
type trendCurve struct {
	Label, Ends string
	Path        string
}

// WriteTrend writes many recordings of a program as one page that loads nothing and has no program.
func WriteTrend(w io.Writer, t report.Trend) error {
	table := t.Table()
	v := &trendView{
		Policy: policy(pageStyle+trendStyle, ""), Title: t.Title(), Doubts: t.Doubts, Marks: t.Marks,
		Head: table[0], Table: table[1:],
	}
	for i := range t.Steps {
		v.Steps = append(v.Steps, stepOf(t, &t.Steps[i]))
	}
	for _, n := range t.Numbers() {
		v.Numbers = append(v.Numbers, trendCurve{Label: n.Label, Ends: n.Ends, Path: curve(n.Values)})
	}
	page, err := assemble(trendTemplate, pageStyle+trendStyle, "", v, func(*bytes.Buffer) error { return nil })
	if err == nil {
		_, err = w.Write(page)
	}
	if err != nil {
		return fmt.Errorf("write the HTML trend: %w", err)
	}
	return nil
}

func stepOf(t report.Trend, s *compare.Step) trendStep {
	out := trendStep{Result: s.Result, Text: t.StepText(s)}
	if s.Methods == nil || s.Name == "methods" {
		return out
	}
	for _, m := range append(s.Methods.Grown, s.Methods.Shrunk...) {
		out.Methods = append(out.Methods, m.Text())
	}
	return out
}

// Size of a curve's picture (trend.html), with a border for the width of the line.
const (
	curveWidth, curveHeight = 400, 60
	curveBorder             = 3
)

// curve returns the path from value to value, with gaps for unknown ones. It begins at zero, so that a change of a
// hundredth looks like one.
func curve(values []float64) string {
	most := 0.0
	for _, v := range values {
		if !math.IsNaN(v) {
			most = max(most, v)
		}
	}
	var b strings.Builder
	pen := byte('M')
	for i, v := range values {
		if math.IsNaN(v) {
			pen = 'M'
			continue
		}
		x := curveBorder + (curveWidth-2*curveBorder)*float64(i)/float64(max(len(values)-1, 1))
		y := float64(curveHeight - curveBorder)
		if most > 0 {
			y -= (curveHeight - 2*curveBorder) * max(v, 0) / most
		}
		fmt.Fprintf(&b, "%c%.1f %.1f", pen, x, y)
		if pen == 'M' {
			b.WriteString("h.1") // makes a point that stands alone visible
		}
		pen = 'L'
	}
	return b.String()
}
