package compare

import (
	"fmt"
	"math"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// doubt notes a doubt.
func (d *Data) doubt(format string, args ...any) {
	d.Doubts = append(d.Doubts, fmt.Sprintf(format, args...))
}

// doubts notes what else differs, so that a difference may not come from the program.
func (d *Data) doubts(b, a *reading) {
	x, y := d.Before, d.After
	d.moved()
	if x.Kernel != y.Kernel {
		d.doubt("the kernels differ: %s and %s", x.Kernel, y.Kernel)
	}
	if b.cpuModel != a.cpuModel {
		d.doubt("the CPUs differ: %s and %s", b.cpuModel, a.cpuModel)
	}
	if x.Target.Kind != y.Target.Kind || x.Target.Name != y.Target.Name {
		d.doubt("the targets differ: %s %s and %s %s", x.Target.Kind, x.Target.Name, y.Target.Kind, y.Target.Name)
	}
	if keyOf(x.Redacted) != keyOf(y.Redacted) {
		d.doubt("the recordings were redacted with different keys, or only one was: " +
			"the same name is not the same in both")
	}
	if x.Version != y.Version {
		d.doubt("they were recorded by different versions of perfdoctor: %s and %s", x.Version, y.Version)
	}
	if x.Seconds > 2*y.Seconds || y.Seconds > 2*x.Seconds {
		d.doubt("one covers %s, the other %s", seconds(x.Seconds), seconds(y.Seconds))
	}
	d.doubtLoad(b, a)
}

// doubtLoad notes what is unknown about the load, or differs.
func (d *Data) doubtLoad(b, a *reading) {
	switch x := d.number("requests"); {
	case d.Outcome.Load == LoadMore || d.Outcome.Load == LoadLess:
		d.doubt("the load differs, so that little can be said of the program: %s", x.Text())
		if !d.Outcome.InProgress {
			d.doubt("how long requests took is not known: a load generator's p99 would tell a load from what the " +
				"program makes of it (--p99 BEFORE,AFTER)")
		}
	case x != nil && x.Result == Changed:
		d.doubt("the load or what the program made of it differs: %s", x.Text())
	}
	if (b.work.Known() || a.work.Known()) && d.standIn {
		d.doubt("requests are not known: the segments with data that came on the target's own ports stand for " +
			"them (--requests BEFORE,AFTER gives what a load generator counted)")
	}
}

// Other programs on a host make the same work more expensive: they share caches, memory and, with two threads per
// core, the core itself. Measured: half a CPU of others made a request half as expensive again (docs/decisions/0012).
// The bounds separate what differed between quiet runs from what did not.
const (
	othersMatter = 0.05 // CPUs
	othersAtMost = 0.5  // of the CPU time per request: others do not cause a larger change
	othersFull   = 0.3  // CPUs of the neighbour with which spreadBeside was measured
	// of the others' CPU time per request, so that clients on the same host, which do more for more requests, do not
	// count
	othersFactor = 1.5
)

// The numbers that depend on other programs: others determine the first list, and raise the second by half at most.
var (
	othersMake  = []string{"ipc", "cpu_wait", "slow_cpu_waits"}
	othersRaise = []string{"cpu_per_request", "request_p50", "exchange_p50"}
)

// disturbed discounts the numbers that depend on other programs if these differ between the recordings, and returns
// by how many CPUs they differ: 0 if they do not.
func (d *Data) disturbed(b, a *reading) float64 {
	by, reason := othersDiffer(b, a)
	if reason == "" {
		by, reason = othersFull, d.takenAway()
	}
	if reason == "" {
		return 0
	}
	d.Doubts = append(d.Doubts, reason+"; the same work is dearer beside others, so that the wait for a CPU does not "+
		"count, and the CPU "+
		"time and the median time of a request only if they changed by more than half")
	for i := range d.Numbers {
		n := &d.Numbers[i]
		decides := n.Result == Worse || n.Result == Improved
		beyond := n.Change != nil && math.Abs(n.Change.Absolute) > othersAtMost*n.Before.Mean
		if decides && (slices.Contains(othersMake, n.Name) || slices.Contains(othersRaise, n.Name) && !beyond) {
			n.Result, n.Reason = Changed, "what else ran on the host differs"
		}
	}
	return by
}

func othersDiffer(b, a *reading) (by float64, reason string) {
	ob, okB := b.source.Others()
	oa, okA := a.source.Others()
	if !okB || !okA || !b.work.Known() || !a.work.Known() || math.Abs(oa-ob) < othersMatter {
		return 0, ""
	}
	factor := (oa / a.work.PerSecond) / max(ob/b.work.PerSecond, math.SmallestNonzeroFloat64)
	if factor < othersFactor && factor > 1/othersFactor {
		return 0, ""
	}
	return math.Abs(oa - ob), fmt.Sprintf("what else ran on the host differs: %s and %s", cpus(ob), cpus(oa))
}

// takenAway finds what the sum of the others hides from othersDiffer: a neighbour takes CPU time from target and
// clients alike, and together they use no more than before. If a target waits longer for a CPU and uses less of it,
// something else takes the CPU, unless a quota does.
func (d *Data) takenAway() string {
	used, wait, quota := d.number("cpu_used"), d.number("cpu_wait"), d.number("throttled_share")
	if used == nil || wait == nil || used.Result != Changed {
		return ""
	}
	if quota != nil && quota.Change != nil && quota.Result != Same {
		return ""
	}
	less := used.Change.Absolute < 0
	if less && wait.Result == Worse || !less && wait.Result == Improved {
		return fmt.Sprintf("it used %s and %s, and waited %s and %s of that for a CPU, as when somebody else has them",
			cpus(used.Before.Mean), cpus(used.After.Mean), ratio(wait.Before.Mean), ratio(wait.After.Mean))
	}
	return ""
}

// unmask discounts new findings that an earlier bottleneck may have hidden: fixing one reveals the next, and that is
// not a regression. There must be evidence that the bottleneck was fixed or held back less. A finding that is worse
// than the bottleneck was still counts.
func (d *Data) unmask(principal *check.Finding) {
	if principal == nil || !d.relieved() {
		return
	}
	for i := range d.Findings {
		f := &d.Findings[i]
		// it may have been there before as a fact
		came := f.Fate == New || f.Fate == Risen && f.Before.Severity < check.Warning
		if came && f.Doubt == "" && f.After.Severity <= principal.Severity && f.After.Check != principal.Check {
			f.Doubt = "before, " + principal.Check + " held the system back and may have hidden it"
		}
	}
}
