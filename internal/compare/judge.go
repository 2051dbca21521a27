package compare

import (
	"fmt"
	"strings"
)

// Verdict is the one thing to know.
type Verdict struct {
	Result  Result   `json:"result"` // better, worse, same (no difference that these samples can show), or mixed
	Summary string   `json:"summary"`
	Better  []string `json:"better,omitempty"` // what speaks for it
	Worse   []string `json:"worse,omitempty"`
}

// Mixed is the result where one thing got better and another worse.
const Mixed Result = "mixed"

// decide weighs what was found. Numbers and findings count alike: either may be the one that shows it.
func (d *Data) decide() {
	v := &d.Verdict
	for i := range d.Findings {
		f := &d.Findings[i]
		if !f.decides() || d.follows(f) {
			continue
		}
		text := fmt.Sprintf("%s %s: %s", f.Either().Check, f.Fate, f.Either().Summary)
		if f.Fate == New || f.Fate == Risen {
			v.Worse = append(v.Worse, text)
		} else {
			v.Better = append(v.Better, text)
		}
	}
	for i := range d.Numbers {
		n := &d.Numbers[i]
		switch n.Result {
		case Worse:
			v.Worse = append(v.Worse, n.Text())
		case Improved:
			v.Better = append(v.Better, n.Text())
		}
	}
	if d.Methods != nil {
		d.decideMethods()
	}
	v.conclude(d)
}

// decideMethods notes where some do not count, for the reader who sees them listed.
func (d *Data) decideMethods() {
	m := d.Methods
	whole := Unknown
	if n := d.number("cpu_per_request"); n != nil {
		whole = n.Result
	}
	grown, shrunk := m.counting(whole)
	for _, x := range grown {
		d.Verdict.Worse = append(d.Verdict.Worse, x.Text())
	}
	for _, x := range shrunk {
		d.Verdict.Better = append(d.Verdict.Better, x.Text())
	}
	if m.Against == AgainstShares || len(grown) == len(m.Grown) && len(shrunk) == len(m.Shrunk) {
		return
	}
	m.Uncounted = "what shrank does not count: as a whole it got dearer, and work may have moved"
	if len(grown) == 0 {
		m.Uncounted = "what grew does not count: as a whole it got cheaper, and work may have moved"
	}
	if len(grown)+len(shrunk) == 0 {
		m.Uncounted = fmt.Sprintf("not counted: what grew and what shrank make up for each other (%s of the CPU "+
			"time), and work "+
			"may have moved", signed(m.Net))
	}
}

// follows tells whether a finding is the consequence of another one that has the same fate: the cause is enough for a
// verdict.
func (d *Data) follows(f *Finding) bool {
	for i := range d.Findings {
		cause := &d.Findings[i]
		if cause.decides() && cause.Fate == f.Fate && cause.Either().ID() == f.Either().ExplainedBy {
			return true
		}
	}
	return false
}

// relieved tells whether a finding is gone, a number better, or more done.
func (d *Data) relieved() bool {
	for i := range d.Findings {
		if f := &d.Findings[i]; f.decides() && (f.Fate == Gone || f.Fate == Fallen) {
			return true
		}
	}
	for i := range d.Numbers {
		if n := &d.Numbers[i]; n.Result == Improved || n.Name == "requests" && n.Result == Changed &&
			n.Change.Absolute > 0 {
			return true
		}
	}
	return false
}

func (v *Verdict) conclude(d *Data) {
	switch {
	case len(v.Worse) == 0 && len(v.Better) == 0:
		v.Result = Same
		v.Summary = "no difference that these samples can show"
		if least := d.least(); len(least) > 0 {
			v.Summary += ": " + strings.Join(least, "; ")
		}
	case len(v.Better) == 0:
		v.Result, v.Summary = Worse, "worse: "+v.Worse[0]
	case len(v.Worse) == 0:
		v.Result, v.Summary = Improved, "better: "+v.Better[0]
	default:
		v.Result, v.Summary = Mixed, "worse: "+v.Worse[0]+"; better: "+v.Better[0]
	}
}

// least says what a difference would have to be to show.
func (d *Data) least() []string {
	var out []string
	if n := d.number("cpu_per_request"); n != nil && n.Change != nil && n.Before.Mean > 0 {
		share := ratio(n.Change.Detectable / n.Before.Mean)
		out = append(out, fmt.Sprintf("a change of the %s by less than %s would not be seen", n.Label, share))
	}
	if d.Methods == nil {
		return out
	}
	for _, x := range d.Methods.Detectable {
		if x.Share == usualShare {
			const text = "a method of %s that grows by less than %s of all CPU time might go unseen"
			out = append(out, fmt.Sprintf(text, ratio(x.Share), ratio(x.Extra)))
		}
	}
	return out
}
