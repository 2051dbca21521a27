// Package jvm collects what Java virtual machines know of themselves: counters in shared memory, and once, when the window is
// over, what they answer when asked.
package jvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

const (
	// maxVMs bounds the JVMs that are looked into: a target is mostly one, and a build a few.
	maxVMs = 4
	// maxInspected bounds the processes that may be one: each costs 1 ms.
	maxInspected = 50
	// answerTime is how long the JVMs may take to answer, after the window. One that has half a CPU or a thousand threads takes
	// a tenth of it.
	answerTime = 3 * time.Second
)

// Collectors lists this package's collectors.
func Collectors() []collect.Collector {
	return []collect.Collector{{
		Name: "jvm",
		Doc:  "Counters of HotSpot JVMs among the target's processes: collections, safepoints, compilation, threads, heap.",
		Overhead: "0.1 ms a sample and JVM, without the JVM doing anything for it; 1 ms at the start for each process of the target " +
			"that may be one",
		Provides: append([]metric.Metric{metric.JVMInfo}, counted()...),
		Open:     openCounters,
	}, {
		Name: "jvm-answers",
		Doc: "What HotSpot JVMs answer after the window: their view of CPUs and limits, flags, code cache, agents, and one thread " +
			"dump.",
		Overhead: "10 to 100 ms, after the window; the dump stops the JVM's threads for 1 to 10 ms (jvm_thread_dump_seconds)",
		Provides: answered(),
		Pace:     collect.AtEnd,
		Grace:    answerTime,
		Open:     openAnswers,
	}, typeChecks()}
}

// machine is one JVM of the target.
type machine struct {
	*jvm.VM
	pid, comm string // labels

	counters *jvm.PerfData // nil where there are none, or not yet
}

// find looks for the target's JVMs, those with the most CPU time first. Whatever is no JVM is passed over.
func find(ctx context.Context, env collect.Env) (list []*machine, more int, err error) {
	if env.Target.Kind == host.KindHost {
		return nil, 0, collect.Unavailable(recording.StatusUnsupported, "name the JVM: --pid, --comm or --container",
			"JVMs are looked into only as the target of the diagnosis")
	}
	members, err := env.Host.Members(ctx, env.Target)
	if err != nil {
		return nil, 0, err
	}
	slices.SortStableFunc(members, func(x, y host.Process) int { return cmp.Compare(y.UTime+y.STime, x.UTime+x.STime) })
	var denied error
	for _, p := range members[:min(len(members), maxInspected)] {
		vm, err := jvm.Inspect(p.PID)
		switch {
		case refused(err, jvm.Denied):
			denied = err
		case err == nil:
			list = append(list, &machine{VM: vm, pid: strconv.Itoa(p.PID), comm: p.Comm})
		}
	}
	if len(list) == 0 && denied != nil {
		return nil, 0, unavailable(denied)
	}
	more = max(0, len(list)-maxVMs)
	return list[:len(list)-more], more, nil
}

func refused(err error, cause jvm.Cause) bool {
	var r *jvm.Refusal
	return errors.As(err, &r) && r.Cause == cause
}

// unavailable says in the collection's words why a JVM cannot be looked into.
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

// missing says of metrics that they could not be measured in a JVM.
func missing(a *recording.Appender, list []metric.Metric, err error) {
	status, reason, remedy := why(err)
	for _, m := range list {
		a.Missing(m, status, reason, remedy)
	}
}

// describe appends which JVMs there are; that there is none is a fact, too.
func describe(a *recording.Appender, list []*machine, more int) {
	a.None(metric.JVMInfo)
	a.Lost(more, fmt.Sprintf("JVMs of the target beyond the %d with the most CPU time", maxVMs))
	for _, m := range list {
		a.Info(metric.JVMInfo, m.pid, m.comm, string(m.Kind))
	}
}
