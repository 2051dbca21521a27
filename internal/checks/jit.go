package checks

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

var (
	paramCompileShare = &check.Param{
		Name: "share", Default: 0.2, Unit: quantity.Ratio,
		Why: "a warm server spends less than 1 % of its CPU time on compilation; a fifth is what takes it from the requests",
	}
	paramWarmUp = &check.Param{
		Name: "warm-up", Default: 600, Unit: quantity.Seconds,
		Why: "a server under load has compiled what matters after one to five minutes; ten leave room for a small CPU limit",
	}
	paramCPUTaken = &check.Param{
		Name: "cpu-used", Default: 0.8, Unit: quantity.Ratio,
		Why: "with a fifth of the CPUs idle, what else takes their time takes nothing from the requests",
	}
	paramHostTaken = &check.Param{
		Name: "host-busy", Default: 0.9, Unit: quantity.Ratio,
		Why: "with hardly an idle CPU on the whole host whoever compiles takes the CPU from somebody, though others fill it, too",
	}
	paramCompileHost = &check.Param{
		Name: "host-share", Default: 0.1, Unit: quantity.Ratio,
		Why: "on a busy host, a tenth of all CPUs for compilation is what the requests miss; less is lost among the neighbours' use",
	}
	paramCompileWait = &check.Param{
		Name: "wait-per-run", Default: 1, Unit: quantity.Ratio,
		Why: "the program's own threads wait for a CPU for as long as they run: its work takes twice the time it needs",
	}
	paramLengthened = &check.Param{
		Name: "pause-share", Default: paramGCShare.Default, Unit: quantity.Ratio,
		Why: "from there gc-overhead warns of pauses: it is a consequence when they would stay below, had their threads not waited",
	}
	paramCodeShare = &check.Param{
		Name: "share", Default: 0.9, Unit: quantity.Ratio,
		Why: "from there the JVM throws out compiled methods to make room (StartAggressiveSweepingAt is 10 % free)",
	}
)

var jitWarmUp = &check.Check{
	Name:  "jit-warm-up",
	Stage: check.Runtime,
	Only:  onlyJVM,
	Doc: `The JIT compilers take the CPU from the program

A young JVM interprets its code and compiles what runs often. With all CPUs in
use, or a small CPU limit, the compilers compete with the requests, and both are
slow for minutes.

Measured: CPU time of the compiler threads against that of the process. It is a
warning when the process uses nearly all the CPUs it may use, when no CPU of the
host is idle and the compilers have a tenth of them, when the other threads wait
for a CPU for as long as they run and no CPU limit stops them, or when the JVM is
old and still compiles; else it is worth knowing only: measure again when warm.
Where a fifth of the CPUs would be idle without the compilers, it is they that
others queue behind. HotSpot does not stop its compilers for a pause: where the
collector's threads have to wait for a CPU, too, and pauses would be no fault
without that, gc-overhead is a consequence.

Cure: calls that warm it up before it is ready for traffic, fewer restarts, more
CPU while it starts, CDS or CRaC. Risk: a later start.
Placebo: -Xint, -XX:TieredStopAtLevel=1 (less compilation, slower code for ever).
Disproof: top -H shows the C1 and C2 threads idle.`,
	URL:   "https://docs.oracle.com/en/java/javase/17/vm/java-hotspot-virtual-machine-performance-enhancements.html",
	Needs: []metric.Metric{metric.JVMInfo, metric.ThreadCPU, metric.ProcessCPU, metric.JVMUptime},
	Uses: []metric.Metric{
		metric.JVMCompileSeconds, metric.JVMFlag, metric.CPUsOnline, metric.CgroupQuota, metric.CgroupCpuset, metric.CPUSeconds,
		metric.ThreadRunDelay, metric.CgroupPeriods, metric.CgroupThrottled, metric.JVMGCSeconds, metric.JVMSafepointSeconds,
	},
	Params: []*check.Param{
		paramCompileShare, paramWarmUp, paramCPUTaken, paramHostTaken, paramCompileHost, paramCompileWait, paramThrottledShare,
		paramThrottledPeriods, paramLengthened,
	},
	Run: func(p *check.Pass) error {
		return eachJVM(p, func(pid string) bool { return runJITWarmUp(p, pid) })
	},
}

func runJITWarmUp(p *check.Pass, pid string) bool {
	compile, ok := threadCPU(p, pid, "CPU of the compiler threads", compilerThreads)
	all, ok2 := processCPU(p, pid)
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
	if share.Below(p.Param(paramCompileShare)) || compile.Number() < 0.1 { // a tenth of a CPU holds nobody up
		return true
	}
	f := check.Finding{
		Subject: jvmSubject(p, pid), Severity: check.Info,
		Summary:  fmt.Sprintf("The JIT compilers use %s of the process's CPU time; the JVM is %s old.", share.Text(), age.Text()),
		Evidence: []quantity.Value{share, compile, age},
		Remedies: []check.Remedy{{
			Action: "Send it warm-up calls before it is ready for traffic, and measure again when it is warm.",
			Risk:   "it is ready later",
			Effect: share.Text() + " -> below 1 %",
		}},
		Placebos: []string{"-XX:TieredStopAtLevel=1: the compilers rest sooner, and the code stays slow."},
		Disproof: "top -H -p " + pid + " shows the C1 and C2 threads idle.",
	}
	if n, span, ok := rose(p, metric.JVMCompileSeconds, "pid", pid); ok {
		f.Evidence = append(f.Evidence, shareOfWall("compilers at work, of wall time (a sum over threads)", n, span))
	}
	if cpus, ok := effectiveCPUs(p); ok {
		taken := all.Per(cpus).Named("CPUs in use, of those it may use")
		f.Evidence = append(f.Evidence, taken)
		if taken.AtLeast(p.Param(paramCPUTaken)) {
			f.Severity = check.Warning
		}
	}
	if busy, part, ok := compilesOnBusyHost(p, compile); ok {
		f.Severity = check.Warning
		f.Evidence = append(f.Evidence, busy, part)
	}
	if waits, ok := programWaits(p, pid, all.Minus(compile)); ok {
		f.Severity = check.Warning
		f.Evidence = append(f.Evidence, waits)
		lengthensPauses(p, pid, &f)
	}
	takesIdleTime(p, compile, &f)
	if age.Above(p.Param(paramWarmUp)) {
		f.Severity = check.Warning
		f.Summary += " It should have warmed up: code is thrown away or generated again and again."
		f.Remedies[0] = check.Remedy{
			Action:  "See whether the code cache is full and which methods are compiled again and again.",
			Command: check.Commandf("jcmd %s Compiler.codecache; jcmd %s VM.log what=jit+compilation=debug output=jit.log", pid, pid),
			Risk:    "the log grows by some lines a compilation, in the JVM's working directory",
			Effect:  share.Text() + " -> below 1 %",
		}
	}
	p.Report(f)
	return true
}

// compilesOnBusyHost tells that the compilers have a good part of a host whose CPUs are all in use: the process's own use says
// nothing then, as the load and what is behind the process take the rest.
func compilesOnBusyHost(p *check.Pass, compile quantity.Value) (busy, part quantity.Value, ok bool) {
	busy, part, ok = ofHost(p, compile)
	part = part.Named("compilers, of the host's CPUs")
	return busy, part, ok && busy.AtLeast(p.Param(paramHostTaken)) && part.AtLeast(p.Param(paramCompileHost))
}

// takesIdleTime takes the queue for the CPUs as a consequence, where compilers that do harm are why less than a fifth of the CPUs is idle.
func takesIdleTime(p *check.Pass, compile quantity.Value, f *check.Finding) {
	busy, part, ok := ofHost(p, compile)
	if !ok || f.Severity < check.Warning || part.Below(p.Param(paramCompileHost)) || busy.Below(p.Param(paramCPUTaken)) {
		return
	}
	if rest := busy.Minus(part).Named("CPUs in use without the compilers"); rest.Below(p.Param(paramCPUTaken)) {
		f.Evidence = append(f.Evidence, rest)
		f.Explains = append(f.Explains, cpuSaturated)
	}
}

// programWaits tells that the threads that do not compile wait for a CPU for as long as they run, without a CPU limit that stops them: the
// stops are within what schedstat counts as waiting.
func programWaits(p *check.Pass, pid string, ran quantity.Value) (waits quantity.Value, ok bool) {
	t, err := tightestThrottling(p)
	stopped := err != nil || t != nil && t.share.Above(p.Param(paramThrottledShare))
	if stopped || ran.Number() <= 0 || !p.Recorded(metric.ThreadRunDelay) {
		return waits, false
	}
	waited := runDelay(p, pid, nil) - runDelay(p, pid, compilerThreads)
	waits = quantity.Of("waited for a CPU", waited, quantity.CPUs).Per(ran).Named("the other threads: time waited for a CPU over time run")
	p.Read(waits)
	return waits, waits.AtLeast(p.Param(paramCompileWait))
}

// lengthensPauses takes what is said of the collector as a consequence, where pauses would be no fault, had the threads that work
// together in them not waited for a CPU: what a pause needs is what they run.
func lengthensPauses(p *check.Pass, pid string, f *check.Finding) {
	pauses, ok := gcShare(p, pid)
	ran, ok2 := threadCPU(p, pid, "run", parallelCollectors)
	if !ok || !ok2 || ran.Number() <= 0 || pauses.Below(p.Param(paramLengthened)) {
		return
	}
	waited := quantity.Of("waited", runDelay(p, pid, parallelCollectors), quantity.CPUs)
	needed := pauses.Times(ran.Per(ran.Plus(waited))).Named("time in collections, of which their threads ran and did not wait for a CPU")
	p.Read(needed)
	if needed.Below(p.Param(paramLengthened)) {
		f.Evidence = append(f.Evidence, pauses, needed)
		f.Explains = append(f.Explains, gcOverhead)
	}
}

var codeCacheFull = &check.Check{
	Name:  "code-cache-full",
	Stage: check.Runtime,
	Only:  onlyJVM,
	Doc: `The code cache is full: methods are thrown out, or no longer compiled

Compiled code lives in a reserve of fixed size. When it is full HotSpot stops the
compilers or throws out methods that will be compiled again: the program falls
back to the interpreter, ten to fifty times slower, without any error.

Measured: used / size of each code heap after the window, whether the compilers
are enabled, and how often a heap was full since the JVM's start. A full heap is
a warning; a level of 90 % alone is information.

Cure: -XX:ReservedCodeCacheSize. Risk: reserves address space; memory only as it
is used. Placebo: more compiler threads.
Disproof: jcmd PID Compiler.codecache: full_count=0 and compilation enabled.`,
	URL:    "https://docs.oracle.com/en/java/javase/17/docs/specs/man/java.html",
	Needs:  []metric.Metric{metric.JVMInfo, metric.JVMCode, metric.JVMCodeFull},
	Params: []*check.Param{paramCodeShare},
	Run: func(p *check.Pass) error {
		return eachJVM(p, func(pid string) bool { return runCodeCacheFull(p, pid) })
	},
}

func runCodeCacheFull(p *check.Pass, pid string) bool {
	fullest, total, ok := fullestCodeHeap(p, pid)
	if !ok {
		return false
	}
	p.Read(fullest)
	off, full := false, 0.0
	for _, s := range p.Gauge(metric.JVMCodeFull, "pid", pid) {
		off, full = s.Label("compiler") == "disabled", s.Last()
	}
	if fullest.Below(p.Param(paramCodeShare)) && !off {
		return true // it may have been full once, during start-up
	}
	f := check.Finding{
		Subject: jvmSubject(p, pid), Severity: check.Info,
		Summary: fmt.Sprintf("The code cache is %s full.", fullest.Text()),
		Evidence: []quantity.Value{
			fullest, quantity.Of("times it was full since the start", full, quantity.Events),
			quantity.Of("code cache", total, quantity.Bytes),
		},
		Remedies: []check.Remedy{{
			Action:  "Enlarge the code cache: twice its size is enough in nearly every case.",
			Command: check.Commandf("-XX:ReservedCodeCacheSize=%.0fm", 2*total/(1<<20)),
			Risk:    "a restart; memory grows with the code that is kept",
			Effect:  fullest.Text() + " -> about half",
		}},
		Placebos: []string{"More compiler threads: they have nowhere to put their code."},
		Disproof: "jcmd " + check.Quote(pid) + " Compiler.codecache shows full_count=0 and compilation enabled.",
	}
	switch {
	case off:
		f.Severity = check.Critical
		f.Summary = fmt.Sprintf("The code cache is %s full and the JIT compilers are off: new code is interpreted.", fullest.Text())
	case full > 0:
		f.Severity = check.Warning
		f.Summary = fmt.Sprintf("The code cache is %s full, and has overflowed: compiled methods are thrown out.", fullest.Text())
	}
	p.Report(f)
	return true
}

func fullestCodeHeap(p *check.Pass, pid string) (share quantity.Value, total float64, ok bool) {
	for _, s := range p.Gauge(metric.JVMCode, "pid", pid, "kind", "size") {
		used, known := lastOf(p.Gauge(metric.JVMCode, "pid", pid, "kind", "used", "heap", s.Label("heap")))
		total += s.Last()
		if !known || s.Last() <= 0 {
			continue
		}
		v := quantity.Of("used", used, quantity.Bytes).Per(quantity.Of("size", s.Last(), quantity.Bytes)).Named("code heap %q, used",
			s.Label("heap"))
		if !ok || v.Above(share) {
			share, ok = v, true
		}
	}
	return share, total, ok
}
