package scenario

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Step is a line of a story's table: what was said, what was changed in response, and what that moved.
type Step struct {
	Rung    string `json:"rung"` // the rung that makes the change
	Placebo bool   `json:"placebo,omitempty"`
	// the first fault left before the change: the verdict must be about it
	First string `json:"first_left,omitempty"`
	// Verdict and its details are from the phase before the change. For a placebo, they are from the phase with it.
	Verdict    string  `json:"verdict"`
	Subject    string  `json:"subject,omitempty"`
	Severity   string  `json:"severity,omitempty"`
	Summary    string  `json:"summary,omitempty"`
	Arithmetic string  `json:"arithmetic,omitempty"`
	Cure       string  `json:"cure"`
	Before     string  `json:"before"` // phase
	After      string  `json:"after"`  // phase
	Moved      []Moved `json:"moved"`
	Asserted   bool    `json:"asserted"` // the moves were predicted; false for a fault that was fixed out of turn
	Held       bool    `json:"held"`     // every expectation of verdict and moves
}

// Moved is what a change did to a metric.
type Moved struct {
	Metric string  `json:"metric"`
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	Factor float64 `json:"factor,omitempty"` // after / before; 0 when the value before was 0
}

// steps makes the table from the phases that were run, a prefix of list.
func steps(list []phaseSpec, phases []Phase) []Step {
	var out []Step
	for i := 1; i < len(phases); i++ {
		out = append(out, stepOf(&list[i], &list[list[i].from], &phases[list[i].from], &phases[i]))
	}
	return out
}

func stepOf(spec, from *phaseSpec, before, after *Phase) Step {
	diagnosed := before
	if spec.rung.Placebo {
		diagnosed = after
	}
	st := Step{
		Rung: spec.rung.Name, Placebo: spec.rung.Placebo, Cure: spec.rung.Cure.Title, Before: before.Name,
		After:   after.Name,
		Verdict: diagnosed.Verdict, Subject: diagnosed.Subject, Severity: diagnosed.Severity,
		Summary:    diagnosed.Summary,
		Arithmetic: diagnosed.Arithmetic, Moved: []Moved{}, Asserted: !spec.loose,
		Held: diagnosed.heldBut("moves") && after.heldOnly("moves"),
	}
	if c := after.Compared; c != nil {
		st.Verdict, st.Arithmetic = VerdictRegression, c.line(spec.rung.Regression)
		st.Held = st.Held && after.heldOnly("regression")
	}
	if from.kind == KindRung {
		st.First = from.name[strings.Index(from.name, "-")+1:]
	}
	var seen []string
	for i := range spec.moves {
		name := spec.moves[i].Metric
		if !slices.Contains(seen, name) {
			st.add(name, before, after)
		}
		seen = append(seen, name)
	}
	return st
}

// line returns the line of a comparison that names what was planted, or else its first line.
func (c *Compared) line(planted []string) string {
	for _, part := range planted {
		if i := slices.IndexFunc(c.Worse, func(w string) bool { return strings.Contains(w, part) }); i >= 0 {
			return c.Worse[i]
		}
	}
	return strings.Join(c.Worse[:min(1, len(c.Worse))], "")
}

// heldBut reports whether every assertion of another kind held; heldOnly, of this kind. The moves between two states
// are asserted with the second state, but belong to the step from the first.
func (p *Phase) heldBut(kind string) bool {
	return !slices.ContainsFunc(p.Assertions, func(a Assertion) bool { return !a.Held && a.Kind != kind })
}

func (p *Phase) heldOnly(kind string) bool {
	return !slices.ContainsFunc(p.Assertions, func(a Assertion) bool { return !a.Held && a.Kind == kind })
}

func (st *Step) add(metric string, before, after *Phase) {
	b, ok := before.Measured[metric]
	a, measured := after.Measured[metric]
	if !ok || !measured {
		return
	}
	m := Moved{Metric: metric, Before: b, After: a}
	if b > 0 {
		m.Factor = a / b
	}
	st.Moved = append(st.Moved, m)
}

func (m *Moved) cells() []string {
	cells := []string{m.Metric, metricText(m.Metric, m.Before), metricText(m.Metric, m.After), ""}
	if m.Before > 0 {
		cells[3] = fmt.Sprintf("x %.3g", m.Factor)
	}
	return cells
}

// remark says what is special about a step.
func (st *Step) remark() string {
	switch {
	case st.Placebo && st.Held:
		return "did not help"
	case st.Placebo:
		return "not as expected"
	case !st.Asserted:
		return "out of turn"
	case !st.Held:
		return "not as expected"
	}
	return ""
}

// whole returns the effect of all fixes: each metric that a fix moved, from the first state to the last.
func (r *Result) whole() []Moved {
	last := &r.Phases[len(r.Phases)-1]
	all := Step{}
	var seen []string
	for i := range r.Steps {
		if r.Steps[i].Placebo {
			continue
		}
		last = r.phase(r.Steps[i].After)
		for _, m := range r.Steps[i].Moved {
			seen = append(seen, m.Metric)
		}
	}
	for _, name := range r.metrics() {
		if slices.Contains(seen, name) {
			all.add(name, &r.Phases[0], last)
		}
	}
	return all.Moved
}

func (r *Result) phase(name string) *Phase {
	i := slices.IndexFunc(r.Phases, func(p Phase) bool { return p.Name == name })
	return &r.Phases[max(i, 0)]
}

// table returns the cells of a story's table, its head first.
func (r *Result) table() [][]string {
	rows := [][]string{{"RUNG", "VERDICT", "FIX", "METRIC", "BEFORE", "AFTER", "FACTOR", "", "ARITHMETIC"}}
	add := func(head []string, moved []Moved, remark, arithmetic string) {
		if len(moved) == 0 {
			rows = append(rows, append(head, "", "", "", "", remark, arithmetic))
		}
		for _, m := range moved {
			rows = append(rows, slices.Concat(head, m.cells(), []string{remark, arithmetic}))
			head, remark, arithmetic = []string{"", "", ""}, "", ""
		}
	}
	for i := range r.Steps {
		st := &r.Steps[i]
		add([]string{st.Rung, st.Verdict, st.Cure}, st.Moved, st.remark(), cmp.Or(st.Arithmetic, st.Subject))
	}
	last := &r.Phases[len(r.Phases)-1]
	if last.Kind == KindHealthy {
		add([]string{stateHealthy, last.Verdict, ""}, r.whole(), "all fixes", "")
	}
	return rows
}

// climbed prints a story's table.
func (r *Result) climbed(b *strings.Builder) {
	b.WriteString("\n")
	if len(r.LeftOut) > 0 {
		fmt.Fprintf(b, "Left out, as fixed from the start: %s\n\n", strings.Join(r.LeftOut, ", "))
	}
	columns(b, func(w io.Writer) {
		for _, cells := range r.table() {
			row(w, cells...)
		}
	})
}
