package connections

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramUDPRate = &check.Param{
		Name: "drops", Default: 1, Unit: "packets/s",
		Why: "each is a question without an answer, or a number that is missing; one a second is more than a hiccup " +
			"of the reader",
	}
	paramUDPShare = &check.Param{
		Name: "share", Default: 0.001, Unit: quantity.Ratio,
		Why: "of the datagrams that came: a resolver's client asks again after 5 s (resolv.conf(5)), so a thousandth " +
			"adds 5 ms to the mean",
	}
	paramUDPFull = &check.Param{
		Name: "full", Default: 0.9, Unit: quantity.CPUs,
		Why: "of a CPU that a thread uses: it has no time left to read",
	}
	paramUDPBehind = &check.Param{
		Name: "behind", Default: 0.8, Unit: quantity.Ratio,
		Why: "of the looks found datagrams that wait: between bursts a reader that keeps up empties its socket",
	}
)

var udpDrops = &check.Check{
	Name:  "udp-drops",
	Stage: check.Connections,
	Doc: `A UDP socket loses datagrams

Nothing slows a sender of UDP down. What comes while the socket's receive
buffer is full is thrown away: a resolver's questions time out, a collector of
metrics counts too little.

Measured: the datagrams that the socket lost in the window (sk_drops), beside
those that programs of its network namespace read, at other sockets, too; and
how often some waited in it. If some nearly always did, or a thread of the
target is full, the reader is too slow. Else bursts are longer than the buffer.
What a filter of the socket drops is lost on purpose: no buffer was full then
(RcvbufErrors).

Fix: a reader that is too slow needs less work for each datagram, or more readers
(SO_REUSEPORT, a socket for each); bursts need a longer buffer (SO_RCVBUF, up to
net.core.rmem_max). Won't help: a longer buffer for a reader that is too slow; it
is full again after a moment, and what is read is older. Disproof: the column
drops of /proc/net/udp stands still under the same load.`,
	URL:   "https://man7.org/linux/man-pages/man7/udp.7.html",
	Needs: []metric.Metric{metric.UDPDrops},
	Uses: []metric.Metric{
		metric.UDPQueue, metric.UDPInDatagrams, metric.UDP6InDatagrams, metric.UDPReceiveBufErrors, metric.ThreadCPU,
		metric.ThreadRunDelay,
	},
	Params: []*check.Param{paramUDPRate, paramUDPShare, paramUDPBehind, paramUDPFull},
	Run:    runUDPDrops,
}

func runUDPDrops(p *check.Pass) error {
	p.Read(quantity.Of("datagrams lost by UDP sockets", 0, "packets/s"))
	reads := quantity.Of("datagrams read a second", 0, paramUDPRate.Unit)
	for _, c := range []*metric.Counter{metric.UDPInDatagrams, metric.UDP6InDatagrams} {
		if read, ok := evidence.MaybeNetRise(p, c, "datagrams read"); ok {
			reads = reads.Plus(read.Rate().As(paramUDPRate.Unit))
		}
	}
	full, counted := evidence.MaybeNetRise(p, metric.UDPReceiveBufErrors, "datagrams that met a full buffer")
	for _, s := range p.Counter(metric.UDPDrops) {
		n, ok := s.Increase()
		over4 := !strings.HasPrefix(s.Label("listener"), "[")
		if !ok || n == 0 || over4 && counted && full.N.Number() == 0 { // a filter of the socket took them
			continue
		}
		lost := quantity.Of("datagrams lost", n, quantity.Packets)
		rate := lost.Per(evidence.Span(s.Series)).As(paramUDPRate.Unit).Named("datagrams lost a second")
		p.Read(rate)
		if rate.Below(p.Param(paramUDPRate)) {
			continue
		}
		share := rate.Per(rate.Plus(reads).Named("lost or read")).As(quantity.Ratio).
			Named("lost, share of the datagrams that came, at least")
		p.Read(share)
		if share.AtLeast(p.Param(paramUDPShare)) {
			p.Report(udpFinding(p, s, rate, share))
		}
	}
	return nil
}

func udpFinding(p *check.Pass, s recording.CounterSeries, rate, share quantity.Value) check.Finding {
	address := s.Label("listener")
	who := "a program"
	if pid := s.Label("pid"); pid != "" {
		who = "pid " + evidence.PIDName(pid, s.Label("comm"))
	}
	behind, queue := udpQueue(p, s)
	f := check.Finding{
		Subject:  check.Subject{Kind: "listener", ID: "udp:" + address},
		Severity: check.Warning,
		Weight:   min(share.Number(), 1),
		Summary: fmt.Sprintf("the UDP socket of %s at %s loses %s and more of the datagrams that come to it, %s: its "+
			"receive buffer is full", who, address, share.Text(), rate.Text()),
		Evidence: []quantity.Value{rate, share, behind, queue},
		Disproof: "the column drops of /proc/net/udp stands still under the same load",
	}
	faster := check.Remedy{
		Action: "let it read faster: less work between two datagrams, or more sockets at the port, each with a " +
			"reader of its own (SO_REUSEPORT, workers, threads)",
		Risk:   "datagrams are worked on at the same time, and in no order",
		Effect: "nothing is lost once it reads as fast as datagrams come",
	}
	longer := check.Remedy{
		Action:  "give the socket a longer receive buffer (SO_RCVBUF, so-rcvbuf), below net.core.rmem_max",
		Command: evidence.InNetNS(p, "sysctl -w net.core.rmem_max=8388608"),
		Risk:    "up to that much kernel memory for each socket; what waits longer is older when it is read",
		Effect:  "a burst that fits into it is read instead of lost",
	}
	switch full := evidence.FullThreads(p, p.Param(paramUDPFull), p.Param(paramUDPFull)); {
	case len(full) > 0:
		f.Summary += ", and " + full[0].FullText()
		f.Evidence = append(f.Evidence, full[0].Use)
	case behind.AtLeast(p.Param(paramUDPBehind)):
		f.Summary += "; it hardly ever empties it, so it reads too slowly"
	default:
		f.Summary += " in bursts"
		f.Remedies = []check.Remedy{longer, faster}
		return f
	}
	f.Remedies = []check.Remedy{faster}
	f.Placebos = []string{
		"a longer receive buffer: it is full again after a moment, and what is read is older",
	}
	return f
}

// udpQueue returns how often datagrams waited in the socket, and how much memory they took at most.
func udpQueue(p *check.Pass, s recording.CounterSeries) (behind, most quantity.Value) {
	var looks []recording.Point
	for _, g := range p.Gauge(metric.UDPQueue, "listener", s.Label("listener"), "pid", s.Label("pid")) {
		looks = append(looks, g.Points...)
	}
	waited, largest := 0, recording.Point{}
	for _, at := range looks {
		if at.Value > 0 {
			waited++
		}
	}
	if len(looks) > 0 {
		largest = slices.MaxFunc(looks, func(a, b recording.Point) int { return cmp.Compare(a.Value, b.Value) })
	}
	behind = quantity.Of("looks that found some waiting", float64(waited), "looks").
		Per(quantity.Of("looks", float64(max(len(looks), 1)), "looks")).As(quantity.Ratio).
		Named("of the looks found datagrams that wait")
	return behind, quantity.Of("memory of those that wait, at most", largest.Value, quantity.Bytes)
}
