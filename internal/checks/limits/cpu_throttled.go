package limits

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var cpuThrottled = &check.Check{
	Name:  "cpu-throttled",
	Stage: check.Limits,
	Doc: `A CPU limit stops the process in part of its enforcement periods

A CPU limit is a quota of CPU time per period (100 ms by default). When all
threads together have used it up, the kernel stops every one of them until the
next period: each request that is under way waits, however idle the host is.

Measured: throttled periods / periods of the window, from cpu.stat of the
target's cgroup and of every ancestor, because the limit may be set on a pod or
a slice above. Periods in which the group had nothing to run do not count. Where
several levels throttle, the one with the highest share is the tighter limit and
is named. The absolute count since the group was made says nothing and is not
used.

The time stopped is a sum over CPUs: with many threads it exceeds wall time. Use
plus time stopped gives what the group wanted, at most.

Fix: raise the limit, or remove it and keep the request (weight), which
protects the neighbours when all are busy.
Risk: without a limit a runtime sizes its pools to the host. Fewer runnable
threads make the quota last longer.
Won't help: a higher weight (cpu.weight, cpu.shares, requests.cpu) does not lift a
limit.
Disproof: nr_throttled in cpu.stat of the named group does not rise under load.`,
	URL:   "https://docs.kernel.org/scheduler/sched-bwc.html",
	Needs: []metric.Metric{metric.CgroupQuota, metric.CgroupPeriods, metric.CgroupThrottled},
	Uses: []metric.Metric{
		metric.CgroupCPU, metric.CgroupThrottledTime, metric.CgroupPeriod, metric.CPUsOnline, metric.CgroupDir,
		metric.CgroupThrottledWait, metric.CgroupCPUWait, // with --deep
	},
	Params: evidence.ThrottlingParams(),
	Run:    runCPUThrottled,
}

func runCPUThrottled(p *check.Pass) error {
	t, err := evidence.TightestThrottling(p)
	if t == nil || err != nil {
		return err
	}
	if t.Bursty(p) { // cpu-throttled-burst reports it, or no rule does
		p.Read(t.Use.Named("mean use"))
		return nil
	}
	p.Read(t.Share)
	if t.Share.Below(p.Param(evidence.ParamThrottledShare)) {
		return nil
	}
	f := t.Finding(p)
	f.Summary = fmt.Sprintf("Stopped in %s of its periods by the CPU limit of %s %s.", t.Share.Text(), t.Quota.Text(),
		t.Where())
	f.Remedies = []check.Remedy{raiseQuota(t, p), t.FewerThreads(p)}
	if t.Use != nil {
		evidence.WithQuota(p, &f, t.Use.Number(), newQuota(t, p).Number())
	}
	evidence.Gone(p, &f, check.Throttled)
	f.Placebos = []string{"A higher request, weight or share: it divides a busy host, but does not lift a limit."}
	if t.Use == nil {
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "the group's CPU use was not recorded, so a burst cannot be told from steady load")
	}
	addWaits(t, p, &f)
	p.Report(f)
	return nil
}

// waitsOf sums the waits of a group and of those below it; ok is false if they were not measured.
func waitsOf(p *check.Pass, cgroup string) (stopped, waited quantity.Value, ok bool) {
	var sum evidence.GroupWait
	for _, w := range evidence.GroupWaits(p) {
		if w.Path == cgroup || strings.HasPrefix(w.Path, strings.TrimSuffix(cgroup, "/")+"/") {
			sum.Stopped, sum.Waited, ok = sum.Stopped+w.Stopped, sum.Waited+w.Waited, true
		}
	}
	return quantity.Of("runnable threads stopped by the limit, summed", sum.Stopped, quantity.Seconds),
		quantity.Of("threads waiting for a CPU with quota left, summed", sum.Waited, quantity.Seconds), ok
}

// addWaits adds how long the limit stopped the group's threads, and how long they waited for a CPU besides: if that
// is longer, a higher limit alone moves them from one queue into another.
func addWaits(t *evidence.Throttling, p *check.Pass, f *check.Finding) {
	stopped, waited, ok := waitsOf(p, t.Cgroup)
	if !ok {
		return
	}
	f.Evidence = append(f.Evidence, stopped, waited)
	if waited.Above(stopped) {
		f.Notes = append(f.Notes, "its threads waited longer for a CPU than for their quota: a higher limit alone "+
			"moves them from one "+
			"queue into the other")
	}
}

// newQuota rounds the CPUs wanted up to a tenth of a CPU, and doubles the limit if they are not known. More than the
// host or a level above grants is pointless.
func newQuota(t *evidence.Throttling, p *check.Pass) quantity.Value {
	n := 2 * t.Quota.Number()
	if t.Stopped != nil {
		n = max(math.Ceil(t.Wanted().Number()*10)/10, math.Ceil(t.Quota.Number()*11)/10)
	}
	if most := highestQuota(t, p); most > t.Quota.Number() {
		n = min(n, most)
	}
	return quantity.Of("new limit", n, quantity.CPUs)
}

// highestQuota returns the bound that no limit of this level can lift: the host's CPUs and the limits of the levels
// above; it is 0 when neither is known.
func highestQuota(t *evidence.Throttling, p *check.Pass) float64 {
	most := 0.0
	if host, ok := evidence.OnlineCPUs(p); ok {
		most = host.Number()
	}
	own, err := strconv.Atoi(t.Level)
	for _, s := range p.Gauge(metric.CgroupQuota) {
		at, bad := strconv.Atoi(s.Label("level"))
		if err == nil && bad == nil && at > own && (most == 0 || s.Last() < most) {
			most = s.Last()
		}
	}
	return most
}

// raiseQuota returns the fix that always works.
func raiseQuota(t *evidence.Throttling, p *check.Pass) check.Remedy {
	q := newQuota(t, p)
	period := t.Period(p)
	us := math.Round(q.Number() * period * 1e6)
	return check.Remedy{
		Action: fmt.Sprintf("Raise the CPU limit to %s (Kubernetes: limits.cpu %.0fm), "+
			"or remove it and keep the request.", q.Text(), q.Number()*1000),
		Command: evidence.KnobCPULimit.Set(p, t.Cgroup, t.Level, fmt.Sprintf("%.0f %.0f", us, period*1e6),
			fmt.Sprintf("%.0f", us)),
		Risk: "its neighbours on the host get less when all are busy; without any limit a runtime sizes its " +
			"pools to the whole host",
		Effect: fmt.Sprintf("throttled periods %s -> near 0 %%, limit %s -> %s", t.Share.Text(), t.Quota.Text(),
			q.Text()),
	}
}
