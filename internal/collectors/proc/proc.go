// Package proc collects what the kernel says about the whole host in /proc and /sys: CPU time, interrupts, pressure,
// memory and disks.
//
// prometheus/procfs does the parsing where it is exact. It is not used for /proc/interrupts (its reader only opens
// /proc/PID/interrupts) and /proc/vmstat (it has none).
package proc

import (
	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/internal/collect"
)

// Collectors lists this package's collectors.
func Collectors() []collect.Collector {
	return []collect.Collector{
		cpuCollector(), interruptCollector(), pressureCollector(), memoryCollector(), diskCollector(), factCollector(),
	}
}

func openFS(env collect.Env) (procfs.FS, error) { return procfs.NewFS(env.Host.Proc) }
