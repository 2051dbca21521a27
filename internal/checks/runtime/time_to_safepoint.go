package runtime

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramReachShare = &check.Param{
		Name: "share", Default: 0.02, Unit: quantity.Ratio,
		Why: "reaching a safepoint takes a healthy JVM 0.05 to 0.5 ms, and it has a few a second at most: far below " +
			"1 %",
	}
	paramReachMean = &check.Param{
		Name: "mean", Default: 0.02, Unit: quantity.Seconds,
		Why: "20 ms is more than a thread needs to come to its next poll, and as long as several scheduler slices: " +
			"one is in a loop " +
			"without polls, or has no CPU",
	}
)

var timeToSafepoint = &check.Check{
	Name:  "time-to-safepoint",
	Stage: check.Runtime,
	Only:  evidence.OnlyJVM,
	Doc: `Threads wait for the last one to reach a safepoint

A safepoint begins when the last thread has come to a poll. Until then those
that came earlier stand still. A counted loop over ints without calls, a copy of
a large array, a page fault on a mapped file or a thread without a CPU makes
all others wait.

Measured: the mean time to reach a safepoint and its share of the window's wall
time, by the JVM's counters. Both must be high.

Fix: find the late thread (-Xlog:safepoint*=debug, or -XX:+SafepointTimeout in
a test): -XX:+UseCountedLoopSafepoints, smaller copies, no mapped files on slow
disks. On a host short of CPU fix that first. Risk: UseCountedLoopSafepoints
costs tight loops some percent.
Disproof: -Xlog:safepoint shows "Reaching safepoint" below the mean that warns.`,
	URL:    "https://bugs.openjdk.org/browse/JDK-8214239",
	Needs:  []metric.Metric{metric.JVMInfo, metric.JVMSafepointSync, metric.JVMSafepoints},
	Params: []*check.Param{paramReachShare, paramReachMean},
	Run: func(p *check.Pass) error {
		return evidence.EachJVM(p, func(pid string) bool { return runTimeToSafepoint(p, pid) })
	},
}

func runTimeToSafepoint(p *check.Pass, pid string) bool {
	reach, span, ok := evidence.JVMRise(p, metric.JVMSafepointSync, "pid", pid)
	n, _, ok2 := evidence.JVMRise(p, metric.JVMSafepoints, "pid", pid)
	if !ok || !ok2 {
		return false
	}
	share := evidence.ShareOfWall("time until safepoints are reached", reach, span)
	p.Read(share)
	if n == 0 || share.Below(p.Param(paramReachShare)) {
		return true
	}
	mean := quantity.Of("reaching safepoints", reach, quantity.Seconds).Per(quantity.Of("", n, "safepoints")).
		As(quantity.Seconds).
		Named("mean time to reach a safepoint")
	p.Read(mean)
	if mean.Below(p.Param(paramReachMean)) {
		return true
	}
	p.Report(check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Warning,
		Summary: fmt.Sprintf("It takes %s on average to stop all threads; the first ones wait for the last, %s of "+
			"the time.",
			mean.Text(), share.Text()),
		Evidence: []quantity.Value{mean, share},
		Remedies: []check.Remedy{{
			Action: "If the CPUs are saturated or throttled, fix that first; else find the late thread, and let " +
				"its loops poll.",
			Command: "-XX:+UseCountedLoopSafepoints",
			Risk:    "tight loops over arrays may take some percent longer; a restart",
			Effect:  mean.Text() + " -> below 1 ms",
		}},
		Disproof: "-Xlog:safepoint shows \"Reaching safepoint\" below " + p.Param(paramReachMean).Text() + ".",
	})
	return true
}
