package path

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var nicErrors = &check.Check{
	Name:  "nic-errors",
	Stage: check.Path,
	Doc: `A network device has errors

Packets in error (checksum, frame, carrier, length) over the packets that passed, per device and direction. An error
is a packet that arrived or left damaged: a cable, a transceiver, a duplex mismatch, a driver, or for virtual devices
an MTU or offload that does not fit.

It is a warning from one packet in a thousand with enough packets to tell. It is only a fact if TCP of that network
namespace retransmitted nothing meanwhile and the namespace forwards nothing for others: then nobody is seen to miss
them. No setting of the host fixes a damaged packet. Disproof: ethtool -S DEVICE shows no error counter rising under
load.`,
	URL:    "https://docs.kernel.org/networking/statistics.html",
	Needs:  []metric.Metric{metric.DeviceErrors, metric.DevicePackets},
	Uses:   []metric.Metric{metric.TCPRetransSegs, metric.TCPSynRetrans, metric.IPForwarded},
	Params: evidence.LossParams(),
	Run:    runNICErrors,
}

func runNICErrors(p *check.Pass) error {
	losses, err := evidence.DeviceLosses(p, metric.DeviceErrors, "in error")
	if err != nil {
		return err
	}
	evidence.ReadLosses(p, losses, "packets in error")
	for _, d := range losses {
		sev := d.Severity(p)
		if sev == 0 {
			continue
		}
		again, nobodyMissedThem := sentAgain(p, d.Netns)
		if sev == check.Warning && nobodyMissedThem {
			sev = check.Info
		}
		f := d.Finding(p, sev, "has errors in")
		f.Evidence = append(f.Evidence, again...)
		f.Remedies = []check.Remedy{{
			Action: "Find which error it is, then change the cable, transceiver or port, " +
				"or fit duplex, MTU or offloads to the other side.",
			Command: check.Commandf("ethtool -S %s | grep -iE 'err|crc|miss|fifo'; ethtool %s", d.Device, d.Device),
			Risk:    "Looking changes nothing; changing a port takes the link down.",
			Effect:  "errors from " + d.Rate.Text() + " to 0, retransmissions with them",
		}}
		f.Placebos = []string{"Larger rings and buffers: a damaged packet is lost however long the queue."}
		p.Report(f)
	}
	return nil
}

// sentAgain returns what TCP of a namespace retransmitted, and whether that shows that nobody missed a packet: none
// of the counters rose, and the namespace forwards nothing, since others retransmit what it forwards. If nothing was
// recorded, nothing is known.
func sentAgain(p *check.Pass, netns string) (again []quantity.Value, nobodyMissedThem bool) {
	for _, c := range []struct {
		counter *metric.Counter
		label   string
	}{{metric.TCPRetransSegs, "retransmitted segments"}, {metric.TCPSynRetrans, "retransmitted SYNs and SYN-ACKs"}} {
		if n, _, ok := evidence.Rise(c.label, p.Counter(c.counter, "netns", netns)); ok {
			again = append(again, n)
		}
	}
	forwarded, _, _ := evidence.Rise("packets forwarded", p.Counter(metric.IPForwarded, "netns", netns))
	rose := slices.ContainsFunc(again, func(v quantity.Value) bool { return v.Number() > 0 })
	return again, len(again) > 0 && !rose && forwarded.Number() == 0
}
