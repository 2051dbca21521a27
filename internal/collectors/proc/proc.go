// Package proc collects what the kernel tells of the whole host in /proc and /sys: CPU time, interrupts, pressure, memory and disks.
//
// Parsing is prometheus/procfs's where that is exact. It is not used for /proc/interrupts (its reader only opens /proc/PID/interrupts) and
// /proc/vmstat (it has none).
package proc

import (
	"context"

	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Collectors lists this package's collectors.
func Collectors() []collect.Collector {
	return []collect.Collector{
		cpuCollector(), interruptCollector(), pressureCollector(), memoryCollector(), diskCollector(), factCollector(),
	}
}

// sampler is a source without state to close: all these files are opened, read and closed in each sample.
type sampler func(context.Context, *recording.Appender) error

// Sample appends one sample.
func (s sampler) Sample(ctx context.Context, a *recording.Appender) error { return s(ctx, a) }

// Close has nothing to do.
func (s sampler) Close() error { return nil }

func openFS(env collect.Env) (procfs.FS, error) { return procfs.NewFS(env.Host.Proc) }
