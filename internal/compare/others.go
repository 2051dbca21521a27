package compare

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// An Other is a metric, or the part of it with some labels, that moved by more than its samples scatter. It says nothing about better or
// worse, and no verdict rests on it: with hundreds of metrics it is for the reader who looks for a reason.
type Other struct {
	Metric string        `json:"metric"`
	Labels string        `json:"labels,omitempty"` // name=value with commas between
	Unit   quantity.Unit `json:"unit"`             // of a counter it is per second
	Before Estimate      `json:"before"`
	After  Estimate      `json:"after"`
	Change Change        `json:"change"`
}

// keptOthers bounds the list.
const keptOthers = 30

// What a metric must do to be listed: change by half beyond what its samples and runs can by chance. How much each of two hundred metrics
// differs between runs is not known one by one; those of docs/decisions/0012 stay below a quarter.
const (
	spreadOfOthers = 0.25
	leastOthers    = 0.5
)

// changingLabels are those whose values differ from one run of a program to the next, or that there are many of: their series are added up.
var changingLabels = []string{
	"pid", "tid", "comm", "cgroup", "container", "netns", "cpu", "irq", "lock", "on", "at", "source", "destination", "listener", "peer",
	"endpoint", "thread", "pool", "device", "waker", "waker_pid", "waker_comm", "holder", "at_most", "program", "level",
}

func others(before, after *recording.Recording) []Other {
	type row struct {
		other Other
		score float64
	}
	var rows []row
	b, a := seriesOf(before), seriesOf(after)
	for key, x := range b {
		y, ok := a[key]
		if !ok {
			continue
		}
		eb, okB := estimate(x.list)
		ea, okA := estimate(y.list)
		if !okB || !okA {
			continue
		}
		c := difference(eb, ea, spread{of: spreadOfOthers}, len(b))
		size := max(eb.Mean, ea.Mean)
		if !c.certain() || size <= 0 || math.Abs(c.Absolute) < leastOthers*math.Abs(min(eb.Mean, ea.Mean)) || size < x.floor() {
			continue
		}
		rows = append(rows, row{Other{x.metric, x.labels, x.unit, eb, ea, c}, math.Abs(c.Absolute) / size})
	}
	slices.SortFunc(rows, func(x, y row) int {
		return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(x.other.Metric+x.other.Labels, y.other.Metric+y.other.Labels))
	})
	out := []Other{}
	for _, r := range rows[:min(len(rows), keptOthers)] {
		out = append(out, r.other)
	}
	return out
}

// family is the series of one metric that are alike but for the labels that change.
type family struct {
	metric, labels string
	unit           quantity.Unit
	list           []obs
}

// floor is a size below which a number is not worth a line: a hundredth of a CPU, one event a second, a mebibyte.
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

// seriesOf gives all counters per second and all gauges that were read more than once.
func seriesOf(rec *recording.Recording) map[string]*family {
	out := map[string]*family{}
	for _, m := range metric.All() {
		switch m := m.(type) {
		case *metric.Counter:
			for labels, list := range grouped(rec.Counter(m), func(s recording.CounterSeries) string { return stable(s.Series) }) {
				f := &family{m.Describe().Name, labels, m.Describe().Unit + "/s", sumOf(list, false).perSecond()}
				out[f.metric+"{"+labels] = f
			}
		case *metric.Gauge:
			for labels, list := range grouped(rec.Gauge(m), func(s recording.GaugeSeries) string { return stable(s.Series) }) {
				out[m.Describe().Name+"{"+labels] = &family{m.Describe().Name, labels, m.Describe().Unit, readings(list)}
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

// stable gives the labels that two runs have in common. Network namespaces are named by what they are to the target.
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
