package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/asprof"
	"github.com/perfdoctor/perfdoctor/internal/collectors/find"
	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
	"github.com/perfdoctor/perfdoctor/internal/daemon/flight"
	"github.com/perfdoctor/perfdoctor/internal/daemon/push"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/report"
	"github.com/perfdoctor/perfdoctor/internal/report/html"
)

// flightFlags are the flags of the flight recorder.
type flightFlags struct {
	dir                     string
	maxBytes                int64
	before, after, cooldown time.Duration
	profile                 bool
}

// Bounds of the flight recorder. The bound on time is for its memory: more than half an hour of windows does not fit.
// A limit on disk below a few recordings leaves none by morning.
const (
	maxFlight      = 30 * time.Minute
	minFlightBytes = 1 << 20
)

func (o *flightFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.dir, "flight.dir", "", "write what was measured before and after a finding began to the directory "+
		"`DIR`; \"\" turns it off")
	f.Int64Var(&o.maxBytes, "flight.max-bytes", 256<<20, "remove the oldest of these recordings above `N` bytes in all")
	timeVar(f, &o.before, "flight.before", 2*time.Minute, "`time` recorded before the finding began")
	timeVar(f, &o.after, "flight.after", 30*time.Second, "`time` recorded from when it was known to have begun")
	timeVar(f, &o.cooldown, "flight.cooldown", 10*time.Minute,
		"`time` for which the same check and subject is not recorded again")
	f.BoolVar(&o.profile, "flight.profile-jvm", false,
		"add a profile of 10 s of the JVM that is to blame: one at a time, six an hour (loads async-profiler into it)")
}

func (o *flightFlags) validate(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	for _, name := range []string{"max-bytes", "before", "after", "cooldown", "profile-jvm"} {
		if o.dir == "" && given("flight."+name) {
			return command.UsageErrorf("--flight.%s goes with --flight.dir", name)
		}
	}
	switch {
	case o.maxBytes < minFlightBytes:
		return command.UsageErrorf("--flight.max-bytes %d: give at least %d", o.maxBytes, minFlightBytes)
	case o.before < 0 || o.before > maxFlight:
		return command.UsageErrorf("--flight.before %v: give a time between 0 and %v", o.before, maxFlight)
	case o.after < 0 || o.after > maxFlight:
		return command.UsageErrorf("--flight.after %v: give a time between 0 and %v", o.after, maxFlight)
	case o.cooldown < 0:
		return command.UsageErrorf("--flight.cooldown %v: give a positive time", o.cooldown)
	}
	return nil
}

// recorder makes the flight recorder, or returns nil if none is asked for.
func (o *flightFlags) recorder(name string, p flight.Profiler, log *slog.Logger) (*flight.Recorder, error) {
	if o.dir == "" {
		return nil, nil
	}
	options := flight.Options{
		Dir: o.dir, MaxBytes: o.maxBytes, Memory: flight.DefaultMemory, Before: o.before, After: o.after,
		Cooldown: o.cooldown,
		Host:     name, Log: log, Report: reportPage,
	}
	if o.profile {
		options.Profile = p
	}
	return flight.New(options)
}

// reportPage writes what the checks say about a recording as a page.
func reportPage(w io.Writer, rec *recording.Recording) error {
	list := checks.Suite()
	data := report.Build(rec, check.Run(rec, list, check.Options{Causes: checks.Causes()}))
	return html.Write(w, html.Input{Report: data, Recording: rec, Checks: list})
}

// pushFlags are the flags about data that is sent without a request.
type pushFlags struct{ pyroscope, otlp, webhook push.Server }

func (o *pushFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.pyroscope.URL, "push.pyroscope", "", "send profiles to the Pyroscope-compatible server at `URL`")
	f.StringVar(&o.otlp.URL, "push.otlp", "", "send the beginning and end of findings as logs to the OTLP/HTTP "+
		"endpoint at `URL`")
	f.StringVar(&o.webhook.URL, "push.webhook", "", "send the beginning and end of findings as CloudEvents to `URL`")
	for name, file := range map[string]*string{
		"pyroscope": &o.pyroscope.ConfigFile, "otlp": &o.otlp.ConfigFile, "webhook": &o.webhook.ConfigFile,
	} {
		f.StringVar(file, "push."+name+".config.file", "",
			"take password, token and TLS for --push."+name+" from `FILE`, in the format of Prometheus's http_config")
	}
}

// pusher makes the sender; it sends nothing without a URL.
func (o *pushFlags) pusher(name, version string, log *slog.Logger) (*push.Pusher, error) {
	p, err := push.New(push.Options{
		Pyroscope: o.pyroscope, OTLP: o.otlp, Webhook: o.webhook, Host: name, Version: version, Log: log,
	})
	if err != nil {
		return nil, command.UsageErrorf("%v", err)
	}
	return p, nil
}

// hostname names this host in files and messages.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// listening is what listens to the exporter: the flight recorder and the sender.
type listening struct {
	pages   []exporter.Page // with what was measured, so private
	files   func() []flight.File
	metrics []prometheus.Collector
	run     []func(context.Context) error // each until the context is done
}

// listen makes what the flags ask for, and subscribes it to each window.
func (x *exporting) listen(o *exporter.Options) (listening, error) {
	name := hostname()
	sent, err := x.push.pusher(name, x.Version, o.Log)
	if err != nil {
		return listening{}, err
	}
	recorder, err := x.flight.recorder(name, offenderProfile(o.Host, x.Version, sent), o.Log)
	if err != nil {
		return listening{}, err
	}
	l := listening{metrics: []prometheus.Collector{sent}, run: []func(context.Context) error{sent.Run}}
	o.Listeners = append(o.Listeners, sent.Observe)
	if recorder != nil {
		o.Listeners = append(o.Listeners, recorder.Observe)
		l.files = recorder.Incidents
		l.pages, l.metrics, l.run = recorder.Pages(), append(l.metrics, recorder), append(l.run, recorder.Run)
	}
	return l, nil
}

// profileTime is how long a JVM is profiled: 1000 samples of each busy CPU.
const profileTime = 10 * time.Second

// offenderProfile takes a profile of the JVM that a finding is about, or of the JVM in its target that used the most
// CPU time, and also sends it. It returns nil if there is no such JVM.
func offenderProfile(h *host.Host, version string, sent *push.Pusher) flight.Profiler {
	return func(ctx context.Context, w exporter.Window, f *check.Finding) (*recording.Recording, error) {
		pid, err := offender(ctx, h, w, f)
		if err != nil || pid == 0 {
			return nil, err
		}
		t, err := h.Resolve(ctx, host.Selector{PID: pid})
		if err != nil {
			return nil, err
		}
		rec, err := collect.Run(ctx, collect.Options{
			Env: collect.Env{Host: h, Target: t}, Collectors: asprof.Collectors(&find.Look{}, asprof.Options{}),
			Interval: time.Second, Duration: profileTime,
			Meta: recording.Meta{Version: version, Target: recording.Target{
				Kind: string(t.Kind), PID: pid,
				Name: t.Name,
			}},
		})
		if err != nil {
			return nil, fmt.Errorf("profile pid %d: %w", pid, err)
		}
		sent.Profiles(w.Name, rec)
		return rec, nil
	}
}

// offender returns the JVM to profile, or 0 if there is none.
func offender(ctx context.Context, h *host.Host, w exporter.Window, f *check.Finding) (pid int, err error) {
	t := w.Target
	switch f.Subject.Kind {
	case "pid":
		if _, err := fmt.Sscan(f.Subject.ID, &pid); err != nil {
			return 0, nil //nolint:nilerr // a subject without a number names no process
		}
		t, err = h.Resolve(ctx, host.Selector{PID: pid})
	case "cgroup":
		t, err = h.Resolve(ctx, host.Selector{CgroupPath: f.Subject.ID})
	}
	if errors.Is(err, host.ErrNoSuchProcess) || errors.Is(err, host.ErrNoSuchCgroup) || err == nil &&
		t.Kind == host.KindHost {
		return 0, nil // it has ended, or is the whole host
	}
	if err != nil {
		return 0, err
	}
	found, err := (&find.Look{}).JVMs(ctx, h, t)
	if err != nil || len(found.List) == 0 {
		return 0, err
	}
	return found.List[0].VM.PID, nil
}
