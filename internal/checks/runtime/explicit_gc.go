package runtime

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramExplicitShare = &check.Param{
		Name: "share", Default: 0.02, Unit: quantity.Ratio,
		Why: "one call an hour, as RMI makes it, is far below; 2 % is 200 ms every ten seconds that nobody needs",
	}
	paramExplicitSeen = &check.Param{
		Name: "seen", Default: 0.5, Unit: quantity.Ratio,
		Why: "where less than half of the readings saw the cause, most collections have another one",
	}
)

// explicitCauses are causes that the program or a tool asks for (GCCause::to_string in
// src/hotspot/share/gc/shared/gcCause.cpp).
var explicitCauses = []string{
	"System.gc()", "JvmtiEnv ForceGarbageCollection", "Heap Inspection Initiated GC",
	"Heap Dump Initiated GC", "Diagnostic Command",
}

var explicitGC = &check.Check{
	Name:  "explicit-gc",
	Stage: check.Runtime,
	Only:  evidence.OnlyJVM,
	Doc: `Full collections that the program or a tool asks for

System.gc(), a heap histogram or an agent makes the JVM collect the whole heap,
with all threads stopped, however empty it is.

Measured: the time in full collections over the window's wall time, and how
many of them have such a cause. HotSpot keeps only the cause of the last one,
which is read every 5 ms, so the cause of collections closer together is not
known. Where all came so close, HotSpot's log of the last ten operations tells
it. Where some have another cause, the time is divided by their numbers. With
G1 and -XX:+ExplicitGCInvokesConcurrent, Z and Shenandoah such a call is no
full collection.

Fix: remove the call; -XX:+ExplicitGCInvokesConcurrent; or
-XX:+DisableExplicitGC. Risk: direct buffers are freed by collections: with
DisableExplicitGC a program that relies on System.gc() for them may run out of
direct memory.
Disproof: -Xlog:gc names another cause than System.gc().`,
	URL:    "https://docs.oracle.com/en/java/javase/17/gctuning/other-considerations.html",
	Needs:  []metric.Metric{metric.JVMInfo, metric.JVMGCs, metric.JVMGCSeconds, metric.JVMGCCause},
	Uses:   []metric.Metric{metric.JVMThreads, metric.JVMGCsByCause, metric.JVMOperations},
	Params: []*check.Param{paramExplicitShare, paramExplicitSeen},
	Run: func(p *check.Pass) error {
		return evidence.EachJVM(p, func(pid string) bool { return runExplicitGC(p, pid) })
	},
}

func runExplicitGC(p *check.Pass, pid string) bool {
	n, _, ok := evidence.JVMRise(p, metric.JVMGCs, "pid", pid, "kind", "full")
	spent, span, ok2 := evidence.JVMRise(p, metric.JVMGCSeconds, "pid", pid, "kind", "full")
	if !ok || !ok2 { // Z and Shenandoah do not stop for it
		return len(p.Counter(metric.JVMGCs, "pid", pid)) > 0
	}
	cause, seen, all, unit := explicitCause(p, pid)
	asked := quantity.Of("", seen, unit).Per(quantity.Of("", max(all, 1), unit)).Named("%s with that cause", unit)
	share := evidence.ShareOfWall("time in full collections", spent, span)
	if unit == counted && asked.Number() < 1 {
		share = evidence.ShareOfWall("time in full collections asked for", spent*asked.Number(), span)
	}
	p.Read(share)
	if n == 0 || seen == 0 {
		return true
	}
	f := check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Info, Weight: share.Number(),
		Summary: fmt.Sprintf("%.0f full collections in %s; the JVM gives %s as the cause.", n,
			quantity.Of("", span, quantity.Seconds).Text(), cause),
		Evidence: []quantity.Value{
			share, quantity.Of("full collections", spent, quantity.Seconds).Per(quantity.Of("", n, quantity.Events)).
				As(quantity.Seconds).
				Named("mean full collection"),
			asked,
		},
		Remedies: []check.Remedy{{
			Action: "Remove the call: grep the program and its libraries for System.gc; a profile of CPU or wall " +
				"time names the " +
				"caller of java.lang.System.gc.",
			Risk:   "none, unless direct buffers are freed by it",
			Effect: share.Text() + " -> 0",
		}, {
			Action:  "Let the call start a concurrent cycle instead (G1), or do nothing at all (DisableExplicitGC).",
			Command: "-XX:+ExplicitGCInvokesConcurrent",
			Risk:    "with DisableExplicitGC direct memory may run out where System.gc() freed it; a restart",
			Effect:  share.Text() + " -> pauses of some ms",
		}},
		Disproof: "-Xlog:gc names another cause for the full collections.",
	}
	if share.AtLeast(p.Param(paramExplicitShare)) {
		f.Severity = check.Warning
	}
	switch {
	case unit != counted && asked.Below(p.Param(paramExplicitSeen)):
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "other causes were seen as well: some of the full collections may be theirs")
	case unit == logged:
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "HotSpot keeps a log of the last ten operations only: the full collections "+
			"before may have "+
			"another cause")
	case unit == counted && all < n/2:
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, fmt.Sprintf("the cause of %.0f of the %.0f full collections is not known: they "+
			"came too close", n-all,
			n))
	}
	if unit == counted {
		f.Summary = fmt.Sprintf("%.0f full collections in %s; of %.0f whose cause is known, %.0f are by %s.", n,
			quantity.Of("", span, quantity.Seconds).Text(), all, seen, cause)
	}
	p.Report(f)
	return true
}

// The units of causes that were counted and not sampled: all of them, or the last ones.
const (
	counted quantity.Unit = "full collections"
	logged  quantity.Unit = "logged collections"
)

// explicitOperations are the operations of collections that were asked for, used if the log names no cause (before
// JDK 21; vmGCOperations.hpp, g1VMOperations.hpp, psVMOperations.hpp).
var explicitOperations = []string{"GenCollectFull", "G1CollectFull", "ParallelGCSystemGC", "GC_HeapInspection"}

// loggedCause returns what the log of operations says about the last collections, of any kind.
func loggedCause(p *check.Pass, pid string) (cause string, seen, all float64) {
	for _, s := range p.Gauge(metric.JVMOperations, "pid", pid) {
		name, by, n := s.Label("operation"), s.Label("cause"), s.Last()
		switch explicit := slices.Contains(explicitOperations, name); {
		case by == "" && explicit:
			by = "a request (" + name + ")"
		case !explicit && !slices.Contains(explicitCauses, by):
			if strings.Contains(name, "Collect") || strings.Contains(name, "GC") {
				all += n
			}
			continue
		}
		if all += n; n > seen {
			cause, seen = by, n
		}
	}
	return cause, seen, all
}

// explicitCause returns the explicit cause of most full collections, how many have it, and how many have a known
// cause. If a recording has not counted them, it goes by the log, or else by the number of samples at which it was
// the cause of the last collection of any kind.
func explicitCause(p *check.Pass, pid string) (cause string, seen, all float64, unit quantity.Unit) {
	for _, s := range p.Counter(metric.JVMGCsByCause, "pid", pid, "kind", "full") {
		n := s.Points[len(s.Points)-1].Value // counted from the window's beginning on
		if s.Label("cause") != metric.UnknownCause {
			all += n
		}
		if slices.Contains(explicitCauses, s.Label("cause")) && n > seen {
			cause, seen = s.Label("cause"), n
		}
	}
	if all > 0 {
		return cause, seen, all, counted
	}
	if cause, seen, all = loggedCause(p, pid); seen > 0 {
		return cause, seen, all, logged
	}
	for _, s := range p.Info(metric.JVMGCCause, "pid", pid) {
		n := float64(len(s.Points))
		all += n
		if slices.Contains(explicitCauses, s.Label("cause")) && n > seen {
			cause, seen = s.Label("cause"), n
		}
	}
	return cause, seen, all, "samples"
}
