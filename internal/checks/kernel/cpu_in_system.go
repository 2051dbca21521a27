package kernel

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	systemMost = &check.Param{
		Name: "most", Default: 0.8, Unit: quantity.Ratio,
		Why: "nginx under wrk on loopback has 50 to 65 %; the search for a free port measured 89.5 %",
	}
	systemHostBusy = &check.Param{
		Name: "host-busy", Default: 0.5, Unit: quantity.Ratio,
		Why: "with half the CPU time idle the kernel's share takes nothing from programs",
	}
	systemWaiting = &check.Param{
		Name: "waiting", Default: 0.2, Unit: quantity.Ratio,
		Why: "PSI: someone waited for a CPU in a fifth of the time; a single copying program waits for nobody",
	}
)

var cpuInSystem = &check.Check{
	Name:  "cpu-in-system",
	Stage: check.Kernel,
	Doc: `The CPUs work for the kernel rather than for programs

System time (sy) is the kernel working on behalf of programs: system calls, page faults, the search for a free port,
locks in the kernel. It belongs to processes, so the check names those with the most of it.

The level alone is a fact: a web server on loopback has 50 to 65 % of its busy time in sy. It is a warning when nearly
all busy time is sy, the CPUs are busy, and others wait for them (PSI cpu, or more runnable threads than CPUs where
the kernel has no PSI).

The fix follows from what the kernel does. Where BPF programs may run, all CPUs are sampled 99 times a second, and
the check names the kernel's functions, the system calls that led there and the processes that made them; elsewhere
perf top -a -g or perf trace -s -p PID show them. Earlier findings usually explain it already. Disproof: mpstat 1 shows
%sys low, or the named processes are idle.`,
	URL:   "https://man7.org/linux/man-pages/man5/proc_stat.5.html",
	Needs: []metric.Metric{metric.CPUSeconds},
	Uses:  []metric.Metric{metric.ProcessCPU, metric.Pressure, metric.ProcsRunning, metric.HostCPUProfileSamples},
	Params: []*check.Param{
		evidence.ParamSystemLevel, systemMost, systemHostBusy, systemWaiting,
		evidence.ParamBusyEnough,
	},
	Run: runCPUInSystem,
}

func runCPUInSystem(p *check.Pass) error {
	each, all, share, ok, err := evidence.BusyShares(p, "system")
	if !ok {
		return err
	}
	if share.Below(p.Param(evidence.ParamSystemLevel)) {
		return nil
	}
	f := check.Finding{
		Subject:  check.Host,
		Severity: check.Info,
		Summary: fmt.Sprintf("the kernel (sy) takes %s of the busy CPU time; the CPUs are %s busy", share.Text(),
			all.Load().Text()),
		Evidence: []quantity.Value{share, all.Load()},
		Notes:    evidence.BusiestNote(p, "system time", "system"),
		Remedies: []check.Remedy{{
			Action: "See what the kernel does for the process with most system time, then do it less often or in " +
				"larger pieces.",
			Command: "perf trace -s -a -- sleep 5; perf top -a -g",
			Risk:    "perf trace slows system calls while it runs.",
			Effect: fmt.Sprintf("sy from %s towards below %s of the busy time", share.Text(),
				p.Param(evidence.ParamSystemLevel).Text()),
		}},
		Disproof: "mpstat 1: %sys is low, or pidstat -u 1 shows the time elsewhere.",
	}
	if names, ok := systemNames(p); ok {
		f.Summary += kernelSummary(names)
		f.Evidence = append(f.Evidence, names.Evidence...)
		f.Notes = append(f.Notes, names.Notes("system time")...)
	}
	if share.AtLeast(p.Param(systemMost)) && all.Load().AtLeast(p.Param(systemHostBusy)) &&
		othersWait(p, &f, len(each)) {
		f.Severity = check.Warning
	}
	p.Report(f)
	return nil
}

// othersWait reports whether the kernel takes its time from somebody, and adds the number that shows it.
func othersWait(p *check.Pass, f *check.Finding, cpus int) bool {
	if waiting, ok := evidence.Pressure(p, "cpu", "some"); ok {
		f.Evidence = append(f.Evidence, waiting)
		return waiting.AtLeast(p.Param(systemWaiting))
	}
	f.Confidence = check.Medium
	f.Doubts = append(f.Doubts, "this kernel has no pressure stall information: waiting is judged from the run queue")
	runnable, ok := evidence.RunnableThreads(p)
	if !ok {
		return false
	}
	f.Evidence = append(f.Evidence, runnable)
	return runnable.Above(quantity.Of("CPUs", float64(cpus), quantity.Threads))
}

// mostly is the least share at which a summary names one system call.
const mostly = 0.5

// kernelSummary returns the end of a finding's summary; it is empty when no system call has most of the time.
func kernelSummary(n evidence.KernelNames) string {
	if len(n.Evidence) == 0 || n.Evidence[0].Number() < mostly {
		return ""
	}
	return fmt.Sprintf("; most of it is %s, most by %s", n.Call, n.Process)
}

// systemNames says what the kernel does on behalf of processes; ok is false without a profile, or with too few samples
// in the kernel.
func systemNames(p *check.Pass) (n evidence.KernelNames, ok bool) {
	h, ok := hotcode.HostOf(p.Recording)
	if !ok {
		return n, false
	}
	return evidence.KernelNamesOf(p, h.System(), "system")
}
