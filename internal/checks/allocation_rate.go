package checks

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var allocationRate = &check.Check{
	Name:  "allocation-rate",
	Stage: check.Runtime,
	Only:  onlyJVM,
	Doc: `How fast the program allocates, where collecting it costs too much

A high rate is no fault while collections are cheap. Where they are not, it says
what a change of the code can win, and which threads allocate.

Measured: each young collection begins when eden is full, so that collections
times the size of eden (at the sample before), plus what came into eden since,
is what was allocated; objects too large for eden are not in it. Only Serial,
Parallel and G1 have these counters. It speaks only when gc-overhead does. The
threads' shares are of all they allocated since they started.

Cure: an allocation profile names the lines.
Disproof: jstat -gc PID 1000: the rise of EU and of YGC times EC.`,
	URL:    "https://github.com/openjdk/jdk17u/blob/master/src/hotspot/share/gc/g1/g1MonitoringSupport.hpp",
	Needs:  []metric.Metric{metric.JVMInfo, metric.JVMGCs, metric.JVMGCSeconds, metric.JVMSpace},
	Uses:   []metric.Metric{metric.JVMPoolAllocated, metric.JVMSafepointSeconds, metric.AllocProfileSamples},
	Params: []*check.Param{paramGCShare},
	Run: func(p *check.Pass) error {
		return eachJVM(p, func(pid string) bool { return runAllocationRate(p, pid) })
	},
}

func runAllocationRate(p *check.Pass, pid string) bool {
	young := p.Counter(metric.JVMGCs, "pid", pid, "kind", "young")
	size, ok := first(p.Gauge(metric.JVMSpace, "pid", pid, "space", "eden", "kind", "capacity"))
	used, ok2 := first(p.Gauge(metric.JVMSpace, "pid", pid, "space", "eden", "kind", "used"))
	share, ok3 := gcShare(p, pid)
	if len(young) == 0 || !ok || !ok2 || !ok3 || young[0].Span() <= 0 {
		return false
	}
	bytes := edenFilled(young[0], size, used)
	rate := quantity.Of("allocated", bytes, quantity.Bytes).Per(quantity.Of("window", young[0].Span().Seconds(), quantity.Seconds)).
		Named("allocated a second, estimated")
	p.Read(rate)
	if share.Below(p.Param(paramGCShare)) || rate.Number() <= 0 {
		return true
	}
	p.Report(check.Finding{
		Subject: jvmSubject(p, pid), Severity: check.Info, Confidence: check.Medium,
		Summary:  fmt.Sprintf("The program allocates about %s; collecting that takes %s of the time.", rate.Text(), share.Text()),
		Evidence: []quantity.Value{rate, share},
		Notes:    append(allocationSites(p, pid), allocatingPools(p, pid)...),
		Doubts:   []string{"the rate is estimated from the size of eden and the number of its collections"},
		Disproof: "jstat -gc " + pid + " 1000: the rise of EU, and of YGC times EC, is much less.",
	})
	return true
}

// siteShare is the share of the bytes from which a method is named: less is not worth a change.
const siteShare = 0.05

// shownSites is how many methods are named: past the third they rarely change what to do.
const shownSites = 3

// allocationSites names the application's methods that most bytes are allocated for, each with the class of most of them. It
// is empty without an allocation profile of this process.
func allocationSites(p *check.Pass, pid string) (out []string) {
	prof, ok := p.Ranked(stacks.Alloc)
	if !ok || strconv.Itoa(p.Meta.Target.PID) != pid || prof.Total().Count < fewSamples {
		return nil
	}
	var hits []hit
	for _, s := range prof.Samples {
		if len(s.Stack) > 0 {
			hits = append(hits, hit{sample: s})
		}
	}
	for _, c := range culprits(prof, hotcode.OwnersOf(p.Recording), hits, nil) {
		if len(out) == shownSites || float64(c.value) < siteShare*float64(prof.Total().Value) {
			break
		}
		text := fmt.Sprintf("%s of the allocated bytes are for %s", partText(c.value, prof.Total().Value), c.name())
		if c.class != "" {
			text += ", most of them " + c.class
		}
		out = append(out, text)
	}
	return out
}

// edenFilled adds up what went through eden between the samples.
func edenFilled(young recording.CounterSeries, size, used recording.GaugeSeries) float64 {
	total := 0.0
	n := min(len(young.Points), len(size.Points), len(used.Points))
	for i := 1; i < n; i++ {
		collected := max(0, young.Points[i].Value-young.Points[i-1].Value) * size.Points[i-1].Value
		total += max(0, collected+used.Points[i].Value-used.Points[i-1].Value)
	}
	return total
}

// allocatingPools names the three pools that allocated most.
func allocatingPools(p *check.Pass, pid string) []string {
	list := p.Gauge(metric.JVMPoolAllocated, "pid", pid)
	total := 0.0
	for _, s := range list {
		total += s.Last()
	}
	slices.SortStableFunc(list, func(a, b recording.GaugeSeries) int {
		if a.Last() > b.Last() {
			return -1
		}
		return 1
	})
	var out []string
	for _, s := range list[:min(len(list), 3)] {
		out = append(out, fmt.Sprintf("threads %q: %s of what the living threads have allocated", s.Label("pool"),
			quantity.Of("", s.Last()/total, quantity.Ratio).Text()))
	}
	return out
}
