package kernel

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/usage"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	stealWarn = &check.Param{
		Name: "warn", Default: 0.05, Unit: quantity.Ratio,
		Why: "below it neighbours cost less than the noise of a shared host; above it latency tails show it",
	}
	stealCritical = &check.Param{
		Name: "critical", Default: 0.1, Unit: quantity.Ratio,
		Why: "a tenth of all CPU time is gone: threads stop for whole time slices in the middle of a request",
	}
	stealLost = &check.Param{
		Name: "lost", Default: 0.05, Unit: quantity.CPUs,
		Why: "lost to the target: one that always wants a CPU loses this much where steal is a warning; one that " +
			"wants little nearly always waits for something else",
	}
	stealRequests = &check.Param{
		Name: "requests", Default: 0.1, Unit: quantity.Ratio,
		Why: "of the time of a request: a tenth of a response time is noticed, less is not",
	}
	stealIdle = &check.Param{
		Name: "idle", Default: 0.1, Unit: quantity.Ratio,
		Why: "of the CPUs, neither busy nor stolen: with less, requests queue for CPUs, and stolen time is lost work",
	}
)

var cpuSteal = &check.Check{
	Name:  "cpu-steal",
	Stage: check.Kernel,
	Doc: `The hypervisor gives this machine's CPU time to others

Steal (st) is time in which a virtual CPU wanted to run and the hypervisor did not let it: an overcommitted host, a
CPU limit of the instance type, or used-up burst credits. Nothing inside the machine can be tuned against it, and it
distorts every other CPU number.

The check takes steal as a share of the wall time of all CPUs. Steal is not counted as busy time anywhere in this
report. A stopped CPU stops whatever it was doing, locks and interrupts included. For a named target the harm is what
it loses: the CPU time it wants (what its threads used, and what they waited for a CPU), times the share of all wanted
time that was stolen. That share ranks the finding among what the target does with the time it gets. A target that
wants little loses little, and steal is only information. It is also only information where CPUs are idle and the loss
is a small part of the time of the requests in progress: they wait for something else.

Fixes: another host or instance type, dedicated CPUs, fewer virtual CPUs than physical ones. Won't help: more virtual
CPUs on a full host. Disproof: vmstat 1 shows st near 0.`,
	URL:   "https://man7.org/linux/man-pages/man5/proc_stat.5.html",
	Needs: []metric.Metric{metric.CPUSeconds},
	Uses: append([]metric.Metric{
		metric.HostInfo, metric.ThreadRunDelay, metric.ProcessCPU, metric.ProcessChildrenCPU, metric.ProcessInfo,
		metric.ProcessStart, metric.TargetInfo, metric.CgroupCPU,
	}, evidence.RequestMetrics()...),
	Params: []*check.Param{stealWarn, stealCritical, stealLost, stealRequests, stealIdle},
	Run:    runCPUSteal,
}

func runCPUSteal(p *check.Pass) error {
	_, all, err := evidence.CPUTimes(p)
	if err != nil {
		return err
	}
	share := all.OfWall("steal", "steal")
	p.Read(share)
	if share.Below(p.Param(stealWarn)) {
		return nil
	}
	f := check.Finding{
		Subject:  check.Host,
		Severity: check.Warning,
		Summary:  fmt.Sprintf("the hypervisor took %s of the time of this machine's CPUs", share.Text()),
		Evidence: []quantity.Value{share, all.Load()},
		Remedies: []check.Remedy{{
			Action: "Move the machine to a less loaded host, or to an instance type with dedicated CPUs or without " +
				"burst credits.",
			Risk:   "A move restarts or pauses the machine; dedicated CPUs cost more.",
			Effect: fmt.Sprintf("steal from %s to below %s", share.Text(), p.Param(stealWarn).Text()),
		}},
		Placebos: []string{"More virtual CPUs on the same host: they share the same physical ones."},
		Disproof: "vmstat 1: st is near 0 while the load runs.",
	}
	if share.AtLeast(p.Param(stealCritical)) {
		f.Severity = check.Critical
	}
	if virtualization(p) == "" {
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "no hypervisor was recognised, and only a hypervisor can steal time")
	}
	if lost, part, known := stolenFromTarget(p, all); known {
		f.Evidence = append(f.Evidence, lost)
		f.Severity, f.Weight = check.Warning, part // ranked among what it does with the time that it gets
		if lost.Below(p.Param(stealLost)) {
			f.Severity = check.Info
			f.Notes = append(f.Notes, "it hardly harms the target, which wants little CPU time")
		}
		stealOfRequests(p, &f, all, share, lost)
	}
	p.Report(f)
	return nil
}

// stealOfRequests lowers the finding if CPUs are idle and the target's loss is a small part of the time of its
// requests. By Little's law that part is the CPUs lost over the requests in progress (J. Little, Operations Research
// 9, 1961).
func stealOfRequests(p *check.Pass, f *check.Finding, all evidence.CPUTime, share, lost quantity.Value) {
	r, ok := evidence.RequestsOf(p)
	idle := quantity.Of("neither busy nor stolen", 1-all.Load().Number()-share.Number(), quantity.Ratio)
	if !ok || idle.Below(p.Param(stealIdle)) {
		return
	}
	part := lost.Per(r.InProgress).As(quantity.Ratio).Named("of the time of a request, what the hypervisor takes")
	f.Evidence = append(f.Evidence, part)
	f.Weight = min(f.Weight, part.Number())
	if part.Below(p.Param(stealRequests)) {
		f.Severity = check.Info
	}
}

// stolenFromTarget returns how many CPUs the hypervisor took from the target: the CPUs that the target wanted, times
// part, the stolen share of all time in which CPUs were wanted. known is false for a host, and where the kernel does
// not count how long threads wait for a CPU.
func stolenFromTarget(p *check.Pass, all evidence.CPUTime) (lost quantity.Value, part float64, known bool) {
	target, counted := usage.OfTarget(p.Recording)
	waited, _, ok := evidence.Rise("waited", p.Counter(metric.ThreadRunDelay))
	if !counted || !ok || target.Window <= 0 {
		return lost, 0, false
	}
	wanted := (target.Used.Sum() + waited.Number()) / target.Window
	steal := all.Time("stolen", "steal").Number()
	share := steal / (steal + all.Busy().Number())
	return quantity.Of("CPUs wanted by the target", wanted, quantity.CPUs).
		Times(quantity.Of("stolen of all time in which CPUs were wanted", share, quantity.Ratio)).
		Named("CPUs that the target lost to it"), share, true
}

func virtualization(p *check.Pass) string {
	for _, s := range p.Info(metric.HostInfo) {
		if v := s.Label("virtualization"); v != "" && v != "none" {
			return v
		}
	}
	return ""
}
