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
	paramGivenUpShare = &check.Param{
		Name: "share", Default: 0.05, Unit: quantity.Ratio,
		Why: "of the connections opened: one request in twenty fails, or is asked again",
	}
	paramGivenUpRate = &check.Param{
		Name: "rate", Default: 0.5, Unit: "connections/s",
		Why: "fewer in a window of ten seconds are a client or two that left",
	}
	paramGivenUpAgain = &check.Param{
		Name: "again", Default: 1.5, Unit: "connections/requests",
		Why: "opened for each request to the target: one is enough; here half of the requests are sent twice",
	}
)

var requestsGivenUp = &check.Check{
	Name:  "requests-given-up",
	Stage: check.Connections,
	Doc: `A program gives up waiting for answers, and closes the connection

A time-out shorter than the dependency needs saves nothing: the dependency
works on answers that nobody waits for any more, and a retry asks it once more.
Retries multiply the load just when it is too much, and keep it there.

Measured: the connections that the target opened, as they end. One counts if
the target closed it first, had no answer to what it had sent, and had waited
for a tenth of a second or more. Where the target serves requests itself: how
many connections it opens for each. A client that says good-bye before it
closes, as with TLS, is not counted.

Fix: make the dependency faster or larger, or give it the time it needs; bound
retries by a budget, such as a tenth of the requests, with a pause that grows.
Won't help: more retries, or a shorter time-out.
Disproved if the dependency's own log shows that it answered in time, or the
protocol has no answers.`,
	URL:   "https://sre.google/sre-book/addressing-cascading-failures/",
	Needs: []metric.Metric{metric.RequestsGivenUp, metric.RequestsGivenUpSeconds},
	Uses: slices.Concat(evidence.FlowUses(), []metric.Metric{
		metric.TargetListenPorts, metric.ListenerSegments, metric.TCPPassiveOpens,
	}),
	Params: []*check.Param{paramGivenUpShare, paramGivenUpRate, paramGivenUpAgain},
	Beyond: "the dependency's own log",
	Run:    runRequestsGivenUp,
}

func runRequestsGivenUp(p *check.Pass) error {
	_, window := evidence.FlowSpan(p)
	if window.Number() <= 0 {
		return check.NotAssessed("profile for longer", "connections were counted once only")
	}
	for _, f := range evidence.ClientFlows(p) {
		if n := f.Rise(p, metric.RequestsGivenUp); n > 0 {
			reportGivenUp(p, f, quantity.Of("connections given up", n, quantity.Connections), window)
		}
	}
	return nil
}

func reportGivenUp(p *check.Pass, f evidence.ClientFlow, n, window quantity.Value) {
	rate := n.Per(window).Named("connections closed with an answer outstanding")
	share := n.Per(quantity.Of("connections opened", max(f.Attempts, n.Number()), quantity.Connections)).
		Named("of the connections opened, given up")
	p.Read(share)
	if share.Below(p.Param(paramGivenUpShare)) || rate.Below(p.Param(paramGivenUpRate)) {
		return
	}
	waited := quantity.Of("waited", f.Rise(p, metric.RequestsGivenUpSeconds), quantity.Seconds).
		Per(n).As(quantity.Seconds).Named("time that it waits before, mean")
	out := check.Finding{
		Subject:  check.Subject{Kind: "destination", ID: f.Destination},
		Severity: check.Warning,
		Weight:   share.Number(),
		Summary: fmt.Sprintf("%s gives up %s of its requests to %s after %s, and closes the connection: %s",
			f.Name(), share.Text(), f.Destination, waited.Text(), rate.Text()),
		Evidence: []quantity.Value{share, rate, waited},
		Remedies: []check.Remedy{
			{
				Action: "Find out why " + f.Destination + " takes longer than that, and make it faster or larger; " +
					"until then give it the time it needs.",
				Risk:   "a longer wait holds a thread or a connection for longer",
				Effect: "connections given up fall to 0",
			},
			{
				Action: "Bound retries by a budget, a tenth of the requests or so, with a pause that grows: each " +
					"retry is load for a dependency that is late already.",
				Risk:   "more requests fail at once, and the client sees it",
				Effect: "connections to " + f.Destination + " fall to one for each request",
			},
		},
		Placebos: []string{"more retries", "a shorter time-out: the dependency does the work all the same"},
		Disproof: "the log of " + f.Destination + " shows answers in time, or the protocol has none",
	}
	if again, ok := askedAgain(p, f, window); ok {
		out.Evidence = append(out.Evidence, again)
		out.Summary += fmt.Sprintf("; it asks %s times for each request of its own", evidence.WithoutUnit(again))
		out.Remedies[0], out.Remedies[1] = out.Remedies[1], out.Remedies[0]
	}
	if f.Turns == 0 {
		out.Confidence = check.Medium
		out.Doubts = append(out.Doubts, "no request was answered at all: it may be a protocol without answers")
	}
	p.Report(out)
}

// askedAgain returns how many connections the target opens for each request to itself, if that is more than one.
func askedAgain(p *check.Pass, f evidence.ClientFlow, window quantity.Value) (again quantity.Value, ok bool) {
	requests := evidence.RequestsAtMost(p)
	if requests.Number() <= 0 {
		return again, false
	}
	again = quantity.Of("connections opened", f.Attempts, quantity.Connections).Per(window).
		Per(requests.Per(p.Window())).Named("connections opened for each request of its own, at least")
	return again, again.AtLeast(p.Param(paramGivenUpAgain))
}
