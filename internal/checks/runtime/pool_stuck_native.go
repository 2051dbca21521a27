package runtime

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// runStuckNative is the check for programs without a profile that shows what their threads wait for. It reads the
// account of their time.
func runStuckNative(p *check.Pass) error {
	l, ok := evidence.LedgerOf(p)
	if !ok {
		return check.NotAssessed("profile for longer", "the waits of threads cover no time")
	}
	most := quantity.Of("threads of a pool at one place that no other check knows", 0, quantity.Threads)
	for _, pool := range l.Pools {
		place, ok := nativePlace(pool)
		if !ok {
			continue
		}
		at := quantity.Of("waited there", place.Seconds, quantity.Seconds)
		stand := at.Per(quantity.Of("window", max(l.Window, 1), quantity.Seconds)).As(quantity.Threads).
			Named("threads of %s in %s", pool.Title(), cmp.Or(place.Call, string(place.Part)))
		if stand.Above(most) {
			most = stand
		}
		share := at.Per(quantity.Of("time of its threads", place.Busy(), quantity.Seconds)).
			Named("of the time of %s", whoStands(pool, place))
		several := quantity.Of("threads", float64(place.Threads), quantity.Threads).AtLeast(p.Param(stuckThreads))
		if 2*stand.Number() < float64(place.Threads) { // one after the other: each sleep(1) of a script
			several = false
		}
		if !several || share.Below(p.Param(stuckShare)) {
			continue
		}
		f := nativeStuckFinding(p, pool, place, stand, share)
		// a few sleeping threads among many are not worth a finding, unless requests sleep there
		if f.Severity != check.Info || at.Number() >= p.Param(stuckShare).Number()*workTime(pool) {
			p.Report(f)
		}
	}
	p.Read(most)
	return nil
}

// nativePlace returns the place with the most of the pool's time, if no other check knows its kind of wait. At a
// futex only threads that did not run once count: those that run are woken, and so have work.
func nativePlace(pool *ledger.Pool) (ledger.Place, bool) {
	if pool.Wall <= 0 || len(pool.Places) == 0 {
		return ledger.Place{}, false
	}
	place := pool.Places[0]
	switch place.Part {
	case ledger.Sleep:
		return place, true
	case ledger.Futex:
		return place, place.Still == place.Threads
	}
	return ledger.Place{}, false
}

// workTime is the time of the pool's threads, in seconds, without the time spent taking requests from clients: if all
// threads have one name, the one that accepts is in the pool of those that work.
func workTime(pool *ledger.Pool) float64 {
	return pool.Wall - pool.Parts[ledger.Events] - pool.Parts[ledger.Request]
}

func nativeStuckFinding(
	p *check.Pass, pool *ledger.Pool, place ledger.Place, stand, share quantity.Value,
) check.Finding {
	f := check.Finding{
		Subject:    check.Subject{Kind: "pool", ID: pool.Title()},
		Severity:   check.Info,
		Confidence: check.Medium,
		Weight:     share.Number(),
		Facts:      []check.Fact{evidence.NobodysWork},
		Summary:    fmt.Sprintf("%s %s for %s of their time", whoStands(pool, place), nativeWhat(place), share.Text()),
		Evidence:   []quantity.Value{stand, share},
		Notes:      []string{"the pool's time: " + pool.Split()},
		Doubts:     []string{"the kernel cannot tell whether work waits for them"},
		Remedies: []check.Remedy{{
			Action:  "See what the threads wait for.",
			Command: check.Commandf("gdb -p %s -batch -ex 'thread apply all bt'", cmp.Or(firstPID(pool), "PID")),
			Risk:    "the program stands still meanwhile",
			Effect:  "none by itself",
		}},
		Placebos: []string{"More threads: they come to stand there, too."},
		Disproof: "nobody asks the program for anything.",
	}
	evidence.NameFunction(p, &f, place)
	if still := place.StillText(); still != "" {
		f.Notes = append(f.Notes, still)
	}
	if queue, ok := neverAccepted(p, pool); ok {
		f.Severity, f.Doubts = check.Warning, nil
		f.Evidence = append(f.Evidence, queue)
	} else if place.Part == ledger.Sleep {
		requestsSleep(p, pool, &f)
	}
	return f
}

// whoStands names the pool's threads, and how many of them stand at the place if others do something else.
func whoStands(pool *ledger.Pool, place ledger.Place) string {
	if workTime(pool) == pool.Wall && place.Threads >= int(math.Round(pool.Threads)) {
		return pool.Who()
	}
	return fmt.Sprintf("%d of %s", place.Threads, pool.Who())
}

// requestsSleep makes a pool that sleeps a warning if requests wait inside the program, nobody works on them, and the
// pool sleeps as often as requests come: each of them sleeps there, one after the other.
func requestsSleep(p *check.Pass, pool *ledger.Pool, f *check.Finding) {
	h, ok := heldLong(p)
	if !ok {
		return
	}
	sleeps, requests := sleepsOf(p, pool), evidence.RequestsAtMost(p)
	if sleeps.Number() == 0 || requests.Number() == 0 {
		return
	}
	pace := sleeps.As(requests.Unit()).Per(requests).Named("sleeps of the pool per request")
	if pace.Below(p.Param(stuckPace)) || requests.Per(sleeps.As(requests.Unit())).Below(p.Param(stuckPace)) {
		return
	}
	f.Severity, f.Doubts = check.Warning, nil
	f.Summary += fmt.Sprintf(", once for each request; %s are in progress, and each takes %s and more",
		h.InProgress.Text(), h.Each.Text())
	f.Evidence = append(f.Evidence, h.InProgress, h.Each, h.Share, pace)
	f.Remedies = slices.Insert(f.Remedies, 0, check.Remedy{
		Action: fmt.Sprintf("Take the sleep out of what %s does for a request, or run more of it.",
			pool.Title()),
		Risk:   "what they ask meanwhile is asked more often at once",
		Effect: fmt.Sprintf("up to %s of a request's time is saved", h.Share.Text()),
	})
	f.Placebos = []string{"More CPUs: nobody computes meanwhile."}
}

// heldLong returns the requests that wait inside the program; ok is true if they wait for long and nobody works on
// most of them.
func heldLong(p *check.Pass) (h evidence.HeldRequests, ok bool) {
	h, ok = evidence.HeldOf(p)
	return h, ok && !h.Each.Below(p.Param(stuckRequest)) && !h.Share.Below(p.Param(stuckHeld))
}

// sleepsOf is how often the pool's threads that sleep left a CPU voluntarily: to sleep, and for what they wait for
// next.
func sleepsOf(p *check.Pass, pool *ledger.Pool) quantity.Value {
	n, sleeps := 0.0, map[string]bool{}
	for _, s := range p.Gauge(metric.ThreadStateTime, "for", "sleep") {
		sleeps[s.Label("tid")] = true
	}
	for tid, waits := range evidence.WaitsOfSleepers(p) {
		if id := strconv.Itoa(tid); pool.Has(id) && sleeps[id] {
			n += waits
		}
	}
	return quantity.Of("waits of the pool's threads", n, quantity.Switches)
}

// nativeWhat says what threads do at a place.
func nativeWhat(place ledger.Place) string {
	if place.Part == ledger.Sleep {
		return "sleep"
	}
	return "wait to be woken, at the futex " + cmp.Or(place.On, "of a wait that is not known")
}

func firstPID(pool *ledger.Pool) string {
	if pids := pool.PIDs(); len(pids) > 0 {
		return pids[0]
	}
	return ""
}

// neverAccepted returns the connections to the pool's processes that waited to be accepted at every look. A process
// with a full thread is left out: its connections wait for that thread, which may be the one that accepts.
func neverAccepted(p *check.Pass, pool *ledger.Pool) (quantity.Value, bool) {
	pids := pool.PIDs()
	for _, t := range evidence.FullThreads(p, p.Param(stuckFull), p.Param(stuckFull)) {
		pids = slices.DeleteFunc(pids, func(pid string) bool { return pid == strconv.Itoa(t.PID) })
	}
	for _, s := range p.Gauge(metric.ListenerQueue) {
		if s.Min() > 0 && len(s.Points) > 1 && slices.Contains(pids, s.Label("pid")) {
			return quantity.Of("connections to "+s.Label("listener")+" that wait to be accepted, at least", s.Min(),
				quantity.Connections), true
		}
	}
	return quantity.Value{}, false
}
