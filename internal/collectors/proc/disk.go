package proc

import (
	"context"
	"os"
	"path/filepath"

	"github.com/prometheus/procfs/blockdevice"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// sectorSize is the unit of /proc/diskstats whatever the device's own (Documentation/admin-guide/iostats.rst).
const sectorSize = 512

func diskCollector() collect.Collector {
	return collect.Collector{
		Name:     "disk",
		Doc:      "Operations, bytes, latency and busy time of whole disks.",
		Overhead: "0.1 ms a sample",
		Provides: []metric.Metric{
			metric.DiskReads, metric.DiskWrites, metric.DiskReadBytes, metric.DiskWriteBytes,
			metric.DiskReadSeconds, metric.DiskWriteSeconds, metric.DiskBusySeconds,
		},
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			fs, err := blockdevice.NewFS(env.Host.Proc, env.Host.Sys)
			if err != nil {
				return nil, err
			}
			return collect.SourceFunc(func(_ context.Context, a *recording.Appender) error {
				return sampleDisks(fs, env.Host.Sys, a)
			}), nil
		},
	}
}

func sampleDisks(fs blockdevice.FS, sys string, a *recording.Appender) error {
	stats, err := fs.ProcDiskstats()
	if err != nil {
		return err
	}
	a.None(diskCollector().Provides...)
	for _, d := range stats {
		if d.ReadIOs+d.WriteIOs == 0 || !wholeDisk(sys, d.DeviceName) {
			continue
		}
		a.Counter(metric.DiskReads, float64(d.ReadIOs), d.DeviceName)
		a.Counter(metric.DiskWrites, float64(d.WriteIOs), d.DeviceName)
		a.Counter(metric.DiskReadBytes, float64(d.ReadSectors)*sectorSize, d.DeviceName)
		a.Counter(metric.DiskWriteBytes, float64(d.WriteSectors)*sectorSize, d.DeviceName)
		a.Counter(metric.DiskReadSeconds, float64(d.ReadTicks)/1e3, d.DeviceName)
		a.Counter(metric.DiskWriteSeconds, float64(d.WriteTicks)/1e3, d.DeviceName)
		a.Counter(metric.DiskBusySeconds, float64(d.IOsTotalTicks)/1e3, d.DeviceName)
	}
	return nil
}

// wholeDisk reports whether a device is a disk and not a partition, whose numbers are included in its disk's: only
// disks are directories of /sys/block.
func wholeDisk(sys, name string) bool {
	_, err := os.Stat(filepath.Join(sys, "block", name))
	return err == nil
}
