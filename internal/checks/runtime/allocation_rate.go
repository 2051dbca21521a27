package runtime

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

var allocationRate = &check.Check{
	Name:  "allocation-rate",
	Stage: check.Runtime,
	Only:  evidence.OnlyJVM,
	Doc: `How fast the program allocates, where collecting it costs too much

A high rate is no fault while collections are cheap. Where they are not, this
check shows what a change of the code can win, and which threads allocate.

Measured: each young collection begins when eden is full. So the program
allocated the collections times the size of eden (at the sample before), plus
what came into eden since, without objects too large for eden. Only Serial,
Parallel and G1 have these counters. It reports only when gc-overhead does. The
threads' shares are of all they allocated since they started.

Fix: an allocation profile names the lines.
Disproof: jstat -gc PID 1000: the rise of EU and of YGC times EC.`,
	URL:    "https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/gc/g1/g1MonitoringSupport.hpp",
	Needs:  []metric.Metric{metric.JVMInfo, metric.JVMGCs, metric.JVMGCSeconds, metric.JVMSpace},
	Uses:   []metric.Metric{metric.JVMPoolAllocated, metric.JVMSafepointSeconds, metric.AllocProfileSamples},
	Params: []*check.Param{evidence.ParamGCShare},
	Run: func(p *check.Pass) error {
		return evidence.EachJVM(p, func(pid string) bool { return runAllocationRate(p, pid) })
	},
}

func runAllocationRate(p *check.Pass, pid string) bool {
	young := p.Counter(metric.JVMGCs, "pid", pid, "kind", "young")
	size, ok := evidence.First(p.Gauge(metric.JVMSpace, "pid", pid, "space", "eden", "kind", "capacity"))
	used, ok2 := evidence.First(p.Gauge(metric.JVMSpace, "pid", pid, "space", "eden", "kind", "used"))
	share, ok3 := evidence.GCShare(p, pid)
	if len(young) == 0 || !ok || !ok2 || !ok3 || young[0].Span() <= 0 {
		return false
	}
	bytes, seconds := edenFilled(young[0], size, used)
	if seconds <= 0 {
		return false
	}
	rate := quantity.Of("allocated", bytes, quantity.Bytes).Per(quantity.Of("window", seconds, quantity.Seconds)).
		Named("allocated a second, estimated")
	p.Read(rate)
	if share.Below(p.Param(evidence.ParamGCShare)) || rate.Number() <= 0 {
		return true
	}
	p.Report(check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Info, Confidence: check.Medium,
		Summary: fmt.Sprintf("The program allocates about %s; collecting that takes %s of the time.", rate.Text(),
			share.Text()),
		Evidence: []quantity.Value{rate, share},
		Notes:    append(evidence.AllocationSites(p, pid), allocatingPools(p, pid)...),
		Doubts:   []string{"the rate is estimated from the size of eden and the number of its collections"},
		Disproof: "jstat -gc " + pid + " 1000: the rise of EU, and of YGC times EC, is much less.",
	})
	return true
}

// edenFilled sums the bytes that went through eden between samples with its size and use, and the seconds between
// these samples.
func edenFilled(young recording.CounterSeries, size, used recording.GaugeSeries) (bytes, seconds float64) {
	for i := 1; i < len(young.Points); i++ {
		from, to := young.Points[i-1], young.Points[i]
		capacity, ok := series.At(size.Points, from.At)
		before, ok2 := series.At(used.Points, from.At)
		after, ok3 := series.At(used.Points, to.At)
		if ok && ok2 && ok3 {
			bytes += max(0, series.Step(from.Value, to.Value)*capacity+after-before)
			seconds += (to.At - from.At).Seconds()
		}
	}
	return bytes, seconds
}

// allocatingPools names the three pools that allocated most.
func allocatingPools(p *check.Pass, pid string) []string {
	list := p.Gauge(metric.JVMPoolAllocated, "pid", pid)
	total := 0.0
	for _, s := range list {
		total += s.Last()
	}
	if total <= 0 {
		return nil // nothing was allocated yet
	}
	slices.SortStableFunc(list, func(a, b recording.GaugeSeries) int { return cmp.Compare(b.Last(), a.Last()) })
	var out []string
	for _, s := range list[:min(len(list), 3)] {
		out = append(out, fmt.Sprintf("threads %q: %s of what the living threads have allocated", s.Label("pool"),
			quantity.Of("", s.Last()/total, quantity.Ratio).Text()))
	}
	return out
}
