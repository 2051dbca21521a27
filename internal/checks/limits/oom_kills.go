package limits

import (
	"fmt"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var oomKills = &check.Check{
	Name:  "oom-kills",
	Stage: check.Limits,
	Event: true,
	Doc: `The kernel killed processes for want of memory

The OOM killer ended a process in the window: its work is lost, and what
restarts it pays for the start. Kills since boot say nothing about now and are
no finding.

Measured: the increase of oom_kill in the target's cgroup and every ancestor
(with cgroup v2 the count of a group includes its descendants); the lowest
level that counted is named. The host's count shows kills outside of the
target, which are reported as FYI, since they are not its fault.

Fix: a limit that holds the working set with room, a heap that fits the limit
(heap is not all: threads, code and direct buffers come on top).
Risk of a higher limit: the host may come short. Won't help: oom_score_adj, which
only chooses another victim.
Disproof: the kernel log names a process that does not belong to the service
(dmesg, "Killed process").`,
	URL:   "https://docs.kernel.org/admin-guide/cgroup-v2.html#memory",
	Needs: []metric.Metric{metric.HostOOMKills},
	Uses:  []metric.Metric{metric.CgroupOOMKills, metric.CgroupMemoryLimit, metric.CgroupDir},
	Facts: []check.Fact{evidence.KillsAtLimit},
	Run:   runOOMKills,
}

func runOOMKills(p *check.Pass) error {
	host, known := 0.0, false
	for _, s := range p.Counter(metric.HostOOMKills) {
		n, ok := s.Increase()
		host, known = host+n, known || ok
	}
	if !known {
		return check.NotAssessed(evidence.TwoSamples, "the host's OOM kills were read less than twice")
	}
	s, killed := lowestKilled(p)
	p.Read(quantity.Of("OOM kills on the host in the window", host, quantity.Events))
	switch {
	case s != nil:
		p.Report(cgroupKill(p, s, killed))
	case host > 0:
		p.Report(hostKill(p, host))
	}
	return nil
}

// lowestKilled returns the level nearest to the process at which a kill was counted.
func lowestKilled(p *check.Pass) (lowest *recording.CounterSeries, killed float64) {
	level := -1
	for _, s := range p.Counter(metric.CgroupOOMKills) {
		n, ok := s.Increase()
		at, err := strconv.Atoi(s.Label("level"))
		if ok && n > 0 && err == nil && (level < 0 || at < level) {
			level, killed, lowest = at, n, &s
		}
	}
	return lowest, killed
}

func cgroupKill(p *check.Pass, s *recording.CounterSeries, killed float64) check.Finding {
	cgroup, level := s.Label("cgroup"), s.Label("level")
	f := check.Finding{
		Subject:  check.Subject{Kind: "cgroup", ID: cgroup},
		Facts:    []check.Fact{evidence.KillsAtLimit},
		Severity: check.Critical,
		Summary: fmt.Sprintf("The OOM killer ended %s in this cgroup during the window.",
			countOf(killed, "process", "processes")),
		Evidence: []quantity.Value{quantity.Of("OOM kills in the window", killed, quantity.Events)},
		Placebos: []string{"oom_score_adj: it only chooses another victim."},
		Disproof: "The kernel log names a process that does not belong to the service: dmesg | grep 'Killed process'",
	}
	for _, l := range p.Gauge(metric.CgroupMemoryLimit, "cgroup", cgroup, "level", level) {
		limit := quantity.Of("memory limit", l.Last(), quantity.Bytes)
		more := quantity.Of("", limit.Number()*1.5, quantity.Bytes)
		f.Evidence = append(f.Evidence, limit)
		f.Remedies = append(f.Remedies, check.Remedy{
			Action: fmt.Sprintf("Raise the limit to %s and look at what the working set then needs.", more.Text()),
			Command: evidence.KnobMemoryLimit.Set(p, cgroup, level, fmt.Sprintf("%.0f", more.Number()),
				fmt.Sprintf("%.0f", more.Number())),
			Risk:   "the host must have it free",
			Effect: "OOM kills -> 0, if the working set ends below the new limit; a leak only comes later",
		})
	}
	f.Remedies = append(f.Remedies, check.Remedy{
		Action: "Make the program fit: a heap (JVM: -XX:MaxRAMPercentage) that leaves room for threads, code and " +
			"direct buffers.",
		Risk:   "more garbage collection with a smaller heap",
		Effect: "OOM kills -> 0",
	})
	return f
}

func hostKill(p *check.Pass, killed float64) check.Finding {
	sev, who := check.Critical, "on this host"
	if p.Meta.Target.Kind != "host" && p.Meta.Target.Kind != "" {
		sev, who = check.Info, "on this host, but in none of the target's cgroups"
	}
	f := check.Finding{
		Subject:  check.Host,
		Severity: sev,
		Summary:  fmt.Sprintf("The OOM killer ended %s %s.", countOf(killed, "process", "processes"), who),
		Evidence: []quantity.Value{quantity.Of("OOM kills in the window", killed, quantity.Events)},
		Remedies: []check.Remedy{{
			Action:  "Find the victim and what took the memory, then limit that or give it room.",
			Command: "dmesg -T | grep -B 40 'Killed process'",
			Risk:    "none: it only reads",
			Effect:  "OOM kills -> 0 once the largest consumer has a limit that the host can hold",
		}},
		Placebos: []string{"oom_score_adj: it only chooses another victim."},
		Disproof: "The kernel log shows no 'Killed process' line in these seconds.",
	}
	if !p.Recorded(metric.CgroupOOMKills) && sev == check.Info {
		f.Severity, f.Confidence = check.Warning, check.Medium
		f.Summary = fmt.Sprintf("The OOM killer ended %s on this host.", countOf(killed, "process", "processes"))
		f.Doubts = append(f.Doubts, "the target's cgroups were not read, so it may have been the target's own")
	}
	return f
}

func countOf(n float64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%.0f %s", n, many)
}
