package evidence

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// busiestReceiver returns the device of a namespace that received most packets, except loopback.
func busiestReceiver(p *check.Pass, netns string) (device string) {
	most := 0.0
	for _, s := range p.Counter(metric.DevicePackets, "netns", netns, "direction", "receive") {
		if n, ok := s.Increase(); ok && n > most && s.Label("device") != "lo" {
			most, device = n, s.Label("device")
		}
	}
	return device
}

// HostNetNS returns the value of the netns label for the namespace with the real devices.
func HostNetNS(p *check.Pass) string {
	if p.Meta.Target.OwnNetNS {
		return metric.NetNSHost
	}
	return metric.NetNSTarget
}

// SpreadReceive returns the remedy for packets that arrive on one CPU: receive packet steering
// (Documentation/networking/scaling.rst).
func SpreadReceive(p *check.Pass, netns string, hot CPUTime, each []CPUTime, all CPUTime) check.Remedy {
	device := busiestReceiver(p, netns)
	action := "Spread the receive work over more CPUs with receive packet steering (RPS), or with more hardware " +
		"queues (ethtool -L)"
	if device == "" {
		device = "DEVICE"
	} else {
		action += ", on " + device
	}
	if netns == metric.NetNSTarget && p.Meta.Target.OwnNetNS {
		action += " inside the target's network namespace, whose /sys must be mounted there"
	}
	if now := steering(p, device); now != "" {
		action += "; its queue is steered to CPU " + now + " now"
	}
	spread := all.Softirq()
	return check.Remedy{
		Action: action + ".",
		Command: check.Commandf("echo %s > /sys/class/net/%s/queues/rx-0/rps_cpus", cpuMask(steerTo(hot, each)),
			device),
		Risk: "Packets cost an interrupt between CPUs more; flows stay in order. One single flow stays on one CPU.",
		Effect: fmt.Sprintf("softirq of %s from %s towards %s, the mean of %d CPUs", hot.Name(), hot.Softirq().Text(),
			spread.Text(), len(each)),
	}
}

// steering returns the CPUs that a device's first steered queue goes to; empty if steering is off or not recorded.
func steering(p *check.Pass, device string) string {
	for _, s := range p.Info(metric.QueueRPS, "device", device) {
		if cpus := s.Label("cpus"); cpus != "" {
			return cpus
		}
	}
	return ""
}

// steerTo leaves out the hot CPU if at least two others can share its work: it may have to keep the device's
// interrupts.
func steerTo(hot CPUTime, each []CPUTime) []int {
	var out []int
	for _, t := range each {
		if t.ID != hot.ID || len(each) < 3 {
			out = append(out, t.number())
		}
	}
	return out
}

// cpuMask formats CPUs as the kernel's bitmap files take them: hexadecimal words of 32 CPUs, the highest first
// (lib/bitmap.c).
func cpuMask(cpus []int) string {
	words := []uint32{0}
	for _, c := range cpus {
		if c < 0 {
			continue
		}
		for len(words) <= c/32 {
			words = append(words, 0)
		}
		words[c/32] |= 1 << (c % 32)
	}
	parts := []string{strconv.FormatUint(uint64(words[len(words)-1]), 16)}
	for i := len(words) - 2; i >= 0; i-- {
		parts = append(parts, fmt.Sprintf("%08x", words[i]))
	}
	return strings.Join(parts, ",")
}

// BacklogPlacebo is reported wherever a core is too slow: a longer queue in front of it drops later, not less.
const BacklogPlacebo = "A bigger net.core.netdev_max_backlog turns the drops of a slow core into delay: with 20000 " +
	"instead of 1000 " +
	"a measured round trip rose from 84 to 218 ms; the core is no faster."

// SoftnetOn returns the packets that a CPU processed and the packets that its backlog dropped.
func SoftnetOn(p *check.Pass, cpu string) (processed, dropped quantity.Value, ok bool) {
	processed, _, ok = Rise("packets processed", p.Counter(metric.SoftnetProcessed, "cpu", cpu))
	dropped, _, _ = Rise("packets dropped", p.Counter(metric.SoftnetDropped, "cpu", cpu))
	return processed, dropped.As(quantity.Packets), ok
}

// ForwardRules adds up the rules that a forwarded packet can meet in a namespace.
func ForwardRules(p *check.Pass, netns string) quantity.Value {
	n := 0.0
	for _, hook := range []string{"prerouting", "forward", "postrouting"} {
		for _, s := range p.Gauge(metric.NetfilterRules, "netns", netns, "hook", hook) {
			n += s.Max()
		}
	}
	label := "rules on a forwarded packet's way (prerouting, forward, postrouting)"
	if rulesPartlyRead(p) {
		label += ", at least"
	}
	return quantity.Of(label, n, quantity.Rules)
}

// rulesPartlyRead reports whether there are more rules than were counted, because reading all would take longer than
// a sample may.
func rulesPartlyRead(p *check.Pass) bool {
	return len(p.Losses([]metric.Metric{metric.NetfilterRules})) > 0
}

// ParamRuleCost is what one linear rule costs a packet that does not match it.
var ParamRuleCost = &check.Param{
	Name: "rule-cost", Default: 2.8e-9, Unit: quantity.Seconds,
	Why: "measured on kernel 6.18: 20,000 nftables rules walked one after another cost 50 to 60 µs a packet",
}

// ParamManyRules is the number of rules from which on walking them is worth changing.
var ParamManyRules = &check.Param{
	Name: "many-rules", Default: 100, Unit: quantity.Rules,
	Why: "fewer cost a packet less than 0.3 µs, a tenth of its way through the stack",
}

// FewerRules adds the rules' part of a packet's cost, and the remedy, if there are many rules.
func FewerRules(p *check.Pass, f *check.Finding, rules, perPacket quantity.Value) {
	if rules.Below(p.Param(ParamManyRules)) {
		return
	}
	which, walked := "the "+rules.Text(), "the rules"
	if rulesPartlyRead(p) {
		which, walked = fmt.Sprintf("the rules, of which %.0f were read in time,", rules.Number()),
			"those that were read"
	}
	cost := rules.Times(p.Param(ParamRuleCost)).As(quantity.Seconds).Named("time to walk %s, estimated", walked)
	f.Evidence = append(f.Evidence, rules, cost)
	f.Remedies = append(f.Remedies, check.Remedy{
		Action: fmt.Sprintf("Replace %s by lookups in a set or map, and accept established connections first.", which),
		Command: "nft insert rule inet filter forward ct state established,related accept; " +
			"iptables: ipset, and the same rule first",
		Risk: "The order of rules decides what is let through: test the new set on a copy of the rules.",
		Effect: fmt.Sprintf("softirq time per packet from %s to a few µs, as walking %s is estimated at %s",
			perPacket.Text(), walked, cost.Text()),
	})
}

// PacketWindow returns the longest time that packet counters cover.
func PacketWindow(p *check.Pass) quantity.Value {
	_, seconds, _ := Rise("", p.Counter(metric.SoftnetProcessed))
	return seconds
}
