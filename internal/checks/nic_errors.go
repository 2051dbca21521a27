package checks

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
)

var nicErrors = &check.Check{
	Name:  "nic-errors",
	Stage: check.Path,
	Doc: `A network device has errors

Packets in error (checksum, frame, carrier, length) over the packets that passed, per device and direction. An error
is a packet that arrived or left damaged: a cable, a transceiver, a duplex mismatch, a driver, or for virtual devices
an MTU or offload that does not fit.

It is a warning from one packet in a thousand with enough packets to tell. No setting of the host cures a damaged
packet. Disproof: ethtool -S DEVICE shows no error counter rising under load.`,
	URL:    "https://docs.kernel.org/networking/statistics.html",
	Needs:  []metric.Metric{metric.DeviceErrors, metric.DevicePackets},
	Params: lossParams(),
	Run:    runNICErrors,
}

func runNICErrors(p *check.Pass) error {
	losses, err := deviceLosses(p, metric.DeviceErrors, "in error")
	if err != nil {
		return err
	}
	readLosses(p, losses, "packets in error")
	for _, d := range losses {
		sev := d.severity(p)
		if sev == 0 {
			continue
		}
		f := d.finding(p, sev, "has errors in")
		f.Remedies = []check.Remedy{{
			Action: "Find which error it is, then change the cable, transceiver or port, " +
				"or fit duplex, MTU or offloads to the other side.",
			Command: check.Commandf("ethtool -S %s | grep -iE 'err|crc|miss|fifo'; ethtool %s", d.device, d.device),
			Risk:    "Looking changes nothing; changing a port takes the link down.",
			Effect:  "errors from " + d.rate.Text() + " to 0, retransmissions with them",
		}}
		f.Placebos = []string{"Larger rings and buffers: a damaged packet is lost however long the queue."}
		p.Report(f)
	}
	return nil
}
