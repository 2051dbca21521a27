package connections

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramTurnedAwayShare = &check.Param{
		Name: "share", Default: 0.05, Unit: quantity.Ratio,
		Why: "of the accepted connections: clients see one in twenty fail",
	}
	paramTurnedAwayRate = &check.Param{
		Name: "rate", Default: 1, Unit: "connections/s",
		Why: "a scanner or a port check comes once in some seconds",
	}
)

var turnedAway = &check.Check{
	Name:  "turned-away",
	Stage: check.Connections,
	Doc: `A server closes connections that it has just accepted, without an answer

The kernel has done the handshake, so the client is connected and has sent its
request. A server that has reached its limit of connections accepts one more
only to close it: worker_connections of nginx, maxclients of redis,
max_connections of a database. Its clients see "connection reset", "server
closed the connection" or "too many clients", and mostly try again at once.

Measured: each accepted connection as it ends, from the socket. It counts if
there was no exchange (the lesser of the segments with data sent and received
is zero) or the server never read a request, and the server closed first,
within a second of what came last. PostgreSQL agrees on TLS and reads who
connects before it answers with the error. So its connections with at most
three exchanges count if it closed first or sent less than 256 bytes on them:
it greets a session with more.

Fix: raise that limit, after a look at what the connections are for: a pool of
connections in front, or clients that keep theirs. Won't help: a longer backlog,
or clients that try again. Disproved if the server closes on purpose: an access
list, a limit of the rate, a handshake that fails; its log says so.`,
	URL:   "https://nginx.org/en/docs/ngx_core_module.html#worker_connections",
	Needs: []metric.Metric{metric.ConnectionsTurnedAway, metric.Connects},
	Uses: []metric.Metric{
		metric.ListenerBacklog, metric.ListenerQueue, metric.ListenerSockets, metric.BPFRuns, metric.ConnectAttempts,
	},
	Params: []*check.Param{paramTurnedAwayShare, paramTurnedAwayRate},
	Beyond: "the target's own log",
	Run:    runTurnedAway,
}

// leastRefused is the least weight of the finding: a client that gets no answer loses everything, which outweighs
// what others could win.
const leastRefused = 0.5

func runTurnedAway(p *check.Pass) error {
	began, window := evidence.FlowSpan(p)
	if window.Number() <= 0 {
		return check.NotAssessed("profile for longer", "accepted connections were counted once only")
	}
	rise := func(c *metric.Counter, port uint16, match ...string) (n float64) {
		for _, s := range p.Counter(c, append([]string{"netns", metric.NetNSTarget, "side", "server"}, match...)...) {
			if at, err := netip.ParseAddrPort(s.Label("endpoint")); err == nil && at.Port() == port {
				n += evidence.RiseSince(s, began)
			}
		}
		return n
	}
	var seen []uint16
	for _, l := range evidence.Listeners(p) {
		at, err := netip.ParseAddrPort(l.Address)
		if err != nil || slices.Contains(seen, at.Port()) {
			continue
		}
		seen = append(seen, at.Port())
		away := rise(metric.ConnectionsTurnedAway, at.Port(), "exchanges", metric.ExchangesNone)
		if l.Comm == "postgres" { // it first reads who connects, and its clients close first
			away += rise(metric.ConnectionsTurnedAway, at.Port(), "exchanges", metric.ExchangesFew)
		}
		accepted := quantity.Of("connections accepted", rise(metric.Connects, at.Port()), quantity.Connections)
		reportTurnedAway(p, l, quantity.Of("connections closed without an answer", away, quantity.Connections),
			accepted, window)
	}
	return nil
}

func reportTurnedAway(p *check.Pass, l evidence.Listener, away, accepted, window quantity.Value) {
	if accepted.Number() == 0 {
		return
	}
	share, rate := away.Per(accepted).Named("closed without an answer, share"), away.Per(window)
	p.Read(share)
	if share.Below(p.Param(paramTurnedAwayShare)) || rate.Below(p.Param(paramTurnedAwayRate)) {
		return
	}
	evidenceOf := []quantity.Value{share, rate.Named("closed without an answer")}
	if open := openAt(p, l.Address); open.Number() > 0 {
		evidenceOf = append(evidenceOf, open)
	}
	p.Report(check.Finding{
		Subject:  check.Subject{Kind: "listener", ID: l.Address},
		Severity: check.Warning,
		Weight:   max(share.Number(), leastRefused),
		Summary: fmt.Sprintf("%s at %s accepts connections and closes %s of them without an answer (%s): it has as "+
			"many as it may have, or refuses these",
			l.Owner(), l.Address, share.Text(), rate.Text()),
		Evidence: evidenceOf,
		Remedies: []check.Remedy{{
			Action: "read the error log of " + l.Owner() + ", and raise the limit of connections that it names: " +
				cmp.Or(evidence.BoundsOf(l.Comm).Serves, "max connections, open files (ulimit -n)"),
			Risk:   "each connection takes memory, and what is behind the server gets more requests at once",
			Effect: "connections closed without an answer fall to 0",
		}},
		Placebos: []string{"a longer backlog: these are accepted", "trying again: it is one more connection"},
		Disproof: "its log says that it closes them on purpose: an access list, a limit of the rate, a handshake " +
			"that failed",
	})
}

// openAt returns how many connections of the listener are established, mean of the looks.
func openAt(p *check.Pass, address string) quantity.Value {
	n := evidence.MeanOf(p.Gauge(metric.ListenerSockets, "listener", address, "state", evidence.Established))
	return quantity.Of("connections open at any moment", n, quantity.Connections)
}
