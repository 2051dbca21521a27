package runtime

import (
	"fmt"
	"math"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	leaseWaiters = &check.Param{
		Name: "waiters", Default: 1, Unit: quantity.Threads,
		Why: "with less than one thread waiting on average the pool is short only at moments",
	}
	leaseShare = &check.Param{
		Name: "share", Default: 0.1, Unit: quantity.Ratio,
		Why: "of the time that threads spend with the pool, waiting included; below it the work itself is what " +
			"takes long",
	}
)

var poolExhausted = &check.Check{
	Name:  "pool-exhausted",
	Stage: check.Runtime,
	Doc: `Threads wait for a connection from a pool that is all lent out

A pool of connections (JDBC, HTTP, Redis) or of permits lends as many as it
has; later threads wait. Too small a pool is one reason. The more frequent one
is that each is held for too long: over a slow query, or over work that does
not need it.

Measured: in a wall-clock profile of a JVM, threads that are parked in a known
pool's lease or in a Semaphore, by the method of the application that asks;
against threads in the same method that have one and work. The same is measured
for goroutines of Go and threads of Python; there a channel or queue is a pool,
too, where those that came past it do their work in the same function. By
Little's law a pool must hold rate × time held: with as many as hold one or
wait for one, on average, nobody would have to wait.

Fix: hold it for less, then size it so. Risk: more connections load what is
behind them, whose own limit (max_connections) must be higher. Won't help: a
longer lease timeout; a longer queue serves nobody sooner.
Disproof: the pool's own metrics show idle connections.`,
	URL:   "https://github.com/brettwooldridge/HikariCP/wiki/About-Pool-Sizing",
	Needs: []metric.Metric{metric.TargetInfo}, // and one of the first two below
	Uses: append([]metric.Metric{
		metric.WallProfileSamples, metric.GoroutineProfileSamples, metric.GoRuntime,
		metric.ScriptWallProfileSamples, metric.ScriptRuntime, metric.DestinationAsked, metric.DestinationOwner,
	}, append(evidence.CPUMetrics(), evidence.RequestMetrics()...)...),
	Only:   evidence.OnlyRuntimes,
	Params: []*check.Param{leaseWaiters, leaseShare},
	Facts:  []check.Fact{evidence.NobodysWork, evidence.EachOther},
	Run:    runPoolExhausted,
}

func runPoolExhausted(p *check.Pass) error {
	w, err := evidence.WaitingOf(p)
	if err != nil {
		return err
	}
	if full, ok := w.CPUsFull(p); ok {
		p.Read(full)
		return nil
	}
	sites := w.Leases(p)
	if len(sites) == 0 {
		p.Read(quantity.Of("threads that wait for a pool", 0, w.Unit()))
		return nil
	}
	for i, s := range sites {
		waiters := w.Threads(w.Who()+" that wait for the pool", s.Value)
		share := s.Share().Named("waiting, share of the time of %s in %s", w.Who(), s.Holder)
		if i == 0 {
			p.Read(waiters)
		}
		if waiters.AtLeast(p.Param(leaseWaiters).As(w.Unit())) && share.AtLeast(p.Param(leaseShare)) {
			f := leaseFinding(s, w, waiters, share)
			evidence.WithoutThreads(p, &f, waiters.Number())
			if w.KeepsOut(s) {
				f.Facts = append(f.Facts, evidence.EachOther)
			}
			p.Report(f)
		}
	}
	return nil
}

// has returns "1 thread has", "2 threads have".
func has(threads quantity.Value) string {
	if text := threads.Text(); strings.HasPrefix(text, "1 ") {
		return text + " has"
	}
	return threads.Text() + " have"
}

func leaseFinding(s *evidence.WaitSite, w *evidence.Waiting, waiters, share quantity.Value) check.Finding {
	holders := w.Threads(w.Who()+" that have one", s.Inside)
	f := check.Finding{
		Subject:    check.Subject{Kind: "pool", ID: s.Frame + " at " + s.Method},
		Severity:   check.Warning,
		Confidence: evidence.SampledConfidence(s.Count, nil),
		Weight:     share.Number(),
		Summary:    fmt.Sprintf("%s wait in %s, at %s; %s one", waiters.Text(), s.Frame, s.Name(), has(holders)),
		Evidence: []quantity.Value{waiters, holders, share, holders.Plus(waiters).
			Named("would be enough for nobody to wait")},
		Notes: []string{strings.Join(s.Path, " ← "), fmt.Sprintf("%d samples of %s that wait", s.Count, w.Who())},
		Remedies: []check.Remedy{
			{
				Action: "Hold each for less: take it late, give it back before other work, and look at what the " +
					"holders wait for.",
				Risk:   "work that belonged to one transaction may come apart",
				Effect: fmt.Sprintf("waiting threads from %s to none", waiters.Text()),
			},
			{
				Action: fmt.Sprintf("Size the pool to %.0f, which is rate × time held.",
					math.Ceil(holders.Number()+waiters.Number())),
				Risk:   "more connections load what is behind them, and count against its limit",
				Effect: fmt.Sprintf("waiting threads from %s to none, if what is behind can take it", waiters.Text()),
			},
		},
		Placebos: []string{"A longer lease timeout: a longer queue serves nobody sooner."},
		Disproof: "the pool's own metrics show idle connections.",
	}
	if s.Wait != hotcode.ForQueue { // the thread that empties a queue may have too much to do
		f.Facts = append(f.Facts, evidence.NobodysWork)
	}
	f.Marks = evidence.MarksOf(w.Event, s.Hits)
	_, parts := w.Inside(s.Holder, s.Wait)
	if !w.IsJava() && len(parts) > 0 {
		f.Summary = fmt.Sprintf("%s wait for their turn (%s), at %s; %s it, and most of those %s", waiters.Text(),
			s.Frame, s.Name(), has(holders), evidence.WithoutShare(parts[0]))
	}
	if len(parts) > 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("%s in %s that have one: %s", w.Who(), s.Holder,
			strings.Join(parts, ", ")))
	}
	return f
}
