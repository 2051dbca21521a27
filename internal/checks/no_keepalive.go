package checks

import (
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

var (
	paramKeepaliveRate = &check.Param{
		Name: "rate", Default: 50, Unit: "connections/s",
		Why: "below 50 a second handshakes cost less than a percent of a CPU and any pool's own churn reaches it",
	}
	paramKeepaliveSegments = &check.Param{
		Name: "segments", Default: 4, Unit: "segments/connection",
		Why: "one request and its answer send one to three data segments (measured: 2 on a client, 3 with a proxy on the same host); " +
			"ten requests send ten and more",
	}
	paramKeepaliveTurns = &check.Param{
		Name: "requests", Default: 2, Unit: "requests/connection",
		Why: "counted connection by connection, at most this many requests had an answer; one request in one segment each way is 1",
	}
	paramKeepaliveCeiling = &check.Param{
		Name: "ceiling-share", Default: 0.3, Unit: quantity.Ratio,
		Why: "three times this load meets the port ceiling: traffic peaks do that",
	}
	paramKeepaliveKernel = &check.Param{
		Name: "kernel-share", Default: 0.5, Unit: quantity.Ratio,
		Why: "handshakes cost the kernel, not the program: below half of the busy time they are not the main cost",
	}
	paramKeepaliveBusy = &check.Param{
		Name: "busy-share", Default: 0.5, Unit: quantity.Ratio,
		Why: "where half of the CPU time is idle, the cost of handshakes harms nobody yet",
	}
)

var noKeepalive = &check.Check{
	Name:  "no-keepalive",
	Stage: check.Connections,
	Doc: `A new connection for every request
Each connection costs a handshake (a round trip more of latency, two with TLS), about ten packets, and a slow start from ten
segments. Kept open it costs that once.

Where BPF programs may run, each connection is counted with the process that opened it and the requests it can have had, and only
processes whose connections had about one are accused, whatever others do to the same destination.

Measured otherwise: connections opened per second by this namespace, and data segments sent per connection opened or accepted: up to four is
about one request each. The destination with the most short-lived sockets is named. It is info, and a warning where it does harm:
a share of the port ceiling, or si + sy the larger part of a busy CPU.

Cure: a connection pool. In nginx it takes all three: keepalive in the upstream block, proxy_http_version 1.1, and an empty
Connection header; keepalive alone changes nothing (measured: 1.00 connections per request with it, 0.001 with all three).
Wrong if the requests of one connection are many (access log: requests per connection).`,
	URL:   "https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive",
	Needs: []metric.Metric{metric.TCPActiveOpens, metric.TCPPassiveOpens},
	Uses: slices.Concat(portNeeds(), []metric.Metric{
		metric.TCPOrigDataSent, metric.DestinationYoungTW, metric.Sockets, metric.CPUSeconds, metric.DestinationOwner,
	}, flowUses()),
	Params: []*check.Param{
		paramKeepaliveRate, paramKeepaliveSegments, paramKeepaliveTurns, paramKeepaliveCeiling, paramKeepaliveKernel,
		paramKeepaliveBusy,
	},
	Explains: []*check.Check{timeWaitOverflow, cpuInSystem, cpuInSoftirq},
	Run:      runNoKeepalive,
}

func runNoKeepalive(p *check.Pass) error {
	active, err := netRise(p, metric.TCPActiveOpens, "connections opened")
	if err != nil {
		return err
	}
	passive, err := netRise(p, metric.TCPPassiveOpens, "connections accepted")
	if err != nil {
		return err
	}
	p.Read(active.rate())
	if active.rate().Below(p.Param(paramKeepaliveRate)) {
		return nil
	}
	if flowsSeen(p) {
		accuse(p)
		return nil
	}
	f := check.Finding{
		Severity: check.Info,
		Evidence: []quantity.Value{active.rate()},
		Disproof: "the peer's access log shows many requests a connection",
	}
	per := ""
	if data, ok := maybeRise(p, metric.TCPOrigDataSent, "data segments sent"); ok {
		segs := data.n.Per(active.n.Plus(passive.n)).As("segments/connection").Named("data segments sent per connection opened or accepted")
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
	f.Summary = fmt.Sprintf("%s / %s = %s opened%s", active.n.Text(), active.span.Text(), active.rate().Text(), per)
	nameShortLived(p, &f)
	keepaliveHarm(p, &f)
	f.Remedies = keepaliveRemedies(active.rate())
	p.Report(f)
	return nil
}

// accuse reports each destination to which processes open connections for about one request each, and names these. A process that
// keeps its connections is not among them.
func accuse(p *check.Pass) {
	_, window := flowSpan(p)
	sums := map[string]*clientFlow{}
	named := map[string][]string{}
	var order []string
	for _, f := range clientFlows(p) {
		if !f.single(p.Param(paramKeepaliveTurns)) {
			continue
		}
		if sums[f.destination] == nil {
			sums[f.destination] = &clientFlow{}
			order = append(order, f.destination)
		}
		sum := sums[f.destination]
		sum.attempts, sum.closed, sum.turns = sum.attempts+f.attempts, sum.closed+f.closed, sum.turns+f.turns
		rate := quantity.Of("", f.attempts, quantity.Connections).Per(window)
		named[f.destination] = append(named[f.destination],
			fmt.Sprintf("%s: %s, %.1f requests each", f.name(), rate.Text(), f.turns/f.closed))
	}
	for _, d := range order {
		opened := quantity.Of("connections opened", sums[d].attempts, quantity.Connections)
		rate := opened.Per(window).Named("connections opened to it by processes that use each once")
		p.Read(rate)
		if rate.Below(p.Param(paramKeepaliveRate)) {
			continue
		}
		turns := quantity.Of("requests with an answer, at most", sums[d].turns, "requests").
			Per(quantity.Of("connections that ended", sums[d].closed, quantity.Connections)).As(paramKeepaliveTurns.Unit).
			Named("requests per connection, at most")
		f := check.Finding{
			Subject:  check.Subject{Kind: "destination", ID: d},
			Severity: check.Info,
			Summary:  named[d][0],
			Evidence: []quantity.Value{rate, turns},
			Remedies: keepaliveRemedies(rate),
			Disproof: "the peer's access log shows many requests a connection",
			Notes:    named[d][1:min(len(named[d]), 1+ownersShown)],
		}
		keepaliveHarm(p, &f)
		p.Report(f)
	}
}

// nameShortLived makes the destination with the most short-lived client-side sockets the subject. Where the peer closes first
// there is no TIME_WAIT here, and the states of opening and closing tell instead.
func nameShortLived(p *check.Pass, f *check.Finding) {
	paths := clientPaths(p)
	ways := []struct {
		label string
		of    func(c *clientPath) float64
	}{
		{"entering TIME_WAIT", func(c *clientPath) float64 { return mean(c.young) }},
		{"in TIME_WAIT", func(c *clientPath) float64 { return mean(c.count(timeWait)) }},
		{"opening or closing", func(c *clientPath) float64 {
			return mean(c.each(func(i int) float64 { return c.live(i) - c.at(established, i) }))
		}},
		{"in any state", func(c *clientPath) float64 { return mean(c.each(c.total)) }},
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
		f.Notes = append(f.Notes, ownersOf(p, top))
		if w.label == "in any state" {
			f.Confidence = check.Medium
			f.Doubts = append(f.Doubts, "the destination is the one with the most sockets: no short-lived one was caught at a sample")
		}
		return
	}
	f.Subject = netns(p)
}

// topDestination gives the destination with most of what is counted, its number and that of all.
func topDestination(paths []*clientPath, of func(c *clientPath) float64) (top string, n, all float64) {
	by := map[string]float64{}
	for _, c := range paths {
		by[c.destination] += of(c)
		all += of(c)
		if by[c.destination] > by[top] {
			top = c.destination
		}
	}
	return top, by[top], all
}

// keepaliveHarm makes it a warning where the handshakes cost what is short: ports, or CPU.
func keepaliveHarm(p *check.Pass, f *check.Finding) {
	if _, all, err := cpuTimes(p); err == nil && all.busy().Number() > 0 {
		kernel := all.time("system", "system").Plus(all.time("softirq", "softirq")).Per(all.busy()).
			Named("system and softirq share of the busy time")
		if all.load().AtLeast(p.Param(paramKeepaliveBusy)) && kernel.AtLeast(p.Param(paramKeepaliveKernel)) {
			f.Severity = check.Warning
			f.Evidence = append(f.Evidence, kernel)
			f.Summary += fmt.Sprintf("; %s of busy CPU is si + sy", kernel.Text())
		}
	}
	r, err := readPortRange(p)
	if err != nil || !p.Recorded(metric.DestinationSockets) {
		return // without the range there is no ceiling to be near
	}
	for _, c := range worstByDestination(ceilings(p, r)) {
		if c.share.AtLeast(p.Param(paramKeepaliveCeiling)) && c.path.destination == f.Subject.ID {
			f.Severity = check.Warning
			f.Evidence = append(f.Evidence, c.share.Named("share of the port ceiling"))
			f.Summary += fmt.Sprintf("; %s of the port ceiling", c.share.Text())
		}
	}
}

func keepaliveRemedies(rate quantity.Value) []check.Remedy {
	return []check.Remedy{{
		Action: "keep connections open and use them again: a connection pool in the client; in nginx keepalive N in the upstream block, " +
			"proxy_http_version 1.1 and proxy_set_header Connection \"\", all three",
		Risk: "a pooled connection the peer closed meanwhile fails its next request: set the pool's idle time below the peer's; " +
			"connections stick to one backend",
		Effect: fmt.Sprintf("with 100 requests a connection, %s become %s", rate.Text(),
			quantity.Of("", rate.Number()/100, "connections/s").Text()),
	}}
}
