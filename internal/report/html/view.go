package html

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
	"github.com/perfdoctor/perfdoctor/internal/report"
	"github.com/perfdoctor/perfdoctor/internal/report/page"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// A view is what the template shows.
type view struct {
	*report.Data
	Policy   string
	Missing  string // why there is no program
	Title    string
	Findings []*findingView // as in the report, and in its order
	Charts   []*chartView
	Profiles []profileView
	Monitors []table
	Tables   []table
	Means    []keyMean

	charts []chart
	marks  []profileMark
}

// findingView is a finding with its place in the page.
type findingView struct {
	*report.Finding
	Anchor   string
	Evidence []link
	Values   []string // the evidence, each with its arithmetic
	Leads    []*findingView
	Causes   *findingView // what it is a consequence of
}

// chartView is a chart with the facts that need no drawing.
type chartView struct {
	ID, Title, About string
	Lines            []lineView
	Shows            []link // findings that it proves
	Marked           []int  // lines that show these findings' subjects
}

// lineView is a line in numbers.
type lineView struct {
	Label, Least, Mean, Most, Last string
	Limit                          bool
}

type profileView struct {
	Event, Title, Engine, Total string
	Samples                     int64
	Lost                        int64
	Timed                       bool // its samples have times
}

func newView(in Input) *view {
	rec := in.Recording
	v := &view{
		Data: in.Report, Title: titleOf(in.Report), charts: chartsOf(rec), Monitors: monitors(rec),
		Tables: tablesOf(rec), Means: meansOf(in.Report),
	}
	for i := range in.Report.Findings {
		f := &in.Report.Findings[i]
		fv := &findingView{Finding: f, Anchor: fmt.Sprintf("finding-%d", i+1)}
		for _, e := range f.Evidence {
			fv.Values = append(fv.Values, e.String())
		}
		v.Findings = append(v.Findings, fv)
	}
	for _, f := range v.Findings {
		if i := slices.IndexFunc(v.Findings, func(c *findingView) bool { return c.ID == f.Cause }); f.Cause != "" &&
			i >= 0 {
			f.Causes = v.Findings[i]
			v.Findings[i].Leads = append(v.Findings[i].Leads, f)
		}
	}
	for i, c := range v.charts {
		v.charts[i].extendLimits(rec.Meta.Duration)
		v.Charts = append(v.Charts, viewOf(c))
	}
	for _, e := range stacks.Events() {
		if p, ok := rec.Ranked(e); ok && len(p.Samples) > 0 {
			v.Profiles = append(v.Profiles, profileViewOf(p))
		}
	}
	v.link(proofsOf(in.Report, in.Checks), rec)
	return v
}

// A keyMean is the mean of a key number over the window.
type keyMean struct{ Label, Text string }

// mostMeans and the five resources are the twenty lines shown of everything that was measured: the rest is folded.
const mostMeans = 15

// meansOf returns the first key numbers above their floor. They come in the order of their importance.
func meansOf(d *report.Data) (out []keyMean) {
	for i := range d.Numbers {
		n := &d.Numbers[i]
		if n.Estimate != nil && n.Estimate.Mean > 0 && n.Estimate.Mean >= n.Floor && len(out) < mostMeans {
			out = append(out, keyMean{n.Label, value(n.Estimate.Mean, n.Unit)})
		}
	}
	return out
}

// More reports whether there are findings beside the verdict's.
func (v *view) More() bool {
	return len(v.Findings) > 1 || len(v.Findings) == 1 && v.Verdict.Result != report.Bottleneck
}

func profileViewOf(p *stacks.Profile) profileView {
	t := p.Total()
	unit, n := quantity.Seconds, float64(t.Value)/1e9
	if p.Event == stacks.Alloc {
		unit, n = quantity.Bytes, float64(t.Value)
	}
	return profileView{
		Event: string(p.Event), Title: eventTitles[p.Event], Engine: p.Engine, Total: value(n, unit), Samples: t.Count,
		Lost:  p.Lost,
		Timed: p.Bucket > 0,
	}
}

func titleOf(d *report.Data) string {
	what := d.Target.Kind
	switch {
	case what == "" || what == "host":
		what = "the whole host"
	case d.Target.PID != 0:
		what = fmt.Sprintf("%s %d (%s)", d.Target.Kind, d.Target.PID, d.Target.Name)
	case d.Target.Name != "":
		what += " " + d.Target.Name
	}
	return what
}

// extendLimits draws ceilings over the whole window: a setting is read once.
func (c *chart) extendLimits(window float64) {
	for i, l := range c.Lines {
		if l.Limit {
			first, last := l.Points[0].Value, l.Points[len(l.Points)-1].Value
			end := recording.Point{At: time.Duration(window * float64(time.Second)), Value: last}
			c.Lines[i].Points = slices.Concat([]recording.Point{{At: 0, Value: first}}, l.Points,
				[]recording.Point{end})
		}
	}
}

func viewOf(c chart) *chartView {
	v := &chartView{ID: c.ID, Title: c.Title, About: c.About}
	for _, l := range c.Lines {
		values := series.Values(l.Points)
		v.Lines = append(v.Lines, lineView{
			Label: l.Label, Limit: l.Limit,
			Least: value(slices.Min(values), c.Unit), Mean: value(series.Mean(values), c.Unit),
			Most: value(slices.Max(values), c.Unit),
			Last: value(l.Points[len(l.Points)-1].Value, c.Unit),
		})
	}
	return v
}

// chartData is what the program draws; web/src/data.ts has the same types.
type chartData struct {
	Duration float64        `json:"duration"`
	Charts   []plotData     `json:"charts"`
	Findings []findingLabel `json:"findings"`
}

type plotData struct {
	ID      string     `json:"id"`
	Unit    string     `json:"unit"`
	Stacked bool       `json:"stacked"`
	Heat    bool       `json:"heat"`
	Times   []float64  `json:"times"`
	Lines   []plotLine `json:"lines"`
}

type plotLine struct {
	Label  string     `json:"label"`
	Limit  bool       `json:"limit"`
	Marked bool       `json:"marked"`
	Values []*float64 `json:"values"` // one for each time; null if there is none
}

type findingLabel struct {
	Anchor  string `json:"anchor"`
	Check   string `json:"check"`
	Summary string `json:"summary"`
}

func (v *view) chartData() chartData {
	d := chartData{Duration: v.Window.Seconds, Charts: []plotData{}, Findings: []findingLabel{}}
	for i, c := range v.charts {
		d.Charts = append(d.Charts, plotOf(c, v.Charts[i].Marked))
	}
	for _, f := range v.Findings {
		d.Findings = append(d.Findings, findingLabel{f.Anchor, visible(f.Check), visible(f.Summary)})
	}
	return d
}

// plotOf brings the lines to one list of times, rounded to a millisecond: samples of one moment differ by no more.
func plotOf(c chart, marked []int) plotData {
	ms := func(p recording.Point) int64 { return p.At.Milliseconds() }
	var times []int64
	for _, l := range c.Lines {
		for _, p := range l.Points {
			times = append(times, ms(p))
		}
	}
	slices.Sort(times)
	times = slices.Compact(times)
	d := plotData{ID: c.ID, Unit: string(c.Unit), Stacked: c.Stacked, Heat: c.Heat}
	for _, t := range times {
		d.Times = append(d.Times, float64(t)/1000)
	}
	for n, l := range c.Lines {
		values := make([]*float64, len(times))
		for _, p := range l.Points {
			i, _ := slices.BinarySearch(times, ms(p))
			short := significant(p.Value)
			values[i] = &short
		}
		d.Lines = append(d.Lines, plotLine{visible(l.Label), l.Limit, slices.Contains(marked, n), values})
	}
	return d
}

// significant keeps six digits: more cannot be seen, and a page of 64 CPUs is full of them.
func significant(n float64) float64 {
	if n == 0 || math.IsInf(n, 0) || math.IsNaN(n) {
		return 0
	}
	scale := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(n))))
	return math.Round(n*scale) / scale
}

// functions are what the templates format with, and the methods that they need.
var functions = page.Funcs{
	"seconds": func(n float64) string { return value(n, quantity.Seconds) },
	"share":   func(n float64) string { return value(n, quantity.Ratio) },
	"bytes":   func(n int64) string { return value(float64(n), quantity.Bytes) },
	"number":  func(n float64) string { return number(n) },
	"upper":   strings.ToUpper,
	"join":    func(list []string) string { return strings.Join(list, ", ") },
	"lines":   func(s string) string { return strings.TrimSpace(s) },
	"warning": func(s check.Severity) bool { return s >= check.Warning },
	"role": func(list []*findingView, r string) []*findingView {
		return slices.DeleteFunc(slices.Clone(list), notRole(r))
	},
	"severity":   func(s check.Severity) string { return s.String() },
	"places":     report.PlaceTexts,
	"utc":        func(t time.Time) string { return t.Format("2006-01-02 15:04:05 UTC") },
	"clock":      func(t time.Time) string { return t.Format("15:04:05") },
	"more":       (*view).More,
	"incident":   (*report.Incident).Text,
	"pseudonyms": (*report.Data).Pseudonyms,
	"heading":    (*report.Data).Heading,
	"next":       (*report.Data).Next,
	"users":      (*report.Data).Users,
	"rest":       (*report.Data).RestOfHost,
	"marked":     table.Marked,
	"given":      recording.GivenUp.Text,
	"busiest":    func(l *ledger.Ledger) []*ledger.Pool { shown, _ := report.BusiestPools(l); return shown },
	"others":     func(l *ledger.Ledger) []*ledger.Pool { _, more := report.BusiestPools(l); return more },
	"who":        (*ledger.Pool).Who,
	"split":      (*ledger.Pool).Split,
	"seen":       report.SeenMark,
	"promise":    func(x compare.Promised) string { return x.Text() },
	"either":     func(f compare.Finding) *check.Finding { return f.Either() },
}

func notRole(r string) func(*findingView) bool {
	return func(f *findingView) bool { return string(f.Role) != r }
}
