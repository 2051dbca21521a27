package kernel

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	manyShare = &check.Param{
		Name: "share", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the time of requests: from a half on, nothing matters more",
	}
	manyProgram = &check.Param{
		Name: "program", Default: 0.8, Unit: quantity.Ratio,
		Why: "of the time of a program that serves nobody: asking for all at once could make it five times as fast; " +
			"below that, it may ask in turn to keep its pace",
	}
	manyRequest = evidence.RequestSeconds()
	manyEach    = &check.Param{
		Name: "exchanges", Default: 10, Unit: "segments/requests",
		Why: "a page is made of a few statements; ten and more to one destination are mostly a loop over rows",
	}
	manyRate = &check.Param{
		Name: "rate", Default: 20, Unit: "segments/s",
		Why: "of a program that serves nobody: with fewer, the answers are slow by themselves",
	}
	manyTrips = &check.Param{
		Name: "trips", Default: 3, Unit: quantity.Ratio,
		Why: "up to so many round trips, the time of an exchange is the path's and not the destination's: a " +
			"statement that is prepared first takes two",
	}
	manyPath = &check.Param{
		Name: "path", Default: 0.0005, Unit: quantity.Seconds,
		Why: "within a host or a rack the round trip is a small part of an exchange, so fewer round trips save little",
	}
)

var nPlusOne = &check.Check{
	Name:  "n-plus-one",
	Stage: check.Kernel,
	Doc: `Many small exchanges in turn, where one would do

A statement for a list and then one for each of its rows, a get for each key, a
call for each item: each waits for the round trip to the destination, one after
the other. The destination is idle, and so is this program.

Measured: by the sockets' tcp_info and the threads' states. Segments with data
to a destination, divided by those that come from clients, are the exchanges
for each request. The threads or connections that wait for its answers, divided
by the requests in progress, are the share of a request's time (Little's law).
For a program that serves nobody it is the share of its threads' time; there an
exchange must take about as long as the path's round trip, so that the
destination has no part in it.

Fix: ask for all at once (join, IN, batch, pipeline, MGET). Won't help: a faster
destination, more connections: the next exchange still waits for the last one.
Disproof: the destination's own log shows few statements, each of them slow.`,
	URL:   "https://martinfowler.com/eaaCatalog/lazyLoad.html",
	Needs: []metric.Metric{metric.DestinationData},
	Uses: append([]metric.Metric{
		metric.DestinationAsked, metric.DestinationRTT, metric.DestinationOwner,
	}, evidence.RequestMetrics()...),
	Params: []*check.Param{manyShare, manyProgram, manyRequest, manyEach, manyRate, manyTrips, manyPath},
	Beyond: "the destination's own log",
	Run:    runNPlusOne,
}

// exchanges describes the exchanges with one destination in the window.
type exchanges struct {
	destination string
	sent        quantity.Value // segments with data
	rate        quantity.Value // these segments per second
	each        quantity.Value // seconds that one takes
	waiting     quantity.Value // threads or connections that wait for an answer, mean
}

func runNPlusOne(p *check.Pass) error {
	serves, known := evidence.Serves(p)
	if !known {
		return check.NotAssessed("name a process", "whose requests these are is known only for a target")
	}
	p.Read(quantity.Of("exchanges with one destination", 0, "segments"))
	l, ok := evidence.LedgerOf(p)
	if !ok {
		return check.NotAssessed("profile for longer", "the states of threads were looked at in no pass")
	}
	for _, s := range p.Gauge(metric.DestinationData) {
		x, ok := exchangesWith(p, l, s.Label("destination"))
		switch {
		case !ok:
		case serves:
			x.ofRequests(p)
		default:
			x.ofProgram(p, l)
		}
	}
	return nil
}

// exchangesWith returns the target's exchanges with a destination.
func exchangesWith(p *check.Pass, l *ledger.Ledger, destination string) (x exchanges, ok bool) {
	sent := evidence.Risen(p.Gauge(metric.DestinationData, "destination", destination)...)
	if sent == 0 || l.Window <= 0 || !evidence.OfTarget(p, destination) {
		return x, false
	}
	x.destination = destination
	x.waiting = waitingFor(p, l, destination)
	x.sent = quantity.Of("segments with data to "+destination, sent, quantity.Segments)
	x.rate = x.sent.Per(quantity.Of("window", p.Meta.Duration, quantity.Seconds)).
		Named("exchanges a second with %s, at most", destination)
	x.each = x.waiting.As(quantity.Segments).Per(x.rate).Named("time of an exchange with %s", destination)
	return x, true
}

// waitingFor returns the mean number of threads or connections that wait for answers of the destination. An event
// loop waits for many at once, and only its connections show how many; their times in the kernel are as coarse as a
// jiffy, so short exchanges go unseen.
func waitingFor(p *check.Pass, l *ledger.Ledger, destination string) quantity.Value {
	threads, connections := 0.0, evidence.Asking(p, destination)
	for _, pool := range l.Pools {
		_, seconds := pool.Sum(func(place ledger.Place) bool { return place.Asked() && place.On == destination })
		threads += seconds / l.Window
	}
	if threads >= connections {
		return quantity.Of("threads that wait for answers of "+destination+", mean", threads, quantity.Threads)
	}
	return quantity.Of("connections to "+destination+" that wait for an answer, mean", connections, quantity.Sockets)
}

// ofRequests looks for client requests that each make many exchanges.
func (x exchanges) ofRequests(p *check.Pass) {
	r, ok := evidence.RequestsOf(p)
	most := evidence.RequestsAtMost(p)
	if !ok || most.Number() == 0 {
		return
	}
	many := x.sent.Per(most).Named("exchanges for a request, at least")
	p.Read(many)
	share, owned := r.Share(x.waiting)
	if many.Below(p.Param(manyEach)) || r.Each.Below(p.Param(manyRequest)) || !owned ||
		share.Below(p.Param(manyShare)) {
		return
	}
	f := x.finding(p, share)
	f.Summary = fmt.Sprintf("a request asks %s %.0f times and more, in turn, %s each time: %s of the %s that it takes",
		x.destination, many.Number(), x.each.Text(), share.Text(), r.Each.Text())
	f.Evidence = []quantity.Value{many, x.each, r.Each, share}
	one := 1 / many.Number() // the part of the exchanges that is left
	evidence.WithoutWait(p, &f, evidence.WaitPart(p, x.waiting.Number()).Times(1-one))
	p.Report(f)
}

// ofProgram looks for a program that spends its time on the path's round trips.
func (x exchanges) ofProgram(p *check.Pass, l *ledger.Ledger) {
	rtt := p.Gauge(metric.DestinationRTT, "destination", x.destination)
	if len(rtt) == 0 || x.rate.Below(p.Param(manyRate)) {
		return
	}
	trip := quantity.Of("round trip of the path to "+x.destination, rtt[0].Mean(), quantity.Seconds)
	worked := 0.0
	for _, pool := range l.Pools {
		worked += pool.Workers
	}
	if trip.Below(p.Param(manyPath)) || worked == 0 || x.each.Per(trip).Above(p.Param(manyTrips)) {
		return
	}
	waited := x.waiting.Number() * l.Window
	share := quantity.Of("blocked for its answers", waited, quantity.Seconds).
		Per(quantity.Of("threads' time", worked, quantity.Seconds)).
		Named("of the time of the program's threads")
	p.Read(share)
	const inTurn = 1.1 // above it the exchanges take more than all of the threads' time: they overlap
	if share.Below(p.Param(manyProgram)) || share.Number() > inTurn {
		return
	}
	f := x.finding(p, share)
	f.Summary = fmt.Sprintf("%s with %s, in turn, have %s of the program's time: each waits for the path, %s there "+
		"and back", x.rate.As("exchanges/s").Text(), x.destination, share.Text(), trip.Text())
	f.Evidence = []quantity.Value{x.rate, x.each, trip, share}
	p.Report(f)
}

func (x exchanges) finding(p *check.Pass, share quantity.Value) check.Finding {
	here := func(s stacks.Sample) bool {
		return hotcode.WaitsForPeer(s.Class, x.destination)
	}
	return check.Finding{
		Subject:    check.Subject{Kind: "destination", ID: x.destination},
		Severity:   check.Warning,
		Confidence: check.Medium,
		Weight:     min(share.Number(), 1),
		Notes:      evidence.OffCPUPaths(p, here),
		Remedies: []check.Remedy{{
			Action: "ask for all of it at once (a join or IN instead of a statement for each row, a batch, a " +
				"pipeline, MGET), or at the same time instead of in turn",
			Risk:   "an answer is larger, and all of it is held in memory",
			Effect: "exchanges fall to one or two, and the time with them",
			Before: "for (Order o : orders) o.lines();",
			After:  "select o from Order o join fetch o.lines",
		}},
		Placebos: []string{
			"A faster destination: it has answered already, and the answer is under way.",
			"More connections: the next exchange still begins after the last one.",
		},
		Disproof: "the destination's own log shows few statements, each as long as a request takes.",
	}
}
