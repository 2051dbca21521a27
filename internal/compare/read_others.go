package compare

import (
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// changingLabels are labels with values that differ from one run of a program to the next, or with many values: their
// series are added up.
var changingLabels = []string{
	"pid", "tid", "comm", "cgroup", "container", "netns", "cpu", "irq", "lock", "on", "at", "source", "destination",
	"listener", "peer",
	"endpoint", "thread", "pool", "device", "waker", "waker_pid", "waker_comm", "holder", "at_most", "program", "level",
}

// A family is the series of one metric that are alike except for the changing labels.
type family struct {
	metric, labels string
	unit           quantity.Unit
	estimate       *keynumber.Estimate // nil if it was read too seldom
}

// floor returns the size below which a number is not worth a line: a hundredth of a CPU, one event a second, a
// mebibyte.
func (f *family) floor() float64 {
	switch unit, _, rate := strings.Cut(string(f.unit), "/"); {
	case unit == string(quantity.Seconds) && rate:
		return 0.01
	case unit == string(quantity.Bytes):
		return 1 << 20
	case unit == string(quantity.Ratio), unit == string(quantity.Seconds):
		return 0
	}
	return 1
}

// familiesOf returns all counters per second and all gauges.
func familiesOf(rec *recording.Recording) map[string]*family {
	out := map[string]*family{}
	add := func(m metric.Metric, labels string, per quantity.Unit, list []keynumber.Interval) {
		d := m.Describe()
		f := &family{metric: d.Name, labels: labels, unit: d.Unit + per}
		if e, ok := keynumber.Mean(list); ok {
			f.estimate = &e
		}
		out[f.metric+"{"+labels] = f
	}
	for _, m := range metric.All() {
		switch m := m.(type) {
		case *metric.Counter:
			for labels, list := range grouped(rec.Counter(m), func(s recording.CounterSeries) string {
				return stable(s.Series)
			}) {
				add(m, labels, "/s", keynumber.Rate(list))
			}
		case *metric.Gauge:
			for labels, list := range grouped(rec.Gauge(m), func(s recording.GaugeSeries) string {
				return stable(s.Series)
			}) {
				add(m, labels, "", keynumber.Readings(list))
			}
		}
	}
	return out
}

func grouped[S any](series []S, key func(S) string) map[string][]S {
	out := map[string][]S{}
	for _, s := range series {
		out[key(s)] = append(out[key(s)], s)
	}
	return out
}

// stable returns the labels that two runs have in common. Network namespaces are named by their relation to the
// target.
func stable(s *recording.Series) string {
	var parts []string
	for i, name := range s.Metric.Describe().Labels {
		if slices.Contains(changingLabels, name) && (name != "netns" || strings.Contains(s.Labels[i], "[")) {
			continue
		}
		parts = append(parts, name+"="+s.Labels[i])
	}
	return strings.Join(parts, ",")
}
