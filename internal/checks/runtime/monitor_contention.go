package runtime

import (
	"cmp"
	"fmt"
	"math"
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

var (
	contentionLevel = &check.Param{
		Name: "level", Default: 0.05, Unit: quantity.Ratio,
		Why: "with a twentieth of its time back a thread hardly gets more done; a lock is for short waits",
	}
	contentionWarn = &check.Param{
		Name: "warn", Default: 0.1, Unit: quantity.Ratio,
		Why: "each thread that waits for a tenth of its time adds less than the one before, and soon nothing",
	}
)

var monitorContention = &check.Check{
	Name:  "monitor-contention",
	Stage: check.Runtime,
	Doc: `Threads wait for each other at a lock

Time in which threads stand before a synchronized block, a ReentrantLock or a
ReentrantReadWriteLock that another thread has. The CPU is idle meanwhile, so
that no CPU profile shows it. (Permits of a Semaphore: see pool-exhausted.)

Measured: the time waited for locks of one class (for classes that everybody
uses, such as java.lang.Object: at one method), as a share of the window times
the number of threads that waited. A thread dump names the holder, where one
was recorded; the threads that are in the same method and do not wait show what
is done under the lock. A holder that waits for a CPU has the lock for longer.
So where CPUs are short, the check subtracts the share of their runnable time
that the target's threads wait for a CPU. The locks of loggers and of
SecureRandom are left to the checks that know them.

Fix: hold the lock for less (no I/O, no logging, no remote call under it),
split it, or use a concurrent collection. Risk: what the lock kept together may
come apart. Won't help: more threads; they wait, too.
Disproof: jcmd PID Thread.print, several times: no threads are BLOCKED there.`,
	URL:   "https://docs.oracle.com/en/java/javase/17/docs/api/java.base/java/util/concurrent/locks/package-summary.html",
	Needs: []metric.Metric{metric.LockProfileSamples},
	Uses: []metric.Metric{
		metric.WallProfileSamples, metric.TargetInfo, metric.JVMMonitorWaiters, metric.ThreadCPU, metric.ThreadRunDelay,
	},
	Only:   evidence.OnlyJVM,
	Params: []*check.Param{contentionLevel, contentionWarn},
	Run:    runMonitorContention,
}

// A contended is how long threads waited for locks of one class, or of a common class at one method.
type contended struct {
	class, at string // at is empty for a class that identifies the lock by itself
	hits      []evidence.Hit
	value     int64
	count     int64
	threads   map[int]bool
}

func runMonitorContention(p *check.Pass) error {
	prof, err := evidence.ProfileOf(p, stacks.Lock)
	if err != nil {
		return err
	}
	if prof.Duration <= 0 {
		return check.NotAssessed("", "the lock profile covers no time")
	}
	owners := hotcode.OwnersOf(p.Recording)
	list := contentions(prof, owners)
	if len(list) == 0 {
		p.Read(quantity.Of("waits for locks that no other check knows", 0, quantity.Events))
		return nil
	}
	p.Read(list[0].share(prof))
	for _, c := range list[:min(len(list), evidence.NamedCulprits)] {
		if share := c.share(prof); share.AtLeast(p.Param(contentionLevel)) {
			p.Report(contentionFinding(p, prof, owners, c, share))
		}
	}
	return nil
}

// commonLocks are classes whose name says nothing about the lock.
var commonLocks = hotcode.ParsePatterns("java.lang.Object", "java.lang.Class", "java.util.concurrent.*", "")

// permits are the classes of semaphores: who waits for a permit waits for a pool.
var permits = hotcode.ParsePattern("java.util.concurrent.Semaphore*")

// contentions returns the waits that no signature of a lock claims, the largest share first.
func contentions(prof *stacks.Profile, owners hotcode.Owners) []*contended {
	known := signature.KnownLocks(prof)
	byName := map[string]*contended{}
	for _, s := range prof.Samples {
		if len(s.Stack) == 0 || permits.Text(s.Class) || signature.Claimed(known, s) {
			continue
		}
		at := ""
		if slices.ContainsFunc(commonLocks, func(c hotcode.Pattern) bool { return c.Text(s.Class) }) {
			at = prof.Frames[s.Stack[owners.Nearest(prof, s.Stack, 0, nil).At]].Name
		}
		c := byName[s.Class+" "+at]
		if c == nil {
			c = &contended{class: s.Class, at: at, threads: map[int]bool{}}
			byName[s.Class+" "+at] = c
		}
		c.hits = append(c.hits, evidence.Hit{Sample: s})
		c.value += s.Value
		c.count += s.Count
		c.threads[s.Thread] = true
	}
	var out []*contended
	for _, c := range byName {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *contended) int {
		return cmp.Or(cmp.Compare(b.share(prof).Number(), a.share(prof).Number()),
			strings.Compare(a.class, b.class), strings.Compare(a.at, b.at))
	})
	return out
}

// waiters returns how many threads waited, and what they are. Virtual threads are known by their carriers, and one
// carrier may have many that wait at a time (JEP 491): then their number is how many wait at any moment.
func (c *contended) waiters(prof *stacks.Profile) (n int, what string) {
	if mean := float64(c.value) / float64(prof.Duration); mean > float64(len(c.threads)) {
		return int(math.Ceil(mean)), "virtual threads"
	}
	if len(c.threads) == 1 {
		return 1, "thread"
	}
	return len(c.threads), "threads"
}

func (c *contended) share(prof *stacks.Profile) quantity.Value {
	n, what := c.waiters(prof)
	window := quantity.Of("window", prof.Duration.Seconds(), quantity.Seconds)
	all := window.Times(quantity.Of("", float64(n), quantity.None))
	return quantity.Of("waited", float64(c.value)/1e9, quantity.Seconds).Per(all).
		Named("waiting for the lock, share of the time of the %d %s that waited", n, what)
}

func (c *contended) name() string {
	if c.at == "" {
		return c.class
	}
	return fmt.Sprintf("%s at %s", cmp.Or(c.class, "a lock"), c.at)
}

func contentionFinding(p *check.Pass, prof *stacks.Profile, owners hotcode.Owners, c *contended,
	share quantity.Value,
) check.Finding {
	list := evidence.Culprits(prof, owners, c.hits, nil)
	waiters := quantity.Of("", float64(c.value)/1e9, quantity.Seconds).
		Per(quantity.Of("window", prof.Duration.Seconds(), quantity.Seconds)).As(quantity.Threads).
		Named("threads that wait at any moment")
	n, what := c.waiters(prof)
	f := check.Finding{
		Subject:  check.Subject{Kind: "lock", ID: c.name()},
		Severity: check.Info,
		Summary: fmt.Sprintf("%d %s wait %s of their time for a lock of class %s, at %s%s", n, what,
			share.Text(), cmp.Or(c.class, "unknown"), list[0].Name(), holderText(p, prof, c)),
		Evidence: []quantity.Value{share, waiters},
		Remedies: []check.Remedy{{
			Action: "Hold the lock for less: no I/O, logging or remote call under it; split it, or use a concurrent " +
				"collection.",
			Risk: "what the lock kept together may come apart",
			Effect: fmt.Sprintf("%s: from %s to below %s", share.Label(), share.Text(), p.Param(contentionLevel).
				Text()),
			Before: "synchronized (this) { value = load(key); cache.put(key, value); }",
			After:  "value = load(key); cache.put(key, value); // a ConcurrentHashMap",
		}},
		Placebos: []string{"More threads: they wait, too."},
		Disproof: "jcmd PID Thread.print, several times: no threads are BLOCKED or parked there.",
	}
	for _, w := range list[:min(len(list), evidence.NamedCulprits)] {
		f.Notes = append(f.Notes, fmt.Sprintf("waits at %s: %s of the time; %s", w.Name(),
			evidence.PartText(w.Value, c.value),
			strings.Join(w.Path, " ← ")))
	}
	f.Marks = evidence.MarksOf(stacks.Lock, c.hits)
	f.Notes = append(f.Notes, holderNotes(p, c, list[0].Method)...)
	spread := 1.96 / math.Sqrt(float64(c.count))
	f.Notes = append(f.Notes, fmt.Sprintf("%d waits were seen: the share is known to ±%s of itself", c.count,
		quantity.Of("", spread, quantity.Ratio).Text()))
	part := evidence.HolderWaits(p)
	f.Weight = share.Number() * (1 - part.Number())
	switch warn := p.Param(contentionWarn); {
	case f.Weight >= warn.Number():
		f.Severity = check.Warning
		evidence.WithoutThreads(p, &f, waiters.Number()*(1-part.Number()))
	case share.AtLeast(warn):
		f.Notes = append(f.Notes, evidence.HolderWaitsText(part))
	}
	f.Confidence = evidence.SampledConfidence(c.count, nil)
	return f
}

// holderText says what the holder of the lock was in when the threads were dumped. It returns "" if that is not
// known.
func holderText(p *check.Pass, prof *stacks.Profile, c *contended) string {
	for _, s := range p.Gauge(metric.JVMMonitorWaiters, "class", c.class) {
		in, at := evidence.DumpedMethod(s.Label("holder_in")), evidence.DumpedMethod(s.Label("waiter_at"))
		if in != "" && slices.ContainsFunc(c.hits, func(h evidence.Hit) bool {
			return prof.Frames[h.Sample.Stack[0]].Name == at
		}) {
			return "; its holder was in " + evidence.ShortMethod(in) + " (thread dump)"
		}
	}
	return ""
}

// holderNotes says who held the lock in a thread dump, and what the threads in the method do that do not wait for it.
func holderNotes(p *check.Pass, c *contended, method string) []string {
	var out []string
	for _, s := range p.Gauge(metric.JVMMonitorWaiters, "class", c.class) {
		if holder := s.Label("holder"); holder != "" && len(out) < evidence.NamedCulprits {
			out = append(out, fmt.Sprintf("held by %s since %s, which is in %s (thread dump)",
				holder, s.Label("holder_at"), s.Label("holder_in")))
		}
	}
	if w, err := evidence.WaitingOf(p); err == nil {
		if _, parts := w.Inside(method, hotcode.ForLock); len(parts) > 0 {
			out = append(out, fmt.Sprintf("threads in %s that do not wait for a lock: %s", method,
				strings.Join(parts, ", ")))
		}
	}
	return out
}
