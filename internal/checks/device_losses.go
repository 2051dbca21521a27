package checks

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// The thresholds that nic-drops and nic-errors share.
var (
	lossShare = &check.Param{
		Name: "share", Default: 0.001, Unit: quantity.Ratio,
		Why: "TCP over a path of some milliseconds slows down markedly from one loss in a thousand on",
	}
	lossCritical = &check.Param{
		Name: "share-critical", Default: 0.05, Unit: quantity.Ratio,
		Why: "at one packet in twenty connections stall in retransmission timeouts",
	}
	lossPackets = &check.Param{
		Name: "least-packets", Default: 1000, Unit: quantity.Packets,
		Why: "one loss in a thousand cannot be told from chance in fewer",
	}
	lossRate = &check.Param{
		Name: "least-rate", Default: 10, Unit: "packets/s",
		Why: "a switch's own protocols (LLDP, spanning tree, foreign VLANs) are counted as dropped too, at a few a second",
	}
)

func lossParams() []*check.Param {
	return []*check.Param{lossShare, lossCritical, lossPackets, lossRate}
}

// deviceLoss is what one device lost in one direction.
type deviceLoss struct {
	netns, device, direction string
	lost, packets            quantity.Value // in the window
	share, rate              quantity.Value
}

// deviceLosses reads every device but loopback. What was lost is not among the packets (net/core/net-procfs.c).
func deviceLosses(p *check.Pass, counter *metric.Counter, verb string) (out []deviceLoss, err error) {
	twice := false
	for _, s := range p.Counter(counter) {
		d := deviceLoss{netns: s.Label("netns"), device: s.Label("device"), direction: s.Label("direction")}
		n, seconds, ok := rise("packets "+verb, []recording.CounterSeries{s})
		packets, _, ok2 := rise("packets", p.Counter(metric.DevicePackets,
			"netns", d.netns, "device", d.device, "direction", d.direction))
		if !ok || !ok2 {
			continue
		}
		twice = true
		if d.device == "lo" || n.Number() == 0 {
			continue
		}
		d.lost, d.packets = n, packets
		d.share = n.Per(n.Plus(packets)).Named("share of the packets %s", verb)
		d.rate = n.Per(seconds).Named("packets %s", verb)
		out = append(out, d)
	}
	if !twice && len(p.Counter(counter)) > 0 {
		return nil, oneSample()
	}
	return out, nil
}

// severity is zero where the loss is below every threshold.
func (d deviceLoss) severity(p *check.Pass) check.Severity {
	switch {
	case d.lost.Plus(d.packets).Below(p.Param(lossPackets)) || d.share.Below(p.Param(lossShare)):
		return 0
	case d.rate.Below(p.Param(lossRate)):
		return check.Info
	case d.share.AtLeast(p.Param(lossCritical)):
		return check.Critical
	}
	return check.Warning
}

// subject names the device with its direction, and its namespace where the target has another than the host.
func (d deviceLoss) subject(p *check.Pass) check.Subject {
	id := d.device + " " + d.direction
	if p.Meta.Target.OwnNetNS {
		id += fmt.Sprintf(" (%s's namespace)", d.netns)
	}
	return check.Subject{Kind: "device", ID: id}
}

// readLosses notes the worst share, so that "fine" can say how fine.
func readLosses(p *check.Pass, losses []deviceLoss, none string) {
	if len(losses) == 0 {
		p.Read(quantity.Of(none, 0, quantity.Packets))
		return
	}
	worst := losses[0]
	for _, d := range losses {
		if d.share.Above(worst.share) {
			worst = d
		}
	}
	p.Read(worst.share.Named("%s, %s %s", worst.share.Label(), worst.device, worst.direction))
}
