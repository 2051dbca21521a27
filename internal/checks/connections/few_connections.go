package connections

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

var (
	paramFewRequest = evidence.RequestSeconds()
	paramFewUsed    = &check.Param{
		Name: "used", Default: 0.4, Unit: quantity.Ratio,
		Why: "of the connections wait for an answer; a proxy keeps a spare one open, and where connections are used " +
			"less, nobody waits for one",
	}
	paramFewQueued = &check.Param{
		Name: "queued", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the requests in progress: where most of them are under way, the destination's time is what matters",
	}
	paramFewBusy = &check.Param{
		Name: "busy", Default: 0.5, Unit: quantity.CPUs,
		Why: "an event loop that computes for half of the time answers late because of that",
	}
)

var fewConnections = &check.Check{
	Name:  "few-connections",
	Stage: check.Connections,
	Doc: `Requests wait for one of a few connections to what they need

A proxy or a pool of connections asks a destination only so many things at once.
Where more come in, they wait inside the program, and the destination is not
even asked: maxconn of a server in HAProxy, default_pool_size of PgBouncer, a
limit of the client's pool.

Measured: the requests in progress, by the sockets of clients without an
answer, and the program's connections to destinations that it asks meanwhile.
If each connection has one request at a time, no more can be under way. The
connections must be in use: a good part of them wait for an answer, or their
session of PostgreSQL is in a transaction that asks nothing. If each has a
thread that waits for its answer, and no other thread waits for one, requests
wait for a thread: that is waiting-on-backend.

Fix: more connections, as many as the destination can serve at once. Won't help:
more threads or CPUs here; they wait for a connection, too. Disproof: several
requests share a connection (HTTP/2, gRPC, pipelining), or the destination is
slower with more of them.`,
	URL:   "https://docs.haproxy.org/2.8/configuration.html#5.2-maxconn",
	Needs: []metric.Metric{metric.DestinationData, metric.DestinationSockets},
	Uses: append([]metric.Metric{
		metric.DestinationOwner, metric.DestinationAsked, metric.DatabaseSessionTime,
	}, append(evidence.StackMetrics(), evidence.RequestMetrics()...)...),
	Params: []*check.Param{
		paramFewRequest, paramFewUsed, paramFewQueued, paramFewBusy,
	},
	Beyond: "the protocol on the connections, or more of them",
	Run:    runFewConnections,
}

func runFewConnections(p *check.Pass) error {
	if _, known := evidence.Serves(p); !known {
		return check.NotAssessed("name a process", "whose requests these are is known only for a target")
	}
	l, ok := evidence.LedgerOf(p)
	if !ok {
		return check.NotAssessed("profile for longer", "the states of threads were looked at in no pass")
	}
	if err := evidence.EnoughLooks(p); err != nil {
		return err
	}
	r, ok := evidence.RequestsOf(p)
	p.Read(quantity.Of("requests without an answer, mean", r.InProgress.Number(), "requests"))
	if !ok || r.Each.Below(p.Param(paramFewRequest)) || computes(l).AtLeast(p.Param(paramFewBusy)) {
		return nil
	}
	open, most := openOf(p)
	if most == "" || evidence.ShortOfThreads(p, l) {
		return nil
	}
	share := quantity.Of("more than connections", r.InProgress.Number()-open.Number(), "requests").Per(r.InProgress).
		Named("requests that wait inside the program, at least")
	lent := lentOf(p)
	used := evidence.AskingConnections(p).Plus(lent).Per(open).As(quantity.Ratio).
		Named("share of these that wait for an answer, or are in a transaction")
	p.Read(share)
	p.Read(used)
	if share.AtLeast(p.Param(paramFewQueued)) && used.AtLeast(p.Param(paramFewUsed)) {
		f := fewFinding(p, r, most, open, used, share)
		if 2*lent.Number() >= open.Number() {
			lentToClients(&f, lent)
		}
		evidence.NameFunction(p, &f, queueOf(l))
		evidence.WithoutThreads(p, &f, r.InProgress.Number()-open.Number())
		p.Report(f)
	}
	return nil
}

// lentOf returns how many of the target's connections to a database are, at any moment, in a transaction that asks
// nothing: a pooler has lent them to clients, and can give them to nobody else.
func lentOf(p *check.Pass) quantity.Value {
	seconds := 0.0
	for _, s := range p.Gauge(metric.DatabaseSessionTime) {
		if strings.HasPrefix(s.Label("state"), "idle in transaction") {
			seconds += s.Last()
		}
	}
	return quantity.Of("connections in a transaction that asks nothing, mean", seconds/max(p.Meta.Duration, 1),
		quantity.Connections)
}

// lentToClients says that the connections are taken by transactions whose clients do something else.
func lentToClients(f *check.Finding, lent quantity.Value) {
	f.Summary += fmt.Sprintf("; %s are in transactions that ask nothing meanwhile", lent.Text())
	f.Evidence = append(f.Evidence, lent)
	f.Remedies = append(f.Remedies, check.Remedy{
		Action: "end transactions before the client computes or asks somebody else: a pooler that lends by " +
			"transaction then gets the connection back",
		Risk:   "what belongs together must stay in one transaction",
		Effect: "fewer connections serve as many requests",
	})
}

// openOf returns the number of the target's connections to destinations that it asks, and the destination that it
// asks most.
func openOf(p *check.Pass) (open quantity.Value, most string) {
	n, largest := 0.0, 0.0
	paths := evidence.ClientPaths(p)
	for _, s := range p.Gauge(metric.DestinationData) {
		d := s.Label("destination")
		sent := evidence.Risen(s)
		if sent == 0 || !evidence.OfTarget(p, d) {
			continue
		}
		if sent > largest {
			most, largest = d, sent
		}
		for _, c := range paths {
			if c.Destination == d {
				n += series.Mean(c.Each(c.Live))
			}
		}
	}
	return quantity.Of("connections to what it asks, mean", n, quantity.Connections), most
}

// queueOf returns the place where threads wait most for each other, without those that stood there all the time.
func queueOf(l *ledger.Ledger) (at ledger.Place) {
	most := 0.0
	for _, pool := range l.Pools {
		for _, place := range pool.Places {
			if seconds := place.Queued(l.Window); seconds > most {
				at, most = place, seconds
			}
		}
	}
	return at
}

// computes returns how many CPUs the target's threads use or wait for.
func computes(l *ledger.Ledger) quantity.Value {
	return quantity.Of("CPUs that its threads use or wait for", l.Computing()/max(l.Window, 1), quantity.CPUs)
}

func fewFinding(p *check.Pass, r evidence.Requests, most string, open, used, share quantity.Value) check.Finding {
	return check.Finding{
		Subject:    check.Subject{Kind: "destination", ID: most},
		Severity:   check.Warning,
		Confidence: check.Medium,
		Weight:     min(share.Number(), 1),
		Summary: fmt.Sprintf("%s are in progress at any moment, and the program has %s to ask %s: the others wait "+
			"inside it; a request takes %s and more", r.InProgress.Text(), open.Text(), most, r.Each.Text()),
		Evidence: []quantity.Value{r.InProgress, r.Each, open, used, share},
		Remedies: []check.Remedy{{
			Action: fmt.Sprintf("allow more connections to %s at once, as many as it can serve: %s", most,
				cmp.Or(evidence.BoundsOf(p.Meta.Target.Name).Asks, "the maximum of the pool")),
			Risk:   "it gets more requests at once: check that it does not slow down",
			Effect: fmt.Sprintf("with enough of them %s of a request's time is saved", share.Text()),
		}},
		Placebos: []string{"more threads or CPUs here: they wait for a connection, too"},
		Disproof: "several requests share a connection (HTTP/2, gRPC), or the destination is slower with more of them",
	}
}
