package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// Trend renders many recordings of one program.
type Trend struct{ *compare.Trend }

// JSON writes the trend as one indented JSON object (docs/report-schema.md).
func (t Trend) JSON(w io.Writer) error { return writeJSON(w, t.Trend) }

// Text writes the trend for a person.
func (t Trend) Text(w io.Writer, opts TextOptions) error {
	x := &trendText{page: newPage(opts), d: t.Trend}
	x.header()
	x.steps()
	x.numbers()
	x.findings()
	x.table()
	if _, err := io.WriteString(w, x.b.String()); err != nil {
		return fmt.Errorf("write the trend: %w", err)
	}
	return nil
}

// Title says what the trend is about, and its time.
func (t Trend) Title() string { return t.recordings() + " " + t.when() }

func (t Trend) recordings() string { return plural(len(t.Runs), "recording") }

func (t Trend) when() string {
	first, last := t.Span()
	return fmt.Sprintf("from %s to %s UTC", first.Format(minute), last.Format(minute))
}

// StepText says where a lasting change began, and what it is.
func (t Trend) StepText(s *compare.Step) string { return stepText(t.Trend, s) }

// Table returns a head, and a row for each recording.
func (t Trend) Table() [][]string { return trendTable(t.Trend, func(s string) string { return s }) }

// A TrendNumber is a number over all recordings. It is not zero in all of them.
type TrendNumber struct {
	Label, Ends string    // Ends are the first and the last value with their unit
	Values      []float64 // in the order of the recordings; NaN if not known
}

// Numbers returns the numbers that are worth a curve.
func (t Trend) Numbers() (out []TrendNumber) {
	for i := range t.Rows {
		if r := &t.Rows[i]; !nothing(r) {
			out = append(out, TrendNumber{Label: r.Label, Ends: ends(r), Values: rowValues(r)})
		}
	}
	return out
}

type trendText struct {
	*page
	d *compare.Trend
}

const minute = "2006-01-02 15:04"

func (t *trendText) header() {
	t.line(bold, Trend{t.d}.recordings()+"  ", "  ", Trend{t.d}.when())
	for _, s := range t.d.Doubts {
		t.line(faint, "  but  ", "       ", s)
	}
	t.blank()
}

func (t *trendText) steps() {
	if len(t.d.Steps) == 0 {
		t.line(green, "NO LASTING CHANGE", "", "")
		t.line(plain, "  ", "  ", "none that these recordings can show; one recording alone is not lasting")
		return
	}
	t.line(bold, "LASTING CHANGES", "", "")
	for i := range t.d.Steps {
		s := &t.d.Steps[i]
		t.line(resultStyle(s.Result), "  "+string(s.Result)+"  ", "          ", t.stepText(s))
		if s.Methods == nil || s.Name == "methods" {
			continue
		}
		for _, m := range append(s.Methods.Grown, s.Methods.Shrunk...) {
			t.line(plain, "          ", "            ", m.Text())
		}
	}
}

func (t *trendText) stepText(s *compare.Step) string { return stepText(t.d, s) }

func stepText(d *compare.Trend, s *compare.Step) string {
	return fmt.Sprintf("from %s (%s UTC) on: %s", d.Runs[s.At].Name, d.Runs[s.At].Started.Format(minute), s.Summary)
}

// rowValues returns the means, NaN if they are not known.
func rowValues(r *compare.Row) []float64 {
	var out []float64
	for _, v := range r.Values {
		if v == nil {
			out = append(out, math.NaN())
			continue
		}
		out = append(out, v.Mean)
	}
	return out
}

// ends returns the first and the last known value, as text.
func ends(r *compare.Row) string {
	first, last := "", ""
	for _, v := range r.Values {
		if v == nil {
			continue
		}
		last = quantity.Of("", v.Mean, r.Unit).Text()
		if first == "" {
			first = last
		}
	}
	return first + " → " + last
}

// nothing reports whether a number is zero in all recordings.
func nothing(r *compare.Row) bool {
	for _, v := range r.Values {
		if v != nil && v.Mean != 0 {
			return false
		}
	}
	return true
}

func (t *trendText) numbers() {
	var rows [][]string
	for _, n := range (Trend{t.d}).Numbers() {
		rows = append(rows, []string{n.Label, sparkline(thin(n.Values, t.width/3)), n.Ends})
	}
	if len(rows) == 0 {
		return
	}
	t.blank()
	t.line(bold, "NUMBERS  ", "  ", "min-max scale, first and last at right")
	for _, r := range padded(rows) {
		head := "  " + r[0] + "  "
		if utf8.RuneCountInString(head)+utf8.RuneCountInString(r[1])+2+utf8.RuneCountInString(r[2]) > t.width {
			t.line(plain, "  ", "    ", strings.TrimSpace(r[0])+":")
			head = "    "
		}
		t.line(plain, head+r[1]+"  ", "    ", strings.TrimSpace(r[2]))
	}
}

// SeenMark returns one letter for the outcome of a check in a recording.
func SeenMark(s compare.Seen) string {
	switch s {
	case compare.SeenCritical:
		return "!"
	case compare.SeenWarning:
		return "+"
	case compare.SeenFine:
		return "·"
	}
	return "?"
}

func (t *trendText) findings() {
	if len(t.d.Marks) == 0 {
		return
	}
	t.blank()
	t.line(bold, "FINDINGS  ", "  ", "! critical, + warning, · none, ? not assessed")
	width := 0
	for _, m := range t.d.Marks {
		width = max(width, len(m.Check))
	}
	for _, m := range t.d.Marks {
		s := ""
		for _, x := range m.Seen {
			s += SeenMark(x)
		}
		t.line(plain, "  "+m.Check+strings.Repeat(" ", width-len(m.Check))+"  ", "    ", s)
	}
}

// tableColumns are the numbers in the table, if they are known; the others are in JSON.
var tableColumns = map[string]string{
	"cpu_per_request": "CPU/request", "ipc": "IPC", "throttled_share": "throttled", "gc_share": "GC",
	"slow_connects": "slow connects",
	"requests":      "requests/s", "cpu_used": "CPUs",
}

func (t *trendText) table() {
	t.blank()
	for _, r := range padded(trendTable(t.d, clean)) {
		t.line(plain, "  "+strings.TrimRight(strings.Join(r, "  "), " "), "    ", "")
	}
}

// trendTable has a row for each recording: its time, its numbers, its first finding and its name, each through
// escape.
func trendTable(d *compare.Trend, escape func(string) string) [][]string {
	head := []string{"UTC"}
	var columns []*compare.Row
	for i := range d.Rows {
		if title, ok := tableColumns[d.Rows[i].Name]; ok && !nothing(&d.Rows[i]) {
			head, columns = append(head, title), append(columns, &d.Rows[i])
		}
	}
	rows := [][]string{append(head, "recording: principal finding")}
	for i := range d.Runs {
		run := &d.Runs[i]
		row := []string{run.Started.Format(minute)}
		for _, c := range columns {
			cell := ""
			if v := c.Values[i]; v != nil {
				cell = strings.TrimSuffix(quantity.Of("", v.Mean, c.Unit).Text(), " "+string(c.Unit))
			}
			row = append(row, cell)
		}
		rows = append(rows, append(row, escape(run.Name)+": "+escape(orNone(run.Verdict))))
	}
	return rows
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Markdown writes the trend for a ticket; names are plain text in it, as in [Data.Markdown].
func (t Trend) Markdown(w io.Writer) error {
	m := &markdown{}
	m.line("## perfdoctor trend: %s\n", t.Title())
	for i := range t.Steps {
		s := &t.Steps[i]
		m.line("- **%s** %s", s.Result, escape(stepText(t.Trend, s)))
		if s.Methods == nil || s.Name == "methods" {
			continue
		}
		for _, x := range append(s.Methods.Grown, s.Methods.Shrunk...) {
			m.line("  - %s", escape(x.Text()))
		}
	}
	if len(t.Steps) == 0 {
		m.line("No lasting change that these recordings can show.")
	}
	for _, s := range t.Doubts {
		m.line("- but %s", escape(s))
	}
	m.blank()
	for i, r := range trendTable(t.Trend, escape) {
		m.line("| %s |", strings.Join(r, " | "))
		if i == 0 {
			m.line("|%s", strings.Repeat("---|", len(r)))
		}
	}
	if _, err := io.WriteString(w, m.b.String()); err != nil {
		return fmt.Errorf("write the trend: %w", err)
	}
	return nil
}
