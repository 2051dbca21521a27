package scenario

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/perfdoctor/perfdoctor/internal/report/junit"
)

// Text writes the results as tables.
func Text(w io.Writer, results []*Result) error {
	var b strings.Builder
	for i, r := range results {
		if i > 0 {
			b.WriteString("\n")
		}
		r.text(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Result) text(b *strings.Builder) {
	fmt.Fprintf(b, "%s: %s%s\n", r.Scenario, r.Title, inGuest(r.Guest))
	if len(r.Phases) > 0 {
		b.WriteString("\n")
		r.verdicts(b)
		r.numbers(b)
	}
	r.remarks(b)
	if len(r.Steps) > 0 {
		r.climbed(b)
	}
	held, all := r.count()
	fmt.Fprintf(b, "\n%s", r.Status)
	if r.Reason != "" {
		fmt.Fprintf(b, ": %s", r.Reason)
	}
	if all > 0 && r.Status != Broken {
		fmt.Fprintf(b, ": %d of %d expectations, %.0f s", held, all, r.Seconds)
	}
	b.WriteString("\n")
}

// remarks prints what did not hold, and what to consider when reading the rest.
func (r *Result) remarks(b *strings.Builder) {
	for i := range r.Phases {
		p := &r.Phases[i]
		p.failures(b)
		if p.Disturbed > 0 {
			fmt.Fprintf(b, "\nnote: %s\n", p.disturbance())
		}
		if p.noisy() {
			fmt.Fprintf(b, "\nnote: the machine was %.0f %% busy before %s: what is said of the host may be about "+
				"something else\n",
				p.BusyBefore*100, p.Name)
		}
	}
	for _, gap := range r.Gaps {
		fmt.Fprintf(b, "\nnot yet assessed: %s: %s\n", gap.Finding, gap.Reason)
	}
}

// inGuest says where the scenario ran, if not on this machine: its times are then not those of this machine.
func inGuest(guest string) string {
	if guest == "" {
		return ""
	}
	return " (in a guest, " + guest + ")"
}

func (r *Result) count() (held, all int) {
	for i := range r.Phases {
		for _, a := range r.Phases[i].Assertions {
			all++
			if a.Held {
				held++
			}
		}
	}
	return held, all
}

// columns lays out tab-separated cells, without spaces at the ends of lines.
func columns(b *strings.Builder, fill func(w io.Writer)) {
	var padded strings.Builder
	w := tabwriter.NewWriter(&padded, 0, 0, 2, ' ', 0)
	fill(w)
	_ = w.Flush() // a strings.Builder takes everything
	for line := range strings.Lines(padded.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

func row(w io.Writer, cells ...string) {
	_, _ = fmt.Fprintln(w, "  "+strings.Join(cells, "\t")) // to a tabwriter on a strings.Builder
}

func (r *Result) verdicts(b *strings.Builder) {
	columns(b, func(w io.Writer) {
		row(w, "PHASE", "KIND", "VERDICT", "ABOUT", "ARITHMETIC")
		for i := range r.Phases {
			p := &r.Phases[i]
			row(w, p.Name, p.Kind, p.Verdict, p.Subject, p.Arithmetic)
		}
	})
}

// numbers prints each metric before and after every trial, and the arithmetic prediction.
func (r *Result) numbers(b *strings.Builder) {
	measured := 0
	for i := range r.Phases {
		measured += len(r.Phases[i].Measured) + len(r.Phases[i].Foretold)
	}
	if measured == 0 {
		return
	}
	b.WriteString("\n")
	columns(b, func(w io.Writer) {
		row(w, "PHASE", "METRIC", "FORETOLD", "BEFORE", "AFTER", "FACTOR")
		names := slices.DeleteFunc(r.metrics(), func(name string) bool { return !r.speaksOf(name) })
		for i := range r.Phases {
			for _, name := range names {
				r.number(w, i, name)
			}
		}
	})
}

// metrics returns all metrics in the order of output, those of one process last.
func (r *Result) metrics() []string {
	of := map[string]bool{}
	for i := range r.Phases {
		for name := range r.Phases[i].Measured {
			of[name] = true
		}
		for _, f := range r.Phases[i].Foretold {
			of[f.Metric] = true
		}
	}
	maps.DeleteFunc(of, func(name string, _ bool) bool { return !strings.Contains(name, ofProcess) })
	return append(metricNames(nil), slices.Sorted(maps.Keys(of))...)
}

// speaksOf reports whether the metric is worth a line for each phase. A story has many phases: there, only metrics
// that a rung names are. What the diagnosed process used is if anything is predicted for it.
func (r *Result) speaksOf(metric string) bool {
	if len(r.Steps) == 0 {
		foretold := slices.ContainsFunc(r.Phases, func(p Phase) bool { return p.foretoldText(metric) != "" })
		return foretold || !slices.Contains([]string{CPU, Memory, Stopped, Paused}, metric) &&
			!strings.Contains(metric, ofProcess)
	}
	return slices.ContainsFunc(r.Steps, func(st Step) bool {
		return slices.ContainsFunc(st.Moved, func(m Moved) bool { return m.Metric == metric })
	})
}

func (r *Result) number(w io.Writer, i int, metric string) {
	p := &r.Phases[i]
	after, measured := p.Measured[metric]
	foretold := p.foretoldText(metric)
	if !measured && foretold == "" {
		return
	}
	cells := []string{p.Name, metric, foretold, "", "not measured", ""}
	if measured {
		cells[4] = metricText(metric, after)
	}
	if before, ok := r.phase(p.Before).Measured[metric]; ok && measured && p.Before != "" {
		cells[3] = metricText(metric, before)
		if before > 0 {
			cells[5] = fmt.Sprintf("x %.3g", after/before)
		}
	}
	row(w, cells...)
}

func (p *Phase) foretoldText(metric string) string {
	var bounds string
	for _, f := range p.Foretold {
		switch {
		case f.Metric != metric:
		case f.Foretold != nil:
			return fmt.Sprintf("%s = %s", f.Because, metricText(metric, *f.Foretold))
		case f.Because != "":
			bounds = f.Because + ": " + f.Bounds
		default:
			bounds = f.Bounds
		}
	}
	return bounds
}

// disturbance says why a phase was measured more than once.
func (p *Phase) disturbance() string {
	return fmt.Sprintf("%s was measured %d times: the hypervisor gave the CPUs to others before that", p.Name,
		p.Disturbed+1)
}

// noisy reports whether something else was running on the machine.
func (p *Phase) noisy() bool { return p.BusyBefore > 1-idleEnough }

func (p *Phase) failures(b *strings.Builder) {
	for _, a := range p.Assertions {
		if !a.Held {
			fmt.Fprintf(b, "\nfailed in %s: %s\n  got: %s\n", p.Name, a.What, a.Got)
		}
	}
}

// JSON writes the results (docs/scenarios.md).
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// JUnit writes the results as JUnit's XML: one suite a scenario, one case an expectation.
func JUnit(w io.Writer, results []*Result) error {
	var suites []junit.Suite
	for _, r := range results {
		suites = append(suites, r.junit())
	}
	return junit.Write(w, suites)
}

func (r *Result) junit() junit.Suite {
	s := junit.Suite{Name: r.Scenario, Seconds: r.Seconds, Started: r.Started}
	for i := range r.Phases {
		p := &r.Phases[i]
		for _, a := range p.Assertions {
			c := junit.Case{Class: r.Scenario + "." + p.Name, Name: a.What}
			if !a.Held {
				c.Failure = &junit.Message{Text: a.Got}
			}
			s.Cases = append(s.Cases, c)
		}
	}
	switch r.Status {
	case Broken:
		s.Cases = append(s.Cases, junit.Case{Class: r.Scenario, Name: "runs", Error: &junit.Message{Text: r.Reason}})
	case Skipped:
		s.Cases = append(s.Cases, junit.Case{Class: r.Scenario, Name: "runs", Skipped: &junit.Message{Text: r.Reason}})
	}
	return s
}
