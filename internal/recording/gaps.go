package recording

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// A Gap is what one collector missed of the window.
type Gap struct {
	Collector string
	Lost      int // rounds of sampling without a reading
	Rounds    int // out of this many
}

// maxRounds bounds the rounds of a recording to examine: a foreign recording may claim any duration.
const maxRounds = 1e6

// Gaps returns the collectors of these metrics that lost samples, judged by the times of their samples. Each reads in
// each interval of the recording, or at its own pace, a multiple of that. A collector with less than three quarters
// of its samples has no pace: it reads at the ends of the window, or began late, and is not judged. Rounds that were
// skipped to stay within the budget are not lost: nobody sampled then, whatever the host did.
func (r *Recording) Gaps(ms []metric.Metric) []Gap {
	if !(r.Meta.Interval > 0) || r.Meta.Duration > maxRounds*r.Meta.Interval {
		return nil
	}
	round := func(at time.Duration) int { return int(math.Round(at.Seconds() / r.Meta.Interval)) }
	rounds := math.Round(r.Meta.Duration / r.Meta.Interval)
	var out []Gap
	for _, c := range r.Meta.Collectors {
		if !provides(c, ms) {
			continue
		}
		var read []Point // the rounds in which the collector read, as times
		for _, at := range r.samplesOf(c) {
			read = append(read, Point{At: time.Duration(round(at))})
		}
		read = slices.CompactFunc(read, func(a, b Point) bool { return a.At == b.At })
		pace := max(1, float64(series.UsualStep(read)))
		all := int(math.Round(rounds/pace)) + 1 - int(math.Ceil(r.skipped(read)/pace))
		if n := len(read); 4*n >= 3*all && n < all {
			out = append(out, Gap{Collector: c.Name, Lost: all - n, Rounds: all})
		}
	}
	return out
}

// skipped returns how many rounds were skipped that are not among these.
func (r *Recording) skipped(read []Point) float64 {
	rounds := map[time.Duration]bool{}
	for _, at := range r.Meta.Cost.Skipped {
		rounds[time.Duration(math.Round(at/r.Meta.Interval))] = true
	}
	for _, p := range read {
		delete(rounds, p.At)
	}
	return float64(len(rounds))
}

// samplesOf returns the times at which a collector read anything.
func (r *Recording) samplesOf(c CollectorStatus) []time.Duration {
	var out []time.Duration
	for _, name := range c.Metrics {
		if f := r.series[name]; f != nil {
			out = append(out, f.readings()...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// WithoutSample returns the recording without the nth sample of a collector, from 0, as if that had been lost, or nil
// if there are fewer.
func (r *Recording) WithoutSample(c CollectorStatus, n int) *Recording {
	times := r.samplesOf(c)
	if n >= len(times) {
		return nil
	}
	out := &Recording{Meta: r.Meta, series: maps.Clone(r.series), profiles: r.profiles, raws: r.raws}
	for _, name := range c.Metrics {
		if f := r.series[name].without(times[n]); f != nil {
			out.series[name] = f
		} else {
			delete(out.series, name)
		}
	}
	return out
}

// without returns nil for a family that was read at no other time.
func (f *family) without(at time.Duration) *family {
	if f == nil {
		return nil
	}
	out := &family{metric: f.metric, index: map[string]*Series{}}
	for _, s := range f.list {
		points := slices.DeleteFunc(slices.Clone(s.Points), func(p Point) bool { return p.At == at })
		if len(points) > 0 {
			own := &Series{Metric: s.Metric, Labels: s.Labels, Points: points}
			out.list, out.index[seriesKey(s.Labels)] = append(out.list, own), own
		}
	}
	out.marks = slices.DeleteFunc(slices.Clone(f.marks), func(mark time.Duration) bool { return mark == at })
	if len(out.list) == 0 && len(out.marks) == 0 {
		return nil
	}
	return out
}

// Lost reports whether no reading of a metric is left, although its collector worked and reported no problem with it.
func (r *Recording) Lost(m metric.Metric) bool {
	name := m.Describe().Name
	if r.Recorded(m) || slices.ContainsFunc(r.Meta.Unsupported, func(u Missing) bool { return u.Metric == name }) {
		return false
	}
	return slices.ContainsFunc(r.Meta.Collectors, func(c CollectorStatus) bool {
		return c.Status == StatusOK && slices.Contains(c.Metrics, name)
	})
}
