package runtime

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A scriptPool is the threads of a script that begin with the same function of the application.
type scriptPool struct {
	threads map[int]int64 // nanoseconds that each waits, by index in the profile
	all     int64
	hits    map[hotcode.Wait][]evidence.Hit
}

// runStuckScript is the check for Python and Ruby, where no frame shows whether a worker has work. A pool is stuck if
// all of its threads wait nearly all the time, as often as requests come, and more requests are in progress than it
// has threads: the others wait for one of these. It is also stuck if requests spend most of their time in one wait,
// by frames of a server that has one in hand.
func runStuckScript(p *check.Pass) error {
	w, err := evidence.WaitingOf(p)
	if err != nil {
		return err
	}
	r, ok := evidence.RequestsOf(p)
	p.Read(quantity.Of("requests without an answer, mean", r.InProgress.Number(), "requests"))
	if !ok || !reportStuckPools(p, w, r) {
		reportStuckTasks(p, w)
	}
	return nil
}

// reportStuckPools reports the pools whose threads have the requests in hand, and returns whether there are any.
func reportStuckPools(p *check.Pass, w *evidence.Waiting, r evidence.Requests) (found bool) {
	pools := scriptPools(w)
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		pool := pools[name]
		all := quantity.Of("threads of "+name, float64(len(pool.threads)), quantity.Threads)
		queued := quantity.Of("more than threads", r.InProgress.Number()-all.Number(), "requests").Per(r.InProgress).
			Named("requests that wait for one of them, at least")
		waits := float64(pool.waited()) / 1e9
		// The stack of a thread that runs may not be readable, so that few of these samples say that it does.
		time := max(float64(pool.all)/1e9, waits+ranOrReady(p, w, pool.threads))
		waited := quantity.Of("waited", waits, quantity.Seconds).Per(quantity.Of("their time", time, quantity.Seconds)).
			Named("of the time of %s", name)
		stands := all.AtLeast(p.Param(stuckThreads)) && waited.AtLeast(p.Param(stuckShare)) &&
			(pool.serves(w) || keepsPace(p, w, pool.threads))
		stuck := stands && queued.AtLeast(p.Param(stuckHeld))
		if wait, _ := evidence.MostWaited(pool.hits); stands && eachOther(wait) {
			if foundElsewhere(p, w, wait) {
				continue
			}
			f := pool.finding(p, w, name, r, all, queued, waited)
			if stuck || evidence.Noticed(p, &f, w.Threads("threads that wait", pool.waited()), stuckRequest) {
				p.Report(f)
				found = true
				continue
			}
		}
		f, ok := pool.inHand(p, w, name)
		if !ok && stuck {
			f, ok = pool.finding(p, w, name, r, all, queued, waited), true
		}
		if ok {
			p.Report(f)
			found = true
		}
	}
	return found
}

// oneOfThese says what requests without a worker wait for.
const oneOfThese = ": the others wait for one of these"

// eachOther reports whether another thread of the pool ends the wait: it has the lock, or what a few of them share.
// Pools of connections have a check of their own.
func eachOther(wait hotcode.Wait) bool {
	return slices.Contains([]hotcode.Wait{hotcode.ForLock, hotcode.ForItem, hotcode.ForWakeUp}, wait)
}

// foundElsewhere reports whether lock-contention or pool-exhausted knows who has what is waited for: the threads
// there have a request each.
func foundElsewhere(p *check.Pass, w *evidence.Waiting, wait hotcode.Wait) bool {
	if wait != hotcode.ForLock {
		return slices.ContainsFunc(w.Leases(p), func(s *evidence.WaitSite) bool { return s.Wait == wait })
	}
	sites := w.Sites(wait)
	return len(sites) > 0 && w.AreRequests(p, sites[0])
}

func scriptPools(w *evidence.Waiting) map[string]*scriptPool {
	out := map[string]*scriptPool{}
	for _, s := range w.Samples {
		name := w.Pool(s)
		if out[name] == nil {
			out[name] = &scriptPool{threads: map[int]int64{}, hits: map[hotcode.Wait][]evidence.Hit{}}
		}
		out[name].add(w, s)
	}
	return out
}

func (pool *scriptPool) add(w *evidence.Waiting, s stacks.Sample) {
	pool.all += s.Value
	wait, at := w.Waits.Of(s)
	if wait == hotcode.NotWaiting || wait == hotcode.Idle {
		pool.threads[s.Thread] += 0
		return
	}
	pool.threads[s.Thread] += s.Value
	pool.hits[wait] = append(pool.hits[wait], evidence.Hit{Sample: s, At: at})
}

func (pool *scriptPool) waited() (sum int64) {
	for _, n := range pool.threads {
		sum += n
	}
	return sum
}

// serves reports whether most of the waiting is done by threads with a request in hand.
func (pool *scriptPool) serves(w *evidence.Waiting) bool {
	var all, served int64
	for _, hits := range pool.hits {
		for _, h := range hits {
			all += h.Sample.Value
			if request, _ := w.Waits.Serves(h.Sample); request {
				served += h.Sample.Value
			}
		}
	}
	return 2*served > all
}

// ranOrReady returns the seconds in which a pool's threads, by their index in the profile, ran or were ready to.
func ranOrReady(p *check.Pass, w *evidence.Waiting, threads map[int]int64) (seconds float64) {
	of := map[int]bool{}
	for at := range threads {
		if at >= 0 {
			of[w.Profile.Threads[at].ID] = true
		}
	}
	for _, t := range evidence.BusyThreads(p) {
		if of[t.TID] {
			seconds += t.Seconds + t.Waited
		}
	}
	return seconds
}

// keepsPace reports whether a pool's threads, by their index in the profile, wait as often as requests come. Threads
// with a pace of their own serve no requests.
func keepsPace[T any](p *check.Pass, w *evidence.Waiting, threads map[int]T) bool {
	waits, began := 0.0, evidence.WaitsOfSleepers(p)
	for at := range threads {
		if at >= 0 {
			waits += began[w.Profile.Threads[at].ID]
		}
	}
	requests, pace := evidence.RequestsAtMost(p).Number(), p.Param(stuckPace).Number()
	return requests > 0 && waits/requests >= pace && requests/waits >= pace
}

// inHand returns a finding if requests are slow and spend most of their time in one kind of wait of the threads that
// have them in hand.
func (pool *scriptPool) inHand(p *check.Pass, w *evidence.Waiting, name string) (f check.Finding, ok bool) {
	var hits []evidence.Hit
	var wait hotcode.Wait
	for _, is := range slices.Sorted(maps.Keys(stuckKindsInPython)) {
		served := slices.DeleteFunc(slices.Clone(pool.hits[is]), func(h evidence.Hit) bool {
			request, _ := w.Waits.Serves(h.Sample)
			return !request
		})
		if evidence.Weigh(served).Value > evidence.Weigh(hits).Value {
			hits, wait = served, is
		}
	}
	if len(hits) == 0 || w.Duration <= 0 {
		return f, false
	}
	kind, spent := stuckKindsInPython[wait], evidence.Weigh(hits)
	at := evidence.Culprits(w.Profile, w.Owners, hits, nil)[0]
	stand := w.Threads(fmt.Sprintf("threads of %s that %s, mean", name, kind.what), spent.Value)
	f = check.Finding{
		Subject:  check.Subject{Kind: "pool", ID: name},
		Weight:   float64(spent.Value) / float64(max(pool.all, 1)),
		Summary:  fmt.Sprintf("%s of %s %s at %s", stand.Text(), name, kind.what, at.Name()),
		Evidence: []quantity.Value{stand}, Facts: factsOf(wait),
		Notes:    []string{strings.Join(at.Path, " ← ")},
		Remedies: kind.remedies(stand), Placebos: kind.placebos, Disproof: kind.disproof,
	}
	f.Confidence = evidence.SampledConfidence(spent.Count, nil)
	f.Marks = evidence.MarksOf(w.Event, hits)
	return f, evidence.Noticed(p, &f, stand, stuckRequest)
}

func (pool *scriptPool) finding(
	p *check.Pass, w *evidence.Waiting, name string, r evidence.Requests, all, queued, waited quantity.Value,
) check.Finding {
	wait, most := evidence.MostWaited(pool.hits)
	at := evidence.Culprits(w.Profile, w.Owners, most, nil)[0]
	f := check.Finding{
		Subject: check.Subject{Kind: "pool", ID: name}, Severity: check.Warning, Weight: queued.Number(),
		Summary: fmt.Sprintf("all %s wait for nearly all of the time, most for %s at %s, while %s are in progress",
			all.Text()+" of "+name, wait, at.Name(), r.InProgress.Text()),
		Evidence: []quantity.Value{all, r.InProgress, queued, waited},
		Facts:    factsOf(wait),
		Notes:    []string{strings.Join(at.Path, " ← ")},
		Remedies: []check.Remedy{{
			Action: "Take the wait out of what a worker does for a request, or run more workers: they wait, and need " +
				"no CPU.",
			Risk:   "what they wait for is asked more often at once",
			Effect: fmt.Sprintf("requests that wait for a worker from %s to none", queued.Text()),
		}},
		Placebos: []string{"More CPUs: nobody computes meanwhile."},
		Disproof: "another second finds some of them without work.",
	}
	f.Confidence = evidence.SampledConfidence(evidence.Weigh(most).Count, nil)
	f.Marks = evidence.MarksOf(w.Event, most)
	if eachOther(wait) {
		pool.forEachOther(w, &f, wait)
		return f
	}
	f.Summary += oneOfThese
	evidence.WithoutThreads(p, &f, r.InProgress.Number()-all.Number())
	return f
}

// forEachOther completes a finding about threads that wait for one of their own: what that one does meanwhile, and
// that more of them help nobody.
func (pool *scriptPool) forEachOther(w *evidence.Waiting, f *check.Finding, wait hotcode.Wait) {
	f.Placebos = append(f.Placebos, "More workers: they come to wait there, too.")
	f.Remedies = []check.Remedy{{
		Action: "Do less while the lock is held: do slow work before it is taken, or after it is given back.",
		Risk:   "what the lock kept together may come apart",
		Effect: "as many requests as there are threads go on side by side",
	}}
	if wait != hotcode.ForLock {
		f.Remedies[0].Action = "Have as many of what the threads lend each other as there are threads, or give it " +
			"back sooner."
		f.Remedies[0].Risk = "what is behind it is asked more at once"
	}
	others := maps.Clone(pool.hits)
	delete(others, wait)
	meanwhile, hits := evidence.MostWaited(others)
	if len(hits) == 0 {
		f.Summary += oneOfThese
		return
	}
	at := evidence.Culprits(w.Profile, w.Owners, hits, nil)[0]
	stand := w.Threads("of them that wait for "+string(meanwhile)+" meanwhile, mean", evidence.Weigh(hits).Value)
	f.Evidence = append(f.Evidence, stand)
	f.Summary += fmt.Sprintf("; who has it waits for %s at %s", meanwhile, at.Name())
}
