package checks

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

var (
	paramHeapLeft = &check.Param{
		Name: "live", Default: 0.85, Unit: quantity.Ratio,
		Why: "with more than that alive after full collections the next step is \"GC overhead limit exceeded\" or an OutOfMemoryError",
	}
	paramGrowthSoon = &check.Param{
		Name: "soon", Default: 600, Unit: quantity.Seconds,
		Why: "ten minutes are what is left to save a heap dump before the process is gone",
	}
	paramLiveGrowth = &check.Param{
		Name: "growth", Default: 0.05, Unit: quantity.Ratio,
		Why: "what is live goes up and down by some per cent from collection to collection: a twentieth of the heap is more than that",
	}
	paramOffHeapGrowth = &check.Param{
		Name: "growth", Default: 16 << 20, Unit: quantity.Bytes,
		Why: "less is code cache, thread stacks and malloc's arenas, which grow for minutes in every young JVM",
	}
	paramThreadGrowth = &check.Param{
		Name: "growth", Default: 10, Unit: quantity.Threads,
		Why: "a pool that is filled gets a few more; ten that none of is given back are a pattern",
	}
	paramManyThreads = &check.Param{
		Name: "threads", Default: 500, Unit: quantity.Threads,
		Why: "a servlet container's pool of 200 and its neighbours fit below; growth beyond is no pool that fills up",
	}
)

var heapGrowth = &check.Check{
	Name:  "heap-growth",
	Stage: check.Runtime,
	Only:  onlyJVM,
	Doc: `The heap fills up with objects that live

What is still there after full collections lives. When that comes near the
largest heap, each collection frees less and comes sooner, until the JVM does
nothing else or ends with an OutOfMemoryError.

Measured: the least in the old generation between its collections (full ones, and
G1's concurrent cycles), against the largest heap. Near it, that is a warning. So
is a rise from each collection to the next that fills the heap soon, with the
arithmetic of the forecast. Without two such collections a steady rise is
information: the next one may free it.

Cure: a heap dump or two class histograms name what grows. Risk: both stop the
program, for seconds a GiB.
Placebo: a larger heap (a leak fills it, too).
Disproof: after the next full collection (jstat -gc PID 1000, OU) it is back.`,
	URL:      "https://docs.oracle.com/en/java/javase/17/troubleshoot/troubleshooting-memory-leaks.html",
	Needs:    []metric.Metric{metric.JVMInfo, metric.JVMSpace, metric.JVMFlag},
	Uses:     []metric.Metric{metric.JVMGCs, metric.JVMVersion, metric.JVMUptime, metric.AllocProfileSamples},
	Params:   []*check.Param{paramHeapLeft, paramLiveGrowth, paramGrowthSoon},
	Explains: []*check.Check{gcOverhead, allocationRate},
	Run: func(p *check.Pass) error {
		return eachJVM(p, func(pid string) bool { return runHeapGrowth(p, pid) })
	},
}

func runHeapGrowth(p *check.Pass, pid string) bool {
	most, ok := numericFlag(p, pid, "MaxHeapSize", quantity.Bytes)
	old, ok2 := first(p.Gauge(metric.JVMSpace, "pid", pid, "generation", "old", "kind", "used"))
	if !ok || !ok2 || slices.Contains(wholeHeapOld, gcOf(p, pid)) {
		return false
	}
	used := quantity.Of("old generation", old.Last(), quantity.Bytes).Per(most).Named("old generation's share of the largest heap")
	p.Read(used)
	if least, full := leastAfterFull(p, pid, old); full {
		live := quantity.Of("live", least, quantity.Bytes).Per(most).Named("of the largest heap, live after full collections")
		p.Read(live)
		if live.AtLeast(p.Param(paramHeapLeft)) {
			reportHeapFull(p, pid, live, most)
			return true
		}
	}
	if lows := oldLows(p, pid, old); len(lows) > 1 {
		reportLiveGrowth(p, pid, lows, most)
		return true
	}
	reportHeapRise(p, pid, old, most)
	return true
}

// wholeHeapOld are collectors without generations, or with young ones that are collected beside the program: what is in use is
// mostly garbage that the next cycle, many a second at times, will free.
var wholeHeapOld = []string{"Z", "Shenandoah"}

// A low is the least that was in the old generation from one of its collections to the next.
type low struct {
	at    time.Duration
	bytes float64
}

// oldLows gives the lows of the window. G1 frees what a concurrent cycle found in the collections after it, so what follows the
// last cycle counts only when a full collection is among the window's; before the first collection nothing is known.
func oldLows(p *check.Pass, pid string, old recording.GaugeSeries) (out []low) {
	collections := make([]float64, len(old.Points))
	full := false
	for _, s := range p.Counter(metric.JVMGCs, "pid", pid) {
		if kind := s.Label("kind"); kind != "full" && kind != "concurrent" {
			continue
		}
		for i := range min(len(s.Points), len(collections)) {
			collections[i] += s.Points[i].Value
		}
		n, _ := s.Increase()
		full = full || s.Label("kind") == "full" && n > 0
	}
	for i := 1; i < len(collections); i++ {
		point := old.Points[i]
		switch {
		case collections[i] > collections[i-1]:
			out = append(out, low{point.At, point.Value})
		case len(out) > 0 && point.Value < out[len(out)-1].bytes:
			out[len(out)-1] = low{point.At, point.Value}
		}
	}
	if !full && len(out) > 0 {
		out = out[:len(out)-1]
	}
	return out
}

func reportLiveGrowth(p *check.Pass, pid string, lows []low, most quantity.Value) {
	first, last := lows[0], lows[len(lows)-1]
	grown := quantity.Of("live, more", last.bytes-first.bytes, quantity.Bytes)
	p.Read(grown.Per(most).Named("growth of what is live, of the largest heap"))
	rises := slices.IsSortedFunc(lows, func(a, b low) int { return cmp.Compare(a.bytes, b.bytes) })
	if !rises || grown.Per(most).Below(p.Param(paramLiveGrowth)) {
		return
	}
	rate := grown.Per(quantity.Of("", (last.at - first.at).Seconds(), quantity.Seconds)).Named("growth of what is live after collections")
	left := most.Minus(quantity.Of("live", last.bytes, quantity.Bytes)).Per(rate).As(quantity.Seconds).
		Named("until the heap is full, at this rate")
	p.Read(left)
	if left.Above(p.Param(paramGrowthSoon)) {
		return
	}
	f := check.Finding{
		Subject: jvmSubject(p, pid), Severity: check.Warning, Confidence: check.Medium,
		Summary: fmt.Sprintf("What lives in the heap grows by %s from collection to collection: at this rate it is full in %s.",
			rate.Text(), left.Text()),
		Evidence: []quantity.Value{
			left, rate, quantity.Of("live at the end", last.bytes, quantity.Bytes).Per(most).Named("of the largest heap, live at the end"),
			quantity.Of("collections of the old generation after which it was more", float64(len(lows)), quantity.Events),
		},
		Notes:    keptSites(p, pid),
		Remedies: []check.Remedy{heapDump(pid)},
		Placebos: []string{"A larger heap: a leak fills it, too, and each full collection takes longer."},
		Doubts:   []string{"a cache that fills up and then stays looks the same: a longer --duration tells"},
		Disproof: "After some more old collections it stays: jstat -gc " + pid + " 1000, the lows of OU.",
	}
	p.Report(f)
}

// keptSites names where most is allocated, which is where what is kept comes from, or garbage beside it.
func keptSites(p *check.Pass, pid string) (out []string) {
	for _, s := range allocationSites(p, pid) {
		out = append(out, s+": kept there, or garbage")
	}
	return out
}

// leastAfterFull gives the least that was in the old generation at samples since a full collection of the window.
func leastAfterFull(p *check.Pass, pid string, old recording.GaugeSeries) (least float64, ok bool) {
	full, known := first(p.Counter(metric.JVMGCs, "pid", pid, "kind", "full"))
	if !known {
		return 0, false
	}
	for i := 1; i < min(len(full.Points), len(old.Points)); i++ {
		if full.Points[i].Value > full.Points[0].Value && (!ok || old.Points[i].Value < least) {
			least, ok = old.Points[i].Value, true
		}
	}
	return least, ok
}

func heapDump(pid string) check.Remedy {
	return check.Remedy{
		Action:  "Compare two class histograms a minute apart, or take a heap dump: the class that grows, and who holds it, is the leak.",
		Command: check.Commandf("jcmd %s GC.class_histogram | head -40", pid),
		Risk:    "each stops the program for a full collection, seconds a GiB; a dump writes the whole heap to disk",
		Effect:  "what is live after collections stops growing once the holder is mended",
	}
}

func reportHeapFull(p *check.Pass, pid string, live, most quantity.Value) {
	p.Report(check.Finding{
		Subject: jvmSubject(p, pid), Severity: check.Warning,
		Summary:  fmt.Sprintf("After full collections %s of the largest heap (%s) still lives.", live.Text(), most.Text()),
		Evidence: []quantity.Value{live, most},
		Remedies: []check.Remedy{heapDump(pid), {
			Action:  "If what lives is needed: a larger heap, so that half of it is free after a full collection.",
			Command: check.Commandf("-Xmx%.0fm", 2*most.Number()/(1<<20)),
			Risk:    "needs the memory inside the container's limit; a leak fills it, too",
			Effect:  live.Text() + " -> about half",
		}},
		Disproof: "jstat -gc " + pid + " 1000: OU falls far below OC after a full collection (FGC).",
	})
}

func reportHeapRise(p *check.Pass, pid string, old recording.GaugeSeries, most quantity.Value) {
	if !onlyRises(old) {
		return
	}
	rate := quantity.Of("rise of the old generation", old.Last()-old.First(), quantity.Bytes).Per(quantity.Of("", old.Span().
		Seconds(), quantity.Seconds)).Named("rise of the old generation")
	left := most.Minus(quantity.Of("", old.Last(), quantity.Bytes)).Per(rate).As(quantity.Seconds).
		Named("until the heap is full, at this rate")
	p.Read(left)
	if left.Above(p.Param(paramGrowthSoon)) {
		return
	}
	p.Report(check.Finding{
		Subject: jvmSubject(p, pid), Severity: check.Info, Confidence: check.Low,
		Summary: fmt.Sprintf("The old generation grows by %s without a fall: at this rate the heap is full in %s.", rate.Text(),
			left.Text()),
		Evidence: []quantity.Value{rate, left, most},
		Remedies: []check.Remedy{heapDump(pid)},
		Doubts:   []string{"no old collection ran in the window: what it would free is not known"},
		Disproof: "After the next old collection it is back: jstat -gc " + pid + " 1000, OU.",
	})
}

var offHeapGrowth = &check.Check{
	Name:  "off-heap-growth",
	Stage: check.Runtime,
	Only:  onlyJVM,
	Doc: `The process grows outside its heap

Direct buffers, native libraries, thread stacks, metaspace and malloc's arenas
are not bounded by -Xmx. They grow until the container's limit kills the
process, with a heap that looks well.

Measured: resident memory less all of the committed heap: a lower bound of what
is outside, as the heap need not be resident. It must rise through the window by
more than a young JVM's code and stacks do. It is a warning when at this rate the
memory limit is reached soon, else information.

Cure: Native Memory Tracking names the JVM's own part; what it does not name is
malloc of libraries. Risk: NMT costs 5 to 10 % and a restart.
Placebo: a smaller heap only delays the end.
Disproof: RSS in /proc/PID/status stops rising while the load goes on.`,
	URL:    "https://docs.oracle.com/en/java/javase/17/vm/native-memory-tracking.html",
	Needs:  []metric.Metric{metric.JVMInfo, metric.JVMSpace, metric.ProcessRSS},
	Uses:   []metric.Metric{metric.CgroupMemoryLimit, metric.CgroupMemory, metric.JVMMetaspace, metric.JVMFlag},
	Params: []*check.Param{paramOffHeapGrowth, paramGrowthSoon},
	Run: func(p *check.Pass) error {
		return eachJVM(p, func(pid string) bool { return runOffHeapGrowth(p, pid) })
	},
}

func runOffHeapGrowth(p *check.Pass, pid string) bool {
	rss, ok := first(p.Gauge(metric.ProcessRSS, "pid", pid))
	committed := p.Gauge(metric.JVMSpace, "pid", pid, "kind", "capacity")
	if !ok || len(committed) == 0 {
		return false
	}
	outside := recording.GaugeSeries{Series: &recording.Series{Metric: rss.Metric, Labels: rss.Labels}}
	for i, point := range rss.Points {
		for _, s := range committed {
			if i < len(s.Points) {
				point.Value -= s.Points[i].Value
			}
		}
		if point.Value > 0 {
			outside.Points = append(outside.Points, point)
		}
	}
	if len(outside.Points) < 4 {
		p.Read(quantity.Of("resident memory is within the committed heap", 0, quantity.Bytes))
		return true
	}
	grown := quantity.Of("outside the heap, more", outside.Last()-outside.First(), quantity.Bytes)
	p.Read(grown)
	if grown.Below(p.Param(paramOffHeapGrowth)) || !onlyRises(outside) {
		return true
	}
	rate := grown.Per(quantity.Of("", outside.Span().Seconds(), quantity.Seconds)).Named("growth outside the heap")
	f := check.Finding{
		Subject: jvmSubject(p, pid), Severity: check.Info, Confidence: check.Medium,
		Summary:  fmt.Sprintf("The process grows by %s outside its heap.", rate.Text()),
		Evidence: []quantity.Value{rate, quantity.Of("outside the heap now, at least", outside.Last(), quantity.Bytes)},
		Remedies: []check.Remedy{{
			Action:  "Restart with Native Memory Tracking and compare two summaries; what they do not name is malloc of native libraries.",
			Command: check.Commandf("-XX:NativeMemoryTracking=summary; jcmd %s VM.native_memory summary.diff", pid),
			Risk:    "5 to 10 % of throughput; a restart",
			Effect:  "the part that grows has a name",
		}, {
			Action:  "Bound direct buffers, so that the leak shows as an error in the program and not as a kill.",
			Command: "-XX:MaxDirectMemorySize=256m",
			Risk:    "an OutOfMemoryError where the program needs more",
			Effect:  "growth of direct buffers ends at the bound",
		}},
		Placebos: []string{"A smaller heap: it only delays the end."},
		Disproof: "grep VmRSS /proc/" + check.Quote(pid) + "/status stops rising while the load goes on.",
	}
	if left, ok := memoryLeft(p); ok {
		soon := left.Per(rate).As(quantity.Seconds).Named("until the memory limit, at this rate")
		f.Evidence = append(f.Evidence, left, soon)
		if soon.Below(p.Param(paramGrowthSoon)) {
			f.Severity = check.Warning
			f.Summary += fmt.Sprintf(" At this rate the memory limit is reached in %s.", soon.Text())
		}
	}
	p.Report(f)
	return true
}

// memoryLeft gives the least that is free below a memory limit of the target's control groups.
func memoryLeft(p *check.Pass) (least quantity.Value, ok bool) {
	for _, s := range p.Gauge(metric.CgroupMemoryLimit) {
		used, known := lastOf(p.Gauge(metric.CgroupMemory, "cgroup", s.Label("cgroup"), "level", s.Label("level")))
		v := quantity.Of("limit", s.Last(), quantity.Bytes).Minus(quantity.Of("used", used, quantity.Bytes)).
			Named("free below the memory limit")
		if known && v.Number() > 0 && (!ok || v.Below(least)) {
			least, ok = v, true
		}
	}
	return least, ok
}

var threadGrowth = &check.Check{
	Name:  "thread-growth",
	Stage: check.Runtime,
	Only:  onlyJVM,
	Doc: `The number of Java threads grows and grows

Threads that are started and never end: an executor for each request that nobody
shuts down, a client that is built again and again, a pool without a bound. Each
costs a stack and a place below pids.max, and at the limit the JVM says "unable
to create native thread".

Measured: live threads as the JVM counts them, rising through the whole window
without a fall, and the pool that grew, by thread name. It is a warning when they
are already many and the limit of the control group is forecast soon, or when
there are more than any usual pool; else information: a pool may be filling up.

Cure: shut the executor down, build the client once, bound the pool. Risk: a
bound makes callers wait.
Placebo: a higher limit; a smaller -Xss.
Disproof: the number stays after some minutes (jstack PID | grep -c tid=).`,
	URL:      "https://docs.oracle.com/en/java/javase/17/docs/api/java.base/java/util/concurrent/ExecutorService.html",
	Needs:    []metric.Metric{metric.JVMInfo, metric.JVMThreads},
	Uses:     []metric.Metric{metric.JVMPools, metric.JVMThreadsStarted, metric.ThreadPools, metric.CgroupPIDs, metric.CgroupPIDsLimit},
	Params:   []*check.Param{paramThreadGrowth, paramManyThreads, paramGrowthSoon},
	Explains: []*check.Check{offHeapGrowth},
	Run: func(p *check.Pass) error {
		return eachJVM(p, func(pid string) bool { return runThreadGrowth(p, pid) })
	},
}

func runThreadGrowth(p *check.Pass, pid string) bool {
	live, ok := first(p.Gauge(metric.JVMThreads, "pid", pid, "kind", "live"))
	if !ok || live.Span() <= 0 {
		return false
	}
	grown := quantity.Of("more threads", live.Last()-live.First(), quantity.Threads)
	now := quantity.Of("live threads", live.Last(), quantity.Threads)
	p.Read(now)
	if grown.Below(p.Param(paramThreadGrowth)) {
		return true
	}
	if len(live.Points) < leastForRise {
		return false
	}
	if !onlyRises(live) {
		return true
	}
	rate := grown.Per(quantity.Of("", live.Span().Seconds(), quantity.Seconds)).Named("growth")
	f := check.Finding{
		Subject: jvmSubject(p, pid), Severity: check.Info, Confidence: check.Medium,
		Summary:  fmt.Sprintf("Java threads grow by %s without a fall: %s now.", rate.Text(), now.Text()),
		Evidence: []quantity.Value{rate, now},
		Notes:    grownPools(p, pid),
		Remedies: []check.Remedy{{
			Action:  "Find who starts them (the pool's name, the stack of one of them) and end or bound what it builds.",
			Command: check.Commandf("jcmd %s Thread.print | grep '^\"'", pid),
			Risk:    "a bound makes callers wait where they did not",
			Effect:  now.Text() + " -> a number that stays",
		}},
		Placebos: []string{"A higher limit or smaller stacks: it takes longer until none is left."},
		Disproof: "The number stays after some minutes: then a pool was filling up.",
	}
	if now.AtLeast(p.Param(paramManyThreads)) {
		f.Severity = check.Warning
	}
	threadForecast(p, &f, rate)
	p.Report(f)
	return true
}

// threadForecast adds when the control group has no thread left.
func threadForecast(p *check.Pass, f *check.Finding, rate quantity.Value) {
	for _, s := range p.Gauge(metric.CgroupPIDsLimit) {
		used, ok := lastOf(p.Gauge(metric.CgroupPIDs, "cgroup", s.Label("cgroup"), "level", s.Label("level")))
		if !ok || s.Last() <= used {
			continue
		}
		left := quantity.Of("pids.max", s.Last(), quantity.Threads).Minus(quantity.Of("in use", used, quantity.Threads)).Per(rate).
			As(quantity.Seconds).
			Named("until the limit of %s, at this rate", s.Label("cgroup"))
		if left.Below(p.Param(paramGrowthSoon)) {
			f.Severity = check.Warning
			f.Evidence = append(f.Evidence, left)
			f.Summary += fmt.Sprintf(" At this rate none is left in %s.", left.Text())
			return
		}
	}
}

var threadNumbers = regexp.MustCompile(`[0-9]+`)

// grownPools names the pools that grew most: by the kernel's names, which are cut at 15 bytes, each number in them as "*", and the
// full name that begins so.
func grownPools(p *check.Pass, pid string) []string {
	grown, now := map[string]float64{}, map[string]float64{}
	for _, s := range p.Gauge(metric.ThreadPools) {
		name := threadNumbers.ReplaceAllString(s.Label("pool"), "*")
		now[name] += s.Last()
		if s.Points[0].At < time.Second/2 {
			grown[name] += s.Last() - s.First()
		} else {
			grown[name] += s.Last() // it came in the window
		}
	}
	names := slices.SortedFunc(maps.Keys(grown), func(a, b string) int {
		return cmp.Or(cmp.Compare(grown[b], grown[a]), strings.Compare(a, b))
	})
	var out []string
	for _, name := range names[:min(len(names), 3)] {
		if grown[name] >= 2 {
			out = append(out, fmt.Sprintf("threads %s: %.0f more, %.0f now", fullPool(p, pid, name), grown[name], now[name]))
		}
	}
	return out
}

// fullPool gives the largest pool whose full name begins like the one that the kernel has cut.
func fullPool(p *check.Pass, pid, cut string) string {
	best, most := cut, 0.0
	for _, s := range p.Gauge(metric.JVMPools, "pid", pid) {
		if strings.HasPrefix(s.Label("pool"), cut) && s.Last() > most {
			best, most = s.Label("pool"), s.Last()
		}
	}
	return best
}
