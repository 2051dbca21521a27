// Package exporter observes a host for as long as it runs: the same collectors and the same checks as a diagnosis, window after window,
// and what they say as metrics for Prometheus.
//
// A scrape reads the last window. It never runs a collector, so that nothing that hangs on the host can stall it.
package exporter

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Options say what to observe. All but Listeners must be set.
type Options struct {
	Host       *host.Host
	Version    string
	Collectors []collect.Collector
	Checks     []*check.Check
	Window     time.Duration
	Interval   time.Duration  // between the samples of a window
	Listeners  []func(Window) // called with each finished window, one after the other: none may block
	Log        *slog.Logger
}

// Exporter observes a host.
type Exporter struct {
	o       Options
	windows atomic.Uint64 // of the host, finished
}

// New makes an exporter, which observes once [Exporter.Run] is called.
func New(o Options) *Exporter { return &Exporter{o: o} }

// Run observes the host until the context is done. It fails if the host cannot be told from others at all.
func (e *Exporter) Run(ctx context.Context) error {
	t, err := e.o.Host.Resolve(ctx, host.Selector{})
	if err != nil {
		return fmt.Errorf("observe the host: %w", err)
	}
	for ctx.Err() == nil {
		begin := time.Now()
		rec, err := collect.Run(ctx, collect.Options{
			Env: collect.Env{Host: e.o.Host, Target: t}, Collectors: e.o.Collectors, Interval: e.o.Interval, Duration: e.o.Window,
			Meta: recording.Meta{Version: e.o.Version, Target: recording.Target{Kind: string(host.KindHost)}},
		})
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil // a window cut short says less than the last whole one
		}
		e.windows.Add(1)
		e.deliver(Window{
			Target: t, Name: HostName, Recording: rec, Result: check.Run(rec, e.o.Checks, check.Options{}), Begin: begin, End: time.Now(),
		})
	}
	return nil
}

func (e *Exporter) deliver(w Window) {
	for _, l := range e.o.Listeners {
		l(w)
	}
}
