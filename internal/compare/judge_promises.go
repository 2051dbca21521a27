package compare

import (
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
)

// A Promised is a prediction made from the recording before, with its outcome.
type Promised struct {
	Finding string `json:"finding"` // its id in the recording before
	check.Promise
	// Measured is the value after, scaled by From over the value before, with its bounds; absent if it is not known.
	Measured *keynumber.Estimate `json:"measured,omitempty"`
	Kept     Keeping             `json:"result"`
	By       string              `json:"by,omitempty"` // what broke it, or why it is unknown
}

// A Keeping is the outcome of a promise.
type Keeping string

// The outcomes of promises.
const (
	Kept      Keeping = "kept"
	Surpassed Keeping = "better"
	BrokenBy  Keeping = "broken"
	OtherLoad Keeping = "not the same load"
	Untold    Keeping = "cannot be told"
)

// judgePromises checks the predictions for each finding that somebody worked on: the first to be fixed, and those
// that are gone. Nothing was promised for a finding that nobody fixed.
func (d *Data) judgePromises(b, a *reading) {
	for i := range d.Findings {
		f := &d.Findings[i]
		if f.Before == nil || f.Before.Severity < check.Warning {
			continue
		}
		still := f.After != nil && f.After.Severity >= f.Before.Severity
		if still && f.Before.ID() != b.side.Verdict {
			continue
		}
		for _, p := range f.Before.Promises {
			x := Promised{Finding: f.Before.ID(), Promise: p}
			d.judgePromise(&x, b, a, d.Outcome.Load == LoadMore && moreWasPromised(f.Before.Promises, b, a))
			if still && x.Kept == BrokenBy {
				x.By = "the finding is still there: " + f.After.Summary
			}
			d.Promises = append(d.Promises, x)
		}
	}
}

// moreWasPromised reports whether a fix was predicted to raise throughput, because clients ask again at once, and
// did: then the load does not differ.
func moreWasPromised(promises []check.Promise, b, a *reading) bool {
	return slices.ContainsFunc(promises, func(p check.Promise) bool {
		before, known := b.source.Estimate(p.Metric)
		after, ok := a.source.Estimate(p.Metric)
		return p.Metric == check.Throughput && known && ok && before.Mean > 0 &&
			after.High*p.From/before.Mean >= p.To[0]
	})
}

// judgePromise sets the outcome of a promise; promised means that the load grew as predicted for the fix.
func (d *Data) judgePromise(x *Promised, b, a *reading, promised bool) {
	before, known := b.source.Estimate(x.Metric)
	after, ok := a.source.Estimate(x.Metric)
	if !known || !ok || before.Mean <= 0 {
		x.Kept, x.By = Untold, x.Label()+" is not known of both"
		return
	}
	scale := x.From / before.Mean // a rule does not know --requests
	after.Mean, after.Low, after.High = after.Mean*scale, after.Low*scale, after.High*scale
	x.Measured = &after
	less, more := after.High < x.To[0], after.Low > x.To[1]
	if x.Metric == check.Throughput {
		less, more = more, less // more is the better side
	}
	switch {
	case !promised && d.otherLoad(x.Metric):
		x.Kept, x.By = OtherLoad, fmt.Sprintf("there is %s of it", d.Outcome.Load)
	case less:
		x.Kept = Surpassed
	case !more:
		x.Kept = Kept
	case x.Metric == check.Throughput && after.Mean > x.From && relaxed(b, a):
		x.Kept, x.By = OtherLoad, "all that is asked for is answered, with fewer in progress than before"
	case d.perhaps:
		x.Kept, x.By = OtherLoad, "the load may differ"
	default:
		x.Kept, x.By = BrokenBy, a.limit(x)
	}
}

// otherLoad reports whether a number differs because of the load. If more was done with the same CPU time, the
// program ran at its capacity before and after, and the cost of a request does not come from the load.
func (d *Data) otherLoad(metric string) bool {
	used := d.number("cpu_used")
	if metric != check.CPUPerRequest || d.Outcome.Load != LoadMore || used == nil || used.Before == nil ||
		used.After == nil {
		return d.Outcome.Load == LoadMore || d.Outcome.Load == LoadLess
	}
	const as = 1.25 // runs differ by this factor
	return used.After.Mean > as*used.Before.Mean || used.Before.Mean > as*used.After.Mean
}

// relaxed reports whether clients no longer always wait for an answer, as they did before.
func relaxed(b, a *reading) bool {
	const free = 0.9 // one in ten of the former waiters has nothing to ask
	before, known := b.source.Owing()
	after, ok := a.source.Owing()
	return known && ok && after.High < free*before.Mean
}

// limit returns what holds back a program that missed a promise: the principal finding after, or the number.
func (r *reading) limit(x *Promised) string {
	if f := r.checks.whole.Principal(); f != nil {
		return f.Check + ": " + f.Summary
	}
	return fmt.Sprintf("%s is %s", x.Label(), x.Number(x.Measured.Mean))
}

// Text returns "throughput 195/s -> 380/s to 410/s: 397/s", with what broke it.
func (x *Promised) Text() string {
	s := fmt.Sprintf("%s: %s %s -> %s", x.Finding, x.Label(), x.Number(x.From), x.Bounds())
	if x.Measured != nil {
		s += "; measured: " + x.Number(x.Measured.Mean)
	}
	if x.By != "" {
		s += "; " + x.By
	}
	return s
}
