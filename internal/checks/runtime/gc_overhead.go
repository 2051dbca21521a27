package runtime

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	paramGCShareHigh = &check.Param{
		Name: "share-high", Default: 0.10, Unit: quantity.Ratio,
		Why: "one second of ten stands still: it is seen in every latency percentile from p90 on",
	}
	paramGCCPUShare = &check.Param{
		Name: "cpu-share", Default: 0.25, Unit: quantity.Ratio,
		Why: "a concurrent collector takes its time beside the program: a quarter of the CPU is what ZGC and " +
			"Shenandoah are sized for " +
			"at most (ConcGCThreads)",
	}
	paramHeapFull = &check.Param{
		Name: "heap-full", Default: 0.5, Unit: quantity.Ratio,
		Why: "HotSpot sizes a heap to be half free after collections (MaxHeapFreeRatio 70, MinHeapFreeRatio 40): " +
			"with less the heap is " +
			"too small, rather than the allocation too fast",
	}
	paramHeapKept = &check.Param{
		Name: "heap-kept", Default: 0.9, Unit: quantity.Ratio,
		Why: "of the heap, in use at any time: a full collection would have freed what is not needed",
	}
)

var gcOverhead = &check.Check{
	Name:  "gc-overhead",
	Stage: check.Runtime,
	Only:  evidence.OnlyJVM,
	Doc: `The JVM spends its time collecting garbage

While a pause lasts, no Java thread runs: every request in flight waits for it.
A collector that is busy all the time has too small a heap for what lives in it,
or a program that allocates faster than it has to.

Measured: HotSpot's own counters of the time in pauses over the window's wall
time (for Shenandoah, and for Z in JDK 11: the time in safepoints), and the CPU
time of the collector's threads. A concurrent collector is judged by its CPU
share. That is a warning only when threads had to wait for memory (allocation
stall, degenerated collection, or stacks of threads in the wall-clock profile),
or when objects of half a region and more (humongous) begin most collections of
G1.

Fix: a larger heap when little is free after a collection; else fewer
allocations (an allocation profile names the lines). Risk: a larger heap needs
memory inside the container's limit.
Won't help: System.gc(); another collector for a heap that is too small.
Disproof: jstat -gcutil PID 1000 shows GCT rise by less than the share, in seconds a second.`,
	URL:   "https://docs.oracle.com/en/java/javase/17/gctuning/ergonomics.html",
	Needs: []metric.Metric{metric.JVMInfo, metric.JVMSafepointSeconds},
	Uses: []metric.Metric{
		metric.JVMGCSeconds, metric.JVMGCs, metric.JVMGCCause, metric.JVMGCsByCause, metric.JVMVersion, metric.JVMFlag,
		metric.JVMSpace,
		metric.ThreadCPU, metric.ProcessCPU, metric.CgroupThrottled, metric.CgroupPeriods, metric.AllocProfileSamples,
		metric.WallProfileSamples,
	},
	Params: []*check.Param{
		evidence.ParamGCShare, paramGCShareHigh, evidence.ParamStopsMost, paramGCCPUShare, evidence.ParamRuntimeCPU,
		paramHeapFull, paramHeapKept, evidence.ParamThrottledShare,
	},
	Facts: []check.Fact{evidence.StopsMost, evidence.ObjectsFill},
	Run: func(p *check.Pass) error {
		return evidence.EachJVM(p, func(pid string) bool { return runGCOverhead(p, pid) })
	},
}

func runGCOverhead(p *check.Pass, pid string) bool {
	share, ok := evidence.GCShare(p, pid)
	if !ok {
		return false
	}
	p.Read(share)
	cpu, burning := gcCPUShare(p, pid)
	stalled, sites := allocationStalls(p, pid)
	switch {
	case share.AtLeast(p.Param(evidence.ParamGCShare)):
		reportPauses(p, pid, share, cpu)
	case len(sites) > 0 && stalled.AtLeast(p.Param(evidence.ParamGCShare)):
		reportStalls(p, pid, stalled, share, cpu, sites)
	case burning && cpu.AtLeast(p.Param(paramGCCPUShare)):
		reportConcurrent(p, pid, share, cpu)
	}
	return true
}

// gcCPUShare is the collector threads' part of the process's CPU time; ok is false if that is too little to matter.
func gcCPUShare(p *check.Pass, pid string) (quantity.Value, bool) {
	names := gcThreads
	if evidence.CollectorOf(p, pid) == "Serial" { // it has no threads of its own
		names = []string{"VM Thread"}
	}
	gc, ok := evidence.ThreadCPU(p, pid, "CPU of the collector's threads", names)
	all, ok2 := evidence.ProcessCPU(p, pid)
	if !ok || !ok2 {
		return quantity.Value{}, false
	}
	return gc.Per(all).Named("collector's share of the CPU time"), gc.AtLeast(p.Param(evidence.ParamRuntimeCPU))
}

func reportPauses(p *check.Pass, pid string, share, cpu quantity.Value) {
	f := check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Warning,
		Summary: fmt.Sprintf("Garbage collection stops the program for %s of the time%s.", share.Text(),
			ofCollector(p, pid)),
		Evidence: []quantity.Value{share},
		Placebos: []string{"System.gc(): it adds collections, the costliest ones."},
		Disproof: fmt.Sprintf("jstat -gcutil %s 1000 shows GCT rise by less than %.3g s a second.", pid,
			p.Param(evidence.ParamGCShare).Number()),
	}
	if share.AtLeast(p.Param(paramGCShareHigh)) {
		f.Severity = check.Critical
	}
	times := 0.0
	for _, kind := range []string{"young", "full"} {
		n, _, ok := evidence.JVMRise(p, metric.JVMGCs, "pid", pid, "kind", kind)
		spent, span, ok2 := evidence.JVMRise(p, metric.JVMGCSeconds, "pid", pid, "kind", kind)
		if ok && ok2 && n > 0 {
			times += n
			count := quantity.Of(kind+" collections", n, quantity.Events)
			f.Evidence = append(f.Evidence, quantity.Of("", spent, quantity.Seconds).Per(count).As(quantity.Seconds).
				Named("mean %s collection", kind),
				count.Per(quantity.Of("window", span, quantity.Seconds)).Named("%s collections a second", kind))
		}
	}
	if stopped, ok := stoppedByLimit(p); ok {
		f.Evidence = append(f.Evidence, stopped)
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "the CPU limit stops collections, too, so they last longer: fix that first")
	}
	if share.AtLeast(p.Param(evidence.ParamStopsMost)) {
		f.Facts = append(f.Facts, evidence.StopsMost)
	}
	if times == 1 {
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "it was a single collection: a longer --duration shows whether it comes again")
	}
	if cpu.Label() != "" {
		f.Evidence = append(f.Evidence, cpu)
	}
	f.Remedies = gcCures(p, pid, share, &f)
	p.Report(f)
}

// stoppedByLimit returns the share of periods in which a CPU limit stopped the target; ok is true if that is enough
// to lengthen pauses.
func stoppedByLimit(p *check.Pass) (share quantity.Value, ok bool) {
	for _, s := range p.Counter(metric.CgroupThrottled) {
		n, _, known := evidence.JVMRise(p, metric.CgroupThrottled, "cgroup", s.Label("cgroup"), "level",
			s.Label("level"))
		all, _, known2 := evidence.JVMRise(p, metric.CgroupPeriods, "cgroup", s.Label("cgroup"), "level",
			s.Label("level"))
		if known && known2 && all > 0 && (!ok || n/all > share.Number()) {
			share, ok = quantity.Of("throttled", n, quantity.Periods).Per(quantity.Of("", all, quantity.Periods)).
				Named("throttled periods"), true
		}
	}
	return share, ok && share.Above(p.Param(evidence.ParamThrottledShare))
}

func ofCollector(p *check.Pass, pid string) string {
	if gc := evidence.CollectorOf(p, pid); gc != "" {
		return " (" + gc + ")"
	}
	return ""
}

// humongous is HotSpot's name for the cause of a G1 collection that begins as an object of half a region or more is
// allocated (GCCause::to_string in src/hotspot/share/gc/shared/gcCause.cpp).
const humongous = "G1 Humongous Allocation"

// metadata is HotSpot's name for the cause of a collection that begins as the metadata of classes takes more memory
// than before; it unloads classes (the same file).
const metadata = "Metadata GC Threshold"

// causeShare returns the share of the collections that have a cause, of those with a known one; most is true from half
// of them on.
func causeShare(p *check.Pass, pid, cause, label string) (share quantity.Value, most bool) {
	its, all := 0.0, 0.0
	for _, s := range p.Counter(metric.JVMGCsByCause, "pid", pid) {
		n := s.Points[len(s.Points)-1].Value // counted from the window's beginning on
		if s.Label("cause") != metric.UnknownCause {
			all += n
		}
		if s.Label("cause") == cause {
			its += n
		}
	}
	if all == 0 {
		return share, false
	}
	return quantity.Of("of that cause", its, quantity.Events).Per(quantity.Of("all", all, quantity.Events)).
		Named("of the collections began %s", label), 2*its >= all
}

func humongousShare(p *check.Pass, pid string) (share quantity.Value, most bool) {
	return causeShare(p, pid, humongous, "as an object of half a region and more was allocated")
}

// gcCures begins with the large objects if they begin most collections: G1 gives each of them regions of its own,
// directly in the old generation.
func gcCures(p *check.Pass, pid string, share quantity.Value, f *check.Finding) []check.Remedy {
	cures := heapCures(p, pid, share, f)
	if classes, most := causeShare(p, pid, metadata, "as the metadata of classes took more memory"); most {
		f.Summary += " Most collections begin for the metadata of classes: new ones are loaded all the time."
		f.Evidence = append(f.Evidence, classes)
		return slices.Insert(cures, 0, check.Remedy{
			Action: "Load each class once: keep class loaders, compiled scripts and proxies, and use them again.",
			Risk:   "what is kept takes memory: bound it",
			Effect: share.Label() + " falls with the rate of new classes",
		})
	}
	f.Facts = append(f.Facts, evidence.ObjectsFill)
	large, most := humongousShare(p, pid)
	if !most {
		return cures
	}
	f.Summary += " Most collections begin as a large object is allocated (humongous, of half a region and more)."
	f.Evidence = append(f.Evidence, large)
	return slices.Insert(cures, 0, check.Remedy{
		Action: "Make no large objects: read and write in pieces, or reuse one buffer for each thread.",
		Risk:   "a buffer that is shared must not be seen by two requests at once",
		Effect: share.Label() + " falls with the rate of large objects",
	}, check.Remedy{
		Action: "Make regions more than twice as large as these objects (-XX:G1HeapRegionSize, up to 32m; 512m from " +
			"JDK 18 on), if the heap then still has a hundred of them: the objects die young, as all others do.",
		Risk:   "few regions make long pauses, and what lives for longer is copied; a restart",
		Effect: "fewer collections; each does more",
	})
}

// heapCures puts the larger heap first if the heap is nearly full after collections, else the allocations.
func heapCures(p *check.Pass, pid string, share quantity.Value, f *check.Finding) []check.Remedy {
	alloc := check.Remedy{
		Action: "Find and reduce the allocations: an allocation profile (async-profiler, event alloc) names class " +
			"and line.",
		Risk:   "none from looking; the change is one of code",
		Effect: fmt.Sprintf("%s falls with the rate: half the bytes, about %s", share.Label(), halved(share)),
	}
	if sites := evidence.AllocationSites(p, pid); len(sites) > 0 {
		alloc.Action = "Reduce the allocations: reuse what is made there, or make less of it."
		f.Notes = append(f.Notes, sites...)
	}
	most, ok := largestHeap(p, pid)
	if !ok {
		return []check.Remedy{alloc}
	}
	f.Evidence = append(f.Evidence, most.Named("largest heap (-Xmx)"))
	heap := check.Remedy{
		Action: fmt.Sprintf("Give it a larger heap: twice is %s. With the same live data each collection then frees "+
			"more.",
			quantity.Of("", 2*most.Number(), quantity.Bytes).Text()),
		Command: check.Commandf("-Xmx%.0fm", 2*most.Number()/(1<<20)),
		Risk: "needs that much memory inside the container's limit and the host, about a quarter more outside " +
			"the heap; a restart",
		Effect: fmt.Sprintf("%s: %s -> less than %s", share.Label(), share.Text(), halved(share)),
	}
	old, known := oldUsed(p, pid)
	if known {
		part := quantity.Of("in the old generation", old, quantity.Bytes).Per(most).
			Named("old generation's share of the heap, least seen")
		f.Evidence = append(f.Evidence, part)
		if part.Below(p.Param(paramHeapFull)) {
			return []check.Remedy{alloc, heap}
		}
		if part.AtLeast(p.Param(paramHeapKept)) {
			f.Summary += fmt.Sprintf(" The heap is full: %s of its %s is in use after collections, too.", part.Text(),
				most.Text())
			return []check.Remedy{keptCure(pid), heap, alloc}
		}
	}
	return []check.Remedy{heap, alloc}
}

// keptCure is the first thing to do about a heap that is full of what is still in use.
func keptCure(pid string) check.Remedy {
	return check.Remedy{
		Action: "See what fills it, and let go of it: a cache without a bound, a queue that is not emptied, " +
			"finalizers.",
		Command: check.Commandf("jcmd %s GC.class_histogram", pid),
		Risk:    "the histogram stops the program for a full collection",
		Effect:  "collections free memory again, and come less often",
	}
}

// largestHeap is the limit of the heap, by its flag or, while the JVM does not answer, by the counters of its spaces.
func largestHeap(p *check.Pass, pid string) (most quantity.Value, ok bool) {
	if most, ok = evidence.NumericFlag(p, pid, "MaxHeapSize", quantity.Bytes); ok {
		return most, true
	}
	largest := 0.0
	for _, s := range p.Gauge(metric.JVMSpace, "pid", pid, "kind", "max") {
		largest = max(largest, s.Last()) // G1's spaces may each take all of the heap
	}
	return quantity.Of("", largest, quantity.Bytes), largest > 0 && evidence.CollectorOf(p, pid) == "G1"
}

func halved(share quantity.Value) string {
	return quantity.Of("", share.Number()/2, quantity.Ratio).Text()
}

// oldUsed returns the least that was in the old generation: what lives, and garbage that no collection has reached.
func oldUsed(p *check.Pass, pid string) (bytes float64, ok bool) {
	for _, s := range p.Gauge(metric.JVMSpace, "pid", pid, "kind", "used") {
		if g := s.Label("generation"); g == "old" || g == "heap" {
			bytes, ok = bytes+s.Min(), true
		}
	}
	return bytes, ok
}

// stallFrames are where a thread waits for a concurrent collector to free memory, or is slowed down until it has
// (src/hotspot/share/gc/z/zPageAllocator.cpp, gc/x in 21; gc/shenandoah/shenandoahPacer.cpp,
// shenandoahControlThread.cpp).
var stallFrames = hotcode.ParsePatterns("ZPageAllocator::*stall*", "XPageAllocator::*stall*", "ShenandoahPacer::*",
	"Shenandoah*::handle_alloc_failure*")

// allocationStalls returns how long threads wait for memory, as a share of the time of those that do, and the sites.
func allocationStalls(p *check.Pass, pid string) (share quantity.Value, sites []*evidence.Culprit) {
	prof, ok := p.Ranked(stacks.Wall)
	if !ok || strconv.Itoa(p.Meta.Target.PID) != pid {
		return share, nil
	}
	stall, _ := hotcode.Frames(prof, stallFrames)
	var hits []evidence.Hit
	waited := map[int]bool{}
	for _, s := range prof.Samples {
		if at := s.Innermost(stall); at >= 0 && s.Thread >= 0 {
			hits = append(hits, evidence.Hit{Sample: s, At: at})
			waited[s.Thread] = true
		}
	}
	stalled := evidence.Weigh(hits)
	if stalled.Count < evidence.FewSamples {
		return share, nil
	}
	all := prof.Filter(func(s stacks.Sample) bool { return waited[s.Thread] }).Total()
	share = quantity.Of("", float64(stalled.Value)/1e9, quantity.Seconds).
		Per(quantity.Of("", float64(all.Value)/1e9, quantity.Seconds)).
		Named("waiting for memory, share of the time of the threads that do")
	return share, evidence.Culprits(prof, hotcode.OwnersOf(p.Recording), hits, nil)
}

func reportStalls(p *check.Pass, pid string, stalled, pauses, cpu quantity.Value, sites []*evidence.Culprit) {
	f := check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Warning,
		Summary: fmt.Sprintf("Threads wait for memory %s of their time, at %s: the collector does not keep up%s.",
			stalled.Text(),
			sites[0].Name(), ofCollector(p, pid)),
		Evidence: []quantity.Value{stalled, pauses},
		Placebos: []string{"More threads: they wait for the same memory."},
		Disproof: "-Xlog:gc shows no \"Allocation Stall\" (Z), \"Pacer\" time or \"Degenerated\" (Shenandoah) under " +
			"the same load.",
	}
	if stalled.AtLeast(p.Param(paramGCShareHigh)) {
		f.Severity = check.Critical
	}
	if cpu.Label() != "" {
		f.Evidence = append(f.Evidence, cpu)
	}
	f.Remedies = gcCures(p, pid, stalled, &f)
	p.Report(f)
}

func reportConcurrent(p *check.Pass, pid string, share, cpu quantity.Value) {
	f := check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Info,
		Summary: fmt.Sprintf("The collector takes %s of the process's CPU time, beside the program%s.", cpu.Text(),
			ofCollector(p, pid)),
		Evidence: []quantity.Value{cpu, share},
		Disproof: "top -H -p " + pid + " shows the collector's threads idle under the same load.",
	}
	if sawCause(p, pid, "Allocation Stall", "Allocation Failure") {
		f.Severity = check.Warning
		f.Summary += " Threads wait for memory: it does not keep up."
	} else if _, most := humongousShare(p, pid); most {
		f.Severity = check.Warning
	}
	f.Remedies = gcCures(p, pid, cpu, &f)
	p.Report(f)
}

// gcThreads and compilerThreads are HotSpot's names in the kernel, cut at 15 bytes.
var gcThreads = []string{"GC Thread", "ParGC Thread", "G1 ", "ZWorker", "XWorker", "ZDriver", "XDriver", "Shenandoah"}

// sawCause reports whether a collection in the window had one of the causes. The cause of the last one before the
// window does not count, unless it was seen again after a collection.
func sawCause(p *check.Pass, pid string, causes ...string) bool {
	for _, s := range p.Counter(metric.JVMGCsByCause, "pid", pid) {
		if slices.Contains(causes, s.Label("cause")) && s.Points[len(s.Points)-1].Value > 0 {
			return true
		}
	}
	for _, s := range p.Info(metric.JVMGCCause, "pid", pid) {
		if slices.Contains(causes, s.Label("cause")) && (len(s.Points) > 1 || s.Points[0].At > 0) {
			return true
		}
	}
	return false
}
