package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	nagleHeld = &check.Param{
		Name: "held", Default: 0.1, Unit: quantity.Sockets,
		Why: "at most five requests a second on a connection, each held for 40 ms, hold it a fifth of the time; half " +
			"of that is more than what a look may meet by chance",
	}
	nagleSeen = &check.Param{
		Name: "seen", Default: 0.3, Unit: quantity.Ratio,
		Why: "of the looks at the sockets; a transfer's last bytes are held for less than a round trip, and are seen " +
			"in one or two of ten at most",
	}
	nagleShare = &check.Param{
		Name: "share", Default: 0.3, Unit: quantity.Ratio,
		Why: "of the time of the connections: from here on most requests wait longer for an acknowledgement than for " +
			"their answer",
	}
)

var nagleDelayedAck = &check.Check{
	Name:  "nagle-delayed-ack",
	Stage: check.Connections,
	Doc: `Small writes wait for an acknowledgement that the peer delays

Nagle's algorithm keeps less than a segment back while something is unacknowledged. A peer that has nothing to send
acknowledges after 40 ms (TCP_DELACK_MIN). So a program that writes a header and then a body, without TCP_NODELAY,
waits 40 ms in each request, on an idle machine and an idle network: 25 requests a second on a connection, whatever it
costs to serve them.

Measured: at each look at the sockets, established connections with less than a segment unsent while something is
unacknowledged. A connection that waits for a window has more to send; one with TCP_NODELAY keeps nothing back. Both
sides of a loopback connection are looked at.

Fix: TCP_NODELAY on the side that writes (Java's HTTP server: -Dsun.net.httpserver.nodelay=true), or one write for
header and body. Won't help: more threads, more CPUs, larger buffers. Disproved if the answer time stays the same with
TCP_NODELAY, or ss -tin shows no notsent on these connections.`,
	URL:    "https://www.rfc-editor.org/rfc/rfc896",
	Needs:  []metric.Metric{metric.DestinationHeld, metric.ListenerHeld},
	Uses:   []metric.Metric{metric.DestinationSockets, metric.ListenerSockets},
	Params: []*check.Param{nagleHeld, nagleSeen, nagleShare},
	Run:    runNagle,
}

func runNagle(p *check.Pass) error {
	read := false
	for _, s := range p.Gauge(metric.ListenerHeld) {
		read = nagleOf(p, s, check.Subject{Kind: "listener", ID: s.Label("listener")},
			evidence.MeanOf(p.Gauge(metric.ListenerSockets, "listener", s.Label("listener"), "state",
				"ESTABLISHED"))) || read
	}
	for _, s := range p.Gauge(metric.DestinationHeld) {
		read = nagleOf(p, s, check.Subject{Kind: "destination", ID: s.Label("destination")},
			evidence.MeanOf(p.Gauge(metric.DestinationSockets, "destination", s.Label("destination"), "state",
				"ESTABLISHED"))) || read
	}
	if !read {
		p.Read(quantity.Of("connections with something held back", 0, quantity.Sockets))
	}
	return nil
}

// nagleOf looks at one listener or destination, and reports whether anything was held back there at any time.
func nagleOf(p *check.Pass, s recording.GaugeSeries, subject check.Subject, connections float64) bool {
	seen := 0.0
	for _, point := range s.Points {
		if point.Value > 0 {
			seen++
		}
	}
	if seen == 0 {
		return false
	}
	held := quantity.Of("connections to "+subject.ID+" that are held back, mean", s.Mean(), quantity.Sockets)
	looks := quantity.Of("looks that saw one", seen, quantity.Events).
		Per(quantity.Of("looks", float64(len(s.Points)), quantity.Events)).Named("looks that saw one held back")
	share := quantity.Of("held back", s.Mean(), quantity.Sockets).
		Per(quantity.Of("established", max(connections, s.Mean()), quantity.Sockets)).
		Named("time for which these connections are held back")
	p.Read(held)
	if held.Below(p.Param(nagleHeld)) || looks.Below(p.Param(nagleSeen)) {
		return true
	}
	f := nagleFinding(subject, held, looks, share)
	if share.AtLeast(p.Param(nagleShare)) {
		f.Severity = check.Warning
	}
	if subject.Kind == "listener" {
		evidence.WithoutThreads(p, &f, s.Mean())
	}
	p.Report(f)
	return true
}

func nagleFinding(subject check.Subject, held, looks, share quantity.Value) check.Finding {
	return check.Finding{
		Subject:    subject,
		Severity:   check.Info,
		Confidence: check.Medium, // the sockets are looked at once an interval
		Weight:     share.Number(),
		Summary: fmt.Sprintf("connections of %s keep their last bytes back for %s of the time, until the peer "+
			"acknowledges the ones before: Nagle's algorithm against delayed acknowledgement", subject, share.Text()),
		Evidence: []quantity.Value{share, held, looks},
		Remedies: []check.Remedy{{
			Action: "Set TCP_NODELAY where these connections are made, or write header and body at once.",
			Risk:   "more and smaller packets, if the program writes in many small pieces",
			Effect: "up to 40 ms less for each request",
		}},
		Placebos: []string{"More threads or CPUs: a request waits for a timer of the peer's kernel."},
		Disproof: "ss -tin shows no notsent on these connections, or requests take as long with TCP_NODELAY.",
	}
}
