package kernel

import (
	"fmt"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

const faultsPerCPUSecond = quantity.Unit("faults/CPU-s")

var (
	faultRate = &check.Param{
		Name: "rate", Default: 50000, Unit: faultsPerCPUSecond,
		Why: "a fault with its zeroed page costs 1 to 2 µs, more in a virtual machine: this is 5 to 10 % of the CPU " +
			"time at least",
	}
	faultSystem = &check.Param{
		Name: "system", Default: 0.3, Unit: quantity.Ratio,
		Why: "faults are system time: with less of it they do not matter to the process",
	}
	faultCPU = &check.Param{
		Name: "min-cpu", Default: 1, Unit: quantity.Seconds,
		Why: "short-lived processes, such as those of a compile, fault their memory in once and end: that is no storm",
	}
	faultLasting = &check.Param{
		Name: "lasting", Default: 0.8, Unit: quantity.Ratio,
		Why: "a program that starts touches its heap once and a compiler ends soon; a storm goes on over the whole " +
			"window",
	}
)

var pageFaultStorm = &check.Check{
	Name:  "page-fault-storm",
	Stage: check.Kernel,
	Doc: `A process faults its memory in over and over

A minor fault gives a process a page it touches for the first time: the kernel takes a free page, zeroes it and maps
it. A program that frees memory to the system and takes it again pays for each page each time: large buffers by malloc
and free (mmap and munmap above the allocator's threshold), a heap that shrinks and grows, fork for each request.

The check takes the minor faults of each of the target's processes per second of CPU time it used. A warning needs the
rate in nearly all intervals and the process's own system time as effect. A process that lives for a part of the
window only, as those of a compile, gives no warning. The system time per fault is an upper bound: other system calls
are in it; where BPF programs may run, the share of the process's CPU samples that are in a fault is measured.

Fixes: reuse buffers, raise the allocator's thresholds (MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_), a fixed heap
size, huge pages. Disproof: perf stat -e minor-faults -p PID counts few.`,
	URL:    "https://man7.org/linux/man-pages/man3/mallopt.3.html",
	Needs:  []metric.Metric{metric.ProcessFaults, metric.ProcessCPU},
	Uses:   []metric.Metric{metric.THPSplits, metric.HostCPUProfileSamples},
	Params: []*check.Param{faultRate, faultSystem, faultCPU, faultLasting},
	Run:    runPageFaultStorm,
}

func runPageFaultStorm(p *check.Pass) error {
	assessed := false
	for _, s := range p.Counter(metric.ProcessFaults, "kind", "minor") {
		faults, seconds, ok := evidence.Rise("minor faults", []recording.CounterSeries{s})
		if !ok {
			continue
		}
		assessed = true
		assessFaults(p, s, faults, seconds)
	}
	if !assessed && len(p.Counter(metric.ProcessFaults)) > 0 {
		return evidence.OneSample()
	}
	return nil
}

func assessFaults(p *check.Pass, s recording.CounterSeries, faults, seconds quantity.Value) {
	who := evidence.PIDName(s.Label("pid"), s.Label("comm"))
	cpu, _, ok := evidence.Rise("CPU time", p.Counter(metric.ProcessCPU, "pid", s.Label("pid")))
	system, _, ok2 := evidence.Rise("system time", p.Counter(metric.ProcessCPU, "pid", s.Label("pid"), "mode",
		"system"))
	if !ok || !ok2 || cpu.Below(p.Param(faultCPU)) {
		p.Read(cpu.Named("CPU time of %s, too little to tell", who))
		return
	}
	rate := faults.Per(cpu).As(faultsPerCPUSecond).Named("minor faults per CPU-second of %s", who)
	p.Read(rate)
	share := system.Per(cpu).Named("system time, share of its CPU time")
	if rate.Below(p.Param(faultRate)) || share.Below(p.Param(faultSystem)) {
		return
	}
	f := check.Finding{
		Subject:  check.Subject{Kind: "pid", ID: who},
		Severity: check.Info,
		Summary: fmt.Sprintf("%s takes %s minor faults per second of CPU time; the kernel has %s of its time", who,
			evidence.WithoutUnit(rate), share.Text()),
		Evidence: []quantity.Value{
			rate, share, faults.Per(seconds).Named("minor faults"),
			system.Per(faults).As(quantity.Seconds).Named("system time per fault, at most"),
		},
		Remedies: []check.Remedy{{
			Action: "Reuse memory instead of giving it back: pool large buffers, fix the heap's size, " +
				"or raise the allocator's thresholds.",
			Command: "MALLOC_TRIM_THRESHOLD_=268435456 MALLOC_MMAP_THRESHOLD_=268435456 (glibc; environment of the " +
				"process)",
			Risk: "The process keeps its peak memory.",
			Effect: fmt.Sprintf("minor faults below %s; at most %s of system time less in the window",
				p.Param(faultRate).Text(), system.Text()),
		}},
		Disproof: "perf stat -e minor-faults -p " + check.Quote(s.Label("pid")) +
			" counts few, or perf trace -F min shows them only at start.",
	}
	if sampled, ok := entryShare(p, s.Label("pid"), "page fault"); ok {
		f.Evidence = append(f.Evidence, sampled)
	}
	if splits, ok := evidence.RateOf("huge pages split on the host", p.Counter(metric.THPSplits)); ok &&
		splits.Number() > 0 {
		f.Evidence = append(f.Evidence, splits)
	}
	n, of := evidence.IntervalsAtLeast(p.Param(faultRate).Number()*cpu.Number()/seconds.Number()/2,
		[]recording.CounterSeries{s})
	whole := quantity.Of("window", max(p.Meta.Duration, seconds.Number()), quantity.Seconds)
	lasting := quantity.Of("", seconds.Number()*float64(n)/float64(of), quantity.Seconds).Per(whole).
		Named("part of the window with half this rate or more")
	f.Evidence = append(f.Evidence, lasting)
	if lasting.AtLeast(p.Param(faultLasting)) {
		f.Severity = check.Warning
	}
	p.Report(f)
}

// entryShare gives the share of a process's CPU samples that came into the kernel by an entry as [hotcode.Entry] names
// it; ok is false without a profile or with too few samples.
func entryShare(p *check.Pass, pid, entry string) (share quantity.Value, ok bool) {
	h, ok := hotcode.HostOf(p.Recording)
	n, err := strconv.Atoi(pid)
	if !ok || err != nil {
		return share, false
	}
	own := h.Of(n)
	all := own.Total().Count
	if all < evidence.EnoughKernel {
		return share, false
	}
	hit := own.Filter(func(s stacks.Sample) bool { return hotcode.Entry(own, s) == entry })
	return evidence.SampleShare(entry, hit.Total().Count, all, "process's CPU"), true
}
