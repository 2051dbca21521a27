package connections

import (
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

var (
	paramPileupSockets = &check.Param{
		Name: "sockets", Default: 8, Unit: quantity.Sockets,
		Why: "eight connects at once are a pool that starts, or chance",
	}
	paramPileupFactor = &check.Param{
		Name: "factor", Default: 3, Unit: quantity.Ratio,
		Why: "connect rate × round trip is what must be in SYN_SENT (Little's law); bursts double it, three times " +
			"it is waiting",
	}
	paramPileupRTT = &check.Param{
		Name: "default-rtt", Default: 0.001, Unit: quantity.Seconds,
		Why: "used where no established connection gives one: a millisecond is long inside a data centre",
	}
)

var synSentPileup = &check.Check{
	Name:  "syn-sent-pileup",
	Stage: check.Connections,
	Doc: `Connections pile up in SYN_SENT: a destination does not answer
A connect() waits in SYN_SENT for one round trip. When the SYN or its answer is lost, the kernel sends it again after
1 s, 2 s, 4 s (net/ipv4/tcp_timer.c), so callers see latencies of 1 s and 3 s while the CPU idles.

Measured: the median of SYN_SENT sockets to the destination over the samples, against connect rate × round trip, and
SYN_SENT sockets that have repeated their SYN. A slow path alone (many in SYN_SENT, none repeated) is no finding.

Two causes look alike here: the path drops (firewall, conntrack, a saturated SNAT core, the peer is down), or the
peer's accept queue is full. The peer knows which: if its ListenOverflows rises it is the queue, if not the path. Where
the peer listens in the same namespace, the check looks itself.
Won't help: larger tcp_max_syn_backlog or local port range on this side.
Disproved if the sockets in SYN_SENT change within a round trip (ss -tno state syn-sent shows no timer above 1 s).`,
	URL:   "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/net/ipv4/tcp_timer.c",
	Needs: []metric.Metric{metric.DestinationSockets},
	Uses: append([]metric.Metric{
		metric.SynSentRetrans, metric.TCPSynRetrans, metric.DestinationYoungTW, metric.TCPActiveOpens,
		metric.DestinationRTT, metric.ListenOverflows, metric.ListenerQueue, metric.Sockets, metric.DestinationOwner,
	}, evidence.FlowUses()...),
	Params: []*check.Param{paramPileupSockets, paramPileupFactor, paramPileupRTT},
	Run:    runSynSentPileup,
}

// A pileup is the SYN_SENT sockets to one destination from all local addresses.
type pileup struct {
	destination string
	paths       []*evidence.ClientPath
	waiting     float64 // median over the samples
	open        float64 // established, mean
}

func runSynSentPileup(p *check.Pass) error {
	if !p.Recorded(metric.SynSentRetrans) && !p.Recorded(metric.TCPSynRetrans) {
		reason, remedy := p.Why(metric.SynSentRetrans)
		return check.NotAssessed(remedy, "no SYN retransmits were recorded, and SYN_SENT alone may be a slow path: %s",
			reason)
	}
	top := quantity.Of("sockets in SYN_SENT to any destination", 0, quantity.Sockets)
	for _, u := range pileups(p) {
		waiting := quantity.Of("sockets in SYN_SENT to "+u.destination, u.waiting, quantity.Sockets)
		if waiting.Above(top) {
			top = waiting
		}
		expected, doubts := u.expected(p)
		again, ok := u.repeating(p)
		if waiting.Above(p.Param(paramPileupSockets)) && ok &&
			waiting.Above(expected.Times(p.Param(paramPileupFactor))) {
			p.Report(pileupFinding(p, u, waiting, expected, again, doubts))
		}
	}
	p.Read(top)
	return nil
}

func pileups(p *check.Pass) []pileup {
	by := map[string]*pileup{}
	var order []string
	for _, c := range evidence.ClientPaths(p) {
		u := by[c.Destination]
		if u == nil {
			u = &pileup{destination: c.Destination}
			by[c.Destination] = u
			order = append(order, c.Destination)
		}
		u.paths = append(u.paths, c)
	}
	var out []pileup
	for _, d := range order {
		u := by[d]
		row := make([]float64, len(u.paths[0].Times))
		for _, c := range u.paths {
			for i := range row {
				row[i] += c.At(evidence.SynSent, i)
			}
			u.open += series.Mean(c.Count(evidence.Established))
		}
		u.waiting = series.Median(row)
		out = append(out, *u)
	}
	return out
}

// expected returns how many sockets in SYN_SENT the connect rate and the round trip account for.
func (u pileup) expected(p *check.Pass) (quantity.Value, []string) {
	var doubts []string
	rtt, ok := evidence.DestinationRTT(p, u.destination)
	if !ok {
		rtt = p.Param(paramPileupRTT).Named("round trip, assumed")
		doubts = append(doubts, fmt.Sprintf("no established connection gave a round trip, %s is assumed", rtt.Text()))
	}
	return u.connectRate(p).Times(rtt).As(quantity.Sockets).
		Named("sockets in SYN_SENT expected, connect rate × round trip"), doubts
}

// connectRate returns the connections per second to the destination: those this side closed, or the namespace's
// connect() calls times the destination's share of client-side sockets, if that is more.
func (u pileup) connectRate(p *check.Pass) quantity.Value {
	if evidence.FlowsSeen(p) { // each connect was counted
		_, window := evidence.FlowSpan(p)
		n := evidence.FlowRise(p, metric.ConnectAttempts, u.destination)
		return quantity.Of("connects", n, quantity.Connections).Per(window).Named("connect rate")
	}
	closed, mine, all := 0.0, 0.0, 0.0
	for _, c := range u.paths {
		closed += series.Mean(c.Young)
	}
	for _, c := range evidence.ClientPaths(p) {
		n := series.Mean(c.Each(c.Total))
		all += n
		if c.Destination == u.destination {
			mine += n
		}
	}
	rate := closed
	if opens, ok := evidence.MaybeNetRise(p, metric.TCPActiveOpens, ""); ok && all > 0 {
		rate = max(rate, opens.PerSecond()*mine/all)
	}
	return quantity.Of("connect rate", rate, "connections/s")
}

// repeating returns the sign of harm: sockets that sent their SYN again, else the namespace's counter.
func (u pileup) repeating(p *check.Pass) (quantity.Value, bool) {
	if p.Recorded(metric.SynSentRetrans) {
		n := 0.0
		for _, s := range p.Gauge(metric.SynSentRetrans, "destination", u.destination) {
			n = s.Max()
		}
		return quantity.Of("of these sent their SYN again, at most", n, quantity.Sockets), n > 0
	}
	r, ok := evidence.MaybeNetRise(p, metric.TCPSynRetrans, "SYN retransmits in the namespace")
	if !ok {
		return quantity.Value{}, false
	}
	return r.Rate(), r.N.Number() > 0
}

func pileupFinding(p *check.Pass, u pileup, waiting, expected, again quantity.Value, doubts []string) check.Finding {
	f := check.Finding{
		Subject:  check.Subject{Kind: "destination", ID: u.destination},
		Severity: check.Warning,
		Evidence: []quantity.Value{waiting, expected, again, quantity.Of("established, mean", u.open,
			quantity.Sockets)},
		Notes: []string{
			evidence.OwnersOf(p, u.destination),
			"callers wait 1 s for the first repeat of a lost SYN and 1 + 2 = 3 s for the second",
		},
		Placebos: []string{"tcp_max_syn_backlog, somaxconn or the port range on this side: the answer is missing, " +
			"not room here"},
		Disproof: "ss -tno state syn-sent shows no timer beyond a round trip, or connect latency has no steps at 1 " +
			"s and 3 s",
		Doubts: doubts,
	}
	if again.Unit() == quantity.Sockets && 2*again.Number() >= waiting.Number() {
		f.Severity = check.Critical // most callers have waited a second already
		f.Doubts = nil              // no round trip is that long, so the assumed one does not matter
	}
	if len(f.Doubts) > 0 || again.Unit() != quantity.Sockets {
		f.Confidence = check.Medium
	}
	if again.Unit() != quantity.Sockets {
		f.Doubts = append(f.Doubts, "SYN retransmits are the whole namespace's, not this destination's")
	}
	if evidence.FlowsSeen(p) {
		_, window := evidence.FlowSpan(p)
		syns := quantity.Of("retransmitted SYNs", evidence.FlowRise(p, metric.FlowRetransmits, u.destination, "kind",
			"syn"), quantity.Segments)
		connects := quantity.Of("connects", evidence.FlowRise(p, metric.ConnectAttempts, u.destination),
			quantity.Connections)
		f.Evidence = append(f.Evidence, syns.Per(window).Named("retransmitted SYNs to it"), connects.Per(window).
			Named("connects to it"))
	}
	cause, remedies := u.cause(p)
	f.Summary = fmt.Sprintf("%.0f sockets in SYN_SENT (rate × round trip: %s)%s: %s", waiting.Number(),
		fewOrRounded(expected.Number()), repeatText(again), cause)
	f.Remedies = remedies
	evidence.Gone(p, &f, check.Resent)
	evidence.Gone(p, &f, check.FailedConnect)
	return f
}

func fewOrRounded(n float64) string {
	if n < 1 {
		return "less than 1"
	}
	return fmt.Sprintf("%.0f", n)
}

func repeatText(again quantity.Value) string {
	if again.Unit() != quantity.Sockets {
		return "" // the counter is the namespace's
	}
	return fmt.Sprintf(", %.0f repeat their SYN", again.Number())
}

// cause separates the path from the peer's queue where this recording can.
func (u pileup) cause(p *check.Pass) (string, []check.Remedy) {
	over, seen := evidence.MaybeNetRise(p, metric.ListenOverflows, "")
	local := u.listenerHere(p)
	if local && seen && over.N.Number() > 0 {
		return "the peer's accept queue is full", []check.Remedy{{
			Action: "fix the listener, which is in this namespace: see accept-queue-overflow",
			Risk:   "see there",
			Effect: "SYN_SENT falls to rate × round trip",
		}}
	}
	switch {
	case local && seen:
		return "SYNs are lost, not by the listener's queue", pathRemedies(p, u)
	case u.open == 0: // a full accept queue has let its backlog through before
		return "none is established: path, or peer down", pathRemedies(p, u)
	}
	return "path or peer's queue", pathRemedies(p, u)
}

func pathRemedies(p *check.Pass, u pileup) []check.Remedy {
	return []check.Remedy{{
		Action: "look on " + evidence.HostOf(u.destination) + " whether its accept queue overflows; " +
			"if ListenOverflows stands still there while SYN_SENT is high here, the path loses the SYNs",
		Command: "nstat -az TcpExtListenOverflows TcpExtListenDrops; ss -ltn",
		Risk:    "none, it only reads",
		Effect: "names which side to fix: the peer's accept loop and backlog, or firewall, conntrack, SNAT and " +
			"routes on the way",
	}, {
		Action: "follow one SYN along the path (tcpdump on both ends and at each hop that filters or translates)",
		Command: evidence.InNetNS(p, check.Commandf("tcpdump -ni any -c 100 %s",
			fmt.Sprintf("tcp[tcpflags] & tcp-syn != 0 and host %s and port %s", evidence.HostOf(u.destination),
				evidence.PortOf(u.destination)))),
		Risk:   "costs CPU on a busy link: it ends after 100 packets",
		Effect: "shows the hop after which the SYN is missing",
	}}
}

// listenerHere reports whether the destination is a listener of the same namespace.
func (u pileup) listenerHere(p *check.Pass) bool {
	host, port := evidence.HostOf(u.destination), evidence.PortOf(u.destination)
	here := evidence.IsLoopback(host) || slices.ContainsFunc(u.paths,
		func(c *evidence.ClientPath) bool { return c.Source == host })
	for _, s := range p.Gauge(metric.ListenerQueue) {
		l := s.Label("listener")
		if evidence.PortOf(l) == port && (evidence.HostOf(l) == host || here) {
			return true
		}
	}
	return false
}
