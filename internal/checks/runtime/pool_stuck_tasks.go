package runtime

import (
	"fmt"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// taskWorkers is what the workers of a queue do, such as those of Celery or Laravel.
type taskWorkers struct {
	name   string
	inHand map[int]int64 // time with a task, in nanoseconds, by index in the profile
	all    int64
	waits  map[hotcode.Wait][]evidence.Hit
}

func taskWorkersOf(w *evidence.Waiting) *taskWorkers {
	t := &taskWorkers{inHand: map[int]int64{}, waits: map[hotcode.Wait][]evidence.Hit{}}
	for _, s := range w.Samples {
		_, task := w.Waits.Serves(s)
		if s.Thread < 0 || !task && !w.Waits.Works(s) {
			continue
		}
		if !task {
			t.inHand[s.Thread] += 0 // it is free just then
			continue
		}
		t.name = w.Pool(s)
		t.inHand[s.Thread] += s.Value
		t.all += s.Value
		if wait, at := w.Waits.Of(s); wait != hotcode.NotWaiting && wait != hotcode.Idle {
			t.waits[wait] = append(t.waits[wait], evidence.Hit{Sample: s, At: at})
		}
	}
	return t
}

// neverFree reports whether each of several workers had a task in hand for nearly all of the window. The next task is
// there at once, so others wait in the queue.
func (t *taskWorkers) neverFree(p *check.Pass, w *evidence.Waiting) bool {
	for _, busy := range t.inHand {
		if float64(busy) < p.Param(stuckShare).Number()*float64(w.Duration) {
			return false
		}
	}
	return float64(len(t.inHand)) >= p.Param(stuckThreads).Number()
}

// reportStuckTasks reports workers that are never free, and wait for one kind of thing for most of that time.
func reportStuckTasks(p *check.Pass, w *evidence.Waiting) {
	t := taskWorkersOf(w)
	if evidence.TargetIsDotNet(p) {
		t.reportStarved(p, w)
		return
	}
	if w.Duration <= 0 || !t.neverFree(p, w) {
		return
	}
	wait, most := evidence.MostWaited(t.waits)
	waited := quantity.Of("waited", float64(evidence.Weigh(most).Value)/1e9, quantity.Seconds).
		Per(quantity.Of("with a task in hand", float64(t.all)/1e9, quantity.Seconds)).
		Named("of the time with a task in hand, waited for %s", wait)
	if len(most) == 0 || waited.Below(p.Param(stuckHeld)) {
		return
	}
	at := evidence.Culprits(w.Profile, w.Owners, most, nil)[0]
	all := quantity.Of("workers of "+t.name, float64(len(t.inHand)), "workers")
	p.Report(check.Finding{
		Subject: check.Subject{Kind: "pool", ID: t.name}, Severity: check.Warning, Weight: waited.Number(),
		Confidence: check.Medium,
		Summary: fmt.Sprintf("all %s of %s have a task in hand for nearly all of the time, and wait for %s for %s of "+
			"it, at %s: the next tasks wait in the queue", all.Text(), t.name, wait, waited.Text(), at.Name()),
		Evidence: []quantity.Value{all, waited},
		Notes:    []string{strings.Join(at.Path, " ← ")},
		Remedies: []check.Remedy{{
			Action: "Run more workers (max_workers of the executor, -c of celery, numprocs of the supervisor): they " +
				"wait, and need no CPU. Or take the wait out of the task.",
			Risk:   "what they wait for is asked more often at once",
			Effect: "the queue gets shorter by what the further workers do",
		}},
		Placebos: []string{"More CPUs: nobody computes meanwhile."},
		Disproof: "the queue is empty (celery inspect active, LLEN of the queue), or another second finds workers " +
			"without a task.",
		Doubts: []string{"how many tasks wait in the queue is not known here"},
		Facts:  factsOf(wait),
		Marks:  evidence.MarksOf(w.Event, most),
	})
}

// reportStarved reports the thread pool of .NET if more of its threads than there are CPUs wait for the results of
// tasks nearly all the time, and clients wait for answers. The pool has a thread for each CPU, and adds one or two a
// second while all are busy; what would end the waits is queued behind them. Threads without a task are not seen here.
func (t *taskWorkers) reportStarved(p *check.Pass, w *evidence.Waiting) {
	hits := t.waits[hotcode.ForFuture]
	waiting := w.Threads("threads of the pool that wait for a task's result", evidence.Weigh(hits).Value)
	cpus, ok := evidence.OnlineCPUs(p)
	asked := evidence.Unanswered(p)
	if !ok || t.all == 0 || waiting.Number() <= cpus.Number() || asked.Number() < 1 {
		return
	}
	share := quantity.Of("waited", float64(evidence.Weigh(hits).Value)/1e9, quantity.Seconds).
		Per(quantity.Of("with a task in hand", float64(t.all)/1e9, quantity.Seconds)).
		Named("of the time with a task in hand, waited for a result")
	p.Read(share)
	if share.Below(p.Param(stuckShare)) {
		return
	}
	at := evidence.Culprits(w.Profile, w.Owners, hits, nil)[0]
	p.Report(check.Finding{
		Subject: check.Subject{Kind: "pool", ID: "ThreadPool"}, Severity: check.Warning, Weight: share.Number(),
		Confidence: check.High,
		Summary: fmt.Sprintf("the thread pool is starved: %s wait for the result of a task, at %s, and the tasks wait "+
			"for a thread; %s wait for an answer", waiting.Text(), at.Name(), asked.Text()),
		Evidence: []quantity.Value{waiting, cpus, share, asked},
		Notes:    []string{strings.Join(at.Path, " ← ")},
		Remedies: []check.Remedy{{
			Action: "Await the task instead of waiting for it (.Result, .Wait(), GetAwaiter().GetResult()), in all " +
				"callers up to the request.",
			Risk:   "all of these methods become async",
			Effect: fmt.Sprintf("threads that wait for a result from %s to none", waiting.Text()),
			Before: "var stock = GetStockAsync(id).Result;",
			After:  "var stock = await GetStockAsync(id);",
		}, {
			Action: "As a stopgap, begin with more threads (ThreadPool.SetMinThreads).",
			Risk:   "each takes memory, and a burst beyond them starves the pool again",
			Effect: "the tasks find a thread until as many requests wait",
		}},
		Placebos: []string{"More CPUs: nobody computes meanwhile."},
		Disproof: "dotnet-counters: threadpool-queue-length stays 0.",
		Marks:    evidence.MarksOf(w.Event, hits),
	})
}
