package compare

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// A 99th percentile that comes in buckets moves by a whole bucket or not at all. What is compared instead is the share of all that was
// slower than the 99th percentile before: 1 % or less there, by its meaning, and more where the tail has become longer.

// percentile is the share whose bound is looked for.
const percentile = 0.99

// leastTail is how many events have a 99th percentile: ten of a thousand are the last percent.
const leastTail = 1000

// slowest gives the smallest bound that 99 % of what was counted by the label at_most do not exceed; ok is false with too few.
func slowest(counts map[float64]float64) (bound float64, ok bool) {
	all := 0.0
	var bounds []float64
	for b, n := range counts {
		bounds = append(bounds, b)
		all += n
	}
	slices.Sort(bounds)
	below := 0.0
	for _, b := range bounds {
		if below += counts[b]; below >= percentile*all {
			return b, all >= leastTail && !math.IsInf(b, 1)
		}
	}
	return 0, false
}

// boundOf reads the label at_most, in seconds; "+Inf" is a number to ParseFloat too.
func boundOf(s *recording.Series) float64 {
	b, err := strconv.ParseFloat(s.Label("at_most"), 64)
	if err != nil {
		return math.Inf(1)
	}
	return b
}

// connects are the connections that clients of the target's network namespace opened, by how long that took.
func (s *side) connects() []recording.CounterSeries {
	return s.rec.Counter(metric.ConnectDurations, "netns", metric.NetNSTarget, "side", "client")
}

// tails finds the 99th percentiles before, against which both sides are measured.
func tails(before, after *side) {
	counts := map[float64]float64{}
	for _, c := range before.connects() {
		counts[boundOf(c.Series)] += c.Points[len(c.Points)-1].Value // it counts from the beginning of the recording
	}
	if bound, ok := slowest(counts); ok {
		before.slowConnect, after.slowConnect = bound, bound
	}
	counts = map[float64]float64{}
	for _, g := range before.rec.Gauge(metric.CPUWaitDurations) {
		counts[boundOf(g.Series)] += g.Last()
	}
	if bound, ok := slowest(counts); ok {
		before.slowWait, after.slowWait = bound, bound
	}
}

func (s *side) slowConnects() ([]obs, string) {
	if s.slowConnect == 0 {
		return nil, "there were too few connects for a 99th percentile"
	}
	var slow []recording.CounterSeries
	for _, c := range s.connects() {
		if boundOf(c.Series) > s.slowConnect {
			slow = append(slow, c)
		}
	}
	all := sumOf(s.connects(), true)
	if all.total() < leastTail {
		return nil, "there were too few connects for a 99th percentile"
	}
	late := sumOf(slow, true)
	if len(late.at) == 0 {
		late = curve{all.at, make([]float64, len(all.at))}
	}
	return late.per(all), notRecorded
}

// slowWaits is of a number that is read once, at the end of the window, so that nothing is known of its scatter but that of independent
// events; the spread between runs of all that depends on who else wants the CPUs is far larger.
func (s *side) slowWaits() ([]obs, string) {
	if s.slowWait == 0 {
		return nil, "there were too few waits for a 99th percentile"
	}
	slow, all := 0.0, 0.0
	for _, g := range s.rec.Gauge(metric.CPUWaitDurations) {
		all += g.Last()
		if boundOf(g.Series) > s.slowWait {
			slow += g.Last()
		}
	}
	return binomial(slow, all), notRecorded
}

// binomial gives ten intervals with the mean of k of n events, and the scatter that tenths of them have when they are independent.
func binomial(k, n float64) []obs {
	if n == 0 {
		return nil
	}
	const parts = 10
	p := k / n
	scatter := math.Sqrt(p * (1 - p) / (n / parts))
	var out []obs
	for i := range parts {
		sign := float64(1 - 2*(i%2))
		out = append(out, obs{(p + sign*scatter) * n / parts, n / parts})
	}
	return out
}

// tailLabel says what a share of slow ones is of.
func tailLabel(what string, bound float64) string {
	return fmt.Sprintf("%s over %s (p99 before)", what, quantity.Of("", bound, quantity.Seconds).Text())
}
