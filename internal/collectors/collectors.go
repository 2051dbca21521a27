// Package collectors lists every collector.
package collectors

import (
	"context"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/asprof"
	"github.com/perfdoctor/perfdoctor/internal/collectors/cgroup"
	"github.com/perfdoctor/perfdoctor/internal/collectors/dotnet"
	"github.com/perfdoctor/perfdoctor/internal/collectors/ebpf"
	"github.com/perfdoctor/perfdoctor/internal/collectors/find"
	"github.com/perfdoctor/perfdoctor/internal/collectors/goroutines"
	"github.com/perfdoctor/perfdoctor/internal/collectors/jvm"
	"github.com/perfdoctor/perfdoctor/internal/collectors/network"
	"github.com/perfdoctor/perfdoctor/internal/collectors/perf"
	"github.com/perfdoctor/perfdoctor/internal/collectors/postgres"
	"github.com/perfdoctor/perfdoctor/internal/collectors/proc"
	"github.com/perfdoctor/perfdoctor/internal/collectors/process"
	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts"
	"github.com/perfdoctor/perfdoctor/internal/collectors/sockets"
	"github.com/perfdoctor/perfdoctor/internal/collectors/threadstates"
	"github.com/perfdoctor/perfdoctor/internal/collectors/waitstacks"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// Options are what a user may choose of how collectors work. The zero value is what a diagnosis does by itself.
type Options struct {
	JVM asprof.Options // for the profiles of a JVM
}

// All lists the collectors in the order in which they are opened and reported.
func All(o Options) []collect.Collector {
	look, programs := &find.Look{}, &ebpf.Loader{}
	options := ebpf.Options{LeaveJVMs: o.JVM.Off, DotNet: &dotnet.Names{}}
	if o.JVM.Off {
		options.DotNet = nil
	}
	return slices.Concat(
		proc.Collectors(), process.Collectors(), threadstates.Collectors(), scripts.Collectors(),
		goroutines.Collectors(),
		postgres.Collectors(),
		cgroup.Collectors(programs),
		network.Collectors(), sockets.Collectors(programs),
		perf.Collectors(), programCollectors(programs, options),
		jvmCollectors(look, o.JVM.Off), asprof.Collectors(look, o.JVM),
	)
}

// programCollectors lists the collectors with programs in the kernel. After the one whose stacks of waits follow
// frame pointers comes the one that needs neither such a program nor frame pointers.
func programCollectors(programs *ebpf.Loader, o ebpf.Options) []collect.Collector {
	list := ebpf.Collectors(programs, o)
	i := slices.IndexFunc(list, func(c collect.Collector) bool {
		return slices.Contains(c.Provides, metric.Metric(metric.OffCPUProfileSamples))
	})
	return slices.Insert(list, i+1, waitstacks.Collectors(o.DotNet)...)
}

// jvmCollectors lists the collectors that read a JVM's counters from outside, and those that attach to it unless it
// is to be left alone.
func jvmCollectors(look *find.Look, off bool) []collect.Collector {
	list := jvm.Collectors(look)
	for i := range list {
		if off && list[i].Pace == collect.AtEnd { // these ask the JVM after the window
			list[i].Open = func(context.Context, collect.Env) (collect.Source, error) {
				return nil, collect.Unavailable(recording.StatusUnsupported, "run it without --no-jvm",
					"--no-jvm leaves a JVM alone: it is not asked")
			}
		}
	}
	return list
}

// Standing lists the collectors that are cheap enough to observe a host all the time. Collectors that are read only
// at the end of a window would have to be opened for each window: they are left out, unless deep asks for those with
// programs.
func Standing(deep bool) []collect.Collector {
	programs := &ebpf.Loader{}
	list := slices.Concat(
		proc.Collectors(), process.Collectors(), cgroup.Collectors(programs), network.Collectors(),
		sockets.Collectors(programs),
		perf.Collectors(), programCollectors(programs, ebpf.Options{LeaveJVMs: true}),
	)
	for i := range list {
		list[i].Deep = list[i].Pace == collect.AtEnd
	}
	return slices.DeleteFunc(list, func(c collect.Collector) bool { return c.Deep && !deep })
}

// StandingTarget lists the collectors that are cheap enough to observe many targets at once beside the host; with
// deep, also one that makes each switch between control groups cost more.
func StandingTarget(deep bool) []collect.Collector {
	facts := slices.DeleteFunc(proc.Collectors(), func(c collect.Collector) bool { return c.Pace != collect.Once })
	own := slices.DeleteFunc(process.Collectors(), func(c collect.Collector) bool {
		return c.Pace == collect.FirstAndLast
	})
	list := slices.Concat(facts, own, cgroup.Collectors(&ebpf.Loader{}), []collect.Collector{jvm.Standing()})
	if deep {
		group := perf.OfGroup()
		group.Deep = true
		list = append(list, group)
	}
	return list
}
