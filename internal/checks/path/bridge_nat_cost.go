package path

import (
	"fmt"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	bridgeSoftirq = &check.Param{
		Name: "softirq-of-busy", Default: 0.2, Unit: quantity.Ratio,
		Why: "below a fifth of the busy time the bridge cannot cost a service a fifth of its capacity",
	}
	bridgeForwarded = &check.Param{
		Name: "forwarded", Default: 1000, Unit: "packets/s",
		Why: "fewer forwarded packets cost less than a tenth of one CPU even at 100 µs each; see forwarded-cost for " +
			"those that cost more",
	}
	bridgeForwardedCost = &check.Param{
		Name: "forwarded-cost", Default: 0.1, Unit: quantity.CPUs,
		Why: "a tenth of one CPU, for few packets that walk very many rules: 800 a second took 1.4 CPUs at 220,000 " +
			"rules",
	}
	bridgePerPacket = &check.Param{
		Name: "per-packet", Default: 10e-6, Unit: quantity.Seconds,
		Why: "a bridge with masquerading and few rules measured 2 to 2.5 µs a packet, with 1000 rules 3.4 to 4.2 " +
			"µs; more is worth fixing",
	}
)

var bridgeNATCost = &check.Check{
	Name:  "bridge-nat-cost",
	Stage: check.Path,
	Doc: `Packets pay for a bridge, veth pairs and NAT

A container behind a bridge sends each packet through the network stack more than once: veth, bridge, rules, NAT,
device. A request that takes 10 packets of softnet work on the host measured 26 in a bridged container, and 48 to 64
µs of softirq instead of 31 to 35.

Counters know packets, not requests. So the check shows how often a forwarded packet is processed on its way, and what
each costs in softirq time. It does so when a namespace with NAT rules and a bridge or veth pair forwards packets at a
good rate, or fewer packets that take as much time. That is a fact, not a fault. It is a warning when each packet costs
several times the usual and walks many rules one by one.

Fixes: host network for the hot path, a keep-alive proxy on the host, rules as sets or maps (ipset, nft), kube-proxy
in nftables or IPVS mode. Disproof: the same request from the host path takes as much CPU time.`,
	URL:   "https://wiki.nftables.org/wiki-nftables/index.php/Sets",
	Needs: []metric.Metric{metric.CPUSeconds, metric.SoftnetProcessed, metric.IPForwarded, metric.NATRules},
	Uses:  []metric.Metric{metric.NetfilterRules, metric.DevicePackets},
	Params: []*check.Param{
		bridgeSoftirq, bridgeForwarded, bridgeForwardedCost, bridgePerPacket, evidence.ParamManyRules,
		evidence.ParamRuleCost, evidence.ParamBusyEnough,
	},
	Facts:  []check.Fact{evidence.DearPackets},
	Beyond: "the same load past the bridge",
	Run:    runBridgeNATCost,
}

func runBridgeNATCost(p *check.Pass) error {
	_, all, err := evidence.CPUTimes(p)
	if err != nil {
		return err
	}
	processed, _, ok := evidence.Rise("packets processed", p.Counter(metric.SoftnetProcessed))
	if !ok {
		return evidence.OneSample()
	}
	if processed.Number() == 0 {
		p.Read(processed)
		return nil
	}
	for _, s := range p.Gauge(metric.NATRules) {
		netns := s.Label("netns")
		device := bridgeOrVeth(p, netns)
		forwarded, seconds, twice := evidence.Rise("packets forwarded", p.Counter(metric.IPForwarded, "netns", netns))
		if s.Max() == 0 || device == "" || !twice {
			continue
		}
		rate := forwarded.Per(seconds).Named("packets forwarded in the %s's namespace", netns)
		p.Read(rate)
		if all.Busy().AtLeast(p.Param(evidence.ParamBusyEnough)) && forwardsMuch(p, rate,
			softirqPerPacket(all, processed)) &&
			all.OfBusy("softirq", "softirq").AtLeast(p.Param(bridgeSoftirq)) {
			reportBridge(p, all, processed, forwarded, rate, netns, device)
		}
	}
	return nil
}

// forwardsMuch reports whether many packets are forwarded, or few that cost much.
func forwardsMuch(p *check.Pass, rate, perPacket quantity.Value) bool {
	cost := rate.Times(perPacket).As(quantity.CPUs)
	return rate.AtLeast(p.Param(bridgeForwarded)) || cost.AtLeast(p.Param(bridgeForwardedCost))
}

func softirqPerPacket(all evidence.CPUTime, processed quantity.Value) quantity.Value {
	return all.Time("softirq", "softirq").Per(processed).As(quantity.Seconds).Named("softirq time per packet processed")
}

func reportBridge(p *check.Pass, all evidence.CPUTime, processed, forwarded, rate quantity.Value, netns,
	device string,
) {
	perPacket := softirqPerPacket(all, processed)
	times := processed.Per(forwarded).As("times").Named("times a forwarded packet is processed, at most")
	rules := evidence.ForwardRules(p, netns)
	f := check.Finding{
		Subject:    evidence.NetnsOf(p, netns),
		Severity:   check.Info,
		Confidence: check.Medium,
		Summary: fmt.Sprintf("NAT and %s forward %s: %s of softirq per packet, softirq is %s of busy time", device,
			rate.Text(),
			perPacket.Text(), all.OfBusy("", "softirq").Text()),
		Evidence: []quantity.Value{all.OfBusy("softirq", "softirq"), rate, perPacket, times},
		Remedies: []check.Remedy{{
			Action: "Take the hot path off the bridge: host network for that service, or a keep-alive proxy on the " +
				"host before it.",
			Risk: "Host network gives up the container's own ports and addresses.",
			Effect: "packets processed per request from 26 to 10 and softirq per request by 35 to 45 % less, as " +
				"measured with nginx",
		}},
		Disproof: "The same load against the service on the host network takes the same softirq time per request.",
		Doubts:   []string{"the counters include all packets of the host, so these means include other traffic"},
	}
	if rules.Below(p.Param(evidence.ParamManyRules)) {
		f.Evidence = append(f.Evidence, rules)
	} else {
		evidence.FewerRules(p, &f, rules, perPacket)
		if perPacket.AtLeast(p.Param(bridgePerPacket)) {
			f.Severity = check.Warning
			f.Facts = []check.Fact{evidence.DearPackets}
			f.Remedies[0], f.Remedies[1] = f.Remedies[1], f.Remedies[0]
		}
	}
	p.Report(f)
}

// bridgeOrVeth returns a device whose name is of a kind that container engines and hypervisors give; it is empty when
// there is none.
func bridgeOrVeth(p *check.Pass, netns string) string {
	for _, s := range p.Counter(metric.DevicePackets, "netns", netns) {
		for _, prefix := range []string{
			"docker", "br", "cni", "cbr", "podman", "virbr", "lxcbr", "lxdbr", "veth",
			"cali", "flannel",
		} {
			if strings.HasPrefix(s.Label("device"), prefix) {
				return s.Label("device")
			}
		}
	}
	return ""
}
