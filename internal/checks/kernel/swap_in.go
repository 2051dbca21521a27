package kernel

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	swapInRate = &check.Param{
		Name: "pages", Default: 100, Unit: "pages/s",
		Why: "at 0.1 ms a page from flash this is 1 % of one thread's time, from a turning disk all of it",
	}
	swapFaults = &check.Param{
		Name: "faults", Default: 100, Unit: "faults/s",
		Why: "without PSI: major faults at the same rate show that programs wait for these pages",
	}
)

var swapIn = &check.Check{
	Name:  "swap-in",
	Stage: check.Kernel,
	Doc: `Programs wait for memory to come back from swap

Pages that were swapped out are needed again. Swapping out is harmless by itself, and so is swap space in use: only
pages coming back make a program wait, one fault at a time.

The check takes the rate of pages swapped in. It is a warning when PSI says that work waited for memory, or where the
kernel has no PSI when major faults come at the same rate.

Fixes: less memory in use, memory limits that fit, pages of the latency-critical program locked. Won't help:
vm.swappiness=0 when memory is short: the kernel then thrashes the file cache instead. Disproof: vmstat 1 shows si at
0.`,
	URL:   "https://docs.kernel.org/admin-guide/sysctl/vm.html#swappiness",
	Needs: []metric.Metric{metric.SwapIn},
	Uses: []metric.Metric{
		metric.SwapOut, metric.MajorFaults, metric.Pressure, metric.MemoryAvailable,
		metric.MemoryTotal,
	},
	Params: []*check.Param{swapInRate, swapFaults, evidence.ParamMemoryStalled},
	Run:    runSwapIn,
}

func runSwapIn(p *check.Pass) error {
	rate, ok := evidence.RateOf("pages swapped in", p.Counter(metric.SwapIn))
	if !ok {
		return evidence.OneSample()
	}
	p.Read(rate)
	if rate.Below(p.Param(swapInRate)) {
		return nil
	}
	f := check.Finding{
		Subject:  check.Host,
		Severity: check.Info,
		Summary:  fmt.Sprintf("%s come back from swap", rate.Text()),
		Evidence: []quantity.Value{rate},
		Remedies: []check.Remedy{evidence.MoreMemory("pages swapped in from " + rate.Text() + " to 0")},
		Placebos: []string{
			"vm.swappiness=0 while memory is short: the kernel then evicts program code and file cache, and faults " +
				"those in.",
		},
		Disproof: "vmstat 1: si is 0 while the load runs.",
	}
	if out, ok := evidence.RateOf("pages swapped out", p.Counter(metric.SwapOut)); ok {
		f.Evidence = append(f.Evidence, out)
	}
	faults, known := evidence.RateOf("major faults", p.Counter(metric.MajorFaults))
	if known {
		f.Evidence = append(f.Evidence, faults)
	}
	evidence.AddMemoryLeft(p, &f)
	harm := evidence.AddMemoryStalls(p, &f)
	_, psi := evidence.Pressure(p, "memory", "some")
	if harm || !psi && known && faults.AtLeast(p.Param(swapFaults)) {
		f.Severity = check.Warning
		f.Summary += ", and programs wait for them"
	}
	p.Report(f)
	return nil
}
