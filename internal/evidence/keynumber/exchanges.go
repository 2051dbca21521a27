package keynumber

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// Exchanges are the target's exchanges with one endpoint while they were counted. An exchange is what one side sent
// until the other side sent something, and the answer to it. Requests that are sent together and answered together
// are one exchange.
type Exchanges struct {
	Side      string  `json:"side"`     // server or client of the connection
	Endpoint  string  `json:"endpoint"` // the server's own address, or whom the client asked
	Count     float64 `json:"exchanges"`
	PerSecond float64 `json:"per_second"`
	// Seconds that half of them and 99 in 100 took at most, to a sixteenth; 0 above the last bound, 68.7 s.
	P50 float64 `json:"p50,omitempty"`
	P99 float64 `json:"p99,omitempty"`

	// InProgress is how many are under way at any moment: the seconds they took together, over the seconds in which
	// they were counted (J. Little, Operations Research 9, 1961). It leaves out exchanges that did not end. Timed is
	// false if InProgress is unknown because exchanges were counted for only a part of the time.
	InProgress float64 `json:"-"`
	Timed      bool    `json:"-"`
}

// ExchangesOf returns the exchanges of a recording's target by endpoint, the endpoint with the most first.
func ExchangesOf(rec *recording.Recording) []Exchanges {
	all := rec.Counter(metric.ExchangeDurations)
	counting := append(rec.Counter(metric.BPFRuns, "program", "arrive"), all...)
	began, ended := firstOf(counting), 0.0
	by := map[[2]string][]recording.CounterSeries{}
	for _, s := range all {
		key := [2]string{s.Label("side"), s.Label("endpoint")}
		by[key] = append(by[key], s)
		ended = max(ended, s.Points[len(s.Points)-1].At.Seconds())
	}
	counted, before := 0.0, 0.0
	for _, s := range rec.Counter(metric.ExchangesCounted) {
		before = s.Points[0].Value
		counted = s.Points[len(s.Points)-1].Value - before
	}
	var out []Exchanges
	for key, list := range by {
		e := Exchanges{Side: key[0], Endpoint: key[1]}
		counts := map[float64]float64{}
		for _, s := range list {
			for _, n := range risesSince([]recording.CounterSeries{s}, began) {
				counts[boundOf(s.Series)] += n
			}
		}
		e.P50, e.Count = quantile(counts, 0.5)
		e.P99, _ = quantile(counts, percentile)
		if span := ended - began; span > 0 {
			e.PerSecond = e.Count / span
			if e.Timed = counted >= mostCounted*span; e.Timed {
				e.InProgress = underWay(counts, e.Count, span, before)
			}
		}
		if e.Count > 0 && !math.IsInf(e.Count+e.PerSecond, 1) {
			out = append(out, e.bounded())
		}
	}
	slices.SortFunc(out, func(a, b Exchanges) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Side, b.Side), cmp.Compare(a.Endpoint, b.Endpoint))
	})
	return out
}

// mostCounted is the share of the time from which on exchanges count as counted all of the time. Where collectors
// take turns the share is an eighth.
const mostCounted = 0.9

// underWay returns how many exchanges are under way in a span of seconds. An exchange that began before anybody
// followed it, a time before the span, is not counted. That leaves the part of the span after these exchanges have
// ended: on average, all but the time of one. A bound is half of a sixteenth above the mean of what it bounds.
func underWay(counts map[float64]float64, count, span, before float64) float64 {
	const above = 1.0 / 32
	seconds := 0.0
	for _, bound := range slices.Sorted(maps.Keys(counts)) { // in one order: the sum is the same in each run
		seconds += counts[bound] * min(bound*(1-above), span)
	}
	if count == 0 {
		return 0
	}
	return seconds / max(span-max(0, seconds/count-before), span/2)
}

// Exchanged returns how many exchanges a second the target answered on its own ports; 0 if there were none, or if
// they were counted for only a part of the time.
func (s *Source) Exchanged() (perSecond float64) {
	for _, e := range ExchangesOf(s.rec) {
		if e.Side == "server" && e.Timed {
			perSecond += e.PerSecond
		}
	}
	return perSecond
}

// bounded returns the exchanges with 0 in place of infinite quantiles.
func (e Exchanges) bounded() Exchanges {
	for _, q := range []*float64{&e.P50, &e.P99} {
		if math.IsInf(*q, 1) {
			*q = 0
		}
	}
	return e
}
