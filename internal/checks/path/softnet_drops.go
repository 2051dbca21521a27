package path

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	softnetShare = &check.Param{
		Name: "drop-share", Default: 0.001, Unit: quantity.Ratio,
		Why: "TCP halves its speed at losses of this order (its rate falls with the square root of loss)",
	}
	softnetCritical = &check.Param{
		Name: "drop-share-critical", Default: 0.01, Unit: quantity.Ratio,
		Why: "at one packet in a hundred most requests of several packets meet a retransmission",
	}
	softnetLeast = &check.Param{
		Name: "least-drops", Default: 10, Unit: quantity.Packets,
		Why: "fewer in the whole window are one burst",
	}
	softnetSustained = &check.Param{
		Name: "sustained-rate", Default: 1, Unit: "packets/s",
		Why: "a drop each second, interval after interval, is a queue that does not drain",
	}
	softnetIntervals = &check.Param{
		Name: "sustained-intervals", Default: 3, Unit: "intervals",
		Why: "two could be one burst across a sample",
	}
	softnetBurst = &check.Param{
		Name: "slow-core", Default: 0.5, Unit: quantity.Ratio,
		Why: "a CPU with less softirq than this drains its backlog well on average: its drops are bursts, not slowness",
	}
	softnetSqueeze = &check.Param{
		Name: "squeezes", Default: 100, Unit: evidence.Hz,
		Why: "a squeezed run lasts up to 2 ticks, 8 ms at 250 Hz: 100 a second means it is cut short most of the time",
	}
)

var softnetDrops = &check.Check{
	Name:  "softnet-drops",
	Stage: check.Path,
	Doc: `A CPU's packet backlog is full

Packets of veth pairs, loopback, tunnels and receive packet steering wait in a per-CPU backlog of
net.core.netdev_max_backlog packets. When the CPU is too slow the backlog fills and further packets are dropped
(net/core/dev.c enqueue_to_backlog), counted on the CPU that should have processed them.

The check takes the drops of each CPU over the window against the packets it was given. It warns at one in a thousand,
or at drops that go on interval after interval. time_squeeze is not a loss: net_rx_action ran out of budget and came
back.

Fix: the CPU (spread the packets, make each cheaper). A longer backlog only helps when the CPU has time to spare and
drops come in bursts; before a slow CPU it turns loss into delay. Disproof: the second column of
/proc/net/softnet_stat does not rise.`,
	URL:   "https://docs.kernel.org/admin-guide/sysctl/net.html#netdev-max-backlog",
	Needs: []metric.Metric{metric.SoftnetDropped, metric.SoftnetProcessed},
	Uses: []metric.Metric{
		metric.SoftnetSqueezed, metric.CPUSeconds, metric.NetdevMaxBacklog, metric.QueueRPS,
		metric.DevicePackets,
	},
	Params: []*check.Param{
		softnetShare, softnetCritical, softnetLeast, softnetSustained, softnetIntervals, softnetBurst, softnetSqueeze,
	},
	Run: runSoftnetDrops,
}

func runSoftnetDrops(p *check.Pass) error {
	dropped, ok := evidence.RateOf("packets dropped before a CPU, all CPUs", p.Counter(metric.SoftnetDropped))
	if !ok {
		return evidence.OneSample()
	}
	p.Read(dropped)
	for _, s := range p.Counter(metric.SoftnetDropped) {
		if n, twice := s.Increase(); twice && n > 0 {
			reportSoftnetDrops(p, s)
		}
	}
	if dropped.Number() == 0 {
		reportSqueezes(p)
	}
	return nil
}

func reportSoftnetDrops(p *check.Pass, s recording.CounterSeries) {
	cpu := s.Label("cpu")
	processed, dropped, ok := evidence.SoftnetOn(p, cpu)
	if !ok {
		return
	}
	share := dropped.Per(processed.Plus(dropped)).Named("share of CPU %s's packets dropped", cpu)
	rate := dropped.Per(evidence.PacketWindow(p)).Named("packets dropped before CPU %s", cpu)
	intervals, of := evidence.IntervalsAtLeast(p.Param(softnetSustained).Number(), []recording.CounterSeries{s})
	f := check.Finding{
		Subject:  evidence.CPUSubject(cpu),
		Severity: softnetSeverity(p, share, dropped, intervals),
		Summary: fmt.Sprintf("CPU %s drops %s, %s of its packets: its backlog overflows", cpu, rate.Text(),
			share.Text()),
		Evidence: []quantity.Value{rate, share},
		Notes:    []string{fmt.Sprintf("drops in %d of %d intervals", intervals, of)},
		Disproof: "awk '{print $2}' /proc/net/softnet_stat (hexadecimal, a line per CPU) does not rise while the " +
			"load runs.",
	}
	addBacklog(p, &f, cpu, processed)
	p.Report(f)
}

func softnetSeverity(p *check.Pass, share, dropped quantity.Value, intervals int) check.Severity {
	lasting := quantity.Of("intervals with drops", float64(intervals), softnetIntervals.Unit).
		AtLeast(p.Param(softnetIntervals))
	switch {
	case dropped.Below(p.Param(softnetLeast)):
		return check.Info
	case share.AtLeast(p.Param(softnetCritical)):
		return check.Critical
	case share.AtLeast(p.Param(softnetShare)) || lasting:
		return check.Warning
	}
	return check.Info
}

// addBacklog adds what the CPU's softirq time says: a slow core needs help, a core with time to spare had a burst.
func addBacklog(p *check.Pass, f *check.Finding, cpu string, processed quantity.Value) {
	each, all, err := evidence.CPUTimes(p)
	t, ok := evidence.CPUOf(each, cpu)
	if err != nil || !ok || processed.Number() == 0 {
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "the CPU's softirq time is not known: whether it is too slow or met a burst "+
			"cannot be told")
		f.Placebos = []string{evidence.BacklogPlacebo}
		return
	}
	perPacket := t.Time("softirq", "softirq").Per(processed).As(quantity.Seconds).Named("softirq time per packet")
	f.Evidence = append(f.Evidence, t.Softirq())
	backlog := p.Gauge(metric.NetdevMaxBacklog)
	if len(backlog) > 0 {
		f.Evidence = append(f.Evidence, quantity.Of("netdev_max_backlog", backlog[0].Last(), quantity.Packets).
			Times(perPacket).As(quantity.Seconds).Named("delay of a full backlog"))
	}
	if t.Softirq().Below(p.Param(softnetBurst)) && len(backlog) > 0 {
		f.Remedies = []check.Remedy{longerBacklog(backlog[0].Last(), perPacket)}
		return
	}
	f.Remedies = []check.Remedy{evidence.SpreadReceive(p, evidence.HostNetNS(p), t, each, all)}
	f.Placebos = []string{evidence.BacklogPlacebo}
}

func longerBacklog(now float64, perPacket quantity.Value) check.Remedy {
	// Four times: bursts are seldom longer, and the delay stays four times one full backlog.
	want := quantity.Of("", 4*now, quantity.Packets)
	return check.Remedy{
		Action:  "The CPU has time to spare, so the drops are bursts: let the backlog hold one.",
		Command: check.Commandf("sysctl -w net.core.netdev_max_backlog=%.0f", want.Number()),
		Risk: fmt.Sprintf("The last packet of a full backlog then waits %s.", want.Times(perPacket).
			As(quantity.Seconds).Text()),
		Effect: "drops towards 0; if softirq then goes to 100 %, the CPU is too slow after all",
	}
}

func reportSqueezes(p *check.Pass) {
	for _, s := range p.Counter(metric.SoftnetSqueezed) {
		rate, ok := evidence.RateOf("net_rx_action cut short", []recording.CounterSeries{s})
		if !ok || rate.Below(p.Param(softnetSqueeze)) {
			continue
		}
		p.Report(check.Finding{
			Subject:  evidence.CPUSubject(s.Label("cpu")),
			Severity: check.Info,
			Summary: fmt.Sprintf("CPU %s runs out of packet budget %s times a second; nothing was dropped",
				s.Label("cpu"), evidence.WithoutUnit(rate)),
			Evidence: []quantity.Value{rate},
			Remedies: []check.Remedy{{
				Action: "None is needed while nothing is dropped. Spreading packets over CPUs helps more than a " +
					"larger budget.",
				Risk:   "A larger net.core.netdev_budget lets packets keep programs off the CPU for longer.",
				Effect: "fewer squeezes; latency moves from packets to programs",
			}},
			Disproof: "The third column of /proc/net/softnet_stat does not rise.",
		})
	}
}
