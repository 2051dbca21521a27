package kernel

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

var (
	stealWarn = &check.Param{
		Name: "warn", Default: 0.05, Unit: quantity.Ratio,
		Why: "below it neighbours cost less than the noise of a shared host; above it tails of latency show it",
	}
	stealCritical = &check.Param{
		Name: "critical", Default: 0.1, Unit: quantity.Ratio,
		Why: "a tenth of all CPU time is gone: threads stop for whole time slices in the middle of a request",
	}
)

var cpuSteal = &check.Check{
	Name:  "cpu-steal",
	Stage: check.Kernel,
	Doc: `The hypervisor gives this machine's CPU time to others

Steal (st) is time in which a virtual CPU wanted to run and the hypervisor did not let it: an overcommitted host, a
CPU limit of the instance type, or used-up burst credits. Nothing inside the machine can be tuned against it, and
every other CPU number is distorted by it.

The check takes steal as a share of the wall time of all CPUs. Steal is not counted as busy time anywhere in this
report. The harm is inherent: a stopped CPU stops whatever it was doing, locks and interrupts included.

Fixes: another host or instance type, dedicated CPUs, fewer virtual CPUs than physical ones. Won't help: more virtual
CPUs on a full host. Disproof: vmstat 1 shows st near 0.`,
	URL:    "https://man7.org/linux/man-pages/man5/proc_stat.5.html",
	Needs:  []metric.Metric{metric.CPUSeconds},
	Uses:   []metric.Metric{metric.HostInfo},
	Params: []*check.Param{stealWarn, stealCritical},
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
		f.Doubts = append(f.Doubts, "no hypervisor was recognised, and only one can steal time")
	}
	p.Report(f)
	return nil
}

func virtualization(p *check.Pass) string {
	for _, s := range p.Info(metric.HostInfo) {
		if v := s.Label("virtualization"); v != "" && v != "none" {
			return v
		}
	}
	return ""
}
