package recording

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TestGaps: the times at which a collector read show what is lost, whatever its pace.
func TestGaps(t *testing.T) {
	ms := func(list ...int) []int { return list }
	for _, c := range []struct {
		name        string
		times       []int // in milliseconds, of a recording of 8 s with a sample a second
		lost, total int
		skipped     []float64
	}{
		{"all", ms(40, 1050, 2060, 3040, 4050, 5090, 6050, 7050, 8001), 0, 0, nil},
		{"the first is lost", ms(1050, 2060, 3040, 4050, 5090, 6050, 7050, 8001), 1, 9, nil},
		{"one in the middle is lost", ms(40, 1050, 2060, 4050, 5090, 6050, 7050, 8001), 1, 9, nil},
		{"the last is lost", ms(40, 1050, 2060, 3040, 4050, 5090, 6050, 7050), 1, 9, nil},
		{"two are lost", ms(40, 1050, 4050, 5090, 6050, 7050, 8001), 2, 9, nil},
		{"each other second", ms(40, 2050, 4060, 6040, 8001), 0, 0, nil},
		{"each other second, one lost", ms(40, 2050, 6040, 8001), 1, 5, nil},
		{"at both ends", ms(40, 8001), 0, 0, nil},
		{"it began when half was over", ms(4050, 5090, 6050, 7050, 8001), 0, 0, nil},
		{"once", ms(3000), 0, 0, nil},
		{"two are skipped", ms(40, 1050, 2060, 3040, 5090, 7050, 8001), 0, 0, []float64{4.05, 6.05}},
		{"one is skipped, one lost", ms(40, 1050, 3040, 4050, 5090, 7050, 8001), 1, 8, []float64{6.05}},
		{"each other second, two are skipped", ms(40, 2050, 4060, 8001), 0, 0, []float64{5.05, 6.05}},
	} {
		var points []Point
		for _, at := range c.times {
			points = append(points, Point{At: time.Duration(at) * time.Millisecond})
		}
		name := metric.ContextSwitches.Describe().Name
		r := &Recording{
			Meta: Meta{
				Duration: 8.004, Interval: 1, Cost: Cost{Skipped: c.skipped},
				Collectors: []CollectorStatus{{Name: "cpu", Status: StatusOK, Metrics: []string{name}}},
			},
			series: map[string]*family{
				name: {
					metric: metric.ContextSwitches,
					list:   []*Series{{Metric: metric.ContextSwitches, Points: points}},
				},
			},
		}
		var want []Gap
		if c.lost > 0 {
			want = []Gap{{Collector: "cpu", Lost: c.lost, Rounds: c.total}}
		}
		if d := cmp.Diff(want, r.Gaps([]metric.Metric{metric.ContextSwitches})); d != "" {
			t.Errorf("%s: -want +got:\n%s", c.name, d)
		}
		if gaps := r.Gaps([]metric.Metric{metric.Forks}); gaps != nil {
			t.Errorf("%s: of another collector's metric: %v", c.name, gaps)
		}
	}
}

// TestLost: a metric is lost if its collector worked, has nothing of it, and has not said why.
func TestLost(t *testing.T) {
	r := &Recording{
		Meta: Meta{
			Collectors: []CollectorStatus{
				{Name: "a", Status: StatusOK, Metrics: []string{metric.Forks.Describe().Name, metric.Load.Describe().
					Name}},
				{Name: "b", Status: StatusDenied, Metrics: []string{metric.Uptime.Describe().Name}},
			},
			Unsupported: []Missing{{Metric: metric.Load.Describe().Name}},
		},
		series: map[string]*family{metric.ContextSwitches.Describe().Name: {metric: metric.ContextSwitches}},
	}
	for m, want := range map[metric.Metric]bool{
		metric.ContextSwitches: false, metric.Forks: true, metric.Load: false, metric.Uptime: false,
		metric.SwapFree: false,
	} {
		if got := r.Lost(m); got != want {
			t.Errorf("%s: %v, want %v", m.Describe().Name, got, want)
		}
	}
}
