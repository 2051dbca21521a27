package runtime

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramSafepointShare = &check.Param{
		Name: "share", Default: 0.05, Unit: quantity.Ratio,
		Why: "the same as for collections: it is the time that no request moves; without collections a healthy JVM " +
			"has below 0.1 %",
	}
	paramMostlyGC = &check.Param{
		Name: "collections", Default: 0.9, Unit: quantity.Ratio,
		Why: "where nine of ten safepoints are collections, the rest of the time is their beginning and end",
	}
)

var safepointTime = &check.Check{
	Name:  "safepoint-time",
	Stage: check.Runtime,
	Only:  evidence.OnlyJVM,
	Doc: `The JVM stops all its threads for something other than garbage collection

Deoptimization, redefinition of classes by agents, thread dumps, heap
inspections and, up to JDK 17, revoking of biased locks run while every Java
thread stands still.

Measured: the time in safepoints, including the time to reach them, less that
in collections, over the window's wall time. Where nine of ten safepoints are
collections, the rest is their beginning and end, and no finding. Shenandoah's
pauses are not counted apart, so it is not judged here. The thread dump that
perfdoctor takes comes after the window.

Fix: find the operation (-Xlog:safepoint on, by jcmd VM.log) and its origin:
a monitoring tool that takes dumps, an agent, biased locking before JDK 18.
Risk: none from the log.
Disproof: -Xlog:safepoint shows collections only.`,
	URL:    "https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/runtime/safepoint.cpp",
	Needs:  []metric.Metric{metric.JVMInfo, metric.JVMSafepointSeconds, metric.JVMGCSeconds},
	Uses:   []metric.Metric{metric.JVMSafepoints, metric.JVMGCs, metric.CPUProfileSamples, metric.WallProfileSamples},
	Params: []*check.Param{paramSafepointShare, paramMostlyGC, evidence.ParamStopsMost},
	Facts:  []check.Fact{evidence.StopsMost},
	Run: func(p *check.Pass) error {
		return evidence.EachJVM(p, func(pid string) bool { return runSafepointTime(p, pid) })
	},
}

func runSafepointTime(p *check.Pass, pid string) bool {
	stopped, span, ok := evidence.JVMRise(p, metric.JVMSafepointSeconds, "pid", pid)
	gc, _, ok2 := evidence.GCPauses(p, pid)
	if !ok || !ok2 {
		return false
	}
	other := quantity.Of("in safepoints", stopped, quantity.Seconds).
		Minus(quantity.Of("in collections", min(gc, stopped),
			quantity.Seconds))
	share := other.Per(quantity.Of("window", span, quantity.Seconds)).Named("time stopped, not for collections")
	p.Read(share)
	if share.Below(p.Param(paramSafepointShare)) || mostlyGC(p, pid) {
		return true
	}
	f := check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Warning,
		Summary:  fmt.Sprintf("All threads stand still for %s of the time, and not for collections.", share.Text()),
		Evidence: []quantity.Value{share, other.Named("stopped, not for collections")},
		Remedies: []check.Remedy{{
			Action: "Let the JVM log its safepoints for a minute; the operation's name shows what asks for it.",
			Command: check.Commandf("jcmd %s VM.log what=safepoint output=safepoints.log; sleep 60; jcmd %s VM.log "+
				"disable", pid, pid),
			Risk: "a line for each safepoint is written in the JVM's working directory; disable ends all logging " +
				"that was set up",
			Effect: share.Text() + " -> below 0.1 % once what asks for them is gone",
		}},
		Disproof: "-Xlog:safepoint shows collections only.",
	}
	nameOperation(p, pid, &f)
	if share.AtLeast(p.Param(evidence.ParamStopsMost)) {
		f.Facts = append(f.Facts, evidence.StopsMost)
	}
	if n, _, ok := evidence.JVMRise(p, metric.JVMSafepoints, "pid", pid); ok && n > 0 {
		f.Evidence = append(f.Evidence, quantity.Of("safepoints", n, quantity.Events).Per(quantity.Of("window", span,
			quantity.Seconds)).Named("safepoints a second"))
	}
	p.Report(f)
	return true
}

// nameOperation adds what the threads are stopped for, and who asks for it, if the profile of the target shows it.
func nameOperation(p *check.Pass, pid string, f *check.Finding) {
	if strconv.Itoa(p.Meta.Target.PID) != pid { // the profile is the target's
		return
	}
	o, ok := evidence.OperationOf(p)
	if !ok {
		return
	}
	f.Summary = fmt.Sprintf("%s: %s", strings.TrimSuffix(f.Summary, "."), o.Does())
	f.Notes = append(f.Notes, "HotSpot's operation: "+o.Name)
	if o.By == nil {
		return
	}
	f.Summary += ", which " + o.By.Name() + " asks for"
	f.Notes = append(f.Notes, strings.Join(o.By.Path, " ← "))
	f.Remedies = slices.Insert(f.Remedies, 0, check.Remedy{
		Action: "Ask less often there, and not in a request: once in a while from one thread, and for one thread " +
			"instead of all if that will do.",
		Risk:   "what the answers were for has older ones",
		Effect: f.Remedies[0].Effect,
	})
}

// mostlyGC reports whether nearly all safepoints were for collections. Then the rest of the time is their beginning
// and end.
func mostlyGC(p *check.Pass, pid string) bool {
	all, _, ok := evidence.JVMRise(p, metric.JVMSafepoints, "pid", pid)
	gcs := 0.0
	for _, kind := range []string{"young", "full", "concurrent"} {
		n, _, _ := evidence.JVMRise(p, metric.JVMGCs, "pid", pid, "kind", kind)
		gcs += n
	}
	if !ok || all == 0 {
		return ok
	}
	share := quantity.Of("", gcs, quantity.Events).Per(quantity.Of("", all, quantity.Events))
	return share.AtLeast(p.Param(paramMostlyGC))
}
