package runtime

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var paramCodeShare = &check.Param{
	Name: "share", Default: 0.9, Unit: quantity.Ratio,
	Why: "from there the JVM throws out compiled methods to make room (StartAggressiveSweepingAt is 10 % free)",
}

var codeCacheFull = &check.Check{
	Name:  "code-cache-full",
	Stage: check.Runtime,
	Only:  evidence.OnlyJVM,
	Doc: `The code cache is full: methods are thrown out, or no longer compiled

Compiled code lives in a reserve of fixed size. When it is full HotSpot stops the
compilers or throws out methods that will be compiled again: the program falls
back to the interpreter, ten to fifty times slower, without any error.

Measured: used / size of each code heap after the window, whether the compilers
are enabled, and how often a heap was full since the JVM's start. A full heap is
a warning; a level of 90 % alone is information. Compilers that are off while no
heap was ever full are switched off by -Xint.

Fix: -XX:ReservedCodeCacheSize. Risk: reserves address space; memory only as it
is used. Won't help: more compiler threads.
Disproof: jcmd PID Compiler.codecache: full_count=0 and compilation enabled.`,
	URL:    "https://docs.oracle.com/en/java/javase/17/docs/specs/man/java.html",
	Needs:  []metric.Metric{metric.JVMInfo, metric.JVMCode, metric.JVMCodeFull},
	Params: []*check.Param{paramCodeShare},
	Run: func(p *check.Pass) error {
		return evidence.EachJVM(p, func(pid string) bool { return runCodeCacheFull(p, pid) })
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
		Subject: evidence.JVMSubject(p, pid), Severity: check.Info,
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
	case off && full == 0: // by the command line: nothing else stops them before a heap is full
		f.Severity = check.Critical
		f.Summary = "The JIT compilers are switched off: all code is interpreted, ten to fifty times slower."
		f.Remedies = []check.Remedy{{
			Action: "Remove -Xint and -Djava.compiler from the command line, JAVA_TOOL_OPTIONS and JDK_JAVA_OPTIONS.",
			Risk:   "none",
			Effect: "code that runs often is compiled",
		}}
		f.Placebos = []string{"A larger code cache: nothing is put into it."}
	case off:
		f.Severity = check.Critical
		f.Summary = fmt.Sprintf("The code cache is %s full and the JIT compilers are off: new code is interpreted.",
			fullest.Text())
	case full > 0:
		f.Severity = check.Warning
		f.Summary = fmt.Sprintf("The code cache is %s full, and has overflowed: compiled methods are thrown out.",
			fullest.Text())
	}
	p.Report(f)
	return true
}

func fullestCodeHeap(p *check.Pass, pid string) (share quantity.Value, total float64, ok bool) {
	for _, s := range p.Gauge(metric.JVMCode, "pid", pid, "kind", "size") {
		used, known := evidence.LastOf(p.Gauge(metric.JVMCode, "pid", pid, "kind", "used", "heap", s.Label("heap")))
		total += s.Last()
		if !known || s.Last() <= 0 {
			continue
		}
		v := quantity.Of("used", used, quantity.Bytes).Per(quantity.Of("size", s.Last(), quantity.Bytes)).
			Named("code heap %q, used",
				s.Label("heap"))
		if !ok || v.Above(share) {
			share, ok = v, true
		}
	}
	return share, total, ok
}
