package cli

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/collectors"
	"github.com/perfdoctor/perfdoctor/internal/collectors/asprof"
	"github.com/perfdoctor/perfdoctor/internal/exporter"
	"github.com/perfdoctor/perfdoctor/internal/host"
)

// exporterAddress is where Prometheus finds it. The port is in no list of exporters.
const exporterAddress = ":9843"

// minWindow is as short as a window may be: below it the checks lower their confidence.
const minWindow = 5 * time.Second

// exporting holds the flags of exporter.
type exporting struct {
	*app
	web              exporter.WebOptions
	window, interval time.Duration
}

func (a *app) exporterCommand() *cobra.Command {
	x := &exporting{app: a}
	cmd := &cobra.Command{
		Use:   "exporter",
		Short: "Observe this host all the time, for Prometheus",
		Long: `Runs the collectors and the checks of a diagnosis over one window after the
other, and serves what they say at /metrics until it is ended. A scrape reads the
last window; it never runs a collector.

/-/healthy and /-/ready answer without a password, also when --web.config.file
asks for one.`,
		Example: `  perfdoctor exporter
  perfdoctor exporter --web.listen-address 127.0.0.1:9843 --web.config.file web.yml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return x.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&x.web.ListenAddresses, "web.listen-address", []string{exporterAddress},
		"listen on this `ADDRESS`; give it for each")
	f.BoolVar(&x.web.SystemdSocket, "web.systemd-socket", false, "listen on the sockets that systemd hands over instead")
	f.StringVar(&x.web.ConfigFile, "web.config.file", "", "take TLS and passwords from `FILE`, in the format of exporter-toolkit")
	f.DurationVar(&x.window, "window", 15*time.Second, "look at the last so many seconds: a `time`")
	f.DurationVar(&x.interval, "interval", 5*time.Second, "`time` between samples")
	return cmd
}

func (x *exporting) run(ctx context.Context) error {
	if err := x.validate(); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(x.streams.Err, nil))
	e := exporter.New(exporter.Options{
		Host: host.Local(), Version: x.version, Window: x.window, Interval: x.interval, Log: log, Checks: checks.Suite(),
		Collectors: collectors.All(collectors.Options{JVM: asprof.Options{Off: true}}),
	})
	registry := prometheus.NewRegistry()
	handler, err := e.Handler(registry)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.Run(ctx) })
	g.Go(func() error { return exporter.Serve(ctx, x.web, handler, log) })
	return g.Wait()
}

func (x *exporting) validate() error {
	if err := x.web.Validate(); err != nil {
		return usageErrorf("--web.config.file %v", err)
	}
	return x.validateTimes()
}

func (x *exporting) validateTimes() error {
	switch {
	case x.window < minWindow || x.window > maxDuration:
		return usageErrorf("--window %v: give a time between %v and %v", x.window, minWindow, maxDuration)
	case x.interval < minInterval:
		return usageErrorf("--interval %v is too short: give at least %v", x.interval, minInterval)
	case x.interval > x.window:
		return usageErrorf("--interval %v is longer than --window %v: a rate needs two samples", x.interval, x.window)
	}
	return nil
}
