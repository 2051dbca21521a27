// Package cgroup collects limits, throttling, use and pressure of the control groups above the target, v1 and v2.
//
// A limit of any ancestor binds, so every level is read, from the target's own group (level 0) up to the root. In v1
// each controller has a tree of its own, whose paths and depths may differ: levels count within that tree. A
// controller is in one tree only, so on a host with both versions each controller is read where it is.
//
// When the whole host is the target, the groups with a CPU quota are read instead, wherever they are, with an
// empty level.
package cgroup

import (
	"context"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/ebpf"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// Collectors lists this package's collector. It loads its program with the loader of the others.
func Collectors(l *ebpf.Loader) []collect.Collector {
	return []collect.Collector{{
		Name: "cgroup",
		Doc: "Limits, throttling, use and pressure of the target's control groups at every level; of the host, the " +
			"groups " +
			"with a CPU quota.",
		Overhead: "0.6 ms a sample four levels deep; for the whole host 20 µs a group with a quota, where BPF " +
			"programs may not run " +
			"60 µs, and 20 µs a group every 10 s to find those",
		Provides: append(ebpf.Costs(), provides()...),
		Open: func(ctx context.Context, env collect.Env) (collect.Source, error) {
			return open(ctx, l, env)
		},
	}}
}

// provides lists the metrics that are read from files, and the one that says where the files are.
func provides() []metric.Metric { return append(measured(), metric.CgroupDir) }

func measured() []metric.Metric { return append(cpuMetrics(), otherMetrics()...) }

// cpuMetrics are read for the groups of the host, too.
func cpuMetrics() []metric.Metric {
	return append(bandwidthMetrics(), metric.CgroupShares, metric.CgroupCPU)
}

func otherMetrics() []metric.Metric {
	return []metric.Metric{
		metric.CgroupCpuset, metric.CgroupMemory, metric.CgroupWorkingSet, metric.CgroupMemoryLimit,
		metric.CgroupOOMKills,
		metric.CgroupMemoryMax, metric.CgroupPIDs, metric.CgroupPIDsLimit, metric.CgroupPressure,
	}
}

func open(ctx context.Context, l *ebpf.Loader, env collect.Env) (collect.Source, error) {
	if env.Target.Kind == host.KindHost {
		defer l.Keep()() // looking for the groups takes as long as loading the other programs
		s, err := openHost(ctx, env.Host)
		if err != nil {
			return nil, err
		}
		s.program = ebpf.Load(l, func(ctx context.Context) (*ebpf.Bandwidth, error) {
			return ebpf.OpenBandwidth(ctx, l, env.Host, s.cpu.dir)
		})
		return s, nil
	}
	if len(env.Target.Cgroups) == 0 {
		return nil, collect.Unavailable(recording.StatusUnsupported,
			"mount the cgroup file systems where perfdoctor runs",
			"no control group of the target can be seen%s", whyHidden(env.Target.Notes))
	}
	return &source{levels: env.Target.Cgroups, reader: newReader()}, nil
}

// whyHidden quotes the note about groups that resolving the target left.
func whyHidden(notes []string) string {
	for _, n := range notes {
		if strings.Contains(n, "cgroup") {
			return ": " + n
		}
	}
	return ""
}

// source reads the groups of a target.
type source struct {
	levels []host.CgroupLevel
	reader *reader
}

// Close has nothing to do: the files are opened, read and closed in each sample.
func (s *source) Close() error { return nil }

// Sample appends one sample.
func (s *source) Sample(ctx context.Context, a *recording.Appender) error {
	r := s.reader
	r.begin(a)
	for _, c := range controllers() {
		groups, version := groupsOf(s.levels, c)
		if len(groups) == 0 {
			r.noTree(c)
			continue
		}
		for _, g := range groups {
			if err := ctx.Err(); err != nil {
				return err
			}
			r.place(g, c.name, version)
			if version == 1 {
				c.v1(r, g)
			} else {
				c.v2(r, g)
			}
		}
	}
	r.report(measured())
	return nil
}

// group is one control group in the tree of one controller.
type group struct {
	path, level string // labels
	dir         string
}

// controller says how to read the files of one controller.
type controller struct {
	name    string
	joined  string // the v1 controller it is often mounted with, and then listed under
	v1, v2  func(*reader, group)
	metrics []metric.Metric
}

func controllers() []controller {
	return []controller{
		{
			name: "cpu", v1: (*reader).cpuV1, v2: (*reader).cpuV2,
			metrics: append(bandwidthMetrics(), metric.CgroupShares),
		},
		{
			name: "cpuacct", joined: "cpu", v1: (*reader).usageV1, v2: (*reader).usageV2,
			metrics: []metric.Metric{metric.CgroupCPU},
		},
		{name: "cpuset", v1: (*reader).cpusetV1, v2: (*reader).cpusetV2, metrics: []metric.Metric{metric.CgroupCpuset}},
		{name: "memory", v1: (*reader).memoryV1, v2: (*reader).memoryV2, metrics: []metric.Metric{
			metric.CgroupMemory, metric.CgroupWorkingSet, metric.CgroupMemoryLimit, metric.CgroupOOMKills,
			metric.CgroupMemoryMax,
		}},
		{name: "pids", v1: (*reader).pids, v2: (*reader).pids, metrics: []metric.Metric{
			metric.CgroupPIDs,
			metric.CgroupPIDsLimit,
		}},
		// v1 has no pressure per group. Where v2 is mounted beside it, v2 has it, whatever controllers are in v2.
		{name: "pressure", v2: (*reader).pressure, metrics: []metric.Metric{metric.CgroupPressure}},
	}
}

// groupsOf returns the levels in the tree that the controller is in. A controller in a v1 tree is not in v2
// (Documentation/admin-guide/cgroup-v2.rst, Mounting).
func groupsOf(levels []host.CgroupLevel, c controller) (groups []group, version int) {
	for _, name := range []string{c.name, c.joined, ""} {
		for _, l := range levels {
			if l.Controller == name && (l.Version == 2) == (name == "") {
				groups = append(groups, group{path: l.Path, level: strconv.Itoa(len(groups)), dir: l.Dir})
				version = l.Version
			}
		}
		if len(groups) > 0 {
			break
		}
	}
	return groups, version
}
