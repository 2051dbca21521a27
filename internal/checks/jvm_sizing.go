package checks

import (
	"fmt"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

var paramGCThreadsPerCPU = &check.Param{
	Name: "threads-per-cpu", Default: 2, Unit: "threads/CPUs",
	Why: "HotSpot starts one a CPU up to eight and 5/8 of one beyond: more than two show that it counted other CPUs",
}

var (
	paramGCWaits = &check.Param{
		Name: "wait-per-run", Default: 1, Unit: quantity.Ratio,
		Why: "collector threads that wait for a CPU for as long as they run make a pause at least twice as long as its work takes",
	}
	paramSizedQueue = &check.Param{
		Name: "queue-share", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the time that the process's threads wait for a CPU: with most of it the pools that the JVM sized are the queue",
	}
	paramGCWaitsShare = &check.Param{
		Name: "pause-share", Default: 0.02, Unit: quantity.Ratio,
		Why: "of the time in pauses: a healthy JVM under full load has 1 to 3 %; when that is half wasted, every fiftieth request meets it",
	}
)

var gcThreadsOversized = &check.Check{
	Name:  "gc-threads-oversized",
	Stage: check.Runtime,
	Only:  onlyJVM,
	Doc: `The garbage collector has more threads than the JVM may use CPUs

All of the collector's threads run at once in a pause. When they are sized for
the host's CPUs and the container has a few, they use up its quota of a period
at the beginning of the pause, and the pause lasts until the next one.

Measured: -XX:ParallelGCThreads as the JVM runs with it, and the CPUs that the
JVM reckons with, against the least of host, cpusets and CPU limits. It is a
warning where the limit throttles; and without a throttling limit where pauses
take 2 % of the time and the collector's threads wait for a CPU for longer than
they run: then they stand in each other's way. When most of the time in which the
process's threads wait for a CPU is that of pools that it sizes by the same count
of CPUs (ForkJoinPool, which also carries virtual threads), they are the queue
that other checks find. Else it is information.

Cure: let the JVM see its limit (remove -XX:ActiveProcessorCount, or
-XX:-UseContainerSupport), or set ActiveProcessorCount to it. Risk: other pools
are sized by it too.
Placebo: a smaller heap.
Disproof: the pauses do not change with -XX:ParallelGCThreads=CPUs.`,
	URL:   "https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/runtime/vm_version.cpp",
	Needs: []metric.Metric{metric.JVMInfo, metric.JVMFlag, metric.JVMCPUs, metric.CgroupQuota},
	Uses: []metric.Metric{
		metric.CgroupCpuset, metric.CPUsOnline, metric.CgroupPeriods, metric.CgroupThrottled, metric.JVMLimit,
		metric.ThreadRunDelay, metric.ThreadCPU, metric.JVMGCSeconds, metric.JVMSafepointSeconds,
	},
	Params: []*check.Param{
		paramGCThreadsPerCPU, paramPoolFloor, paramThrottledShare, paramThrottledPeriods, paramGCWaits, paramGCWaitsShare,
		paramSizedQueue,
	},
	Explains: []*check.Check{gcOverhead, safepointTime, timeToSafepoint},
	Run: func(p *check.Pass) error {
		return eachJVM(p, func(pid string) bool { return runGCThreadsOversized(p, pid) })
	},
}

func runGCThreadsOversized(p *check.Pass, pid string) bool {
	cpus, ok := effectiveCPUs(p)
	view, ok2 := jvmView(p, pid)
	threads, ok3 := numericFlag(p, pid, "ParallelGCThreads", quantity.Threads)
	if !ok || !ok2 {
		return false
	}
	if !ok3 { // Serial has none
		p.Read(view)
		return true
	}
	perCPU := threads.Per(wholeCPUs(cpus)).Named("collector threads a CPU")
	p.Read(perCPU)
	if !perCPU.Above(p.Param(paramGCThreadsPerCPU)) || !threads.Above(p.Param(paramPoolFloor)) {
		return true
	}
	f := check.Finding{
		Subject: jvmSubject(p, pid), Severity: check.Info,
		Summary:  fmt.Sprintf("The collector runs %s in a pause, on %s.", threads.Text(), cpus.Text()),
		Evidence: []quantity.Value{perCPU, cpus, view},
		Remedies: []check.Remedy{tellJVM(p, pid, cpus, threads)},
		Placebos: []string{"A smaller heap: the pauses come more often."},
		Disproof: fmt.Sprintf("The pauses do not change with -XX:ParallelGCThreads=%.0f.", wholeCPUs(cpus).Number()),
	}
	t, err := tightestThrottling(p)
	if err == nil && t != nil && t.share.Above(p.Param(paramThrottledShare)) {
		f.Severity = check.Warning
		f.Evidence = append(f.Evidence, t.share)
	} else if waits, pauses, ok := collectorsCrowd(p, pid); ok {
		f.Severity = check.Warning
		f.Evidence = append(f.Evidence, waits, pauses)
		f.Summary = fmt.Sprintf("The collector runs %s in a pause, on %s: they wait for a CPU %s × as long as they run, and pauses take "+
			"%s of the time.", threads.Text(), cpus.Text(), waits.As(quantity.None).Text(), pauses.Text())
		sizedPoolsQueue(p, pid, &f)
	}
	p.Report(f)
	return true
}

// parallelCollectors are the threads that work together in a pause.
var parallelCollectors = []string{"GC Thread", "ParGC Thread"}

// collectorsCrowd tells that the threads of a pause wait for each other's CPUs, and that pauses are a part of the time that counts.
func collectorsCrowd(p *check.Pass, pid string) (waits, pauses quantity.Value, ok bool) {
	ran, ok := threadCPU(p, pid, "CPU of the collector's threads", parallelCollectors)
	waited := runDelay(p, pid, parallelCollectors)
	pauses, known := gcShare(p, pid)
	if !ok || !known || ran.Number() == 0 {
		return waits, pauses, false
	}
	waits = quantity.Of("waited for a CPU", waited, quantity.CPUs).Per(ran).Named("the collector's threads: time waited over time run")
	p.Read(waits)
	return waits, pauses, waits.AtLeast(p.Param(paramGCWaits)) && pauses.AtLeast(p.Param(paramGCWaitsShare))
}

// runDelay gives how many of a process's threads wait for a CPU on average: those whose names begin with one of prefixes, or all.
func runDelay(p *check.Pass, pid string, prefixes []string) float64 {
	waiting, _ := threadsRate(p, metric.ThreadRunDelay, prefixes, "pid", pid)
	return waiting
}

// sizedPoolsQueue takes what other checks say of the queue for the CPUs as a consequence, where most of it are threads of pools that
// the JVM sized by the CPUs that it reckons with.
func sizedPoolsQueue(p *check.Pass, pid string, f *check.Finding) {
	all := quantity.Of("", runDelay(p, pid, nil), quantity.Threads)
	share := quantity.Of("", runDelay(p, pid, cpuSizedPools), quantity.Threads).Per(all).
		Named("threads that wait for a CPU: those of pools sized by the CPUs the JVM reckons with")
	p.Read(share)
	if share.AtLeast(p.Param(paramSizedQueue)) {
		f.Evidence = append(f.Evidence, share)
		f.Explains = []*check.Check{tooManyThreads, cpuSaturated, contextSwitchStorm}
	}
}

// jvmView gives the CPUs that a JVM reckons with.
func jvmView(p *check.Pass, pid string) (quantity.Value, bool) {
	s, ok := first(p.Gauge(metric.JVMCPUs, "pid", pid))
	if !ok {
		return quantity.Value{}, false
	}
	label := "CPUs that the JVM reckons with"
	if s.Label("from") == "ActiveProcessorCount" {
		label += ", set by -XX:ActiveProcessorCount"
	}
	return quantity.Of(label, s.Last(), quantity.CPUs), true
}

// tellJVM says why the JVM counts more CPUs than it has, and how to put that right.
func tellJVM(p *check.Pass, pid string, cpus, threads quantity.Value) check.Remedy {
	n := wholeCPUs(cpus).Number()
	r := check.Remedy{
		Action:  fmt.Sprintf("Tell the JVM how many CPUs it has: %.0f.", n),
		Command: check.Commandf("-XX:ActiveProcessorCount=%.0f", n),
		Risk:    "every pool that is sized by the CPUs shrinks with it; a restart; to be changed along with the limit",
		Effect:  fmt.Sprintf("%s -> %.0f", threads.Text(), n),
	}
	set, _ := jvmFlag(p, pid, "ActiveProcessorCount")
	support, _ := jvmFlag(p, pid, "UseContainerSupport")
	switch {
	case set != "" && set != "-1":
		r.Action = fmt.Sprintf("Remove -XX:ActiveProcessorCount=%s, so that the JVM reads its limit, or set it to %.0f.", set, n)
	case support == "false":
		r.Action = fmt.Sprintf("Remove -XX:-UseContainerSupport, so that the JVM reads its limit, or set ActiveProcessorCount to %.0f.", n)
	}
	return r
}

var serialGCByQuota = &check.Check{
	Name:  "serial-gc-by-quota",
	Stage: check.Runtime,
	Only:  onlyJVM,
	Doc: `The JVM chose the serial collector because it sees one CPU or little memory

With fewer than two CPUs or less than 1792 MiB HotSpot takes itself for a client
and chooses SerialGC: one thread collects, the program stands still as long as
that takes, and a full collection of some GiB takes seconds. A CPU limit of 1 or
less does that, whatever the host has.

Measured: the collector and whether it was chosen by the JVM (flag origin), the
CPUs and memory that the JVM sees. It is a warning when collections take more
than their share of time, else information.

Cure: choose one: -XX:+UseG1GC or -XX:+UseParallelGC; better, two CPUs. Risk: on
a single CPU G1's threads compete with the program: for heaps below 1 GiB Serial
is often the better one.
Disproof: jcmd PID VM.flags shows UseSerialGC from the command line.`,
	URL:    "https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/runtime/os.cpp",
	Needs:  []metric.Metric{metric.JVMInfo, metric.JVMFlag, metric.JVMCPUs},
	Uses:   []metric.Metric{metric.JVMSafepointSeconds, metric.JVMGCSeconds, metric.CPUsOnline, metric.JVMMemoryLimit},
	Params: []*check.Param{paramGCShare},
	Run: func(p *check.Pass) error {
		return eachJVM(p, func(pid string) bool { return runSerialGC(p, pid) })
	},
}

func runSerialGC(p *check.Pass, pid string) bool {
	view, ok := jvmView(p, pid)
	if !ok {
		return false
	}
	p.Read(view)
	on, origin := jvmFlag(p, pid, "UseSerialGC")
	host, known := onlineCPUs(p)
	if on != "true" || strings.Contains(origin, "command line") || strings.Contains(origin, "environment") || known && host.Number() < 2 {
		return true
	}
	f := check.Finding{
		Subject: jvmSubject(p, pid), Severity: check.Info,
		Summary:  fmt.Sprintf("The JVM chose SerialGC by itself: it reckons with %s.", view.Text()),
		Evidence: []quantity.Value{view},
		Remedies: []check.Remedy{{
			Action:  "Choose the collector yourself, or give the JVM two CPUs.",
			Command: "-XX:+UseParallelGC (throughput) or -XX:+UseG1GC (shorter pauses)",
			Risk:    "on one CPU the collector's threads take the program's time; a restart",
			Effect:  "a full collection is worked on by as many threads as there are CPUs",
		}},
		Disproof: "jcmd " + check.Quote(pid) + " VM.flags -all shows UseSerialGC from the command line.",
	}
	if known {
		f.Evidence = append(f.Evidence, host)
	}
	if limit, ok := lastOf(p.Gauge(metric.JVMMemoryLimit, "pid", pid)); ok {
		f.Evidence = append(f.Evidence, quantity.Of("memory limit that the JVM sees", limit, quantity.Bytes))
	}
	if share, ok := gcShare(p, pid); ok {
		f.Evidence = append(f.Evidence, share)
		if share.AtLeast(p.Param(paramGCShare)) {
			f.Severity = check.Warning
			f.Summary += fmt.Sprintf(" Collections take %s of the time.", share.Text())
		}
	}
	p.Report(f)
	return true
}
