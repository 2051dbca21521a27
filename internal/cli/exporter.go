package cli

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors"
	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
	"github.com/perfdoctor/perfdoctor/internal/daemon/front"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// minWindow is the shortest window: below it the checks lower their confidence.
const minWindow = 5 * time.Second

// exporting holds the flags of exporter.
type exporting struct {
	*app
	budget           float64
	web              exporter.WebOptions
	window, interval time.Duration
	deep             bool
	targetCPU        float64
	targets          int
	findings, series int
	containerLogs    string
	runtimeSocket    string
	flight           flightFlags
	push             pushFlags
}

func (a *app) exporterCommand() *cobra.Command {
	x := &exporting{app: a}
	cmd := &cobra.Command{
		Use:   "exporter",
		Short: "Observe this host all the time, for Prometheus",
		Long: `Runs the collectors and the checks of a diagnosis over one window after another,
and serves the results at /metrics until it is stopped. A scrape reads the last
window; it never runs a collector.

/-/healthy and /-/ready answer without a password, even if --web.config.file
asks for one. Recordings of the flight recorder need a password, unless the
exporter listens on an address of this host only.`,
		Example: `  perfdoctor exporter
  perfdoctor exporter --web.listen-address 127.0.0.1:9843 --web.config.file web.yml`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(x.validate(), x.flight.validate(cmd)); err != nil {
				return err
			}
			return x.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&x.web.ListenAddresses, "web.listen-address", nil,
		"listen on this `ADDRESS`; give it for each (127.0.0.1:9843, or :9843 when --web.config.file has TLS and "+
			"passwords)")
	f.BoolVar(&x.web.SystemdSocket, "web.systemd-socket", false,
		"listen on the sockets that systemd hands over instead")
	f.StringVar(&x.web.ConfigFile, "web.config.file", "", "take TLS and passwords from `FILE`, in the format of "+
		"exporter-toolkit")
	timeVar(f, &x.window, "window", 15*time.Second, "length of the window that is looked at: a `time`")
	timeVar(f, &x.interval, "interval", 5*time.Second, "`time` between samples")
	f.BoolVar(&x.deep, "deep", false,
		"allow probes that cost the host more: waits for a CPU and instructions per cycle of each control group, a "+
			"profile of the CPUs")
	f.Float64Var(&x.targetCPU, "target.cpu", 0.1, "observe a control group, container or pod that uses more than `N` "+
		"CPUs by itself, too")
	f.IntVar(&x.targets, "target.max", 20, "at most `N` of them; 0 for the host alone")
	f.IntVar(&x.findings, "finding.max", 100, "export at most the `N` gravest findings")
	f.IntVar(&x.series, "series.max", 50,
		"export at most the `N` largest destinations, programs, groups or devices in each metric; the rest are "+
			"\"other\"")
	f.StringVar(&x.containerLogs, "kubelet.logs", "/var/log/containers",
		"take the names of pods from the kubelet's links in `DIR`; empty for none")
	f.StringVar(&x.runtimeSocket, "cri.socket", "",
		"ask the container runtime at `SOCKET` for the names of pods first, such as /run/containerd/containerd.sock")
	addBudgetFlag(cmd, &x.budget)
	x.flight.add(cmd)
	x.push.add(cmd)
	return cmd
}

func (x *exporting) options(log *slog.Logger) exporter.Options {
	return exporter.Options{
		Host: host.Local(), Version: x.Version, Log: log, Checks: checks.Suite(), Causes: checks.Causes(),
		Collectors:       func() []collect.Collector { return collectors.Standing(x.deep) },
		TargetCollectors: func() []collect.Collector { return collectors.StandingTarget(x.deep) },
		Left:             x.left(),
		Deep:             x.deep, Window: x.window, Interval: x.interval,
		TargetCPU: x.targetCPU, MaxTargets: x.targets, MaxFindings: x.findings, MaxSeries: x.series,
		PodNames: exporter.PodNames{Logs: x.containerLogs},
		Describe: describeTarget,
	}
}

// left returns the collectors of a diagnosis that the exporter does not run, with the reason, so that their checks
// can state it.
func (x *exporting) left() []recording.CollectorStatus {
	run := map[string]bool{}
	for _, c := range collectors.Standing(x.deep) {
		run[c.Name] = true
	}
	var out []recording.CollectorStatus
	for _, c := range collectors.All(collectors.Options{}) {
		if run[c.Name] {
			continue
		}
		st := recording.CollectorStatus{
			Name: c.Name, Status: recording.StatusUnsupported,
			Reason: "the exporter does not run it: it would cost the host too much all the time",
			Remedy: "run perfdoctor diagnose when it matters",
		}
		for _, m := range c.Provides {
			st.Metrics = append(st.Metrics, m.Describe().Name)
		}
		out = append(out, st)
	}
	return out
}

func (x *exporting) run(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(x.Streams.Err, nil))
	if err := host.Local().EnterHostCgroups(); err != nil {
		log.Warn("limits and CPU time of other control groups cannot be seen", "why", err)
	}
	o := x.options(log)
	var err error
	if o.Budget, err = budgetOf(o.Host, x.budget); err != nil {
		return err
	}
	if x.runtimeSocket != "" {
		runtime, err := exporter.DialRuntime(x.runtimeSocket)
		if err != nil {
			return command.UsageErrorf("--cri.socket %v", err)
		}
		defer runtime.Close()
		o.PodNames.Runtime = runtime
	}
	told, err := x.listen(&o)
	if err != nil {
		return err
	}
	for _, p := range told.pages {
		x.web.Private = append(x.web.Private, p.Path)
	}
	e := exporter.New(o)
	handler := e.Handler(append(told.pages, front.Pages(front.Options{
		Host: hostname(), Version: x.Version, Window: x.window, Checks: o.Checks, Now: e.Now, Incidents: told.files,
	})...)...)
	e.Registry().MustRegister(told.metrics...)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.Run(ctx) })
	g.Go(func() error { return exporter.Serve(ctx, x.web, handler, log) })
	for _, run := range told.run {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

func (x *exporting) validate() error {
	if err := validateBudget(x.budget); err != nil {
		return err
	}
	if err := x.web.Validate(); err != nil {
		return command.UsageErrorf("--web.config.file %v", err)
	}
	switch {
	case !(x.targetCPU > 0):
		return command.UsageErrorf("--target.cpu %v: give a number of CPUs above 0, such as 0.1", x.targetCPU)
	case x.targets < 0 || x.findings < 1 || x.series < 1:
		return command.UsageErrorf("--target.max must be 0 or more, --finding.max and --series.max 1 or more")
	}
	return x.validateTimes()
}

func (x *exporting) validateTimes() error {
	switch {
	case x.window < minWindow || x.window > maxDuration:
		return command.UsageErrorf("--window %v: give a time between %v and %v", x.window, minWindow, maxDuration)
	case x.interval < minInterval:
		return command.UsageErrorf("--interval %v is too short: give at least %v", x.interval, minInterval)
	case x.interval > x.window:
		return command.UsageErrorf("--interval %v is longer than --window %v: a rate needs two samples", x.interval,
			x.window)
	}
	return nil
}
