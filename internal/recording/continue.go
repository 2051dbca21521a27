package recording

import (
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// Continue begins the recording that follows this one without a gap: readings at `from` or later are the last of this
// recording and the first of the next. Facts are metrics that are read rarely: their last readings are carried over
// as if they had been read at the beginning. Nothing is carried over for the metrics in fresh, because their counters
// begin anew. Continue must be called before [Builder.Done].
func (b *Builder) Continue(from time.Duration, facts, fresh []metric.Metric) *Builder {
	next := &Builder{rec: &Recording{series: map[string]*family{}}, start: b.start.Add(from), now: b.now}
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, f := range b.rec.series {
		if slices.Contains(fresh, f.metric) {
			continue
		}
		if cut := f.carried(from, slices.Contains(facts, f.metric)); cut != nil {
			next.rec.series[name] = cut
			next.count += len(cut.list)
		}
	}
	return next
}

// carried returns nil for a family without a reading to carry over.
func (f *family) carried(from time.Duration, fact bool) *family {
	out := &family{metric: f.metric, index: map[string]*Series{}}
	newest := f.newest()
	for _, s := range f.list {
		last := s.Points[len(s.Points)-1]
		switch {
		case last.At >= from:
			last.At -= from
		case fact && last.At == newest:
			last.At = 0
		default:
			continue
		}
		c := &Series{Metric: s.Metric, Labels: s.Labels, Points: []Point{last}}
		out.list = append(out.list, c)
		out.index[seriesKey(s.Labels)] = c
	}
	if n := len(f.marks); n > 0 && (fact || f.marks[n-1] >= from) {
		out.marks = []time.Duration{max(f.marks[n-1]-from, 0)}
	}
	if len(out.list) == 0 && len(out.marks) == 0 {
		return nil
	}
	return out
}

// newest returns when the family was last read.
func (f *family) newest() (at time.Duration) {
	if n := len(f.marks); n > 0 {
		at = f.marks[n-1]
	}
	for _, s := range f.list {
		at = max(at, s.Points[len(s.Points)-1].At)
	}
	return at
}
