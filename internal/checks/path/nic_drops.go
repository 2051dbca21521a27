package path

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

var nicDrops = &check.Check{
	Name:  "nic-drops",
	Stage: check.Path,
	Doc: `A network device drops packets

Packets dropped by a device's driver or queue, over the packets that passed, per device and direction; virtual devices
(veth, bridge) included. Received packets are dropped when the ring is full because the CPU did not fetch them in
time, transmitted ones when the queue is full. A veth pair counts as transmit drops what the receiving CPU's backlog
refused.

It is a warning from one packet in a thousand, with enough packets to tell and more than the few a second that every
switch port causes: the kernel counts received packets of protocols nobody handles here as dropped too
(Documentation/networking/statistics.rst).

Fixes: larger ring (ethtool -G), more queues, the CPU that serves them; for transmit the sender's rate or the queue.
Disproof: ip -s -s link show dev DEVICE shows the drops do not rise under load.`,
	URL:    "https://docs.kernel.org/networking/statistics.html",
	Needs:  []metric.Metric{metric.DeviceDrops, metric.DevicePackets},
	Params: evidence.LossParams(),
	Run:    runNICDrops,
}

func runNICDrops(p *check.Pass) error {
	losses, err := evidence.DeviceLosses(p, metric.DeviceDrops, "dropped")
	if err != nil {
		return err
	}
	evidence.ReadLosses(p, losses, "packets dropped by devices")
	for _, d := range losses {
		if sev := d.Severity(p); sev > 0 {
			f := d.Finding(p, sev, "drops")
			dropRemedies(&f, d)
			p.Report(f)
		}
	}
	return nil
}

func dropRemedies(f *check.Finding, d evidence.DeviceLoss) {
	if d.Direction == "transmit" {
		f.Remedies = []check.Remedy{{
			Action: "See whether the device's queue is too short for bursts or the link too slow; " +
				"for a veth device see its receiver's CPU.",
			Command: check.Commandf("tc -s qdisc show dev %s", d.Device),
			Risk:    "Looking changes nothing. A longer queue adds delay.",
			Effect:  "drops from " + d.Rate.Text() + " towards 0",
		}}
		return
	}
	f.Confidence = check.Medium
	f.Doubts = []string{"received packets of protocols that nobody handles here are counted as dropped as well"}
	f.Remedies = []check.Remedy{{
		Action:  "Enlarge the receive ring if the driver allows it, then add queues or CPUs for it.",
		Command: check.Commandf("ethtool -g %s; ethtool -G %s rx MAXIMUM", d.Device, d.Device),
		Risk:    "Many drivers restart the link for a moment; a longer ring adds delay under overload.",
		Effect:  "drops from " + d.Rate.Text() + " towards 0 if they come in bursts",
	}}
}
