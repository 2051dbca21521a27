package runtime

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var javaDeadlock = &check.Check{
	Name:  "java-deadlock",
	Stage: check.Runtime,
	Event: true,
	Only:  evidence.OnlyJVM,
	Doc: `Java threads wait for each other for ever

Each of the threads holds a lock that the next one needs. None of them will ever
go on, nor will a thread that needs one of their locks: pools run dry one thread
after the other, with the CPU idle.

Measured: the JVM's own search for cycles among monitors and locks of
java.util.concurrent (that have an owner), in the one thread dump after the
window. Deadlocks over semaphores, futures or full pools are not found.

Fix: restart, and take the locks in one order everywhere, or with tryLock and a
time limit. Risk: a restart loses what the threads were doing.
Disproof: none: the JVM has found the cycle.`,
	URL:   "https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/services/threadService.cpp",
	Needs: []metric.Metric{metric.JVMInfo, metric.JVMDeadlock},
	Uses:  []metric.Metric{metric.JVMStates, metric.JVMDumpSeconds},
	Run: func(p *check.Pass) error {
		return evidence.EachJVM(p, func(pid string) bool { return runDeadlock(p, pid) })
	},
}

func runDeadlock(p *check.Pass, pid string) bool {
	cycle := p.Info(metric.JVMDeadlock, "pid", pid)
	n := quantity.Of("threads in deadlocks", float64(len(cycle)), quantity.Threads)
	p.Read(n)
	if len(cycle) == 0 {
		return len(p.Gauge(metric.JVMStates, "pid", pid)) > 0
	}
	f := check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Critical,
		Summary: fmt.Sprintf("%s are in a deadlock: %q waits for a lock of %q, which waits in turn for it.", n.Text(),
			cycle[0].Label("thread"), cycle[0].Label("holder")),
		Evidence: []quantity.Value{n},
		Remedies: []check.Remedy{{
			Action: "Save a thread dump for the developers, then restart; in the code, take these locks in one " +
				"order everywhere.",
			Command: check.Commandf("jcmd %s Thread.print -l > deadlock.txt", pid),
			Risk:    "the restart loses what the threads were doing",
			Effect:  n.Text() + " -> 0",
		}},
		Disproof: "A second dump does not show the cycle; but the JVM reports no false ones.",
	}
	for _, s := range cycle {
		f.Notes = append(f.Notes, fmt.Sprintf("%q waits at %s for a %s that %q holds", s.Label("thread"), s.Label("at"),
			s.Label("class"), s.Label("holder")))
	}
	if v, ok := evidence.LastOf(p.Gauge(metric.JVMStates, "pid", pid, "state", "BLOCKED")); ok {
		f.Evidence = append(f.Evidence, quantity.Of("threads blocked in all", v, quantity.Threads))
	}
	p.Report(f)
	return true
}
