package compare

import (
	"fmt"
	"slices"
	"strings"
)

// A Verdict is the overall result of a comparison.
type Verdict struct {
	Result  Result   `json:"result"` // better, worse, same (no difference that these samples can show), or mixed
	Summary string   `json:"summary"`
	Better  []string `json:"better,omitempty"` // what speaks for it
	Worse   []string `json:"worse,omitempty"`
}

// Mixed is the result if one thing got better and another worse.
const Mixed Result = "mixed"

// decide adds up what counts: the outcome's numbers first, then the CPU time per request, then the remaining findings
// and other numbers, the methods last. What contradicts a higher one is discounted by now.
func (d *Data) decide() {
	v := &d.Verdict
	outcome := func(n *Number) bool { return slices.Contains(outcomes, n.Name) }
	cost := func(n *Number) bool { return n.Name == "cpu_per_request" }
	d.decideNumbers(outcome)
	d.decideNumbers(cost)
	for i := range d.Findings {
		f := &d.Findings[i]
		if !f.decides() || d.follows(f) {
			continue
		}
		text := fmt.Sprintf("%s %s: %s", f.Either().Check, f.Fate, f.Either().Summary)
		if f.came() {
			v.Worse = append(v.Worse, text)
		} else {
			v.Better = append(v.Better, text)
		}
	}
	d.decideNumbers(func(n *Number) bool { return !outcome(n) && !cost(n) })
	if d.Methods != nil {
		d.decideMethods()
	}
	v.conclude(d)
}

// decideNumbers notes the numbers that count.
func (d *Data) decideNumbers(of func(*Number) bool) {
	for i := range d.Numbers {
		switch n := &d.Numbers[i]; {
		case !of(n):
		case n.Result == Worse:
			d.Verdict.Worse = append(d.Verdict.Worse, n.Text())
		case n.Result == Improved:
			d.Verdict.Better = append(d.Verdict.Better, n.Text())
		}
	}
}

// decideMethods notes if some methods do not count, for the reader who sees them listed. It runs last: if anything
// else says better or worse, methods that contradict it do not count.
func (d *Data) decideMethods() {
	m, v := d.Methods, &d.Verdict
	whole := Unknown
	if n := d.number("cpu_per_request"); n != nil {
		whole = n.Result
	}
	grown, shrunk := m.counting(whole)
	switch {
	case m.aside != "" || m.only == Mixed:
		grown, shrunk = nil, nil
	case m.only == Improved || len(v.Better) > 0 && len(v.Worse) == 0:
		grown = nil
	case m.only == Worse || len(v.Worse) > 0 && len(v.Better) == 0:
		shrunk = nil
	}
	for _, x := range grown {
		v.Worse = append(v.Worse, x.Text())
	}
	for _, x := range shrunk {
		v.Better = append(v.Better, x.Text())
	}
	if m.Against != AgainstShares && (len(grown) < len(m.Grown) || len(shrunk) < len(m.Shrunk)) {
		m.Uncounted = m.uncounted(grown, shrunk)
	}
}

// uncounted says why methods that changed do not count.
func (m *Methods) uncounted(grown, shrunk []Method) string {
	switch {
	case m.aside != "":
		return "not counted: " + m.aside
	case len(grown)+len(shrunk) == 0 && len(m.Grown) > 0 && len(m.Shrunk) > 0:
		return fmt.Sprintf("not counted: what grew and what shrank make up for each other (%s of the CPU time), and "+
			"work may have moved", signed(m.Net))
	case len(grown) < len(m.Grown):
		return "what grew does not count: as a whole it got better, and work may have moved"
	}
	return "what shrank does not count: as a whole it got worse, and work may have moved"
}

// follows reports whether a finding is the consequence of another one with the same fate: the cause is enough for a
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

// relieved reports whether a finding is gone, a number is better, or more was done.
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

// least says how large a difference would have to be to show.
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
		if x.Share == usualShare && x.Extra < twice {
			const text = "a method of %s that grows by less than %s of all CPU time might go unseen"
			out = append(out, fmt.Sprintf(text, ratio(x.Share), ratio(x.Extra)))
		}
	}
	return out
}
