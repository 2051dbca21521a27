// Package series does arithmetic on readings over time: the increase of a counter, a mean, a median, and combinations
// of two series read by different collectors. Series are joined by time and never by index, so that a lost reading in
// one of them neither removes nor adds anything.
package series

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// A Point is one measured number. At is the time since the recording began, in whole microseconds.
type Point struct {
	At    time.Duration
	Value float64
}

// Values returns the numbers without their times.
func Values(points []Point) []float64 {
	out := make([]float64, len(points))
	for i, p := range points {
		out[i] = p.Value
	}
	return out
}

// Span returns the time from the first point to the last; 0 with fewer than two.
func Span(points []Point) time.Duration {
	if len(points) == 0 {
		return 0
	}
	return points[len(points)-1].At - points[0].At
}

// Step returns the increase of a counter from one reading to the next, in its unit. A fall is a reset and counts as a
// new start from zero, as in Prometheus.
func Step(from, to float64) float64 {
	if to < from {
		return to
	}
	return to - from
}

// Rise returns the increase of a counter over all points, in its unit. ok is false with fewer than two: one reading
// of a counter says nothing.
func Rise(points []Point) (n float64, ok bool) {
	for i := 1; i < len(points); i++ {
		n += Step(points[i-1].Value, points[i].Value)
	}
	return n, len(points) >= 2
}

// RiseSince is Rise for a counter that begins at zero, such as one in a BPF program's map: if it is first read later
// than began, its first reading is part of the increase, too.
func RiseSince(points []Point, began time.Duration) float64 {
	n, _ := Rise(points)
	if len(points) > 0 && points[0].At > began {
		n += points[0].Value
	}
	return n
}

// Rate returns the per-second increase of a counter between its first point and its last; ok is false with fewer than
// two.
func Rate(points []Point) (perSecond float64, ok bool) {
	n, ok := Rise(points)
	if !ok || Span(points) <= 0 {
		return 0, false
	}
	return n / Span(points).Seconds(), true
}

// Rates returns the per-second increase of a counter in each interval, at the interval's end. An interval with a lost
// reading is longer, and its rate is the mean over it.
func Rates(points []Point) []Point {
	var out []Point
	for i := 1; i < len(points); i++ {
		if d := (points[i].At - points[i-1].At).Seconds(); d > 0 {
			out = append(out, Point{At: points[i].At, Value: Step(points[i-1].Value, points[i].Value) / d})
		}
	}
	return out
}

// Sum adds up series of one metric, moment by moment. They were read together, so a series without a number at a
// moment had nothing to count then: a state without threads, a disk that came later. Use [Minus] and [Over] to join
// series of several collectors.
func Sum(lists ...[]Point) []Point {
	total := map[time.Duration]float64{}
	for _, l := range lists {
		for _, p := range l {
			total[p.At] += p.Value
		}
	}
	out := make([]Point, 0, len(total))
	for _, at := range slices.Sorted(maps.Keys(total)) {
		out = append(out, Point{At: at, Value: total[at]})
	}
	return out
}

// At returns the value of points at a moment: the nearest reading from the same round of sampling. Collectors read
// one after another in each round, so the nearest reading is less than half of a usual step away; ok is false if
// there is none, for example because that reading was lost.
func At(points []Point, moment time.Duration) (v float64, ok bool) {
	return near(points, moment, UsualStep(points))
}

// near is At with a given step between rounds.
func near(points []Point, moment, step time.Duration) (v float64, ok bool) {
	byTime := func(p Point, at time.Duration) int { return cmp.Compare(p.At, at) }
	i, exact := slices.BinarySearchFunc(points, moment, byTime)
	if exact {
		return points[i].Value, true
	}
	best := -1
	for _, k := range []int{i - 1, i} {
		if k >= 0 && k < len(points) && (best < 0 || apart(points[k].At, moment) < apart(points[best].At, moment)) {
			best = k
		}
	}
	if best < 0 || 2*apart(points[best].At, moment) >= step {
		return 0, false
	}
	return points[best].Value, true
}

func apart(a, b time.Duration) time.Duration { return max(a-b, b-a) }

// UsualStep returns the median time between two points, which a lost reading among several does not change; 0 with
// fewer than two.
func UsualStep(points []Point) time.Duration {
	var steps []time.Duration
	for i := 1; i < len(points); i++ {
		steps = append(steps, points[i].At-points[i-1].At)
	}
	return time.Duration(Median(steps))
}

// Minus returns a minus b, at the times of a, for the rounds of sampling in which both were read: its length is the
// number of these rounds.
func Minus(a, b []Point) []Point { return join(a, b, func(x, y float64) float64 { return x - y }) }

// Over returns a divided by b, joined as in [Minus]. It leaves out points where b is 0.
func Over(a, b []Point) []Point {
	divisors := slices.DeleteFunc(slices.Clone(b), func(p Point) bool { return p.Value == 0 })
	return join(a, divisors, func(x, y float64) float64 { return x / y })
}

func join(a, b []Point, of func(x, y float64) float64) []Point {
	step := sharedStep(a, b)
	var out []Point
	for _, p := range a {
		if v, ok := near(b, p.At, step); ok {
			out = append(out, Point{At: p.At, Value: of(p.Value, v)})
		}
	}
	return out
}

// sharedStep returns the shorter of two usual steps: if two series are read at different paces, a reading of the
// slower one belongs to one round of the faster one. A series of one point has no pace.
func sharedStep(a, b []Point) time.Duration {
	x, y := UsualStep(a), UsualStep(b)
	if x == 0 || y == 0 {
		return max(x, y)
	}
	return min(x, y)
}

// Intervals returns in how many intervals a condition holds for the total rate of counters of one metric, and out of
// how many. An interval with a lost reading stands for several of the usual length: the condition held in at least
// one of them, and the others count as if it had not.
func Intervals(holds func(perSecond float64) bool, counters ...[]Point) (n, of int) {
	var rates [][]Point
	for _, c := range counters {
		rates = append(rates, Rates(c))
	}
	for _, r := range Sum(rates...) {
		of++
		if holds(r.Value) {
			n++
		}
	}
	read := Sum(counters...)
	if step := UsualStep(read); step > 0 {
		of = max(of, int(math.Round(float64(Span(read))/float64(step))))
	}
	return n, of
}

// Number is the constraint for numbers with a mean.
type Number interface {
	~int | ~int64 | ~uint32 | ~uint64 | ~float64
}

// Mean returns the mean of numbers, in their unit; 0 if there are none.
func Mean[T Number](numbers []T) float64 {
	if len(numbers) == 0 {
		return 0
	}
	total := 0.0
	for _, n := range numbers {
		total += float64(n)
	}
	return total / float64(len(numbers))
}

// Median returns the median of numbers in any order, in their unit: the mean of the middle two for an even count; 0
// if there are none.
func Median[T Number](numbers []T) float64 {
	if len(numbers) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(numbers))
	if n := len(s); n%2 == 0 {
		return (float64(s[n/2-1]) + float64(s[n/2])) / 2
	}
	return float64(s[len(s)/2])
}
