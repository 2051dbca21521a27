package checks

import (
	"cmp"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/quantity"
)

// paramPoolFloor keeps pools out that are small on every host.
var paramPoolFloor = &check.Param{
	Name: "pool-floor", Default: 4, Unit: quantity.Threads,
	Why: "reactor-netty starts at least four event loops and HotSpot up to three compiler threads however few CPUs there are",
}

// hostSizedPools gives the target's pools that are sized by the number of CPUs and have at least so many threads, the largest first.
func hostSizedPools(p *check.Pass, atLeast quantity.Value) []quantity.Value {
	var out []quantity.Value
	for _, s := range p.Gauge(metric.ThreadPools) {
		v := quantity.Of(s.Label("pool"), s.Last(), quantity.Threads)
		known := slices.ContainsFunc(cpuSizedPools, func(name string) bool { return strings.HasPrefix(v.Label(), name) })
		if known && v.AtLeast(atLeast) && v.Above(p.Param(paramPoolFloor)) {
			out = append(out, v)
		}
	}
	slices.SortStableFunc(out, func(a, b quantity.Value) int { return cmp.Compare(b.Number(), a.Number()) })
	return out
}

func targetSubject(p *check.Pass) check.Subject {
	for _, s := range p.Info(metric.TargetInfo) {
		if pid := s.Label("pid"); pid != "" && pid != "0" {
			return check.Subject{Kind: "pid", ID: pid + " (" + s.Label("comm") + ")"}
		}
	}
	return check.Host
}
