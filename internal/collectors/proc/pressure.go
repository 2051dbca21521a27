package proc

import (
	"context"

	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func pressureCollector() collect.Collector {
	return collect.Collector{
		Name:     "pressure",
		Doc:      "Time in which tasks stalled on CPU, memory and I/O (PSI).",
		Overhead: "0.1 ms a sample",
		Provides: []metric.Metric{metric.Pressure},
		Requires: []host.Capability{host.PressureStall},
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			fs, err := openFS(env)
			if err != nil {
				return nil, err
			}
			return collect.SourceFunc(func(_ context.Context, a *recording.Appender) error {
				return samplePressure(fs, a)
			}), nil
		},
	}
}

// samplePressure reads total, in microseconds: an average over a window of the kernel's choosing would not fit ours.
func samplePressure(fs procfs.FS, a *recording.Appender) error {
	for _, resource := range []string{"cpu", "memory", "io"} {
		p, err := fs.PSIStatsForResource(resource)
		if err != nil {
			return err
		}
		if p.Some != nil {
			a.Counter(metric.Pressure, float64(p.Some.Total)/1e6, resource, "some")
		}
		if p.Full != nil {
			a.Counter(metric.Pressure, float64(p.Full.Total)/1e6, resource, "full")
		}
	}
	return nil
}
