package scenario

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// A Promised is what the doctor predicted for the fix of its verdict, and what the load measured in the fixed run.
type Promised struct {
	Finding  string       `json:"finding"`
	Metric   string       `json:"metric"`
	Label    string       `json:"label"`
	From     float64      `json:"from"`
	Expect   float64      `json:"expect"`
	To       check.Bounds `json:"to"`
	Measured *float64     `json:"measured"` // null if unknown
	Result   string       `json:"result"`   // kept, better, broken, not the same load, cannot be told
	Text     string       `json:"text"`     // what a comparison says about it
}

// judged reports whether the load and the numbers allowed the promise to be kept.
func (p *Promised) judged() bool {
	return p.Result == promiseKept || p.Result == promiseBetter || p.Result == promiseBroken
}

// The outcomes of promises, in the words of a comparison.
const (
	promiseKept   = "kept"
	promiseBetter = "better"
	promiseBroken = "broken"
)

// inside reports whether the measured mean is within the interval, whatever the error of the mean.
func (p *Promised) inside() bool { return p.To.Hold(*p.Measured) }

// off returns the error of the point: how far the promised gain is from the measured gain, as a share of the measured
// gain (docs/decisions/0077). It also returns how far the expected value is from the measured one, as a share of the
// measured one. The error between two zeros is zero.
func (p *Promised) off() (gain, value float64) {
	d := math.Abs(*p.Measured - p.Expect)
	if d == 0 {
		return 0, 0
	}
	return d / math.Abs(*p.Measured-p.From), d / *p.Measured
}

// Foretelling is one promise of one run.
type Foretelling struct {
	Scenario string `json:"scenario"`
	Cure     string `json:"cure"`
	Run      int    `json:"run"`
	Promised
}

// Calibration says how far the doctor's promises held.
type Calibration []Foretelling

func (c *Calibration) add(run int, r *Result) {
	for i := range r.Phases {
		for _, p := range r.Phases[i].Promised {
			*c = append(*c, Foretelling{r.Scenario, r.Phases[i].Name, run, p})
		}
	}
}

// text writes the table and its summary.
func (c Calibration) text(b *strings.Builder) {
	if len(c) == 0 {
		return
	}
	b.WriteString("\nWhat was promised of the fixes, and what the load measured:\n\n")
	columns(b, func(w io.Writer) {
		row(w, "SCENARIO", "FIX", "METRIC", "FROM", "EXPECTED", "INTERVAL", "MEASURED", "")
		for i := range c {
			f := &c[i]
			row(w, f.Scenario, f.Cure, f.Label, number(f.From), number(f.Expect),
				f.bounds(), f.measured(), f.Result)
		}
	})
	fmt.Fprintf(b, "\n%s\n", c.summary())
	for i := range c {
		if c[i].Result == promiseBroken {
			fmt.Fprintf(b, "\n%s, %s: broken: %s\n", c[i].Scenario, c[i].Cure, c[i].Text)
		}
	}
}

// number returns a value with three digits.
func number(n float64) string { return fmt.Sprintf("%.3g", n) }

// measured returns the measured number, or "unknown".
func (p *Promised) measured() string {
	if p.Measured == nil {
		return "unknown"
	}
	return number(*p.Measured)
}

// bounds returns "18 to 22", "18 and more" or "22 and less".
func (p *Promised) bounds() string {
	switch {
	case math.IsInf(p.To[1], 1):
		return number(p.To[0]) + " and more"
	case p.To[0] <= 0:
		return number(p.To[1]) + " and less"
	}
	return number(p.To[0]) + " to " + number(p.To[1])
}

// summary counts promises, in total and by metric.
func (c Calibration) summary() string {
	by := map[string]Calibration{}
	for i := range c {
		by[c[i].Label] = append(by[c[i].Label], c[i])
	}
	lines := []string{c.counted()}
	for _, label := range slices.Sorted(maps.Keys(by)) {
		if len(by) > 1 {
			lines = append(lines, label+": "+by[label].counted())
		}
	}
	return strings.Join(lines, "\n")
}

// counted says how many promises are judged, how many held, and how far the points were off.
func (c Calibration) counted() string {
	inside, better := 0, 0
	var gain, value []float64
	for i := range c {
		f := &c[i]
		if !f.judged() || f.Measured == nil {
			continue
		}
		inside += one(f.inside())
		better += one(!f.inside() && f.Result == promiseBetter)
		g, v := f.off()
		gain, value = append(gain, g), append(value, v)
	}
	if len(gain) == 0 {
		return fmt.Sprintf("%d promises, none judged", len(c))
	}
	return fmt.Sprintf("%d promises, %d judged: %d inside the interval, %d better; "+
		"median error of the gain %s, of what is left %s", len(c), len(gain), inside, better,
		percent(series.Median(gain)), percent(series.Median(value)))
}

func percent(share float64) string {
	if math.IsInf(share, 1) {
		return "without a bound"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// The marks of a page between which the promises are written.
const (
	pageBegins = "<!-- written by perfdoctor scenario verify --accuracy -->\n"
	pageEnds   = "<!-- end of what is written -->\n"
)

// PictureName is the file of the picture, beside the page that shows it.
const PictureName = "promises.svg"

// Page puts the promises of a verification, and nothing else, between the marks of a Markdown page. It returns an
// error if the marks are missing.
func (v *Verification) Page(page string) (string, error) {
	head, rest, begins := strings.Cut(page, pageBegins)
	_, tail, ends := strings.Cut(rest, pageEnds)
	if !begins || !ends {
		return "", fmt.Errorf("the page has no lines %q and %q to write between", strings.TrimSpace(pageBegins),
			strings.TrimSpace(pageEnds))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nperfdoctor %s, %s, %s%s. Times are in seconds.\n", v.Version, v.Date, v.scope(),
		inGuest(v.Guest))
	if !v.Kept {
		fmt.Fprintf(&b, "%d phases began while the machine was busy with something else.\n", v.Total.Noisy)
	}
	b.WriteString("\n```\n")
	if len(v.Calibration) == 0 {
		b.WriteString("nothing was promised")
	}
	var table strings.Builder
	v.Calibration.text(&table)
	fmt.Fprintf(&b, "%s\n```\n\n![What was promised of fixes, and what was measured, as multiples of what was "+
		"before](%s)\n\n", strings.TrimSpace(table.String()), PictureName)
	return head + pageBegins + b.String() + pageEnds + tail, nil
}

// scope says what was verified.
func (v *Verification) scope() string {
	if v.Kept {
		return fmt.Sprintf("from the recordings that were kept of %d scenarios", len(v.Scenarios))
	}
	return fmt.Sprintf("%d run(s) of each of %d scenarios", v.Runs, len(v.Scenarios))
}

// The picture's size, and the decades of factors that fit in it: from a thousandth to a thousand times.
const (
	pictureSize   = 480
	pictureMargin = 56
	decades       = 3
)

// SVG draws predicted against measured values, as factors of the values before.
func (c Calibration) SVG(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" `+
		`font-size="12">`, pictureSize, pictureSize)
	b.WriteString("\n<title>What was promised of fixes, and what was measured</title>\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", pictureSize, pictureSize)
	for d := -decades; d <= decades; d++ {
		at, label := place(math.Pow10(d)), fmt.Sprintf("x %g", math.Pow10(d))
		fmt.Fprintf(&b, `<path d="M%.0f %d V%d M%d %.0f H%d" stroke="#ddd"/>`+"\n", at, pictureMargin,
			pictureSize-pictureMargin, pictureMargin, pictureSize-at, pictureSize-pictureMargin)
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle">%s</text>`+"\n", at, pictureSize-pictureMargin+16,
			label)
		fmt.Fprintf(&b, `<text x="%d" y="%.0f" text-anchor="end">%s</text>`+"\n", pictureMargin-4, pictureSize-at+4,
			label)
	}
	low, high := place(math.Pow10(-decades)), place(math.Pow10(decades))
	fmt.Fprintf(&b, `<path d="M%.0f %.0f L%.0f %.0f" stroke="#888"/>`+"\n", low, pictureSize-low, high,
		pictureSize-high)
	for i := range c {
		c[i].draw(&b)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">promised</text>`+"\n", pictureSize/2, pictureSize-8)
	fmt.Fprintf(&b, `<text x="12" y="%d" transform="rotate(-90 12 %d)" text-anchor="middle">measured</text>`+"\n",
		pictureSize/2, pictureSize/2)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// place returns where a factor lies on an axis.
func place(factor float64) float64 {
	x := math.Log10(max(factor, math.Pow10(-decades)))
	share := (min(x, decades) + decades) / (2 * decades)
	return pictureMargin + share*(pictureSize-2*pictureMargin)
}

// draw draws one promise: a line as wide as its interval, and a dot at the expected value.
func (f *Foretelling) draw(b *strings.Builder) {
	if !f.judged() || f.Measured == nil || f.From <= 0 {
		return
	}
	colour := map[string]string{promiseKept: "#2a7", promiseBetter: "#27c", promiseBroken: "#c33"}[f.Result]
	y := pictureSize - place(*f.Measured/f.From)
	fmt.Fprintf(b, `<path d="M%.1f %.1f H%.1f" stroke="%s"/><circle cx="%.1f" cy="%.1f" r="3" fill="%s">`+
		`<title>%s, %s: %s</title></circle>`+"\n", place(f.To[0]/f.From), y, place(f.To[1]/f.From), colour,
		place(f.Expect/f.From), y, colour, f.Scenario, f.Cure, f.Label)
}
