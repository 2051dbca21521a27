package connections

import (
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramRetransWarn = &check.Param{
		Name: "warn-share", Default: 0.01, Unit: quantity.Ratio,
		Why: "with loss p a loss-based flow is held to about 1.2 × MSS / (RTT × √p): 12 segments a round trip at 1 " +
			"% (RFC 5348)",
	}
	paramRetransCritical = &check.Param{
		Name: "critical-share", Default: 0.05, Unit: quantity.Ratio,
		Why: "at 5 % a flow has some 5 segments in flight, loses fast retransmit, and waits for timeouts of 200 ms " +
			"and more",
	}
	paramRetransRepeats = &check.Param{
		Name: "repeats", Default: 30, Unit: quantity.Segments,
		Why: "or this many, however few were sent: a connection to a peer that is gone retransmits six times in 10 s " +
			"(at 0.2, 0.4, 0.8 … s), so it takes five of those",
	}
	paramRetransOwn = &check.Param{
		Name: "own", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the time that connections wait for answers of the destination: with less, most of it has another " +
			"cause",
	}
	paramRetransSegments = &check.Param{
		Name: "segments", Default: 1000, Unit: quantity.Segments,
		Why: "of a thousand segments one percent is ten, enough that it is not one burst",
	}
)

var retransmits = &check.Check{
	Name:  "retransmits",
	Stage: check.Connections,
	Doc: `TCP retransmits: the path loses packets
Measured: (RetransSegs − TCPSynRetrans − TCPDSACKRecv) / OutSegs over the window, if at least a thousand segments were
sent, or 30 were retransmitted. OutSegs does not count retransmissions. SYNs are subtracted, as they have checks of
their own. So are segments that the peer already had: there an acknowledgment was late, as on a host whose CPUs are
full, and the probe of RFC 8985 was sent for nothing. The check names the destination whose connections retransmitted
most. The loss explains why that destination answers late if its retransmissions, at 200 ms each (TCP_RTO_MIN in
include/net/tcp.h), add up to half of the time spent waiting for it.

One percent holds a loss-based flow to a dozen segments a round trip; at five percent it lives on timeouts. BBR bears
more loss, and causes more of it.

Fix: the path: a saturated link, queue or core (softnet-drops, nic-drops), a policer, a duplex or cable fault, an MTU
black hole. Won't help: larger tcp_rmem and tcp_wmem; net.ipv4.tcp_retries2.
Disproved if they are spurious and the peer does not say so (it has DSACK off): then delay varies and nothing
is lost.`,
	URL:   "https://www.rfc-editor.org/rfc/rfc5348#section-3.1",
	Needs: []metric.Metric{metric.TCPRetransSegs, metric.TCPOutSegs, metric.TCPSynRetrans},
	Uses: slices.Concat(
		[]metric.Metric{
			metric.TCPDSACKRecv, metric.DestinationLost, metric.DestinationSegs, metric.DestinationOwner,
			metric.DestinationAsked,
		}, evidence.FlowUses(), evidence.RequestMetrics(),
	),
	Params: []*check.Param{
		paramRetransWarn, paramRetransCritical, paramRetransSegments, paramRetransRepeats, paramRetransOwn,
	},
	Facts: []check.Fact{evidence.MostAnswers},
	Run:   runRetransmits,
}

func runRetransmits(p *check.Pass) error {
	again, err := evidence.NetRise(p, metric.TCPRetransSegs, "retransmitted segments")
	if err != nil {
		return err
	}
	syns, err := evidence.NetRise(p, metric.TCPSynRetrans, "of these SYNs")
	if err != nil {
		return err
	}
	sent, err := evidence.NetRise(p, metric.TCPOutSegs, "segments sent")
	if err != nil {
		return err
	}
	data := again.N.Minus(syns.N).Named("retransmitted segments, without SYNs")
	needless, counted := evidence.MaybeNetRise(p, metric.TCPDSACKRecv, "retransmitted though the peer had them")
	if counted && needless.N.Number() > 0 {
		data = data.Minus(needless.N).Named("retransmitted segments that were lost")
	}
	if sent.N.Below(p.Param(paramRetransSegments)) && data.Below(p.Param(paramRetransRepeats)) {
		p.Read(sent.N)
		return nil
	}
	share := data.Per(sent.N).Named("share of retransmitted segments")
	p.Read(share)
	if share.Below(p.Param(paramRetransWarn)) {
		return nil
	}
	f := check.Finding{
		Subject:  evidence.NetNSSubject(p),
		Severity: check.Warning,
		Summary:  fmt.Sprintf("%.0f of %s retransmitted = %s", data.Number(), sent.N.Text(), share.Text()),
		Evidence: []quantity.Value{data, share, sent.Rate()},
		Remedies: []check.Remedy{{
			Action: "find the hop that loses: device and softnet drops on both ends first, then the links and " +
				"policers between",
			Command: evidence.InNetNS(p, "ip -s link") + "; " + evidence.InNetNS(p, "ss -tni"),
			Risk:    "none, it only reads",
			Effect:  fmt.Sprintf("share of retransmitted segments falls below %s", p.Param(paramRetransWarn).Text()),
		}},
		Placebos: []string{
			"tcp_rmem, tcp_wmem: a larger window loses more",
			"tcp_retries2: it changes when a connection is given up",
		},
		Disproof: "the peer had them (tcpdump there shows each twice): delay varies and nothing is lost",
	}
	if share.AtLeast(p.Param(paramRetransCritical)) && sent.N.AtLeast(p.Param(paramRetransSegments)) {
		f.Severity = check.Critical
	}
	nameLossyDestination(p, &f, data)
	evidence.Gone(p, &f, check.Resent)
	p.Report(f)
	return nil
}

// nameLossyDestination makes a destination the subject if its connections account for at least half. Where no BPF
// program counted them, connections that ended in the window are not in its number.
func nameLossyDestination(p *check.Pass, f *check.Finding, data quantity.Value) {
	if flows := evidence.FlowsBy(p, metric.FlowRetransmits, "kind", "data"); len(flows) > 0 {
		top := flows[0]
		f.Evidence = append(f.Evidence, quantity.Of("retransmitted by "+top.Text(), top.N, quantity.Segments))
		if 2*top.N >= data.Number() && top.Side == "client" {
			f.Subject = check.Subject{Kind: "destination", ID: top.Endpoint}
			f.Notes = append(f.Notes, evidence.OwnersOf(p, top.Endpoint))
			delaysAnswers(p, f, top.Endpoint, top.N)
		}
		return
	}
	top, where := 0.0, ""
	for _, s := range p.Gauge(metric.DestinationLost) {
		if n := evidence.GaugeRise(s); n > top {
			top, where = n, s.Label("destination")
		}
	}
	if where == "" {
		f.Confidence = check.Medium
		f.Doubts = []string{"no destination's connections repeated any: they were short, accepted ones, or not " +
			"readable"}
		return
	}
	mine := quantity.Of("retransmitted to "+where, top, quantity.Segments)
	f.Evidence = append(f.Evidence, mine)
	for _, s := range p.Gauge(metric.DestinationSegs, "destination", where) {
		if sent := evidence.GaugeRise(s); sent > 0 {
			f.Evidence = append(f.Evidence, mine.Per(quantity.Of("", sent, quantity.Segments)).
				Named("share retransmitted to %s", where))
		}
	}
	f.Notes = append(f.Notes, evidence.OwnersOf(p, where))
	if 2*top >= data.Number() {
		f.Subject = check.Subject{Kind: "destination", ID: where}
		delaysAnswers(p, f, where, top)
	}
}

// leastTimeout is the least time, in seconds, after which a segment without other news is retransmitted (TCP_RTO_MIN
// in include/net/tcp.h): exchanges of a few segments have no other news.
const leastTimeout = 0.2

// delaysAnswers adds how much of the wait for a destination's answers is due to the repeats.
func delaysAnswers(p *check.Pass, f *check.Finding, destination string, repeats float64) {
	waits := evidence.Asking(p, destination) * p.Meta.Duration
	if waits <= 0 {
		return
	}
	own := quantity.Of("repeats, 0.2 s each", min(repeats*leastTimeout, waits), quantity.Seconds).
		Per(quantity.Of("waiting for answers", waits, quantity.Seconds)).
		Named("share of the wait for answers of %s, at most", destination)
	f.Evidence = append(f.Evidence, own)
	if own.AtLeast(p.Param(paramRetransOwn)) {
		f.Facts = append(f.Facts, evidence.MostAnswers)
	}
}
