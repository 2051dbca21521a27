// Package exporter observes a host for as long as it runs. It uses the same collectors and checks as a diagnosis,
// window after window, and exports their results as metrics for Prometheus.
//
// A scrape reads the last window. It never runs a collector, so nothing that hangs on the host can stall it.
package exporter

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// Options say what to observe. All but Listeners and Describe must be set.
type Options struct {
	Host    *host.Host
	Version string
	Log     *slog.Logger
	Checks  []*check.Check
	Causes  check.Causes

	Collectors       func() []collect.Collector // of the host; Left says why the others are left out
	TargetCollectors func() []collect.Collector // of each other target
	Left             []recording.CollectorStatus
	Deep             bool // collectors may use probes that cost the host more

	Budget   *collect.Budget // of CPU time, for all collectors; nil for none
	Window   time.Duration
	Interval time.Duration // between the samples of a window

	TargetCPU   float64 // CPUs that a control group uses when it becomes a target
	MaxTargets  int     // 0 for the host only
	MaxFindings int
	MaxSeries   int // values of a label without bound, for each metric and target
	PodNames    PodNames

	Describe  func(host.Target) recording.Target
	Listeners []func(Window) // called with each finished window, one target after the other: none may block
}

// Exporter observes a host.
type Exporter struct {
	o         Options
	own       *own
	snapshot  *snapshot
	perTarget map[string]bool
	ready     atomic.Bool
	hints     atomic.Pointer[[]recording.CollectorStatus] // of the host's last window: what did not work, and why

	deliveries sync.Mutex
}

// New makes an exporter. It observes once [Exporter.Run] is called.
func New(o Options) *Exporter {
	e := &Exporter{o: o, own: newOwn(o.Version), perTarget: map[string]bool{}}
	e.snapshot = &snapshot{registry: e.own.registry, targets: map[string]*told{}}
	for _, c := range o.TargetCollectors() {
		if c.Pace == collect.Once && !provides(c, metric.TargetInfo) {
			continue // facts of the host, which its own window has
		}
		for _, m := range c.Provides {
			e.perTarget[m.Describe().Name] = true
		}
	}
	for _, m := range []metric.Metric{metric.BPFRuns, metric.BPFSeconds, metric.BPFMeasured} {
		delete(e.perTarget, m.Describe().Name) // about perfdoctor's own programs
	}
	return e
}

func provides(c collect.Collector, m metric.Metric) bool {
	for _, p := range c.Provides {
		if p == m {
			return true
		}
	}
	return false
}

// Run observes the host and its targets until the context is done. It fails if it cannot tell the host from others at
// all.
func (e *Exporter) Run(ctx context.Context) error {
	t, err := e.o.Host.Resolve(ctx, host.Selector{})
	if err != nil {
		return fmt.Errorf("observe the host: %w", err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	if e.o.MaxTargets > 0 {
		all.Go(func() { e.followTargets(ctx) })
	}
	return e.observe(ctx, t, HostName, e.o.Collectors(), e.o.Checks)
}

// observe runs the windows of one target.
func (e *Exporter) observe(ctx context.Context, t host.Target, name string, list []collect.Collector,
	checks []*check.Check,
) error {
	ledger := newLedger(name, e.o.MaxSeries, e.perTarget, func(family string, n int) {
		if n > 0 {
			e.own.seriesDropped.WithLabelValues(family).Add(float64(n))
		}
	})
	histograms := newHistograms(name)
	var before *recording.Recording
	err := collect.Windows(ctx, collect.Options{
		Env:        collect.Env{Host: e.o.Host, Target: t, Deep: e.o.Deep && t.Kind == host.KindHost},
		Collectors: list, Interval: e.o.Interval, Duration: e.o.Window, Budget: e.o.Budget,
		Meta: recording.Meta{Version: e.o.Version, Target: e.describe(t)},
	}, func(rec *recording.Recording) {
		if name == HostName {
			e.tellHints(rec)
			m := rec.Meta
			m.Collectors = slices.Concat(m.Collectors, e.o.Left)
			rec = rec.WithMeta(m)
		}
		begin := rec.Meta.Started
		w := Window{
			Target: t, Name: name, Recording: rec, Result: check.Run(rec, checks, check.Options{Causes: e.o.Causes}),
			Begin: begin,
			End:   begin.Add(time.Duration(rec.Meta.Duration * float64(time.Second))),
		}
		e.own.countCollectors(rec, before)
		before = rec
		e.finish(w, append(ledger.add(rec), histograms.add(rec)...))
	})
	e.snapshot.forget(name, e.o)
	return err
}

func (e *Exporter) describe(t host.Target) recording.Target {
	if e.o.Describe != nil {
		return e.o.Describe(t)
	}
	return recording.Target{Kind: string(t.Kind), Name: t.Name}
}

// finish serves a window and passes it to the listeners.
func (e *Exporter) finish(w Window, families []*dto.MetricFamily) {
	e.own.windows.Inc()
	if w.Recording.Meta.Duration > (e.o.Window + e.o.Interval).Seconds() {
		e.own.late.Inc()
	}
	left := 0
	if w.Name == HostName {
		left = len(e.o.Left)
	}
	families = append(families, windowFamilies(w, left)...)
	dropped := e.snapshot.put(w, families, e.o)
	e.own.findingsDropped.Add(float64(dropped))
	if w.Name == HostName {
		e.ready.Store(true)
	}
	e.deliveries.Lock()
	defer e.deliveries.Unlock()
	for _, l := range e.o.Listeners {
		l(w)
	}
}

// tellHints logs what does not work here, with what would fix it, whenever that changes, and keeps it for a page.
func (e *Exporter) tellHints(rec *recording.Recording) {
	var hints []recording.CollectorStatus
	for _, c := range rec.Meta.Collectors {
		if c.Status != recording.StatusOK {
			hints = append(hints, c)
		}
	}
	known := map[string]recording.Status{}
	if last := e.hints.Load(); last != nil {
		for _, c := range *last {
			known[c.Name] = c.Status
		}
	}
	for _, c := range hints {
		if known[c.Name] != c.Status {
			e.o.Log.Log(context.Background(), levelOf(c.Status), "a collector does not work here",
				"collector", c.Name, "status", string(c.Status), "reason", c.Reason, "remedy", c.Remedy)
		}
	}
	for _, g := range rec.Meta.Cost.GivenUp {
		e.o.Log.Warn("something was given up to stay within the budget", "what", g.What, "why", g.Why)
	}
	e.hints.Store(&hints)
}

// levelOf returns a level below warning for what nobody can change on this host.
func levelOf(st recording.Status) slog.Level {
	if st == recording.StatusUnsupported {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}
