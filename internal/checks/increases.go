package checks

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// oneSample is the outcome of a check whose counters were read once: that says nothing.
func oneSample() error {
	return check.NotAssessed(twoSamples, "a counter that was read once has no rate")
}

// rise adds up what counters of one metric rose by, over the longest time any of them covers. ok is false when none was read twice.
func rise(label string, series []recording.CounterSeries) (n, seconds quantity.Value, ok bool) {
	var sum, span float64
	unit := quantity.None
	for _, s := range series {
		d, twice := s.Increase()
		if !twice {
			continue
		}
		ok = true
		sum += d
		span = max(span, s.Span().Seconds())
		unit = s.Metric.Describe().Unit
	}
	return quantity.Of(label, sum, unit), quantity.Of("window", span, quantity.Seconds), ok && span > 0
}

// rising gives the rate at which counters of one metric rose together, with its arithmetic.
func rising(label string, series []recording.CounterSeries) (perSecond quantity.Value, ok bool) {
	n, seconds, ok := rise(label, series)
	if !ok {
		return quantity.Value{}, false
	}
	return n.Per(seconds).Named("%s", label), true
}

// pressure gives the share of time in which some or all (full) tasks of the host stalled on a resource. ok is false where the
// kernel has no pressure stall information.
func pressure(p *check.Pass, resource, kind string) (share quantity.Value, ok bool) {
	n, seconds, ok := rise("stalled", p.Counter(metric.Pressure, "resource", resource, "kind", kind))
	if !ok {
		return quantity.Value{}, false
	}
	return n.Per(seconds).Named("PSI %s %s: share of time stalled", resource, kind), true
}

// hz is a rate of events per second as a threshold.
const hz quantity.Unit = "events/s"

// intervalsAtLeast counts the intervals in which counters rose by at least perSecond each second, added up over the series.
func intervalsAtLeast(perSecond float64, series []recording.CounterSeries) (n, of int) {
	sums := map[int]float64{}
	for _, s := range series {
		for i, r := range s.Rates() {
			sums[i] += r
		}
	}
	for _, r := range sums {
		if r >= perSecond {
			n++
		}
	}
	return n, len(sums)
}

// labelValues lists the values of a label that series have, sorted.
func labelValues[S interface{ Label(string) string }](series []S, label string) []string {
	var out []string
	for _, s := range series {
		out = append(out, s.Label(label))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
