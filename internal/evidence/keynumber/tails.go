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

// A 99th percentile that comes in buckets moves by a whole bucket or not at all. What is compared instead is the share
// of all that was slower than the 99th percentile before: 1 % or less there, by its meaning, and more where the tail
// has become longer.

// percentile is the share whose bound is looked for.
const percentile = 0.99

// leastTail is how many events have a 99th percentile: ten of a thousand are the last percent.
const leastTail = 1000

// slowest gives the smallest bound that 99 % of what was counted by the label at_most do not exceed; ok is false with
// too few.
func slowest(counts map[float64]float64) (bound float64, ok bool) {
	bound, all := quantile(counts, percentile)
	return bound, all >= leastTail && !math.IsInf(bound, 1)
}

// quantile gives the smallest bound that the share q of what was counted does not exceed, and how much was counted. The
// one of gonum's stat panics where counts add up to no number, and a recording is a file that anybody may have written.
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

// connects are the connections that clients of the target's network namespace opened, by how long that took.
func (s *Source) connects() []recording.CounterSeries {
	return s.rec.Counter(metric.ConnectDurations, "netns", metric.NetNSTarget, "side", "client")
}

// SlowerThan takes the 99th percentiles of one source, which may be s itself, as the bounds of what is slow: what the
// numbers of s count is how much of it was slower than that.
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

// SlowAs takes over what counts as slow, for a reference that need not be kept.
func (s *Source) SlowAs(slowConnect, slowWait float64) {
	s.slowConnect, s.slowWait = slowConnect, slowWait
}

// Slow gives what counts as slow: times of connects and of waits for a CPU, in seconds; 0 if not known.
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

// slowWaits is of a number that is read once, at the end of the window, so that nothing is known of its scatter but
// that of independent events; the spread between runs of all that depends on who else wants the CPUs is far larger.
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

// binomial gives ten intervals with the mean of k of n events, and the scatter that tenths of them have when they are
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

// tailLabel says what a share of slow ones is of.
func tailLabel(what string, bound float64) string {
	return fmt.Sprintf("%s over %s (p99 before)", what, quantity.Of("", bound, quantity.Seconds).Text())
}
