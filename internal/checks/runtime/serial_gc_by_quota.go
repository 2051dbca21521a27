package runtime

import (
	"fmt"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var serialGCByQuota = &check.Check{
	Name:  "serial-gc-by-quota",
	Stage: check.Runtime,
	Only:  evidence.OnlyJVM,
	Doc: `The JVM chose the serial collector because it sees one CPU or little memory

With fewer than two CPUs or less than 1792 MiB HotSpot sees no server-class
machine and chooses SerialGC: one thread collects, the program stands still
meanwhile, and a full collection of some GiB takes seconds. A CPU limit of 1 or
less does that, whatever the host has.

Measured: the collector and whether it was chosen by the JVM (flag origin), the
CPUs and memory that the JVM sees. It is a warning when collections take more
than their share of time, else information.

Fix: choose one: -XX:+UseG1GC or -XX:+UseParallelGC; better, two CPUs. Risk: on
a single CPU G1's threads compete with the program: for heaps below 1 GiB Serial
is often the better one.
Disproof: jcmd PID VM.flags shows UseSerialGC from the command line.`,
	URL:    "https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/runtime/os.cpp",
	Needs:  []metric.Metric{metric.JVMInfo, metric.JVMFlag, metric.JVMCPUs},
	Uses:   []metric.Metric{metric.JVMSafepointSeconds, metric.JVMGCSeconds, metric.CPUsOnline, metric.JVMMemoryLimit},
	Params: []*check.Param{evidence.ParamGCShare},
	Run: func(p *check.Pass) error {
		return evidence.EachJVM(p, func(pid string) bool { return runSerialGC(p, pid) })
	},
}

func runSerialGC(p *check.Pass, pid string) bool {
	view, ok := evidence.JVMCPUs(p, pid)
	if !ok {
		return false
	}
	p.Read(view)
	on, origin := evidence.JVMFlag(p, pid, "UseSerialGC")
	host, known := evidence.OnlineCPUs(p)
	if on != "true" || strings.Contains(origin, "command line") || strings.Contains(origin, "environment") || known &&
		host.Number() < 2 {
		return true
	}
	f := check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Info,
		Summary:  fmt.Sprintf("The JVM chose SerialGC by itself: it reckons with %s.", view.Text()),
		Evidence: []quantity.Value{view},
		Remedies: []check.Remedy{{
			Action:  "Choose the collector yourself, or give the JVM two CPUs.",
			Command: "-XX:+UseParallelGC (throughput) or -XX:+UseG1GC (shorter pauses)",
			Risk:    "on one CPU the collector's threads take the program's time; a restart",
			Effect:  "as many threads as there are CPUs work on a full collection",
		}},
		Disproof: "jcmd " + check.Quote(pid) + " VM.flags -all shows UseSerialGC from the command line.",
	}
	if known {
		f.Evidence = append(f.Evidence, host)
	}
	if limit, ok := evidence.LastOf(p.Gauge(metric.JVMMemoryLimit, "pid", pid)); ok {
		f.Evidence = append(f.Evidence, quantity.Of("memory limit that the JVM sees", limit, quantity.Bytes))
	}
	if share, ok := evidence.GCShare(p, pid); ok {
		f.Evidence = append(f.Evidence, share)
		if share.AtLeast(p.Param(evidence.ParamGCShare)) {
			f.Severity = check.Warning
			f.Summary += fmt.Sprintf(" Collections take %s of the time.", share.Text())
		}
	}
	p.Report(f)
	return true
}
