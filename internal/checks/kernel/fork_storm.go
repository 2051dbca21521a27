package kernel

import (
	"fmt"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	forkRate = &check.Param{
		Name: "rate", Default: 100, Unit: evidence.Hz,
		Why: "a host that serves creates a few processes a second; a script that starts a program for each line " +
			"hundreds",
	}
	forkShare = &check.Param{
		Name: "share", Default: 0.25, Unit: quantity.Ratio,
		Why: "of all CPUs, in processes that end at once: with less, most of the machine is left to others",
	}
	forkEach = &check.Param{
		Name: "each", Default: 0.01, Unit: quantity.Seconds,
		Why: "starting and ending a small program takes one to three milliseconds; where it is ten, most is its " +
			"own work, such as a compiler's",
	}
)

var forkStorm = &check.Check{
	Name:  "fork-storm",
	Stage: check.Kernel,
	Doc: `Processes are made and end at a high rate

Each process costs about a millisecond of CPU time before it has done anything: its parent's memory map is copied, a
program is loaded and linked, and all of it is taken down again. A script that starts a program for each line, a server
that starts one for each request, or one that crashes and is started again, can fill the CPUs with that. No process
list shows it: each process is gone before the list is read.

The check takes the rate of /proc/stat processes and the CPU time of short-lived processes. That time comes from their
parents' counters of ended children and from samples of the CPUs, which name the programs. It warns where they hold a
quarter of the CPUs or more and each used little. The kernel counts threads too, so the target's count is divided by
the threads of each of its processes that came and went. A burst of processes, as at the start of a job, is no storm:
more than half of the intervals must have one.

Fixes: one process for many pieces of work, functions of the language instead of programs, workers that stay. Won't
help: a higher limit of processes. Disproof: vmstat -f, twice, shows few forks.`,
	URL:   "https://man7.org/linux/man-pages/man2/fork.2.html",
	Needs: []metric.Metric{metric.Forks, metric.ProcessCPU, metric.CPUSeconds},
	Uses: []metric.Metric{
		metric.ProcessChildrenCPU, metric.ProcessInfo, metric.ProcessStart, metric.HostCPUProfileSamples,
		metric.TargetInfo,
		metric.CgroupCPU, metric.ProcessThreads,
	},
	Params: []*check.Param{forkRate, forkShare, forkEach},
	Run:    runForkStorm,
}

func runForkStorm(p *check.Pass) error {
	made, ok := evidence.RateOf("processes and threads created", p.Counter(metric.Forks))
	if !ok {
		return evidence.OneSample()
	}
	made = processesOf(p, made)
	p.Read(made)
	if made.Below(p.Param(forkRate)) || !steady(p) {
		return nil
	}
	if !p.Recorded(metric.ProcessChildrenCPU) && !p.Recorded(metric.HostCPUProfileSamples) {
		return check.NotAssessed("record it again with this version, as root for samples of the CPUs",
			"the CPU time of processes that began and ended between two readings was not recorded")
	}
	c, ok := evidence.Consumers(p.Recording)
	if !ok {
		return evidence.OneSample()
	}
	used := quantity.Of("short-lived processes", c.ShortLived(), quantity.CPUs)
	share := used.Per(quantity.Of("CPUs", c.CPUs, quantity.CPUs)).Named("short-lived processes, share of all CPUs")
	each := quantity.Of("", c.ShortLived()*c.Window, quantity.Seconds).
		Per(quantity.Of("", made.Number()*c.Window, quantity.Events)).As(quantity.Seconds).
		Named("CPU time of each process or thread created")
	p.Read(share)
	p.Read(each)
	if share.Below(p.Param(forkShare)) || each.Above(p.Param(forkEach)) {
		return nil
	}
	p.Report(forkFinding(p, c, made, share, each))
	return nil
}

// processesOf turns the number of processes and threads created in the target into that of processes: it divides by
// the mean number of threads of the target's processes that came and went.
func processesOf(p *check.Pass, made quantity.Value) quantity.Value {
	threads, looks := 0.0, 0.0
	for _, s := range p.Gauge(metric.ProcessThreads) {
		if pid, _ := strconv.Atoi(s.Label("pid")); pid == p.Meta.Target.PID || s.Span() >= passing {
			continue
		}
		for _, point := range s.Points {
			threads += point.Value
			looks++
		}
	}
	if threads <= looks {
		return made
	}
	each := quantity.Of("threads of each process that came and went, mean", threads/looks, quantity.None)
	return made.Per(each).As(evidence.Hz).Named("processes created")
}

// passing is the longest time for which a process that comes and goes is seen: a program that works longer is worth
// its start.
const passing = 5 * time.Second

// steady reports whether processes were created at the rate in more than half of the intervals. One interval says
// nothing about bursts.
func steady(p *check.Pass) bool {
	rate := p.Param(forkRate).Number()
	high, all := evidence.IntervalsAtLeast(rate, p.Counter(metric.Forks))
	return 2*high > all
}

func forkFinding(p *check.Pass, c *evidence.Consumption, made, share, each quantity.Value) check.Finding {
	subject, pid, what := forkers(p, c)
	look := check.Command("perf trace -a --no-syscalls -e sched:sched_process_exec -- sleep 1")
	if pid > 0 {
		look = check.Commandf("perfdoctor diagnose --pid %d", pid)
	}
	return check.Finding{
		Subject:  subject,
		Severity: check.Warning,
		Summary: fmt.Sprintf("%.0f processes a second are created and end at once: %s use %.2f of %.0f CPUs",
			made.Number(), what, c.ShortLived(), c.CPUs),
		Evidence: []quantity.Value{made, share, each},
		Weight:   share.Number(),
		Remedies: []check.Remedy{{
			Action: "Let one process do the work of many: a function of the language instead of a program, one start " +
				"for a batch (xargs), workers that stay instead of one process a request.",
			Command: look,
			Risk:    "State that ended with each process must be cleared by hand.",
			Effect: fmt.Sprintf("processes created a second, from %.0f to below %.0f", made.Number(),
				p.Param(forkRate).Number()),
		}},
		Placebos: []string{"A higher limit of processes (ulimit -u, pids.max): there are not too many at once."},
		Disproof: "vmstat -f, twice: the number of forks hardly rises.",
	}
}

// forkers names who makes the processes, and what they are. pid is 0 where nobody is known.
func forkers(p *check.Pass, c *evidence.Consumption) (subject check.Subject, pid int, what string) {
	if c.OfTarget > 0 {
		return evidence.TargetSubject(p), p.Meta.Target.PID, "short-lived ones of the target"
	}
	for _, x := range c.List { // the first is the greatest
		if !x.ShortLived {
			continue
		}
		if x.ParentPID > 0 {
			return evidence.PIDSubject(strconv.Itoa(x.ParentPID), x.Parent), x.ParentPID, evidence.ConsumerName(x)
		}
		return check.Host, 0, evidence.ConsumerName(x)
	}
	return check.Host, 0, "short-lived ones"
}
