package kernel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
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
it. A program that returns memory to the system and takes it again pays for every page every time: large buffers by
malloc and free (mmap and munmap above the allocator's threshold), a heap that shrinks and grows, fork for each
request.

The check takes the minor faults of the target's processes per second of CPU time they used; processes of one name
count together, as those of a database. A warning needs the rate in nearly all intervals and the processes' own system
time as effect. Processes that live for only a part of the window, such as those of a compile, give no warning. The
system time per fault is an upper bound, since it includes other system calls. Where BPF programs may run, the check
measures the share of the CPU samples that are in a fault, and code that takes more of the CPU time comes first.

Fixes: reuse buffers, raise the allocator's thresholds (MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_), a fixed heap
size, huge pages. Disproof: perf stat -e minor-faults -p PID counts few.`,
	URL:    "https://man7.org/linux/man-pages/man3/mallopt.3.html",
	Needs:  []metric.Metric{metric.ProcessFaults, metric.ProcessCPU},
	Uses:   []metric.Metric{metric.THPSplits, metric.HostCPUProfileSamples, metric.ScriptProfileSamples},
	Params: []*check.Param{faultRate, faultSystem, faultCPU, faultLasting},
	Run:    runPageFaultStorm,
}

func runPageFaultStorm(p *check.Pass) error {
	all := p.Counter(metric.ProcessFaults, "kind", "minor")
	assessed := false
	for _, name := range evidence.LabelValues(all, "comm") {
		g := faultsOf(p, name)
		if g.seconds.Number() > 0 {
			assessed = true
			assessFaults(p, g)
		}
	}
	if !assessed && len(p.Counter(metric.ProcessFaults)) > 0 {
		return evidence.OneSample()
	}
	return nil
}

// faulting holds the processes of one name.
type faulting struct {
	who             string // the one with most faults, and how many others there are
	pids            []string
	counters        []recording.CounterSeries
	faults, seconds quantity.Value
	cpu, system     quantity.Value
}

// faultsOf sums the processes of a name whose CPU time is known; seconds is 0 if there are none.
func faultsOf(p *check.Pass, name string) (g faulting) {
	var cpu, system []recording.CounterSeries
	most, heaviest := 0.0, ""
	for _, s := range p.Counter(metric.ProcessFaults, "kind", "minor", "comm", name) {
		pid := s.Label("pid")
		times := p.Counter(metric.ProcessCPU, "pid", pid)
		n, twice := s.Increase()
		if !twice || len(times) == 0 {
			continue
		}
		g.pids, g.counters, cpu = append(g.pids, pid), append(g.counters, s), append(cpu, times...)
		system = append(system, p.Counter(metric.ProcessCPU, "pid", pid, "mode", "system")...)
		if n >= most {
			most, heaviest = n, pid
		}
	}
	g.faults, g.seconds, _ = evidence.Rise("minor faults", g.counters)
	g.cpu, _, _ = evidence.Rise("CPU time", cpu)
	g.system, _, _ = evidence.Rise("system time", system)
	g.who = evidence.PIDName(heaviest, name)
	if n := len(g.pids) - 1; n > 0 {
		g.who += fmt.Sprintf(" and %d more", n)
	}
	return g
}

func assessFaults(p *check.Pass, g faulting) {
	if g.cpu.Below(p.Param(faultCPU)) {
		p.Read(g.cpu.Named("CPU time of %s, too little to tell", g.who))
		return
	}
	rate := g.faults.Per(g.cpu).As(faultsPerCPUSecond).Named("minor faults per CPU-second of %s", g.who)
	p.Read(rate)
	share := g.system.Per(g.cpu).Named("system time, share of its CPU time")
	if rate.Below(p.Param(faultRate)) || share.Below(p.Param(faultSystem)) {
		return
	}
	f := check.Finding{
		Subject:  check.Subject{Kind: "pid", ID: g.who},
		Severity: check.Info,
		Summary: fmt.Sprintf("%s minor faults per second of CPU time in %s; the kernel has %s of that time",
			evidence.WithoutUnit(rate), g.who, share.Text()),
		Evidence: []quantity.Value{
			rate, share, g.faults.Per(g.seconds).Named("minor faults"),
			g.system.Per(g.faults).As(quantity.Seconds).Named("system time per fault, at most"),
		},
		Remedies: []check.Remedy{{
			Action: "Reuse memory instead of giving it back: pool large buffers, fix the heap's size, " +
				"or raise the allocator's thresholds.",
			Command: faultCommand(p),
			Risk:    "The process keeps its peak memory.",
			Effect: fmt.Sprintf("minor faults below %s; at most %s of system time less in the window",
				p.Param(faultRate).Text(), g.system.Text()),
		}},
		Disproof: "perf stat -e minor-faults -p " + check.Quote(strings.Join(g.pids, ",")) +
			" counts few, or perf trace -F min shows them only at start.",
	}
	if prof, hits, ok := inFaults(p, g.pids); ok {
		sampled := evidence.SampleShare(pageFault, evidence.Weigh(hits).Count, prof.Total().Count, "process's CPU")
		f.Evidence = append(f.Evidence, sampled)
		f.Weight = sampled.Number()
		blameFaults(p, prof, hits, &f)
	}
	if splits, ok := evidence.RateOf("huge pages split on the host", p.Counter(metric.THPSplits)); ok &&
		splits.Number() > 0 {
		f.Evidence = append(f.Evidence, splits)
	}
	n, of := evidence.IntervalsAtLeast(p.Param(faultRate).Number()*g.cpu.Number()/g.seconds.Number()/2,
		g.counters)
	whole := quantity.Of("window", max(p.Meta.Duration, g.seconds.Number()), quantity.Seconds)
	lasting := quantity.Of("", g.seconds.Number()*float64(n)/float64(of), quantity.Seconds).Per(whole).
		Named("part of the window with half this rate or more")
	f.Evidence = append(f.Evidence, lasting)
	if lasting.AtLeast(p.Param(faultLasting)) {
		f.Severity = check.Warning
	}
	p.Report(f)
}

// faultCommand returns a setting of glibc's thresholds. It is empty for Go and a JVM, whose memory does not come from
// glibc.
func faultCommand(p *check.Pass) check.Command {
	switch p.Meta.Target.Runtime {
	case "go", "jvm":
		return ""
	}
	return "MALLOC_TRIM_THRESHOLD_=268435456 MALLOC_MMAP_THRESHOLD_=268435456 (glibc; environment of the process)"
}

// pageFault is what [hotcode.Entry] returns for a page fault.
const pageFault = "page fault"

// blameFaults names the functions that touch the memory.
func blameFaults(p *check.Pass, prof *stacks.Profile, hits []evidence.Hit, f *check.Finding) {
	var all int64
	for _, h := range hits {
		all += h.Sample.Value
	}
	list := evidence.Culprits(prof, hotcode.OwnersOf(p.Recording), hits, nil)
	script := evidence.ScriptPlace(p) // the samples of faults hold no functions of scripts
	f.Summary += script
	for i, c := range list[:min(len(list), evidence.NamedCulprits)] {
		if i == 0 && 2*c.Value > all && script == "" {
			f.Summary += "; most of the faults are for " + c.Name()
		}
		f.Notes = append(f.Notes, fmt.Sprintf("%s of them for %s", evidence.PartText(c.Value, all), c.Name()))
	}
	f.Marks = evidence.MarksOf(stacks.HostCPU, hits)
}

// inFaults returns the CPU samples of processes, and those of them in page faults; ok is false without a profile or
// with too few samples.
func inFaults(p *check.Pass, pids []string) (own *stacks.Profile, hits []evidence.Hit, ok bool) {
	h, ok := hotcode.HostOf(p.Recording)
	if !ok {
		return nil, nil, false
	}
	own = h.Filter(func(s stacks.Sample) bool { return slices.Contains(pids, strconv.Itoa(h.ThreadOf(s).ID)) })
	for _, s := range own.Samples {
		if hotcode.Entry(own, s) == pageFault {
			hits = append(hits, evidence.Hit{Sample: s})
		}
	}
	return own, hits, own.Total().Count >= evidence.EnoughKernel
}
