package evidence

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// VectorUses returns the metrics of softirq time that BPF programs measure.
func VectorUses() []metric.Metric { return []metric.Metric{metric.SoftirqSeconds, metric.BPFRuns} }

// TopVector returns the softirq vector that took most of a CPU's softirq time ("" for all CPUs), its share of the
// window, and its share of that softirq time; ok is false if it was not measured.
func TopVector(p *check.Pass, cpu string) (vector string, load, share quantity.Value, ok bool) {
	began, window := FlowSpan(p)
	if !p.Recorded(metric.SoftirqSeconds) || window.Number() <= 0 {
		return "", load, share, false
	}
	var match []string
	who := "all CPUs"
	if cpu != "" {
		match, who = []string{"cpu", cpu}, "CPU "+cpu
	}
	by, all := map[string]float64{}, 0.0
	for _, s := range p.Counter(metric.SoftirqSeconds, match...) {
		n := RiseSince(s, began)
		by[s.Label("vector")] += n
		all += n
	}
	for _, v := range LabelValues(p.Counter(metric.SoftirqSeconds), "vector") {
		if by[v] > by[vector] {
			vector = v
		}
	}
	if all == 0 {
		return "", load, share, false
	}
	spent := quantity.Of(vector, by[vector], quantity.Seconds)
	load = spent.Per(window).Named("%s on %s, timed at its begin and end", vector, who)
	share = spent.Per(quantity.Of("softirq", all, quantity.Seconds)).Named("%s, share of the softirq time of %s",
		vector, who)
	return vector, load, share, true
}

// OfNetwork reports whether a vector is the network's.
func OfNetwork(vector string) bool { return vector == "NET_RX" || vector == "NET_TX" }
