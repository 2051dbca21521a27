package runtime

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

var paramOffHeapGrowth = &check.Param{
	Name: "growth", Default: 16 << 20, Unit: quantity.Bytes,
	Why: "less is code cache, thread stacks and malloc's arenas, which grow for minutes in every young JVM",
}

var offHeapGrowth = &check.Check{
	Name:  "off-heap-growth",
	Stage: check.Runtime,
	Only:  evidence.OnlyJVM,
	Doc: `The process grows outside its heap

Direct buffers, native libraries, thread stacks, metaspace and malloc's arenas
are not bounded by -Xmx. They grow until the container's limit kills the
process, with a heap that looks healthy.

Measured: resident memory less all of the committed heap: a lower bound of what
is outside, as the heap need not be resident. It must rise through the window by
more than a young JVM's code and stacks do. It is a warning when at this rate the
memory limit is reached soon, else information.

Fix: Native Memory Tracking names the JVM's own part; what it does not name is
malloc of libraries. Risk: NMT costs 5 to 10 % and a restart.
Won't help: a smaller heap only delays the end.
Disproof: RSS in /proc/PID/status stops rising while the load goes on.`,
	URL:    "https://docs.oracle.com/en/java/javase/17/vm/native-memory-tracking.html",
	Needs:  []metric.Metric{metric.JVMInfo, metric.JVMSpace, metric.ProcessRSS},
	Uses:   []metric.Metric{metric.CgroupMemoryLimit, metric.CgroupWorkingSet, metric.JVMMetaspace, metric.JVMFlag},
	Params: []*check.Param{paramOffHeapGrowth, evidence.ParamGrowthSoon, evidence.ParamRiseFall},
	Run: func(p *check.Pass) error {
		return evidence.EachJVM(p, func(pid string) bool { return runOffHeapGrowth(p, pid) })
	},
}

func runOffHeapGrowth(p *check.Pass, pid string) bool {
	rss, ok := evidence.First(p.Gauge(metric.ProcessRSS, "pid", pid))
	committed := p.Gauge(metric.JVMSpace, "pid", pid, "kind", "capacity")
	if !ok || len(committed) == 0 {
		return false
	}
	joined := series.Minus(rss.Points, evidence.Together(committed))
	if len(joined) < evidence.LeastForRise {
		return false
	}
	outside := recording.GaugeSeries{Series: &recording.Series{Metric: rss.Metric, Labels: rss.Labels}}
	for _, point := range joined {
		if point.Value > 0 {
			outside.Points = append(outside.Points, point)
		}
	}
	if len(outside.Points) < evidence.LeastForRise {
		p.Read(quantity.Of("resident memory is within the committed heap", 0, quantity.Bytes))
		return true
	}
	grown := quantity.Of("outside the heap, more", outside.Last()-outside.First(), quantity.Bytes)
	p.Read(grown)
	if grown.Below(p.Param(paramOffHeapGrowth)) || !evidence.OnlyRises(p, outside) {
		return true
	}
	rate := grown.Per(quantity.Of("", outside.Span().Seconds(), quantity.Seconds)).Named("growth outside the heap")
	f := check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Info, Confidence: check.Medium,
		Summary:  fmt.Sprintf("The process grows by %s outside its heap.", rate.Text()),
		Evidence: []quantity.Value{rate, quantity.Of("outside the heap now, at least", outside.Last(), quantity.Bytes)},
		Remedies: []check.Remedy{{
			Action: "Restart with Native Memory Tracking and compare two summaries; what they do not name is " +
				"malloc of native libraries.",
			Command: check.Commandf("-XX:NativeMemoryTracking=summary; jcmd %s VM.native_memory summary.diff", pid),
			Risk:    "5 to 10 % of throughput; a restart",
			Effect:  "the part that grows has a name",
		}, {
			Action:  "Bound direct buffers, so that the leak shows as an error in the program and not as a kill.",
			Command: "-XX:MaxDirectMemorySize=256m",
			Risk:    "an OutOfMemoryError where the program needs more",
			Effect:  "growth of direct buffers ends at the bound",
		}},
		Placebos: []string{"A smaller heap: it only delays the end."},
		Disproof: "grep VmRSS /proc/" + check.Quote(pid) + "/status stops rising while the load goes on.",
	}
	if n := len(rss.Points); len(joined) < n {
		f.Doubts = append(f.Doubts, fmt.Sprintf("the heap was read at %d of the %d times at which resident memory was",
			len(joined), n))
	}
	if left, ok := evidence.MemoryLeft(p); ok {
		soon := left.Per(rate).As(quantity.Seconds).Named("until the memory limit, at this rate")
		f.Evidence = append(f.Evidence, left, soon)
		if soon.Below(p.Param(evidence.ParamGrowthSoon)) {
			f.Severity = check.Warning
			f.Summary += fmt.Sprintf(" At this rate the memory limit is reached in %s.", soon.Text())
		}
	}
	p.Report(f)
	return true
}
