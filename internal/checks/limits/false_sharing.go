package limits

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

var falseSharing = &check.Check{
	Name:  "false-sharing",
	Stage: check.Limits,
	Doc: `Threads write to different data on one cache line

A cache line that several cores write moves between them with each write: code
that looks independent waits as if it shared a lock, and adding threads makes it
slower. Its mark is a load that hits a modified line in another core's cache
(HITM).

Measured: it is not. HITM events need precise memory sampling (PEBS on Intel,
IBS on AMD, SPE on arm64), which perfdoctor does not count, and a low ratio of
instructions to cycles (ipc-low) may have other causes. The check is listed so
that its absence is seen: it is "fine" only where there is a single CPU.

Fix, once perf c2c has named the line: pad or separate what different threads
write (JVM: @Contended). Risk: more memory.
Won't help: volatile or atomic types, which do not move the data.
Disproof: perf c2c report shows no line with HITM from several threads.`,
	URL:   "https://man7.org/linux/man-pages/man1/perf-c2c.1.html",
	Needs: []metric.Metric{metric.CPUsOnline},
	Run:   runFalseSharing,
}

func runFalseSharing(p *check.Pass) error {
	if cpus, ok := evidence.OnlineCPUs(p); ok && cpus.Number() == 1 {
		p.Read(cpus)
		return nil // no other core can take the line away
	}
	return check.NotAssessed("run: "+string(evidence.C2CCommand(p)),
		"no collector counts loads that hit a line modified by another core (HITM)")
}
