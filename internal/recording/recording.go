// Package recording holds what was measured: raw counters over time, facts, and what could not be measured and why.
//
// A recording is the only input of the checks, so a diagnosis made on a production host can be repeated elsewhere. It
// stores raw counters, never rates, and opens with ordinary tools: meta.json, samples.jsonl and profiles in a
// directory, a zip or a txtar.
package recording

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// SchemaVersion is the version of the file format. It rises when an older perfdoctor could misread a newer file.
const SchemaVersion = 1

// Status is how a collector fared.
type Status string

// The ways a collector can end. Unsupported (the kernel lacks it), Denied (this user may not) and Failed (it broke)
// differ because their remedies differ.
const (
	StatusOK          Status = "ok"
	StatusUnsupported Status = "unsupported"
	StatusDenied      Status = "denied"
	StatusFailed      Status = "failed"
	StatusTimeout     Status = "timeout"
	StatusBudget      Status = "over budget" // it was given up, because perfdoctor used more CPU time than it may
)

// Meta is all data about a recording except its samples. It is stored as meta.json.
type Meta struct {
	Schema      int               `json:"schema"`
	Version     string            `json:"perfdoctor"`            // version that recorded it
	Started     time.Time         `json:"started"`               // wall clock, UTC
	Duration    float64           `json:"duration_seconds"`      // time really covered
	Interval    float64           `json:"interval_seconds"`      // asked for between samples
	Asked       float64           `json:"asked_seconds"`         // duration asked for
	EndedEarly  string            `json:"ended_early,omitempty"` // why the collection was shorter than asked
	Target      Target            `json:"target"`
	Collectors  []CollectorStatus `json:"collectors"`
	Unsupported []Missing         `json:"not_measured,omitempty"`
	Cost        Cost              `json:"cost"`
	Incident    *Incident         `json:"incident,omitempty"` // of a flight recorder's
	Redacted    *Redaction        `json:"redacted,omitempty"` // names are pseudonyms
}

// Target says what was diagnosed, in words fit for a report.
type Target struct {
	Kind      string   `json:"kind"` // host, process, cgroup, container or command
	PID       int      `json:"pid,omitempty"`
	Name      string   `json:"name,omitempty"`    // comm, cgroup path or container id
	Cmdline   []string `json:"cmdline,omitempty"` // redacted
	Runtime   string   `json:"runtime,omitempty"`
	User      string   `json:"user,omitempty"`
	Container string   `json:"container,omitempty"`
	Cgroup    string   `json:"cgroup,omitempty"`
	OwnNetNS  bool     `json:"own_network_namespace"` // its network namespace is not perfdoctor's
	// why it did nothing when the collection began or ended: stopped, or frozen
	Halted      string `json:"halted,omitempty"`
	ExitStatus  string `json:"exit_status,omitempty"`  // of a command perfdoctor started
	NetNSDenied string `json:"netns_denied,omitempty"` // why its network namespace could not be entered
}

// CollectorStatus is one collector's part of the recording.
type CollectorStatus struct {
	Name    string   `json:"name"`
	Status  Status   `json:"status"`
	Reason  string   `json:"reason,omitempty"` // why it is not ok
	Remedy  string   `json:"remedy,omitempty"` // what would change that
	Samples int      `json:"samples"`
	Late    int      `json:"late_samples,omitempty"` // samples that missed their time limit
	Lost    []Loss   `json:"lost,omitempty"`
	Busy    float64  `json:"busy_seconds"`      // wall time spent sampling
	Longest float64  `json:"longest_seconds"`   // the slowest sample
	Metrics []string `json:"metrics,omitempty"` // what it provides
}

// Loss is data that a collector saw but could not keep, such as destinations past its bound.
type Loss struct {
	What  string `json:"what"`
	Count int    `json:"count"`
	// PerSample says that each sample has lost different data, so the counts of samples add up.
	PerSample bool `json:"-"`
}

// Missing is a metric that a collector provides in general but could not measure here.
type Missing struct {
	Metric string `json:"metric"`
	Status Status `json:"status"`
	Reason string `json:"reason"`
	Remedy string `json:"remedy,omitempty"`
}

// Cost is what perfdoctor itself used.
type Cost struct {
	Wall    float64 `json:"wall_seconds"`
	CPU     float64 `json:"cpu_seconds"`
	MaxRSS  int64   `json:"max_resident_bytes"`
	Samples int     `json:"samples"`
	Late    int     `json:"late_samples"`
	Lost    int     `json:"lost"`

	GivenUp []GivenUp `json:"given_up,omitempty"` // to stay within the budget

	// Skipped are the times, in seconds after the recording began, at which no sample was taken for the same reason.
	Skipped []float64 `json:"skipped_seconds,omitempty"`
}

// GivenUp is a step that perfdoctor took because it used more CPU time than it may.
type GivenUp struct {
	At   float64 `json:"at_seconds"` // since the recording began
	What string  `json:"what"`
	Why  string  `json:"why"`
}

// Text returns it as a sentence.
func (g GivenUp) Text() string { return fmt.Sprintf("%s, after %.1f s: %s", g.What, g.At, g.Why) }

// A Point is one measured number.
type Point = series.Point

// Series is one metric with one set of label values, in time order.
type Series struct {
	Metric metric.Metric
	Labels []string // values, in the order of the descriptor's label names
	Points []Point
}

// Label returns the value of a label by its name. It is empty if the metric has no such label.
func (s *Series) Label(name string) string {
	if i := slices.Index(s.Metric.Describe().Labels, name); i >= 0 && i < len(s.Labels) {
		return s.Labels[i]
	}
	return ""
}

// Span returns the time between the first and the last point.
func (s *Series) Span() time.Duration { return series.Span(s.Points) }

// CounterSeries is a series that only rises.
type CounterSeries struct{ *Series }

// Increase returns how much the counter rose over the window, in its raw unit, as [series.Rise] does.
func (s CounterSeries) Increase() (n float64, ok bool) { return series.Rise(s.Points) }

// Rate returns the increase per second, as [series.Rate] does.
func (s CounterSeries) Rate() (perSecond float64, ok bool) { return series.Rate(s.Points) }

// GaugeSeries is a series that goes up and down. A gauge of a bounded list (such as sockets of a destination) may
// lack points: it was then not among the largest, or was zero.
type GaugeSeries struct{ *Series }

// First returns the oldest value. It and the others use the points that exist; a series has at least one.
func (s GaugeSeries) First() float64 { return s.Points[0].Value }

// Last returns the newest value.
func (s GaugeSeries) Last() float64 { return s.Points[len(s.Points)-1].Value }

// Max returns the greatest value.
func (s GaugeSeries) Max() float64 {
	m := s.Points[0].Value
	for _, p := range s.Points {
		m = max(m, p.Value)
	}
	return m
}

// Min returns the least value.
func (s GaugeSeries) Min() float64 {
	m := s.Points[0].Value
	for _, p := range s.Points {
		m = min(m, p.Value)
	}
	return m
}

// Mean returns the mean of the points.
func (s GaugeSeries) Mean() float64 { return series.Mean(series.Values(s.Points)) }

// Recording is a whole recording in memory. It never changes once built, and is safe for concurrent reading.
type Recording struct {
	Meta     Meta
	series   map[string]*family
	profiles map[stacks.Event]*stacks.Profile
	raws     []rawFile // written by Save, and not read back
	unread   []string  // names of the raw files in the file that this was read from

	ranking sync.Mutex
	ranked  map[stacks.Event]*stacks.Profile // made by Ranked at the first use

	computing sync.Mutex
	computed  map[string]any // by Once, each a func() T
}

// family is all series of one metric. A metric that was measured and had nothing to show has a family without series.
type family struct {
	metric metric.Metric
	list   []*Series
	index  map[string]*Series
	marks  []time.Duration // when it was measured and there was nothing
}

// Recorded reports whether the metric was measured, even if there was nothing to count.
func (r *Recording) Recorded(m metric.Metric) bool { return r.series[m.Describe().Name] != nil }

// Counter returns the series of a counter whose labels match the pairs (name, value, name, value …), in order of
// label values.
func (r *Recording) Counter(c *metric.Counter, match ...string) []CounterSeries {
	var out []CounterSeries
	for _, s := range r.matching(c, match) {
		out = append(out, CounterSeries{s})
	}
	return out
}

// Gauge returns the series of a gauge, as [Recording.Counter] does for a counter.
func (r *Recording) Gauge(g *metric.Gauge, match ...string) []GaugeSeries {
	var out []GaugeSeries
	for _, s := range r.matching(g, match) {
		out = append(out, GaugeSeries{s})
	}
	return out
}

// Info returns the label sets of an info metric.
func (r *Recording) Info(i *metric.Info, match ...string) []*Series { return r.matching(i, match) }

// SeriesOf returns all series of a metric, whatever its kind.
func (r *Recording) SeriesOf(m metric.Metric) []*Series { return r.matching(m, nil) }

func (r *Recording) matching(m metric.Metric, match []string) []*Series {
	f := r.series[m.Describe().Name]
	if f == nil {
		return nil
	}
	var out []*Series
	for _, s := range f.list {
		if matches(s, match) {
			out = append(out, summed(s))
		}
	}
	return out
}

func matches(s *Series, match []string) bool {
	for i := 0; i+1 < len(match); i += 2 {
		if s.Label(match[i]) != match[i+1] {
			return false
		}
	}
	return true
}

// Window returns the time that the recording covers.
func (r *Recording) Window() quantity.Value {
	return quantity.Of("window", r.Meta.Duration, quantity.Seconds)
}

// Why returns the reason why a metric was not recorded, and what would change that.
func (r *Recording) Why(m metric.Metric) (reason, remedy string) {
	name := m.Describe().Name
	for _, u := range r.Meta.Unsupported {
		if u.Metric == name {
			return u.Reason, u.Remedy
		}
	}
	for _, c := range r.Meta.Collectors {
		if c.Status != StatusOK && slices.Contains(c.Metrics, name) {
			return c.Reason, c.Remedy
		}
	}
	return "the recording has no " + name, ""
}

// basics are the collectors of files that every Linux has: they are missing only if /proc is.
var basics = []string{"cpu", "memory", "interrupts", "netstat", "devices"}

// Blocked reports whether a metric is not recorded because a right was missing or something failed, rather than
// because this kind of host or target does not have it.
func (r *Recording) Blocked(m metric.Metric) bool {
	name := m.Describe().Name
	return slices.ContainsFunc(r.Meta.Collectors, func(c CollectorStatus) bool {
		if !slices.Contains(c.Metrics, name) {
			return false
		}
		switch c.Status {
		case StatusDenied, StatusFailed, StatusTimeout:
			return true
		case StatusUnsupported:
			return slices.Contains(basics, c.Name)
		}
		return false
	})
}

// fewLost is the share of a profile's samples that may be lost without a word: a thousand samples show the share of
// one function no more exactly than that.
const fewLost = 0.03

// Losses returns what the collectors of these metrics lost: late samples, data past their bounds, and samples of
// profiles.
func (r *Recording) Losses(ms []metric.Metric) []string {
	var out []string
	for _, c := range r.Meta.Collectors {
		if !provides(c, ms) {
			continue
		}
		out = append(out, c.losses()...)
	}
	for _, e := range stacks.Events() {
		p := r.profiles[e]
		if p == nil || !slices.Contains(ms, metric.Metric(profileMetric(e))) {
			continue
		}
		if all := p.Total().Count + p.Lost; float64(p.Lost) > fewLost*float64(all) {
			out = append(out, fmt.Sprintf("%s: lost %d of %d samples of the %s profile", p.Engine, p.Lost, all, e))
		}
	}
	return out
}

func provides(c CollectorStatus, ms []metric.Metric) bool {
	return slices.ContainsFunc(ms, func(m metric.Metric) bool { return slices.Contains(c.Metrics, m.Describe().Name) })
}
