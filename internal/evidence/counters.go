package evidence

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// WithoutUnit returns a number without its unit, for a sentence that names the unit.
func WithoutUnit(v quantity.Value) string { return v.As(quantity.None).Text() }

// Peak returns the largest value and its index, 0 if there is none.
func Peak(row []float64) (at int, v float64) {
	for i, x := range row {
		if x > v {
			at, v = i, x
		}
	}
	return at, v
}

// OneSample returns the outcome of a check whose counters were read only once, which says nothing.
func OneSample() error {
	return check.NotAssessed(TwoSamples, "a counter that was read once has no rate")
}

// Rise adds up the increases of counters of one metric, over the longest time any of them covers. ok is false if none
// was read twice.
func Rise(label string, series []recording.CounterSeries) (n, seconds quantity.Value, ok bool) {
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

// RateOf returns the total rate of increase of counters of one metric, with its arithmetic.
func RateOf(label string, series []recording.CounterSeries) (perSecond quantity.Value, ok bool) {
	n, seconds, ok := Rise(label, series)
	if !ok {
		return quantity.Value{}, false
	}
	return n.Per(seconds).Named("%s", label), true
}

// Pressure returns the share of time in which some or all (full) tasks of the host stalled on a resource. ok is false
// if the kernel has no pressure stall information.
func Pressure(p *check.Pass, resource, kind string) (share quantity.Value, ok bool) {
	n, seconds, ok := Rise("stalled", p.Counter(metric.Pressure, "resource", resource, "kind", kind))
	if !ok {
		return quantity.Value{}, false
	}
	return n.Per(seconds).Named("PSI %s %s: share of time stalled", resource, kind), true
}

// Hz is a rate of events per second as a threshold.
const Hz quantity.Unit = "events/s"

// IntervalsAtLeast counts the intervals in which counters of one metric together rose by at least perSecond each
// second.
func IntervalsAtLeast(perSecond float64, counters []recording.CounterSeries) (n, of int) {
	var lists [][]recording.Point
	for _, c := range counters {
		lists = append(lists, c.Points)
	}
	return series.Intervals(func(r float64) bool { return r >= perSecond }, lists...)
}

// Together adds up gauges of one metric, moment by moment.
func Together(gauges []recording.GaugeSeries) []recording.Point {
	var lists [][]recording.Point
	for _, g := range gauges {
		lists = append(lists, g.Points)
	}
	return series.Sum(lists...)
}

// MeanOf adds up the means of series.
func MeanOf(gauges []recording.GaugeSeries) (n float64) {
	for _, g := range gauges {
		n += g.Mean()
	}
	return n
}

// LabelValues returns the values of a label of the series, sorted.
func LabelValues[S interface{ Label(string) string }](series []S, label string) []string {
	var out []string
	for _, s := range series {
		out = append(out, s.Label(label))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// First returns the only series, for labels that allow only one; ok is false if it was not recorded.
func First[S any](series []S) (s S, ok bool) {
	if len(series) == 0 {
		return s, false
	}
	return series[0], true
}

// LastOf returns the last value of the only series; ok is false if it was not recorded.
func LastOf(series []recording.GaugeSeries) (v float64, ok bool) {
	s, ok := First(series)
	if !ok {
		return 0, false
	}
	return s.Last(), true
}

// GaugeRise returns how far a gauge rose from the first to the last sample; 0 if it fell. It serves for sums over the
// existing connections, which fall when a connection ends.
func GaugeRise(s recording.GaugeSeries) float64 { return max(0, s.Last()-s.First()) }

// Span returns the time between a series' first and last point, as a quantity.
func Span(s *recording.Series) quantity.Value {
	return quantity.Of("window", s.Span().Seconds(), quantity.Seconds)
}
