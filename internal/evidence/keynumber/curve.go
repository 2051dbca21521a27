package keynumber

import (
	"math"
	"slices"
	"sort"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// A curve is the sum of counters since the first sample, at the times they were read. Between two readings it is a
// straight line.
type curve struct {
	at  []float64 // seconds
	sum []float64
}

// sumOf adds counters up. A series that begins later than the others counts from its first reading.
func sumOf(series []recording.CounterSeries) curve { return cumulated(risesSince(series, math.Inf(1))) }

// firstOf returns when the first of the series begins, in seconds; infinity without series.
func firstOf(series []recording.CounterSeries) float64 {
	first := math.Inf(1)
	for _, s := range series {
		first = min(first, s.Points[0].At.Seconds())
	}
	return first
}

// risesSince returns what counters rose by at each reading. Series that begin after the time zero began at a value of
// zero.
func risesSince(series []recording.CounterSeries, zero float64) map[float64]float64 {
	rises := map[float64]float64{}
	for _, s := range series {
		for i, p := range s.Points {
			at := p.At.Seconds()
			switch {
			case i > 0:
				rises[at] += rise(s.Points[i-1].Value, p.Value)
			case at > zero:
				rises[at] += p.Value
			default:
				rises[at] += 0
			}
		}
	}
	return rises
}

// rise returns the increase between two readings; a fall is a reset, and a new start from zero.
func rise(from, to float64) float64 {
	if to < from {
		return to
	}
	return to - from
}

func cumulated(rises map[float64]float64) curve {
	var c curve
	for at := range rises {
		c.at = append(c.at, at)
	}
	slices.Sort(c.at)
	sum := 0.0
	for _, at := range c.at {
		sum += rises[at]
		c.sum = append(c.sum, sum)
	}
	return c
}

// value returns the sum at a time within the curve.
func (c curve) value(at float64) float64 {
	i := sort.SearchFloat64s(c.at, at)
	switch {
	case i == len(c.at):
		return c.sum[len(c.sum)-1]
	case i == 0 || c.at[i] == at:
		return c.sum[i]
	}
	share := (at - c.at[i-1]) / (c.at[i] - c.at[i-1])
	return c.sum[i-1] + share*(c.sum[i]-c.sum[i-1])
}

func (c curve) total() float64 {
	if len(c.sum) == 0 {
		return 0
	}
	return c.sum[len(c.sum)-1]
}

// perSecondTotal returns the rate over all of the curve; 0 if it has no length.
func (c curve) perSecondTotal() float64 {
	if len(c.at) < 2 {
		return 0
	}
	return c.total() / (c.at[len(c.at)-1] - c.at[0])
}

// per returns the intervals of one curve against another: what both rose by between readings of the first. Collectors
// sample side by side, a few milliseconds apart, so the second is interpolated between its own readings. A piece at
// the end that is shorter than half an interval is left out: its ratio is luck.
func (c curve) per(base curve) []Interval {
	if len(c.at) < 2 || len(base.at) < 2 {
		return nil
	}
	var out []Interval
	from, to := max(c.at[0], base.at[0]), min(c.at[len(c.at)-1], base.at[len(base.at)-1])
	last, least := from, (to-from)/float64(2*len(c.at))
	for _, at := range append(slices.Clone(c.at), to) {
		if at-last < least || at > to {
			continue
		}
		out = append(out, Interval{c.value(at) - c.value(last), base.value(at) - base.value(last)})
		last = at
	}
	return out
}

// perSecond returns the intervals of a curve against time.
func (c curve) perSecond() []Interval {
	var out []Interval
	for i := 1; i < len(c.at); i++ {
		out = append(out, Interval{c.sum[i] - c.sum[i-1], c.at[i] - c.at[i-1]})
	}
	return out
}

// Readings returns a gauge's values over time. Values of several series at the same time are added up.
func Readings(series []recording.GaugeSeries) []Interval {
	values := map[float64]float64{}
	for _, s := range series {
		for _, p := range s.Points {
			values[p.At.Seconds()] += p.Value
		}
	}
	var times []float64
	for at := range values {
		times = append(times, at)
	}
	slices.Sort(times)
	var out []Interval
	for _, at := range times {
		out = append(out, Interval{values[at], 1})
	}
	return out
}

// counters returns the curve of a metric's series with these labels.
func counters(rec *recording.Recording, c *metric.Counter, match ...string) curve {
	return sumOf(rec.Counter(c, match...))
}

// Rate returns the intervals of the total increase of counters, per second.
func Rate(series []recording.CounterSeries) []Interval { return sumOf(series).perSecond() }
