package compare

import (
	"math"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A Result is what two recordings say about a number, or about the whole.
type Result string

// The results. Same means that these samples can show no difference, not that there is none.
const (
	Same     Result = "same"
	Improved Result = "better"
	Worse    Result = "worse"
	Changed  Result = "changed" // a number without a direction
	Unknown  Result = "unknown" // not known in one of the two
)

// A Number is one of the key numbers of a comparison.
type Number struct {
	Name   string              `json:"name"`
	Label  string              `json:"label"`
	Unit   quantity.Unit       `json:"unit"`
	Better keynumber.Better    `json:"better,omitempty"`
	Before *keynumber.Estimate `json:"before,omitempty"`
	After  *keynumber.Estimate `json:"after,omitempty"`
	Change *Change             `json:"change,omitempty"`
	Result Result              `json:"result"`
	Reason string              `json:"reason,omitempty"` // why it is unknown
}

// A Change is the difference of two estimates, after minus before, with 99 % confidence bounds for all numbers of the
// comparison together. Relative is a share of the mean before.
type Change struct {
	Absolute float64  `json:"absolute"`
	Low      float64  `json:"low"`
	High     float64  `json:"high"`
	Relative *float64 `json:"relative,omitempty"` // absent if the mean before is zero
	// Detectable is half the width of the bounds: a smaller change would not have been seen.
	Detectable float64 `json:"detectable"`
}

// familyError is the chance that a comparison of two runs without any difference reports one.
const familyError = 0.01

// spreadFreedom is the degrees of freedom of the spreads between runs: the number of runs they were measured in
// (docs/decisions/0012).
const spreadFreedom = 20

// A spread is how much runs of one program differ: their standard deviation as a share of the mean. For a number
// between 0 and 1 it is a share of the distance from 0 or from 1, whichever is nearer: a share of 99 % does not
// differ by a quarter of itself.
type spread struct {
	of      float64
	bounded bool // for a number between 0 and 1
}

func (s spread) at(mean float64) float64 {
	if s.bounded {
		mean = min(mean, max(1-mean, 0))
	}
	return s.of * mean
}

// The spreads from docs/decisions/0012, rounded up.
const (
	spreadOfIPC = 0.02

	spreadOfShares  = 0.05
	spreadOfPauses  = 0.1  // per request: the spread of the shares, and of the kind of requests
	spreadOfWaits   = 0.25 // of what depends on who else wants the CPUs
	spreadOfLatency = 0.2  // of the 99th percentiles per second, besides their own scatter
	// of the medians per second: a bucket of the load generator is up to 6 % wide, and the CPU time is in it
	spreadOfMedian = 0.15
)

// A rule says which changes of a key number are noise.
type rule struct {
	spread spread  // between runs of one program
	least  float64 // the least change worth mentioning, as a share of the mean before
}

// rules returns the rules of all key numbers. All measured shares are bounded by one, except the time that threads
// wait, because many wait at once. used is how many CPUs the program used: the work done by a program that is never
// without a CPU scatters like its CPU time.
func rules(guest bool, used float64) map[string]rule {
	load := keynumber.SpreadOfLoad
	if guest {
		load += keynumber.SpreadOfCPU(guest) * min(used, 1)
	}
	return map[string]rule{
		"cpu_per_request":       {spread{keynumber.SpreadOfCPU(guest), false}, 0.03},
		"ipc":                   {spread{spreadOfIPC, false}, 0.03},
		"errors":                {spread{spreadOfWaits, true}, 0.1},
		"request_p50":           {spread{spreadOfMedian, false}, 0.25},
		"request_p99":           {spread{spreadOfLatency, false}, 0.25},
		"exchange_p50":          {spread{spreadOfMedian, false}, 0.25},
		"exchange_p99":          {spread{spreadOfLatency, false}, 0.25},
		"throttled_share":       {spread{spreadOfShares, true}, 0.1},
		"slow_connects":         {spread{spreadOfWaits, true}, 0.5},
		"slow_cpu_waits":        {spread{spreadOfWaits, true}, 0.5},
		"cpu_wait":              {spread{spreadOfWaits, false}, 0.25},
		"gc_per_request":        {spread{spreadOfPauses, false}, 0.25},
		"safepoint_per_request": {spread{spreadOfPauses, false}, 0.25},
		"gc_share":              {spread{spreadOfShares, true}, 0.1},
		"safepoint_share":       {spread{spreadOfShares, true}, 0.1},
		"retransmitted_share":   {spread{spreadOfWaits, true}, 0.25},
		"connects_failed_share": {spread{spreadOfWaits, true}, 0.1},
		"major_faults":          {spread{spreadOfWaits, false}, 0.5},
		"requests":              {spread{load, false}, 0.05},
		"in_progress":           {spread{keynumber.SpreadOfProgress, false}, 0.1},
		"cpu_used":              {spread{keynumber.SpreadOfLoad, false}, 0.05},
		"switches":              {spread{spreadOfWaits, false}, 0.25},
		"switches_per_request":  {spread{spreadOfWaits, false}, 0.25},
		"resident":              {spread{spreadOfShares, false}, 0.2},
	}
}

// difference compares two estimates; tests is how many numbers the comparison has, since each could differ by chance
// (Bonferroni).
func difference(before, after keynumber.Estimate, between spread, tests int) Change {
	parts := []struct{ variance, df float64 }{
		{square(before.StdErr), before.DF},
		{square(after.StdErr), after.DF},
		{square(between.at(before.Mean)), spreadFreedom},
		{square(between.at(after.Mean)), spreadFreedom},
	}
	variance, perFreedom := 0.0, 0.0
	for _, p := range parts {
		variance += p.variance
	}
	for _, p := range parts { // Welch and Satterthwaite; libraries have it for two parts only
		perFreedom += square(p.variance/variance) / p.df
	}
	c := Change{Absolute: after.Mean - before.Mean}
	if variance > 0 {
		c.Detectable = keynumber.StudentQuantile(1-familyError/2/float64(max(tests, 1)), 1/perFreedom) *
			math.Sqrt(variance)
	}
	c.Low, c.High = c.Absolute-c.Detectable, c.Absolute+c.Detectable
	if before.Mean != 0 {
		r := c.Absolute / before.Mean
		c.Relative = &r
	}
	return c
}

// certain reports whether the bounds exclude zero.
func (c Change) certain() bool { return c.Low > 0 || c.High < 0 }

// judgeNumbers judges for each number whether it certainly changed.
func judgeNumbers(pairs []numberPair, rules map[string]rule) []Number {
	tests := 0
	for _, p := range pairs {
		if p.known() && p.before.Estimate.Mean+p.after.Estimate.Mean > 0 && p.before.Better != keynumber.Neither {
			tests++
		}
	}
	var out []Number
	for _, p := range pairs {
		x := p.before
		n := Number{
			Name: x.Name, Label: x.Label, Unit: x.Unit, Better: x.Better, Before: x.Estimate, After: p.after.Estimate,
			Result: Unknown,
			Reason: p.reason(),
		}
		if p.known() {
			r := rules[n.Name]
			c := difference(*n.Before, *n.After, r.spread, tests)
			c.Low = max(c.Low, -n.Before.Mean) // none of them can be negative
			n.Change, n.Result = &c, r.judge(&x, n.Before.Mean, n.After.Mean, c)
		}
		out = append(out, n)
	}
	return out
}

// reason says why a number cannot be compared.
func (p *numberPair) reason() string {
	b, a := p.before, p.after
	switch {
	case p.known():
		return ""
	case b.Estimate != nil:
		return "after, " + a.Reason
	case a.Estimate != nil:
		return "before, " + b.Reason
	case b.Reason != a.Reason:
		return "before, " + b.Reason + "; after, " + a.Reason
	}
	return b.Reason
}

// judge returns the result of a change of a number from one mean to another.
func (r rule) judge(n *keynumber.Number, before, after float64, c Change) Result {
	size := max(math.Abs(before), math.Abs(after))
	switch {
	case !c.certain() || size <= n.Floor || math.Abs(c.Absolute) < r.least*math.Abs(before):
		return Same
	case n.Better == keynumber.Neither:
		return Changed
	case (c.Absolute < 0) == (n.Better == keynumber.Less):
		return Improved
	}
	return Worse
}

// number returns nil if the comparison does not have the number.
func (d *Data) number(name string) *Number {
	i := slices.IndexFunc(d.Numbers, func(n Number) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &d.Numbers[i]
}
