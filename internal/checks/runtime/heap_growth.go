package runtime

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

var (
	paramHeapLeft = &check.Param{
		Name: "live", Default: 0.85, Unit: quantity.Ratio,
		Why: "with more than that alive after full collections the next step is \"GC overhead limit exceeded\" or " +
			"an OutOfMemoryError",
	}
	paramLiveGrowth = &check.Param{
		Name: "growth", Default: 0.05, Unit: quantity.Ratio,
		Why: "what is live goes up and down by some per cent from collection to collection: a twentieth of the heap " +
			"is more than that",
	}
)

var heapGrowth = &check.Check{
	Name:  "heap-growth",
	Stage: check.Runtime,
	Only:  evidence.OnlyJVM,
	Doc: `The heap fills up with objects that live

What is still there after full collections lives. When that comes near the
largest heap, each collection frees less and comes sooner, until the JVM does
nothing else or ends with an OutOfMemoryError.

Measured: the least in the old generation between its collections (full ones, and
G1's concurrent cycles), against the most that it may have. Near that it is a
warning, with what fills the heap by class, which takes one more walk over the
heap. A rise from each collection to the next that fills the heap soon is a
warning, too, with the arithmetic of the forecast. Without two such collections
a steady rise is information: the next one may free it.

Fix: a heap dump or two class histograms name what grows. Risk: both stop the
program, for seconds a GiB.
Won't help: a larger heap (a leak fills it, too).
Disproof: after the next full collection (jstat -gc PID 1000, OU) it is back.`,
	URL:   "https://docs.oracle.com/en/java/javase/17/troubleshoot/troubleshooting-memory-leaks.html",
	Needs: []metric.Metric{metric.JVMInfo, metric.JVMSpace, metric.JVMFlag},
	Uses: []metric.Metric{
		metric.JVMGCs, metric.JVMVersion, metric.JVMUptime, metric.AllocProfileSamples,
		metric.JVMClassBytes, metric.JVMClassObjects,
	},
	Params: []*check.Param{paramHeapLeft, paramLiveGrowth, evidence.ParamGrowthSoon, evidence.ParamRiseFall},
	Run: func(p *check.Pass) error {
		return evidence.EachJVM(p, func(pid string) bool { return runHeapGrowth(p, pid) })
	},
}

func runHeapGrowth(p *check.Pass, pid string) bool {
	heap, ok := evidence.NumericFlag(p, pid, "MaxHeapSize", quantity.Bytes)
	old, ok2 := evidence.First(p.Gauge(metric.JVMSpace, "pid", pid, "generation", "old", "kind", "used"))
	if !ok || !ok2 || slices.Contains(wholeHeapOld, evidence.CollectorOf(p, pid)) {
		return false
	}
	most := mostOld(p, pid, heap)
	used := quantity.Of("old generation", old.Last(), quantity.Bytes).Per(most).
		Named("in use of all that the old generation may have")
	p.Read(used)
	if least, full := leastAfterFull(p, pid, old); full {
		live := quantity.Of("live", least, quantity.Bytes).Per(most).
			Named("of all that the old generation may have, live after full collections")
		p.Read(live)
		if live.AtLeast(p.Param(paramHeapLeft)) {
			reportHeapFull(p, pid, live, most, heap)
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

// mostOld is the most that the old generation may have. With G1 it may have the whole heap; with Serial and Parallel
// two thirds of it, unless NewRatio says otherwise (src/hotspot/share/gc/shared/genArguments.cpp).
func mostOld(p *check.Pass, pid string, heap quantity.Value) quantity.Value {
	s, ok := evidence.First(p.Gauge(metric.JVMSpace, "pid", pid, "generation", "old", "kind", "max"))
	if ok && s.Last() > 0 && s.Last() < heap.Number() {
		return quantity.Of("largest old generation", s.Last(), quantity.Bytes)
	}
	return heap
}

// wholeHeapOld are collectors without generations, or with a young one that is collected beside the program. What is
// in use is mostly garbage that the next cycle will free, and there may be many cycles a second.
var wholeHeapOld = []string{"Z", "Shenandoah"}

// A low is the least that was in the old generation between two of its collections.
type low struct {
	at    time.Duration
	bytes float64
	whole bool // no reading between the collections was lost: a lost one may have been the least
}

// oldLows returns the lows of the window. G1 frees what a concurrent cycle found in the collections after it, so what
// follows the last cycle counts only if the window has a full collection. Before the first collection nothing is
// known.
func oldLows(p *check.Pass, pid string, old recording.GaugeSeries) (out []low) {
	var kinds [][]recording.Point
	full := false
	for _, s := range p.Counter(metric.JVMGCs, "pid", pid) {
		if kind := s.Label("kind"); kind != "full" && kind != "concurrent" {
			continue
		}
		kinds = append(kinds, s.Points)
		n, _ := s.Increase()
		full = full || s.Label("kind") == "full" && n > 0
	}
	out = lowsOf(old.Points, series.Sum(kinds...))
	if !full && len(out) > 0 {
		out = out[:len(out)-1]
	}
	return slices.DeleteFunc(out, func(l low) bool { return !l.whole })
}

// lowsOf returns the least of each interval between collections, from the first collection on.
func lowsOf(old, collections []recording.Point) (out []low) {
	before := math.Inf(1)
	longest, last := series.UsualStep(old)*3/2, time.Duration(0)
	for _, point := range old {
		n, ok := series.At(collections, point.At)
		if !ok {
			continue
		}
		lost := point.At-last > longest
		last = point.At
		if len(out) > 0 && lost {
			out[len(out)-1].whole = false
		}
		if n > before {
			out = append(out, low{at: point.At, bytes: point.Value, whole: true})
		}
		before = n
		if len(out) == 0 {
			continue
		}
		now := &out[len(out)-1]
		now.whole = now.whole && !lost
		if point.Value < now.bytes {
			now.at, now.bytes = point.At, point.Value
		}
	}
	return out
}

func reportLiveGrowth(p *check.Pass, pid string, lows []low, most quantity.Value) {
	first, last := lows[0], lows[len(lows)-1]
	grown := quantity.Of("live, more", last.bytes-first.bytes, quantity.Bytes)
	p.Read(grown.Per(most).Named("growth of what is live, of all that the old generation may have"))
	rises := slices.IsSortedFunc(lows, func(a, b low) int { return cmp.Compare(a.bytes, b.bytes) })
	if !rises || grown.Per(most).Below(p.Param(paramLiveGrowth)) {
		return
	}
	rate := grown.Per(quantity.Of("", (last.at - first.at).Seconds(), quantity.Seconds)).
		Named("growth of what is live after collections")
	left := most.Minus(quantity.Of("live", last.bytes, quantity.Bytes)).Per(rate).As(quantity.Seconds).
		Named("until the heap is full, at this rate")
	p.Read(left)
	if left.Above(p.Param(evidence.ParamGrowthSoon)) {
		return
	}
	f := check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Warning, Confidence: check.Medium,
		Summary: fmt.Sprintf("What lives in the heap grows by %s from collection to collection: at this rate it is "+
			"full in %s.",
			rate.Text(), left.Text()),
		Evidence: []quantity.Value{
			left, rate, quantity.Of("live at the end", last.bytes, quantity.Bytes).Per(most).
				Named("of all that the old generation may have, live at the end"),
			quantity.Of("collections of the old generation after which it was more", float64(len(lows)),
				quantity.Events),
		},
		Notes:    keptSites(p, pid),
		Remedies: []check.Remedy{heapDump(pid)},
		Placebos: []string{"A larger heap: a leak fills it, too, and each full collection takes longer."},
		Doubts:   []string{"a cache that fills up and then stays looks the same: a longer --duration tells them apart"},
		Disproof: "After some more old collections it stays: jstat -gc " + pid + " 1000, the lows of OU.",
	}
	p.Report(f)
}

// keptSites names where most is allocated: what is kept comes from there, or garbage beside it does.
func keptSites(p *check.Pass, pid string) (out []string) {
	for _, s := range evidence.AllocationSites(p, pid) {
		out = append(out, s+": kept there, or garbage")
	}
	return out
}

// leastAfterFull returns the least that was in the old generation at samples since a full collection of the window.
func leastAfterFull(p *check.Pass, pid string, old recording.GaugeSeries) (least float64, ok bool) {
	full, known := evidence.First(p.Counter(metric.JVMGCs, "pid", pid, "kind", "full"))
	if !known {
		return 0, false
	}
	for _, point := range old.Points {
		n, read := series.At(full.Points, point.At)
		if read && n > full.Points[0].Value && (!ok || point.Value < least) {
			least, ok = point.Value, true
		}
	}
	return least, ok
}

func heapDump(pid string) check.Remedy {
	return check.Remedy{
		Action: "Compare two class histograms a minute apart, or take a heap dump: the class that grows, and who " +
			"holds it, is the leak.",
		Command: check.Commandf("jcmd %s GC.class_histogram | head -40", pid),
		Risk:    "each stops the program for a full collection, seconds a GiB; a dump writes the whole heap to disk",
		Effect:  "what is live after collections stops growing once the holder is fixed",
	}
}

func reportHeapFull(p *check.Pass, pid string, live, most, heap quantity.Value) {
	f := check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Warning,
		Weight: live.Number(),
		Summary: fmt.Sprintf("After full collections %s of the old generation (%s) still lives", live.Text(),
			most.Text()),
		Evidence: []quantity.Value{live, heap.Named("largest heap (-Xmx)")},
		Remedies: []check.Remedy{heapDump(pid), {
			Action:  "If what lives is needed: a larger heap, so that half of it is free after a full collection.",
			Command: check.Commandf("-Xmx%.0fm", 2*heap.Number()/(1<<20)),
			Risk:    "needs the memory inside the container's limit; a leak fills it, too",
			Effect:  live.Text() + " -> about half",
		}},
		Disproof: "jstat -gc " + pid + " 1000: OU falls far below OC after a full collection (FGC).",
	}
	if own := addClasses(p, pid, &f); own != "" {
		f.Summary += ": " + own + " are in it"
		f.Remedies[0] = check.Remedy{
			Action:  "Find what holds the " + own + ": in a heap dump, the path from one of them to its root.",
			Command: check.Commandf("jcmd %s GC.heap_dump -all heap.hprof", pid),
			Risk:    "stops the program for seconds a GiB, and writes the whole heap to its disk",
			Effect:  live.Text() + " falls once what holds them lets them go",
		}
	}
	f.Summary += "."
	p.Report(f)
}

// classesShown is how many classes of a heap are named: the first few have most of it.
const classesShown = 5

// addClasses adds the largest classes of the heap to the evidence, and returns the largest that is not the JDK's: it
// holds the JDK's strings and arrays.
func addClasses(p *check.Pass, pid string, f *check.Finding) (own string) {
	classes := slices.SortedFunc(slices.Values(p.Gauge(metric.JVMClassBytes, "pid", pid)),
		func(a, b recording.GaugeSeries) int {
			return cmp.Or(cmp.Compare(b.Last(), a.Last()), cmp.Compare(a.Label("class"), b.Label("class")))
		})
	shown := 0
	for _, c := range classes {
		name := c.Label("class")
		mine := own == "" && !ofJDK(name)
		if shown >= classesShown && !mine {
			continue
		}
		objects, _ := evidence.First(p.Gauge(metric.JVMClassObjects, "pid", pid, "class", name))
		bytes := quantity.Of(name, c.Last(), quantity.Bytes)
		f.Evidence = append(f.Evidence, bytes.Named("%.0f objects of %s", objects.Last(), name))
		shown++
		if mine {
			own = fmt.Sprintf("%.0f objects of %s", objects.Last(), name)
		}
	}
	return own
}

// ofJDK reports whether a class is one that any program has, or an array of these.
func ofJDK(class string) bool {
	element := strings.TrimRight(class, "[]")
	if element != class && !strings.Contains(element, ".") && strings.ToLower(element) == element {
		return true // of primitives
	}
	return hotcode.OfJDK(element)
}

func reportHeapRise(p *check.Pass, pid string, old recording.GaugeSeries, most quantity.Value) {
	if !evidence.OnlyRises(p, old) {
		return
	}
	rate := quantity.Of("rise of the old generation", old.Last()-old.First(), quantity.Bytes).
		Per(quantity.Of("", old.Span().
			Seconds(), quantity.Seconds)).Named("rise of the old generation")
	left := most.Minus(quantity.Of("", old.Last(), quantity.Bytes)).Per(rate).As(quantity.Seconds).
		Named("until the heap is full, at this rate")
	p.Read(left)
	if left.Above(p.Param(evidence.ParamGrowthSoon)) {
		return
	}
	p.Report(check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Info, Confidence: check.Low,
		Summary: fmt.Sprintf("The old generation grows by %s without a fall: at this rate the heap is full in %s.",
			rate.Text(),
			left.Text()),
		Evidence: []quantity.Value{rate, left, most},
		Remedies: []check.Remedy{heapDump(pid)},
		Doubts:   []string{"no old collection ran in the window: what it would free is not known"},
		Disproof: "After the next old collection it is back: jstat -gc " + pid + " 1000, OU.",
	})
}
