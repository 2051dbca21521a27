package recording

import (
	"time"
)

// Between returns what the recording would be if it had begun and ended at these times: a part of the window, as if
// it were all of it. Facts that were read once at the beginning stay. Readings taken once at the end, about the whole
// window, are left out, and so are profiles: both could be divided only by guessing.
func (r *Recording) Between(from, to time.Duration) *Recording { return r.cut(from, to, r.length()/2) }

// cut returns the part between two times. What was read once, not later than known, is a fact that also holds in the
// part.
func (r *Recording) cut(from, to, known time.Duration) *Recording {
	out := &Recording{Meta: r.Meta, series: map[string]*family{}}
	out.Meta.Started = r.Meta.Started.Add(from)
	out.Meta.Duration = (min(to, r.length()) - from).Seconds()
	for name, f := range r.series {
		if cut := f.between(from, to, known); cut != nil {
			out.series[name] = cut
		}
	}
	return out
}

func (r *Recording) length() time.Duration {
	return time.Duration(r.Meta.Duration * float64(time.Second))
}

// between returns nil for a family without any reading in that time.
func (f *family) between(from, to, known time.Duration) *family {
	within := func(at time.Duration) bool { return at >= from && at <= to }
	if f.metric.Describe().OverWindow {
		whole := f.covered(from, to)
		within = func(at time.Duration) bool { return whole[at] }
	} else if at, once := f.once(); once {
		if at > known {
			return nil
		}
		from, within = min(from, at), func(time.Duration) bool { return true }
	}
	out := &family{metric: f.metric}
	for _, s := range f.list {
		cut := &Series{Metric: s.Metric, Labels: s.Labels}
		for _, p := range s.Points {
			if within(p.At) {
				cut.Points = append(cut.Points, Point{At: p.At - from, Value: p.Value})
			}
		}
		if len(cut.Points) > 0 {
			out.list = append(out.list, cut)
		}
	}
	for _, at := range f.marks {
		if within(at) {
			out.marks = append(out.marks, at-from)
		}
	}
	if len(out.list) == 0 && len(out.marks) == 0 {
		return nil
	}
	return out
}

// once reports whether all of a family was read at one time, and returns that time.
func (f *family) once() (at time.Duration, once bool) {
	at = -1
	same := func(t time.Duration) bool {
		if at < 0 {
			at = t
		}
		return at == t
	}
	for _, s := range f.list {
		for _, p := range s.Points {
			if !same(p.At) {
				return 0, false
			}
		}
	}
	for _, t := range f.marks {
		if !same(t) {
			return 0, false
		}
	}
	return at, at >= 0
}
