package exporter

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

const (
	namespace = "perfdoctor_"
	// other stands for label values beyond the bound.
	other = "other"
	// idleWindows is how many windows a value without a reading keeps its place: five minutes at 15 s, after which
	// Prometheus calls its series stale anyway.
	idleWindows = 20
	// replaceFactor is how much larger a newcomer must be than the smallest member. Without it two of similar size
	// would take turns, and each turn is a new series.
	replaceFactor = 2
)

// A ledger turns the windows of one target into families of metrics. It adds up folded series itself, so a counter
// keeps rising when one of the series folded into it ends.
type ledger struct {
	target    string
	perTarget map[string]bool // metrics that have the label target
	policies  map[string]policy
	most      int // label values without bound, for each family
	families  map[string]*family
	dropped   func(family string, n int)
}

// family is one metric of one target.
type family struct {
	desc    *metric.Desc
	policy  policy
	folded  bool
	kept    []int              // indices of the labels that stay
	each    []int              // indices, within kept, of the labels without bound
	cells   map[string]*cell   // by kept label values
	members map[string]*member // by their values without bound: those with a place
	later   time.Duration      // a series whose first reading is after this appeared within the window
}

// cell is one exported series.
type cell struct {
	labels []string // values of kept labels
	value  float64
}

// member is one that has a place among the largest.
type member struct {
	weight float64 // in the last window
	idle   int     // windows without it
}

func newLedger(target string, most int, perTarget map[string]bool, dropped func(string, int)) *ledger {
	return &ledger{
		target: target, perTarget: perTarget, policies: policies(), most: most, families: map[string]*family{},
		dropped: dropped,
	}
}

// add takes a window and returns the exported families.
func (l *ledger) add(rec *recording.Recording) []*dto.MetricFamily {
	var out []*dto.MetricFamily
	for _, m := range metric.All() {
		d := m.Describe()
		p, folded := l.policies[d.Name]
		if p.leave != "" || !rec.Recorded(m) && l.families[d.Name] == nil {
			continue
		}
		f := l.families[d.Name]
		if f == nil {
			f = newFamily(d, p, folded)
			l.families[d.Name] = f
		}
		f.later = time.Duration(rec.Meta.Interval / 2 * float64(time.Second))
		f.take(rec.SeriesOf(m), l.most, func(n int) { l.dropped(namespace+d.Name, n) })
		if mf := f.export(l.target, l.perTarget[d.Name]); mf != nil {
			out = append(out, mf)
		}
	}
	return out
}

func newFamily(d *metric.Desc, p policy, folded bool) *family {
	f := &family{desc: d, policy: p, folded: folded, cells: map[string]*cell{}, members: map[string]*member{}}
	for i, name := range d.Labels {
		if folded && !slices.Contains(p.keep, name) {
			continue
		}
		if slices.Contains(p.each, name) {
			f.each = append(f.each, len(f.kept))
		}
		f.kept = append(f.kept, i)
	}
	return f
}

// take updates the cells from the window.
func (f *family) take(list []*recording.Series, most int, dropped func(int)) {
	rising := f.folded && f.desc.Kind == metric.KindCounter
	if !rising {
		clear(f.cells)
	}
	list = f.ownLevel(list)
	if len(f.each) > 0 {
		dropped(f.place(list, most))
	}
	for _, s := range list {
		if v, ok := f.reading(s); ok {
			f.put(f.labels(s), v, rising)
		}
	}
}

func (f *family) ownLevel(list []*recording.Series) []*recording.Series {
	if !f.policy.own {
		return list
	}
	return slices.DeleteFunc(list, func(s *recording.Series) bool {
		return s.Label("level") != "" &&
			s.Label("level") != "0"
	})
}

// reading returns what a series adds: the increase over the window for a counter that is folded, and the last reading
// for all others.
func (f *family) reading(s *recording.Series) (float64, bool) {
	last := s.Points[len(s.Points)-1].Value
	if !f.folded || f.desc.Kind != metric.KindCounter {
		return last, true
	}
	if f.policy.begun && s.Points[0].At > f.later {
		return series.RiseSince(s.Points, f.later), true
	}
	return series.Rise(s.Points)
}

// labels returns the values of the labels that stay, with other for those without a place.
func (f *family) labels(s *recording.Series) []string {
	out := make([]string, len(f.kept))
	for i, at := range f.kept {
		out[i] = s.Labels[at]
	}
	if len(f.each) > 0 && f.members[f.memberOf(s)] == nil {
		for _, i := range f.each {
			out[i] = other
		}
	}
	return out
}

// memberOf returns the values without bound as one key.
func (f *family) memberOf(s *recording.Series) string {
	values := make([]string, len(f.each))
	for i, at := range f.each {
		values[i] = s.Labels[f.kept[at]]
	}
	return strings.Join(values, "\x00")
}

func (f *family) put(labels []string, v float64, rising bool) {
	key := strings.Join(labels, "\x00")
	c := f.cells[key]
	switch {
	case c == nil:
		f.cells[key] = &cell{labels: labels, value: v}
	case rising:
		c.value += v
	case f.desc.Kind == metric.KindInfo:
	default:
		c.value = f.policy.fold.of(c.value, v)
	}
}

// place returns the largest a place, and returns how many have none. A member keeps its place until it has been idle
// for long, or until a much larger newcomer comes.
func (f *family) place(list []*recording.Series, most int) (without int) {
	weights := map[string]float64{}
	for _, s := range list {
		v, _ := f.reading(s)
		weights[f.memberOf(s)] += v
	}
	for key, m := range f.members {
		w, here := weights[key]
		m.weight = w
		m.idle++
		if here {
			m.idle = 0
		}
		if m.idle > idleWindows {
			f.evict(key)
		}
	}
	newcomers := slices.DeleteFunc(slices.Collect(maps.Keys(weights)),
		func(key string) bool { return f.members[key] != nil })
	slices.SortFunc(newcomers, func(a, b string) int {
		return cmp.Or(cmp.Compare(weights[b], weights[a]),
			cmp.Compare(a, b))
	})
	settled := slices.SortedFunc(maps.Keys(f.members), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.members[a].weight, f.members[b].weight), cmp.Compare(a, b))
	})
	for i, key := range newcomers {
		if len(f.members) >= most {
			if len(settled) == 0 || weights[key] <= replaceFactor*f.members[settled[0]].weight {
				return len(newcomers) - i
			}
			f.evict(settled[0])
			settled = settled[1:]
		}
		f.members[key] = &member{weight: weights[key]}
	}
	return 0
}

// evict ends the series of a member that loses its place. From now on other counts for it.
func (f *family) evict(key string) {
	delete(f.members, key)
	for k, c := range f.cells {
		values := make([]string, len(f.each))
		for i, at := range f.each {
			values[i] = c.labels[at]
		}
		if strings.Join(values, "\x00") == key {
			delete(f.cells, k)
		}
	}
}

// export returns nil for a family without series.
func (f *family) export(target string, perTarget bool) *dto.MetricFamily {
	if len(f.cells) == 0 {
		return nil
	}
	name, scale := exportedName(f.desc.Name)
	kind := dto.MetricType_GAUGE
	if f.desc.Kind == metric.KindCounter {
		kind = dto.MetricType_COUNTER
	}
	mf := &dto.MetricFamily{Name: &name, Help: &f.desc.Help, Type: &kind}
	names := make([]string, len(f.kept))
	for i, at := range f.kept {
		names[i] = f.desc.Labels[at]
	}
	for _, key := range slices.Sorted(maps.Keys(f.cells)) {
		c := f.cells[key]
		m := &dto.Metric{Label: pairs(names, c.labels)}
		if perTarget {
			m.Label = append(m.Label, &dto.LabelPair{Name: proto.String("target"), Value: &target})
		}
		sortPairs(m.Label)
		v := c.value * scale
		if kind == dto.MetricType_COUNTER {
			m.Counter = &dto.Counter{Value: &v}
		} else {
			m.Gauge = &dto.Gauge{Value: &v}
		}
		mf.Metric = append(mf.Metric, m)
	}
	return mf
}

func pairs(names, values []string) []*dto.LabelPair {
	out := make([]*dto.LabelPair, len(names), len(names)+1)
	for i := range names {
		out[i] = &dto.LabelPair{Name: &names[i], Value: &values[i]}
	}
	return out
}

func sortPairs(list []*dto.LabelPair) {
	slices.SortFunc(list, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
}

// exportedName returns a metric's name and the factor for its numbers: Prometheus wants base units, and the
// recordings keep the kernel's.
func exportedName(name string) (string, float64) {
	if rest, ok := strings.CutSuffix(name, "_milliseconds_total"); ok {
		return namespace + rest + "_seconds_total", 1e-3
	}
	return namespace + name, 1
}
