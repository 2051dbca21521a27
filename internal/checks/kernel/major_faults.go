package kernel

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	majorRate = &check.Param{
		Name: "rate", Default: 100, Unit: "faults/s",
		Why: "at 0.1 ms each from flash this is 1 % of one thread's time, from a turning disk all of it",
	}
	majorLasting = &check.Param{
		Name: "lasting", Default: 0.5, Unit: quantity.Ratio,
		Why: "a program that starts faults its files in for a second or two; in over half the intervals it is no start",
	}
	majorIO = &check.Param{
		Name: "io-stalled", Default: 0.2, Unit: quantity.Ratio,
		Why: "PSI io: someone waited for storage in a fifth of the time",
	}
)

var majorFaults = &check.Check{
	Name:  "major-faults",
	Stage: check.Kernel,
	Doc: `Programs wait for pages to be read from disk

A major fault is an access to memory whose page must be read first: program code or a mapped file that was evicted, or
a page from swap. The thread stops for the read, in the middle of whatever it did.

The check takes the host's rate, and names the target's processes that have such faults. A warning needs the rate in
most intervals, so that a program's start does not count, and PSI saying that work waited for memory or storage.

Fixes: memory for the working set (see direct-reclaim, swap-in, and the cgroup's limit), mapped files read ahead or
locked (mlock, MAP_POPULATE). Disproof: pidstat -r 1 shows majflt/s near 0.`,
	URL:    "https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html",
	Needs:  []metric.Metric{metric.MajorFaults},
	Uses:   []metric.Metric{metric.ProcessFaults, metric.Pressure, metric.MemoryAvailable, metric.MemoryTotal},
	Params: []*check.Param{majorRate, majorLasting, majorIO, evidence.ParamMemoryStalled},
	Run:    runMajorFaults,
}

func runMajorFaults(p *check.Pass) error {
	series := p.Counter(metric.MajorFaults)
	rate, ok := evidence.RateOf("major faults", series)
	if !ok {
		return evidence.OneSample()
	}
	p.Read(rate)
	if rate.Below(p.Param(majorRate)) {
		return nil
	}
	f := check.Finding{
		Subject:  check.Host,
		Severity: check.Info,
		Summary:  fmt.Sprintf("%s page faults a second had to read from disk first", evidence.WithoutUnit(rate)),
		Evidence: []quantity.Value{rate},
		Notes:    faultingProcesses(p),
		Remedies: []check.Remedy{
			evidence.MoreMemory("major faults from " + rate.Text() + " towards 0 once the working set fits"),
		},
		Disproof: "pidstat -r 1: majflt/s is near 0, or sar -B 1 shows majflt/s only while a program starts.",
	}
	n, of := evidence.IntervalsAtLeast(p.Param(majorRate).Number(), series)
	lasting := quantity.Of("", float64(n), "intervals").Per(quantity.Of("", float64(of), "intervals")).
		Named("intervals with this rate")
	f.Evidence = append(f.Evidence, lasting)
	evidence.AddMemoryLeft(p, &f)
	harm := evidence.AddMemoryStalls(p, &f)
	if io, ok := evidence.Pressure(p, "io", "some"); ok {
		f.Evidence = append(f.Evidence, io)
		harm = harm || io.AtLeast(p.Param(majorIO))
	}
	if harm && lasting.AtLeast(p.Param(majorLasting)) {
		f.Severity = check.Warning
	}
	p.Report(f)
	return nil
}

// faultingProcesses names the target's processes with major faults.
func faultingProcesses(p *check.Pass) []string {
	var out []string
	for _, s := range p.Counter(metric.ProcessFaults, "kind", "major") {
		if n, ok := s.Increase(); ok && n > 0 && len(out) < evidence.NamedProcesses {
			out = append(out, fmt.Sprintf("%s had %.0f major faults", evidence.PIDName(s.Label("pid"), s.Label("comm")),
				n))
		}
	}
	return out
}
