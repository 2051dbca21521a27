package checks

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
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

Cure: raise the limit, or remove it and keep the request (weight), which
protects the neighbours when all are busy.
Risk: without a limit a runtime sizes its pools to the host. Fewer runnable
threads make the quota last longer.
Placebo: a higher weight (cpu.weight, cpu.shares, requests.cpu) does not lift a
limit.
Disproof: nr_throttled in cpu.stat of the named group does not rise under load.`,
	URL:   "https://docs.kernel.org/scheduler/sched-bwc.html",
	Needs: []metric.Metric{metric.CgroupQuota, metric.CgroupPeriods, metric.CgroupThrottled},
	Uses: []metric.Metric{
		metric.CgroupCPU, metric.CgroupThrottledTime, metric.CgroupPeriod, metric.CPUsOnline, metric.CgroupDir,
		metric.CgroupThrottledWait, metric.CgroupCPUWait, // with --deep
	},
	Params: throttlingParams(),
	Run:    runCPUThrottled,
}

func runCPUThrottled(p *check.Pass) error {
	t, err := tightestThrottling(p)
	if t == nil || err != nil {
		return err
	}
	if t.bursty(p) { // cpu-throttled-burst speaks of it, or nobody
		p.Read(t.use.Named("mean use"))
		return nil
	}
	p.Read(t.share)
	if t.share.Below(p.Param(paramThrottledShare)) {
		return nil
	}
	f := t.finding(p)
	f.Summary = fmt.Sprintf("Stopped in %s of its periods by the CPU limit of %s %s.", t.share.Text(), t.quota.Text(), t.where())
	f.Remedies = []check.Remedy{t.raise(p), t.fewerThreads(p)}
	f.Placebos = []string{"A higher request, weight or share: it divides a busy host, but does not lift a limit."}
	if t.use == nil {
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "the group's CPU use was not recorded, so a burst cannot be told from steady load")
	}
	t.waits(p, &f)
	p.Report(f)
	return nil
}
