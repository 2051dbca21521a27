package compare

import (
	"math"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
)

// byOutcome judges the steps of a trend as a comparison would judge the recordings on both sides: more requests with
// no more in progress are better, and the bottleneck moved to what came with them.
func (t *Trend) byOutcome(r map[string]rule, tests int) {
	x := t.row("requests")
	if x == nil {
		return
	}
	for _, s := range stepsOf(x, r["requests"], tests) {
		grew := math.Log(s.After / s.Before)
		if s.Before <= 0 || s.After <= 0 || math.Abs(grew) < math.Log(loadMatters) {
			continue
		}
		outcome := Unknown
		if heldBack(t.progress(s), 0, grew) {
			outcome = along(grew)
			s.Result = outcome
			t.Steps = append(t.Steps, s.Step)
		}
		t.weigh(s, grew, outcome)
	}
}

// progress returns the logarithm of the ratio of requests in progress after a step of their rate; if it is not known,
// the logarithm of the ratio of the rate.
func (t *Trend) progress(s span) float64 {
	row := t.row("in_progress")
	if row == nil {
		return math.Log(s.After / s.Before)
	}
	before, after := known(row.Values[s.from:s.At]), known(row.Values[s.At:s.to])
	if len(before) == 0 || len(after) == 0 {
		return math.Log(s.After / s.Before)
	}
	b, _ := scatter(before)
	a, _ := scatter(after)
	if b < leastProgress && a < leastProgress || b <= 0 || a <= 0 {
		return math.Log(s.After / s.Before)
	}
	return math.Log(a / b)
}

func known(values []*keynumber.Estimate) []float64 {
	var out []float64
	for _, v := range values {
		if v != nil {
			out = append(out, v.Mean)
		}
	}
	return out
}

// weigh discounts steps at the place of a step of the load: all that contradict the outcome or, without an outcome,
// all that depend on the load.
func (t *Trend) weigh(load span, grew float64, outcome Result) {
	for i := range t.Steps {
		s := &t.Steps[i]
		if s.At < load.At-1 || s.At > load.At+1 || s.Name == "requests" || s.Result == outcome {
			continue
		}
		switch {
		case outcome != Unknown && slices.Contains(outcomes, s.Name), s.Name == "errors" && s.Result != contrary(grew):
			continue
		case grew > 0 && s.Result == Worse:
			s.Summary += ": the bottleneck moved to it, since more is done"
		default:
			s.Summary += ": the load differs"
		}
		s.Result = Changed
	}
}

func (t *Trend) row(name string) *Row {
	i := slices.IndexFunc(t.Rows, func(r Row) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return &t.Rows[i]
}
