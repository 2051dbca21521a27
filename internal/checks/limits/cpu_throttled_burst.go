package limits

import (
	"fmt"
	"math"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// burstKernel is the first kernel with cpu.max.burst (Documentation/admin-guide/cgroup-v2.rst, commit f4183717b370).
var burstKernel = [2]int{5, 14}

var cpuThrottledBurst = &check.Check{
	Name:  "cpu-throttled-burst",
	Stage: check.Limits,
	Doc: `A CPU limit stops short bursts although the mean use is low: the average is fine, p99 is not

Many threads that wake at once use up the quota of a period within milliseconds
and are then stopped for the rest of it, while the mean over seconds stays far
below the limit. Graphs of CPU use show nothing; slow responses come in steps of
the period.

Measured like cpu-throttled, in the target's cgroup and every ancestor:
throttled periods / periods of the window, where the mean use of the group is
below the given share of its limit. Steadier load is the finding of
cpu-throttled; the two never report the same group.

Fix: let the group save up unused quota for a burst (cpu.max.burst), run fewer
threads at once (GC threads and event loops sized to the host are the usual
burst), or take the limit off where latency matters and autoscaling bounds the
use. Risk: a burst disturbs the neighbours for a moment.
Won't help: raising the limit a little; the burst uses that up as well.
Disproof: nr_throttled in cpu.stat of the named group does not rise under load,
or p99 does not change with the limit off.`,
	URL:   "https://docs.kernel.org/scheduler/sched-bwc.html#cfs-bandwidth-control",
	Needs: []metric.Metric{metric.CgroupQuota, metric.CgroupPeriods, metric.CgroupThrottled, metric.CgroupCPU},
	Uses: []metric.Metric{
		metric.CgroupThrottledTime, metric.CgroupPeriod, metric.CgroupBurst, metric.HostInfo, metric.CPUsOnline,
		metric.CgroupDir,
	},
	Params: evidence.ThrottlingParams(),
	Run:    runCPUThrottledBurst,
}

func runCPUThrottledBurst(p *check.Pass) error {
	t, err := evidence.TightestThrottling(p)
	if t == nil || err != nil {
		return err
	}
	if t.Use == nil {
		return check.NotAssessed(evidence.TwoSamples, "the CPU use of cgroup %s was read less than twice", t.Cgroup)
	}
	p.Read(*t.Use)
	if t.Share.Below(p.Param(evidence.ParamThrottledShare)) || !t.Bursty(p) {
		return nil
	}
	f := t.Finding(p)
	f.Summary = fmt.Sprintf("Stopped in %s of its periods at a mean use of %s of the limit: the average is fine, "+
		"p99 is not.",
		t.Share.Text(), t.Use.Per(t.Quota).Text())
	if b, ok := allowBurst(t, p); ok {
		f.Remedies = append(f.Remedies, b)
	}
	f.Remedies = append(f.Remedies, t.FewerThreads(p), unlimit(t, p))
	f.Placebos = []string{"Raising the limit a little: a burst of many threads uses that up as well."}
	f.Notes = append([]string{fmt.Sprintf("the limit of %s is %s", t.Quota.Text(), t.Where())}, f.Notes...)
	p.Report(f)
	return nil
}

// allowBurst grants the group what a stopped period lacked on average; the kernel accepts no more than the quota
// itself (kernel/sched/core.c tg_set_cfs_bandwidth). It offers nothing if that much is set already or the kernel is
// too old.
func allowBurst(t *evidence.Throttling, p *check.Pass) (check.Remedy, bool) {
	if kernelOlder(p, burstKernel) {
		return check.Remedy{}, false
	}
	quota := t.Quota.Number() * t.Period(p)
	want := quota
	if t.Stopped != nil && t.Throttled > 0 {
		want = min(quota, t.Stopped.Number()/t.Throttled)
	}
	us := math.Ceil(want*1e3) * 1e3 // whole milliseconds
	us = min(us, math.Floor(quota*1e6))
	for _, s := range p.Gauge(metric.CgroupBurst, "cgroup", t.Cgroup, "level", t.Level) {
		if s.Last()*1e6 >= us {
			return check.Remedy{}, false
		}
	}
	return check.Remedy{
		Action: fmt.Sprintf("Let the group save up %.0f ms of unused quota for a burst (kernel 5.14).",
			us/1e3),
		Command: evidence.KnobCPUBurst.Set(p, t.Cgroup, t.Level, fmt.Sprintf("%.0f", us), fmt.Sprintf("%.0f", us)),
		Risk:    "for the length of a burst the neighbours get less; the mean stays within the limit",
		Effect: fmt.Sprintf("throttled periods %s -> fewer, since a period may use %.0f ms instead of %.0f ms of "+
			"CPU time",
			t.Share.Text(), quota*1e3+us/1e3, quota*1e3),
	}, true
}

func unlimit(t *evidence.Throttling, p *check.Pass) check.Remedy {
	return check.Remedy{
		Action:  "Take the limit off where latency matters, keep the request, and bound the use by autoscaling.",
		Command: evidence.KnobCPULimit.Set(p, t.Cgroup, t.Level, "max", "-1"),
		Risk: "one runaway process can starve its neighbours; the runtime then sizes its pools to the host: set " +
			"them",
		Effect: fmt.Sprintf("throttled periods %s -> 0 %%", t.Share.Text()),
	}
}

// kernelOlder reports whether the recorded kernel is older than major.minor; an unknown kernel counts as new.
func kernelOlder(p *check.Pass, than [2]int) bool {
	for _, s := range p.Info(metric.HostInfo) {
		var major, minor int
		if _, err := fmt.Sscanf(s.Label("kernel"), "%d.%d", &major, &minor); err == nil {
			return major < than[0] || major == than[0] && minor < than[1]
		}
	}
	return false
}
