package connections

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramRefusedShare = &check.Param{
		Name: "share", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the connects to the destination: with less, it is there, and restarts or is full at times",
	}
	paramRefusedRate = &check.Param{
		Name: "rate", Default: 2, Unit: "connections/s",
		Why: "a health check, or a client that waits before it tries again, asks once a second or less",
	}
	paramRefusedRequests = &check.Param{
		Name: "requests", Default: 0.1, Unit: "connections/requests",
		Why: "refused connects for each request of a server: one request in ten fails, or goes to another destination",
	}
	paramRefusedElsewhere = &check.Param{
		Name: "elsewhere", Default: 0.5, Unit: quantity.Ratio,
		Why: "connects to the same port of other addresses for each that is refused: the program tries them next, as " +
			"with localhost, which is ::1 and then 127.0.0.1",
	}
)

var connectsRefused = &check.Check{
	Name:  "connects-refused",
	Stage: check.Connections,
	Doc: `A destination refuses connections: nothing listens there, or no route leads there

A refused connect() fails at once (ECONNREFUSED): the destination's kernel
answered the SYN with a reset, because no socket listens on that port, or a
firewall rejects it. EHOSTUNREACH says that no route or no neighbour was found.
The program then fails quickly, tries again, or asks another destination. It
uses little CPU and waits for nothing, so that nothing else looks wrong.

Measured: each connect() of the target and how it ends, by destination. A
warning needs that most of them fail, at a rate above that of a health check.
Of a server, so many must fail for each of its requests that clients notice.
Where the program reaches the same port at another address instead, the finding
is for information.

Fix: start what should listen there, or correct the address, port or firewall.
Won't help: longer time-outs or more retries.
Disproved if something listens there and ss -ltn shows it.`,
	URL:   "https://man7.org/linux/man-pages/man2/connect.2.html",
	Needs: []metric.Metric{metric.ConnectFailures, metric.ConnectAttempts},
	Uses: slices.Concat(evidence.FlowUses(), []metric.Metric{
		metric.TargetListenPorts, metric.ListenerSegments, metric.TCPPassiveOpens,
	}),
	Params: []*check.Param{paramRefusedShare, paramRefusedRate, paramRefusedRequests, paramRefusedElsewhere},
	Run:    runConnectsRefused,
}

// The errors of connect(2) that say that nothing is there, and what they mean.
var refusals = []struct{ code, means string }{
	{"ECONNREFUSED", "nothing listens there, or a firewall rejects it"},
	{"EHOSTUNREACH", "no route or no neighbour leads there"},
}

func runConnectsRefused(p *check.Pass) error {
	_, window := evidence.FlowSpan(p)
	if window.Number() <= 0 {
		return check.NotAssessed("profile for longer", "connections were counted once only")
	}
	flows := evidence.ClientFlows(p)
	most := quantity.Of("connects that are refused", 0, quantity.Connections).Per(window)
	for _, f := range flows {
		for _, r := range refusals {
			n := quantity.Of("connects", f.Failed(p, r.code), quantity.Connections)
			rate := n.Per(window).Named("connects that fail with %s", r.code)
			if rate.Above(most) {
				most = rate
			}
			share := n.Per(quantity.Of("connects tried", max(f.Attempts, n.Number()), quantity.Connections)).
				Named("of the connects to %s that were tried", f.Destination)
			if n.Number() == 0 || share.Below(p.Param(paramRefusedShare)) || rate.Below(p.Param(paramRefusedRate)) {
				continue
			}
			p.Report(refusedFinding(p, f, flows, rate, share, r.code+": "+r.means))
		}
	}
	p.Read(most)
	return nil
}

func refusedFinding(
	p *check.Pass, f evidence.ClientFlow, flows []evidence.ClientFlow, rate, share quantity.Value, reason string,
) check.Finding {
	out := check.Finding{
		Subject:  f.Subject(),
		Severity: check.Warning,
		Weight:   share.Number(),
		Summary: fmt.Sprintf("%s of the connects to %s fail, %s (%s)", share.Text(), f.Destination, rate.Text(),
			reason),
		Evidence: []quantity.Value{share, rate},
		Remedies: []check.Remedy{{
			Action: "Start what should listen at " + f.Destination + ", or correct the address or the firewall. " +
				"Look there what listens.",
			Command: check.Commandf("ss -ltnp %s", "sport = :"+evidence.PortOf(f.Destination)),
			Risk:    "none, the command only reads",
			Effect:  "connects that fail fall to 0",
		}},
		Placebos: []string{"longer time-outs or more retries: the answer comes at once, and is no"},
		Disproof: "ss -ltn on " + evidence.HostOf(f.Destination) + " shows a listener on that port all the time",
	}
	if requests := evidence.RequestsAtMost(p); requests.Number() > 0 {
		each := rate.Per(requests.Per(p.Window())).Named("connects that fail for each request of its own, at least")
		out.Evidence = append(out.Evidence, each)
		out.Weight = min(out.Weight, each.Number())
		if each.Below(p.Param(paramRefusedRequests)) {
			out.Severity = check.Info
		}
	}
	if other, ok := reachedElsewhere(p, f, flows, rate); ok {
		out.Severity = check.Info
		out.Notes = append(out.Notes, "the same port answers at "+other)
	}
	return out
}

// reachedElsewhere returns another address where the same process reaches the same port, if it does so often enough
// to make up for the refused connects.
func reachedElsewhere(
	p *check.Pass, f evidence.ClientFlow, flows []evidence.ClientFlow, refused quantity.Value,
) (address string, ok bool) {
	_, window := evidence.FlowSpan(p)
	best := slices.MaxFunc(flows, func(a, b evidence.ClientFlow) int {
		return cmp.Compare(f.Alternative(a), f.Alternative(b))
	})
	reached := quantity.Of("connects", f.Alternative(best), quantity.Connections).Per(window)
	return best.Destination, reached.Per(refused).AtLeast(p.Param(paramRefusedElsewhere))
}
