package checks

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/quantity"
)

var paramExplicitShare = &check.Param{
	Name: "share", Default: 0.02, Unit: quantity.Ratio,
	Why: "one call an hour, as RMI makes it, is far below; 2 % is a full collection of 200 ms every ten seconds that nobody needs",
}

// explicitCauses are asked for from within or without (GCCause::to_string in src/hotspot/share/gc/shared/gcCause.cpp).
var explicitCauses = []string{
	"System.gc()", "JvmtiEnv ForceGarbageCollection", "Heap Inspection Initiated GC",
	"Heap Dump Initiated GC", "Diagnostic Command",
}

var explicitGC = &check.Check{
	Name:  "explicit-gc",
	Stage: check.Runtime,
	Only:  onlyJVM,
	Doc: `Full collections that the program or a tool asks for

System.gc(), a heap histogram or an agent makes the JVM collect the whole heap,
with all threads stopped, however empty it is.

Measured: the time in full collections over the window's wall time, and the
cause that the JVM gives for the last collection at each sample. With G1 and
-XX:+ExplicitGCInvokesConcurrent, Z and Shenandoah such a call is no full
collection.

Cure: remove the call; -XX:+ExplicitGCInvokesConcurrent; or
-XX:+DisableExplicitGC. Risk: direct buffers are freed by collections: with
DisableExplicitGC a program that relies on System.gc() for them may run out of
direct memory.
Disproof: -Xlog:gc names another cause than System.gc().`,
	URL:      "https://docs.oracle.com/en/java/javase/17/gctuning/other-considerations.html",
	Needs:    []metric.Metric{metric.JVMInfo, metric.JVMGCs, metric.JVMGCSeconds, metric.JVMGCCause},
	Uses:     []metric.Metric{metric.JVMThreads},
	Params:   []*check.Param{paramExplicitShare},
	Explains: []*check.Check{gcOverhead, allocationRate},
	Run: func(p *check.Pass) error {
		return eachJVM(p, func(pid string) bool { return runExplicitGC(p, pid) })
	},
}

func runExplicitGC(p *check.Pass, pid string) bool {
	n, _, ok := rose(p, metric.JVMGCs, "pid", pid, "kind", "full")
	spent, span, ok2 := rose(p, metric.JVMGCSeconds, "pid", pid, "kind", "full")
	if !ok || !ok2 { // Z and Shenandoah do not stop for it
		return len(p.Counter(metric.JVMGCs, "pid", pid)) > 0
	}
	share := shareOfWall("time in full collections", spent, span)
	p.Read(share)
	if n == 0 {
		return true
	}
	cause, seen, samples := explicitCause(p, pid)
	if seen == 0 {
		return true
	}
	f := check.Finding{
		Subject: jvmSubject(p, pid), Severity: check.Info,
		Summary: fmt.Sprintf("%.0f full collections in %s; the JVM gives %s as the cause.", n,
			quantity.Of("", span, quantity.Seconds).Text(), cause),
		Evidence: []quantity.Value{
			share, quantity.Of("full collections", spent, quantity.Seconds).Per(quantity.Of("", n, quantity.Events)).As(quantity.Seconds).
				Named("mean full collection"),
			quantity.Of("samples with that cause", seen, "samples").Per(quantity.Of("", samples, "samples")).
				Named("samples with that cause"),
		},
		Remedies: []check.Remedy{{
			Action: "Remove the call: grep the program and its libraries for System.gc; a profile of CPU or wall time names the " +
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
	if seen < samples/2 {
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "other causes were seen as well: some of the full collections may be theirs")
	}
	p.Report(f)
	return true
}

// explicitCause gives the cause of that kind that was seen most, at how many samples, of how many.
func explicitCause(p *check.Pass, pid string) (cause string, seen, samples float64) {
	for _, s := range p.Info(metric.JVMGCCause, "pid", pid) {
		n := float64(len(s.Points))
		samples += n
		for _, c := range explicitCauses {
			if s.Label("cause") == c && n > seen {
				cause, seen = c, n
			}
		}
	}
	return cause, seen, samples
}
