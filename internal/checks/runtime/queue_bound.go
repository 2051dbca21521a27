package runtime

import (
	"fmt"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	queueProducers = &check.Param{
		Name: "producers", Default: 0.5, Unit: quantity.Threads,
		Why: "half a thread standing still at any moment is more than a queue that is full for moments",
	}
	queueShare = &check.Param{
		Name: "share", Default: 0.1, Unit: quantity.Ratio,
		Why: "of the time of the threads that put: below a tenth their own work is what takes long",
	}
)

var queueBound = &check.Check{
	Name:  "queue-bound",
	Stage: check.Runtime,
	Doc: `Threads wait for room in a queue

A full bounded queue makes its producers wait: the consumers behind it are too
slow or too few, and set the pace. That is what a bound is for; it is a
bottleneck where the producers are the threads that answer requests.
Asynchronous loggers have such a queue.

Measured: in a wall-clock profile of a JVM, threads that are parked in put, offer
or transfer of a queue, by the method of the application; as a share of these
threads' time. The same is measured for goroutines of Go that send to a
channel, and for threads of Python. The check names the threads that run most
meanwhile: a consumer that is busy all the time is among them.

Fix: make the consumer faster (batches, no flush for each item), or have more
of them. Risk: more consumers lose the order. Won't help: a longer queue; it fills
too, later, and adds its length to the delay.
Disproof: the queue's length is far below its bound.`,
	URL:   "https://docs.oracle.com/en/java/javase/17/docs/api/java.base/java/util/concurrent/BlockingQueue.html",
	Needs: []metric.Metric{metric.TargetInfo}, // and one of the first two below
	Uses: append([]metric.Metric{
		metric.WallProfileSamples, metric.GoroutineProfileSamples, metric.GoRuntime,
		metric.ScriptWallProfileSamples, metric.ScriptRuntime,
	}, evidence.CPUMetrics()...),
	Only:   evidence.OnlyRuntimes,
	Params: []*check.Param{queueProducers, queueShare},
	Run:    runQueueBound,
}

func runQueueBound(p *check.Pass) error {
	w, err := evidence.WaitingOf(p)
	if err != nil {
		return err
	}
	if full, ok := w.CPUsFull(p); ok {
		p.Read(full)
		return nil
	}
	sites := w.Queues()
	if len(sites) == 0 {
		p.Read(quantity.Of(w.Who()+" that wait for room in a queue", 0, w.Unit()))
		return nil
	}
	for i, s := range sites {
		producers := w.Threads(w.Who()+" that wait for room in the queue", s.Value)
		if i == 0 {
			p.Read(producers)
		}
		share := producerShare(w, s)
		if producers.AtLeast(p.Param(queueProducers).As(w.Unit())) && share.AtLeast(p.Param(queueShare)) {
			f := queueFinding(s, w, producers, share)
			if others := w.OthersWithWork(); w.InGo() && len(others) > 0 {
				f.Summary += "; meanwhile " + others[0]
				f.Notes = append(f.Notes, "without a request: "+strings.Join(others, ", "))
			}
			p.Report(f)
		}
	}
	return nil
}

// producerShare returns the share of the time of the site's pool that its threads wait there.
func producerShare(w *evidence.Waiting, s *evidence.WaitSite) quantity.Value {
	all := w.Filter(func(x stacks.Sample) bool { return w.Pool(x) == s.Pool }).Total()
	return quantity.Of("", float64(s.Value)/1e9, quantity.Seconds).
		Per(quantity.Of("", float64(all.Value)/1e9, quantity.Seconds)).
		Named("waiting for room, share of the time of pool %q", s.Pool)
}

func queueFinding(s *evidence.WaitSite, w *evidence.Waiting, producers, share quantity.Value) check.Finding {
	return check.Finding{
		Subject:    check.Subject{Kind: "pool", ID: s.Pool},
		Severity:   check.Warning,
		Confidence: evidence.SampledConfidence(s.Count, nil),
		Weight:     share.Number(),
		Summary:    fmt.Sprintf("%s wait for room in a queue (%s), at %s", producers.Text(), s.Frame, s.Name()),
		Evidence:   []quantity.Value{producers, share},
		Notes: append([]string{
			strings.Join(s.Path, " ← "), fmt.Sprintf("%d samples of %s that wait", s.Count, w.Who()),
		}, busiestThreads(w)...),
		Remedies: []check.Remedy{{
			Action: "Make the consumer faster (batches, no flush for each item), or have more of them.",
			Risk:   "more consumers lose the order of the items",
			Effect: fmt.Sprintf("waiting producers from %s to none", producers.Text()),
		}},
		Placebos: []string{"A longer queue: it fills too, only later, and adds its length to the delay."},
		Disproof: "the queue's length is far below its bound.",
	}
}

// busiestThreads names the threads that run most, as a share of the window: others often wait for one of them.
func busiestThreads(w *evidence.Waiting) []string {
	sums := stacks.Group(w.Filter(func(s stacks.Sample) bool { return s.State == stacks.Running }),
		func(s stacks.Sample) string { return w.ThreadOf(s).Name })
	var parts []string
	for _, g := range sums[:min(len(sums), evidence.NamedCulprits)] {
		parts = append(parts, fmt.Sprintf("%s %s", g.Key, quantity.Of("", float64(g.Value)/float64(w.Duration),
			quantity.Ratio).Text()))
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{w.Who() + " that run most meanwhile: " + strings.Join(parts, ", ")}
}
