package keynumber

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// answered returns the requests that clients counted: what the caller says, what a load generator's process reported
// meanwhile, or the rate it printed at its end. It is empty if none of them did.
func (s *Source) answered() curve {
	if s.told.Requests > 0 {
		return steady(s.told.Requests, s.cpu().at)
	}
	if c := counters(s.rec, metric.LoadRequests); len(c.at) > 1 {
		return c
	}
	rate := 0.0
	for _, g := range s.rec.Gauge(metric.LoadRate) {
		rate += g.Last()
	}
	if rate > 0 {
		return steady(rate, s.cpu().at)
	}
	return curve{}
}

// steady returns a curve that rises at a constant rate per second.
func steady(rate float64, at []float64) (c curve) {
	for i := range at {
		c.sum = append(c.sum, rate*(at[i]-at[0]))
	}
	c.at = at
	return c
}

// The number of requests that a percentile needs: one of a hundred is slower than the 99th percentile, and three have
// one in their middle. Seconds with fewer are merged.
const (
	leastForP99 = 100
	leastForP50 = 3
)

// requestP99 returns the 99th percentile of the requests of each second. The percentile of the whole window would be
// a single number without scatter.
func (s *Source) requestP99() ([]Interval, string) { return s.requestTimes(percentile, leastForP99) }

// requestP50 returns the median of the requests of each second. The median of a closed loop shows what its rate may
// not: whether each client waits for less, or there are more clients.
func (s *Source) requestP50() ([]Interval, string) { return s.requestTimes(0.5, leastForP50) }

// requestTimes returns a quantile of each second's requests, where there are at least so many.
func (s *Source) requestTimes(q, least float64) ([]Interval, string) {
	series := s.rec.Counter(metric.LoadDurations)
	if len(series) == 0 {
		return nil, s.noLatency()
	}
	return quantiles(series, q, least), fewRequests(q)
}

func fewRequests(q float64) string {
	return fmt.Sprintf("there were too few requests for a p%.0f of each of %d seconds", 100*q, leastSamples)
}

// quantiles returns a quantile of what ended in each second, by the label at_most, where there are at least so many.
func quantiles(series []recording.CounterSeries, q, least float64) (out []Interval) {
	counts, all := map[float64]float64{}, 0.0
	for _, second := range durations(series) {
		for bound, n := range second {
			counts[bound] += n
			all += n
		}
		if all >= least {
			bound, _ := quantile(counts, q)
			out = append(out, Interval{bound * all, all})
			counts, all = map[float64]float64{}, 0
		}
	}
	return out
}

// exchangeP50 and exchangeP99 return quantiles of the exchanges on the target's own ports.
func (s *Source) exchangeP50() ([]Interval, string) { return s.exchangeTimes(0.5, leastForP50) }

func (s *Source) exchangeP99() ([]Interval, string) { return s.exchangeTimes(percentile, leastForP99) }

func (s *Source) exchangeTimes(q, least float64) ([]Interval, string) {
	_, ports := s.listeners()
	var list []recording.CounterSeries
	for _, c := range s.rec.Counter(metric.ExchangeDurations, "side", "server") {
		if at, err := netip.ParseAddrPort(c.Label("endpoint")); err == nil && ports[at.Port()] {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return nil, notRecorded
	}
	return quantiles(list, q, least), fewRequests(q)
}

// noLatency says why there are no request times. A single number without scatter is shown, but decides nothing.
func (s *Source) noLatency() string {
	if p99 := s.SummaryP99(); p99 > 0 {
		return fmt.Sprintf("the load generator printed %s for all of its run, without the scatter that tells chance "+
			"from change",
			quantity.Of("", p99, quantity.Seconds).Text())
	}
	return "no load generator's times of requests are in the recording"
}

// SummaryP99 returns the 99th percentile, in seconds, that a load generator printed for its whole run or that the
// caller passed in; 0 if it is not known.
func (s *Source) SummaryP99() float64 {
	longest := s.told.P99
	for _, g := range s.rec.Gauge(metric.LoadP99) {
		longest = max(longest, g.Last())
	}
	return longest
}

// Timed reports whether a load generator measured the times of requests.
func (s *Source) Timed() bool { return len(s.rec.Counter(metric.LoadDurations)) > 0 }

// durations returns, in order of time, how many requests ended since the previous reading, by the bound of their time
// in seconds. A series that begins later than the others began at zero.
func durations(series []recording.CounterSeries) []map[float64]float64 {
	first := math.Inf(1)
	for _, c := range series {
		first = min(first, c.Points[0].At.Seconds())
	}
	rises := map[float64]map[float64]float64{}
	for _, c := range series {
		last, known := c.Points[0].Value, c.Points[0].At.Seconds() == first
		for i, p := range c.Points {
			at := p.At.Seconds()
			if rises[at] == nil {
				rises[at] = map[float64]float64{}
			}
			switch {
			case i > 0:
				rises[at][boundOf(c.Series)] += rise(last, p.Value)
			case !known:
				rises[at][boundOf(c.Series)] += p.Value
			}
			last = p.Value
		}
	}
	var out []map[float64]float64
	for _, at := range slices.Sorted(maps.Keys(rises)) {
		out = append(out, rises[at])
	}
	return out
}
