package recording

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

func TestBetween(t *testing.T) {
	b := NewBuilder()
	start := b.start
	var now time.Duration
	b.now = func() time.Time { return start.Add(now) }
	for i := range 11 {
		now = time.Duration(i) * time.Second
		a := b.Appender()
		a.Counter(metric.ContextSwitches, float64(100*i))
		a.None(metric.CgroupThrottled)
		if i == 0 {
			a.Gauge(metric.CPUsOnline, 2)
		}
		if i == 10 {
			a.Gauge(metric.JVMDumpSeconds, 0.1, "1")
			a.Profile(&stacks.Profile{Event: stacks.CPU, Samples: []stacks.Sample{{Thread: -1, Count: 1, Value: 1}}})
		}
		a.Commit()
	}
	rec := b.Done(Meta{Duration: 10})
	half := rec.Between(5*time.Second, 10*time.Second)
	if half.Meta.Duration != 5 || rec.Meta.Duration != 10 {
		t.Errorf("the half has %v s, the whole %v s", half.Meta.Duration, rec.Meta.Duration)
	}
	s := half.Counter(metric.ContextSwitches)[0]
	if d := cmp.Diff(Point{At: 0, Value: 500}, s.Points[0]); d != "" {
		t.Error(d)
	}
	if n, ok := s.Increase(); n != 500 || !ok {
		t.Errorf("the half holds %v switches, %v", n, ok)
	}
	if len(half.Gauge(metric.CPUsOnline)) != 1 {
		t.Error("a fact read at the beginning is gone")
	}
	for _, m := range []metric.Metric{metric.JVMDumpSeconds, metric.CPUProfileSamples} {
		if half.Recorded(m) {
			t.Errorf("%s of the whole window is taken for the half's", m.Describe().Name)
		}
	}
	if !half.Recorded(metric.CgroupThrottled) || len(half.Counter(metric.CgroupThrottled)) != 0 {
		t.Error("measured and nothing there is lost")
	}
	if _, ok := half.Profile(stacks.CPU); ok {
		t.Error("there is a profile")
	}
}
