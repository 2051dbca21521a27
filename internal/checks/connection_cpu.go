package checks

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/quantity"
)

// A cpuSplit is how the CPUs of the host spent the window, in seconds.
type cpuSplit struct {
	busy, system, softirq, all quantity.Value
}

// splitCPU sums /proc/stat over the CPUs; ok is false when it was not recorded twice. guest is part of user and left out.
func splitCPU(p *check.Pass) (c cpuSplit, ok bool) {
	var busy, system, softirq, all float64
	for _, s := range p.Counter(metric.CPUSeconds) {
		n, enough := s.Increase()
		if !enough {
			return c, false
		}
		switch s.Label("mode") {
		case "guest", "guest_nice":
			continue
		case "idle", "iowait":
		case "system":
			system, busy = system+n, busy+n
		case "softirq":
			softirq, busy = softirq+n, busy+n
		default:
			busy += n
		}
		all += n
	}
	sec := func(label string, n float64) quantity.Value { return quantity.Of(label, n, quantity.Seconds) }
	return cpuSplit{sec("busy", busy), sec("system", system), sec("softirq", softirq), sec("all", all)}, busy > 0 && all > 0
}
