package kernel

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// runNativeBackend checks programs without a runtime that knows what its threads wait for: it reads the account of
// their time.
func runNativeBackend(p *check.Pass) error {
	l, ok := evidence.LedgerOf(p)
	if !ok {
		return check.NotAssessed("profile for longer", "the waits of threads cover no time")
	}
	read := false
	for _, pool := range l.Pools {
		_, answers := pool.Sum(ledger.Place.Asked)
		if answers == 0 {
			continue
		}
		share := quantity.Of("blocked for answers", answers, quantity.Seconds).
			Per(quantity.Of("with work", pool.Working(), quantity.Seconds)).
			Named("waiting for answers, share of the time with work of %s", pool.Title())
		threads := quantity.Of("blocked for answers", answers, quantity.Seconds).
			Per(quantity.Of("window", l.Window, quantity.Seconds)).As(quantity.Threads).
			Named("threads of %s that wait for an answer", pool.Title())
		if !read {
			p.Read(share)
			read = true
		}
		if threads.AtLeast(p.Param(backendWaiters)) && share.AtLeast(p.Param(backendShare)) {
			p.Report(nativeFinding(p, pool, share, threads, answers))
		}
	}
	if runLoopBackend(p, l) || read {
		return nil
	}
	if many := waitsForMany(l); many.AtLeast(p.Param(backendWaiters)) {
		return check.NotAssessed("the program's own metrics of its calls, or ss -tinp for the connections it has sent "+
			"something on",
			"%s wait in epoll, poll or select for any of several sockets at once: only the program knows which of "+
				"them keeps work waiting",
			many.Text())
	}
	p.Read(quantity.Of("waits for answers of a destination", 0, quantity.Events))
	return nil
}

// waitsForMany returns the threads that wait for several sockets together, as event loops do. The kernel knows which
// sockets these are and which of them ended a wait, but nobody waits for most of them, such as clients' idle
// connections.
func waitsForMany(l *ledger.Ledger) quantity.Value {
	total := 0.0
	for _, pool := range l.Pools {
		total += pool.Parts[ledger.Events]
	}
	return quantity.Of("waiting for any of several sockets", total, quantity.Seconds).
		Per(quantity.Of("window", max(l.Window, 1), quantity.Seconds)).As(quantity.Threads)
}

func nativeFinding(p *check.Pass, pool *ledger.Pool, share, threads quantity.Value, answers float64) check.Finding {
	largest, _ := pool.Sum(ledger.Place.Asked)
	peer := largest.On
	of := quantity.Of("blocked for it", largest.Seconds, quantity.Seconds).
		Per(quantity.Of("blocked for answers", answers, quantity.Seconds)).Named("of this for %s", peer)
	occupied := quantity.Of("with work", pool.Working(), quantity.Seconds).
		Per(quantity.Of("all of its workers' time", pool.Workers, quantity.Seconds)).Named("%s occupied", pool.Title())
	here := func(s stacks.Sample) bool {
		return hotcode.WaitsForPeer(s.Class, peer)
	}
	waits, their := pool.Who()+" wait", "their"
	if strings.HasPrefix(waits, "1 thread ") {
		waits, their = pool.Who()+" waits", "its"
	}
	f := check.Finding{
		Subject:  check.Subject{Kind: "pool", ID: pool.Title()},
		Severity: check.Info,
		Weight:   share.Number(),
		Summary:  fmt.Sprintf("%s for answers of %s in %s of %s time with work", waits, peer, share.Text(), their),
		Evidence: []quantity.Value{share, of, threads, occupied},
		Notes:    append([]string{"the pool's time: " + pool.Split()}, evidence.OffCPUPaths(p, here)...),
		Remedies: []check.Remedy{{
			Action: "Find out why " + peer + " answers late; ask it less often or with a timeout, and bound the " +
				"threads that wait for it.",
			Risk: "a timeout turns a slow answer into none",
			Effect: fmt.Sprintf("time waited from %s to below %s of the work", share.Text(), p.Param(backendShare).
				Text()),
		}},
		Placebos: []string{moreThreads},
		Disproof: "the destination answers in less time than the threads wait (its own log, tcpdump).",
	}
	if each, ok := waitOfEach(p, peer); ok {
		f.Evidence = append(f.Evidence, each)
	}
	if at := evidence.FirstOffCPUPath(p, here); at != "" {
		f.Summary += ", at " + at
	}
	if occupied.AtLeast(p.Param(backendFull)) {
		f.Severity = check.Warning
	}
	noticed(p, &f, threads)
	promise(p, &f, peer, threads)
	return f
}

// waitOfEach returns how long a wait for the destination takes; ok is false where waits were sampled and not counted.
func waitOfEach(p *check.Pass, peer string) (each quantity.Value, ok bool) {
	seconds, count := 0.0, 0.0
	for _, w := range evidence.ThreadWaits(p) {
		if w.On == peer && waitKind(&w) == hotcode.ForNetwork {
			seconds += w.Seconds
			count += w.Count
		}
	}
	if count == 0 {
		return quantity.Value{}, false
	}
	return quantity.Of("blocked for it", seconds, quantity.Seconds).Per(quantity.Of("waits", count, quantity.Events)).
		As(quantity.Seconds).Named("a wait, mean"), true
}

// destinationsOf returns the destinations for which threads of a JVM waited, as the kernel sees it, the longest wait
// first. Java and the kernel name the threads differently, but their ids are the same.
func destinationsOf(p *check.Pass, w *evidence.Waiting, hits []evidence.Hit) []*evidence.ThreadWait {
	ids := map[string]bool{}
	for _, h := range hits {
		ids[strconv.Itoa(w.ThreadOf(h.Sample).ID)] = true
	}
	sums := map[string]*evidence.ThreadWait{}
	for _, t := range evidence.ThreadWaits(p) {
		if !ids[t.TID] || t.On == "" || waitKind(&t) != hotcode.ForNetwork {
			continue
		}
		if sums[t.On] == nil {
			sums[t.On] = &evidence.ThreadWait{On: t.On}
		}
		sums[t.On].Seconds += t.Seconds
		sums[t.On].Count += t.Count
	}
	return evidence.SortedBy(sums, func(t *evidence.ThreadWait) float64 { return t.Seconds })
}

func destinationNotes(list []*evidence.ThreadWait) []string {
	var out []string
	total := 0.0
	for _, t := range list {
		total += t.Seconds
	}
	for _, t := range list[:min(len(list), evidence.NamedCulprits)] {
		out = append(out, fmt.Sprintf("destination %s: %s of the time that these threads are blocked for answers, "+
			"%s each time", t.On,
			quantity.Of("", t.Seconds/total, quantity.Ratio).Text(), quantity.Of("", t.Seconds/max(1, t.Count),
				quantity.Seconds).Text()))
	}
	return out
}
