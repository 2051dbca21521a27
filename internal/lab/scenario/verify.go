package scenario

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Confusion counts what was said and what was not, over the runs of one scenario.
type Confusion struct {
	Scenario       string   `json:"scenario"`
	Runs           int      `json:"runs"`              // runs that came to an end
	Broken         int      `json:"broken"`            // runs that did not
	Skipped        string   `json:"skipped,omitempty"` // why the scenario did not run at all
	Verdict        int      `json:"verdict_right"`     // runs with the right verdict
	VerdictAsked   int      `json:"verdict_asked"`     // runs that expect a verdict
	Required       int      `json:"required_found"`    // findings, the verdict among them
	RequiredAsked  int      `json:"required_asked"`
	Forbidden      int      `json:"forbidden_raised"` // findings that should not be there; for a healthy scenario, any
	ForbiddenAsked int      `json:"forbidden_asked"`
	Trials         int      `json:"trials_right"` // fixes and placebos where everything held
	TrialsAsked    int      `json:"trials_asked"`
	Disagreements  []string `json:"disagreements,omitempty"` // what did not hold, in short
	NotYetAssessed int      `json:"not_yet_assessed"`        // findings whose collector does not exist yet
	// phases that began while the machine was busy with something else
	Noisy   int     `json:"noisy_phases"`
	Seconds float64 `json:"seconds"`
}

// Verification is the confusion of all scenarios: the product's accuracy.
type Verification struct {
	Date      string      `json:"date"` // when it began, in UTC
	Version   string      `json:"perfdoctor"`
	Runs      int         `json:"runs"`
	Guest     string      `json:"guest,omitempty"` // as in Result
	Kept      bool        `json:"kept,omitempty"`  // nothing was run: promises are judged from earlier recordings
	Scenarios []Confusion `json:"scenarios"`
	Total     Confusion   `json:"total"`
	// Calibration has what the doctor predicted for each fix, run by run.
	Calibration Calibration `json:"promises,omitempty"`
}

// NewVerification begins a verification with the given number of runs.
func NewVerification(version string, runs int, now time.Time) *Verification {
	return &Verification{
		Date: now.UTC().Format(time.DateOnly), Version: version, Runs: runs, Scenarios: []Confusion{},
		Total: Confusion{Scenario: "total"},
	}
}

// Add counts the runs of one scenario.
func (v *Verification) Add(runs []*Result) {
	if len(runs) == 0 {
		return
	}
	c := Confusion{Scenario: runs[0].Scenario}
	for n, r := range runs {
		c.add(n+1, r)
		v.Calibration.add(n+1, r)
		if r.Guest != "" {
			v.Guest = r.Guest
		}
	}
	v.Scenarios = append(v.Scenarios, c)
	v.Total.sum(&c)
}

func (c *Confusion) add(n int, r *Result) {
	c.Seconds += r.Seconds
	switch r.Status {
	case Skipped:
		c.Skipped = r.Reason
		return
	case Broken:
		c.Broken++
		c.Disagreements = append(c.Disagreements, fmt.Sprintf("run %d: broken: %s", n, r.Reason))
	default:
		c.Runs++
	}
	c.NotYetAssessed = len(r.Gaps)
	for i := range r.Phases {
		c.phase(&r.Phases[i])
		for _, a := range r.Phases[i].Assertions {
			if !a.Held {
				c.Disagreements = append(c.Disagreements, fmt.Sprintf("run %d: %s: not so: %s (%s)", n,
					r.Phases[i].Name, a.What, a.Got))
			}
		}
	}
}

func (c *Confusion) phase(p *Phase) {
	c.Noisy += one(p.noisy())
	if p.Kind == KindCure || p.Kind == KindPlacebo {
		c.TrialsAsked++
		c.Trials += one(p.held())
		return
	}
	// the assertions belong to the fix before a story's state
	if slices.ContainsFunc(p.Assertions, func(a Assertion) bool { return a.Kind == "moves" }) {
		c.TrialsAsked++
		c.Trials += one(p.heldOnly("moves"))
	}
	for _, a := range p.Assertions {
		switch {
		case a.Kind == "verdict" && a.What == healthyWhat:
			c.VerdictAsked++
			c.Verdict += one(a.Held)
			c.ForbiddenAsked++
			c.Forbidden += one(!a.Held)
		case a.Kind == "verdict":
			c.VerdictAsked++
			c.Verdict += one(a.Held)
			c.RequiredAsked++
			c.Required += one(a.Held || p.found(strings.TrimPrefix(a.What, verdictWhat)))
		case a.Kind == "required":
			c.RequiredAsked++
			c.Required += one(a.Held)
		case a.Kind == "forbidden":
			c.ForbiddenAsked++
			c.Forbidden += one(!a.Held)
		}
	}
}

// found reports whether the check has a finding, be it the verdict or not.
func (p *Phase) found(check string) bool {
	for _, f := range p.Findings {
		if strings.HasPrefix(f, check+" ") {
			return true
		}
	}
	return false
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (c *Confusion) sum(d *Confusion) {
	c.Runs += d.Runs
	c.Broken += d.Broken
	c.Verdict += d.Verdict
	c.VerdictAsked += d.VerdictAsked
	c.Required += d.Required
	c.RequiredAsked += d.RequiredAsked
	c.Forbidden += d.Forbidden
	c.ForbiddenAsked += d.ForbiddenAsked
	c.Trials += d.Trials
	c.TrialsAsked += d.TrialsAsked
	c.NotYetAssessed += d.NotYetAssessed
	c.Noisy += d.Noisy
	c.Seconds += d.Seconds
}

// Text writes the verification as a table.
func (v *Verification) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "perfdoctor %s, %s, %s%s\n\n", v.Version, v.Date, v.scope(), inGuest(v.Guest))
	if v.Kept {
		v.Calibration.text(&b)
		_, err := io.WriteString(w, b.String())
		return err
	}
	columns(&b, func(w io.Writer) {
		row(w, "SCENARIO", "RUNS", "VERDICT RIGHT", "REQUIRED FOUND", "FORBIDDEN RAISED", "FIXES AND PLACEBOS RIGHT",
			"TIME")
		for i := range v.Scenarios {
			v.Scenarios[i].row(w)
		}
		v.Total.row(w)
	})
	if v.Total.Noisy > 0 {
		fmt.Fprintf(&b, "\nnote: the machine was busy with something else before %d phases: what is said of the host "+
			"may be about that\n",
			v.Total.Noisy)
	}
	v.Calibration.text(&b)
	for i := range v.Scenarios {
		c := &v.Scenarios[i]
		for _, d := range c.Disagreements {
			fmt.Fprintf(&b, "\n%s: %s\n", c.Scenario, d)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *Confusion) row(w io.Writer) {
	if c.Skipped != "" {
		row(w, c.Scenario, "skipped: "+c.Skipped)
		return
	}
	runs := fmt.Sprint(c.Runs)
	if c.Broken > 0 {
		runs += fmt.Sprintf(" (%d broken)", c.Broken)
	}
	verdict := of(c.Verdict, c.VerdictAsked)
	if c.VerdictAsked == 0 && c.NotYetAssessed > 0 {
		verdict = "not yet assessed"
	}
	row(w, c.Scenario, runs, verdict, of(c.Required, c.RequiredAsked), of(c.Forbidden, c.ForbiddenAsked),
		of(c.Trials, c.TrialsAsked), fmt.Sprintf("%.0f s", c.Seconds))
}

func of(n, all int) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", n, all)
}
