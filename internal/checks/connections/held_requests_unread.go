package connections

import (
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// reportUnread reports a program that hangs: at each look of the window requests lay unread at one of its ports, none
// was answered at any, and it does not compute. It returns whether it does.
func reportUnread(p *check.Pass, l *ledger.Ledger) bool {
	listener, unread, ok := unreadAllTheTime(p)
	if !ok || evidence.RequestsAtMost(p).Number() > 0 || heldByCPU(p).AtLeast(p.Param(paramHeldFull)) {
		return false
	}
	asked := evidence.Unanswered(p)
	f := check.Finding{
		Subject:    evidence.TargetSubject(p),
		Severity:   check.Warning,
		Confidence: check.High,
		Summary: fmt.Sprintf("the program hangs: no request was answered in %s, %s wait for an answer, and %s of %s "+
			"have requests that it has not read", quantity.Of("", p.Meta.Duration, quantity.Seconds).Text(),
			asked.Text(), unread.Text(), listener),
		Evidence: []quantity.Value{asked, unread},
		Remedies: []check.Remedy{{
			Action: "See what its threads wait for (WHERE THE THREADS' TIME GOES; gdb -p PID -batch -ex 'thread " +
				"apply all bt'), give that wait a time limit, and keep some threads for other requests.",
			Risk:   "a time limit turns a late answer into none",
			Effect: "requests are read and answered again",
		}},
		Placebos: []string{"More CPUs, or a restart: it hangs again when the wait comes back."},
		Disproof: "ss -tnp shows a Recv-Q that falls.",
	}
	f.Summary += whereTheyWait(p)
	for _, pool := range largestPools(l) {
		f.Notes = append(f.Notes, pool.Who()+": "+pool.Split())
	}
	p.Report(f)
	return true
}

// whereTheyWait names where most threads wait, for a runtime whose stacks say it; else it is "". Nobody has work but
// these, since no request is answered.
func whereTheyWait(p *check.Pass) string {
	w, err := evidence.WaitingOf(p)
	if err != nil {
		return ""
	}
	var hits []evidence.Hit
	for _, s := range w.Samples {
		if wait, at := w.Waits.Blocked(s); wait != hotcode.NotWaiting && wait != hotcode.Idle {
			hits = append(hits, evidence.Hit{Sample: s, At: at})
		}
	}
	for _, at := range evidence.Culprits(w.Profile, w.Owners, hits, nil) {
		return fmt.Sprintf("; %s wait at %s", w.Threads("", at.Value).Text(), at.Name())
	}
	return ""
}

// largestPools returns the pools with the most threads.
func largestPools(l *ledger.Ledger) []*ledger.Pool {
	pools := slices.Clone(l.Pools)
	slices.SortStableFunc(pools, func(a, b *ledger.Pool) int { return int(b.Threads - a.Threads) })
	return pools[:min(len(pools), evidence.NamedCulprits)]
}

// unreadAllTheTime returns a port of the target at which requests lay unread at each look, and in how many connections
// at least.
func unreadAllTheTime(p *check.Pass) (listener string, unread quantity.Value, ok bool) {
	for _, s := range p.Info(metric.TargetListenPorts) {
		listener = s.Label("listener")
		for _, u := range p.Gauge(metric.ListenerUnread, "listener", listener) {
			if u.Min() >= 1 && coversWindow(p, u) {
				return listener, quantity.Of("connections with requests that nobody has read, at least", u.Min(),
					quantity.Connections), true
			}
		}
	}
	return "", unread, false
}

// coversWindow reports whether a series has points in all of the window: the first look at a port finds no change yet,
// and one that does find a change makes a gap.
func coversWindow(p *check.Pass, s recording.GaugeSeries) bool {
	const first, last, part = 0.3, 0.85, 0.6 // of the window, and of the samples
	window := p.Meta.Duration
	looks := window / max(p.Meta.Interval, 1)
	begin, end := s.Points[0].At.Seconds(), s.Points[len(s.Points)-1].At.Seconds()
	return begin <= first*window && end >= last*window && float64(len(s.Points)) >= part*looks
}
