package process

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const (
	// maxHostProcesses bounds the processes of the host with series: a large node runs a few thousand, most of them
	// idle.
	maxHostProcesses = 500
	// maxFresh is how many more there may be that started in the window.
	maxFresh = 200
	// manyFiles is the number of open files from which on a process of the host gets a series; nearly all have fewer.
	manyFiles = 100
	// fullShare is the share of its limit from which on a process with few files gets a series too: a process at a
	// limit of 64 fails like one at a million.
	fullShare = 0.5
)

func hostCollector() collect.Collector {
	return collect.Collector{
		Name: "host-processes",
		Doc: "CPU time, memory, I/O, waits for a CPU, age and parents of the host's other processes; for the whole " +
			"host as target also open files near their limit.",
		Overhead: "5 µs a process, and 10 µs more for its I/O and for each thread of one that ever ran, at the first " +
			"and the last sample; with the host as target 20 µs a process",
		Provides: []metric.Metric{
			metric.ProcessCPU, metric.ProcessChildrenCPU, metric.ProcessInfo, metric.HostProcessRSS,
			metric.HostProcessIO,
			metric.HostProcessDelay, metric.ProcessStart, metric.ProcessFDs, metric.ProcessFDLimit,
		},
		Pace: collect.FirstAndLast,
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			s := &hostSource{env: env, skip: map[int]bool{}, who: newWhoReader(env.Host)}
			if env.Target.Kind == host.KindHost {
				s.files = newFileCounter(env.Host)
			}
			return collect.SourceFunc(s.sample), nil
		},
	}
}

// hostSource is sampled twice. first and kept come from the first sample.
type hostSource struct {
	env   collect.Env
	who   *whoReader
	files *fileCounter // nil with a target: its own files are counted elsewhere
	skip  map[int]bool // processes of the target
	first map[host.TaskID]uint64
	kept  map[host.TaskID]bool
}

func (s *hostSource) sample(ctx context.Context, a *recording.Appender) error {
	list, err := s.env.Host.Members(ctx, host.Target{Kind: host.KindHost})
	if err != nil {
		return fmt.Errorf("list the host's processes: %w", err)
	}
	if s.env.Target.Kind != host.KindHost {
		if list, err = s.withoutTarget(ctx, list); err != nil {
			return err
		}
	}
	a.None(metric.ProcessCPU, metric.ProcessChildrenCPU, metric.ProcessInfo)
	owned := s.worthOwner(list)
	if err := s.who.append(ctx, a, s.appendCPU(a, list), owned); err != nil {
		return err
	}
	if s.files != nil {
		return s.appendFiles(ctx, a, list)
	}
	return nil
}

// withoutTarget drops the processes that are or were in the target: their counters have series already.
func (s *hostSource) withoutTarget(ctx context.Context, list []host.Process) ([]host.Process, error) {
	own, err := members(ctx, s.env)
	if err != nil {
		return nil, err
	}
	for _, p := range own {
		s.skip[p.PID] = true
	}
	return slices.DeleteFunc(list, func(p host.Process) bool { return s.skip[p.PID] }), nil
}

// appendCPU appends and returns at most maxHostProcesses processes, those with the most CPU time. At the last sample
// the processes of the first one come before all others, because they have an increase; then come some that started
// since, which have used all of their CPU time in the window. Kernel threads that never ran are left out: there are a
// dozen for each CPU.
func (s *hostSource) appendCPU(a *recording.Appender, list []host.Process) []host.Process {
	list = slices.DeleteFunc(slices.Clone(list), func(p host.Process) bool {
		return p.Flags&host.FlagKernelThread != 0 && cpuTicks(p.Stat) == 0
	})
	fresh := func(p host.Process) bool { _, known := s.first[p.Task()]; return s.first != nil && !known }
	slices.SortStableFunc(list, func(x, y host.Process) int {
		if kx, ky := s.kept[x.Task()], s.kept[y.Task()]; kx != ky {
			return keptFirst(kx)
		}
		if fx, fy := fresh(x), fresh(y); fx != fy {
			return keptFirst(fx)
		}
		return moreCPUFirst(x.Stat, y.Stat)
	})
	n := min(len(list), maxHostProcesses)
	for n < min(len(list), maxHostProcesses+maxFresh) && fresh(list[n]) {
		n++
	}
	for _, p := range list[:n] {
		appendProcessCPU(a, p.Stat, memberHost)
	}
	if s.first != nil {
		a.Lost(s.ranMeanwhile(list[n:]), fmt.Sprintf("processes of the host that used CPU time, beyond %d",
			maxHostProcesses))
		return list[:n]
	}
	s.first, s.kept = map[host.TaskID]uint64{}, map[host.TaskID]bool{}
	for i, p := range list {
		s.first[p.Task()] = cpuTicks(p.Stat)
		s.kept[p.Task()] = i < n
	}
	return list[:n]
}

// ranMeanwhile counts the processes that used CPU since the first sample; an idle one without a series is no loss.
func (s *hostSource) ranMeanwhile(list []host.Process) (n int) {
	for _, p := range list {
		if cpuTicks(p.Stat) > s.first[p.Task()] {
			n++
		}
	}
	return n
}

// maxOwned is how many processes have their owner looked up because of their CPU time, and as many because of their
// memory: 30 µs each.
const maxOwned = 30

// worthOwner chooses the processes that a report may name: those that used the most CPU time since the first sample,
// and those with the most memory. At the first sample they are not known yet.
func (s *hostSource) worthOwner(list []host.Process) map[host.TaskID]bool {
	out := map[host.TaskID]bool{}
	if s.first == nil {
		return out
	}
	list = slices.Clone(list)
	used := func(p host.Process) uint64 { return cpuTicks(p.Stat) - min(s.first[p.Task()], cpuTicks(p.Stat)) }
	slices.SortStableFunc(list, func(x, y host.Process) int { return cmp.Compare(used(y), used(x)) })
	for _, p := range list[:min(len(list), maxOwned)] {
		out[p.Task()] = used(p) > 0
	}
	slices.SortStableFunc(list, func(x, y host.Process) int { return cmp.Compare(y.RSS, x.RSS) })
	for _, p := range list[:min(len(list), maxOwned)] {
		out[p.Task()] = out[p.Task()] || p.RSS > 0
	}
	return out
}

func (s *hostSource) appendFiles(ctx context.Context, a *recording.Appender, list []host.Process) error {
	s.files.begin()
	for _, p := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.Flags&host.FlagKernelThread != 0 {
			continue
		}
		n, counted := s.files.count(ctx, p.PID)
		if !counted || n == 0 {
			continue
		}
		limit, limited := s.files.limit(p.PID)
		if n < manyFiles && (!limited || float64(n) < fullShare*limit) {
			continue
		}
		a.Gauge(metric.ProcessFDs, float64(n), strconv.Itoa(p.PID), p.Comm)
		if limited {
			a.Gauge(metric.ProcessFDLimit, limit, strconv.Itoa(p.PID), p.Comm)
		}
	}
	if s.files.measured {
		a.None(metric.ProcessFDs, metric.ProcessFDLimit)
	}
	s.files.report(a)
	return nil
}
