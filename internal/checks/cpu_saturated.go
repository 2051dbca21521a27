package checks

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

var (
	saturatedLevel = &check.Param{
		Name: "level", Default: 2, Unit: threadsPerCPU,
		Why: "a closed-loop benchmark with its server on the same host has about 2 and is healthy",
	}
	saturatedWarn = &check.Param{
		Name: "warn", Default: 4, Unit: threadsPerCPU,
		Why: "each thread then waits three times as long as it runs",
	}
	saturatedTarget = &check.Param{
		Name: "warn-target", Default: 3, Unit: threadsPerCPU,
		Why: "with the target's own wait measured, less of a queue is needed to be sure",
	}
	saturatedPressure = &check.Param{
		Name: "pressure", Default: 0.2, Unit: quantity.Ratio,
		Why: "someone waited for a CPU in a fifth of the time: a queue that lasts",
	}
	saturatedBusy = &check.Param{
		Name: "busiest-cpu", Default: 0.9, Unit: quantity.Ratio,
		Why: "a queue that lasts leaves a CPU no pause; below it the sampler met threads that woke together with it",
	}
	saturatedWait = &check.Param{
		Name: "wait-per-run", Default: 1, Unit: quantity.Ratio,
		Why: "the target's threads wait longer than they run: its work takes twice the time it needs",
	}
	saturatedThrottled = &check.Param{
		Name: "throttled", Default: 0.1, Unit: quantity.Seconds,
		Why: "one enforcement period: time stopped by a quota is inside the run-queue wait of a thread and must not be taken " +
			"for a lack of CPUs",
	}
)

var cpuSaturated = &check.Check{
	Name:  "cpu-saturated",
	Stage: check.Kernel,
	Doc: `More threads want a CPU than there are CPUs

Threads that could run wait in a run queue. The check takes the mean number of runnable threads (procs_running, less
the one that reads it) per CPU and the share of time in which someone waited (PSI cpu some). Both must agree, and the
busiest CPU must have had hardly a pause: the samples alone are biased, for timers wake other threads with the sampler.

Two runnable threads per CPU is what a benchmark and its server on one host look like: a fact. Four is a warning, and
so are three when the target's own threads waited longer than they ran. That wait also holds the time a cgroup quota
stopped them (measured: 3.9 of 4.0 s), so where a quota throttles, cpu-throttled speaks and this check does not use
it.

Cures: fewer runnable threads (pool sizes), less work, other tenants elsewhere, more CPUs. Placebo: more threads.
Disproof: vmstat 1 shows r near the number of CPUs.`,
	URL:   "https://docs.kernel.org/accounting/psi.html",
	Needs: []metric.Metric{metric.ProcsRunning, metric.CPUsOnline},
	Uses: []metric.Metric{
		metric.CPUSeconds, metric.Pressure, metric.ThreadRunDelay, metric.ThreadCPU, metric.ProcessCPU, metric.CgroupThrottledTime,
		metric.ThreadCPUWait, metric.OffCPUProfileSamples, metric.CgroupCPUWait, metric.CgroupCPURun, // with --deep
	},
	Params: []*check.Param{
		saturatedLevel, saturatedWarn, saturatedTarget, saturatedBusy, saturatedPressure, saturatedWait, saturatedThrottled,
	},
	Explains: []*check.Check{contextSwitchStorm},
	Run:      runCPUSaturated,
}

func runCPUSaturated(p *check.Pass) error {
	runnable, perCPU, ok := runnablePerCPU(p)
	if !ok {
		return check.NotAssessed("", "the number of CPUs or of runnable threads is not in the recording")
	}
	p.Read(perCPU)
	if perCPU.Below(p.Param(saturatedLevel)) || everyCPUPauses(p) {
		return nil
	}
	f := check.Finding{
		Subject:  check.Host,
		Severity: check.Info,
		Summary:  fmt.Sprintf("%s threads are runnable on %.0f CPUs on average", trimUnit(runnable), runnable.Number()/perCPU.Number()),
		Evidence: []quantity.Value{perCPU},
		Notes:    busiestNote(p, "CPU time", "user", "system"),
		Remedies: []check.Remedy{{
			Action: "Have fewer threads runnable at once (size pools to the CPUs), move other tenants away, or add CPUs.",
			Risk:   "A pool that is too small leaves CPUs idle while its threads wait for I/O.",
			Effect: fmt.Sprintf("from %s to below %s", perCPU.Text(), p.Param(saturatedLevel).Text()),
		}},
		Placebos: []string{"More threads or processes: they share the same CPUs."},
		Disproof: "vmstat 1: column r is near the number of CPUs while the load runs.",
	}
	if !waitsForCPU(p, &f) {
		p.Read(f.Evidence[len(f.Evidence)-1])
		return nil
	}
	targetWaits := targetWaitsForCPU(p, &f)
	if perCPU.AtLeast(p.Param(saturatedWarn)) || targetWaits && perCPU.AtLeast(p.Param(saturatedTarget)) {
		f.Severity = check.Warning
	}
	queueByGroup(p, &f)
	p.Report(f)
	return nil
}

// everyCPUPauses tells that no CPU was busy throughout; false when the CPUs' time is not known.
func everyCPUPauses(p *check.Pass) bool {
	each, _, err := cpuTimes(p)
	if err != nil {
		return false
	}
	busiest := each[0].load()
	for _, c := range each[1:] {
		if c.load().Above(busiest) {
			busiest = c.load()
		}
	}
	p.Read(busiest)
	return busiest.Below(p.Param(saturatedBusy))
}

// trimUnit gives a number without its unit, for a sentence that names it.
func trimUnit(v quantity.Value) string { return v.As(quantity.None).Text() }

// waitsForCPU adds the pressure, or without it the load of the CPUs, and tells whether it agrees with the run queue.
func waitsForCPU(p *check.Pass, f *check.Finding) bool {
	if waiting, ok := pressure(p, "cpu", "some"); ok {
		f.Evidence = append(f.Evidence, waiting)
		return waiting.AtLeast(p.Param(saturatedPressure))
	}
	f.Confidence = check.Medium
	f.Doubts = append(f.Doubts, "this kernel has no pressure stall information: the run queue was sampled once an interval only")
	return true
}

// targetWaitsForCPU compares what the target's threads waited for a CPU with what they ran.
func targetWaitsForCPU(p *check.Pass, f *check.Finding) bool {
	waited, _, ok := rise("waited", p.Counter(metric.ThreadRunDelay))
	ran, _, ok2 := rise("ran", p.Counter(metric.ThreadCPU))
	if !ok || !ok2 || ran.Number() == 0 {
		return false
	}
	stopped, _, limited := rise("stopped by a CPU quota", p.Counter(metric.CgroupThrottledTime))
	if waits := p.Gauge(metric.ThreadCPUWait); len(waits) > 0 { // with the waits of a quota told apart
		sum := 0.0
		for _, s := range waits {
			sum += s.Last()
		}
		waited, limited = quantity.Of("waited", sum, quantity.Seconds), false
	}
	if limited && stopped.AtLeast(p.Param(saturatedThrottled)) {
		f.Notes = append(f.Notes, "a CPU quota stopped the target for "+stopped.Text()+
			" (summed over CPUs): its own wait is not counted here, see cpu-throttled")
		return false
	}
	share := waited.Per(ran).Named("the target's threads: time waited for a CPU over time run")
	f.Evidence = append(f.Evidence, share)
	if share.Below(p.Param(saturatedWait)) {
		return false
	}
	f.Summary += fmt.Sprintf("; the target's waited %s and ran %s", waited.Text(), ran.Text())
	return true
}
