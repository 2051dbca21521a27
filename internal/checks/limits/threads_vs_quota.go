package limits

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var paramPoolTimesCPUs = &check.Param{
	Name: "threads-per-cpu", Default: 2, Unit: "threads/CPUs",
	Why: "Netty starts two event loops a CPU by default, so that more than two mean it counted other CPUs than it " +
		"may use",
}

var threadsVsQuota = &check.Check{
	Name:  "threads-vs-quota",
	Stage: check.Limits,
	Doc: `Thread pools are sized to the host, not to the CPU limit

Garbage collectors, compilers, event loops and ForkJoin pools start as many
threads as the runtime sees CPUs. When it sees the host's instead of its limit,
they all run at once, use up the quota of a period in a fraction of it, and
everything is stopped. A JVM is asked how many CPUs it assumes, if it answers.

Measured: the threads of the pools that are known to be sized by CPUs (by thread
name, which the kernel cuts at 15 bytes) against the least of CPU limits and
cpusets of the cgroup and all ancestors, rounded up. Pools that are sized by
load, and Go's Ms, are not counted. It is a warning only where the limit really
throttles; else the threads are merely more than needed.

Fix: -XX:ActiveProcessorCount, GOMAXPROCS or the pool's own setting. Risk: less
parallel work when the limit is raised later and the number is not.
Won't help: a smaller heap.
Disproof: the pools are asleep when the group is throttled (top -H during a
burst).`,
	URL:   "https://docs.oracle.com/en/java/javase/17/docs/specs/man/java.html",
	Needs: []metric.Metric{metric.ThreadPools, metric.CgroupQuota},
	Uses: []metric.Metric{
		metric.CgroupCpuset, metric.TargetCPUs, metric.CPUsOnline, metric.CgroupPeriods, metric.CgroupThrottled,
		metric.JVMInfo,
		metric.JVMCPUs, metric.JVMFlag,
	},
	Params: []*check.Param{
		paramPoolTimesCPUs, evidence.ParamPoolFloor, evidence.ParamThrottledShare,
		evidence.ParamThrottledPeriods,
	},
	Run: runThreadsVsQuota,
}

func runThreadsVsQuota(p *check.Pass) error {
	cpus, ok := evidence.EffectiveCPUs(p)
	if !ok {
		return check.NotAssessed("", "neither the host's CPUs nor a limit were recorded")
	}
	if host, known := evidence.OnlineCPUs(p); known && cpus.AtLeast(host) {
		p.Read(cpus)
		return nil // nothing limits it below the host
	}
	whole := evidence.WholeCPUs(cpus)
	most := quantity.Of("", whole.Number(), quantity.CPUs).Times(p.Param(paramPoolTimesCPUs))
	pools := evidence.HostSizedPools(p, quantity.Of("", most.Number()+1, quantity.Threads))
	p.Read(whole)
	if len(pools) == 0 {
		return nil
	}
	p.Report(poolsFinding(p, whole, pools))
	return nil
}

func poolsFinding(p *check.Pass, cpus quantity.Value, pools []quantity.Value) check.Finding {
	worst := pools[0]
	f := check.Finding{
		Subject:  check.Subject{Kind: "pool", ID: worst.Label()},
		Severity: check.Info,
		Summary:  fmt.Sprintf("Pool %s has %s for %s.", worst.Label(), worst.Text(), cpus.Text()),
		Evidence: []quantity.Value{worst.Per(cpus).Named("threads per CPU"), cpus},
		Remedies: []check.Remedy{poolSize(p, cpus, worst)},
		Disproof: "The pool's threads sleep while the group is throttled: top -H during a burst.",
	}
	for _, v := range pools[1:] {
		f.Notes = append(f.Notes, fmt.Sprintf("pool %s: %s", v.Label(), v.Text()))
	}
	for _, pid := range evidence.HotSpots(p) {
		if view, ok := evidence.JVMCPUs(p, pid); ok {
			f.Evidence = append(f.Evidence, view)
		}
	}
	t, err := evidence.TightestThrottling(p)
	switch {
	case !p.Recorded(metric.CgroupPeriods) || err != nil:
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "whether the limit throttles could not be told")
	case t != nil && t.Share.Above(p.Param(evidence.ParamThrottledShare)):
		f.Severity = check.Warning
		f.Evidence = append(f.Evidence, t.Share)
		f.Summary = fmt.Sprintf("Pool %s has %s for %s; the limit stops the group in %s of its periods.",
			worst.Label(), worst.Text(), cpus.Text(), t.Share.Text())
	}
	return f
}

func poolSize(p *check.Pass, cpus, worst quantity.Value) check.Remedy {
	for _, pid := range evidence.HotSpots(p) {
		if view, ok := evidence.JVMCPUs(p, pid); ok && view.Above(evidence.WholeCPUs(cpus)) {
			return evidence.TellJVM(p, pid, cpus, worst)
		}
	}
	return check.Remedy{
		Action: fmt.Sprintf("Tell the runtime how many CPUs it has (%s), or size the pools themselves.",
			evidence.TellCPUs(p, cpus.Number())),
		Risk:   "must be changed along with the limit; needs a restart",
		Effect: fmt.Sprintf("pool %s %s -> about %.0f threads", worst.Label(), worst.Text(), cpus.Number()),
	}
}
