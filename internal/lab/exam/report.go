package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Report is the part of perfdoctor's JSON report that the exam reads (docs/report-schema.md).
type Report struct {
	Verdict struct {
		Result    string `json:"result"`
		Principal string `json:"principal"`
		Summary   string `json:"summary"`
	} `json:"verdict"`
	Findings []Finding `json:"findings"`
	CPUTime  *struct {
		Methods []struct {
			Name string  `json:"name"`
			Own  float64 `json:"own_share"`
		} `json:"methods"`
	} `json:"cpu_time"`
}

// Finding is one finding. The verdict is one of them.
type Finding struct {
	ID      string `json:"id"`
	Check   string `json:"check"`
	Subject struct {
		Kind string `json:"kind"`
		ID   string `json:"id"`
	} `json:"subject"`
	Severity   string     `json:"severity"`
	Confidence string     `json:"confidence"`
	Summary    string     `json:"summary"`
	Evidence   []Evidence `json:"evidence"`
	Notes      []string   `json:"notes"`
}

// Evidence is one number.
type Evidence struct {
	Label      string `json:"label"`
	Text       string `json:"text"`
	Arithmetic string `json:"arithmetic"`
}

func parseReport(data []byte) (*Report, error) {
	r := &Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("the JSON report: %w", err)
	}
	return r, nil
}

// principal returns the verdict's finding, or nil.
func (r *Report) principal() *Finding {
	i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.ID == r.Verdict.Principal })
	if i < 0 || r.Verdict.Principal == "" {
		return nil
	}
	return &r.Findings[i]
}

// abstained reports whether the verdict says that too little could be read.
func (r *Report) abstained() bool {
	return r.Verdict.Result == "incomplete" || r.Verdict.Result == "nothing assessed"
}

// warns reports whether the finding is a warning or more.
func (f *Finding) warns() bool { return f.Severity == "warning" || f.Severity == "critical" }

// subject returns the subject as the text report prints it.
func (f *Finding) subject() string { return strings.TrimSpace(f.Subject.Kind + " " + f.Subject.ID) }

// evidence returns the lines that the text report prints below the summary: numbers and facts of this run.
func (f *Finding) evidence() []string {
	var lines []string
	for _, e := range f.Evidence {
		value := e.Arithmetic
		if value == "" {
			value = e.Text
		}
		lines = append(lines, e.Label+": "+value)
	}
	return append(lines, f.Notes...)
}

// text returns the text that may name a component: what the finding says about this run, without what it says every
// time (fixes, placebos, what would disprove it).
func (f *Finding) text() string {
	return strings.Join(append([]string{f.subject(), f.Summary}, f.evidence()...), "\n")
}

// reply translates the report to the words of the vocabulary. A check without a row is an error: its verdict could
// not be marked.
func (a *Answers) reply(r *Report) (*Reply, error) {
	reply := &Reply{Abstained: r.abstained()}
	first := r.principal()
	for i := range r.Findings {
		f := &r.Findings[i]
		words, ok := a.of(f.Check)
		if !ok {
			return nil, fmt.Errorf("%s has no row for the check %s", answersFile, f.Check)
		}
		said := Said{Words: words, Text: f.text()}
		if f == first {
			reply.First = &said
		} else {
			reply.Others = append(reply.Others, said)
		}
	}
	return reply, nil
}

// alarm returns the first finding at warning or above, or nil.
func (r *Report) alarm() *Finding {
	for i := range r.Findings {
		if r.Findings[i].warns() {
			return &r.Findings[i]
		}
	}
	return nil
}

// silences reports whether the check's warning is gone.
func (r *Report) silences(check string) bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Check == check && f.warns() })
}

// idle is the CPU use below which a program counts as waiting.
const idle = 0.2

// busiest returns the answer of someone who just names what uses the most CPU time.
func busiest(r *Report, cpus float64, processes []Usage) *Reply {
	if cpus < idle {
		return &Reply{First: &Said{Words: []string{"threads-waiting"}}}
	}
	said := &Said{Words: []string{"hot-code"}}
	best := 0.0
	if r.CPUTime != nil {
		for _, m := range r.CPUTime.Methods {
			if m.Own > best {
				best, said.Text = m.Own, m.Name
			}
		}
	}
	if said.Text == "" && len(processes) > 0 {
		said.Text = processes[0].Name
	}
	return &Reply{First: said}
}
