package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// Watch is a screen that shows the latest of many diagnoses of one target, and the course of its key numbers.
type Watch struct {
	keep    int
	windows int
	data    *Data
	numbers []keynumber.Number
	history map[string][]float64 // by number, the oldest window first; NaN where it was not known
	marks   string               // a mark for each window's verdict
	marked  string               // ▲ below each window that the user marked, spaces elsewhere
	bySize  bool                 // consumers are sorted by memory, not by CPU time

	Keys string // what the keys do, if there are any
	Note string // what the last key did
}

// NewWatch makes an empty screen that remembers keep windows.
func NewWatch(keep int) *Watch { return &Watch{keep: keep, history: map[string][]float64{}} }

// Add takes another diagnosis, with the key numbers of its window.
func (w *Watch) Add(d *Data, numbers []keynumber.Number) {
	w.data, w.numbers = d, numbers
	w.windows++
	known := map[string]float64{}
	for i := range numbers {
		if n := &numbers[i]; n.Estimate != nil {
			known[n.Name] = n.Estimate.Mean
			if len(w.history[n.Name]) == 0 { // seen for the first time: it was not known before
				for range min(w.windows-1, w.keep) {
					w.history[n.Name] = append(w.history[n.Name], math.NaN())
				}
			}
		}
	}
	for name, list := range w.history {
		v, ok := known[name]
		if !ok {
			v = math.NaN()
		}
		list = append(list, v)
		w.history[name] = list[max(0, len(list)-w.keep):]
	}
	rs := append([]rune(w.marks), markOf(d))
	w.marks = string(rs[max(0, len(rs)-w.keep):])
	rs = append([]rune(w.marked), ' ')
	w.marked = string(rs[max(0, len(rs)-w.keep):])
}

// Skip counts a window that nobody looked at.
func (w *Watch) Skip() { w.windows++ }

// Sort sorts the consumers by memory, or by CPU time again.
func (w *Watch) Sort() {
	w.bySize = !w.bySize
	w.Note = "sorted by CPU time"
	if w.bySize {
		w.Note = "sorted by memory"
	}
}

// Mark marks the last window, to find it again in the curves.
func (w *Watch) Mark() {
	rs := []rune(w.marked)
	if len(rs) > 0 {
		rs[len(rs)-1] = '▲'
	}
	w.marked = string(rs)
	w.Note = "marked " + w.data.Window.Started.Format("15:04:05 UTC")
}

func markOf(d *Data) rune {
	switch {
	case d.Verdict.Result == NothingAssessed, d.Verdict.Result == Incomplete:
		return '?'
	case d.Verdict.Result == NoBottleneck:
		return '·'
	case d.Findings[0].Severity == check.Critical:
		return '!'
	}
	return '+'
}

// Frame writes the screen, at most lines long: it goes to the upper left corner, overwrites what is there, and clears
// the rest, so that nothing flickers (ECMA-48: CUP, EL, ED).
func (w *Watch) Frame(out io.Writer, opts TextOptions, lines int) error {
	t := &text{page: newPage(opts), d: w.data, bySize: w.bySize}
	t.line(bold, "perfdoctor ", "  ", t.target())
	t.line(plain, "", "  ", fmt.Sprintf("%s of %s, the last from %s; %s", plural(w.windows, "window"), t.seconds(),
		w.data.Window.Started.Format("15:04:05 UTC"), cmp.Or(w.Keys, "Ctrl-C ends")))
	if w.Note != "" {
		t.line(bold, "", "  ", w.Note)
	}
	t.blank()
	w.verdict(t)
	w.others(t)
	t.strip()
	t.blank()
	w.keyNumbers(t)
	t.who() // what does not fit on the screen is left out
	t.threadTime()
	shown := strings.Split(strings.TrimRight(t.b.String(), "\n"), "\n")
	if len(shown) > lines && lines > 0 {
		shown = append(shown[:lines-1], "…")
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	for _, l := range shown {
		b.WriteString(l + "\x1b[K\r\n")
	}
	b.WriteString("\x1b[J")
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("write the screen: %w", err)
	}
	return nil
}

func (w *Watch) verdict(t *text) {
	if w.data.Verdict.Result != Bottleneck {
		t.verdict()
		return
	}
	f := &w.data.Findings[0]
	t.line(severityStyle(f.Severity), strings.ToUpper(f.Severity.String())+"  ", "  ", f.Summary)
	t.line(plain, "  ", "  ", f.Check+": "+f.Subject.String())
	for _, e := range f.Evidence[:min(len(f.Evidence), 2)] {
		t.line(plain, "    ", "      ", e.String())
	}
	if len(f.Remedies) > 0 {
		t.label("Fix", f.Remedies[0].Action)
	}
	t.label("Next", explain(f))
}

func (w *Watch) others(t *text) {
	for i := range w.data.Findings {
		f := &w.data.Findings[i]
		if i > 0 && f.Severity >= check.Warning {
			t.line(severityStyle(f.Severity), "  "+f.Severity.String()+"  ", "    ", f.Check+": "+f.Subject.String())
		}
	}
}

func (w *Watch) keyNumbers(t *text) {
	rows := [][]string{{"verdicts (! critical, + warning, · none)", w.marks, ""}}
	if strings.TrimSpace(w.marked) != "" {
		rows = append(rows, []string{"marked", w.marked, ""})
	}
	for i := range w.numbers {
		n := &w.numbers[i]
		if n.Estimate == nil || !worthALine(n, w.history[n.Name]) {
			continue
		}
		rows = append(rows, []string{n.Label, sparkline(w.history[n.Name]), quantity.Of("", n.Estimate.Mean, n.Unit).
			Text()})
	}
	for _, r := range padded(rows) {
		line := "  " + r[0] + "  " + r[1] + "  "
		// the newest is at the right: the oldest is cut off
		if over := utf8.RuneCountInString(line) + 14 - t.width; over > 0 {
			rs := []rune(r[1])
			line = "  " + r[0] + "  " + string(rs[min(over, len(rs)):]) + "  "
		}
		t.line(plain, line, "    ", strings.TrimSpace(r[2]))
	}
}

// worthALine reports whether a number ever rose above its floor: a curve of a thousandth of a per cent only draws the
// eye.
func worthALine(n *keynumber.Number, list []float64) bool {
	return slices.ContainsFunc(list, func(v float64) bool { return v > 0 && v >= n.Floor })
}

// overTime shows with -v how the key numbers went during the window: a mean hides a stop of a second.
func (t *text) overTime() {
	if !t.verbose {
		return
	}
	var rows [][]string
	for i := range t.d.Numbers {
		n := &t.d.Numbers[i]
		if n.Estimate == nil || !worthALine(n, n.Series) {
			continue
		}
		rows = append(rows, []string{n.Label, sparkline(thin(n.Series, sparkCells)), quantity.Of("", n.Estimate.Mean,
			n.Unit).Text()})
	}
	if len(rows) == 0 {
		return
	}
	t.blank()
	t.line(bold, "OVER TIME  ", "  ", "min-max scale, mean at right")
	for _, r := range padded(rows) {
		head := "  " + r[0] + "  " + r[1] + "  "
		if utf8.RuneCountInString(head)+len(r[2]) > t.width {
			t.line(plain, "  ", "    ", strings.TrimSpace(r[0])+": "+strings.TrimSpace(r[1])+" "+strings.TrimSpace(
				r[2]))
			continue
		}
		t.line(plain, head, "    ", strings.TrimSpace(r[2]))
	}
}

// sparkCells is the most cells that a sparkline has beside a label and a number in 80 columns.
const sparkCells = 24
