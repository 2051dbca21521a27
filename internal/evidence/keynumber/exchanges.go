package keynumber

import (
	"cmp"
	"math"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// Exchanges are those of the target with one endpoint, in the time in which they were counted: what one side sent until
// the other did, and the answer to it. Requests that are sent together and answered together are one exchange.
type Exchanges struct {
	Side      string  `json:"side"`     // server or client of the connection
	Endpoint  string  `json:"endpoint"` // the server's own address, or whom the client asked
	Count     float64 `json:"exchanges"`
	PerSecond float64 `json:"per_second"`
	// Seconds that half of them and 99 in 100 took at most, to a sixteenth; 0 if that is above the last bound, 68.7 s.
	P50 float64 `json:"p50,omitempty"`
	P99 float64 `json:"p99,omitempty"`
}

// ExchangesOf gives the exchanges of a recording's target by endpoint, the most first.
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
		if ended > began {
			e.PerSecond = e.Count / (ended - began)
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

// bounded has no quantile without a bound.
func (e Exchanges) bounded() Exchanges {
	for _, q := range []*float64{&e.P50, &e.P99} {
		if math.IsInf(*q, 1) {
			*q = 0
		}
	}
	return e
}
