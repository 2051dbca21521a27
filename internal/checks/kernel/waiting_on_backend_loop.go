package kernel

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// runLoopBackend checks event loops, which wait for all connections at once. At each look at the sockets some
// requests of clients have no answer yet, and some requests to destinations have none: by Little's law their ratio is
// the share of a request's time that a destination takes. It reports whether there was anything to judge.
func runLoopBackend(p *check.Pass, l *ledger.Ledger) bool {
	r, ok := evidence.RequestsOf(p)
	if !ok || waitsForMany(l).Below(p.Param(backendWaiters)) {
		return false
	}
	told := false
	for _, destination := range evidence.LabelValues(p.Gauge(metric.DestinationAsked), "destination") {
		mean := evidence.Asking(p, destination)
		if mean == 0 || !evidence.OfTarget(p, destination) {
			continue
		}
		told = true
		asked := quantity.Of("requests to "+destination+" without an answer, mean", mean, quantity.Sockets)
		share := asked.As(r.InProgress.Unit()).Per(r.InProgress).
			Named("share of a request's time that %s takes", destination)
		p.Read(share)
		if mean >= p.Param(backendWaiters).Number() && share.AtLeast(p.Param(backendShare)) {
			f := loopFinding(p, destination, asked, share, r)
			evidence.Noticed(p, &f, asked, backendRequest)
			promise(p, &f, destination, asked)
			p.Report(f)
		}
	}
	return told
}

func loopFinding(p *check.Pass, destination string, asked, share quantity.Value, r evidence.Requests) check.Finding {
	number := func(v quantity.Value) string { return quantity.Of("", v.Number(), quantity.None).Text() }
	part := number(asked) + " of "
	if asked.Number() >= r.InProgress.Number() { // several for one request, or seen at another moment
		part = "all "
	}
	return check.Finding{
		Subject:  check.Subject{Kind: "destination", ID: destination},
		Severity: check.Info,
		// one look per interval: some ten of them
		Confidence: check.Medium,
		Weight:     min(share.Number(), 1),
		Summary: fmt.Sprintf("requests wait for answers of %s: %s%s that clients wait for, at any moment",
			destination, part, number(r.InProgress)),
		Evidence: []quantity.Value{share, asked},
		Remedies: []check.Remedy{{
			Action: "Find out why " + destination + " answers late; ask it less often, at the same time, or with a " +
				"timeout.",
			Risk: "a timeout turns a slow answer into none",
			Effect: fmt.Sprintf("the share of a request's time from %s to below %s", share.Text(),
				p.Param(backendShare).Text()),
		}},
		Placebos: []string{"More workers or CPUs here: the time is spent there."},
		Disproof: "the destination answers in less time than requests take here (its own log, tcpdump).",
	}
}
