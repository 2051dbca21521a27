package runtime

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramCompileShare = &check.Param{
		Name: "share", Default: 0.2, Unit: quantity.Ratio,
		Why: "a warm server spends less than 1 % of its CPU time on compilation; a fifth is what takes it from the " +
			"requests",
	}
	paramWarmUp = &check.Param{
		Name: "warm-up", Default: 600, Unit: quantity.Seconds,
		Why: "a server under load has compiled what matters after one to five minutes; ten leave room for a small " +
			"CPU limit",
	}
	paramHostTaken = &check.Param{
		Name: "host-busy", Default: 0.9, Unit: quantity.Ratio,
		Why: "with hardly an idle CPU on the whole host, compilers take the CPU from somebody, though others fill " +
			"it, too",
	}
	paramCompileHost = &check.Param{
		Name: "host-share", Default: 0.1, Unit: quantity.Ratio,
		Why: "on a busy host, a tenth of all CPUs for compilation is what the requests miss; less is lost among the " +
			"neighbours' use",
	}
	paramCompileWait = &check.Param{
		Name: "wait-per-run", Default: 1, Unit: quantity.Ratio,
		Why: "the program's own threads wait for a CPU for as long as they run: its work takes twice the time it needs",
	}
	paramLengthened = &check.Param{
		Name: "pause-share", Default: evidence.PausesTooLong, Unit: quantity.Ratio,
		Why: "from there gc-overhead warns of pauses: it is a consequence if they would stay below without the waits " +
			"of their threads",
	}
)

var jitWarmUp = &check.Check{
	Name:  "jit-warm-up",
	Stage: check.Runtime,
	Only:  evidence.OnlyJVM,
	Doc: `The JIT compilers take the CPU from the program

A young JVM interprets its code and compiles what runs often. With all CPUs in
use, or a small CPU limit, the compilers compete with the requests, and both are
slow for minutes.

Measured: CPU time of the compiler threads against that of the process. It is a
warning in four cases: the process uses nearly all the CPUs it may use; no CPU
of the host is idle and the compilers have a tenth of them; the other threads
wait for a CPU for as long as they run, no CPU limit stops them and the
compilers have a tenth of the host; or the JVM is old and still compiles. Else
it is an FYI: measure again when warm. Where a fifth of the CPUs would be idle
without the compilers, the others queue behind them. HotSpot does not stop its
compilers for a pause. Where the collector's threads have to wait for a CPU,
too, and pauses would be no fault without that, gc-overhead is a consequence.

Fix: calls that warm it up before it is ready for traffic, fewer restarts, more
CPU while it starts, CDS or CRaC. Risk: a later start.
Won't help: -Xint, -XX:TieredStopAtLevel=1 (less compilation, slower code for ever).
Disproof: top -H shows the C1 and C2 threads idle.`,
	URL:   "https://docs.oracle.com/en/java/javase/17/vm/java-hotspot-virtual-machine-performance-enhancements.html",
	Needs: []metric.Metric{metric.JVMInfo, metric.ThreadCPU, metric.ProcessCPU, metric.JVMUptime},
	Uses: []metric.Metric{
		metric.JVMCompileSeconds, metric.JVMFlag, metric.CPUsOnline, metric.CgroupQuota, metric.CgroupCpuset,
		metric.TargetCPUs,
		metric.CPUSeconds,
		metric.ThreadRunDelay, metric.CgroupPeriods, metric.CgroupThrottled, metric.JVMGCSeconds,
		metric.JVMSafepointSeconds,
	},
	Params: []*check.Param{
		paramCompileShare, paramWarmUp, evidence.ParamCPUTaken, paramHostTaken, paramCompileHost, paramCompileWait,
		evidence.ParamThrottledShare,
		evidence.ParamThrottledPeriods, paramLengthened, evidence.ParamRuntimeCPU,
	},
	Facts: []check.Fact{evidence.FillsCPUs, evidence.LengthensPauses},
	Run: func(p *check.Pass) error {
		return evidence.EachJVM(p, func(pid string) bool { return runJITWarmUp(p, pid) })
	},
}

func runJITWarmUp(p *check.Pass, pid string) bool {
	compile, ok := evidence.ThreadCPU(p, pid, "CPU of the compiler threads", compilerThreads)
	all, ok2 := evidence.ProcessCPU(p, pid)
	age, ok3 := uptime(p, pid)
	if !ok || !ok3 {
		return false
	}
	if !ok2 {
		p.Read(compile)
		return true // the process is idle
	}
	share := compile.Per(all).Named("compilers' share of the CPU time")
	p.Read(share)
	if share.Below(p.Param(paramCompileShare)) || compile.Below(p.Param(evidence.ParamRuntimeCPU)) {
		return true
	}
	f := check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Info,
		Summary: fmt.Sprintf("The JIT compilers use %s of the process's CPU time; the JVM is %s old.", share.Text(),
			age.Text()),
		Evidence: []quantity.Value{share, compile, age},
		Remedies: []check.Remedy{{
			Action: "Send it warm-up calls before it is ready for traffic, and measure again when it is warm.",
			Risk:   "it is ready later",
			Effect: share.Text() + " -> below 1 %",
		}},
		Placebos: []string{"-XX:TieredStopAtLevel=1: the compilers rest sooner, and the code stays slow."},
		Disproof: "top -H -p " + pid + " shows the C1 and C2 threads idle.",
	}
	if n, span, ok := evidence.JVMRise(p, metric.JVMCompileSeconds, "pid", pid); ok {
		f.Evidence = append(f.Evidence, evidence.ShareOfWall("compilers at work, of wall time (a sum over threads)", n,
			span))
	}
	if cpus, ok := evidence.EffectiveCPUs(p); ok {
		taken := all.Per(cpus).Named("CPUs in use, of those it may use")
		f.Evidence = append(f.Evidence, taken)
		if taken.AtLeast(p.Param(evidence.ParamCPUTaken)) {
			f.Severity = check.Warning
		}
	}
	if busy, part, ok := compilesOnBusyHost(p, compile); ok {
		f.Severity = check.Warning
		f.Evidence = append(f.Evidence, busy, part)
	}
	_, ofHost, known := evidence.OfHost(p, compile)
	little := known && ofHost.Below(p.Param(paramCompileHost)) // then it is not the compilers that make the others wait
	if waits, ok := programWaits(p, pid, all.Minus(compile)); ok && !little {
		f.Severity = check.Warning
		f.Evidence = append(f.Evidence, waits)
		pausesLengthened(p, pid, &f)
	}
	takesIdleTime(p, compile, &f)
	if age.Above(p.Param(paramWarmUp)) {
		f.Severity = check.Warning
		f.Summary += " It should have warmed up: code is thrown away or generated again and again."
		f.Remedies[0] = check.Remedy{
			Action: "See whether the code cache is full and which methods are compiled again and again.",
			Command: check.Commandf("jcmd %s Compiler.codecache; jcmd %s VM.log what=jit+compilation=debug "+
				"output=jit.log", pid, pid),
			Risk:   "the log grows by some lines a compilation, in the JVM's working directory",
			Effect: share.Text() + " -> below 1 %",
		}
	}
	p.Report(f)
	return true
}

// compilesOnBusyHost reports whether the compilers have a good part of a host whose CPUs are all in use. The
// process's own use says nothing then, since the load and what is behind the process take the rest.
func compilesOnBusyHost(p *check.Pass, compile quantity.Value) (busy, part quantity.Value, ok bool) {
	busy, part, ok = evidence.OfHost(p, compile)
	part = part.Named("compilers, of the host's CPUs")
	return busy, part, ok && busy.AtLeast(p.Param(paramHostTaken)) && part.AtLeast(p.Param(paramCompileHost))
}

// takesIdleTime makes the queue for the CPUs a consequence if harmful compilers are the reason that less than a fifth
// of the CPUs is idle.
func takesIdleTime(p *check.Pass, compile quantity.Value, f *check.Finding) {
	busy, part, ok := evidence.OfHost(p, compile)
	if !ok || f.Severity < check.Warning || part.Below(p.Param(paramCompileHost)) ||
		busy.Below(p.Param(evidence.ParamCPUTaken)) {
		return
	}
	if rest := busy.Minus(part).
		Named("CPUs in use without the compilers"); rest.Below(p.Param(evidence.ParamCPUTaken)) {
		f.Evidence = append(f.Evidence, rest)
		f.Facts = append(f.Facts, evidence.FillsCPUs)
	}
}

// programWaits reports whether the threads that do not compile wait for a CPU for as long as they run, without a CPU
// limit that stops them: schedstat counts such stops as waiting.
func programWaits(p *check.Pass, pid string, ran quantity.Value) (waits quantity.Value, ok bool) {
	t, err := evidence.TightestThrottling(p)
	stopped := err != nil || t != nil && t.Share.Above(p.Param(evidence.ParamThrottledShare))
	if stopped || ran.Number() <= 0 || !p.Recorded(metric.ThreadRunDelay) {
		return waits, false
	}
	waited := evidence.RunDelay(p, pid, nil) - evidence.RunDelay(p, pid, compilerThreads)
	waits = quantity.Of("waited for a CPU", waited, quantity.CPUs).Per(ran).
		Named("the other threads: time waited for a CPU over time run")
	p.Read(waits)
	return waits, waits.AtLeast(p.Param(paramCompileWait))
}

// pausesLengthened makes findings about the collector a consequence if pauses would be no fault without the time for
// which the collector's threads waited for a CPU. A pause needs only the time that they run.
func pausesLengthened(p *check.Pass, pid string, f *check.Finding) {
	pauses, ok := evidence.GCShare(p, pid)
	ran, ok2 := evidence.ThreadCPU(p, pid, "run", evidence.ParallelCollectors)
	if !ok || !ok2 || ran.Number() <= 0 || pauses.Below(p.Param(paramLengthened)) {
		return
	}
	waited := quantity.Of("waited", evidence.RunDelay(p, pid, evidence.ParallelCollectors), quantity.CPUs)
	needed := pauses.Times(ran.Per(ran.Plus(waited))).
		Named("time in collections in which their threads ran and did not wait for a CPU")
	p.Read(needed)
	if needed.Below(p.Param(paramLengthened)) {
		f.Evidence = append(f.Evidence, pauses, needed)
		f.Facts = append(f.Facts, evidence.LengthensPauses)
	}
}

var compilerThreads = []string{"C1 CompilerThre", "C2 CompilerThre"}

// uptime returns the age of a JVM at the end of the window.
func uptime(p *check.Pass, pid string) (quantity.Value, bool) {
	v, ok := evidence.LastOf(p.Gauge(metric.JVMUptime, "pid", pid))
	return quantity.Of("age of the JVM", v, quantity.Seconds), ok
}
