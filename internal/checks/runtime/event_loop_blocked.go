package runtime

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/signature"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var loopBlocked = &check.Param{
	Name: "blocked", Default: 0.05, Unit: quantity.Ratio,
	Why: "an event loop serves hundreds of connections in turn: while it stands still none of them is served, and " +
		"a twentieth " +
		"of its time is already tens of milliseconds at a time",
}

var eventLoopBlocked = &check.Check{
	Name:  "event-loop-blocked",
	Stage: check.Runtime,
	Doc: `An event loop waits for something other than its selector

A thread of Netty, Vert.x, Undertow or Reactor serves many connections in turn.
It may wait in its selector only: when it parks, sleeps, reads a socket or
file to the end, waits for a lock, a pooled connection or another thread's
result, or for a log line to be written, all of its connections wait with it.

Measured: in a wall-clock profile, the share of the time of the loop's threads
in such waits. Loops are found by their threads' names and by their run loop's
frames. A loop that runs does not stand still, whatever it runs: other checks
report what takes its CPU time. They also report the locks of loggers and of
SecureRandom, where waits for locks were recorded.

Fix: move the call to a pool for blocking calls (publishOn, executeBlocking,
worker threads), or use the asynchronous one. Risk: order and thread-locals
change with the thread. Won't help: more event loops; each still stands still.
Disproof: the named call returns at once (a lock that is free, a cached value).`,
	URL:    "https://projectreactor.io/docs/core/release/reference/faq.html",
	Needs:  []metric.Metric{metric.WallProfileSamples},
	Uses:   []metric.Metric{metric.TargetInfo, metric.ThreadCPU, metric.ThreadRunDelay},
	Only:   evidence.OnlyJVM,
	Params: []*check.Param{loopBlocked},
	Run:    runEventLoopBlocked,
}

// loopWaits are the waits that an event loop must not have. A sleep without a known frame may be its own selector's.
var loopWaits = []hotcode.Wait{
	hotcode.ForPool, hotcode.ForPermit, hotcode.ForQueue, hotcode.ForItem, hotcode.ForNetwork, hotcode.ForLock,
	hotcode.ForFuture, hotcode.ForThreads, hotcode.ForChild, hotcode.ForFile, hotcode.ForSleep, hotcode.ForWakeUp,
}

// A loop is the event loops of one pool.
type loop struct {
	pool         string
	all, blocked stacks.Weight
	hits         []evidence.Hit
	waits        map[string]int64 // nanoseconds by what is waited for
	threads      map[int]bool
}

func runEventLoopBlocked(p *check.Pass) error {
	w, err := evidence.WaitingOf(p)
	if err != nil {
		return err
	}
	loops := loopsOf(p, w)
	if len(loops) == 0 {
		p.Read(quantity.Of("threads of event loops", 0, quantity.Threads))
		return nil
	}
	for _, l := range loops {
		share := l.share()
		p.Read(share)
		if share.AtLeast(p.Param(loopBlocked)) {
			p.Report(l.finding(p, w, share))
		}
	}
	return nil
}

// loopsOf adds up the samples of event loops by pool, in order of name.
func loopsOf(p *check.Pass, w *evidence.Waiting) []*loop {
	inLoop := w.EventLoops()
	apart := setApart(p, w.Profile)
	byPool := map[string]*loop{}
	for _, s := range w.Samples {
		if !inLoop[s.Thread] {
			continue
		}
		name := w.Pool(s)
		if byPool[name] == nil {
			byPool[name] = &loop{pool: name, waits: map[string]int64{}, threads: map[int]bool{}}
		}
		byPool[name].add(w, s, apart)
	}
	var out []*loop
	for _, l := range byPool {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b *loop) int { return strings.Compare(a.pool, b.pool) })
	return out
}

// apart finds stacks of a wall-clock profile that differ from others with the same wait.
type apart struct {
	appenders *signature.Matcher
	// locks that other checks know; none if no waits for locks were recorded, which those checks need
	locks []*signature.Matcher
}

func setApart(p *check.Pass, prof *stacks.Profile) apart {
	out := apart{appenders: signature.LogAppenders(prof)}
	if _, ok := p.Ranked(stacks.Lock); ok {
		out.locks = signature.KnownLocks(prof)
	}
	return out
}

func (l *loop) add(w *evidence.Waiting, s stacks.Sample, apart apart) {
	l.all.Add(s)
	l.threads[s.Thread] = true
	wait, at := w.Waits.Of(s)
	if !slices.Contains(loopWaits, wait) && wait != hotcode.ForNative || wait == hotcode.ForLock &&
		signature.Claimed(apart.locks, s) {
		return
	}
	what := string(wait)
	if i, ok := apart.appenders.At(s); ok {
		what, at = "a log appender", i
	} else if wait == hotcode.ForNative {
		return
	}
	l.blocked.Add(s)
	l.waits[what] += s.Value
	l.hits = append(l.hits, evidence.Hit{Sample: s, At: at})
}

func (l *loop) share() quantity.Value {
	return quantity.Of("blocked", float64(l.blocked.Value)/1e9, quantity.Seconds).
		Per(quantity.Of("time of its threads", float64(l.all.Value)/1e9, quantity.Seconds)).
		Named("blocked, share of the time of event loop %q", l.pool)
}

func (l *loop) finding(p *check.Pass, w *evidence.Waiting, share quantity.Value) check.Finding {
	list := evidence.Culprits(w.Profile, w.Owners, l.hits, nil)
	note, doubts := evidence.Interval(l.blocked.Count, l.all.Count, p.Param(loopBlocked))
	f := check.Finding{
		Subject:    check.Subject{Kind: "pool", ID: l.pool},
		Severity:   evidence.SampledSeverity(l.blocked.Count, len(doubts) > 0),
		Confidence: evidence.SampledConfidence(l.blocked.Count, doubts),
		Weight:     share.Number(),
		Summary: fmt.Sprintf("event loop %q stands still %s of its time, at %s", l.pool, share.Text(),
			list[0].Name()),
		Evidence: []quantity.Value{share, quantity.Of("threads of the event loop", float64(len(l.threads)),
			quantity.Threads)},
		Remedies: []check.Remedy{{
			Action: "Move the call to a pool for blocking calls, or use an asynchronous one.",
			Risk:   "order and thread-locals change with the thread; that pool must be bounded",
			Effect: fmt.Sprintf("blocked time from %s to below %s", share.Text(), p.Param(loopBlocked).Text()),
			Before: "mono.map(x -> restTemplate.getForObject(url, Price.class))",
			After:  "mono.flatMap(x -> webClient.get().uri(url).retrieve().bodyToMono(Price.class))",
		}},
		Placebos: []string{"More event loops: each still stands still for as long."},
		Disproof: "the named call returns at once: a lock that is free, a value that is there.",
		Doubts:   doubts,
	}
	l.withoutPreemption(p, &f, share)
	if own := list[0].Owner == hotcode.Application || list[0].Entry != ""; !own && l.forLocks() {
		f.Severity = check.Info
		f.Notes = append(f.Notes, "no code of the application is in these stacks: the lock is the server's own")
	}
	f.Marks = evidence.MarksOf(stacks.Wall, l.hits)
	if e := list[0].Entry; e != "" && e != list[0].Name() {
		f.Summary += ", called from " + e
	}
	f.Notes = append(f.Notes, "it waits for "+l.waitList())
	for _, c := range list[:min(len(list), evidence.NamedCulprits)] {
		f.Notes = append(f.Notes, fmt.Sprintf("%s of it at %s: %s", evidence.PartText(c.Value, l.blocked.Value),
			c.Name(),
			strings.Join(c.Path, " ← ")))
	}
	f.Notes = append(f.Notes, note)
	return f
}

// withoutPreemption subtracts the part of the waits for locks that is due to holders without a CPU.
func (l *loop) withoutPreemption(p *check.Pass, f *check.Finding, share quantity.Value) {
	part := evidence.HolderWaits(p)
	f.Weight = share.Number() - part.Number()*float64(l.waits[string(hotcode.ForLock)])/float64(l.all.Value)
	if f.Severity == check.Warning && f.Weight < p.Param(loopBlocked).Number() {
		f.Severity = check.Info
		f.Notes = append(f.Notes, evidence.HolderWaitsText(part))
	}
}

// forLocks reports whether the loop waits for locks most of the time that it is blocked.
func (l *loop) forLocks() bool { return 2*l.waits[string(hotcode.ForLock)] >= l.blocked.Value }

func (l *loop) waitList() string {
	var names []string
	for n := range l.waits {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(l.waits[b], l.waits[a]),
			strings.Compare(a, b))
	})
	var parts []string
	for _, n := range names {
		parts = append(parts, fmt.Sprintf("%s (%s)", n, evidence.PartText(l.waits[n], l.blocked.Value)))
	}
	return strings.Join(parts, ", ")
}
