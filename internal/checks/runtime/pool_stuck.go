package runtime

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	stuckShare = &check.Param{
		Name: "share", Default: 0.9, Unit: quantity.Ratio,
		Why: "of the pool's threads, at any moment: with a tenth of its threads a pool still works",
	}
	stuckRequest = evidence.RequestSeconds()
	stuckHeld    = &check.Param{
		Name: "held", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the requests in progress: that many wait inside the program, and nobody works on them",
	}
	stuckPace = &check.Param{
		Name: "pace", Default: 0.4, Unit: quantity.Ratio,
		Why: "the pool's waits over the requests, or the other way round: one wait a request to sleep, and at times " +
			"one for the next work. A timer has a pace of its own",
	}
	stuckFull = &check.Param{
		Name: "full", Default: 0.9, Unit: quantity.CPUs,
		Why: "a thread that computes this much has hardly time left to accept connections, whatever the pool does",
	}
	stuckThreads = &check.Param{
		Name: "threads", Default: 2, Unit: quantity.Threads,
		Why: "one thread that waits may be there to wait; several at one place are how the pool is used",
	}
)

var poolStuck = &check.Check{
	Name:  "pool-stuck",
	Stage: check.Runtime,
	Doc: `The threads of a pool all stand at one place

Nearly all threads of a pool wait for one kind of thing, called from one
method, at any moment of the window: a sleep, a lock, a latch, another task's
result, a rate limiter. The next request finds no thread. A worker that waits
for work at its own queue is idle and does not count. Nor does a thread that
paces itself: a sleeping thread counts only where it has a request or a task of
an executor in hand.

Measured: in a wall-clock profile of a JVM, by the innermost calls of each
sample; a thread that came there before the window and has not left counts, too.
Jetty's thread that selects does not count among those that work; nor do idle
threads while requests wait that the pool serves. Pools of connections, full
queues, answers over the network, event loops and locks that change hands have
checks of their own. It is enough that threads with a request stand there for
most of the time that a request takes, if that is long enough to be noticed.
Threads that read requests themselves have one in hand when they wait
elsewhere, unless more of them do than requests are in progress.

For other programs: the threads' states and system calls. There the kernel
cannot tell a worker that waits for work from one that is stuck. That they
stand there is a fact. It is a warning only where connections wait to be
accepted at every look and no thread of the process is full, or where requests
wait inside the program, nobody works on them, and the pool's threads sleep as
often as requests come.

For Python and Ruby: threads that begin with the same function, or have a name
of one pool. They count where all of them wait nearly all the time, as often as
requests come, while more requests are in progress than there are threads, or
while connections wait to be accepted and the threads wait for each other (a
lock, an item that they lend each other). Threads with a request in hand also
count where they sleep, or wait for a pool's result, for most of the time that
requests take. Requests are slow from 0.1 s on average, or where one in a
hundred takes five times that. For workers of a queue (Celery, RQ, Dramatiq,
Sidekiq, Laravel, Symfony, Python's gRPC): all have a task in hand nearly all
the time, and most of that is one kind of wait. For .NET's thread pool: more
threads than there are CPUs wait for the results of tasks nearly all the time,
and clients wait for answers.

Fix: depends on what they wait for. Won't help: more threads; they come to
stand there, too. Disproof: another second finds the threads elsewhere.`,
	URL:   "https://docs.oracle.com/en/java/javase/21/docs/api/java.base/java/util/concurrent/ThreadPoolExecutor.html",
	Needs: []metric.Metric{metric.TargetInfo}, // and a profile, or the threads' states
	Uses: append([]metric.Metric{
		metric.WallProfileSamples, metric.GoroutineProfileSamples, metric.GoRuntime, metric.ThreadSwitches,
		metric.DestinationAsked, metric.DestinationOwner, metric.LockProfileSamples, metric.JVMInfo,
		metric.JVMMonitorWaiters, metric.ThreadCPU, metric.ThreadRunDelay, metric.CPUsOnline,
	}, append(evidence.StackMetrics(), evidence.RequestMetrics()...)...),
	Params: []*check.Param{stuckShare, stuckThreads, stuckRequest, stuckHeld, stuckPace, stuckFull},
	Facts:  []check.Fact{evidence.NobodysWork, evidence.CarriersPinned},
	Run:    runPoolStuck,
}

// runPoolStuck reads the profile of a JVM, whose stacks say what threads wait for, or else the account of any other
// program's time. That account does not help with a JVM: to the kernel all its idle threads wait for a futex, and so
// do all that are stuck.
func runPoolStuck(p *check.Pass) error {
	_, java := p.Ranked(stacks.Wall)
	if _, inGo := p.Ranked(stacks.Goroutine); java || inGo {
		return runStuckSampled(p)
	}
	if _, script := p.Ranked(stacks.ScriptWall); script {
		return runStuckScript(p)
	}
	states := p.Recorded(metric.ThreadWaitTime) || p.Recorded(metric.ThreadStateTime)
	if states && len(p.Info(metric.JVMInfo)) == 0 {
		return runStuckNative(p)
	}
	because := metric.Metric(metric.WallProfileSamples)
	if p.Recorded(metric.JVMInfo) && len(p.Info(metric.JVMInfo)) == 0 {
		because = metric.ThreadStateTime
	}
	reason, remedy := p.Why(because)
	return check.NotAssessed(remedy, "%s", reason)
}

// A stuckPlace is a method in which threads of a pool wait for one kind of thing.
type stuckPlace struct {
	wait   hotcode.Wait
	method string
}

// A stuckAt is how long the threads of a pool wait at one place.
type stuckAt struct {
	stuckPlace
	total         stacks.Weight
	hits          []evidence.Hit
	request, task bool // in hand, in any of the samples
}

// A stuckPool is a pool of a JVM.
type stuckPool struct {
	name    string
	all     stacks.Weight
	threads map[int]bool
	places  map[stuckPlace]*stuckAt
	takes   bool  // requests, from connections that its threads serve
	turns   int64 // nanoseconds that threads selected in turn, for all of the pool
	idle    int64 // nanoseconds without work, selecting included
}

func runStuckSampled(p *check.Pass) error {
	w, err := evidence.WaitingOf(p)
	if err != nil {
		return err
	}
	most := quantity.Of(w.Who()+" of a pool that stand at one place at any moment", 0, w.Unit())
	var found []*stuck
	for _, pool := range stuckPools(p, w) {
		at := pool.worst()
		if at == nil || lockChangesHands(p, w, at) {
			continue
		}
		all := pool.workers(p, w)
		stand := pool.standing(w, at, all)
		if stand.Above(most) {
			most = stand
		}
		share := p.Param(stuckShare)
		several := stand.Number() >= share.Number()*p.Param(stuckThreads).Number() // a mean of two is 1.99, too
		if several && stand.Per(all).AtLeast(share) {
			f := pool.finding(p, w, at, stand, all)
			f.Summary = fmt.Sprintf("at any moment %s of %s of pool %q %s", evidence.WithoutUnit(stand), all.Text(),
				pool.name, f.Summary)
			found = append(found, &stuck{pool, at, stand, true, f})
			continue
		}
		waiting := w.Threads(fmt.Sprintf("%s of pool %q that stand there, mean", w.Who(), pool.name), at.total.Value)
		at.request = at.request || pool.takes && evidence.AllOfRequests(p, w)
		f := pool.finding(p, w, at, waiting, all)
		f.Summary = fmt.Sprintf("%s of pool %q %s", waiting.Text(), pool.name, f.Summary)
		if at.request && evidence.Noticed(p, &f, waiting, stuckRequest) {
			found = append(found, &stuck{pool, at, waiting, false, f})
		}
	}
	behindEachOther(found)
	for _, s := range found {
		p.Report(s.finding)
	}
	p.Read(most)
	return nil
}

// A stuck is a finding about a pool.
type stuck struct {
	pool    *stuckPool
	at      *stuckAt
	stand   quantity.Value
	full    bool // nearly all of its threads stand there
	finding check.Finding
}

// ofResults reports whether another thread's work ends the wait.
func ofResults(wait hotcode.Wait) bool {
	return wait == hotcode.ForFuture || wait == hotcode.ForThreads
}

// behindEachOther makes pools that wait for results a consequence of the pool that makes none: the one with the most
// time in which nearly all threads wait for something else. No recording says which pool makes a result.
func behindEachOther(found []*stuck) {
	var root *stuck
	for _, s := range found {
		if s.full && !ofResults(s.at.wait) && s.finding.Severity >= check.Warning &&
			(root == nil || s.finding.Weight > root.finding.Weight) {
			root = s
		}
	}
	if root == nil {
		return
	}
	for _, s := range found {
		if !ofResults(s.at.wait) {
			continue
		}
		root.finding.Summary += fmt.Sprintf("; %s of pool %q wait for results", s.stand.Text(), s.pool.name)
		root.finding.Weight = max(root.finding.Weight, s.finding.Weight)
		s.finding.Severity = check.Info
		s.finding.Notes = append(s.finding.Notes, fmt.Sprintf("pool %q is stuck, and most likely makes the results",
			root.pool.name))
	}
}

// stuckPools returns the pools in order of name, without event loops.
func stuckPools(p *check.Pass, w *evidence.Waiting) []*stuckPool {
	loops := w.EventLoops()
	takes := takesRequests(p, w)
	byName := map[string]*stuckPool{}
	for _, s := range w.Samples {
		if s.Thread < 0 || loops[s.Thread] {
			continue
		}
		name := w.Pool(s)
		if byName[name] == nil {
			byName[name] = &stuckPool{
				name: name, threads: map[int]bool{}, places: map[stuckPlace]*stuckAt{}, takes: takes[name],
			}
		}
		byName[name].add(w, s)
	}
	var out []*stuckPool
	for _, pool := range byName {
		out = append(out, pool)
	}
	slices.SortFunc(out, func(a, b *stuckPool) int { return strings.Compare(a.name, b.name) })
	return out
}

// takesRequests returns the pools whose threads read requests themselves. Such a thread has a request in hand when it
// waits elsewhere, whatever server it belongs to.
func takesRequests(p *check.Pass, w *evidence.Waiting) map[string]bool {
	pools := map[string]bool{}
	l, ok := evidence.LedgerOf(p)
	if !ok || !w.IsJava() {
		return pools
	}
	looked := map[int]bool{}
	for _, s := range w.Samples {
		if s.Thread < 0 || looked[s.Thread] {
			continue
		}
		looked[s.Thread] = true
		if l.TakesRequests(w.ThreadOf(s).ID) {
			pools[w.Pool(s)] = true
		}
	}
	return pools
}

func (pool *stuckPool) add(w *evidence.Waiting, s stacks.Sample) {
	pool.threads[s.Thread] = true
	pool.all.Add(s)
	if w.Waits.TakesTurn(s) {
		pool.turns += s.Value
	}
	wait, call := w.Waits.Of(s)
	if wait == hotcode.Idle {
		pool.idle += s.Value
	}
	request, task := w.Waits.Serves(s)
	if stuckKinds[wait] == nil || paces(wait) && !request && !task && !pool.takes {
		return
	}
	if w.InGo() && (wait == hotcode.ForLock || !request) {
		return // its locks have a check that knows all of them; a goroutine without a request costs nothing
	}
	place := w.Owners.Nearest(w.Profile, s.Stack, call, nil)
	key := stuckPlace{wait, w.Frames[s.Stack[place.At]].Name}
	at := pool.places[key]
	if at == nil {
		at = &stuckAt{stuckPlace: key}
		pool.places[key] = at
	}
	at.total.Add(s)
	at.hits = append(at.hits, evidence.Hit{Sample: s, At: call})
	at.request, at.task = at.request || request, at.task || task
}

// paces reports whether a thread may use the wait to go at its own pace: nobody waits for it then.
func paces(wait hotcode.Wait) bool { return wait == hotcode.ForSleep || wait == hotcode.ForWakeUp }

// worst returns the place where the pool waits the most time, or nil if there is none.
func (pool *stuckPool) worst() (worst *stuckAt) {
	for _, at := range pool.places {
		if worst == nil || cmp.Or(cmp.Compare(at.total.Value, worst.total.Value),
			strings.Compare(worst.method, at.method), cmp.Compare(worst.wait, at.wait)) > 0 {
			worst = at
		}
	}
	return worst
}

// standing is how many threads stand there at any moment, of all that work. Threads that may wait for work do not
// count.
func (pool *stuckPool) standing(w *evidence.Waiting, at *stuckAt, all quantity.Value) quantity.Value {
	time := at.total.Value
	if paces(at.wait) && !at.request && !at.task {
		time = 0
	}
	label := fmt.Sprintf("%s of pool %q that stand there at any moment", w.Who(), pool.name)
	stand := w.Threads(label, time).Named("%s", label)
	if stand.Above(all) { // both are means of samples
		return all.Named("%s", label)
	}
	return stand
}

// workers is how many threads the pool has for work: all but the one that selects at the time. If requests that these
// threads serve wait inside the program, threads that take none of them all the same do not count either. Kotlin's
// dispatchers share their threads, and each has a limit of its own.
func (pool *stuckPool) workers(p *check.Pass, w *evidence.Waiting) quantity.Value {
	if _, held := heldLong(p); held && w.IsJava() && keepsPace(p, w, pool.threads) {
		return w.Threads("all of its threads that have work, mean", pool.all.Value-pool.idle)
	}
	all := quantity.Of("all of its "+w.Who(), float64(len(pool.threads)), w.Unit())
	if pool.turns == 0 {
		return all
	}
	return all.Minus(w.Threads(w.Who()+" that select, mean", pool.turns)).
		Named("all of its %s but those that select", w.Who())
}

// lockChangesHands reports whether the waits for a lock end, by the profile of locks: another check judges how long
// they take. That profile has only waits that ended.
func lockChangesHands(p *check.Pass, w *evidence.Waiting, at *stuckAt) bool {
	locks, ok := p.Ranked(stacks.Lock)
	if !ok || at.wait != hotcode.ForLock {
		return false
	}
	ended := int64(0)
	for _, s := range locks.Samples {
		if len(s.Stack) > 0 && locks.Frames[s.Stack[w.Owners.Nearest(locks, s.Stack, 0, nil).At]].Name == at.method {
			ended += s.Value
		}
	}
	return float64(ended) >= mostEnded*float64(at.total.Value)
}

// mostEnded is the share of the waited time from which on most of it is in waits that ended. Both profiles are
// samples of the same waits, and the profile of locks leaves out short ones.
const mostEnded = 0.5

func (pool *stuckPool) finding(p *check.Pass, w *evidence.Waiting, at *stuckAt,
	stand, all quantity.Value,
) check.Finding {
	list := evidence.Culprits(w.Profile, w.Owners, at.hits, nil)
	share := quantity.Of("waited there", float64(at.total.Value)/1e9, quantity.Seconds).
		Per(quantity.Of("time of its threads", float64(pool.all.Value)/1e9, quantity.Seconds)).
		Named("of the time of pool %q", pool.name)
	kind := stuckKinds[at.wait]
	if own := stuckKindsInGo[at.wait]; w.InGo() && own != nil {
		kind = own
	}
	f := check.Finding{
		Subject:  check.Subject{Kind: "pool", ID: pool.name},
		Severity: check.Warning,
		Weight:   share.Number(),
		Summary:  kind.what + calledIn(at.wait, list[0].Path) + " at " + list[0].Name(), // the caller says who
		Evidence: []quantity.Value{stand, all, share},
		Notes: []string{
			strings.Join(list[0].Path, " ← "),
			fmt.Sprintf("%d samples of %s that wait there", at.total.Count, w.Who()),
		},
		Remedies: kind.remedies(stand), Placebos: kind.placebos, Disproof: kind.disproof,
		Doubts: at.doubts(),
	}
	f.Marks = evidence.MarksOf(w.Event, at.hits)
	if e := list[0].Entry; e != "" && e != list[0].Name() {
		f.Notes = append(f.Notes, "called from "+e)
	}
	if in, notes := at.holders(p); in != "" {
		f.Summary += "; its holder was in " + in + " (thread dump)"
		f.Notes = append(f.Notes, notes...)
	}
	if ofResults(at.wait) || w.InGo() && !paces(at.wait) {
		f.Evidence = append(f.Evidence, runningElsewhere(w))
	}
	if w.InGo() && !paces(at.wait) {
		if others := w.OthersWithWork(); len(others) > 0 {
			f.Notes = append(f.Notes, "without a request: "+strings.Join(others, ", "))
		}
	}
	if at.wait == hotcode.ForWakeUp && !at.request {
		f.Severity = check.Info
	}
	f.Facts = factsOf(at.wait)
	f.Confidence = evidence.SampledConfidence(at.total.Count, f.Doubts)
	return f
}

// factsOf returns the facts of a wait: NobodysWork, unless another thread's work ends it.
func factsOf(wait hotcode.Wait) []check.Fact {
	switch {
	case ofResults(wait), wait == hotcode.ForItem:
		return nil
	case wait == hotcode.ForCarried:
		return []check.Fact{evidence.NobodysWork, evidence.CarriersPinned}
	}
	return []check.Fact{evidence.NobodysWork}
}

// doubts say why threads without a request may be meant to stand there.
func (at *stuckAt) doubts() []string {
	switch {
	case at.request:
		return nil
	case paces(at.wait):
		return []string{"a task that goes at its own pace, and never ends, looks the same"}
	case at.wait == hotcode.ForThreads:
		return []string{"threads that keep something open until the program ends look the same"}
	}
	return nil
}

// holders says who held the lock in a thread dump, after the window. in is the method that the first of them was in.
func (at *stuckAt) holders(p *check.Pass) (in string, notes []string) {
	if at.wait != hotcode.ForLock {
		return "", nil
	}
	for _, s := range p.Gauge(metric.JVMMonitorWaiters) {
		holder := s.Label("holder")
		if holder == "" || !strings.HasPrefix(s.Label("waiter_at"), at.method+"(") ||
			len(notes) == evidence.NamedCulprits {
			continue
		}
		in = cmp.Or(in, evidence.ShortMethod(evidence.DumpedMethod(s.Label("holder_in"))))
		notes = append(notes, fmt.Sprintf("a lock of class %s is held by %s since %s, which is in %s (thread dump)",
			s.Label("class"), holder, s.Label("holder_at"), s.Label("holder_in")))
	}
	return in, notes
}

// calledIn names what the program calls that waits for a wake-up, where that is more than the wait itself: the path
// leads from the wait to the program's method.
func calledIn(wait hotcode.Wait, path []string) string {
	const least = 3 // the wait, what the program calls, and the program's method
	if wait != hotcode.ForWakeUp || len(path) < least {
		return ""
	}
	return ", in " + path[len(path)-2] + ","
}

// runningElsewhere returns how many threads run the program's code meanwhile: one of them does what is waited for, or
// none does.
func runningElsewhere(w *evidence.Waiting) quantity.Value {
	total := w.Filter(func(s stacks.Sample) bool {
		wait, _ := w.Waits.Of(s)
		return wait == hotcode.NotWaiting && w.Waits.Program(s)
	}).Total()
	return w.Threads(w.Who()+" of the program that run its code meanwhile", total.Value)
}
