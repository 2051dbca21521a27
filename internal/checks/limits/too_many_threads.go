package limits

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramRunnablePerCPU = &check.Param{
		Name: "runnable-per-cpu", Default: 4, Unit: "threads/CPUs",
		Why: "a busy healthy server keeps about two runnable threads a CPU; with four each waits three quarters of " +
			"its time",
	}
	paramBlockedThreads = &check.Param{
		Name: "blocked-threads", Default: 2000, Unit: quantity.Threads,
		Why: "ten times the default of a servlet container's pool (200): only a thread for each outgoing call gets " +
			"there",
	}
)

var tooManyThreads = &check.Check{
	Name:  "too-many-threads",
	Stage: check.Limits,
	Doc: `More threads want to run than there are CPUs, or thousands of threads wait

Runnable threads beyond the CPUs only wait in the run queue: locks are held
across that wait, and short requests wait behind long ones. Throughput stays the
same, and so does the mean time of a request: with fewer threads it waits in a
queue instead. So this is a fact, not a fault: what the threads run fills the
CPUs. Thousands of sleeping threads cost memory and point to one thread for each
outgoing call.

Measured: the mean number of the target's threads in state R against the CPUs it
may use (the least of host, cpusets and CPU limits of all ancestors, rounded
up), with the time they waited for a CPU (schedstat), or the host's CPU pressure
where that is missing.

Fix: bound the pools near the number of CPUs, a queue before them, a bulkhead
for each backend; virtual threads for blocking calls. Risk: a pool too small
leaves CPUs idle while its threads wait for I/O.
Won't help: more threads; a higher priority.
Disproof: the run-queue wait stays with fewer threads: then other processes take
the CPUs.`,
	URL:   "https://docs.kernel.org/scheduler/sched-stats.html",
	Needs: []metric.Metric{metric.ThreadStates, metric.CPUsOnline},
	Uses: []metric.Metric{
		metric.ThreadRunDelay, metric.ThreadCPU, metric.Pressure, metric.CgroupQuota, metric.CgroupCpuset,
		metric.TargetCPUs,
		metric.TargetInfo,
		metric.ThreadCPUWait, metric.ThreadThrottledTime, // with --deep
	},
	Params: []*check.Param{paramRunnablePerCPU, paramBlockedThreads},
	Beyond: "fewer threads",
	Run:    runTooManyThreads,
}

func runTooManyThreads(p *check.Pass) error {
	cpus, ok := evidence.EffectiveCPUs(p)
	if !ok {
		return check.NotAssessed("", "the host's CPUs were not counted")
	}
	runnable := quantity.Of("runnable threads, mean", meanThreads(p, "R"), quantity.Threads)
	perCPU := runnable.Per(evidence.WholeCPUs(cpus)).Named("runnable threads per CPU")
	p.Read(perCPU)
	if perCPU.AtLeast(p.Param(paramRunnablePerCPU)) {
		reportRunnable(p, runnable, perCPU, cpus)
		return nil
	}
	blocked := quantity.Of("sleeping threads, mean", meanThreads(p, "S"), quantity.Threads)
	p.Read(blocked)
	if blocked.AtLeast(p.Param(paramBlockedThreads)) {
		reportBlocked(p, blocked)
	}
	return nil
}

// meanThreads returns the mean number of the target's threads in a state; a sample without that state counts as 0.
func meanThreads(p *check.Pass, state string) float64 {
	samples := len(evidence.Together(p.Gauge(metric.ThreadStates)))
	if samples == 0 {
		return 0
	}
	total := 0.0
	for _, n := range evidence.Together(p.Gauge(metric.ThreadStates, "state", state)) {
		total += n.Value
	}
	return total / float64(samples)
}

func reportRunnable(p *check.Pass, runnable, perCPU, cpus quantity.Value) {
	f := check.Finding{
		Subject:  evidence.TargetSubject(p),
		Severity: check.Info,
		Summary:  fmt.Sprintf("%s want to run on %s.", runnable.Text(), cpus.Text()),
		Evidence: []quantity.Value{perCPU, cpus},
		Remedies: []check.Remedy{{
			Action: fmt.Sprintf("Bound the pools so that about %.0f threads run at once, with a queue before them.",
				2*evidence.WholeCPUs(cpus).Number()),
			Risk: "a pool too small leaves CPUs idle while its threads wait for I/O",
			Effect: fmt.Sprintf("%s -> about 2; it shortens response times and leaves throughput as it is",
				perCPU.Text()),
		}},
		Placebos: []string{
			"More threads: each waits longer.",
			"nice and priorities: the threads compete with each other.",
		},
		Disproof: "The wait stays with fewer threads: then others take the CPUs (perfdoctor diagnose without a " +
			"target).",
	}
	if waiting, ok := runQueueWait(p, runnable); ok {
		f.Summary = fmt.Sprintf("%s want to run on %s at a time; %s: %s.", runnable.Text(), cpus.Text(),
			waiting.Label(), waiting.Text())
		f.Evidence = append(f.Evidence, waiting)
		if !p.Recorded(metric.ThreadRunDelay) {
			f.Confidence = check.Medium
			f.Doubts = append(f.Doubts, "the pressure is the host's: the target's own wait was not recorded")
		}
	} else {
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "neither run-queue wait nor CPU pressure was recorded")
	}
	p.Report(f)
}

// runQueueWait returns the share of the runnable threads' time that was waiting, or the host's CPU pressure if
// threads have no schedstat. Where it was measured, the part in which a quota stopped the threads is subtracted from
// what schedstat counts.
func runQueueWait(p *check.Pass, runnable quantity.Value) (waiting quantity.Value, ok bool) {
	if total, known := evidence.ThreadsRate(p, metric.ThreadRunDelay, nil); known {
		label := "time spent waiting for a CPU"
		if stopped := stoppedShare(p); stopped > 0 {
			total, label = total*(1-stopped), label+", without the stops of a quota"
		}
		return quantity.Of("threads waiting for a CPU, mean", total, quantity.Threads).Per(runnable).
			Named("%s", label), true
	}
	for _, s := range p.Counter(metric.Pressure, "resource", "cpu", "kind", "some") {
		if r, ok := s.Rate(); ok {
			return quantity.Of("host's CPU pressure", r, quantity.Ratio), true
		}
	}
	return quantity.Value{}, false
}

// stoppedShare returns how much of what schedstat counts as waiting for a CPU was due to a quota; it is 0 if there
// was none or it was not measured.
func stoppedShare(p *check.Pass) float64 {
	waited, stopped := 0.0, 0.0
	for _, s := range p.Gauge(metric.ThreadCPUWait) {
		waited += s.Last()
	}
	for _, s := range p.Gauge(metric.ThreadThrottledTime) {
		stopped += s.Last()
	}
	if stopped == 0 {
		return 0
	}
	return stopped / (waited + stopped)
}

func reportBlocked(p *check.Pass, blocked quantity.Value) {
	p.Report(check.Finding{
		Subject:  evidence.TargetSubject(p),
		Severity: check.Info,
		Summary:  fmt.Sprintf("%s sleep: as for a thread per outgoing call.", blocked.Text()),
		Evidence: []quantity.Value{blocked},
		Remedies: []check.Remedy{{
			Action: "Bound the calls per backend (bulkhead) with a timeout each, or use virtual threads or " +
				"asynchronous I/O.",
			Risk:   "calls beyond the bound are refused or queued",
			Effect: fmt.Sprintf("%s -> the bound; about 1 MiB of stack is reserved for each", blocked.Text()),
		}},
		Disproof: "The threads are idle members of a pool of that size, not in a call: jstack, gdb -p, " +
			"/proc/PID/task/TID/stack.",
	})
}
