package path

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
	rttFactor = &check.Param{
		Name: "over-minimum", Default: 5, Unit: "times",
		Why: "radio links and busy switches vary by two or three times; queues in front of a full link or core by " +
			"far more",
	}
	rttExcess = &check.Param{
		Name: "excess", Default: 0.02, Unit: quantity.Seconds,
		Why: "less is not felt by a request, and within a data centre is below the timers that would multiply it",
	}
	rttWarn = &check.Param{
		Name: "excess-warn", Default: 0.05, Unit: quantity.Seconds,
		Why: "a peer may hold an ACK back for 40 ms (TCP_DELACK_MIN in include/net/tcp.h): an excess up to that " +
			"need not be a queue",
	}
	rttSamples = &check.Param{
		Name: "samples", Default: 3, Unit: "samples",
		Why: "one or two readings can be one slow answer",
	}
)

// rttReported bounds the findings: past the third destination the picture is the same, and a note says how many there
// are.
const rttReported = 3

var pathRTTUnderLoad = &check.Check{
	Name:  "path-rtt-under-load",
	Stage: check.Path,
	Doc: `Round trips are far longer than this path can do

The kernel keeps a smoothed round-trip time for each connection, and the least it ever saw. The least is what the path
takes when empty; the difference is time in queues: at a full link, a gateway whose core is saturated, or behind this
host's own bulk traffic (bufferbloat).

The check takes, per destination, the mean of the smoothed time against the minimum; loopback is left out. A warning
needs several times the minimum and an excess above the 40 ms for which a peer may delay an ACK, in several samples.

One host cannot tell where on the path the queue is. Three places can: here, an unloaded host behind the same egress
(the neighbour), and one outside of it. Run perfdoctor ping on the last two during the diagnosis and give their files to
diagnose with --vantage. Here ≈ neighbour, both far above outside: the egress they share is the bottleneck, neither this
service nor its peer. Only here is slow: this host is the bottleneck. All are slow: the destination is.

Short connections under steady load never see the path empty, so their minimum says nothing. The outside's round trip
then takes its place. It is a warning where the neighbour's round trip varies: a queue varies, a distance does not.
What the egress adds is a warning from 20 ms on: nobody delays the answer to a ping.

Fixes: the box between (see snat-single-core on it); a limit or fair queueing for own bulk traffic. Won't help: larger
buffers anywhere. Disproof: ping to the destination is short while the application is slow.`,
	URL:    "https://man7.org/linux/man-pages/man7/tcp.7.html",
	Needs:  []metric.Metric{metric.DestinationRTT, metric.DestinationMin},
	Uses:   []metric.Metric{metric.DestinationBytes, metric.VantageRTT, metric.VantagePings, metric.VantageUnanswered},
	Params: []*check.Param{rttFactor, rttExcess, rttWarn, rttSamples, rttAlike},
	Facts:  []check.Fact{evidence.QueueAtEgress},
	Beyond: "a ping to the destination",
	Run:    runPathRTTUnderLoad,
}

type slowPath struct {
	destination              string
	rtt, least, excess, over quantity.Value
	sight                    sight
	own                      bool // far above the least that its own connections saw
}

func runPathRTTUnderLoad(p *check.Pass) error {
	var slow []slowPath
	seen := 0
	for _, s := range p.Gauge(metric.DestinationRTT) {
		d := s.Label("destination")
		least := p.Gauge(metric.DestinationMin, "destination", d)
		samples := quantity.Of("samples", float64(len(s.Points)), rttSamples.Unit)
		if evidence.IsLoopback(d) || len(least) == 0 || least[0].Min() <= 0 || samples.Below(p.Param(rttSamples)) {
			continue
		}
		seen++
		path := slowPath{
			destination: d,
			rtt:         quantity.Of("round trip, mean of the smoothed time", s.Mean(), quantity.Seconds),
			least:       quantity.Of("least round trip seen", least[0].Min(), quantity.Seconds),
		}
		path.excess = path.rtt.Minus(path.least).Named("time in queues")
		path.over = path.rtt.Per(path.least).Named("over the minimum").As(rttFactor.Unit)
		p.Read(path.rtt.Named("round trip to %s", d))
		path.own = path.over.AtLeast(p.Param(rttFactor)) && path.excess.AtLeast(p.Param(rttExcess))
		path.sight = sightOf(p, d, path.rtt.Named("round trip from here, of its own connections"))
		path.sight.read(p)
		if path.own || path.sight.egress(p) {
			slow = append(slow, path)
		}
	}
	if seen == 0 {
		p.Read(quantity.Of("destinations with a round-trip time, loopback apart", 0, "destinations"))
	}
	slices.SortStableFunc(slow, func(a, b slowPath) int { return cmp.Compare(b.excess.Number(), a.excess.Number()) })
	for _, path := range slow[:min(len(slow), rttReported)] {
		reportSlowPath(p, path, len(slow), seen)
	}
	return nil
}

func reportSlowPath(p *check.Pass, path slowPath, slow, seen int) {
	host := evidence.HostOf(path.destination)
	f := check.Finding{
		Subject:    check.Subject{Kind: "destination", ID: path.destination},
		Severity:   check.Info,
		Confidence: check.Medium,
		Summary: fmt.Sprintf("a round trip to %s takes %s, %.0f times the %s the path can do", path.destination,
			path.rtt.Text(),
			path.over.Number(), path.least.Text()),
		Evidence: []quantity.Value{path.rtt, path.least, path.excess, path.over},
		Notes:    []string{where(slow, seen)},
		Remedies: []check.Remedy{{
			Action: fmt.Sprintf("Ping %s at the same moment from here, from an idle host behind the same egress, "+
				"and from outside: "+
				"slow from the first two only means the shared egress, slow from here only means this host.", host),
			Command: check.Commandf("perfdoctor ping %[1]s --as neighbour --save neighbour.zip; on another host "+
				"perfdoctor ping %[1]s --as outside --save outside.zip; "+
				"here perfdoctor diagnose --vantage neighbour.zip --vantage outside.zip", path.destination),
			Risk: "None.",
			Effect: fmt.Sprintf("names the box that adds %s; fixed, the round trip returns to about %s",
				path.excess.Text(), path.least.Text()),
		}},
		Placebos: []string{"Larger socket or device buffers: they make the queue longer, and the round trip with it."},
		Disproof: "A ping to " + host + " under load near " + path.least.Text() +
			": then the peer's program is slow to read, not the path.",
		Doubts: []string{
			"measured from this host alone: a queue on the path, at the peer, or behind this host's own bulk upload " +
				"looks the same",
		},
	}
	if path.excess.AtLeast(p.Param(rttWarn)) {
		f.Severity = check.Warning
	} else {
		f.Doubts = append(f.Doubts, "an excess below "+p.Param(rttWarn).Text()+" can be the peer's delayed ACKs")
	}
	locate(p, &f, path)
	if s := p.Gauge(metric.DestinationBytes, "destination", path.destination); len(s) > 0 &&
		s[0].Last() > s[0].First() {
		carried := quantity.Of("", s[0].Last()-s[0].First(), quantity.Bytes)
		f.Evidence = append(f.Evidence, carried.Per(evidence.Span(s[0].Series)).Named("traffic to it, at least"))
	}
	p.Report(f)
}

func where(slow, seen int) string {
	if slow == seen && seen > 1 {
		return fmt.Sprintf("all %d destinations are slow: look at what they share, this host or its egress", seen)
	}
	return fmt.Sprintf("%d of %d destinations are slow", slow, seen)
}
