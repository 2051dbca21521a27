package runtime

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var paramGCThreadsPerCPU = &check.Param{
	Name: "threads-per-cpu", Default: 2, Unit: "threads/CPUs",
	Why: "HotSpot starts one a CPU up to eight and 5/8 of one beyond: more than two show that it counted other CPUs",
}

var (
	paramGCWaits = &check.Param{
		Name: "wait-per-run", Default: 1, Unit: quantity.Ratio,
		Why: "collector threads that wait for a CPU for as long as they run make a pause at least twice as long as " +
			"its work takes",
	}
	paramSizedQueue = &check.Param{
		Name: "queue-share", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the time that the process's threads wait for a CPU: with most of it, the pools that the JVM sized " +
			"are the queue",
	}
	paramGCWaitsShare = &check.Param{
		Name: "pause-share", Default: 0.02, Unit: quantity.Ratio,
		Why: "of the time in pauses: a healthy JVM under full load has 1 to 3 %; when that is half wasted, every " +
			"fiftieth request meets it",
	}
)

var gcThreadsOversized = &check.Check{
	Name:  "gc-threads-oversized",
	Stage: check.Runtime,
	Only:  evidence.OnlyJVM,
	Doc: `The garbage collector has more threads than the JVM may use CPUs

All of the collector's threads run at once in a pause. When they are sized for
the host's CPUs and the container has a few, they use up its quota of a period
at the beginning of the pause, and the pause lasts until the next one.

Measured: the -XX:ParallelGCThreads that the JVM runs with, and the CPUs that
it assumes, against the least of host, cpusets and CPU limits. It is a warning
where the limit throttles. Without a throttling limit it is one where pauses
take 2 % of the time and the collector's threads wait for a CPU for longer than
they run: then they are in each other's way. Else it is information. The JVM
sizes other pools by the same count of CPUs (ForkJoinPool, which also carries
virtual threads). When these have most of the time in which the process's
threads wait for a CPU, they are the queue that other checks find.

Fix: let the JVM see its limit (remove -XX:ActiveProcessorCount, or
-XX:-UseContainerSupport), or set ActiveProcessorCount to it. Risk: other pools
are sized by it too.
Won't help: a smaller heap.
Disproof: the pauses do not change with -XX:ParallelGCThreads=CPUs.`,
	URL:   "https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/runtime/vm_version.cpp",
	Needs: []metric.Metric{metric.JVMInfo, metric.JVMFlag, metric.JVMCPUs, metric.CgroupQuota},
	Uses: []metric.Metric{
		metric.CgroupCpuset,
		metric.TargetCPUs, metric.CPUsOnline, metric.CgroupPeriods, metric.CgroupThrottled, metric.JVMLimit,
		metric.ThreadRunDelay, metric.ThreadCPU, metric.JVMGCSeconds, metric.JVMSafepointSeconds,
	},
	Params: []*check.Param{
		paramGCThreadsPerCPU, evidence.ParamPoolFloor, evidence.ParamThrottledShare, evidence.ParamThrottledPeriods,
		paramGCWaits, paramGCWaitsShare,
		paramSizedQueue,
	},
	Facts:  []check.Fact{evidence.PoolsQueue},
	Beyond: "other options of the JVM",
	Run: func(p *check.Pass) error {
		return evidence.EachJVM(p, func(pid string) bool { return runGCThreadsOversized(p, pid) })
	},
}

func runGCThreadsOversized(p *check.Pass, pid string) bool {
	cpus, ok := evidence.EffectiveCPUs(p)
	view, ok2 := evidence.JVMCPUs(p, pid)
	threads, ok3 := evidence.NumericFlag(p, pid, "ParallelGCThreads", quantity.Threads)
	if !ok || !ok2 {
		return false
	}
	if !ok3 { // Serial has none
		p.Read(view)
		return true
	}
	perCPU := threads.Per(evidence.WholeCPUs(cpus)).Named("collector threads a CPU")
	p.Read(perCPU)
	if !perCPU.Above(p.Param(paramGCThreadsPerCPU)) || !threads.Above(p.Param(evidence.ParamPoolFloor)) {
		return true
	}
	f := check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Info,
		Summary:  fmt.Sprintf("The collector runs %s in a pause, on %s.", threads.Text(), cpus.Text()),
		Evidence: []quantity.Value{perCPU, cpus, view},
		Remedies: []check.Remedy{evidence.TellJVM(p, pid, cpus, threads)},
		Placebos: []string{"A smaller heap: the pauses come more often."},
		Disproof: fmt.Sprintf("The pauses do not change with -XX:ParallelGCThreads=%.0f.", evidence.WholeCPUs(cpus).
			Number()),
	}
	t, err := evidence.TightestThrottling(p)
	if err == nil && t != nil && t.Share.Above(p.Param(evidence.ParamThrottledShare)) {
		f.Severity = check.Warning
		f.Evidence = append(f.Evidence, t.Share)
	} else if waits, pauses, ok := collectorsCrowd(p, pid); ok {
		f.Severity = check.Warning
		f.Evidence = append(f.Evidence, waits, pauses)
		f.Summary = fmt.Sprintf("The collector runs %s in a pause, on %s: they wait for a CPU %s × as long as they "+
			"run, and pauses take "+
			"%s of the time.", threads.Text(), cpus.Text(), waits.As(quantity.None).Text(), pauses.Text())
		sizedPoolsQueue(p, pid, &f)
	}
	p.Report(f)
	return true
}

// collectorsCrowd reports whether the threads of a pause wait for each other's CPUs, and pauses take enough time to
// count.
func collectorsCrowd(p *check.Pass, pid string) (waits, pauses quantity.Value, ok bool) {
	ran, ok := evidence.ThreadCPU(p, pid, "CPU of the collector's threads", evidence.ParallelCollectors)
	waited := evidence.RunDelay(p, pid, evidence.ParallelCollectors)
	pauses, known := evidence.GCShare(p, pid)
	if !ok || !known || ran.Number() == 0 {
		return waits, pauses, false
	}
	waits = quantity.Of("waited for a CPU", waited, quantity.CPUs).Per(ran).
		Named("the collector's threads: time waited over time run")
	p.Read(waits)
	return waits, pauses, waits.AtLeast(p.Param(paramGCWaits)) && pauses.AtLeast(p.Param(paramGCWaitsShare))
}

// sizedPoolsQueue makes the queue for the CPUs, which other checks find, a consequence if most of it is threads of
// pools that the JVM sized by the CPUs it reckons with.
func sizedPoolsQueue(p *check.Pass, pid string, f *check.Finding) {
	all := quantity.Of("", evidence.RunDelay(p, pid, nil), quantity.Threads)
	share := quantity.Of("", evidence.RunDelay(p, pid, evidence.CPUSizedPools), quantity.Threads).Per(all).
		Named("threads that wait for a CPU: those of pools sized by the CPUs the JVM reckons with")
	p.Read(share)
	if share.AtLeast(p.Param(paramSizedQueue)) {
		f.Evidence = append(f.Evidence, share)
		f.Facts = []check.Fact{evidence.PoolsQueue}
	}
}
