package main

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
)

// statsNow reads the processes of the machine. It leaves out a process that ends meanwhile: whoever runs it reports
// that.
func statsNow() map[int]procfs.ProcStat {
	stats := map[int]procfs.ProcStat{}
	all, err := procfs.AllProcs()
	if err != nil {
		return stats
	}
	for _, p := range all {
		if stat, err := p.Stat(); err == nil {
			stats[p.PID] = stat
		}
	}
	return stats
}

// cpuOf returns the CPU seconds of processes with all their children, by name.
func cpuOf(pids map[string]int) map[string]float64 {
	used := map[string]float64{}
	stats := statsNow()
	for name, root := range pids {
		for pid, stat := range stats {
			if below(stats, pid, root) {
				used[name] += stat.CPUTime()
			}
		}
	}
	return used
}

// below reports whether the process is root or one of its descendants.
func below(stats map[int]procfs.ProcStat, pid, root int) bool {
	for pid != root {
		stat, ok := stats[pid]
		if !ok || pid == stat.PPID {
			return false
		}
		pid = stat.PPID
	}
	return true
}

// cpuBetween returns CPUs: CPU seconds a second.
func cpuBetween(before, after map[string]float64, window time.Duration) map[string]float64 {
	used := map[string]float64{}
	for name := range after {
		used[name] = max(0, after[name]-before[name]) / window.Seconds()
	}
	return used
}

// usedBetween returns the CPUs that the target (0: all) used, and the CPUs by process name, the busiest first. It
// leaves out the exam and the doctor.
func usedBetween(before, after map[int]procfs.ProcStat, target int, took time.Duration) (cpus float64, all []Usage) {
	own := []string{after[os.Getpid()].Comm, doctorName}
	byName := map[string]float64{}
	for pid, stat := range after {
		if slices.Contains(own, stat.Comm) {
			continue
		}
		used := stat.CPUTime()
		if was, ok := before[pid]; ok && was.Starttime == stat.Starttime {
			used -= was.CPUTime()
		}
		used = max(0, used) / took.Seconds()
		byName[stat.Comm] += used
		if target == 0 || below(after, pid, target) {
			cpus += used
		}
	}
	const few = 5
	for name, n := range byName {
		all = append(all, Usage{name, n})
	}
	slices.SortFunc(all, func(a, b Usage) int {
		return cmp.Or(cmp.Compare(b.CPUs, a.CPUs), cmp.Compare(a.Name, b.Name))
	})
	return cpus, all[:min(few, len(all))]
}

// quietEnough is the share of the CPU time that a quiet machine may use.
const quietEnough = 0.25

// waitQuiet waits a while for the machine to be quiet, and returns how many seconds it waited.
func waitQuiet(ctx context.Context, longest time.Duration) (seconds float64, err error) {
	began := time.Now()
	for {
		busy, err := busyFor(ctx, time.Second)
		if err != nil {
			return 0, err
		}
		if busy <= quietEnough || time.Since(began) > longest {
			return time.Since(began).Seconds(), nil
		}
	}
}

// busyFor returns the share of all CPU time that is used during a while.
func busyFor(ctx context.Context, while time.Duration) (float64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	before, err := fs.Stat()
	if err != nil {
		return 0, err
	}
	if err := clock.Sleep(ctx, while); err != nil {
		return 0, err
	}
	after, err := fs.Stat()
	if err != nil {
		return 0, err
	}
	a, b := before.CPUTotal, after.CPUTotal
	idled := b.Idle + b.Iowait - a.Idle - a.Iowait
	worked := b.User + b.Nice + b.System + b.IRQ + b.SoftIRQ - a.User - a.Nice - a.System - a.IRQ - a.SoftIRQ
	return worked / max(worked+idled, 0.01), nil
}

// sortedKeys returns the keys of a map, in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
