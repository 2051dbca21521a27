package checks

import (
	"fmt"
	"math"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

// onlineCPUs gives the CPUs of the host.
func onlineCPUs(p *check.Pass) (quantity.Value, bool) {
	for _, s := range p.Gauge(metric.CPUsOnline) {
		if n := s.Last(); n > 0 {
			return quantity.Of("CPUs online", n, quantity.CPUs), true
		}
	}
	return quantity.Value{}, false
}

// ofHost gives the share of the host's CPU time that is in use, and that of a use in CPUs.
func ofHost(p *check.Pass, use quantity.Value) (busy, part quantity.Value, ok bool) {
	_, all, err := cpuTimes(p)
	host, known := onlineCPUs(p)
	if err != nil || !known {
		return busy, part, false
	}
	return all.load(), use.Per(host), true
}

// effectiveCPUs gives what the target can use at most: the least of the host's CPUs, the cpusets and the CPU limits
// of its cgroup and all ancestors. The label says which of them it is. ok is false when none of them is known.
func effectiveCPUs(p *check.Pass) (least quantity.Value, ok bool) {
	least, ok = onlineCPUs(p)
	take := func(v quantity.Value) {
		if v.Number() > 0 && (!ok || v.Below(least)) {
			least, ok = v, true
		}
	}
	for _, s := range p.Gauge(metric.CgroupCpuset) {
		take(quantity.Of(fmt.Sprintf("CPUs in the cpuset of %s", s.Label("cgroup")), s.Last(), quantity.CPUs))
	}
	for _, s := range p.Gauge(metric.CgroupQuota) {
		take(quantity.Of(fmt.Sprintf("CPU limit of %s", s.Label("cgroup")), s.Last(), quantity.CPUs))
	}
	return least, ok
}

// wholeCPUs rounds up, as runtimes do: no program can run on less than one thread.
func wholeCPUs(v quantity.Value) quantity.Value {
	if n := math.Ceil(v.Number()); n != v.Number() {
		return quantity.Of(v.Label()+", rounded up", n, quantity.CPUs)
	}
	return v
}
