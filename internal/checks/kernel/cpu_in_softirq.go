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
	softirqLevel = &check.Param{
		Name: "level", Default: 0.2, Unit: quantity.Ratio,
		Why: "from a fifth of the work on, it is reported as information; a healthy loopback server has 30 %, so it " +
			"alone is not a fault",
	}
	softirqMost = &check.Param{
		Name: "most", Default: 0.5, Unit: quantity.Ratio,
		Why: "above it the host does more packet handling than anything else; healthy servers measured up to 40 %",
	}
	softirqHostBusy = &check.Param{
		Name: "host-busy", Default: 0.8, Unit: quantity.Ratio,
		Why: "a router at half load is all softirq and has nothing wrong; at 80 % it has little left for a burst",
	}
	softirqOneCPU = &check.Param{
		Name: "one-cpu", Default: 0.8, Unit: quantity.Ratio,
		Why: "a CPU with so much softirq makes packets wait, whatever the others do",
	}
)

var cpuInSoftirq = &check.Check{
	Name:  "cpu-in-softirq",
	Stage: check.Kernel,
	Doc: `The CPUs handle packets rather than programs

Softirq time (si) is the kernel finishing interrupts: nearly always packets, sometimes timers or block completions. It
is taken from whatever program was running, and appears in no process.

The check takes si as a share of the busy time. A busy, healthy server on loopback has 30 %, so the level is only a
fact. It is a warning when most of the busy time is si while the host has little left, or when one CPU is full of it.

Fixes are those of the path and the connections: fewer packets (keep-alive, batching, larger segments), cheaper
packets (fewer rules, no bridge), more CPUs for them. Where BPF programs may run, the check names the kernel's
functions. Won't help: priorities of programs; softirq comes before any of them. Disproof: mpstat -P ALL 1 shows %soft
low.`,
	URL:    "https://man7.org/linux/man-pages/man5/proc_stat.5.html",
	Needs:  []metric.Metric{metric.CPUSeconds},
	Uses:   append(evidence.VectorUses(), metric.SoftnetProcessed, metric.HostCPUProfileSamples),
	Params: []*check.Param{softirqLevel, softirqMost, softirqHostBusy, softirqOneCPU, evidence.ParamBusyEnough},
	Run:    runCPUInSoftirq,
}

func runCPUInSoftirq(p *check.Pass) error {
	each, all, share, ok, err := evidence.BusyShares(p, "softirq")
	if !ok {
		return err
	}
	hot, _ := evidence.HottestSoftirq(each)
	full := hot.Softirq().AtLeast(p.Param(softirqOneCPU))
	most := share.AtLeast(p.Param(softirqMost)) && all.Load().AtLeast(p.Param(softirqHostBusy))
	if share.Below(p.Param(softirqLevel)) && !full {
		return nil
	}
	f := check.Finding{
		Subject:  check.Host,
		Severity: check.Info,
		Summary: fmt.Sprintf("softirq takes %s of the busy CPU time; the CPUs are %s busy", share.Text(), all.Load().
			Text()),
		Evidence: []quantity.Value{share, all.Load(), hot.Softirq()},
		Remedies: []check.Remedy{{
			Action: "Look at the path and the connections first: fewer packets (keep-alive, batching), cheaper ones " +
				"(rules, " +
				"bridges), more CPUs for them.",
			Risk:   "None in looking.",
			Effect: fmt.Sprintf("softirq below %s of the busy time", p.Param(softirqLevel).Text()),
		}},
		Placebos: []string{"nice and CPU shares: softirq runs before any program."},
		Disproof: "mpstat -P ALL 1: %soft is low.",
	}
	if full || most {
		f.Severity = check.Warning
	}
	if full {
		f.Summary = fmt.Sprintf("softirq takes %s of the time of %s and %s of all busy time",
			hot.Softirq().Text(), hot.Name(), share.Text())
	}
	if names, ok := softirqNames(p); ok {
		f.Notes = append(f.Notes, names.Notes("softirq time")...)
	}
	if _, load, part, timed := evidence.TopVector(p, ""); timed {
		f.Evidence = append(f.Evidence, load, part)
	}
	if processed, _, ok := evidence.Rise("packets processed", p.Counter(metric.SoftnetProcessed)); ok &&
		processed.Number() > 0 {
		f.Evidence = append(f.Evidence,
			all.Time("softirq", "softirq").Per(processed).As(quantity.Seconds).
				Named("softirq time per packet processed"))
	}
	p.Report(f)
	return nil
}

// softirqNames names what softirqs do. They run on behalf of nobody, so it does not name who was interrupted.
func softirqNames(p *check.Pass) (n evidence.KernelNames, ok bool) {
	h, ok := hotcode.HostOf(p.Recording)
	if !ok {
		return n, false
	}
	n, ok = evidence.KernelNamesOf(p, h.Softirq(), "softirq")
	n.Calls, n.Processes, n.Evidence = "", "", nil
	return n, ok
}
