package html

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"

	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/quantity"
	"github.com/perfdoctor/perfdoctor/internal/report"
	"github.com/perfdoctor/perfdoctor/internal/stacks"
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
	Rows    []report.ComparisonRow
	Flames  []flame
	Against string
}

// A flame is one differential flame graph: an SVG of frames.
type flame struct {
	Title  string
	Height int
	Frames []flameFrame
}

// A flameFrame is a rectangle, in units of the SVG: 1000 are the width of all.
type flameFrame struct {
	X, Width, Y, TextX, TextY float64
	Class, Text, Hover        string
}

// The size of a flame graph. A frame narrower than a pixel of a wide screen shows nothing, and below sixty calls nothing is read.
const (
	flameWidth = 1000
	flameRow   = 16
	leastWidth = 0.7
	mostDepth  = 60
	widthOfOne = 6.1 // of a letter at the size of compare.css
	flameBound = 4000
)

// WriteComparison writes a comparison as one page that loads nothing and has no program: verdict, findings, numbers, methods, and where
// there are profiles the differential flame graphs.
func WriteComparison(w io.Writer, c report.Comparison) error {
	style := pageStyle + compareStyle
	v := &compareView{Data: c.Data, Policy: policy(style, ""), Title: c.Title(), Rows: c.Rows()}
	if d := c.Stacks; d != nil {
		v.Flames = []flame{
			flameOf("as it is after: what grew is widest", d, func(n *stacks.Node) float64 {
				return float64(n.After) / float64(max(d.Root.After, 1))
			}),
			flameOf("as it was before: what is gone is still there", d, func(n *stacks.Node) float64 {
				return float64(n.Before) / float64(max(d.Root.Before, 1))
			}),
		}
	}
	var b, out bytes.Buffer
	t := template.Must(template.New("compare").Funcs(functions).Parse(compareTemplate))
	if err := t.ExecuteTemplate(&b, "head", v); err != nil {
		return fmt.Errorf("write the HTML comparison: %w", err)
	}
	out.WriteString(visible(b.String()) + "<style>" + style + "</style>\n</head>\n")
	b.Reset()
	if err := t.ExecuteTemplate(&b, "body", v); err != nil {
		return fmt.Errorf("write the HTML comparison: %w", err)
	}
	out.WriteString(visible(b.String()))
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write the HTML comparison: %w", err)
	}
	return nil
}

// flameOf lays a tree out with the widths that share gives.
func flameOf(title string, d *compare.Stacks, share func(*stacks.Node) float64) flame {
	f := flame{Title: title}
	var lay func(n *stacks.Node, x float64, depth int)
	lay = func(n *stacks.Node, x float64, depth int) {
		width := share(n) * flameWidth
		if width < leastWidth || depth > mostDepth || len(f.Frames) >= flameBound {
			return
		}
		f.Frames = append(f.Frames, frameOf(d, n, x, width, depth))
		f.Height = max(f.Height, (depth+1)*flameRow)
		for _, c := range n.Calls {
			lay(c, x, depth+1)
			x += share(c) * flameWidth
		}
	}
	lay(d.Root, 0, 0)
	return f
}

func frameOf(d *compare.Stacks, n *stacks.Node, x, width float64, depth int) flameFrame {
	name := n.Frame.Name
	if depth == 0 {
		name = "all"
	}
	change := d.Change(n)
	f := flameFrame{
		X: round(x), Width: round(width), Y: float64(depth * flameRow), Class: classOf(change),
		TextX: round(x) + 2, TextY: float64(depth*flameRow) + 11.5,
		Hover: fmt.Sprintf("%s: %s → %s of the samples (%d → %d)%s", name,
			value(float64(n.Before)/float64(max(d.Root.Before, 1)), quantity.Ratio),
			value(float64(n.After)/float64(max(d.Root.After, 1)), quantity.Ratio), n.Before, n.After, changeWords(change)),
	}
	if letters := int(width/widthOfOne) - 1; letters >= 3 {
		rs := []rune(name)
		if len(rs) > letters {
			rs = append(rs[:letters-1], '…')
		}
		f.Text = string(rs)
	}
	return f
}

func round(x float64) float64 { return math.Round(x*100) / 100 }

// classOf colours what changed by more than chance, in three steps of strength.
func classOf(c compare.NodeChange) string {
	if !c.Certain {
		return "same"
	}
	step := 1
	switch a := math.Abs(math.Log2(c.Factor)); {
	case a >= 1:
		step = 3
	case a >= 0.32: // a quarter more
		step = 2
	}
	if c.Factor > 1 {
		return fmt.Sprintf("grew%d", step)
	}
	return fmt.Sprintf("shrank%d", step)
}

func changeWords(c compare.NodeChange) string {
	if !c.Certain {
		return ", no more than chance"
	}
	return fmt.Sprintf(", %.3g times as much", c.Factor)
}
