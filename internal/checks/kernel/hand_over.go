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
	handOverRate = &check.Param{
		Name: "switches", Default: 20_000, Unit: "switches/CPU-s",
		Why: "a thread then runs for 50 µs before it waits for another one; waiting and waking cost 3 to 10 µs",
	}
	handOverSystem = &check.Param{
		Name: "system-share", Default: 0.3, Unit: quantity.Ratio,
		Why: "of the program's CPU time: what the kernel needs to put threads to sleep and to wake them",
	}
	handOverCPU = &check.Param{
		Name: "min-cpus", Default: 0.5, Unit: quantity.CPUs,
		Why: "with less the program does something else for most of the time, or nothing",
	}
	handOverSeen = &check.Param{
		Name: "min-cpu", Default: 0.5, Unit: quantity.Seconds,
		Why: "of the threads that were there at two looks: over less, a rate per CPU-second is noise",
	}
	handOverThreads = &check.Param{
		Name: "threads", Default: 2, Unit: quantity.Threads,
		Why: "a thread that is alone waits for something outside of the program",
	}
	handOverAsks = &check.Param{
		Name: "asks", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the waits: an exchange with a destination has one for the answer, and one for the thread that takes " +
			"over meanwhile",
	}
)

var handOver = &check.Check{
	Name:  "hand-over",
	Stage: check.Kernel,
	Doc: `Threads hand work to each other for next to nothing

A thread that gives a piece of work to another one wakes it, and waits until it
is done. If the work takes less time than sleeping and waking, the program is
busy with handing over. Pools that get one number at a time do this, and so do
processes that send each other a few bytes through a pipe.

Measured: the voluntary switches of the target's threads per second of CPU time
that they used, and the kernel's share of that time. A program that listens for
clients is left out, and so is one that asks others as often as it waits:
waiting for them is its work.

Fix: hand over more at a time (chunks, batches, larger writes), or do small
work where it comes up. Won't help: more threads or CPUs; they wait for each other,
too. Disproof: pidstat -wt 1 shows cswch/s low for these threads.`,
	URL:   "https://man7.org/linux/man-pages/man2/getrusage.2.html",
	Needs: []metric.Metric{metric.ThreadSwitches, metric.ThreadCPU, metric.TargetListenPorts},
	Uses: append(evidence.LedgerMetrics(), metric.DestinationData, metric.CPUProfileSamples,
		metric.ScriptProfileSamples, metric.HostCPUProfileSamples, metric.ScriptRuntime),
	Params: []*check.Param{handOverRate, handOverSystem, handOverCPU, handOverThreads, handOverSeen, handOverAsks},
	Run:    runHandOver,
}

func runHandOver(p *check.Pass) error {
	serves, known := evidence.Serves(p)
	if !known {
		return check.NotAssessed("name a process", "which thread waits for which is known only for a target")
	}
	waits, cpu, system, threads, most := handOvers(p)
	p.Read(quantity.Of("CPU time of the target's threads", cpu, quantity.Seconds))
	seconds := quantity.Of("CPU time", cpu, quantity.Seconds)
	if serves || seconds.Below(p.Param(handOverSeen)) || threads.Below(p.Param(handOverThreads)) ||
		!waitsForOwn(p, most) {
		return nil
	}
	used := usedByTarget(p)
	rate := quantity.Of("waits begun", waits, quantity.Switches).Per(seconds).As("switches/CPU-s").
		Named("waits of its threads per CPU-second")
	kernel := quantity.Of("system time", system, quantity.Seconds).Per(seconds).
		Named("system time, share of its CPU time")
	asks := quantity.Of("segments with data to destinations", evidence.Risen(p.Gauge(metric.DestinationData)...),
		quantity.Switches).Per(quantity.Of("waits begun", waits, quantity.Switches)).
		Named("of the waits, for answers of others at most")
	p.Read(rate)
	if asks.AtLeast(p.Param(handOverAsks)) {
		return nil
	}
	if used.Below(p.Param(handOverCPU)) || rate.Below(p.Param(handOverRate)) || kernel.Below(p.Param(handOverSystem)) {
		return nil
	}
	each := quantity.Of("", 1/rate.Number(), quantity.Seconds)
	f := check.Finding{
		Subject:    check.Subject{Kind: "pid", ID: evidence.PIDName(fmt.Sprint(p.Meta.Target.PID), p.Meta.Target.Name)},
		Severity:   check.Warning,
		Confidence: check.Medium,
		Weight:     kernel.Number(),
		Summary: fmt.Sprintf("its threads run for %s until they wait for each other again; %s of the CPU time is the "+
			"kernel's, to put them to sleep and wake them", each.Text(), kernel.Text()),
		Evidence: []quantity.Value{rate, kernel, used, threads},
		Remedies: []check.Remedy{{
			Action: "Hand over more at a time (chunks, batches, larger writes), or do small work where it comes up.",
			Risk:   "a larger piece is done later",
			Effect: fmt.Sprintf("with ten times as much in each, system time falls to a tenth of %s", kernel.Text()),
		}},
		Placebos: []string{"More threads or CPUs: they wait for each other, too."},
		Disproof: "pidstat -wt 1: cswch/s of these threads is low.",
	}
	if c, ok := hotcode.CPUOf(p.Recording); ok {
		heaviest, notes := evidence.HeaviestPlaces(c, "of the sampled CPU time")
		if heaviest != "" {
			f.Summary += ", most often for " + heaviest
		}
		f.Notes = append(f.Notes, notes...)
	}
	if l, ok := evidence.LedgerOf(p); ok && len(l.Pools) > 0 {
		f.Notes = append(f.Notes, l.Pools[0].Who()+": "+l.Pools[0].Split())
	}
	p.Report(f)
	return nil
}

// usedByTarget returns the CPUs that the target's processes used, including threads that came and went.
func usedByTarget(p *check.Pass) quantity.Value {
	n := 0.0
	for _, s := range p.Counter(metric.ProcessCPU, "member", "target") {
		rise, _ := s.Increase()
		n += rise
	}
	return quantity.Of("CPU time of its processes", n, quantity.Seconds).
		Per(quantity.Of("window", p.Meta.Duration, quantity.Seconds)).As(quantity.CPUs).Named("CPUs used")
}

// handOvers adds up what the target's threads did in the window; most is the id of the thread that waited most often.
func handOvers(p *check.Pass) (waits, cpu, system float64, threads quantity.Value, most string) {
	highest, all := 0.0, p.Counter(metric.ThreadSwitches, "kind", "voluntary")
	for _, s := range all {
		rise, _ := s.Increase()
		waits += rise
		if rise > highest {
			highest, most = rise, s.Label("tid")
		}
	}
	for _, s := range p.Counter(metric.ThreadCPU) {
		rise, _ := s.Increase()
		cpu += rise
		if s.Label("mode") == "system" {
			system += rise
		}
	}
	return waits, cpu, system, quantity.Of("threads", float64(len(all)), quantity.Threads), most
}

// waitsForOwn reports whether a thread waits for others of the program: at a futex, or at a pipe or socket without a
// destination.
func waitsForOwn(p *check.Pass, tid string) bool {
	own, other := 0.0, 0.0
	for _, s := range p.Gauge(metric.ThreadStateTime, "tid", tid) {
		switch s.Label("for") {
		case "mutex", "futex", "pipe", "socket":
			own += s.Last()
		case "": // it runs
		default:
			other += s.Last()
		}
	}
	return own > other
}
