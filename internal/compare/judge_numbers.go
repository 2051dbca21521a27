package compare

import (
	"math"
)

// A Result is what two recordings say of a number, or of the whole.
type Result string

// The results. Same means that these samples can show no difference, not that there is none.
const (
	Same     Result = "same"
	Improved Result = "better"
	Worse    Result = "worse"
	Changed  Result = "changed" // a number without a direction
	Unknown  Result = "unknown" // of one of the two it is not known
)

// A Change is the difference of two estimates, after less before, with the bounds between which it lies with a certainty of 99 % of all
// numbers of the comparison together. Relative ones are shares of the mean before.
type Change struct {
	Absolute float64  `json:"absolute"`
	Low      float64  `json:"low"`
	High     float64  `json:"high"`
	Relative *float64 `json:"relative,omitempty"` // absent when there was nothing before
	// Detectable is half the width of the bounds: a smaller change would not have been seen.
	Detectable float64 `json:"detectable"`
}

// familyError is the chance that a comparison of two runs without any difference names one.
const familyError = 0.01

// spreadFreedom are the degrees of freedom of the spreads between runs: the number of runs they were measured in (docs/decisions/0012).
const spreadFreedom = 20

// A spread is how much runs of one program differ: their standard deviation as a share of the mean, and of a share of something the
// same share of what it is away from nothing or from all, whichever is nearer. A share of 99 % does not differ by a quarter of itself.
type spread struct {
	of      float64
	bounded bool // of a number between 0 and 1
}

func (s spread) at(mean float64) float64 {
	if s.bounded {
		mean = min(mean, max(1-mean, 0))
	}
	return s.of * mean
}

// difference sets two estimates against each other; tests is how many numbers the comparison has, each of which could differ by chance
// (Bonferroni).
func difference(before, after Estimate, between spread, tests int) Change {
	parts := []struct{ variance, df float64 }{
		{before.stderr * before.stderr, before.df},
		{after.stderr * after.stderr, after.df},
		{square(between.at(before.Mean)), spreadFreedom},
		{square(between.at(after.Mean)), spreadFreedom},
	}
	variance, weight := 0.0, 0.0
	for _, p := range parts {
		variance += p.variance
		weight += p.variance * p.variance / p.df
	}
	c := Change{Absolute: after.Mean - before.Mean}
	if variance > 0 { // Welch and Satterthwaite
		c.Detectable = quantileT(1-familyError/2/float64(max(tests, 1)), variance*variance/weight) * math.Sqrt(variance)
	}
	c.Low, c.High = c.Absolute-c.Detectable, c.Absolute+c.Detectable
	if before.Mean != 0 {
		r := c.Absolute / before.Mean
		c.Relative = &r
	}
	return c
}

// certain tells whether the bounds leave no room for no change.
func (c Change) certain() bool { return c.Low > 0 || c.High < 0 }

func (m *measure) judge(before, after float64, c Change) Result {
	size := max(math.Abs(before), math.Abs(after))
	switch {
	case !c.certain() || size <= m.floor || math.Abs(c.Absolute) < m.least*math.Abs(before):
		return Same
	case m.better == Neither:
		return Changed
	case (c.Absolute < 0) == (m.better == Less):
		return Improved
	}
	return Worse
}
