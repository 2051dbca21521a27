package checks

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

var (
	paramSafepointShare = &check.Param{
		Name: "share", Default: 0.05, Unit: quantity.Ratio,
		Why: "the same as for collections: it is the time that no request moves; without collections a healthy JVM has below 0.1 %",
	}
	paramReachShare = &check.Param{
		Name: "share", Default: 0.02, Unit: quantity.Ratio,
		Why: "reaching a safepoint takes a healthy JVM 0.05 to 0.5 ms, and it has a few a second at most: far below 1 %",
	}
	paramReachMean = &check.Param{
		Name: "mean", Default: 0.02, Unit: quantity.Seconds,
		Why: "20 ms is more than a thread needs to come to its next poll, and as long as several scheduler slices: one is in a loop " +
			"without polls, or has no CPU",
	}
)

var safepointTime = &check.Check{
	Name:  "safepoint-time",
	Stage: check.Runtime,
	Only:  onlyJVM,
	Doc: `The JVM stops all its threads for something other than garbage collection

Deoptimization, redefinition of classes by agents, thread dumps, heap
inspections and, up to JDK 17, revoking of biased locks run while every Java
thread stands still.

Measured: the time in safepoints, reaching them included, less that in
collections, over the window's wall time; unless nine of ten safepoints are
collections, whose beginning and end the rest then is. Of Shenandoah the pauses are not
counted apart, so it is not judged here. The thread dump that perfdoctor takes
comes after the window.

Cure: find the operation (-Xlog:safepoint on, by jcmd VM.log) and its origin:
a monitoring tool that takes dumps, an agent, biased locking before JDK 18.
Risk: none from the log.
Disproof: -Xlog:safepoint shows collections only.`,
	URL:    "https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/runtime/safepoint.cpp",
	Needs:  []metric.Metric{metric.JVMInfo, metric.JVMSafepointSeconds, metric.JVMGCSeconds},
	Uses:   []metric.Metric{metric.JVMSafepoints, metric.JVMGCs},
	Params: []*check.Param{paramSafepointShare},
	Run: func(p *check.Pass) error {
		return eachJVM(p, func(pid string) bool { return runSafepointTime(p, pid) })
	},
}

func runSafepointTime(p *check.Pass, pid string) bool {
	stopped, span, ok := rose(p, metric.JVMSafepointSeconds, "pid", pid)
	gc, _, ok2 := gcPauses(p, pid)
	if !ok || !ok2 {
		return false
	}
	other := quantity.Of("in safepoints", stopped, quantity.Seconds).Minus(quantity.Of("in collections", min(gc, stopped),
		quantity.Seconds))
	share := other.Per(quantity.Of("window", span, quantity.Seconds)).Named("time stopped, not for collections")
	p.Read(share)
	if share.Below(p.Param(paramSafepointShare)) || mostlyGC(p, pid) {
		return true
	}
	f := check.Finding{
		Subject: jvmSubject(p, pid), Severity: check.Warning,
		Summary:  fmt.Sprintf("All threads stand still for %s of the time, and not for collections.", share.Text()),
		Evidence: []quantity.Value{share, other.Named("stopped, not for collections")},
		Remedies: []check.Remedy{{
			Action:  "Let the JVM log its safepoints for a minute; the operation's name tells who asks for it.",
			Command: check.Commandf("jcmd %s VM.log what=safepoint output=safepoints.log; sleep 60; jcmd %s VM.log disable", pid, pid),
			Risk:    "a line for each safepoint is written in the JVM's working directory; disable ends all logging that was set up",
			Effect:  share.Text() + " -> below 0.1 % once what asks for them is gone",
		}},
		Disproof: "-Xlog:safepoint shows collections only.",
	}
	if n, _, ok := rose(p, metric.JVMSafepoints, "pid", pid); ok && n > 0 {
		f.Evidence = append(f.Evidence, quantity.Of("safepoints", n, quantity.Events).Per(quantity.Of("window", span,
			quantity.Seconds)).Named("safepoints a second"))
	}
	p.Report(f)
	return true
}

// mostlyGC reports that nearly all safepoints were for collections: then what is not collection is their beginning and end.
func mostlyGC(p *check.Pass, pid string) bool {
	all, _, ok := rose(p, metric.JVMSafepoints, "pid", pid)
	gcs := 0.0
	for _, kind := range []string{"young", "full", "concurrent"} {
		n, _, _ := rose(p, metric.JVMGCs, "pid", pid, "kind", kind)
		gcs += n
	}
	return ok && gcs >= 0.9*all
}

var timeToSafepoint = &check.Check{
	Name:  "time-to-safepoint",
	Stage: check.Runtime,
	Only:  onlyJVM,
	Doc: `Threads wait for the last one to reach a safepoint

A safepoint begins when the last thread has come to a poll. Until then those
that came earlier stand still. A counted loop over ints without calls, a copy of
a large array, a page fault on a mapped file or a thread without a CPU lets all
others wait.

Measured: the mean time to reach a safepoint and its share of the window's wall
time, by the JVM's counters. Both must be high.

Cure: find the late thread (-Xlog:safepoint*=debug, or -XX:+SafepointTimeout in
a test): -XX:+UseCountedLoopSafepoints, smaller copies, no mapped files on slow
disks. On a host short of CPU mend that first. Risk: UseCountedLoopSafepoints
costs tight loops some percent.
Disproof: -Xlog:safepoint shows "Reaching safepoint" below 20 ms.`,
	URL:    "https://bugs.openjdk.org/browse/JDK-8214239",
	Needs:  []metric.Metric{metric.JVMInfo, metric.JVMSafepointSync, metric.JVMSafepoints},
	Params: []*check.Param{paramReachShare, paramReachMean},
	Run: func(p *check.Pass) error {
		return eachJVM(p, func(pid string) bool { return runTimeToSafepoint(p, pid) })
	},
}

func runTimeToSafepoint(p *check.Pass, pid string) bool {
	reach, span, ok := rose(p, metric.JVMSafepointSync, "pid", pid)
	n, _, ok2 := rose(p, metric.JVMSafepoints, "pid", pid)
	if !ok || !ok2 {
		return false
	}
	share := shareOfWall("time until safepoints are reached", reach, span)
	p.Read(share)
	if n == 0 || share.Below(p.Param(paramReachShare)) {
		return true
	}
	mean := quantity.Of("reaching safepoints", reach, quantity.Seconds).Per(quantity.Of("", n, "safepoints")).As(quantity.Seconds).
		Named("mean time to reach a safepoint")
	p.Read(mean)
	if mean.Below(p.Param(paramReachMean)) {
		return true
	}
	p.Report(check.Finding{
		Subject: jvmSubject(p, pid), Severity: check.Warning,
		Summary: fmt.Sprintf("It takes %s on average to stop all threads; the first ones wait for the last, %s of the time.",
			mean.Text(), share.Text()),
		Evidence: []quantity.Value{mean, share},
		Remedies: []check.Remedy{{
			Action:  "If the CPUs are saturated or throttled, mend that first; else find the late thread, and let its loops poll.",
			Command: "-XX:+UseCountedLoopSafepoints",
			Risk:    "tight loops over arrays may take some percent longer; a restart",
			Effect:  mean.Text() + " -> below 1 ms",
		}},
		Disproof: "-Xlog:safepoint shows \"Reaching safepoint\" below 20 ms.",
	})
	return true
}
