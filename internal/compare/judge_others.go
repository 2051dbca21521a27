package compare

import (
	"cmp"
	"math"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// An Other is a metric, or the part of it with some labels, that moved by more than its samples scatter. It says
// nothing about better or worse, and no verdict rests on it: with hundreds of metrics the list is for readers who
// look for a reason.
type Other struct {
	Metric string             `json:"metric"`
	Labels string             `json:"labels,omitempty"` // name=value with commas between
	Unit   quantity.Unit      `json:"unit"`             // per second for a counter
	Before keynumber.Estimate `json:"before"`
	After  keynumber.Estimate `json:"after"`
	Change Change             `json:"change"`
}

// keptOthers bounds the list.
const keptOthers = 30

// A metric is listed if it changed by half beyond what its samples and runs can differ by chance. It is not known for
// each of two hundred metrics how much it differs between runs; those in docs/decisions/0012 stay below a quarter.
const (
	spreadOfOthers = 0.25
	leastOthers    = 0.5
)

// judgeOthers returns the metrics that moved, the most first. tests is how many could have moved.
func judgeOthers(pairs []familyPair, tests int) []Other {
	type row struct {
		other Other
		score float64
	}
	var rows []row
	for _, p := range pairs {
		x, b, a := p.before, *p.before.estimate, *p.after.estimate
		c := difference(b, a, spread{of: spreadOfOthers}, tests)
		size := max(b.Mean, a.Mean)
		if !c.certain() || size <= 0 || math.Abs(c.Absolute) < leastOthers*math.Abs(min(b.Mean, a.Mean)) ||
			size < x.floor() {
			continue
		}
		rows = append(rows, row{Other{x.metric, x.labels, x.unit, b, a, c}, math.Abs(c.Absolute) / size})
	}
	slices.SortFunc(rows, func(x, y row) int {
		return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(x.other.Metric+x.other.Labels,
			y.other.Metric+y.other.Labels))
	})
	out := []Other{}
	for _, r := range rows[:min(len(rows), keptOthers)] {
		out = append(out, r.other)
	}
	return out
}
