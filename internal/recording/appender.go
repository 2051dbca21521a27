package recording

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/metric"
)

// maxSeries bounds the memory of one recording: a busy host has a few thousand series, and a thread or destination list that
// exceeds this is counted as lost.
const maxSeries = 100_000

// A Builder gathers the samples of a running collection. It is safe for concurrent use.
type Builder struct {
	mu    sync.Mutex
	rec   *Recording
	count int
	start time.Time
	now   func() time.Time
}

// NewBuilder starts a recording at this moment.
func NewBuilder() *Builder {
	return &Builder{rec: &Recording{series: map[string]*family{}}, start: time.Now(), now: time.Now}
}

// Elapsed gives the time since the recording began.
func (b *Builder) Elapsed() time.Duration { return b.now().Sub(b.start).Truncate(time.Microsecond) }

// Appender starts one sample. Nothing of it is in the recording before [Appender.Commit].
func (b *Builder) Appender() *Appender { return &Appender{b: b, at: b.Elapsed()} }

// Done ends the recording. The builder must not be used afterwards.
func (b *Builder) Done(meta Meta) *Recording {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rec.Meta = meta
	for _, f := range b.rec.series {
		f.sort()
	}
	return b.rec
}

func (f *family) sort() {
	slices.SortFunc(f.list, func(x, y *Series) int { return slices.Compare(x.Labels, y.Labels) })
}

// An Appender takes the numbers of one sample of one collector. All get the same time: that at which the sample began.
type Appender struct {
	b       *Builder
	at      time.Duration
	rows    []row
	none    []metric.Metric
	lost    []Loss
	missing []Missing
}

type row struct {
	metric metric.Metric
	labels []string
	value  float64
}

// Counter appends a counter's raw value, in the descriptor's unit, with one value for each of its labels.
func (a *Appender) Counter(c *metric.Counter, value float64, labels ...string) {
	a.add(c, value, labels)
}

// Gauge appends a gauge's value.
func (a *Appender) Gauge(g *metric.Gauge, value float64, labels ...string) { a.add(g, value, labels) }

// Info appends a fact.
func (a *Appender) Info(i *metric.Info, labels ...string) { a.add(i, 1, labels) }

func (a *Appender) add(m metric.Metric, value float64, labels []string) {
	if d := m.Describe(); len(labels) != len(d.Labels) {
		panic(fmt.Sprintf("recording: %s has labels %v, got values %q", d.Name, d.Labels, labels))
	}
	a.rows = append(a.rows, row{m, labels, value})
}

// None says that the metric was measured and there was nothing: no CLOSE_WAIT socket, no limit, no throttled group.
func (a *Appender) None(ms ...metric.Metric) { a.none = append(a.none, ms...) }

// Lost counts data that was seen but not kept.
func (a *Appender) Lost(count int, what string) {
	if count > 0 {
		a.lost = append(a.lost, Loss{What: what, Count: count})
	}
}

// Missing says that a metric cannot be measured here, why, and what would change that.
func (a *Appender) Missing(m metric.Metric, status Status, reason, remedy string) {
	a.missing = append(a.missing, Missing{Metric: m.Describe().Name, Status: status, Reason: reason, Remedy: remedy})
}

// Commit puts the sample into the recording.
func (a *Appender) Commit() (lost []Loss, missing []Missing) {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	for _, m := range a.none {
		f := a.b.family(m)
		f.marks = append(f.marks, a.at)
	}
	for _, r := range a.rows {
		if !a.b.put(r, a.at) {
			a.Lost(1, "series past the recording's bound")
		}
	}
	return a.lost, a.missing
}

func (b *Builder) family(m metric.Metric) *family {
	name := m.Describe().Name
	f := b.rec.series[name]
	if f == nil {
		f = &family{metric: m, index: map[string]*Series{}}
		b.rec.series[name] = f
	}
	return f
}

func (b *Builder) put(r row, at time.Duration) bool {
	f := b.family(r.metric)
	key := strings.Join(r.labels, "\x00")
	s := f.index[key]
	if s == nil {
		if b.count >= maxSeries {
			return false
		}
		b.count++
		s = &Series{Metric: r.metric, Labels: slices.Clone(r.labels)}
		f.index[key] = s
		f.list = append(f.list, s)
	}
	s.Points = append(s.Points, Point{At: at, Value: r.value})
	return true
}

func (c CollectorStatus) losses() []string {
	var out []string
	if c.Late > 0 {
		out = append(out, fmt.Sprintf("%s: %d of %d samples were late", c.Name, c.Late, c.Late+c.Samples))
	}
	for _, l := range c.Lost {
		out = append(out, fmt.Sprintf("%s: %d %s", c.Name, l.Count, l.What))
	}
	return out
}
