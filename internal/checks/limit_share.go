package checks

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// twoSamples is the remedy of every check that found a counter read less than twice.
const twoSamples = "record at least two samples (--duration of two intervals or more)"

var paramFullSoon = &check.Param{
	Name: "full-within", Default: 600, Unit: quantity.Seconds,
	Why: "ten minutes are about what a person needs to be reached and to act",
}

// limitShare is how full something with a limit is, and when it will be full.
type limitShare struct {
	series recording.GaugeSeries
	used   quantity.Value
	limit  quantity.Value
	share  quantity.Value
	left   *quantity.Value // time until full at the rate of the window; nil when it does not grow
	growth quantity.Value
}

// fullestShare gives the pair of equal labels whose share of its limit is the highest, nil when nothing has a limit.
func fullestShare(p *check.Pass, used, limit *metric.Gauge) *limitShare {
	var best *limitShare
	for _, s := range limitShares(p, used, limit) {
		if best == nil || s.share.Above(best.share) {
			best = s
		}
	}
	return best
}

func limitShares(p *check.Pass, used, limit *metric.Gauge) []*limitShare {
	var out []*limitShare
	for _, l := range p.Gauge(limit) {
		names := limit.Describe().Labels
		var match []string
		for i, name := range names {
			match = append(match, name, l.Labels[i])
		}
		for _, u := range p.Gauge(used, match...) {
			if l.Last() > 0 {
				out = append(out, shareOf(u, l))
			}
		}
	}
	return out
}

func shareOf(u, l recording.GaugeSeries) *limitShare {
	unit := u.Metric.Describe().Unit
	s := &limitShare{series: u, used: quantity.Of("in use", u.Last(), unit), limit: quantity.Of("limit", l.Last(), unit)}
	s.share = s.used.Per(s.limit).Named("in use / limit")
	rise, apart := riseOfHalves(u.Points)
	if rise <= 0 || apart <= 0 {
		return s
	}
	s.growth = quantity.Of("rise", rise, unit).Per(quantity.Of("time between", apart, quantity.Seconds)).
		Named("growth, first half of the window to the second")
	if free := s.limit.Minus(s.used); free.Number() > 0 {
		left := quantity.Of("free", free.Number(), unit).Per(s.growth).As(quantity.Seconds).Named("full in")
		s.left = &left
	}
	return s
}

// riseOfHalves gives how much the mean of the second half of the points is above that of the first, and how many
// seconds their mean times are apart: one outlier at an end makes no trend.
func riseOfHalves(points []recording.Point) (rise, apart float64) {
	n := len(points) / 2
	for i := range n {
		first, second := points[i], points[len(points)-n+i]
		rise += (second.Value - first.Value) / float64(n)
		apart += (second.At - first.At).Seconds() / float64(n)
	}
	return rise, apart
}

// soon reports that it is full within the time of the parameter.
func (s *limitShare) soon(p *check.Pass) bool {
	return s.left != nil && !s.left.Above(p.Param(paramFullSoon))
}

func (s *limitShare) evidence() []quantity.Value {
	out := []quantity.Value{s.share}
	if s.left != nil {
		out = append(out, s.growth, *s.left)
	}
	return out
}

// forecast is the end of a summary: when it is full, where that can be told.
func (s *limitShare) forecast(p *check.Pass) string {
	if !s.soon(p) {
		return "."
	}
	return fmt.Sprintf("; at this growth full in %s.", s.left.Text())
}

func (s *limitShare) label(name string) string { return s.series.Label(name) }

// levelsAbove says how far above the process a cgroup's limit is set.
func (s *limitShare) levelsAbove() string {
	return setWhere(s.label("level"))
}

func pidSubject(pid, comm string) check.Subject {
	return check.Subject{Kind: "pid", ID: pidName(pid, comm)}
}
