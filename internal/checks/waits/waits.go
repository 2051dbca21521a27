// Package waits holds the rules about what a target's threads wait for. Most rules are one row: a kind of wait in the
// account of the target's time (package ledger), and what to do about it. A wait counts if it owns the time in which
// the threads of a pool have work. A thread that waits for work is idle, and no rule is about it.
package waits

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/evidence/usage"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A row is one rule.
type row struct {
	name  string
	stage check.Stage
	doc   string
	url   string
	// is reports whether a place is of this kind.
	is func(ledger.Place) bool
	// what threads do there, as in "waiting for the child pid 12 (gzip)"; the place has the most time of this kind.
	what     func(ledger.Place) string
	remedies func(ledger.Place) []check.Remedy
	placebos []string
	disproof func(*ledger.Pool, ledger.Place) string
	// more adds what else is known, and the facts that hold; nil for nothing.
	more  func(*check.Pass, *ledger.Pool, ledger.Place, *check.Finding)
	facts []check.Fact
	// blocks says that threads that stand there do no work at all: it is a warning even if others are idle.
	blocks bool
	event  bool // as of [check.Check]
	// ends says that such a wait ends soon in a healthy program: one that lasts for the whole window is a fault,
	// whatever the other threads of the pool do.
	ends bool
	// contended says that such a wait harms if several threads are at one place, even if others are idle. Threads
	// that each stand at a place of their own are kept without work, as redis keeps its io-threads (stopThreadedIO in
	// networking.c). Threads that all stand at one place for the whole window are spare ones of several processes,
	// waiting to take over.
	contended bool
	// inGo is the wait of goroutines of this kind, used if no thread waits so; empty for none.
	inGo hotcode.Wait
	// asks says that the questions to name servers show the wait, if no thread waits for an answer.
	asks bool
	// ofJobs says that such waits are normal in jobs, which nobody waits for: only a server's are a fault.
	ofJobs bool
}

// Checks returns the rules of a stage in the order in which a reader should take them.
func Checks(stage check.Stage) []*check.Check {
	var out []*check.Check
	for _, r := range rows() {
		if r.stage == stage {
			out = append(out, r.check())
		}
	}
	for _, c := range []*check.Check{
		nativeDeadlock, databaseLock, statementLocks, statementWait, sequentialScan, dnsFailing,
	} {
		if c.Stage == stage {
			out = append(out, c)
		}
	}
	return out
}

func (r row) check() *check.Check {
	share := &check.Param{
		Name: "share", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the time in which a pool's threads have work: from a half on, nothing in this process matters more",
	}
	threads := &check.Param{
		Name: "threads", Default: 0.5, Unit: quantity.Threads,
		Why: "less than half of one thread fills neither a pool nor a single thread",
	}
	occupied := &check.Param{
		Name: "occupied", Default: 0.9, Unit: quantity.Ratio,
		Why: "many healthy programs wait; it is a fault when hardly a thread of the pool is left for the next piece " +
			"of work",
	}
	request := evidence.RequestSeconds()
	list := []*check.Param{share, threads, occupied, request}
	waiters := &check.Param{
		Name: "waiters", Default: 1, Unit: quantity.Threads,
		Why: "of a pool at any moment, for what others hold: together they do no more than one of them would",
	}
	if r.contended {
		list = append(list, waiters)
	}
	uses := append(evidence.LedgerMetrics(), metric.JVMInfo, metric.GoRuntime, metric.GoroutineProfileSamples)
	if r.more != nil {
		uses = append(uses, metric.FutexWakes)
	}
	if r.asks {
		uses = append(uses, evidence.NameServerMetrics()...)
	}
	if r.facts != nil { // of CPU time
		uses = append(uses, metric.ProcessChildrenCPU, metric.ProcessInfo, metric.ProcessStart, metric.CgroupCPU,
			metric.CPUSeconds)
	}
	return &check.Check{
		Name: r.name, Stage: r.stage, Event: r.event, Doc: r.doc, URL: r.url,
		Needs:  []metric.Metric{metric.ThreadStateTime},
		Uses:   append(uses, append(evidence.StackMetrics(), evidence.RequestMetrics()...)...),
		Params: list, Facts: r.facts,
		Run: func(p *check.Pass) error { return r.run(p, params{share, threads, occupied, request, waiters}) },
	}
}

// params are the thresholds of one rule.
type params struct{ share, threads, occupied, request, waiters *check.Param }

func (r row) run(p *check.Pass, limits params) error {
	l, ok := evidence.LedgerOf(p)
	if !ok {
		return check.NotAssessed("profile for longer", "the states of threads were looked at in no pass")
	}
	read, reported := false, false
	for _, pool := range l.Pools {
		at, seconds := pool.Sum(r.is)
		if seconds == 0 {
			continue
		}
		working := quantity.Of("with work", pool.Working(), quantity.Seconds)
		share := quantity.Of(r.label(), seconds, quantity.Seconds).Per(working).
			Named("%s, share of the time with work of %s", r.label(), pool.Title())
		threads := quantity.Of(r.label(), seconds, quantity.Seconds).
			Per(quantity.Of("window", l.Window, quantity.Seconds)).As(quantity.Threads).
			Named("threads of %s that do", pool.Title())
		if !read {
			p.Read(share)
			read = true
		}
		if share.AtLeast(p.Param(limits.share)) && threads.AtLeast(p.Param(limits.threads)) {
			p.Report(r.finding(p, l, pool, at, share, threads, limits))
			reported = true
		}
	}
	if !read {
		p.Read(quantity.Of(r.label(), 0, quantity.Seconds))
	}
	if r.inGo != "" && !reported && !r.ofGoroutines(p, limits) && r.asks {
		r.ofQueries(p, limits)
	}
	return nil
}

// label names the kind of wait in the evidence.
func (r row) label() string { return strings.ReplaceAll(r.name, "-", " ") }

func (r row) finding(
	p *check.Pass, l *ledger.Ledger, pool *ledger.Pool, at ledger.Place, share, threads quantity.Value,
	limits params,
) check.Finding {
	occupied := quantity.Of("with work", pool.Working(), quantity.Seconds).
		Per(quantity.Of("all of its workers' time", pool.Workers, quantity.Seconds)).Named("%s occupied", pool.Title())
	f := check.Finding{
		Subject:    check.Subject{Kind: "pool", ID: pool.Title()},
		Severity:   check.Info,
		Confidence: confidence(l, at),
		Weight:     threads.Number() / max(pool.Threads, 1),
		Summary:    fmt.Sprintf("%s of the working time of %s goes into %s", share.Text(), pool.Who(), r.what(at)),
		Evidence:   []quantity.Value{share, threads, occupied},
		Notes:      notes(pool, at),
		Remedies:   r.remedies(at), Placebos: r.placebos, Disproof: r.disproof(pool, at),
	}
	if r.more != nil {
		r.more(p, pool, at, &f)
	}
	if native := evidence.NameFunction(p, &f, at); native != "" && r.contended {
		f.Remedies = ofJVM(native)
	}
	if r.contended && r.apart(pool) {
		f.Notes = append(f.Notes, "each thread has a place of its own that nobody else wants: programs keep threads "+
			"without work like that")
		return f
	}
	if occupied.AtLeast(p.Param(limits.occupied)) || r.blocks || r.ends && at.Still > 0 ||
		r.changesHands(p, l, pool, at) && threads.AtLeast(p.Param(limits.waiters)) {
		f.Severity = check.Warning
	}
	evidence.Noticed(p, &f, threads, limits.request)
	evidence.WithoutThreads(p, &f, threads.Number())
	if serves, known := evidence.Serves(p); r.ofJobs && known && !serves {
		f.Severity = check.Info
		f.Notes = append(f.Notes, "the target listens on no port: it is a job, and its time goes into what it starts")
	}
	return f
}

// changesHands reports whether a lock is the program's own and goes from thread to thread. In a JVM such locks are
// the JVM's own, such as the heap's during a collection: Java's locks are not the C library's.
func (r row) changesHands(p *check.Pass, l *ledger.Ledger, pool *ledger.Pool, at ledger.Place) bool {
	return r.contended && at.Still < at.Threads && !takesTurns(l, pool) && len(p.Info(metric.JVMInfo)) == 0
}

// ofJVM is the remedy where the lock is one of the JVM's own.
func ofJVM(native string) []check.Remedy {
	return []check.Remedy{{
		Action: "Call " + native + " less often: the lock is the JVM's own, and threads take turns in that call.",
		Risk:   "a change of the program, which has to be tested",
		Effect: "time waited for the lock falls with the number of calls",
	}}
}

// apart reports whether the pool's threads wait in this way at several places, one at each.
func (r row) apart(pool *ledger.Pool) bool {
	n := 0
	for _, at := range pool.Places {
		if !r.is(at) {
			continue
		}
		if at.Threads > 1 {
			return false
		}
		n++
	}
	return n > 1
}

// takesTurns reports whether one thread of the pool waits for clients or events at any moment, and the others wait
// for a lock that it holds: they wait for work. If more threads wait for clients, or none, the lock is another one.
func takesTurns(l *ledger.Ledger, pool *ledger.Pool) bool {
	_, idle := pool.Sum(func(p ledger.Place) bool { return p.Part.Idle() && p.Part != ledger.Sleep })
	const least, most = 0.8, 1.5 // both are means of looks; two at once cannot both have the lock
	n := idle / max(l.Window, 1)
	return n >= least && n < most
}

// leastLooks is how many looks at waiting threads it takes to know their share to within some ten percent.
const leastLooks = 50

// confidence goes by how often threads were seen at the place: a thread that stood there all the time was seen each
// time.
func confidence(l *ledger.Ledger, at ledger.Place) check.Confidence {
	if at.Still > 0 || float64(l.Passes)*at.Seconds/max(l.Window, 1) >= leastLooks {
		return check.High
	}
	return check.Medium
}

// notes say what else is known of the place, and where else the pool's threads spend their time.
func notes(pool *ledger.Pool, at ledger.Place) []string {
	var out []string
	if still := at.StillText(); still != "" {
		out = append(out, still)
	}
	if at.Call != "" {
		out = append(out, "system call: "+at.Call)
	}
	return append(out, "the pool's time: "+pool.Split())
}

// mostCompute is how many CPUs the target must use for each thread that waits for a child, for the children to count
// as computing: what they do with the time is in the CPU profile.
const mostCompute = 0.5

// ofChildren adds to a finding about children how many CPUs the target uses, its children included.
func ofChildren(p *check.Pass, pool *ledger.Pool, _ ledger.Place, f *check.Finding) {
	cpu, read := usage.OfTarget(p.Recording)
	l, ok := evidence.LedgerOf(p)
	if !read || !ok || cpu.Window <= 0 || l.Window <= 0 {
		return
	}
	used := quantity.Of("CPUs that the target uses, its children with it", cpu.Used.Sum()/cpu.Window, quantity.CPUs)
	f.Evidence = append(f.Evidence, used)
	if _, seconds := pool.Sum(isOneOf(ledger.Child)); used.Number() < mostCompute*seconds/l.Window {
		f.Facts = append(f.Facts, evidence.ChildrenWait)
	}
}

// ofHolders adds to a finding about a lock who holds it, the likely reason, and where it is released.
func ofHolders(p *check.Pass, pool *ledger.Pool, at ledger.Place, f *check.Finding) {
	var held []string
	for _, h := range at.Holders {
		held = append(held, fmt.Sprintf("%s for %s", h.Thread, quantity.Of("", h.Share, quantity.Ratio).Text()))
	}
	if held != nil {
		f.Notes = append(f.Notes, "held by thread "+strings.Join(held, ", by ")+" of the time waited for it")
	}
	f.Notes = append(f.Notes, evidence.Wakers(p, at.On)...)
	beside, seconds := pool.Sum(func(p ledger.Place) bool { return p.Part.Work() && p.Part != ledger.Lock })
	const most = 0.5 // of what the pool does beside its waits for the lock: then it is what holders do, too
	if busy := pool.Parts[ledger.User] + pool.Parts[ledger.System] + seconds; beside.Seconds > most*busy {
		f.Remedies[0].Action = "Do outside of the lock what its holders do while they have it: most likely " +
			beside.Call + " (" + strings.TrimSuffix(string(beside.Part)+" "+beside.On, " ") +
			"), where the pool spends most of its other time."
	}
}

// pids names the first few processes of the pool.
func pids(pool *ledger.Pool) string {
	list := pool.PIDs()
	return strings.Join(list[:min(len(list), evidence.NamedCulprits)], ", ")
}

// isOneOf returns a function that reports whether a place is of one of the parts.
func isOneOf(parts ...ledger.Part) func(ledger.Place) bool {
	return func(p ledger.Place) bool { return slices.Contains(parts, p.Part) }
}
