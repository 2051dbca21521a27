package main

import (
	"time"

	"github.com/prometheus/procfs"
)

// cpuOf gives the CPU seconds of processes with all their children, by name. One that has ended is left out: whoever
// runs it says so.
func cpuOf(pids map[string]int) map[string]float64 {
	used := map[string]float64{}
	all, err := procfs.AllProcs()
	if err != nil {
		return used
	}
	stats := map[int]procfs.ProcStat{}
	for _, p := range all {
		if stat, err := p.Stat(); err == nil {
			stats[p.PID] = stat
		}
	}
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

// cpuBetween gives CPUs: CPU seconds a second.
func cpuBetween(before, after map[string]float64, window time.Duration) map[string]float64 {
	used := map[string]float64{}
	for name := range after {
		used[name] = max(0, after[name]-before[name]) / window.Seconds()
	}
	return used
}
