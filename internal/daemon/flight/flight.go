// Package flight keeps the measurements of the last minutes, and saves them when something goes wrong: the windows
// before and after the beginning of a finding, as one recording. So the cause of last night's incident can be opened
// this morning.
//
// Whatever happens to the disk or to a reader, the exporter goes on: windows come from a bounded queue, a separate
// goroutine writes files, and losses are counted.
package flight

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/daemon/episode"
	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Options say what is kept, and where.
type Options struct {
	Dir      string        // of the recordings; made if need be
	MaxBytes int64         // of all recordings there: the oldest are removed
	Memory   int64         // of the windows that are kept in memory
	Before   time.Duration // of what was measured before the finding began
	After    time.Duration // from when it was known to have begun
	Cooldown time.Duration // for which the same check and subject gets no further recording
	Host     string        // name of this host, for the names of the files
	Profile  Profiler      // nil takes no profiles
	Report   Reporter      // nil serves no reports
	Log      *slog.Logger
}

// DefaultMemory keeps two and a half minutes of a host with 2,000 series and of twenty groups with 100, by
// [recording.Recording.Size].
const DefaultMemory = 16 << 20

// A Profiler takes a short profile of the offender of a finding. It returns nil without an error if the offender has
// no JVM. It must return soon after the context is done.
type Profiler func(ctx context.Context, w exporter.Window, f *check.Finding) (*recording.Recording, error)

// A Reporter writes the report of a recording as a page for a browser.
type Reporter func(io.Writer, *recording.Recording) error

// Bounds on profiles. A JVM loses up to 2 % of its throughput while it is profiled, and up to a second of a CPU the
// first time. An incident is no time for more.
const (
	profilesPerHour = 6
	// profileLimit ends a profiler that does not end by itself; profileGrace is how much longer than asked a
	// recording may wait for it.
	profileLimit = time.Minute
	profileGrace = time.Minute
)

// Bounds on what waits. A window of each of twenty targets and the host comes every 15 s. If something goes wrong in
// more than eight groups at once, the first eight recordings say as much.
const (
	maxQueue    = 100
	maxCaptures = 8
	maxWrites   = 8
)

// lastWrites is how long the end of the program waits for a disk.
const lastWrites = 10 * time.Second

// A Recorder is a flight recorder.
type Recorder struct {
	o       Options
	store   *store
	windows chan exporter.Window
	writes  chan write
	done    chan profiled

	// Only the goroutine of Run uses these.
	ring     ring
	tracker  *episode.Tracker
	captures map[string]*capture  // by target
	cool     map[string]time.Time // when the last recording of a finding was begun
	profiles []time.Time          // when profiles were taken, in the last hour

	profiling bool

	counts
}

// A write is a recording on its way to the disk.
type write struct {
	rec  *recording.Recording
	name string
}

// profiled is the result of taking a profile.
type profiled struct {
	capture *capture
	rec     *recording.Recording
	err     error
}

// New makes a recorder. It records once [Recorder.Run] is called, and it finds the recordings of an earlier one in
// the directory. It fails if the directory cannot be made, read or written to.
func New(o Options) (*Recorder, error) {
	s, err := openStore(o.Dir, o.MaxBytes, o.Log)
	if err != nil {
		return nil, err
	}
	r := &Recorder{
		o: o, store: s, windows: make(chan exporter.Window, maxQueue), writes: make(chan write, maxWrites),
		done:    make(chan profiled, 1),
		tracker: episode.NewTracker(episode.Defaults()), captures: map[string]*capture{}, cool: map[string]time.Time{},
	}
	r.counts = newCounts(r)
	for _, e := range s.list() { // a program that is restarted again and again must not record the same again and again
		if e.Began.After(r.cool[e.id()]) {
			r.cool[e.id()] = e.Began
		}
	}
	return r, nil
}

// Observe takes a window. It never blocks: if too many wait, the window is dropped and counted.
func (r *Recorder) Observe(w exporter.Window) {
	select {
	case r.windows <- w:
	default:
		r.dropped.Inc()
	}
}

// Run records until the context is done, and then writes what is in progress.
func (r *Recorder) Run(ctx context.Context) error {
	written := make(chan struct{})
	go func() {
		defer close(written)
		for w := range r.writes {
			r.write(w)
		}
	}()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case w := <-r.windows:
			r.observe(ctx, w)
		case p := <-r.done:
			r.gotProfile(p)
		}
	}
	r.stop(ctx)
	close(r.writes)
	select {
	case <-written:
		return nil
	case <-time.After(lastWrites):
		return errors.New("flight recorder: the disk of " + r.o.Dir + " does not answer: recordings in progress " +
			"are lost")
	}
}

// stop takes the windows that still wait, and ends all recordings. The context is done.
func (r *Recorder) stop(ctx context.Context) {
	for {
		select {
		case w := <-r.windows:
			r.observe(ctx, w)
		default:
			for target := range r.captures {
				r.finish(target, "the exporter was stopped")
			}
			return
		}
	}
}

func (r *Recorder) observe(ctx context.Context, w exporter.Window) {
	r.finishDue(w.Begin) // before what this window begins, which belongs to another recording
	hold := episode.Defaults().Hold
	e := r.ring.add(w, r.o.Before+hold+w.End.Sub(w.Begin), r.o.Memory)
	begun, _ := r.tracker.Observe(w)
	if c := r.captures[w.Name]; c != nil {
		r.ring.retain(e)
		c.entries = append(c.entries, e)
	}
	for _, b := range begun {
		r.begin(ctx, b, w)
	}
	r.finishDue(w.End)
	r.relieve()
	r.memory.Set(float64(r.ring.held))
}

func (r *Recorder) finishDue(now time.Time) {
	for target, c := range r.captures {
		if c.due(now) {
			r.finish(target, "")
		}
	}
}

// relieve ends recordings, oldest first, while their windows exceed the memory limit.
func (r *Recorder) relieve() {
	for r.ring.held > r.o.Memory && len(r.captures) > 0 {
		oldest := ""
		for target, c := range r.captures {
			if oldest == "" || c.until.Before(r.captures[oldest].until) {
				oldest = target
			}
		}
		r.finish(oldest, "the flight recorder has no memory for more of it")
	}
}

// begin starts a recording of an episode that has begun, unless one of its target is in progress or one of the same
// finding was made shortly before.
func (r *Recorder) begin(ctx context.Context, e episode.Episode, w exporter.Window) {
	if c := r.captures[e.Target]; c != nil {
		c.alsoBegun(e)
		return
	}
	for id, at := range r.cool {
		if w.End.Sub(at) >= r.o.Cooldown {
			delete(r.cool, id)
		}
	}
	id := e.Finding.ID()
	if _, cooling := r.cool[id]; cooling {
		r.outcome("cooldown").Inc()
		return
	}
	if len(r.captures) >= maxCaptures {
		r.outcome("busy").Inc()
		return
	}
	r.cool[id] = e.Begin
	c := &capture{Episode: e, entries: r.ring.of(e.Target, e.Begin.Add(-r.o.Before)), until: w.End.Add(r.o.After)}
	for _, e := range c.entries {
		r.ring.retain(e)
	}
	r.captures[e.Target] = c
	r.o.Log.Info("flight recorder: recording", "check", e.Finding.Check, "subject", e.Finding.Subject.String(),
		"target", e.Target)
	r.startProfile(ctx, c, w)
}

// startProfile takes a profile of the offender if there is budget for one.
func (r *Recorder) startProfile(ctx context.Context, c *capture, w exporter.Window) {
	if r.o.Profile == nil || ctx.Err() != nil {
		return
	}
	for len(r.profiles) > 0 && w.End.Sub(r.profiles[0]) >= time.Hour {
		r.profiles = r.profiles[1:]
	}
	if len(r.profiles) >= profilesPerHour || r.profiling {
		r.profileOutcome("budget").Inc()
		return
	}
	c.profiling, r.profiling = true, true
	r.profiles = append(r.profiles, w.End)
	finding := c.Finding
	go func() {
		limited, cancel := context.WithTimeout(ctx, profileLimit)
		defer cancel()
		rec, err := r.o.Profile(limited, w, &finding)
		r.done <- profiled{c, rec, err} // there is room: at most one is taken at a time
	}()
}

func (r *Recorder) gotProfile(p profiled) {
	p.capture.profiling, r.profiling = false, false
	switch {
	case p.err != nil:
		r.profileOutcome("failed").Inc()
		r.o.Log.Warn("flight recorder: no profile", "err", p.err)
	case p.rec == nil: // no JVM: a profile that was not taken does not use the budget
		r.profiles = r.profiles[:max(0, len(r.profiles)-1)]
	default:
		r.profileOutcome("taken").Inc()
		p.capture.profile = p.rec
	}
}

// finish hands a recording over to be written.
func (r *Recorder) finish(target, why string) {
	c := r.captures[target]
	delete(r.captures, target)
	for _, e := range c.entries {
		r.ring.release(e)
	}
	select {
	case r.writes <- write{c.join(why), fileName(c.Begin, r.o.Host, c.Finding.Check)}:
	default: // the disk does not keep up
		r.outcome("dropped").Inc()
	}
}

func (r *Recorder) write(w write) {
	name, err := r.store.add(w.rec, w.name)
	if err != nil {
		r.outcome("failed").Inc()
		r.o.Log.Error("flight recorder: a recording is lost", "err", err)
		return
	}
	r.outcome("written").Inc()
	r.o.Log.Info("flight recorder: recorded", "file", name)
}

// counts are the recorder's own metrics.
type counts struct {
	recordings, profilesTaken *prometheus.CounterVec
	dropped                   prometheus.Counter
	memory                    prometheus.Gauge
	bytes                     prometheus.GaugeFunc
}

func newCounts(r *Recorder) counts {
	c := counts{
		recordings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "perfdoctor_flight_recordings_total",
			Help: "Recordings of the flight recorder: written; failed (the disk); dropped (the disk is too " +
				"slow); not " +
				"begun because of " +
				"the cooldown, or busy with others.",
		}, []string{"outcome"}),
		profilesTaken: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "perfdoctor_flight_profiles_total",
			Help: "Profiles of offending JVMs: taken; failed; not begun because of the budget.",
		}, []string{"outcome"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "perfdoctor_flight_windows_dropped_total", Help: "Windows that the flight recorder was too slow for.",
		}),
		memory: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "perfdoctor_flight_memory_bytes", Help: "Memory of the windows that the flight recorder keeps, " +
				"estimated.",
		}),
		bytes: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "perfdoctor_flight_bytes", Help: "Size of all recordings of the flight recorder on disk.",
		}, func() float64 { return float64(r.store.bytes()) }),
	}
	// so that each series exists before it first counts
	for _, o := range []string{"written", "failed", "dropped", "cooldown", "busy"} {
		c.recordings.WithLabelValues(o)
	}
	return c
}

func (c counts) outcome(o string) prometheus.Counter { return c.recordings.WithLabelValues(o) }

func (c counts) profileOutcome(o string) prometheus.Counter {
	return c.profilesTaken.WithLabelValues(o)
}

// Describe describes the recorder's own metrics.
func (c counts) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.all() {
		m.Describe(to)
	}
}

// Collect returns the recorder's own metrics.
func (c counts) Collect(to chan<- prometheus.Metric) {
	for _, m := range c.all() {
		m.Collect(to)
	}
}

func (c counts) all() []prometheus.Collector {
	return []prometheus.Collector{c.recordings, c.profilesTaken, c.dropped, c.memory, c.bytes}
}
