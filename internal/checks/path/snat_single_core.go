package path

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	snatHot = &check.Param{
		Name: "hot-softirq", Default: 0.8, Unit: quantity.Ratio,
		Why: "above it the queue before the CPU grows faster than it is served; measured 95 to 100 % in the fault, " +
			"41 to 56 % when fixed",
	}
	snatOthers = &check.Param{
		Name: "others-softirq", Default: 0.3, Unit: quantity.Ratio,
		Why: "a busy loopback server has 30 % on every CPU; below it the other CPUs have room to take packets over",
	}
	snatForwarded = &check.Param{
		Name: "forwarded-share", Default: 0.05, Unit: quantity.Ratio,
		Why: "a forwarded packet is processed two to four times on its way; a smaller share means the CPU is busy " +
			"with something else too",
	}
	snatLosing = &check.Param{
		Name: "losing", Default: 1, Unit: "packets/s",
		Why: "a packet dropped each second is traffic lost now, not one burst at the start",
	}
)

var snatSingleCore = &check.Check{
	Name:  "snat-single-core",
	Stage: check.Path,
	Doc: `One CPU does all the forwarding

A host that routes or masquerades for others handles each packet in softirq, on the CPU that took the packet's
interrupt or was steered to. When that is one CPU, its time is the ceiling of the whole egress: every host behind it
sees slow round trips, and the gateway looks nearly idle on average. The ceiling is 1 / (softirq time per packet).

Measured by time, not by counts: softirq seconds of each CPU (/proc/stat) and packets of each CPU
(/proc/net/softnet_stat). The count of NET_RX in /proc/softirqs is low on the saturated CPU, because it runs few and
long softirqs.

The check warns when one CPU spends nearly all its time in softirq while the median of the others does not, and a
visible network namespace forwards packets. Where the forwarding namespace is not visible, softirq-imbalance reports
the CPU instead.

Fixes: receive packet steering or more hardware queues; fewer rules walked one by one (sets and maps); no address
translation where a route would do. Won't help: netdev_max_backlog. Disproof: ping from an idle host behind the same
gateway. If it is fast while the loaded host is slow, the gateway is not the cause.`,
	URL:   "https://docs.kernel.org/networking/scaling.html",
	Needs: []metric.Metric{metric.CPUSeconds, metric.SoftnetProcessed},
	Uses: append(evidence.VectorUses(), metric.IPForwarded, metric.IPForward, metric.NATRules, metric.NetfilterRules,
		metric.SoftnetDropped,
		metric.QueueRPS, metric.DevicePackets),
	Params: []*check.Param{
		snatHot, snatOthers, snatForwarded, snatLosing, evidence.ParamManyRules,
		evidence.ParamRuleCost,
	},
	Beyond: "a ping from another host",
	Run:    runSNATSingleCore,
}

func runSNATSingleCore(p *check.Pass) error {
	each, all, err := evidence.CPUTimes(p)
	if err != nil {
		return err
	}
	if !p.Recorded(metric.IPForwarded) && !p.Recorded(metric.IPForward) {
		reason, remedy := p.Why(metric.IPForwarded)
		return check.NotAssessed(remedy, "whether this host forwards is unknown: %s", reason)
	}
	hot, others := evidence.HottestSoftirq(each)
	p.Read(hot.Softirq())
	if len(others) == 0 || hot.Softirq().Below(p.Param(snatHot)) || evidence.MedianSoftirq(others).
		AtLeast(p.Param(snatOthers)) {
		return nil
	}
	processed, dropped, ok := evidence.SoftnetOn(p, hot.ID)
	if !ok {
		return evidence.OneSample()
	}
	netns, share, ok := forwarder(p)
	if !ok || processed.Number() == 0 {
		return nil
	}
	vector, load, part, timed := evidence.TopVector(p, hot.ID)
	if timed && !evidence.OfNetwork(vector) {
		p.Read(part)
		return nil // the CPU is full of something else than packets
	}
	f := snatFinding(hot, others, netns)
	if timed {
		f.Evidence = append(f.Evidence, load, part)
	}
	f.Evidence = append(f.Evidence, share)
	doubtForwarding(p, &f, share)
	perPacket := hot.Time("softirq", "softirq").Per(processed).As(quantity.Seconds).
		Named("softirq time per packet on %s", hot.Name())
	rate := processed.Per(evidence.PacketWindow(p)).Named("packets processed on %s", hot.Name())
	ceiling := quantity.Of("", 1, quantity.Packets).Per(perPacket).Named("most that %s can process", hot.Name())
	f.Evidence = append(f.Evidence, rate, perPacket, ceiling)
	losing(p, &f, dropped.Per(evidence.PacketWindow(p)).Named("packets dropped before %s", hot.Name()))
	f.Summary = fmt.Sprintf("%s forwards alone: softirq %s of its time (others %s); %s, ceiling %s",
		hot.Name(), hot.Softirq().Text(), evidence.MedianSoftirq(others).Text(), rate.Text(), ceiling.Text())
	f.Remedies = []check.Remedy{evidence.SpreadReceive(p, netns, hot, each, all)}
	evidence.FewerRules(p, &f, evidence.ForwardRules(p, netns), perPacket)
	f.Remedies = append(f.Remedies, check.Remedy{
		Action: "Drop the address translation where a route back would do, or give the busiest clients an egress of " +
			"their own.",
		Risk:   "The far side must have a route to the inner addresses.",
		Effect: "conntrack and NAT cost about 1 µs of each packet; the translated traffic leaves " + hot.Name(),
	})
	p.Report(f)
	return nil
}

func snatFinding(hot evidence.CPUTime, others []evidence.CPUTime, netns string) check.Finding {
	return check.Finding{
		Subject:  evidence.CPUSubject(hot.ID),
		Severity: check.Warning,
		Evidence: []quantity.Value{hot.Softirq(), evidence.MedianSoftirq(others)},
		Notes:    []string{"the forwarding namespace is that of the " + netns},
		Placebos: []string{evidence.BacklogPlacebo},
		Disproof: "Ping the far side from this host, from an idle host behind the same gateway and from outside: " +
			"if the idle host's round trip is short, the gateway is not the cause. mpstat -P ALL 1 shows the CPU.",
	}
}

// losing makes it critical if drops were counted and packets are dropped before the CPU.
func losing(p *check.Pass, f *check.Finding, drops quantity.Value) {
	if !p.Recorded(metric.SoftnetDropped) {
		return
	}
	f.Evidence = append(f.Evidence, drops)
	if drops.AtLeast(p.Param(snatLosing)) {
		f.Severity = check.Critical
	}
}

// doubtForwarding lowers the confidence if the numbers do not show that forwarding fills the CPU.
func doubtForwarding(p *check.Pass, f *check.Finding, share quantity.Value) {
	const ownPackets = ": the CPU may be busy with packets of this host's own sockets"
	switch {
	case share.Unit() != quantity.Ratio:
		f.Doubts = append(f.Doubts, "how many packets are forwarded is not known"+ownPackets)
	case share.Below(p.Param(snatForwarded)):
		f.Doubts = append(f.Doubts, "few of the packets were forwarded"+ownPackets)
	default:
		return
	}
	f.Confidence = check.Medium
}

// forwarder finds a namespace that forwards, and its forwarded packets as a share of all packets processed. If its
// counter was not recorded, routing that is switched on together with rules that translate stands in. A counter of
// zero means no forwarding.
func forwarder(p *check.Pass) (netns string, share quantity.Value, ok bool) {
	processed, _, _ := evidence.Rise("packets processed on all CPUs", p.Counter(metric.SoftnetProcessed))
	most := 0.0
	for _, s := range p.Counter(metric.IPForwarded) {
		if n, twice := s.Increase(); twice && n > most && processed.Number() > 0 {
			most, netns, ok = n, s.Label("netns"), true
			share = quantity.Of("", n, quantity.Packets).Per(processed).
				Named("forwarded packets, share of all packets processed")
		}
	}
	if ok || p.Recorded(metric.IPForwarded) {
		return netns, share, ok
	}
	for _, s := range p.Gauge(metric.NATRules) {
		routes := p.Gauge(metric.IPForward, "netns", s.Label("netns"))
		if s.Max() > 0 && len(routes) > 0 && routes[0].Last() == 1 {
			return s.Label("netns"), quantity.Of("rules that translate addresses", s.Max(), quantity.Rules), true
		}
	}
	return "", quantity.Value{}, false
}
