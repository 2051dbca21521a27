package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// Comparison renders what two recordings say of each other.
type Comparison struct{ *compare.Data }

// JSON writes the comparison as one indented JSON object (docs/report-schema.md).
func (c Comparison) JSON(w io.Writer) error { return writeJSON(w, c.Data) }

// Title returns the outcome of a comparison in a few words.
func (c Comparison) Title() string { return verdictWords(c.Verdict.Result) }

// headlines are the numbers that everybody asks for, with their names in the one-line summary.
var headlines = []struct{ name, label string }{
	{"requests", "requests"},
	{"errors", "failed"},
	{"request_p50", "p50"},
	{"request_p99", "p99"},
	{"cpu_per_request", "CPU per request"},
}

// Headline says in one line how requests per second, their failures, their times and the CPU time of each changed. It
// is empty if none of them is known.
func (c Comparison) Headline() string {
	var parts []string
	for _, h := range headlines {
		if h.name == "request_p99" && len(c.Printed) == 2 {
			parts = append(parts, c.printed())
		}
		for i := range c.Numbers {
			n := &c.Numbers[i]
			if n.Name != h.name || n.Change == nil || n.Name == "errors" && n.Before.Mean+n.After.Mean == 0 {
				continue
			}
			parts = append(parts, fmt.Sprintf("%s %s -> %s %s", h.label, quantity.Of("", n.Before.Mean, n.Unit).Text(),
				quantity.Of("", n.After.Mean, n.Unit).Text(), headlineResult(n)))
		}
	}
	return strings.Join(parts, ", ")
}

// printed is the p99 of a load generator's whole run. It has no bounds to judge it by.
func (c Comparison) printed() string {
	of := func(seconds float64) string { return quantity.Of("", seconds, quantity.Seconds).Text() }
	return fmt.Sprintf("p99 %s -> %s (as printed)", of(c.Printed[0]), of(c.Printed[1]))
}

// headlineResult is better, worse or same. It also says if a change does not count or could not have shown.
func headlineResult(n *compare.Number) string {
	switch {
	case n.Result == compare.Changed:
		return "(not counted)"
	case n.Result == compare.Same && max(-n.Change.Low, n.Change.High) > uncertain*n.Before.Mean:
		return "(too uncertain to tell)"
	}
	return string(n.Result)
}

// A ComparisonRow is one number, as text.
type ComparisonRow struct{ Label, Before, After, Change, Result string }

// Rows returns the numbers as text.
func (c Comparison) Rows() []ComparisonRow {
	var out []ComparisonRow
	for i := range c.Numbers {
		n := &c.Numbers[i]
		r := ComparisonRow{Label: n.Label, Change: changeText(n), Result: string(n.Result)}
		if n.Change != nil {
			r.Before, r.After = estimateText(n.Before, n.Unit), estimateText(n.After, n.Unit)
		}
		out = append(out, r)
	}
	return out
}

// Text writes the comparison for a person.
func (c Comparison) Text(w io.Writer, opts TextOptions) error {
	t := &compareText{page: newPage(opts), d: c.Data, verbose: opts.Verbose}
	if c.One {
		t.line(green, verdictWords(compare.Same), "", "")
	} else {
		t.all(c.Headline())
	}
	if _, err := io.WriteString(w, t.b.String()); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	return nil
}

type compareText struct {
	*page
	d       *compare.Data
	verbose bool
}

func (t *compareText) all(headline string) {
	if headline != "" {
		t.line(bold, "", "  ", headline)
	}
	t.header()
	t.verdict()
	t.promises()
	t.findings()
	t.numbers()
	t.methods()
	t.others()
}

func sideText(s *compare.Side) string {
	target := "the whole host"
	if s.Target.Kind != "host" && s.Target.Kind != "" {
		target = targetName(s.Target)
	}
	return fmt.Sprintf("%s, %s from %s", target, secondsText(s.Seconds), s.Started.Format("2006-01-02 15:04:05 UTC"))
}

func (t *compareText) header() {
	t.line(bold, "before  ", "        ", sideText(&t.d.Before))
	t.line(bold, "after   ", "        ", sideText(&t.d.After))
	t.blank()
}

// verdictWords returns the words that stand for a result above everything else.
func verdictWords(r compare.Result) string {
	switch r {
	case compare.Same:
		return "no difference"
	case compare.Mixed:
		return "better and worse"
	}
	return string(r)
}

func (t *compareText) verdict() {
	v := t.d.Verdict
	st := map[compare.Result]style{
		compare.Same: green, compare.Improved: green, compare.Worse: red,
		compare.Mixed: yellow,
	}[v.Result]
	t.line(st, strings.ToUpper(verdictWords(v.Result)), "", "")
	if v.Result == compare.Same {
		t.line(plain, "  ", "  ", v.Summary)
	}
	for _, s := range v.Worse {
		t.line(red, "  worse   ", "          ", s)
	}
	for _, s := range v.Better {
		t.line(green, "  better  ", "          ", s)
	}
	for _, s := range t.d.Doubts {
		t.line(faint, "  but     ", "          ", s)
	}
}

// promises prints what was predicted for the fix, and what came of it.
func (t *compareText) promises() {
	if len(t.d.Promises) == 0 {
		return
	}
	t.blank()
	t.line(bold, "PROMISES  ", "  ", "what the fix promised, and what was measured")
	for i := range t.d.Promises {
		x := &t.d.Promises[i]
		st := map[compare.Keeping]style{compare.Kept: green, compare.Surpassed: green, compare.BrokenBy: red}[x.Kept]
		t.line(st, "  "+string(x.Kept)+"  ", "    ", x.Text())
	}
}

func (t *compareText) findings() {
	if len(t.d.Findings) == 0 {
		t.blank()
		t.line(bold, "FINDINGS  ", "", "none in either")
		return
	}
	t.blank()
	t.line(bold, "FINDINGS", "", "")
	infos := 0
	for i := range t.d.Findings {
		f := &t.d.Findings[i]
		if !t.verbose && f.Loudest() < check.Warning {
			infos++
			continue
		}
		t.line(fateStyle(f), "  "+fateText(f)+"  ", "    ", f.Either().Check+": "+f.Either().
			Subject.String()+": "+f.Either().Summary)
		if f.Doubt != "" {
			t.line(faint, "    ", "    ", "not counted: "+f.Doubt)
		}
	}
	if infos > 0 {
		t.line(faint, "  ", "  ", plural(infos, "info")+" of either (-v shows them)")
	}
}

func fateStyle(f *compare.Finding) style {
	switch {
	case f.Doubt != "":
		return faint
	case f.Fate == compare.New || f.Fate == compare.Risen:
		return severityStyle(f.Either().Severity)
	case f.Fate == compare.Gone || f.Fate == compare.Fallen:
		return green
	}
	return plain
}

// fateText returns "new warning", "warning -> critical", "gone warning" or "stayed critical".
func fateText(f *compare.Finding) string {
	if f.Before != nil && f.After != nil && f.Before.Severity != f.After.Severity {
		return f.Before.Severity.String() + " -> " + f.After.Severity.String()
	}
	return string(f.Fate) + " " + f.Either().Severity.String()
}

func (t *compareText) numbers() {
	var rows [][]string
	var list []*compare.Number
	for i := range t.d.Numbers {
		n := &t.d.Numbers[i]
		nothing := n.Change != nil && n.Before.Mean == 0 && n.After.Mean == 0
		if nothing && !t.verbose {
			continue
		}
		row := []string{n.Label, "", ""}
		if n.Change != nil {
			row = []string{n.Label, estimateText(n.Before, n.Unit), estimateText(n.After, n.Unit)}
		}
		rows, list = append(rows, row), append(list, n)
	}
	if len(list) == 0 {
		return
	}
	t.blank()
	t.line(bold, "NUMBERS  ", "  ", "before and after, with the 95 % bounds from the samples' scatter")
	rows = padded(rows)
	for i, n := range list {
		head := "  " + strings.Join(rows[i], "  ") + "  "
		if utf8.RuneCountInString(head)+utf8.RuneCountInString(changeText(n)) > t.width {
			t.brokenRow(n, rows[i][1:])
			continue
		}
		t.line(resultStyle(n.Result), head, "    ", changeText(n))
	}
}

// brokenRow writes a number that has no room on one line.
func (t *compareText) brokenRow(n *compare.Number, cells []string) {
	head, text := "  "+n.Label+"  ", changeText(n)
	if n.Change != nil {
		text = strings.TrimSpace(cells[0]) + " → " + strings.TrimSpace(cells[1]) + ": " + text
	}
	if utf8.RuneCountInString(head) > t.width/2 {
		head, text = "  ", n.Label+"  "+text
	}
	t.line(resultStyle(n.Result), head, "    ", text)
}

// padded brings the cells of each column to one width.
func padded(rows [][]string) [][]string {
	if len(rows) == 0 {
		return nil
	}
	out := make([][]string, len(rows))
	for col := range rows[0] {
		width := 0
		for _, r := range rows {
			width = max(width, utf8.RuneCountInString(r[col]))
		}
		for i, r := range rows {
			out[i] = append(out[i], r[col]+strings.Repeat(" ", width-utf8.RuneCountInString(r[col])))
		}
	}
	return out
}

func resultStyle(r compare.Result) style {
	switch r {
	case compare.Worse:
		return red
	case compare.Improved:
		return green
	case compare.Changed:
		return cyan
	}
	return plain
}

// changeText returns "+6.9 % (+3 % to +11 %), worse", or what would have been seen.
func changeText(n *compare.Number) string {
	c := n.Change
	switch {
	case c == nil:
		return "not known, because " + n.Reason
	case n.Result == compare.Same && n.Before.Mean > 0:
		return sameText(max(-c.Low, c.High) / n.Before.Mean)
	case n.Result == compare.Same:
		return "same"
	case c.Relative != nil && *c.Relative > most:
		return c.Times() + " " + string(n.Result)
	case c.Relative != nil:
		low, high := signedShare(c.Low/n.Before.Mean), signedShare(c.High/n.Before.Mean)
		if c.High > most*n.Before.Mean {
			return fmt.Sprintf("%s (at least %s) %s", signedShare(*c.Relative), low, n.Result)
		}
		return fmt.Sprintf("%s (%s to %s) %s", signedShare(*c.Relative), low, high, n.Result)
	}
	return string(n.Result)
}

// most is the growth, as a share, past which a percentage tells nobody anything.
const most = 1.0

// mostShare is the share past which nobody reads a percentage at all.
const mostShare = 10

// uncertain is the share beyond which nobody would call a number the same if it may have changed that much unseen.
// 10,105 context switches a second and 6780 were "same to within 98 %".
const uncertain = 0.5

// exact is the share of a mean below which its bounds are rounding errors, or of no concern to a reader.
const exact = 0.0005

// sameText describes a number without a visible change; by its bounds it changed by at most this share.
func sameText(within float64) string {
	if within > uncertain {
		return "too uncertain to tell"
	}
	return "same to within " + shareText(within)
}

func estimateText(e *keynumber.Estimate, unit quantity.Unit) string {
	s := quantity.Of("", e.Mean, unit).Text()
	switch half := (e.High - e.Low) / 2; {
	case e.Mean <= 0 || half < exact*e.Mean:
	case half > uncertain*e.Mean:
		s += " (uncertain)"
	default:
		s += " ±" + shareText(half/e.Mean)
	}
	return s
}

func signedShare(x float64) string {
	if x > mostShare {
		return "over +" + shareText(mostShare)
	}
	if x >= 0 {
		return "+" + shareText(x)
	}
	return "−" + shareText(math.Abs(x))
}

func (t *compareText) methods() {
	m := t.d.Methods
	if m == nil {
		return
	}
	t.blank()
	t.line(bold, "METHODS, by CPU time", "", "")
	if m.Reason != "" {
		t.line(plain, "  ", "  ", "not compared: "+m.Reason)
		return
	}
	for _, x := range m.Grown {
		t.line(red, "  grew    ", "          ", x.Text())
	}
	for _, x := range m.Shrunk {
		t.line(green, "  shrank  ", "          ", x.Text())
	}
	switch {
	case len(m.Grown)+len(m.Shrunk) == 0:
		t.line(plain, "  ", "  ", fmt.Sprintf("none of %d changed by more than chance", m.Tested))
	case m.Against == compare.AgainstShares:
		t.line(plain, "  ", "  ", sharesOnly)
	case m.Uncounted != "":
		t.line(plain, "  ", "  ", m.Uncounted)
	}
	t.line(faint, "  ", "  ", detectableText(m))
}

// sharesOnly says why methods that changed do not decide the verdict.
const sharesOnly = "not counted: too much of the program changed to tell a method's growth from a shrinking rest, " +
	"and requests are not known (--requests)"

// detectableText says how small a change the samples could have shown, and how long a profile must be to show a
// smaller one.
func detectableText(m *compare.Methods) string {
	s := fmt.Sprintf("%d and %d samples, %s and %s of CPU time, could show", m.Samples[0], m.Samples[1],
		secondsText(m.Seconds[0]), secondsText(m.Seconds[1]))
	longest, never, said := 0.0, false, 0
	for i, d := range m.Detectable {
		if i < 2 { // for most methods, not for those that are a third of the program
			longest, never = max(longest, d.Seconds), never || d.Never
		}
		if d.Extra > most {
			continue
		}
		if said++; said > 1 {
			s += ","
		}
		s += fmt.Sprintf(" a method of %s that grows by %s of all CPU time", shareText(d.Share), shareText(d.Extra))
	}
	if said == 0 {
		s += " nothing but a program of twice the CPU time"
	}
	switch {
	case never:
		s += ". No length shows 5 % in a method of 10 % while the rest of the host differs this much"
	case longest > 0:
		s += fmt.Sprintf(". To show 5 %% in a method of 10 %% record %s of CPU time each (--duration)",
			secondsText(math.Ceil(longest)))
	}
	return s
}

func (t *compareText) others() {
	if len(t.d.Others) == 0 {
		return
	}
	t.blank()
	t.line(bold, "ALSO MOVED  ", "  ", "further metrics that changed by half or more; no verdict rests on them")
	for i, o := range t.d.Others {
		if i == shownOthers && !t.verbose {
			t.line(faint, "  ", "  ", fmt.Sprintf("and %d more (-v shows them)", len(t.d.Others)-i))
			break
		}
		t.line(plain, "  ", "    ", otherText(&o))
	}
}

// shownOthers is how many others the text shows without -v.
const shownOthers = 8

func otherText(o *compare.Other) string {
	name := o.Metric
	if o.Labels != "" {
		name += "{" + o.Labels + "}"
	}
	s := name + ": " + quantity.Of("", o.Before.Mean, o.Unit).Text() + " -> " + quantity.Of("", o.After.Mean, o.Unit).
		Text()
	if o.Change.Relative != nil {
		s += fmt.Sprintf(" (%s)", o.Change.Times())
	}
	return s
}
