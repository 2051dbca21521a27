package runtime

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramMemoryGrowth = &check.Param{
		Name: "growth", Default: 64 << 20, Unit: quantity.Bytes,
		Why: "in ten seconds; caches, arenas and heaps of a server that has just begun to work grow by some ten MiB",
	}
	paramMemoryYoung = &check.Param{
		Name: "young", Default: 60, Unit: quantity.Seconds,
		Why: "in their first minute programs load what they need and fill their caches",
	}
	paramMemoryLarge = &check.Param{
		Name: "large", Default: 256 << 20, Unit: quantity.Bytes,
		Why: "in the window, of a young process: heaps and caches of most servers are smaller in all",
	}
	paramMemoryLasts = &check.Param{
		Name: "lasts", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the mean growth, in the last quarter: what levels off falls below half, a leak does not slow down",
	}
)

var memoryGrowth = &check.Check{
	Name:  "memory-growth",
	Stage: check.Runtime,
	Doc: `A process takes more and more memory

A program that keeps what it has finished with grows until its control group or
the host has no memory left, and is killed. Its collector, if it has one, works
more with each object that is kept.

Measured: private resident memory of the target's processes, without files and
shared memory. It must rise through the window, by tens of MiB and about as fast
at its end. It is a warning for a server whose growth would fill its memory
limit, or the host, within minutes; in the first minute of a server only if it
grows by hundreds of MiB. Other programs load what they work on, and a cache
grows until it is full: for those it is information. The JVM has checks of its
own, which know its heap.

Fix: compare two heap profiles, and bound what grows. Risk: a heap snapshot
stops the program while it is written.
Won't help: more memory or a larger limit only delays the end.
Disproof: RssAnon in /proc/PID/status stops rising while the load goes on.`,
	URL:   "https://man7.org/linux/man-pages/man5/proc_pid_status.5.html",
	Needs: []metric.Metric{metric.ProcessPrivate},
	Uses: []metric.Metric{
		metric.CgroupMemoryLimit, metric.CgroupWorkingSet, metric.MemoryAvailable, metric.JVMInfo, metric.TargetInfo,
		metric.ScriptRuntime, metric.ScriptProfileSamples, metric.TargetListenPorts, metric.UnixBacklog,
		metric.UDPQueue, metric.ProcessStart,
	},
	Facts: []check.Fact{evidence.FillsMemory},
	Params: []*check.Param{
		paramMemoryGrowth, paramMemoryLasts, paramMemoryYoung, paramMemoryLarge, evidence.ParamGrowthSoon,
	},
	Run: runMemoryGrowth,
}

func runMemoryGrowth(p *check.Pass) error {
	for _, private := range p.Gauge(metric.ProcessPrivate) {
		if len(p.Info(metric.JVMInfo, "pid", private.Label("pid"))) > 0 {
			continue
		}
		if rate, ok := steadyGrowth(p, private); ok {
			reportMemoryGrowth(p, private, rate)
		}
	}
	return nil
}

// steadyGrowth returns how fast a process grows. ok is false if it does not grow, by little, or levels off.
func steadyGrowth(p *check.Pass, private recording.GaugeSeries) (rate quantity.Value, ok bool) {
	n := len(private.Points)
	if n < evidence.LeastForRise {
		return rate, false
	}
	grown := quantity.Of("more private memory", private.Last()-private.First(), quantity.Bytes)
	p.Read(grown)
	if grown.Below(p.Param(paramMemoryGrowth)) {
		return rate, false
	}
	rate = grown.Per(quantity.Of("", private.Span().Seconds(), quantity.Seconds)).Named("growth of private memory")
	rise, apart := evidence.RiseOfHalves(private.Points[n/2:])
	lasts := quantity.Of("more in the last quarter than before it", rise, quantity.Bytes).
		Per(quantity.Of("by the mean growth", rate.Number()*apart, quantity.Bytes))
	p.Read(lasts)
	return rate, lasts.AtLeast(p.Param(paramMemoryLasts))
}

func reportMemoryGrowth(p *check.Pass, private recording.GaugeSeries, rate quantity.Value) {
	pid := private.Label("pid")
	number, _ := strconv.Atoi(pid)
	subject := evidence.PIDSubject(pid, private.Label("comm"))
	f := check.Finding{
		Subject: subject, Severity: check.Info, Confidence: check.Medium,
		Summary:  fmt.Sprintf("The memory of %s grows by %s", subject.ID, rate.Text()),
		Evidence: []quantity.Value{rate, quantity.Of("private now", private.Last(), quantity.Bytes)},
		Doubts:   []string{"a cache grows like a leak until it is full"},
		Remedies: []check.Remedy{{
			Action: "Compare two heap profiles under load (" + heapProfileOf(evidence.RuntimeOf(p, number)) +
				"), and bound what grows, or let go of it.",
			Risk:   "the profile slows the program down or stops it while it is written",
			Effect: fmt.Sprintf("growth from %s to none", rate.Text()),
		}},
		Placebos: []string{"More memory, or a larger limit: it only delays the end."},
		Disproof: "grep RssAnon /proc/" + check.Quote(pid) + "/status stops rising while the load goes on.",
	}
	left, ok := evidence.MemoryLeft(p)
	full := "its memory limit is reached"
	if host, known := hostMemoryLeft(p); known && (!ok || host.Below(left)) {
		left, ok, full = host, true, "the host has no memory left"
	}
	if ok {
		soon := left.Per(rate).As(quantity.Seconds).Named("until that is used, at this rate")
		f.Evidence = append(f.Evidence, left, soon)
		if soon.Below(p.Param(evidence.ParamGrowthSoon)) {
			f.Summary += fmt.Sprintf("; at this rate %s in %s", full, soon.Text())
			if serves, _ := evidence.Serves(p); serves && !justBegan(p, private) {
				f.Severity, f.Facts = check.Warning, []check.Fact{evidence.FillsMemory}
				f.Weight = 1 - soon.Number()/p.Param(evidence.ParamGrowthSoon).Number() // of that time it is gone
			}
		}
	}
	f.Summary += evidence.ScriptPlace(p)
	p.Report(f)
}

// justBegan reports whether a process may grow because it has just begun.
func justBegan(p *check.Pass, private recording.GaugeSeries) bool {
	age, ok := evidence.First(p.Gauge(metric.ProcessStart, "pid", private.Label("pid")))
	grown := quantity.Of("", private.Last()-private.First(), quantity.Bytes)
	return ok && grown.Below(p.Param(paramMemoryLarge)) &&
		quantity.Of("age", age.First(), quantity.Seconds).Below(p.Param(paramMemoryYoung))
}

// hostMemoryLeft returns the memory that the host could still give to programs at the end of the window.
func hostMemoryLeft(p *check.Pass) (left quantity.Value, ok bool) {
	n, ok := evidence.LastOf(p.Gauge(metric.MemoryAvailable))
	return quantity.Of("memory that the host has left", n, quantity.Bytes), ok
}

// heapProfileOf says how to see what a program keeps.
func heapProfileOf(runtime string) string {
	switch {
	case strings.HasPrefix(runtime, "Node"), runtime == "node":
		return "node --heapsnapshot-signal=SIGUSR2"
	case strings.HasPrefix(runtime, "CPython"), runtime == "python":
		return "tracemalloc, or memray attach"
	case strings.HasPrefix(runtime, "Ruby"), runtime == "ruby":
		return "ObjectSpace.dump_all"
	case runtime == "go":
		return "go tool pprof -diff_base, of /debug/pprof/heap"
	case strings.HasPrefix(runtime, ".NET"), runtime == "dotnet":
		return "dotnet-gcdump"
	}
	return "heaptrack, or jemalloc with prof:true"
}
