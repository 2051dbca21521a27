// Package jvm collects what Java virtual machines know about themselves: counters in shared memory and, once after
// the window, their answers to questions.
package jvm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/find"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// answerTime is how long the JVMs may take to answer after the window, if the run has that much time left. A JVM with
// half a CPU or a thousand threads takes a tenth of it.
const answerTime = 3 * time.Second

// Collectors lists this package's collectors, which share one look for the target's JVMs.
func Collectors(look *find.Look) []collect.Collector {
	return []collect.Collector{{
		Name: "jvm",
		Doc: "Counters of HotSpot JVMs among the target's processes: collections, safepoints, compilation, " +
			"threads, heap.",
		Overhead: "0.1 ms a sample and JVM, and 1 ms a second, without the JVM doing anything for it; 1 ms at the " +
			"start for each " +
			"process of the target " +
			"that may be one",
		Provides: append([]metric.Metric{metric.JVMInfo}, counted()...),
		Open:     opener(look, openCounters),
	}, {
		Name: "jvm-answers",
		Doc: "What HotSpot JVMs answer after the window: their view of CPUs and limits, flags, code cache, agents, " +
			"one thread dump, and what fills the heap where full collections leave it full.",
		Overhead: "10 to 100 ms, after the window; the dump stops the JVM's threads for 1 to 10 ms " +
			"(jvm_thread_dump_seconds), the last question for as long as one of its full collections",
		Provides: answered(),
		Pace:     collect.AtEnd,
		Grace:    answerTime,
		Open:     opener(look, openAnswers),
	}, typeChecks(look)}
}

// opener binds the look to a function that opens a source.
func opener(look *find.Look, open func(context.Context, collect.Env, *find.Look) (collect.Source, error)) func(
	context.Context, collect.Env,
) (collect.Source, error) {
	return func(ctx context.Context, env collect.Env) (collect.Source, error) { return open(ctx, env, look) }
}

// machine is one JVM of the target.
type machine struct {
	*jvm.VM
	pid, comm string // labels

	counters *jvm.PerfData // nil if there are none, or not yet
	began    *fullCount    // nil if that is not known
	causes   *causes       // of the collections, counted in the background; nil if nobody asked for them
}

// machines returns the target's JVMs, and how many more there are.
func machines(ctx context.Context, env collect.Env, look *find.Look) (list []*machine, more int, err error) {
	if env.Target.Kind == host.KindHost {
		return nil, 0, collect.Unavailable(recording.StatusUnsupported, "name the JVM: --pid, --comm or --container",
			"JVMs are looked into only as the target of the diagnosis")
	}
	found, err := look.JVMs(ctx, env.Host, env.Target)
	if err != nil {
		return nil, 0, unavailable(err)
	}
	for _, f := range found.List {
		list = append(list, &machine{VM: f.VM, pid: strconv.Itoa(f.VM.PID), comm: f.Comm})
	}
	return list, found.More, nil
}

// unavailable returns the error for a JVM that cannot be looked into, with its status, reason and remedy.
func unavailable(err error) error {
	status, reason, remedy := why(err)
	return collect.Unavailable(status, remedy, "%s", reason)
}

func why(err error) (status recording.Status, reason, remedy string) {
	var r *jvm.Refusal
	if !errors.As(err, &r) {
		return collect.Classify(err)
	}
	switch r.Cause {
	case jvm.Denied:
		status = recording.StatusDenied
	case jvm.NoAnswer, jvm.Starting:
		status = recording.StatusTimeout
	case jvm.Gone:
		status = recording.StatusFailed
	default:
		status = recording.StatusUnsupported
	}
	return status, r.Reason, r.Remedy
}

// missing records that metrics could not be measured in a JVM.
func missing(a *recording.Appender, list []metric.Metric, err error) {
	status, reason, remedy := why(err)
	for _, m := range list {
		a.Missing(m, status, reason, remedy)
	}
}

// describe appends which JVMs there are, or that there is none.
func describe(a *recording.Appender, list []*machine, more int) {
	a.None(metric.JVMInfo)
	a.Lost(more, fmt.Sprintf("JVMs of the target beyond the %d with the most CPU time", find.MaxVMs))
	for _, m := range list {
		a.Info(metric.JVMInfo, m.pid, m.comm, string(m.Kind))
	}
}
