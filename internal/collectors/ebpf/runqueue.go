package ebpf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// maxGroups bounds the search for the paths of control groups: 20 µs each.
const maxGroups = 5000

func runQueueCollector(l *Loader) collect.Collector {
	return collect.Collector{
		Name: "bpf-run-queue",
		Doc:  "How long the threads of each control group of the host run, wait for a CPU, and are stopped by a quota.",
		Overhead: "measured by the kernel and recorded as bpf_program_seconds_total: about 0.5 µs a context switch " +
			"and a wakeup " +
			"of any thread of the host; at the end 20 µs a control group to find its path",
		Provides: append(Costs(), runQueueMetrics()...),
		Requires: requires(),
		Since:    tracepointsWithTypes(),
		Pace:     collect.AtEnd,
		Deep:     true,
		Open: func(ctx context.Context, env collect.Env) (collect.Source, error) {
			return openRunQueue(ctx, l, env)
		},
	}
}

func runQueueMetrics() []metric.Metric {
	return append(groupMetrics(), metric.RunQueueWaits, metric.RunQueueWaitSeconds)
}

func groupMetrics() []metric.Metric {
	return []metric.Metric{metric.CgroupCPURun, metric.CgroupCPUWait, metric.CgroupCPUWaits, metric.CgroupThrottledWait}
}

// runQueue is the source of bpf-run-queue.
type runQueue struct {
	set  *set
	root string // directory of the tree that the cpu controller is in, "": not seen
}

func openRunQueue(ctx context.Context, l *Loader, env collect.Env) (collect.Source, error) {
	if !env.Deep {
		return nil, collect.Unavailable(recording.StatusUnsupported, "add --deep",
			"each context switch of the host would cost about half a microsecond more: it is done with --deep only")
	}
	root, err := cpuTreeOf(ctx, env.Host)
	if err != nil {
		return nil, err
	}
	s := &runQueue{root: root}
	s.set, err = l.open(ctx, bpf.LoadRunQueue, func(spec *cilium.CollectionSpec, _ *btf.Spec) error {
		now, err := monotonic()
		return errors.Join(err, spec.Variables[bpf.RunQueueVarBegan].Set(now))
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// cpuTreeOf returns the root of the control groups that share the CPUs, found through perfdoctor's own: in v1 those of
// the cpu controller.
func cpuTreeOf(ctx context.Context, h *host.Host) (dir string, err error) {
	link, err := os.Readlink(filepath.Join(h.Proc, "self"))
	if err != nil {
		return "", err
	}
	self, err := strconv.Atoi(link)
	if err != nil {
		return "", fmt.Errorf("%s/self: %w", h.Proc, err)
	}
	own, err := h.Resolve(ctx, host.Selector{PID: self})
	if err != nil {
		return "", fmt.Errorf("find the cgroup trees: %w", err)
	}
	for _, l := range own.Cgroups {
		if l.Controller == "cpu" {
			dir = l.Dir // the last is the root
		}
	}
	if dir != "" {
		return dir, nil
	}
	for _, l := range own.Cgroups {
		if l.Version == 2 {
			dir = l.Dir
		}
	}
	return dir, nil
}

// Close unloads the programs.
func (s *runQueue) Close() error { return s.set.Close() }

// Sample appends the times since Open.
func (s *runQueue) Sample(ctx context.Context, a *recording.Appender) error {
	if err := s.set.appendCost(a); err != nil {
		return err
	}
	groups, cpus, err := s.groups()
	if err != nil {
		return err
	}
	wanted := map[uint64]bool{}
	for id := range groups {
		wanted[id] = true
	}
	paths, all, err := host.CgroupPaths(ctx, s.root, wanted, maxGroups)
	if err != nil {
		return err
	}
	if !all {
		a.Lost(1, fmt.Sprintf("search for the paths of control groups, given up after %d groups", maxGroups))
	}
	appendGroups(a, groups, paths)
	appendRunQueueWaits(a, cpus)
	_, err = s.set.appendLost(a, "waits of threads past the kernel's table",
		"switches to control groups past the kernel's table")
	return err
}

// groups returns the times by the ids of the groups, including what is under way, and for each CPU what it runs and
// the waits that ended on it.
func (s *runQueue) groups() (sums map[uint64]bpf.RunQueueUsage, cpus []bpf.RunQueueRunning, err error) {
	sums = map[uint64]bpf.RunQueueUsage{}
	update := func(id uint64, change func(*bpf.RunQueueUsage)) {
		sum := sums[id]
		change(&sum)
		sums[id] = sum
	}
	var id uint64
	var each []bpf.RunQueueUsage // by CPU
	it := s.set.collection.Maps[bpf.RunQueueMapGroups].Iterate()
	for it.Next(&id, &each) {
		for _, u := range each {
			update(id, func(sum *bpf.RunQueueUsage) {
				sum.RunNs, sum.WaitNs, sum.ThrottledNs = sum.RunNs+u.RunNs, sum.WaitNs+u.WaitNs,
					sum.ThrottledNs+u.ThrottledNs
				sum.Waits += u.Waits
			})
		}
	}
	if err := it.Err(); err != nil {
		return nil, nil, fmt.Errorf("read the times of control groups: %w", err)
	}
	if err := s.set.collection.Maps[bpf.RunQueueMapCpus].Lookup(uint32(0), &cpus); err != nil {
		return nil, nil, fmt.Errorf("read what runs: %w", err)
	}
	now, err := monotonic()
	if err != nil {
		return nil, nil, err
	}
	since := func(then uint64) uint64 { return max(now, then) - then }
	for _, c := range cpus {
		if c.Since > 0 {
			update(c.Group, func(sum *bpf.RunQueueUsage) { sum.RunNs += since(c.Since) })
		}
	}
	err = readHash(s.set.collection.Maps[bpf.RunQueueMapQueued], func(_ uint32, w *bpf.RunQueueWaiting) {
		update(w.Group, func(sum *bpf.RunQueueUsage) {
			if w.Throttled {
				sum.ThrottledNs += since(w.Since)
			} else {
				sum.WaitNs += since(w.Since)
			}
		})
	})
	return sums, cpus, err
}

// runQueueBound is the upper bound of the first bucket of waits (bucket() in runqueue.bpf.c): a wait on an idle CPU
// takes little more.
const runQueueBound = 1024 * time.Nanosecond

// appendRunQueueWaits appends the waits of all threads by length.
func appendRunQueueWaits(a *recording.Appender, cpus []bpf.RunQueueRunning) {
	var sum bpf.RunQueueRunning
	for _, c := range cpus {
		sum.WaitNs += c.WaitNs
		for i, n := range c.Waits {
			sum.Waits[i] += n
		}
	}
	a.Gauge(metric.RunQueueWaitSeconds, float64(sum.WaitNs)*1e-9)
	for i, n := range sum.Waits {
		if n > 0 {
			a.Gauge(metric.RunQueueWaits, float64(n), boundFrom(runQueueBound, i, len(sum.Waits)))
		}
	}
	a.None(metric.RunQueueWaits)
}

// appendGroups appends the times of the groups; those without a path are added up.
func appendGroups(a *recording.Appender, groups map[uint64]bpf.RunQueueUsage, paths map[uint64]string) {
	byPath := map[string]bpf.RunQueueUsage{}
	for id, u := range groups {
		path := "unseen"
		if p, ok := paths[id]; ok {
			path = "/" + p
		} else if id == 0 { // the kernel has no control groups, or the thread's is not one of them
			path = "/"
		}
		sum := byPath[path]
		sum.RunNs, sum.WaitNs, sum.ThrottledNs = sum.RunNs+u.RunNs, sum.WaitNs+u.WaitNs, sum.ThrottledNs+u.ThrottledNs
		sum.Waits += u.Waits
		byPath[path] = sum
	}
	for path, u := range byPath {
		a.Gauge(metric.CgroupCPURun, float64(u.RunNs)*1e-9, path)
		a.Gauge(metric.CgroupCPUWait, float64(u.WaitNs)*1e-9, path)
		a.Gauge(metric.CgroupCPUWaits, float64(u.Waits), path)
		if u.ThrottledNs > 0 {
			a.Gauge(metric.CgroupThrottledWait, float64(u.ThrottledNs)*1e-9, path)
		}
	}
	a.None(groupMetrics()...)
}
