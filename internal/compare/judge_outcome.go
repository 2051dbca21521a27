package compare

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
)

// An Outcome is what the program's clients notice: how many requests it answers, how long that takes, and how many
// fail. If it is known, nothing else decides (docs/decisions/0070).
type Outcome struct {
	Result Result `json:"result"` // better, worse, mixed or same; unknown also if the load differs
	Load   Load   `json:"load"`
	// InProgress reports whether the number of requests in progress is known, which distinguishes load from capacity.
	InProgress bool `json:"in_progress_known"`
}

// A Load is the load after relative to the load before.
type Load string

// The loads. More and less are used only if the load itself differs, and not what the program made of it.
const (
	LoadUnknown Load = "unknown"
	LoadSame    Load = "same"
	LoadMore    Load = "more"
	LoadLess    Load = "less"
)

// outcomes are the numbers that make up an outcome.
var outcomes = []string{"requests", "errors", "request_p50", "request_p99"}

// requestTimes are the numbers that say how long requests take.
var requestTimes = []string{"request_p50", "request_p99", "exchange_p50", "exchange_p99"}

// The factors from which on more or fewer requests are a different load.
const (
	loadMatters = 1.5 // a smaller factor changes the cost of a request by less than runs differ
	// Segments that stand for requests also fall if a handshake or an exchange is saved, so only a large change of
	// them counts.
	standInMatters = 10.0
	// throughputOfStandIn is the factor from which on more segments mean more requests, if no more are in progress.
	throughputOfStandIn = 2.0
)

// judgeOutcome judges the outcome. Little's law distinguishes the effect of the load from the effect of the program:
// more answers with no more requests in progress come from the program, and more of both is a heavier load.
func (d *Data) judgeOutcome(b, a *reading) {
	o := &d.Outcome
	*o = Outcome{Result: Unknown, Load: LoadUnknown}
	d.standIn = !b.work.Counted || !a.work.Counted
	x := d.number("requests")
	if x != nil && x.Change != nil {
		o.Load = LoadSame
	}
	grew, certain := d.throughput(x)
	held := d.progress(b, a, grew)
	switch failed := d.result("errors"); {
	case certain && failed != contrary(grew) && (held || failed == along(grew)):
		x.Result = along(grew)
	case math.Abs(grew) > d.leastLoad() && certain:
		o.Load = map[bool]Load{true: LoadMore, false: LoadLess}[grew > 0]
		d.unequal()
		return
	default:
		d.perhapsLoad(d.asked(b, a, x))
	}
	d.demoteTimes(grew, certain)
	o.Result = d.sum()
}

// demoteTimes discounts the times of requests if they may depend on the load, or on the requests that got no answer.
func (d *Data) demoteTimes(grew float64, certain bool) {
	failed := d.result("errors")
	for _, name := range requestTimes {
		switch r := d.result(name); {
		case failed == Worse || failed == Improved:
			d.demote("only what was answered has a time", name)
		case certain && d.result("requests") == Changed && r == contrary(grew):
			d.demote("the load differs", name)
		}
	}
}

// along returns the result for a change of the throughput's logarithm; contrary returns the opposite.
func along(grew float64) Result {
	if grew > 0 {
		return Improved
	}
	return Worse
}

func contrary(grew float64) Result { return along(-grew) }

// result returns the result of a number; unknown if there is none.
func (d *Data) result(name string) Result {
	if n := d.number(name); n != nil {
		return n.Result
	}
	return Unknown
}

// throughput returns the logarithm of the ratio of throughput, and whether it is certain and not caused by others.
func (d *Data) throughput(x *Number) (grew float64, certain bool) {
	if x == nil || x.Result != Changed || x.Before.Mean <= 0 || x.After.Mean <= 0 {
		return 0, false
	}
	grew = math.Log(x.After.Mean / x.Before.Mean)
	return grew, !d.beside || math.Abs(grew) > math.Log(1+othersAtMost)
}

// leastLoad returns the logarithm of the ratio of requests from which on the load differs.
func (d *Data) leastLoad() float64 {
	if d.standIn {
		return math.Log(standInMatters)
	}
	return math.Log(loadMatters)
}

// progress reports whether the requests in progress changed by less than half as much as the throughput, or in the
// other direction: then there are as many clients, and the program does more or less for them.
func (d *Data) progress(b, a *reading, grew float64) bool {
	if d.standIn && math.Abs(grew) < math.Log(throughputOfStandIn) {
		return false
	}
	before, after := b.source.SummaryP99(), a.source.SummaryP99()
	timed := b.source.Timed() && a.source.Timed()
	if !timed && !d.standIn && before > 0 && after > 0 {
		d.Outcome.InProgress = true
		return heldBack(grew+math.Log(after/before), 0, grew)
	}
	n := d.number("in_progress")
	if n == nil || n.Change == nil || n.Before.Mean <= 0 || n.After.Mean <= 0 {
		return false
	}
	d.Outcome.InProgress = timed || n.Before.Mean >= leastProgress && n.After.Mean >= leastProgress
	changed, width := logRatio(*n.Before, *n.After, keynumber.SpreadOfProgress)
	return d.Outcome.InProgress && heldBack(changed, width, grew)
}

// heldBack reports whether a change is certainly less than half of another one, in its direction; both are
// logarithms.
func heldBack(changed, width, of float64) bool {
	if of < 0 {
		changed, of = -changed, -of
	}
	return changed+width < of/2
}

// leastProgress is how many requests must be in progress per sample of the sockets for a dozen samples to suffice.
const leastProgress = 1.0

// logRatio returns the logarithm of the ratio of a number after to before, and half the width of its 99 % bounds.
func logRatio(before, after keynumber.Estimate, between float64) (changed, width float64) {
	variance := square(before.StdErr/before.Mean) + square(after.StdErr/after.Mean) + 2*square(between)
	return math.Log(after.Mean / before.Mean), mathext.NormalQuantile(1-familyError/2) * math.Sqrt(variance)
}

// sum returns the combined result of the outcome's numbers; unknown if there are none.
func (d *Data) sum() Result {
	out := Unknown
	for _, name := range outcomes {
		r := d.result(name)
		switch {
		case r == Unknown, r == Changed:
		case out == Unknown, out == Same:
			out = r
		case r != Same && r != out:
			out = Mixed
		}
	}
	return out
}

// demote discounts numbers.
func (d *Data) demote(reason string, names ...string) {
	for i := range d.Numbers {
		n := &d.Numbers[i]
		if slices.Contains(names, n.Name) && (n.Result == Worse || n.Result == Improved) {
			n.Result, n.Reason = Changed, reason
		}
	}
}

// demoteBut discounts numbers that contradict the numbers that rank before them.
func (d *Data) demoteBut(r Result, reason string) {
	for i := range d.Numbers {
		n := &d.Numbers[i]
		if (r == Improved || r == Worse) && n.Result != r && !slices.Contains(outcomes, n.Name) {
			d.demote(reason, n.Name)
		}
	}
}

// unequal discounts what depends on the load, if it differs.
func (d *Data) unequal() {
	const reason = "the load differs"
	for i := range d.Numbers {
		if n := &d.Numbers[i]; n.Name != "cpu_per_request" { // see cheaper
			d.demote(reason, n.Name)
		}
	}
	if d.Methods != nil {
		d.Methods.aside = reason
	}
	for i := range d.Findings {
		f := &d.Findings[i]
		came := f.came()
		with := came == (d.Outcome.Load == LoadMore)
		if f.decides() && (with || d.Outcome.InProgress) {
			f.Doubt = d.withLoad(came)
			f.Moved = came && d.Outcome.Load == LoadMore
		}
	}
}

// asked returns the logarithm of the ratio of requests, as far as it is known: by answered exchanges, else by what
// stands for requests; 0 if neither is known. Fewer segments may come from a saved handshake.
func (d *Data) asked(b, a *reading, x *Number) float64 {
	if before, after := b.source.Exchanged(), a.source.Exchanged(); before > 0 && after > 0 {
		return math.Log(after / before)
	}
	if x == nil || x.Before == nil || x.After == nil || x.Before.Mean <= 0 || x.After.Mean <= 0 {
		return 0
	}
	n := math.Log(x.After.Mean / x.Before.Mean)
	if d.standIn {
		n = max(0, n)
	}
	return n
}

// perhapsLoad discounts what a different load would explain, if the load may differ without that being certain: more
// requests that take longer, fewer requests that are answered sooner, and findings that come with more load.
func (d *Data) perhapsLoad(asked float64) {
	if math.Abs(asked) <= math.Log(loadMatters) {
		return
	}
	for _, name := range requestTimes {
		if d.result(name) == contrary(asked) {
			d.demote("the load may differ", name)
			d.perhaps = true
		}
	}
	for i := range d.Findings {
		f := &d.Findings[i]
		if came := f.came(); f.decides() && came == (asked > 0) {
			f.Doubt = asMuch(math.Exp(asked)) + " was answered: it may have come or gone with the load"
			d.perhaps = true
		}
	}
	if !d.perhaps {
		return
	}
	if d.Methods != nil {
		d.Methods.aside = "the load may differ"
	}
	d.doubt("the load may differ, so that little can be said of the program: %s was answered",
		asMuch(math.Exp(asked)))
}

// withLoad says why a finding that came or went does not come from the program.
func (d *Data) withLoad(came bool) string {
	x := d.number("requests")
	done := x.After.Mean / x.Before.Mean
	switch {
	case came && done > 1:
		return fmt.Sprintf("%s was done: the bottleneck moved to it with the load", asMuch(done))
	case !came && done < 1:
		return fmt.Sprintf("only %s as much was done: it may be gone with the load", ratio(done))
	}
	return fmt.Sprintf("%s was done, and another load shows other things", asMuch(done))
}

// cheaper discounts the CPU time per request if a different load may have changed it: wakeups, batches and compiled
// code depend on the load, and other segments may stand for the requests. It counts if more CPU time went into fewer
// requests, or less into more.
func (d *Data) cheaper() {
	x, used := d.number("requests"), d.number("cpu_used")
	if x == nil || x.Result != Changed || math.Abs(math.Log(x.After.Mean/x.Before.Mean)) <= math.Log(loadMatters) {
		return
	}
	against := used != nil && used.Result == Changed && (used.Change.Absolute > 0) != (x.Change.Absolute > 0)
	if !against {
		d.demote("the load differs", "cpu_per_request")
	}
	// If the whole says nothing, neither do its parts: what a program does besides its requests is a smaller part of
	// each if there are more.
	if r := d.result("cpu_per_request"); d.Methods != nil && r != Improved && r != Worse {
		d.Methods.aside = "the load differs"
	}
}

// weigh discounts what contradicts the outcome: a program that answers more, or sooner, meets the next bottleneck.
func (d *Data) weigh() {
	r := d.Outcome.Result
	if r != Improved && r != Worse {
		r = d.result("cpu_per_request")
		d.demoteBut(r, dearer)
		d.outweigh(r)
		return
	}
	reason := map[Result]string{
		Improved: "requests are served better all the same", Worse: "requests are served worse all the same",
	}[r]
	d.demoteBut(r, reason)
	for i := range d.Findings {
		f := &d.Findings[i]
		came := f.came()
		if f.decides() && came == (r == Improved) {
			f.Doubt = reason
			if f.Moved = came; came {
				f.Doubt = "the bottleneck moved to it: " + reason
			}
		}
	}
	if d.Methods != nil {
		d.Methods.only = r
	}
}

const dearer = "the CPU time per request says more"

// outweigh discounts findings next to weightier ones: a warning next to the CPU time per request, if that certainly
// changed, or next to a critical finding, because work is lost or refused there.
func (d *Data) outweigh(cost Result) {
	var loudest [2]check.Severity
	way := func(f *Finding) int {
		if f.came() {
			return 0
		}
		return 1
	}
	for i := range d.Findings {
		if f := &d.Findings[i]; f.decides() {
			loudest[way(f)] = max(loudest[way(f)], f.Loudest())
		}
	}
	for i := range d.Findings {
		f := &d.Findings[i]
		other := loudest[1-way(f)]
		switch {
		case !f.decides() || f.Loudest() >= check.Critical:
		case cost == Improved && way(f) == 0, cost == Worse && way(f) == 1:
			f.Doubt = dearer
		case other >= check.Critical:
			f.Doubt = "beside it there is a critical one"
		}
	}
}

// moved notes where the bottleneck is now: at the first finding that came with higher throughput.
func (d *Data) moved() {
	for i := range d.Findings {
		if f := &d.Findings[i]; f.Moved && f.After.Severity >= check.Warning {
			d.doubt("the bottleneck moved to %s: %s", f.After.Check, f.After.Summary)
			return
		}
	}
}
