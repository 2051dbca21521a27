package recording

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A Part is one of the recordings that [Join] puts together.
type Part struct {
	At        time.Duration // when it began, after the beginning of the first
	Recording *Recording
}

// Join makes one recording from parts of the same target in the order of time. There must be at least one part. If
// two windows share the reading between them, the second's is left out. A fact that each part read once, with the
// same answer, appears once. Profiles of one event add up. A collector has the status of the last part. Parts in
// which it did not work, although it did in others, are its loss.
func Join(parts ...Part) *Recording {
	j := &joiner{
		parts: parts, out: &Recording{Meta: joinedMeta(parts), series: map[string]*family{}},
		refused: map[string]int{},
	}
	names := map[string]bool{}
	for _, p := range parts {
		for name := range p.Recording.series {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) { // sorted, so that a bound refuses the same names in each run
		j.out.series[name] = j.family(name)
	}
	j.out.profiles, j.out.raws = joinedProfiles(parts), joinedRaws(parts)
	j.out.Meta.Collectors = j.collectors()
	j.out.Meta.Unsupported = j.missing()
	for _, c := range j.out.Meta.Collectors {
		for _, l := range c.Lost {
			j.out.Meta.Cost.Lost += l.Count
		}
	}
	return j.out
}

type joiner struct {
	parts   []Part
	out     *Recording
	series  int            // number so far
	refused map[string]int // numbers past the bound of series, by metric
}

// joinedMeta returns the data about the whole, except for its collectors.
func joinedMeta(parts []Part) Meta {
	last := parts[len(parts)-1]
	m := last.Recording.Meta // the target as it was last: a command's line or a user may have changed
	m.Started = parts[0].Recording.Meta.Started
	m.Duration = last.At.Seconds() + m.Duration
	m.Asked = last.At.Seconds() + m.Asked
	m.Cost = Cost{}
	for _, p := range parts {
		c := p.Recording.Meta.Cost
		m.Cost.Wall += c.Wall
		m.Cost.CPU += c.CPU
		m.Cost.MaxRSS = max(m.Cost.MaxRSS, c.MaxRSS)
		m.Cost.Samples += c.Samples
		m.Cost.Late += c.Late
	}
	return m
}

func (j *joiner) family(name string) *family {
	var out *family
	for _, p := range j.parts {
		f := p.Recording.series[name]
		switch {
		case f == nil:
		case out == nil:
			out = &family{metric: f.metric, index: map[string]*Series{}}
			j.add(out, f, p.At)
		case !j.isFact(name):
			j.add(out, f, p.At)
		}
	}
	out.sort()
	out.index = nil
	return out
}

// sameReading is how far apart two windows may put the times of a reading that they share: the beginnings of both are
// known to the millisecond.
const sameReading = 2 * time.Millisecond

// add appends the readings of one part to those of the parts before it.
func (j *joiner) add(to, from *family, at time.Duration) {
	at = at.Truncate(time.Microsecond)
	if from.metric.Describe().OverWindow && at > 0 {
		// The sum over no time is nothing: the next reading covers the time from here. The window before may end
		// after this one has begun.
		to.marks = append(to.marks, max(at, to.last()))
	}
	for _, t := range from.marks {
		if n := len(to.marks); n == 0 || to.marks[n-1] < t+at {
			to.marks = append(to.marks, t+at)
		}
	}
	for _, s := range from.list {
		key := seriesKey(s.Labels)
		own := to.index[key]
		if own == nil {
			if j.series >= maxSeries {
				j.refused[s.Metric.Describe().Name] += len(s.Points)
				continue
			}
			j.series++
			own = &Series{Metric: s.Metric, Labels: s.Labels}
			to.index[key] = own
			to.list = append(to.list, own)
		}
		for _, p := range s.Points {
			if n := len(own.Points); n == 0 || own.Points[n-1].At+sameReading <= p.At+at {
				own.Points = append(own.Points, Point{At: p.At + at, Value: p.Value})
			}
		}
	}
}

// isFact reports whether each part that has the metric read it once, at its beginning, with the same answer.
func (j *joiner) isFact(name string) bool {
	var before *family
	for _, p := range j.parts {
		f := p.Recording.series[name]
		if f == nil {
			continue
		}
		at, once := f.once()
		if !once || at > p.Recording.length()/2 || before != nil && !f.sameAs(before) {
			return false
		}
		before = f
	}
	return true
}

// sameAs reports whether two families that were read once each are equal.
func (f *family) sameAs(other *family) bool {
	return len(f.marks) == len(other.marks) && slices.EqualFunc(f.list, other.list, func(x, y *Series) bool {
		return slices.Equal(x.Labels, y.Labels) && len(x.Points) == len(y.Points) &&
			x.Points[0].Value == y.Points[0].Value
	})
}

// collectors says how each collector fared over all parts.
func (j *joiner) collectors() []CollectorStatus {
	var out []CollectorStatus
	failed, seen := map[string]int{}, map[string]int{}
	why := map[string]string{}
	for _, p := range j.parts {
		for _, c := range p.Recording.Meta.Collectors {
			seen[c.Name]++
			if c.Status != StatusOK {
				failed[c.Name]++
				why[c.Name] = c.Reason
			}
			out = addStatus(out, c)
		}
	}
	for i := range out {
		c := &out[i]
		if n := failed[c.Name]; n > 0 && n < seen[c.Name] {
			what := fmt.Sprintf("of %d windows, in which it did not work: %s", seen[c.Name], why[c.Name])
			c.Lost = append(c.Lost, Loss{What: what, Count: n})
		}
		refused := 0
		for _, name := range c.Metrics {
			refused += j.refused[name]
		}
		if refused > 0 {
			c.Lost = append(c.Lost, Loss{What: lostNumbers, Count: refused})
		}
	}
	return out
}

// addStatus adds what a collector did in another part to the list. For each kind of loss it keeps the worst part's
// count, as for samples in one window: the same destinations are past the bound in all of them.
func addStatus(list []CollectorStatus, c CollectorStatus) []CollectorStatus {
	i := slices.IndexFunc(list, func(x CollectorStatus) bool { return x.Name == c.Name })
	if i < 0 {
		c.Lost = slices.Clone(c.Lost)
		return append(list, c)
	}
	own := &list[i]
	own.Status, own.Reason, own.Remedy = c.Status, c.Reason, c.Remedy
	own.Samples += c.Samples
	own.Late += c.Late
	own.Busy += c.Busy
	own.Longest = max(own.Longest, c.Longest)
	for _, l := range c.Lost {
		k := slices.IndexFunc(own.Lost, func(x Loss) bool { return x.What == l.What })
		if k < 0 {
			own.Lost = append(own.Lost, l)
			continue
		}
		own.Lost[k].Count = max(own.Lost[k].Count, l.Count)
	}
	return list
}

// missing lists what no part could measure, with the latest reason.
func (j *joiner) missing() []Missing {
	var out []Missing
	for _, p := range j.parts {
		for _, m := range p.Recording.Meta.Unsupported {
			if j.out.series[m.Metric] != nil {
				continue
			}
			i := slices.IndexFunc(out, func(x Missing) bool { return x.Metric == m.Metric })
			if i < 0 {
				out = append(out, m)
				continue
			}
			out[i] = m
		}
	}
	return out
}

// joinedProfiles adds up the profiles of each event. A sum covers the time of all its parts together, without the
// gaps between them.
func joinedProfiles(parts []Part) map[stacks.Event]*stacks.Profile {
	var out map[stacks.Event]*stacks.Profile
	for _, e := range stacks.Events() {
		var all *stacks.Profile
		for _, p := range parts {
			if next := p.Recording.profiles[e]; next != nil {
				all = appended(all, next)
			}
		}
		if all != nil {
			if out == nil {
				out = map[stacks.Event]*stacks.Profile{}
			}
			out[e] = all
		}
	}
	return out
}

// appended merges two profiles into one. If their values cannot be compared, the second's are lost.
func appended(first, second *stacks.Profile) *stacks.Profile {
	if first == nil {
		return second
	}
	later := *second
	later.Samples = slices.Clone(second.Samples)
	for i := range later.Samples {
		later.Samples[i].At += first.Duration
	}
	sum, err := stacks.Merge(first, &later)
	if err != nil {
		kept := *first
		kept.Lost += second.Total().Count + second.Lost
		return &kept
	}
	sum.Duration = first.Duration + second.Duration
	return sum
}

// joinedRaws keeps the last file of each name.
func joinedRaws(parts []Part) []rawFile {
	var out []rawFile
	for _, p := range parts {
		for _, f := range p.Recording.raws {
			out = slices.DeleteFunc(out, func(x rawFile) bool { return x.name == f.name })
			out = append(out, f)
		}
	}
	return out[max(0, len(out)-maxRaws):]
}

// summed turns a series of sums over several windows into one sum over the whole recording.
func summed(s *Series) *Series {
	if len(s.Points) < 2 || !s.Metric.Describe().OverWindow {
		return s
	}
	all := Point{At: s.Points[len(s.Points)-1].At}
	for _, p := range s.Points {
		all.Value += p.Value
	}
	return &Series{Metric: s.Metric, Labels: s.Labels, Points: []Point{all}}
}

// readings returns the times at which anything of the family was read, in order.
func (f *family) readings() []time.Duration {
	out := slices.Clone(f.marks)
	for _, s := range f.list {
		for _, p := range s.Points {
			out = append(out, p.At)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// last returns the time of the latest reading, or 0 if there is none.
func (f *family) last() time.Duration {
	at := time.Duration(0)
	if n := len(f.marks); n > 0 {
		at = f.marks[n-1]
	}
	for _, s := range f.list {
		at = max(at, s.Points[len(s.Points)-1].At)
	}
	return at
}

// covered returns the readings of sums over a window that cover only this time: each covers the time since the one
// before.
func (f *family) covered(from, to time.Duration) map[time.Duration]bool {
	out := map[time.Duration]bool{}
	since := time.Duration(0)
	for _, at := range f.readings() {
		if since >= from && at <= to {
			out[at] = true
		}
		since = at
	}
	return out
}

// Late returns how long after the end of its window the last reading was taken, or 0 if it was not late.
func (r *Recording) Late() time.Duration {
	late := time.Duration(0)
	for _, f := range r.series {
		for _, at := range f.marks {
			late = max(late, at-r.length())
		}
		for _, s := range f.list {
			late = max(late, s.Points[len(s.Points)-1].At-r.length())
		}
	}
	return late
}

// Size estimates the memory of the recording, in bytes.
func (r *Recording) Size() int64 {
	// A series is itself, its place in a list, and the headers of its labels. For a live host's 650 series with a
	// profile this yields 1.0 of the heap, for a host with longer series 0.8.
	const (
		perSeries, perLabel, perPoint = 200, 16, 16
		// for a profile: with a stack of some ten calls, and a name of sixty bytes
		perSample, perFrame = 120, 100
	)
	n := int64(0)
	for _, f := range r.series {
		n += perSeries + int64(8*cap(f.marks))
		for _, s := range f.list {
			n += perSeries + int64(perPoint*cap(s.Points))
			for _, l := range s.Labels {
				n += perLabel + int64(len(l))
			}
		}
	}
	for _, p := range r.profiles {
		n += int64(perSample*len(p.Samples) + perFrame*(len(p.Frames)+len(p.Threads)))
	}
	for _, f := range r.raws {
		n += int64(len(f.content))
	}
	return n
}

// An Incident is why a flight recorder kept a recording: the finding that began, and the part of the recording in
// which it held.
type Incident struct {
	From float64 `json:"from_seconds"` // since the recording began
	To   float64 `json:"to_seconds"`
	// how long after To the last readings that belong to it were taken
	Late     float64  `json:"late_seconds,omitempty"`
	Check    string   `json:"check"`
	Subject  string   `json:"subject"`
	Severity string   `json:"severity"`
	Summary  string   `json:"summary"`
	Others   []string `json:"others,omitempty"` // further findings that began in the meantime: check and subject

	// Recorded is the length of the whole recording, in the part that [Recording.AtIncident] returns.
	Recorded float64 `json:"recorded_seconds,omitempty"`

	// Windows are the beginnings of the windows from which the recording was joined. Timeline is what the checks said
	// about each, as it was recorded. Both are oldest first, in seconds since the recording began.
	Windows  []float64      `json:"windows,omitempty"`
	Timeline []IncidentSpan `json:"timeline,omitempty"`
}

// An IncidentSpan is a finding at warning or above in consecutive windows.
type IncidentSpan struct {
	From     float64 `json:"from_seconds"`
	To       float64 `json:"to_seconds"`
	Check    string  `json:"check"`
	Subject  string  `json:"subject"`
	Severity string  `json:"severity"` // the worst
	Summary  string  `json:"summary"`  // as it was then
}

// since returns the incident with times that count from a later moment.
func (i *Incident) since(later float64) *Incident {
	out := *i
	out.Windows, out.Timeline = slices.Clone(i.Windows), slices.Clone(i.Timeline)
	for j := range out.Windows {
		out.Windows[j] -= later
	}
	for j := range out.Timeline {
		out.Timeline[j].From -= later
		out.Timeline[j].To -= later
	}
	return &out
}

// WithMeta returns the recording with other data about it. A recording itself never changes once it is built.
func (r *Recording) WithMeta(m Meta) *Recording {
	return &Recording{Meta: stored(m), series: r.series, profiles: r.profiles, raws: r.raws}
}

// WithIncident returns the recording with this incident noted, within its bounds.
func (r *Recording) WithIncident(i Incident) *Recording {
	i.From = max(0, i.From)
	i.To = min(i.To, r.Meta.Duration)
	m := r.Meta
	m.Incident = &i
	return r.WithMeta(m)
}

// AtIncident returns the part of the recording in which the incident lasted, or all of it if there is no incident.
// Profiles stay whole: the recorder keeps only the incident's.
func (r *Recording) AtIncident() *Recording {
	i := r.Meta.Incident
	if i == nil || i.To <= i.From {
		return r
	}
	to := seconds(i.To + i.Late)
	out := r.cut(seconds(i.From), to, to)
	out.Meta.Duration = i.To - i.From
	part := i.since(i.From)
	part.From, part.To, part.Late, part.Recorded = 0, out.Meta.Duration, 0, r.Meta.Duration
	out.Meta.Incident, out.Meta.Asked = part, out.Meta.Duration
	out.profiles, out.raws = r.profiles, r.raws
	for e := range r.profiles {
		name := profileMetric(e).Describe().Name
		if f := r.series[name]; f != nil {
			out.series[name] = f
		}
	}
	return out
}

// seconds rounds to microseconds, the resolution of points.
func seconds(n float64) time.Duration { return time.Duration(math.Round(n*1e6)) * time.Microsecond }

// WithProfiles returns the recording with the profiles of another one, of a process of its target, and with the
// status of that one's collectors. At is when the other began, since this one did.
func (r *Recording) WithProfiles(at time.Duration, other *Recording) *Recording {
	out := &Recording{
		Meta: r.Meta, series: maps.Clone(r.series), profiles: maps.Clone(r.profiles),
		raws: joinedRaws([]Part{{Recording: r}, {Recording: other}}),
	}
	if out.profiles == nil {
		out.profiles = map[stacks.Event]*stacks.Profile{}
	}
	ours := func(m metric.Metric) bool { return out.series[m.Describe().Name] != nil }
	for e, p := range other.profiles {
		m := profileMetric(e)
		f := other.series[m.Describe().Name]
		if ours(m) || f == nil {
			continue
		}
		moved := &family{metric: m, index: map[string]*Series{}}
		(&joiner{refused: map[string]int{}}).add(moved, f, at)
		out.series[m.Describe().Name], out.profiles[e] = moved, p
	}
	out.Meta.Collectors = slices.Clone(r.Meta.Collectors)
	for _, c := range other.Meta.Collectors {
		if !provides(c, profileMetrics()) {
			continue
		}
		same := func(x CollectorStatus) bool { return x.Name == c.Name }
		out.Meta.Collectors = append(slices.DeleteFunc(out.Meta.Collectors, same), c)
	}
	return out
}

// WithSeries returns the recording with the series of another one, of the same time, that keep accepts. It takes only
// metrics for which this one has nothing. Sums over the window are scaled to a window as long as this one.
func (r *Recording) WithSeries(other *Recording, list []metric.Metric, keep func(*Series) bool) *Recording {
	out := r.WithMeta(r.Meta)
	out.series = maps.Clone(r.series)
	for _, m := range list {
		d := m.Describe()
		from := other.series[d.Name]
		if own := out.series[d.Name]; from == nil || own != nil && len(own.list) > 0 {
			continue
		}
		f := &family{metric: m, index: map[string]*Series{}}
		for _, s := range from.list {
			if !keep(s) {
				continue
			}
			s = summed(s)
			last := s.Points[len(s.Points)-1].Value
			if d.OverWindow && d.Unit == quantity.Seconds && other.Meta.Duration > 0 {
				last *= r.Meta.Duration / other.Meta.Duration
			}
			f.list = append(f.list, &Series{
				Metric: s.Metric, Labels: s.Labels, Points: []Point{{At: seconds(r.Meta.Duration), Value: last}},
			})
		}
		out.series[d.Name] = f
		out.Meta.Unsupported = slices.DeleteFunc(slices.Clone(out.Meta.Unsupported), func(x Missing) bool {
			return x.Metric == d.Name
		})
	}
	return out
}

// WithoutProfiles returns the recording without its profiles, as if there had been no profiler.
func (r *Recording) WithoutProfiles() *Recording {
	out := &Recording{Meta: r.Meta, series: maps.Clone(r.series)}
	for e := range r.profiles {
		delete(out.series, profileMetric(e).Describe().Name)
	}
	return out
}

func profileMetrics() []metric.Metric {
	var out []metric.Metric
	for _, e := range stacks.Events() {
		out = append(out, profileMetric(e))
	}
	return out
}
