package main

import (
	"fmt"
	"strings"
)

// scorer holds what marks depend on besides the case and the report.
type scorer struct {
	words   *Vocabulary
	answers *Answers
	tidy    func(string) string // removes paths of this machine from a text
}

func (e *exam) newScorer() (*scorer, error) {
	words, err := readVocabulary(e.dir)
	if err != nil {
		return nil, err
	}
	answers, err := readAnswers(e.dir, words)
	return &scorer{words, answers, e.tidy}, err
}

// CaseScore is the result of one case.
type CaseScore struct {
	Name      string           `json:"name"`
	Family    string           `json:"family"`
	Runtime   string           `json:"runtime"`
	Corrected bool             `json:"corrected,omitempty"`
	Fault     *PhaseScore      `json:"fault"`
	Cure      *PhaseScore      `json:"cure,omitempty"`
	Twin      *PhaseScore      `json:"twin,omitempty"`
	CureWorks *bool            `json:"cure_works,omitempty"` // absent if a phase is broken
	CureSaid  string           `json:"cure_said,omitempty"`
	Silenced  *bool            `json:"silenced,omitempty"` // absent if there was no verdict, or no fixed system
	Random    map[Mark]float64 `json:"random,omitempty"`
}

// PhaseScore is what was said in one phase.
type PhaseScore struct {
	Broken   string             `json:"broken,omitempty"`
	Mark     Mark               `json:"mark,omitempty"` // the mark for the fault
	Why      string             `json:"why,omitempty"`
	Busiest  Mark               `json:"busiest,omitempty"` // the mark if the busiest thing were the answer
	Says     []string           `json:"says,omitempty"`    // words of the vocabulary
	Summary  string             `json:"summary,omitempty"` // the verdict in a sentence
	Verdict  *Quote             `json:"verdict,omitempty"` // the finding to act on first
	Others   []string           `json:"others,omitempty"`  // checks of the other findings
	Alarm    bool               `json:"alarm,omitempty"`   // something is at warning or above
	Seconds  float64            `json:"seconds"`           // time that the doctor took
	Busy     float64            `json:"busy_before,omitempty"`
	Measured map[string]float64 `json:"measured,omitempty"`
}

// Quote is a finding as it is printed.
type Quote struct {
	Check      string   `json:"check"`
	Subject    string   `json:"subject"`
	Severity   string   `json:"severity"`
	Confidence string   `json:"confidence"`
	Summary    string   `json:"summary"`
	Evidence   []string `json:"evidence,omitempty"`
}

// score marks a case by the results of its phases. The result of a phase that was not run is nil.
func (s *scorer) score(c *Case, phases map[string]*PhaseResult) (*CaseScore, error) {
	out := &CaseScore{
		Name: c.Name, Family: c.Family, Runtime: c.Runtime, Corrected: c.Corrected != nil,
		Random: random(&c.Truth, s.words),
	}
	for phase, into := range map[string]**PhaseScore{
		phaseFault: &out.Fault, phaseCure: &out.Cure, phaseTwin: &out.Twin,
	} {
		if phases[phase] == nil {
			continue
		}
		var err error
		if *into, err = s.phase(c, phases[phase]); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", c.Name, phase, err)
		}
	}
	fault, cure := out.Fault, out.Cure
	if fault == nil || cure == nil || fault.Broken != "" || cure.Broken != "" {
		return out, nil
	}
	said, works := c.Cure.Moves.Check(fault.Measured, cure.Measured)
	out.CureSaid, out.CureWorks = said, &works
	if fault.Verdict != nil {
		report, err := s.report(phases[phaseCure])
		silenced := err == nil && report.silences(fault.Verdict.Check)
		out.Silenced = &silenced
	}
	return out, nil
}

// report reads the report of a phase that has one.
func (s *scorer) report(p *PhaseResult) (*Report, error) {
	return parseReport([]byte(s.tidy(string(p.Doctor.Report))))
}

// phase marks one phase. Only the fault's phase has a mark: for a healthy system, an alarm says enough.
func (s *scorer) phase(c *Case, p *PhaseResult) (*PhaseScore, error) {
	out := &PhaseScore{
		Broken: p.Broken, Seconds: round(p.Doctor.Seconds), Busy: round(p.BusyBefore), Measured: p.Measured,
	}
	if p.Broken != "" {
		if p.Phase == phaseFault {
			out.Mark = Broken
		}
		return out, nil
	}
	report, reply := &Report{}, &Reply{}
	if p.Doctor.Failed != "" {
		out.Summary = "perfdoctor failed: " + p.Doctor.Failed
	} else {
		var err error
		if report, err = s.report(p); err != nil {
			return nil, err
		}
		if reply, err = s.answers.reply(report); err != nil {
			return nil, err
		}
		out.quote(report)
	}
	if reply.First != nil {
		out.Says = reply.First.Words
	}
	if p.Phase == phaseFault {
		out.Mark, out.Why = mark(&c.Truth, s.words, reply)
		if p.Doctor.Failed != "" {
			out.Why = "it gave no report"
		}
		out.Busiest, _ = mark(&c.Truth, s.words, busiest(report, p.Target, p.Processes))
	}
	return out, nil
}

// quote keeps what the report prints.
func (p *PhaseScore) quote(r *Report) {
	p.Summary, p.Alarm = r.Verdict.Summary, r.alarm() != nil
	first := r.principal()
	for i := range r.Findings {
		f := &r.Findings[i]
		if f != first {
			p.Others = append(p.Others, f.Check)
			continue
		}
		p.Verdict = &Quote{
			Check: f.Check, Subject: f.subject(), Severity: f.Severity, Confidence: f.Confidence,
			Summary: f.Summary, Evidence: f.evidence(),
		}
	}
}

// oneLine returns the verdict for a terminal.
func (p *PhaseScore) oneLine() string {
	if v := p.Verdict; v != nil {
		return fmt.Sprintf("%s %s: %s: %s", strings.ToUpper(v.Severity), v.Check, v.Subject, v.Summary)
	}
	return p.Summary
}

// healthy returns the phase in which a warning is false: the twin's or, without a twin, the fix's.
func (c *CaseScore) healthy() *PhaseScore {
	if c.Twin != nil {
		return c.Twin
	}
	return c.Cure
}

// round keeps two decimals: more decimals of a second or a share would be noise in a committed file.
func round(n float64) float64 { return float64(int(n*100+0.5)) / 100 }
