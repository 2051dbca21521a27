package evidence

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
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
		Why: "a switch's own protocols (LLDP, spanning tree, foreign VLANs) are counted as dropped too, at a few a " +
			"second",
	}
)

// LossParams returns the thresholds of both rules about losses.
func LossParams() []*check.Param {
	return []*check.Param{lossShare, lossCritical, lossPackets, lossRate}
}

// A DeviceLoss is what one device lost in one direction.
type DeviceLoss struct {
	Netns, Device, Direction string
	lost, packets            quantity.Value // in the window
	share, Rate              quantity.Value
}

// DeviceLosses reads every device but loopback. Lost packets are not included in the packets counter
// (net/core/net-procfs.c).
func DeviceLosses(p *check.Pass, counter *metric.Counter, verb string) (out []DeviceLoss, err error) {
	twice := false
	for _, s := range p.Counter(counter) {
		d := DeviceLoss{Netns: s.Label("netns"), Device: s.Label("device"), Direction: s.Label("direction")}
		n, seconds, ok := Rise("packets "+verb, []recording.CounterSeries{s})
		packets, _, ok2 := Rise("packets", p.Counter(metric.DevicePackets,
			"netns", d.Netns, "device", d.Device, "direction", d.Direction))
		if !ok || !ok2 {
			continue
		}
		twice = true
		if d.Device == "lo" || n.Number() == 0 {
			continue
		}
		d.lost, d.packets = n, packets
		d.share = n.Per(n.Plus(packets)).Named("share of the packets %s", verb)
		d.Rate = n.Per(seconds).Named("packets %s", verb)
		out = append(out, d)
	}
	if !twice && len(p.Counter(counter)) > 0 {
		return nil, OneSample()
	}
	return out, nil
}

// Severity returns zero if the loss is below every threshold.
func (d DeviceLoss) Severity(p *check.Pass) check.Severity {
	switch {
	case d.lost.Plus(d.packets).Below(p.Param(lossPackets)) || d.share.Below(p.Param(lossShare)):
		return 0
	case d.Rate.Below(p.Param(lossRate)):
		return check.Info
	case d.share.AtLeast(p.Param(lossCritical)):
		return check.Critical
	}
	return check.Warning
}

// subject names the device with its direction, and with its namespace if the target has one of its own.
func (d DeviceLoss) subject(p *check.Pass) check.Subject {
	id := d.Device + " " + d.Direction
	if p.Meta.Target.OwnNetNS {
		id += fmt.Sprintf(" (%s's namespace)", d.Netns)
	}
	return check.Subject{Kind: "device", ID: id}
}

// ReadLosses notes the worst share, so that "fine" can say how fine.
func ReadLosses(p *check.Pass, losses []DeviceLoss, none string) {
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
	p.Read(worst.share.Named("%s, %s %s", worst.share.Label(), worst.Device, worst.Direction))
}

// Finding returns what both rules say about a loss; each rule adds its own remedies.
func (d DeviceLoss) Finding(p *check.Pass, sev check.Severity, verb string) check.Finding {
	return check.Finding{
		Subject:  d.subject(p),
		Severity: sev,
		Summary: fmt.Sprintf("%s %s %s of the packets it %ss, %s", d.Device, verb, d.share.Text(), d.Direction,
			d.Rate.Text()),
		Evidence: []quantity.Value{d.share, d.Rate},
		Disproof: fmt.Sprintf("ip -s -s link show dev %s: the counter does not rise while the load runs.",
			check.Quote(d.Device)),
	}
}
