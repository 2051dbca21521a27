package connections

import (
	"fmt"
	"math"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	slowStartEnded = &check.Param{
		Name: "connections", Default: 10, Unit: quantity.Connections,
		Why: "a mean over fewer is not known well, and keeping so few connections gains nothing",
	}
	slowStartSingle = &check.Param{
		Name: "single", Default: 1.5, Unit: "requests/connections",
		Why: "hardly more than one request each: a window that has grown is thrown away unused",
	}
	slowStartRounds = &check.Param{
		Name: "round-trips", Default: 2, Unit: "round trips",
		Why: "up to two round trips (30 segments, 43 kB) little can be gained but the handshake: see no-keepalive",
	}
	slowStartShare = &check.Param{
		Name: "share", Default: 0.5, Unit: quantity.Ratio,
		Why: "when half of a connection's life is growth, a window that has grown already halves the time of a request",
	}
	slowStartMost = &check.Param{
		Name: "share-most", Default: 1.2, Unit: quantity.Ratio,
		Why: "growth cannot take longer than the connection lives: beyond that the peer began with more than ten " +
			"segments, and the " +
			"arithmetic does not hold; the fifth is for the last round, which is half a trip",
	}
	slowStartTime = &check.Param{
		Name: "time", Default: 0.05, Unit: quantity.Seconds,
		Why: "what a person begins to notice; on a short path growth is over in a few milliseconds",
	}
)

// A new connection may send ten segments (RFC 6928; TCP_INIT_CWND in include/net/tcp.h), each as large as an Ethernet
// frame takes with timestamps.
const (
	firstSegments  = 10
	segmentPayload = 1448
)

var slowStart = &check.Check{
	Name:  "slow-start",
	Stage: check.Connections,
	Doc: `Connections end before their window has grown

A new connection may have ten segments (14 kB) on the way, and doubles that each round trip (slow start). To carry 770
kB takes six round trips, where a connection that has carried as much before needs one. On a path of 30 ms that is 180
ms of each request, with idle CPUs, an idle link and no loss.

Measured for each destination: the bytes per connection that ended, in the greater direction, give the round trips of
doubling. Their number times the least round trip that the kernel saw on connections to it is set against how long the
connections were established. Only connections with one request each count. If the arithmetic gives more than their
whole life, the peer begins with a larger window, and the check reports nothing.

It is a fact and no warning: a peer that sends slowly for a reason of its own looks the same from here, because the
window is on its side. The saving it reports is the most that a kept connection can bring.

Fix: keep connections and use them again, and let the window outlive pauses (net.ipv4.tcp_slow_start_after_idle=0 on
the side that sends much). Won't help: larger socket buffers: they bound the window only after it has grown.
Disproved if the second request on one connection takes as long as the first (curl URL URL).`,
	URL: "https://www.rfc-editor.org/rfc/rfc6928",
	Needs: []metric.Metric{
		metric.ConnectionsClosed, metric.ConnectionSeconds, metric.ConnectionBytes, metric.ConnectionTurns,
		metric.DestinationMin,
	},
	Uses: []metric.Metric{metric.ConnectAttempts, metric.BPFRuns},
	Params: []*check.Param{
		slowStartRounds, slowStartShare, slowStartMost, slowStartTime, slowStartEnded,
		slowStartSingle,
	},
	Beyond: "two requests of its own on one connection",
	Run:    runSlowStart,
}

// windowGrowth is the growth of the window on the connections to one destination that ended.
type windowGrowth struct {
	destination                       string
	closed, each, life, rtt, requests quantity.Value
	rounds, time, share               quantity.Value
}

func runSlowStart(p *check.Pass) error {
	read := false
	for _, s := range p.Gauge(metric.DestinationMin) {
		g, ok := growthTo(p, s.Label("destination"), s.Min())
		if !ok {
			continue
		}
		p.Read(g.share.Named("growth of the window, share of a connection's life to %s", g.destination))
		read = true
		single := g.requests.Below(p.Param(slowStartSingle))
		if single && g.rounds.Above(p.Param(slowStartRounds)) && g.share.AtLeast(p.Param(slowStartShare)) &&
			!g.share.Above(p.Param(slowStartMost)) && g.time.AtLeast(p.Param(slowStartTime)) {
			p.Report(g.finding())
		}
	}
	if !read {
		p.Read(quantity.Of("destinations with enough connections that ended, loopback apart", 0, "destinations"))
	}
	return nil
}

// growthTo does the arithmetic for a destination; ok is false if too few connections ended, or the destination is on
// loopback.
func growthTo(p *check.Pass, destination string, least float64) (g windowGrowth, ok bool) {
	closed := quantity.Of("connections that ended", evidence.FlowRise(p, metric.ConnectionsClosed, destination),
		quantity.Connections)
	if evidence.IsLoopback(destination) || least <= 0 || closed.Below(p.Param(slowStartEnded)) {
		return g, false
	}
	sent := evidence.FlowRise(p, metric.ConnectionBytes, destination, "direction", "sent")
	received := evidence.FlowRise(p, metric.ConnectionBytes, destination, "direction", "received")
	g = windowGrowth{
		destination: destination, closed: closed,
		each: quantity.Of("carried", max(sent, received), quantity.Bytes).Per(closed).As(quantity.Bytes).
			Named("carried by a connection, mean"),
		life: quantity.Of("established", evidence.FlowRise(p, metric.ConnectionSeconds, destination), quantity.Seconds).
			Per(closed).
			As(quantity.Seconds).Named("life of a connection, mean"),
		requests: quantity.Of("requests", evidence.FlowRise(p, metric.ConnectionTurns, destination), "requests").
			Per(closed).
			Named("requests per connection"),
		rtt: quantity.Of("least round trip", least, quantity.Seconds),
	}
	if g.life.Number() <= 0 || g.each.Number() <= 0 {
		return g, false
	}
	n := math.Ceil(math.Log2(g.each.Number()/(firstSegments*segmentPayload) + 1))
	g.rounds = quantity.Of(fmt.Sprintf("round trips of doubling from %d segments", firstSegments), n,
		slowStartRounds.Unit)
	g.time = quantity.Of("", n*least, quantity.Seconds)
	g.share = g.time.Per(g.life).Named("growth of the window, share of a connection's life")
	return g, true
}

func (g windowGrowth) finding() check.Finding {
	return check.Finding{
		Subject:    check.Subject{Kind: "destination", ID: g.destination},
		Severity:   check.Info,
		Confidence: check.Medium,
		Weight:     g.share.Number(),
		Summary: fmt.Sprintf("connections to %s live %s; up to %s of that are %.0f round trips in which their "+
			"window grows", g.destination,
			g.life.Text(), g.time.Text(), g.rounds.Number()),
		Evidence: []quantity.Value{g.share, g.rounds, g.rtt, g.each, g.life, g.requests, g.closed},
		Remedies: []check.Remedy{
			{
				Action: "Keep connections to " + g.destination +
					" and use them again: the window is there from the first request on.",
				Risk: "a kept connection that the peer closed meanwhile fails its next request: set the pool's idle " +
					"time " +
					"below the peer's",
				Effect: fmt.Sprintf("%.0f round trips of %s -> 1, and no handshake: at most %s less a request",
					g.rounds.Number(),
					g.rtt.Text(),
					g.rtt.Times(quantity.Of("", g.rounds.Number(), quantity.None)).Text()),
			},
			{
				Action: "Where connections are kept but pause, keep their window over the pause, on the side that " +
					"sends most.",
				Command: "sysctl -w net.ipv4.tcp_slow_start_after_idle=0",
				Risk:    "a burst after a pause may meet a path that has become narrower",
				Effect:  "nothing until connections are kept",
			},
		},
		Placebos: []string{"Larger socket buffers: they bound the window only after it has grown."},
		Disproof: "the second request on one connection takes as long as the first (curl URL URL).",
		Doubts: []string{
			"a peer that sends slowly for a reason of its own looks the same from here",
			"that it begins with ten segments is the usual setting, not measured",
		},
	}
}
