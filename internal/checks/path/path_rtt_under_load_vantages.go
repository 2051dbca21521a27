package path

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

var rttAlike = &check.Param{
	Name: "alike", Default: 0.5, Unit: quantity.Ratio,
	Why: "two hosts behind one queue measured 101 and 101, 106 and 105, 104 and 104 ms; with fewer pings one may " +
		"see it half as long",
}

// A vantage is what one place measured of one destination.
type vantage struct {
	seen        bool
	rtt         quantity.Value // median
	least, most quantity.Value
	unanswered  quantity.Value // share of the pings
}

// A sight is what a destination looks like from all places.
type sight struct{ here, neighbour, outside vantage }

// sightOf returns what was measured of a destination. Without a ping from here, the round trip of the connections
// themselves stands in.
func sightOf(p *check.Pass, destination string, own quantity.Value) sight {
	s := sight{
		here: vantageOf(p, metric.VantageHere, destination, "round trip from here"),
		neighbour: vantageOf(p, metric.VantageNeighbour, destination,
			"round trip from an unloaded host behind the same egress"),
		outside: vantageOf(p, metric.VantageOutside, destination, "round trip from outside of it"),
	}
	if !s.here.seen {
		s.here = vantage{seen: true, rtt: own}
	}
	return s
}

func vantageOf(p *check.Pass, name, destination, label string) vantage {
	var v vantage
	s, ok := evidence.First(p.Gauge(metric.VantageRTT, "vantage", name, "destination", destination))
	if !ok {
		return v
	}
	v.seen = true
	v.rtt = quantity.Of(fmt.Sprintf("%s, median of %d handshakes", label, len(s.Points)),
		series.Median(series.Values(s.Points)), quantity.Seconds)
	v.least, v.most = quantity.Of("least", s.Min(), quantity.Seconds), quantity.Of("most", s.Max(), quantity.Seconds)
	lost, _, ok := evidence.Rise("unanswered", p.Counter(metric.VantageUnanswered, "vantage", name, "destination",
		destination))
	sent, _, ok2 := evidence.Rise("pings", p.Counter(metric.VantagePings, "vantage", name, "destination", destination))
	if ok && ok2 && sent.Number() > 0 {
		v.unanswered = lost.Per(sent).Named("%s, without an answer in 1 s", label)
	}
	return v
}

// farther reports whether round trip a exceeds b by enough for path-rtt-under-load to call it a queue.
func farther(p *check.Pass, a, b quantity.Value) bool {
	return b.Number() > 0 && a.Per(b).As(rttFactor.Unit).AtLeast(p.Param(rttFactor)) && a.Minus(b).
		AtLeast(p.Param(rttExcess))
}

// read notes what the other places saw.
func (s sight) read(p *check.Pass) {
	for _, v := range []vantage{s.neighbour, s.outside} {
		if v.seen {
			p.Read(v.rtt)
		}
	}
}

// egress reports whether the queue is where this host and its neighbour share the path and the outside does not.
func (s sight) egress(p *check.Pass) bool {
	return s.neighbour.seen && s.outside.seen && farther(p, s.here.rtt, s.outside.rtt) &&
		farther(p, s.neighbour.rtt, s.outside.rtt) &&
		s.neighbour.rtt.Per(s.here.rtt).AtLeast(p.Param(rttAlike))
}

// thisHost reports whether the neighbour, over the same egress, has no such queue.
func (s sight) thisHost(p *check.Pass) bool {
	return s.neighbour.seen && farther(p, s.here.rtt, s.neighbour.rtt)
}

// destination reports whether it is as slow from everywhere.
func (s sight) destination(p *check.Pass) bool {
	alike := func(v vantage) bool { return v.seen && v.rtt.Per(s.here.rtt).AtLeast(p.Param(rttAlike)) }
	return alike(s.neighbour) && alike(s.outside)
}

// varies reports whether the round trip from the neighbour varied by as much as a queue does. A distance does not
// vary.
func (s sight) varies(p *check.Pass) bool {
	return s.neighbour.most.Minus(s.neighbour.least).AtLeast(p.Param(rttExcess))
}

// evidence returns the numbers of all places.
func (s sight) evidence() []quantity.Value {
	var out []quantity.Value
	for _, v := range []vantage{s.here, s.neighbour, s.outside} {
		if v.seen {
			out = append(out, v.rtt)
		}
		if v.unanswered.Number() > 0 {
			out = append(out, v.unanswered)
		}
	}
	return out
}

// locate adds what the other places tell about a slow path, if there were any.
func locate(p *check.Pass, f *check.Finding, path slowPath) {
	s := path.sight
	if !s.neighbour.seen && !s.outside.seen {
		return
	}
	f.Evidence = append(f.Evidence, s.evidence()...)
	f.Doubts = f.Doubts[:0]
	switch {
	case s.egress(p):
		locateEgress(p, f, path)
	case s.thisHost(p):
		f.Confidence = check.High
		f.Summary += fmt.Sprintf("; from a neighbour behind the same egress %s: the queue is this host's own",
			s.neighbour.rtt.Text())
		f.Remedies = []check.Remedy{{
			Action: "Look at what this host sends and receives: bulk traffic of its own before the device, or a " +
				"CPU full of softirqs.",
			Command: "tc -s qdisc; mpstat -P ALL 1",
			Risk:    "None in looking.",
			Effect:  "the round trip from here falls to the neighbour's " + s.neighbour.rtt.Text(),
		}}
	case s.destination(p):
		f.Confidence = check.High
		f.Summary += fmt.Sprintf("; as from a neighbour (%s) and from outside (%s): the queue is at the destination",
			s.neighbour.rtt.Text(), s.outside.rtt.Text())
		f.Remedies = []check.Remedy{{
			Action: "Show these numbers to whoever runs " + path.destination +
				": it, or what stands before it, is slow from everywhere.",
			Risk:   "None.",
			Effect: fmt.Sprintf("fixed, the round trip returns to about %s", path.least.Text()),
		}}
	default:
		f.Doubts = append(f.Doubts,
			"the other places do not show where the queue is: that takes pings from a neighbour and from outside")
	}
}

func locateEgress(p *check.Pass, f *check.Finding, path slowPath) {
	s := path.sight
	added := s.here.rtt.Minus(s.outside.rtt).Named("added by what both share")
	f.Evidence = append(s.evidence(), added, s.neighbour.rtt.Per(s.here.rtt).
		Named("neighbour's round trip over this host's"))
	f.Confidence, f.Weight = check.High, added.Per(s.here.rtt).Number()
	f.Facts = append(f.Facts, evidence.QueueAtEgress)
	f.Summary = fmt.Sprintf("from this host %s, from an unloaded host behind the same egress %s, from outside %s",
		s.here.rtt.Text(), s.neighbour.rtt.Text(), s.outside.rtt.Text())
	f.Remedies = []check.Remedy{{
		Action: "Diagnose the box that both hosts leave by (gateway, NAT, firewall), and show its owners these " +
			"three numbers.",
		Command: "perfdoctor diagnose    # on that box: snat-single-core, conntrack-full, nic-drops",
		Risk:    "None in looking.",
		Effect: fmt.Sprintf("the round trip from %s to about the outside's %s", s.here.rtt.Text(),
			s.outside.rtt.Text()),
	}}
	f.Placebos = append(f.Placebos, "A faster service or a faster API: neither is where the time goes.")
	f.Disproof = "The neighbour's ping while this host is idle: as long as now, then it is the distance. " +
		"Or the neighbour was loaded itself."
	if !path.own && !s.varies(p) {
		f.Severity, f.Confidence = check.Info, check.Medium
		f.Summary += ": longer by what both share, or outside is just nearer"
		f.Doubts = append(f.Doubts, "the round trip hardly varies: that points to distance rather than a queue")
		return
	}
	f.Summary += ": the egress both share, neither this service nor " + path.destination
	// rttExcess is enough (see egress), not rttWarn: the ping is as slow, and nobody holds back its answer
	f.Severity = check.Warning
}
