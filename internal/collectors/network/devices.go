package network

import (
	"context"

	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func deviceCollector() collect.Collector {
	return collect.Collector{
		Name:     "devices",
		Doc:      "Packets, bytes, errors and drops per network device.",
		Overhead: "0.1 ms a sample and namespace",
		Provides: []metric.Metric{metric.DevicePackets, metric.DeviceBytes, metric.DeviceErrors, metric.DeviceDrops},
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			spaces := namespaces(env)
			return collect.SourceFunc(func(_ context.Context, a *recording.Appender) error {
				for _, n := range spaces {
					if err := sampleDevices(n.procDir(env.Host.Proc), n, a); err != nil && !n.gone(env.Host.Proc, err) {
						return err
					}
				}
				return nil
			}), nil
		},
	}
}

func sampleDevices(dir string, n namespace, a *recording.Appender) error {
	fs, err := procfs.NewFS(dir)
	if err != nil {
		return err
	}
	devices, err := fs.NetDev()
	if err != nil {
		return err
	}
	for _, d := range devices {
		for _, c := range []struct {
			metric            *metric.Counter
			receive, transmit uint64
		}{
			{metric.DevicePackets, d.RxPackets, d.TxPackets},
			{metric.DeviceBytes, d.RxBytes, d.TxBytes},
			// rx_errors and tx_errors have frame, carrier and transmit FIFO errors in them
			// (include/uapi/linux/if_link.h).
			{metric.DeviceErrors, d.RxErrors, d.TxErrors},
			{metric.DeviceDrops, d.RxDropped + d.RxFIFO, d.TxDropped},
		} {
			a.Counter(c.metric, float64(c.receive), n.label, d.Name, "receive")
			a.Counter(c.metric, float64(c.transmit), n.label, d.Name, "transmit")
		}
	}
	return nil
}
