package recording

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// maxSeries bounds the memory of one recording: a busy host has a few thousand series. What a list of threads or
// destinations has beyond this is counted as lost.
const maxSeries = 100_000

// A Builder gathers the samples of a running collection. It is safe for concurrent use.
type Builder struct {
	mu     sync.Mutex
	rec    *Recording
	count  int
	labels int  // estimated bytes of all labels
	done   bool // Done was called: a sample that still hangs must not change what the checks read
	start  time.Time
	now    func() time.Time

	skipped []float64 // seconds after the start
}

// NewBuilder starts a recording now.
func NewBuilder() *Builder {
	return &Builder{rec: &Recording{series: map[string]*family{}}, start: time.Now(), now: time.Now}
}

// Elapsed returns the time since the recording began.
func (b *Builder) Elapsed() time.Duration { return b.now().Sub(b.start).Truncate(time.Microsecond) }

// Skip notes that no collector samples now, to stay within the budget.
func (b *Builder) Skip() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skipped = append(b.skipped, b.Elapsed().Seconds())
}

// Appender starts one sample. Nothing of the sample is in the recording before [Appender.Commit].
func (b *Builder) Appender() *Appender { return &Appender{b: b, at: b.Elapsed()} }

// Done ends the recording. A sample committed afterwards is dropped. Done redacts the target's command line, whoever
// filled it in, and brings the rest of meta to what a file would give back, so that a live report equals the report
// of the saved recording.
func (b *Builder) Done(meta Meta) *Recording {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done = true
	if len(b.skipped) > 0 { // a builder also reads files: then meta has them already
		meta.Cost.Skipped = b.skipped
	}
	meta.Target.Cmdline = Redact(meta.Target.Cmdline)
	meta.Target.Name = redactName(meta.Target.Name)
	b.rec.Meta = stored(meta)
	for _, f := range b.rec.series {
		f.sort()
		f.index = nil // only a builder needs the index, and it takes as much memory as the series
	}
	return b.rec
}

// stored returns meta as a reader of its JSON would see it: invalid UTF-8 replaced, empty lists dropped, times
// without their monotonic part. It keeps what cannot be stored (NaN or an infinity); [Recording.Save] reports that.
func stored(meta Meta) Meta {
	var out Meta
	data, err := json.Marshal(meta)
	if err != nil || json.Unmarshal(data, &out) != nil {
		return meta
	}
	return out
}

func (f *family) sort() {
	slices.SortFunc(f.list, func(x, y *Series) int { return slices.Compare(x.Labels, y.Labels) })
}

// An Appender takes the numbers of one sample of one collector. All get the same time: the beginning of the sample.
type Appender struct {
	b       *Builder
	at      time.Duration
	rows    []row
	none    []metric.Metric
	lost    []Loss
	missing []Missing
	names   map[string]string // names without their secrets, by the original name

	profiles []*stacks.Profile
	raws     []rawFile
	redacted bool // the name of a thread in profiles was redacted
}

type row struct {
	metric metric.Metric
	labels []string
	value  float64
}

// Counter appends a counter's raw value, in the descriptor's unit, with one value for each of its labels. Like Gauge
// and Info it panics if the labels do not fit the descriptor or the value is not a finite number: both are a
// collector's bug, and the runner turns the panic into that collector's failure. Invalid UTF-8 in a label, such as a
// process may put into its name, becomes U+FFFD.
func (a *Appender) Counter(c *metric.Counter, value float64, labels ...string) {
	a.add(c, value, labels)
}

// Gauge appends a gauge's value.
func (a *Appender) Gauge(g *metric.Gauge, value float64, labels ...string) { a.add(g, value, labels) }

// Info appends a fact.
func (a *Appender) Info(i *metric.Info, labels ...string) { a.add(i, 1, labels) }

func (a *Appender) add(m metric.Metric, value float64, labels []string) {
	if d := m.Describe(); len(labels) != len(d.Labels) {
		panic(fmt.Sprintf("recording: %s has labels %v, got %d values", d.Name, d.Labels, len(labels)))
	}
	if math.IsNaN(value) || math.IsInf(value, 0) {
		panic(fmt.Sprintf("recording: %s: the value is %v", m.Describe().Name, value))
	}
	if !sane(value) { // such a value could not be read back
		a.Lost(1, "numbers beyond what a recording holds")
		return
	}
	labels = slices.Clone(labels)
	for i, l := range labels {
		labels[i] = strings.ToValidUTF8(l, "\uFFFD") // as in the file: a live report must equal one made from the file
	}
	a.redactNames(m, labels)
	a.rows = append(a.rows, row{m, labels, value})
}

// None says that the metric was measured and there was nothing: no CLOSE_WAIT socket, no limit, no throttled group.
func (a *Appender) None(ms ...metric.Metric) { a.none = append(a.none, ms...) }

// Lost counts data that was seen but not kept. Counts of one sample for the same thing add up. Among several samples
// the largest count stands, because each has lost the same: destinations past a bound, for example, or counts since
// the beginning.
func (a *Appender) Lost(count int, what string) { a.lose(Loss{What: what, Count: count}) }

// LostOfSample is Lost for data that only this sample has lost, such as events since the last one: the counts of
// samples add up.
func (a *Appender) LostOfSample(count int, what string) {
	a.lose(Loss{What: what, Count: count, PerSample: true})
}

func (a *Appender) lose(l Loss) {
	if l.Count <= 0 {
		return
	}
	if i := slices.IndexFunc(a.lost, func(old Loss) bool { return old.What == l.What }); i >= 0 {
		a.lost[i].Count += l.Count
		return
	}
	a.lost = append(a.lost, l)
}

// Missing says that a metric cannot be measured here, why, and what would change that.
func (a *Appender) Missing(m metric.Metric, status Status, reason, remedy string) {
	a.missing = append(a.missing, Missing{Metric: m.Describe().Name, Status: status, Reason: reason, Remedy: remedy})
}

// Commit puts the sample into the recording, unless the recording is done.
func (a *Appender) Commit() (lost []Loss, missing []Missing) {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if a.b.done {
		return a.lost, a.missing
	}
	for _, m := range a.none {
		f := a.b.family(m)
		f.marks = append(f.marks, a.at)
	}
	a.commitProfiles()
	for _, r := range a.rows {
		a.LostOfSample(1-a.b.put(r, a.at), lostNumbers)
	}
	return a.lost, a.missing
}

// lostNumbers names what [Builder.put] refuses.
const lostNumbers = "numbers past the recording's bound, or given twice for the same labels and time"

func (b *Builder) family(m metric.Metric) *family {
	name := m.Describe().Name
	f := b.rec.series[name]
	if f == nil {
		f = &family{metric: m, index: map[string]*Series{}}
		b.rec.series[name] = f
	}
	return f
}

// put adds a number to its series and returns how many it added. It adds none if there are too many series, and none
// at a time that the series already has or has passed: a series has one number for each time.
func (b *Builder) put(r row, at time.Duration) int {
	key := seriesKey(r.labels)
	var s *Series
	if f := b.rec.series[r.metric.Describe().Name]; f != nil {
		s = f.index[key]
	}
	if s == nil {
		if b.count >= maxSeries {
			return 0
		}
		b.count++
		f := b.family(r.metric)
		s = &Series{Metric: r.metric, Labels: r.labels}
		b.labels += len(r.labels)*labelWeight + 2*len(key)
		f.index[key] = s
		f.list = append(f.list, s)
	}
	if n := len(s.Points); n > 0 && s.Points[n-1].At >= at {
		return 0
	}
	s.Points = append(s.Points, Point{At: at, Value: r.value})
	return 1
}

// seriesKey distinguishes label sets whatever bytes they hold: each value follows its length.
func seriesKey(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	var key []byte
	for _, l := range labels {
		key = strconv.AppendInt(key, int64(len(l)), 10)
		key = append(append(key, ':'), l...)
	}
	return string(key)
}

func (c CollectorStatus) losses() []string {
	var out []string
	if c.Late > 0 {
		out = append(out, fmt.Sprintf("%s: %d of %d samples were late", c.Name, c.Late, c.Late+c.Samples))
	}
	if c.Status == StatusBudget && c.Samples > 0 {
		out = append(out, fmt.Sprintf("%s: it was given up before the end", c.Name))
	}
	for _, l := range c.Lost {
		out = append(out, fmt.Sprintf("%s: %d %s", c.Name, l.Count, l.What))
	}
	return out
}
