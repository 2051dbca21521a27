package keynumber

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A 99th percentile that comes in buckets moves by a whole bucket or not at all. Instead, the comparison uses the
// share of events slower than the 99th percentile before: by definition 1 % or less before, and more if the tail has
// become longer.

// percentile is the share whose bound is sought.
const percentile = 0.99

// leastTail is how many events a 99th percentile needs: the last percent of a thousand is ten events.
const leastTail = 1000

// slowest returns the smallest bound that 99 % of the events counted by the label at_most do not exceed; ok is false
// if there are too few.
func slowest(counts map[float64]float64) (bound float64, ok bool) {
	bound, all := quantile(counts, percentile)
	return bound, all >= leastTail && !math.IsInf(bound, 1)
}

// quantile returns the smallest bound that the share q of the counted events does not exceed, and the number of
// events. gonum's stat.Quantile panics if counts add up to NaN, and a recording is a file that anybody may have
// written.
func quantile(counts map[float64]float64, q float64) (bound, all float64) {
	for _, n := range counts {
		all += n
	}
	below := 0.0
	for _, bound = range slices.Sorted(maps.Keys(counts)) {
		if below += counts[bound]; below >= q*all {
			break
		}
	}
	return bound, all
}

// boundOf reads the label at_most, in seconds; "+Inf" is a number to ParseFloat too.
func boundOf(s *recording.Series) float64 {
	b, err := strconv.ParseFloat(s.Label("at_most"), 64)
	if err != nil {
		return math.Inf(1)
	}
	return b
}

// connects returns the connections that clients in the target's network namespace opened, by how long that took.
func (s *Source) connects() []recording.CounterSeries {
	return s.rec.Counter(metric.ConnectDurations, "netns", metric.NetNSTarget, "side", "client")
}

// SlowerThan takes the 99th percentiles of reference, which may be s itself, as the bounds of what is slow. The
// numbers of s then count how much was slower than that.
func (s *Source) SlowerThan(reference *Source) {
	counts := map[float64]float64{}
	for _, c := range reference.connects() {
		counts[boundOf(c.Series)] += c.Points[len(c.Points)-1].Value // it counts from the beginning of the recording
	}
	if bound, ok := slowest(counts); ok {
		s.slowConnect = bound
	}
	counts = map[float64]float64{}
	for _, g := range reference.rec.Gauge(metric.CPUWaitDurations) {
		counts[boundOf(g.Series)] += g.Last()
	}
	if bound, ok := slowest(counts); ok {
		s.slowWait = bound
	}
}

// SlowAs sets the bounds of what is slow, so that the reference need not be kept.
func (s *Source) SlowAs(slowConnect, slowWait float64) {
	s.slowConnect, s.slowWait = slowConnect, slowWait
}

// Slow returns the bounds of what is slow: times of connects and of waits for a CPU, in seconds; 0 if unknown.
func (s *Source) Slow() (connect, wait float64) { return s.slowConnect, s.slowWait }

func (s *Source) slowConnects() ([]Interval, string) {
	if s.slowConnect == 0 {
		return nil, "there were too few connects for a 99th percentile"
	}
	var slow []recording.CounterSeries
	for _, c := range s.connects() {
		if boundOf(c.Series) > s.slowConnect {
			slow = append(slow, c)
		}
	}
	all := s.connections(s.connects())
	if all.total() < leastTail {
		return nil, "there were too few connects for a 99th percentile"
	}
	return s.connections(slow).per(all), notRecorded
}

// slowWaits returns a number that is read only once, at the end of the window. Its scatter is therefore assumed to be
// the one of independent events; the spread between runs is far larger for anything that depends on who else wants
// the CPUs.
func (s *Source) slowWaits() ([]Interval, string) {
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

// binomial returns ten intervals with the mean of k of n events, and the scatter that tenths of them have if they are
// independent.
func binomial(k, n float64) []Interval {
	if n == 0 {
		return nil
	}
	const parts = 10
	p := k / n
	scatter := math.Sqrt(p * (1 - p) / (n / parts))
	var out []Interval
	for i := range parts {
		sign := float64(1 - 2*(i%2))
		out = append(out, Interval{(p + sign*scatter) * n / parts, n / parts})
	}
	return out
}

// tailLabel returns the label of a share of slow events.
func tailLabel(what string, bound float64) string {
	return fmt.Sprintf("%s over %s (p99 before)", what, quantity.Of("", bound, quantity.Seconds).Text())
}
