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
	paramKeepaliveRate = &check.Param{
		Name: "rate", Default: 50, Unit: "connections/s",
		Why: "below 50 a second handshakes cost less than a percent of a CPU, and any pool's own churn reaches that",
	}
	paramKeepaliveSegments = &check.Param{
		Name: "segments", Default: 4, Unit: "segments/connection",
		Why: "one request and its answer send one to three data segments (measured: 2 on a client, 3 with a proxy " +
			"on the same host); " +
			"ten requests send ten and more",
	}
	paramKeepaliveTurns = &check.Param{
		Name: "requests", Default: 2, Unit: "requests/connection",
		Why: "counted connection by connection, at most this many requests had an answer; one request in one " +
			"segment each way is 1",
	}
	paramKeepaliveCeiling = &check.Param{
		Name: "ceiling-share", Default: 0.3, Unit: quantity.Ratio,
		Why: "three times this load meets the port ceiling: traffic peaks do that",
	}
	paramKeepaliveKernel = &check.Param{
		Name: "kernel-share", Default: 0.5, Unit: quantity.Ratio,
		Why: "handshakes cost the kernel, not the program: below half of the busy time they are not the main cost",
	}
	paramKeepaliveTrip = &check.Param{
		Name: "round-trip", Default: 0.001, Unit: quantity.Seconds,
		Why: "within a host or a rack a handshake takes less, and nobody waits for it",
	}
	paramKeepaliveWait = &check.Param{
		Name: "handshake-share", Default: 0.2, Unit: quantity.Ratio,
		Why: "of the life of a connection: requests take a fifth less when it is open already, with TLS two fifths",
	}
	paramKeepaliveLive = &check.Param{
		Name: "open", Default: 0.5, Unit: quantity.Connections,
		Why: "open at any moment: with fewer the program does something else for most of the time",
	}
	paramKeepaliveOpening = &check.Param{
		Name: "opening", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the network waits of a program that serves nobody: below half, it waits more for its requests",
	}
	paramKeepaliveRequest = evidence.RequestSeconds()
	paramKeepaliveBusy    = &check.Param{
		Name: "busy-share", Default: 0.5, Unit: quantity.Ratio,
		Why: "where half of the CPU time is idle, the cost of handshakes harms nobody yet",
	}
)

var noKeepalive = &check.Check{
	Name:  "no-keepalive",
	Stage: check.Connections,
	Doc: `A new connection for every request
Each connection costs a handshake (one more round trip of latency, two with TLS), about ten packets, and a slow start
from ten segments. A kept connection costs that once.

Where BPF programs may run, the check counts each connection with the process that opened it and the requests it can
have had. It reports only processes whose connections had about one, whatever others do to the same destination.

Measured otherwise: connections opened per second by this namespace, and data segments sent per connection opened or
accepted: up to four is about one request each. The destination with the most short-lived sockets is named. It is info,
and a warning where it does harm: it reaches a share of the port ceiling; si + sy is the larger part of a busy CPU; the
handshake is much of the time for which a connection is open; or requests take long, and most of that is waiting while
connections are opened or closed, by the stacks of Java, Go and Python (for a program that serves nobody: most of its
waits for the network). Then connections with more than one request are reported, too: their first answers are those of
TLS and of a login.

Fix: a connection pool. nginx needs all three: keepalive in the upstream block, proxy_http_version 1.1, and an empty
Connection header; keepalive alone changes nothing (measured: 1.00 connections per request with it, 0.001 with all
three).
Disproved if the requests of one connection are many (access log: requests per connection).`,
	URL:   "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive",
	Needs: []metric.Metric{metric.TCPActiveOpens, metric.TCPPassiveOpens},
	Uses: slices.Concat(evidence.PortNeeds(), []metric.Metric{
		metric.TCPOrigDataSent, metric.DestinationYoungTW, metric.Sockets, metric.CPUSeconds, metric.DestinationOwner,
		metric.DestinationRTT, metric.WallProfileSamples, metric.GoroutineProfileSamples,
		metric.ScriptWallProfileSamples, metric.GoRuntime, metric.ListenerOwes, metric.ListenerQueue,
		metric.TargetListenPorts, metric.ProcessCPU,
	}, evidence.AnswerMetrics(), evidence.RequestMetrics()),
	Params: []*check.Param{
		paramKeepaliveRate, paramKeepaliveSegments, paramKeepaliveTurns, paramKeepaliveCeiling, paramKeepaliveKernel,
		paramKeepaliveBusy, paramKeepaliveOpening, paramKeepaliveRequest, paramKeepaliveTrip, paramKeepaliveWait,
		paramKeepaliveLive,
		evidence.ParamPortsFull, evidence.ParamTWFall,
	},
	Facts:  []check.Fact{evidence.OpenedInRequests},
	Beyond: "the peer's access log",
	Run:    runNoKeepalive,
}

func runNoKeepalive(p *check.Pass) error {
	active, err := evidence.NetRise(p, metric.TCPActiveOpens, "connections opened")
	if err != nil {
		return err
	}
	passive, err := evidence.NetRise(p, metric.TCPPassiveOpens, "connections accepted")
	if err != nil {
		return err
	}
	p.Read(active.Rate())
	if evidence.FlowsSeen(p) {
		accuse(p)
		return nil
	}
	if active.Rate().Below(p.Param(paramKeepaliveRate)) {
		return nil
	}
	f := check.Finding{
		Severity: check.Info,
		Evidence: []quantity.Value{active.Rate()},
		Disproof: "the peer's access log shows many requests a connection",
	}
	per := ""
	if data, ok := evidence.MaybeNetRise(p, metric.TCPOrigDataSent, "data segments sent"); ok {
		segs := data.N.Per(active.N.Plus(passive.N)).As("segments/connection").
			Named("data segments sent per connection opened or accepted")
		p.Read(segs)
		if segs.Above(p.Param(paramKeepaliveSegments)) {
			return nil
		}
		f.Evidence = append(f.Evidence, segs)
		per = fmt.Sprintf(", %s: about one request each", segs.Text())
	} else {
		f.Confidence = check.Medium
		f.Doubts = []string{"data segments were not recorded, so requests per connection are not known"}
	}
	f.Summary = fmt.Sprintf("%s / %s = %s opened%s", active.N.Text(), active.Span.Text(), active.Rate().Text(), per)
	nameShortLived(p, &f)
	keepaliveHarm(p, &f)
	f.Remedies = keepaliveRemedies(active.Rate())
	evidence.WithoutConnecting(p, &f)
	p.Report(f)
	return nil
}

// accuse reports each destination to which processes open connections for about one request each, and names the
// processes. One that keeps its connections is not among them.
func accuse(p *check.Pass) {
	_, window := evidence.FlowSpan(p)
	slow := openingOf(p)
	isSlow := func(destination string) bool { return slow != nil && slow.destination == destination }
	sums := map[string]*evidence.ClientFlow{}
	named := map[string][]string{}
	var order []string
	for _, f := range evidence.ClientFlows(p) {
		_, waits := handshakeShare(p, f)
		if !waits && !singleRequests(f, p.Param(paramKeepaliveTurns)) && !isSlow(f.Destination) {
			continue
		}
		if sums[f.Destination] == nil {
			sums[f.Destination] = &evidence.ClientFlow{Destination: f.Destination}
			order = append(order, f.Destination)
		}
		sums[f.Destination].Add(f)
		rate := quantity.Of("", f.Attempts, quantity.Connections).Per(window)
		named[f.Destination] = append(named[f.Destination],
			fmt.Sprintf("%s: %s, %.1f requests each", f.Name(), rate.Text(), f.Turns/f.Closed))
	}
	for _, d := range order {
		opened := quantity.Of("connections opened", sums[d].Attempts, quantity.Connections)
		rate := opened.Per(window).Named("connections opened to it by these processes")
		p.Read(rate)
		handshake, waits := handshakeShare(p, *sums[d])
		if rate.Below(p.Param(paramKeepaliveRate)) && !waits && !isSlow(d) {
			continue
		}
		turns := quantity.Of("requests with an answer, at most", sums[d].Turns, "requests").
			Per(quantity.Of("connections that ended", sums[d].Closed, quantity.Connections)).
			As(paramKeepaliveTurns.Unit).
			Named("requests per connection, at most")
		f := check.Finding{
			Subject:  check.Subject{Kind: "destination", ID: d},
			Severity: check.Info,
			Summary:  named[d][0],
			Evidence: []quantity.Value{rate, turns},
			Remedies: keepaliveRemedies(rate),
			Disproof: "the peer's access log shows many requests a connection",
			Notes:    named[d][1:min(len(named[d]), 1+evidence.OwnersShown)],
		}
		keepaliveHarm(p, &f)
		evidence.WithoutConnecting(p, &f)
		if isSlow(d) {
			slow.tell(p, &f)
		}
		if waits {
			tellHandshake(p, &f, sums[d], handshake, turns)
		}
		p.Report(f)
	}
}

// tellHandshake warns that the handshake is much of the time for which a connection is open. If the destination
// answers at once, the line takes the other round trips, too.
func tellHandshake(p *check.Pass, f *check.Finding, flow *evidence.ClientFlow, handshake, turns quantity.Value) {
	f.Severity = check.Warning
	f.Evidence = append(f.Evidence, handshake)
	f.Summary += fmt.Sprintf("; each is open for %s, and %s of this is the handshake", flow.Life().Text(),
		handshake.Text())
	if turns.Number() > aLogin {
		f.Summary += ", and as much again each round trip of TLS or of a login"
	}
	if _, ok := evidence.AnswersAtOnce(p, flow.Destination); ok {
		f.Facts = append(f.Facts, evidence.OpenedInRequests)
	}
}

// aLogin is the mean number of requests per connection above which some of them were no request but TLS or a login:
// 1.5 means two on half of the connections.
const aLogin = 1.5

// An opening describes threads that wait while connections to a destination are opened or closed, for several round
// trips if TLS and a login follow the handshake.
type opening struct {
	destination string         // to which the target opens most
	threads     quantity.Value // that wait like this, mean
	network     quantity.Value // threads that wait for the network, including these
	share       quantity.Value // of these
}

// openingOf returns the opening for which requests wait most of their time, or the threads of a program that serves
// nobody; it is nil if they do not.
func openingOf(p *check.Pass) *opening {
	flows := slices.DeleteFunc(evidence.ClientFlows(p), func(f evidence.ClientFlow) bool {
		return !evidence.OfTarget(p, f.Destination)
	})
	if len(flows) == 0 {
		return nil
	}
	w, err := evidence.WaitingOf(p)
	if err != nil {
		return nil
	}
	o := &opening{destination: flows[0].Destination}
	if o.threads, o.network = w.Opening(); o.network.Number() == 0 {
		return nil
	}
	o.share = o.threads.Per(o.network).Named("of the waits for the network, to open and close connections")
	p.Read(o.threads)
	if _, serves := evidence.RequestsOf(p); serves {
		if !evidence.Noticed(p, &check.Finding{}, o.threads, paramKeepaliveRequest) && !o.overLine(p) {
			return nil
		}
	} else if o.share.Below(p.Param(paramKeepaliveOpening)) ||
		o.threads.Number() < p.Param(paramKeepaliveLive).Number() {
		return nil
	}
	return o
}

// overLine reports whether requests wait for the network most of their time, most of that to open and close
// connections, and the destination answers at once: then the line takes the other round trips, too.
func (o *opening) overLine(p *check.Pass) bool {
	_, ok := evidence.AnswersAtOnce(p, o.destination)
	return ok && o.share.AtLeast(p.Param(paramKeepaliveOpening)) &&
		evidence.Noticed(p, &check.Finding{}, o.network, paramKeepaliveRequest)
}

// tell makes it a warning.
func (o *opening) tell(p *check.Pass, f *check.Finding) {
	if evidence.Noticed(p, f, o.threads, paramKeepaliveRequest) {
		f.Summary += ", most of it a wait while connections are opened or closed"
	} else {
		f.Summary += fmt.Sprintf("; %s of its waits for the network are to open and close them", o.share.Text())
		f.Evidence = append(f.Evidence, o.share)
	}
	f.Severity = check.Warning
	f.Evidence = append(f.Evidence, o.threads)
	f.Facts = append(f.Facts, evidence.OpenedInRequests)
	f.Remedies = append([]check.Remedy{{
		Action: "keep as many idle connections in the pool as are in use at once: maxIdle of DBCP, minimumIdle of " +
			"HikariCP, SetMaxIdleConns of Go (2 by default), pool_size of SQLAlchemy",
		Risk:   "each takes a session of the server, also at night",
		Effect: "hardly a connection is opened while somebody waits",
	}}, f.Remedies...)
	evidence.WithoutThreads(p, f, o.threads.Number())
}

// handshakeShare returns the share of a connection's life that the round trip of its handshake takes. waits is false
// if the share is small, or hardly a connection is open. Handshakes that took longer lost a SYN or met a full queue.
func handshakeShare(p *check.Pass, f evidence.ClientFlow) (share quantity.Value, waits bool) {
	trip := f.Handshake()
	if rtt, ok := evidence.DestinationRTT(p, f.Destination); ok && rtt.Below(trip) {
		trip = rtt
	}
	if f.Closed == 0 || f.Life().Number() == 0 || trip.Below(p.Param(paramKeepaliveTrip)) {
		return share, false
	}
	_, window := evidence.FlowSpan(p)
	open := quantity.Of("open at any moment", f.Closed*f.Life().Number()/window.Number(), quantity.Connections)
	share = trip.Per(f.Life()).Named("the handshake's share of it")
	return share, open.AtLeast(p.Param(paramKeepaliveLive)) && share.AtLeast(p.Param(paramKeepaliveWait))
}

// nameShortLived makes the destination with the most short-lived client-side sockets the subject. Where the peer closes
// first there is no TIME_WAIT here, and the states of opening and closing tell instead.
func nameShortLived(p *check.Pass, f *check.Finding) {
	paths := evidence.ClientPaths(p)
	ways := []struct {
		label string
		of    func(c *evidence.ClientPath) float64
	}{
		{"entering TIME_WAIT", func(c *evidence.ClientPath) float64 { return series.Mean(c.Young) }},
		{"in TIME_WAIT", func(c *evidence.ClientPath) float64 { return series.Mean(c.Count(evidence.TimeWait)) }},
		{"opening or closing", func(c *evidence.ClientPath) float64 {
			return series.Mean(c.Each(func(i int) float64 { return c.Live(i) - c.At(evidence.Established, i) }))
		}},
		{"in any state", func(c *evidence.ClientPath) float64 { return series.Mean(c.Each(c.Total)) }},
	}
	for _, w := range ways {
		top, n, all := topDestination(paths, w.of)
		if all == 0 {
			continue
		}
		share := quantity.Of("to it", n, quantity.Sockets).Per(quantity.Of("all", all, quantity.Sockets)).
			Named("its share of the client-side sockets %s, mean of the samples", w.label)
		f.Subject = check.Subject{Kind: "destination", ID: top}
		f.Evidence = append(f.Evidence, share)
		f.Notes = append(f.Notes, evidence.OwnersOf(p, top))
		if w.label == "in any state" {
			f.Confidence = check.Medium
			f.Doubts = append(f.Doubts, "the destination is the one with the most sockets: no short-lived one was "+
				"caught at a sample")
		}
		return
	}
	f.Subject = evidence.NetNSSubject(p)
}

// topDestination returns the destination with most of what is counted, its number and that of all.
func topDestination(paths []*evidence.ClientPath, of func(c *evidence.ClientPath) float64) (top string, n,
	all float64,
) {
	by := map[string]float64{}
	for _, c := range paths {
		by[c.Destination] += of(c)
		all += of(c)
		if by[c.Destination] > by[top] {
			top = c.Destination
		}
	}
	return top, by[top], all
}

// keepaliveHarm makes it a warning where the handshakes cost what is short: ports, or CPU.
func keepaliveHarm(p *check.Pass, f *check.Finding) {
	if _, all, err := evidence.CPUTimes(p); err == nil && all.Busy().Number() > 0 {
		kernel := all.Time("system", "system").Plus(all.Time("softirq", "softirq")).Per(all.Busy()).
			Named("system and softirq share of the busy time")
		if all.Load().AtLeast(p.Param(paramKeepaliveBusy)) && kernel.AtLeast(p.Param(paramKeepaliveKernel)) {
			f.Severity = check.Warning
			f.Evidence = append(f.Evidence, kernel)
			f.Summary += fmt.Sprintf("; %s of busy CPU is si + sy", kernel.Text())
		}
	}
	r, err := evidence.PortRangeOf(p)
	if err != nil || !p.Recorded(metric.DestinationSockets) {
		return // without the range there is no ceiling to be near
	}
	for _, c := range evidence.WorstByDestination(evidence.Ceilings(p, r)) {
		if c.Share.AtLeast(p.Param(paramKeepaliveCeiling)) && c.Path.Destination == f.Subject.ID {
			f.Severity = check.Warning
			f.Evidence = append(f.Evidence, c.Share.Named("share of the port ceiling"))
			f.Summary += fmt.Sprintf("; %s of the port ceiling", c.Share.Text())
		}
	}
}

func keepaliveRemedies(rate quantity.Value) []check.Remedy {
	return []check.Remedy{{
		Action: "keep connections open and use them again: a connection pool in the client; in nginx keepalive N in " +
			"the upstream block, " +
			"proxy_http_version 1.1 and proxy_set_header Connection \"\", all three",
		Risk: "a pooled connection the peer closed meanwhile fails its next request: set the pool's idle time below " +
			"the peer's; " +
			"connections stick to one backend",
		Effect: fmt.Sprintf("with 100 requests a connection, %s become %s", rate.Text(),
			quantity.Of("", rate.Number()/100, "connections/s").Text()),
	}}
}

// singleRequests reports whether the connections that ended had hardly more than one request each. Where few ended,
// the number opened decides: a pool opens few.
func singleRequests(f evidence.ClientFlow, most quantity.Value) bool {
	if f.Closed == 0 {
		return false
	}
	return quantity.Of("", f.Turns/f.Closed, most.Unit()).Below(most)
}
