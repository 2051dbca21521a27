// Package asprof collects profiles of a JVM: what its threads run on, wait for, allocate and contend for, sampled by
// async-profiler for the window of the recording.
package asprof

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/find"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/jvm/asprof"
	"github.com/perfdoctor/perfdoctor/internal/jvm/asprof/library"
	"github.com/perfdoctor/perfdoctor/internal/jvm/jfr"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// Options are what the user asks for. The zero value profiles with all defaults.
type Options struct {
	Off      bool           // leave a JVM alone
	Probe    bool           // only find out whether it could be profiled, and load nothing
	Events   []stacks.Event // none for all
	Interval time.Duration  // between CPU samples, 0 for the default; the wall clock is sampled a twentieth as often
	Library  string         // path of a libasyncProfiler.so to use; "" for the bundled one
}

// Collectors lists this package's collectors.
func Collectors(look *find.Look, o Options) []collect.Collector {
	return []collect.Collector{{
		Name: "jvm-profile",
		Doc:  "Profiles of one JVM by async-profiler: CPU, wall clock, allocations and locks.",
		Overhead: "0.5 to 2 % of the throughput of a JVM that keeps all CPUs busy; once 0.2 to 1 s of one CPU " +
			"to load " +
			"the library into it",
		Provides: provided(),
		Pace:     collect.AtEnd,
		Grace:    grace,
		Open:     func(ctx context.Context, env collect.Env) (collect.Source, error) { return open(ctx, env, look, o) },
	}}
}

// DefaultInterval is the default of Options.Interval.
const DefaultInterval = asprof.DefaultCPU

// Events lists what Options.Events may hold.
func Events() []stacks.Event { return asprof.DefaultEvents() }

// grace is how long the end of a profile may take: stopping it takes 30 ms in a JVM that answers, and reading 100 MB
// two seconds. A JVM that is stopped or throttled to a standstill is then given up; its profiler stops by itself. A
// run that must end in time allows less.
const grace = 3500 * time.Millisecond

// slack is how much longer than the window the profiler would run by itself: at least as much as the end of the
// window may be late.
const slack = 5 * time.Second

// measured is an event with the metric of its profile.
type measured struct {
	event  stacks.Event
	metric *metric.Gauge
}

var events = []measured{
	{stacks.CPU, metric.CPUProfileSamples},
	{stacks.Wall, metric.WallProfileSamples},
	{stacks.Alloc, metric.AllocProfileSamples},
	{stacks.Lock, metric.LockProfileSamples},
}

func provided() []metric.Metric {
	out := []metric.Metric{metric.JVMSwappedLibrary}
	for _, e := range events {
		out = append(out, e.metric)
	}
	return out
}

// missing returns a source that says why there is no profile, if that is not a failure: there is no JVM to profile,
// or the user wants none.
func missing(remedy, reason string, args ...any) (collect.Source, error) {
	return collect.SourceFunc(func(_ context.Context, a *recording.Appender) error {
		a.Missing(metric.JVMSwappedLibrary, recording.StatusUnsupported, fmt.Sprintf(reason, args...), remedy)
		for _, e := range events {
			a.Missing(e.metric, recording.StatusUnsupported, fmt.Sprintf(reason, args...), remedy)
		}
		return nil
	}), nil
}

func open(ctx context.Context, env collect.Env, look *find.Look, o Options) (collect.Source, error) {
	if o.Off {
		return missing("run it without --no-jvm", "--no-jvm leaves a JVM alone: no profile is taken of it")
	}
	if env.Target.Kind == host.KindHost {
		sweep(ctx, env, look, o)
		return missing("name the JVM with --pid, --comm, --cgroup or --container",
			"a profile is taken of one JVM, and the whole host was diagnosed")
	}
	found, err := look.JVMs(ctx, env.Host, env.Target)
	switch {
	case err != nil:
		return nil, unavailable(err)
	case len(found.List) == 0:
		return missing("", "no process of the target is a JVM")
	case len(found.List) > 1 && !isNamed(env.Target, found.List[0].VM):
		sweep(ctx, env, look, o)
		return missing("name one with --pid", "the target has %d JVMs, and a profile is taken of one",
			len(found.List)+found.More)
	}
	return begin(ctx, env, o, found.List[0].VM)
}

// sweep removes what a killed run left in JVMs that this run does not profile. The run that profiles such a JVM
// reports what cannot be removed. A profiler that still runs there ends by itself, and its recording with it.
func sweep(ctx context.Context, env collect.Env, look *find.Look, o Options) {
	found, err := look.JVMs(ctx, env.Host, env.Target)
	if err != nil || o.Probe {
		return
	}
	for _, f := range found.List {
		if ctx.Err() != nil {
			return
		}
		_, _ = f.VM.CleanLeftovers() // see above
	}
}

// isNamed reports whether the user named this very process, and not a shell or a group above it.
func isNamed(t host.Target, vm *jvm.VM) bool {
	return t.Kind == host.KindProcess && t.PIDs[0] == vm.PID
}

func begin(ctx context.Context, env collect.Env, o Options, vm *jvm.VM) (collect.Source, error) {
	if err := asprof.Possible(vm); err != nil { // this is the reason even if there is no library to load
		return nil, unavailable(err)
	}
	lib, err := readLibrary(o.Library)
	if err != nil {
		return nil, unavailable(err)
	}
	settings := settings(o, env.Duration, lib)
	if o.Probe {
		return probe(settings)
	}
	began := time.Now()
	session, err := asprof.Start(ctx, vm, settings)
	var swapped *jvm.SwappedError
	if errors.As(err, &swapped) {
		return collect.SourceFunc(func(_ context.Context, a *recording.Appender) error {
			tellSwapped(a, vm, swapped)
			return nil
		}), nil
	}
	if err != nil {
		return &failed{vm, unavailable(err)}, nil
	}
	return &source{vm: vm, session: session, asked: settings.Events, began: began, parse: jfr.Read}, nil
}

// failed is a profiler that could not be started. A JVM that was stopped does in the window what an earlier run had
// asked for, and so creates files that were removed: they are removed again when the window ends.
type failed struct {
	vm  *jvm.VM
	err error
}

func (f *failed) Sample(context.Context, *recording.Appender) error { return f.err }

func (f *failed) Close() error {
	_, err := f.vm.CleanLeftovers()
	return err
}

// wallPerCPU keeps the ratio of the two default intervals when a user sets one of them.
const wallPerCPU = int(asprof.DefaultWall / asprof.DefaultCPU)

// probe says what would be measured. It loads nothing: the first load of the library stays in the JVM for as long as
// it lives.
func probe(o asprof.Options) (collect.Source, error) {
	return collect.SourceFunc(func(_ context.Context, a *recording.Appender) error {
		a.None(metric.JVMSwappedLibrary)
		for _, e := range events {
			if slices.Contains(o.Events, e.event) {
				a.None(e.metric)
			}
		}
		return nil
	}), nil
}

func settings(o Options, window time.Duration, lib []byte) asprof.Options {
	s := asprof.Options{
		Library: lib, Events: o.Events,
		CPU: asprof.DefaultCPU, Wall: asprof.DefaultWall, Alloc: asprof.DefaultAlloc, Lock: asprof.DefaultLock,
		Timeout: window + slack,
	}
	if len(s.Events) == 0 {
		s.Events = asprof.DefaultEvents()
	}
	if o.Interval > 0 {
		s.CPU, s.Wall = o.Interval, o.Interval*time.Duration(wallPerCPU)
	}
	return s
}

// maxLibrary bounds what is read for --async-profiler: with debug symbols the library has 10 MB.
const maxLibrary = 64 << 20

// readLibrary returns the library that is to be loaded into the target.
func readLibrary(path string) ([]byte, error) {
	if path == "" {
		content, err := library.Bundled()
		if err != nil {
			return nil, collect.Unavailable(recording.StatusUnsupported,
				"build with `make build` where Maven and a network are, or give --async-profiler PATH, "+
					"a libasyncProfiler.so from https://github.com/async-profiler/async-profiler", "%v", err)
		}
		return content, nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--async-profiler: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxLibrary:
		return nil, fmt.Errorf("--async-profiler %s: not a file of at most %d MiB", path, maxLibrary>>20)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--async-profiler: %w", err)
	}
	return content, nil
}

// unavailable adds to an error the status, the reason and the remedy that a report shows.
func unavailable(err error) error {
	var r *jvm.Refusal
	switch {
	case errors.Is(err, asprof.ErrBusy):
		return collect.Unavailable(recording.StatusFailed, "run it again when the other has ended", "%v", err)
	case !errors.As(err, &r):
		return err
	}
	status := recording.StatusFailed
	switch r.Cause {
	case jvm.Denied:
		status = recording.StatusDenied
	case jvm.UnsupportedVM, jvm.AttachDisabled, jvm.LoadDisabled, jvm.NoPlace, jvm.NoSignal:
		status = recording.StatusUnsupported
	case jvm.NoAnswer:
		status = recording.StatusTimeout
	}
	return collect.Unavailable(status, r.Remedy, "%s", r.Reason)
}

// source is a running profiler.
type source struct {
	vm      *jvm.VM
	session *asprof.Session
	asked   []stacks.Event
	began   time.Time
	parse   func(io.ReaderAt, int64, jfr.Options) ([]*stacks.Profile, error)
}

// Sample ends the profile and appends it.
func (s *source) Sample(ctx context.Context, a *recording.Appender) error {
	f, err := s.session.Stop(ctx)
	var swapped *jvm.SwappedError
	if errors.As(err, &swapped) {
		tellSwapped(a, s.vm, swapped)
		return nil
	}
	if err != nil {
		return unavailable(err)
	}
	defer f.Close()
	s.tellVerified(a)
	a.Lost(int(s.session.Lost.Skipped), "samples that async-profiler could not take, of all events together")
	return s.read(f, a)
}

// Close stops a profiler that was not sampled.
func (s *source) Close() error { return s.session.Close() }
