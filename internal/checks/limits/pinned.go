package limits

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramPinnedBusy = &check.Param{
		Name: "busy", Default: 0.9, Unit: quantity.Ratio,
		Why: "of the CPUs it may use: below, the waiting threads woke together, and a CPU is free soon",
	}
	paramPinnedIdle = &check.Param{
		Name: "idle", Default: 0.5, Unit: quantity.CPUs,
		Why: "of the others: half a CPU more is a gain that shows, even if others want it now and then",
	}
	paramPinnedWaiting = &check.Param{
		Name: "waiting", Default: 0.1, Unit: quantity.Threads,
		Why: "that wait for a CPU, on average: a tenth of a CPU is missing all the time",
	}
	paramPinnedShare = &check.Param{
		Name: "share", Default: 0.1, Unit: quantity.Ratio,
		Why: "of the time in which its threads run or could: a tenth of a response time is noticed, less is not",
	}
)

var pinned = &check.Check{
	Name:  "pinned",
	Stage: check.Limits,
	Doc: `The target's threads wait for the few CPUs they may use, while others idle

taskset, CPUAffinity= of a unit, numactl, a cpuset or the program itself bind
threads to CPUs. When these are full, threads wait for them while others idle.

Measured: the CPUs on which any thread of the target that ran may run; how busy
these are, and how idle the rest; and the time for which its threads could run
and did not. Workers that are bound to one CPU each, but to all CPUs together,
do not count as pinned. What a CPU quota stops is cpu-throttled.

Fix: let it run on all CPUs, or on more. Risk: it may be kept apart on purpose,
for a neighbour, an interrupt or the memory of one NUMA node.
Won't help: more threads, a higher CPU limit or weight.
Disproof: taskset -pc PID lists all CPUs, or the others are busy as well.`,
	URL:    "https://man7.org/linux/man-pages/man2/sched_setaffinity.2.html",
	Needs:  []metric.Metric{metric.TargetCPUs, metric.CPUSeconds, metric.ThreadRunDelay, metric.ThreadCPU},
	Uses:   []metric.Metric{metric.CgroupCpuset, metric.TargetInfo},
	Params: []*check.Param{paramPinnedBusy, paramPinnedIdle, paramPinnedWaiting, paramPinnedShare},
	Run:    runPinned,
}

func runPinned(p *check.Pass) error {
	may, ok := evidence.AllowedCPUs(p)
	if !ok {
		return check.NotAssessed("run it while the target works", "none of its threads ran")
	}
	cpus, _, err := evidence.CPUTimes(p)
	if err != nil {
		return err
	}
	p.Read(may)
	if may.Number() >= float64(len(cpus)) {
		return nil
	}
	busy, idle := pinnedLoads(p, cpus)
	r, ok := evidence.RunnableOf(p)
	if !ok {
		return evidence.OneSample()
	}
	waiting, share := r.Waiting(p), r.WaitShare()
	p.Read(busy)
	if busy.Below(p.Param(paramPinnedBusy)) || idle.Below(p.Param(paramPinnedIdle)) ||
		waiting.Below(p.Param(paramPinnedWaiting)) || share.Below(p.Param(paramPinnedShare)) {
		return nil
	}
	f := check.Finding{
		Subject:  evidence.TargetSubject(p),
		Severity: check.Warning,
		Weight:   share.Number(),
		Summary: fmt.Sprintf("may run on %s only: its threads wait for a CPU in %s of the time in which they could "+
			"run, while %s idle", pinnedNames(p, may), share.Text(), idle.Text()),
		Evidence: []quantity.Value{may, busy, idle, waiting, share},
		Remedies: []check.Remedy{pinnedFix(p, may, len(cpus), waiting)},
		Placebos: []string{
			"More threads: they share the same CPUs.", "A higher CPU limit or weight: it lifts no binding.",
		},
		Disproof: "taskset -pc of one of its threads lists all CPUs, or the other CPUs are busy, too.",
	}
	use := r.Ran.Per(p.Window()).Number()
	evidence.WithQuota(p, &f, use, use+idle.Number())
	p.Report(f)
	return nil
}

// pinnedLoads returns how busy the CPUs are that the target may use, and how many of the others are idle.
func pinnedLoads(p *check.Pass, cpus []evidence.CPUTime) (busy, idle quantity.Value) {
	var sum, n, free float64
	for _, c := range cpus {
		if len(p.Gauge(metric.TargetCPUs, "cpu", c.ID)) == 0 {
			free += c.OfWall("idle", "idle", "iowait").Number()
			continue
		}
		sum += c.Load().Number()
		n++
	}
	busy = quantity.Of("busy", sum, quantity.CPUs).Per(quantity.Of("CPUs that it may use", n, quantity.CPUs)).
		Named("busy, of the CPUs that it may use")
	return busy, quantity.Of("idle CPUs that it may not use", free, quantity.CPUs)
}

// pinnedNames names a single CPU, and counts several.
func pinnedNames(p *check.Pass, may quantity.Value) string {
	if series := p.Gauge(metric.TargetCPUs); len(series) == 1 {
		return "CPU " + series[0].Label("cpu")
	}
	return may.Text()
}

// pinnedFix distinguishes a cpuset from a binding that the program or taskset set, as far as the recording knows.
func pinnedFix(p *check.Pass, may quantity.Value, online int, waiting quantity.Value) check.Remedy {
	r := check.Remedy{
		Action: "Let it run on all CPUs, and take the binding out of what starts it: taskset, CPUAffinity= of its " +
			"unit, numactl, its own configuration.",
		Risk:   "it may be kept apart on purpose: for a neighbour, for interrupts, or to stay on one NUMA node",
		Effect: waiting.Label() + ": " + waiting.Text() + " -> near 0",
	}
	for _, s := range p.Gauge(metric.CgroupCpuset) {
		if s.Last() <= may.Number() {
			r.Action = "Give the cpuset of cgroup " + s.Label("cgroup") + " more CPUs: cpuset.cpus; of a container " +
				"--cpuset-cpus; with the static CPU manager of Kubernetes a higher CPU limit."
			return r
		}
	}
	for _, s := range p.Info(metric.TargetInfo) {
		r.Command = check.Commandf("taskset -apc 0-%d %s", online-1, s.Label("pid"))
	}
	return r
}
