package html

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
	"github.com/perfdoctor/perfdoctor/internal/report"
)

// A link leads from a finding to what proves it, and back.
type link struct {
	Href, Text string
	Finding    int    // index of the finding that it is about
	Event      string // of a flame graph
}

// Bounds of what a finding shows of each kind. It should link to what decides, not to all that was looked at.
const (
	maxCharts = 3
	maxRows   = 12
)

// A proof is what one finding points at.
type proof struct {
	finding *report.Finding
	needs   []metric.Metric // what its check cannot do without
	uses    []metric.Metric
}

func proofsOf(data *report.Data, checks []*check.Check) []proof {
	by := map[string]*check.Check{}
	for _, c := range checks {
		by[c.Name] = c
	}
	out := make([]proof, len(data.Findings))
	for i := range data.Findings {
		out[i].finding = &data.Findings[i]
		if c := by[data.Findings[i].Check]; c != nil {
			out[i].needs, out[i].uses = c.Needs, c.Uses
		}
	}
	return out
}

// charts returns the charts of the metrics that a finding's check read: the metrics it needs before those it uses,
// and among them the charts with most of them. If a profile proves the finding, the metrics it only uses do not
// count.
func (p *proof) charts(list []chart, profiled bool) []int {
	for i, read := range [][]metric.Metric{p.needs, p.uses} {
		if i > 0 && profiled {
			return nil
		}
		var found []int
		for i, c := range list {
			if common(c.Metrics, read) > 0 {
				found = append(found, i)
			}
		}
		slices.SortStableFunc(found, func(a, b int) int {
			return cmp.Compare(common(list[b].Metrics, read), common(list[a].Metrics, read))
		})
		if len(found) > 0 {
			return found[:min(len(found), maxCharts)]
		}
	}
	return nil
}

func common(a, b []metric.Metric) int {
	n := 0
	for _, m := range a {
		if slices.Contains(b, m) {
			n++
		}
	}
	return n
}

// about reports whether labels are of the finding's subject.
func (p *proof) about(labels []string) bool {
	id := p.finding.Subject.ID
	return id != "" && slices.ContainsFunc(labels, func(l string) bool {
		return l != "" && (l == id || strings.HasPrefix(id, l+" ") || l == "CPU "+id || len(l) >= leastName &&
			strings.Contains(id, l))
	})
}

// line reports whether a line of a chart is of the finding's subject.
func (p *proof) line(l line) bool {
	name, _, _ := strings.Cut(l.Label, ", ")
	return p.about([]string{l.Label, name, strings.TrimPrefix(l.Label, "quota of ")})
}

// row reports whether a finding's check read a row: a row of the subject, or a setting or fact of the whole system
// that it needs.
func (p *proof) row(r row) bool {
	if r.named != "" && !p.says(r.named) {
		return false
	}
	need := common(r.metric, p.needs) > 0
	if need || common(r.metric, p.uses) > 0 {
		if p.about(r.labels) {
			return true
		}
	}
	single := len(r.labels) == 0 || len(r.labels) == 1 && r.labels[0] == metric.NetNSTarget
	return need && single
}

// says reports whether the finding's words have a name.
func (p *proof) says(name string) bool {
	f := p.finding
	texts := slices.Concat([]string{f.Summary, f.Disproof}, f.Notes, f.Placebos, f.Doubts)
	for _, v := range f.Evidence {
		texts = append(texts, v.String())
	}
	for _, r := range f.Remedies {
		texts = append(texts, r.Action, string(r.Command), r.Effect, r.Risk)
	}
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(t, name) })
}

// profiles returns what a finding points at in profiles: the places that its check found, else the functions that its
// text names.
func (p *proof) profiles(rec *recording.Recording, index int) []profileMark {
	var out []profileMark
	for _, e := range stacks.Events() {
		m := profileMark{finding: index, event: e, frames: map[string]bool{}}
		for _, mark := range p.finding.Marks {
			if mark.Event == e {
				m.places = append(m.places, place{mark.Stack, mark.At})
			}
		}
		if len(p.finding.Marks) == 0 && p.reads(e) {
			m.frames = p.named(rec, e)
		}
		if len(m.places)+len(m.frames) > 0 {
			out = append(out, m)
		}
	}
	return out
}

// reads reports whether the finding's check reads the profile of an event.
func (p *proof) reads(e stacks.Event) bool {
	name := strings.ReplaceAll(string(e), "-", "_") + "_profile_samples"
	is := func(m metric.Metric) bool { return m.Describe().Name == name }
	return slices.ContainsFunc(p.needs, is) || slices.ContainsFunc(p.uses, is)
}

// functionName finds words of a text that may be function names. A line number may follow.
var functionName = regexp.MustCompile(`[^\s,;←"“”]+`)

// leastName is the least length of a word that names a function. Shorter words match by chance.
const leastName = 6

// named returns the functions of a profile that the finding's own words name. Its summary and subject come before its
// notes, because the chains of calls in notes name many functions.
func (p *proof) named(rec *recording.Recording, e stacks.Event) map[string]bool {
	prof, ok := rec.Ranked(e)
	if !ok {
		return nil
	}
	known := map[string][]string{}
	for _, f := range prof.Frames {
		known[f.Name] = append(known[f.Name], f.Name)
		if short := shortName(f); short != f.Name {
			known[short] = append(known[short], f.Name)
		}
	}
	first := []string{p.finding.Summary, p.finding.Subject.ID}
	for _, v := range p.finding.Evidence {
		first = append(first, v.Label())
	}
	for _, texts := range [][]string{first, p.finding.Notes} {
		out := map[string]bool{}
		for _, t := range texts {
			for _, word := range functionName.FindAllString(t, -1) {
				for _, name := range known[functionIn(word, known)] {
					out[name] = true
				}
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// functionIn strips what a sentence adds to a function's name.
func functionIn(word string, known map[string][]string) string {
	for _, w := range []string{word, strings.TrimRight(word, ".:)"), strings.Trim(word, "().:")} {
		if i := strings.LastIndexByte(w, ':'); i > 0 && known[w] == nil {
			w = w[:i]
		}
		if len(w) >= leastName && known[w] != nil {
			return w
		}
	}
	return ""
}

// shortName is a function as findings write it: without the path of a Go package, and in Java with its class only.
func shortName(f stacks.Frame) string {
	if f.Managed() {
		parts := strings.Split(f.Name, ".")
		return strings.Join(parts[max(0, len(parts)-2):], ".")
	}
	return f.Name[strings.LastIndexByte(f.Name, '/')+1:]
}

// link connects findings with charts, rows and profiles, in both directions.
func (v *view) link(proofs []proof, rec *recording.Recording) {
	for i := range proofs {
		p := &proofs[i]
		f := v.Findings[i]
		back := link{Href: "#" + f.Anchor, Text: p.finding.Check, Finding: i}
		marks := p.profiles(rec, i)
		for _, c := range p.charts(v.charts, len(marks) > 0) {
			v.Charts[c].Shows = append(v.Charts[c].Shows, back)
			f.Evidence = append(f.Evidence, link{
				Href: "#chart-" + v.charts[c].ID, Text: "chart: " + v.charts[c].Title,
				Finding: i,
			})
			for n, l := range v.charts[c].Lines {
				if p.line(l) {
					v.Charts[c].Marked = append(v.Charts[c].Marked, n)
				}
			}
		}
		for _, m := range marks {
			v.marks = append(v.marks, m)
			f.Evidence = append(f.Evidence, link{
				Href: "#profiles", Text: "flame graph: " + eventTitles[m.event], Finding: i, Event: string(m.event),
			})
		}
		f.Evidence = append(f.Evidence, v.linkRows(p, back)...)
	}
}

// linkRows marks the rows of tables that a finding's check read, and returns a link for each table.
func (v *view) linkRows(p *proof, back link) []link {
	var out []link
	left := maxRows
	for _, tables := range [][]table{v.Monitors, v.Tables} {
		for t := range tables {
			first := ""
			for r := range tables[t].Rows {
				rw := &tables[t].Rows[r]
				if left == 0 || !p.row(*rw) {
					continue
				}
				left--
				rw.Shows = append(rw.Shows, back)
				rw.ID = cmp.Or(rw.ID, fmt.Sprintf("row-%s-%d", tables[t].ID, r))
				first = cmp.Or(first, rw.ID)
			}
			if first != "" {
				out = append(out, link{Href: "#" + first, Text: "table: " + tables[t].Title, Finding: back.Finding})
			}
		}
	}
	return out
}

// eventTitles are the titles of the profiles.
var eventTitles = map[stacks.Event]string{
	stacks.CPU: "CPU", stacks.Script: "CPU, scripts", stacks.HostCPU: "CPU, all processes",
	stacks.Wall: "wall clock", stacks.Goroutine: "goroutines", stacks.OffCPU: "off-CPU",
	stacks.Waits: "waits", stacks.ScriptWall: "wall clock, scripts",
	stacks.Coroutine: "coroutines",
	stacks.Lock:      "locks", stacks.Alloc: "allocations",
}
