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
	lockLevel = &check.Param{
		Name: "level", Default: 0.05, Unit: quantity.Ratio,
		Why: "with a twentieth of its time back a thread hardly gets more done; a lock is for short waits",
	}
	lockWarn = &check.Param{
		Name: "warn", Default: 0.1, Unit: quantity.Ratio,
		Why: "each thread that waits for a tenth of its time adds less than the one before, and soon nothing",
	}
	lockHandOffs = &check.Param{
		Name: "hand-offs", Default: 0.5, Unit: quantity.Ratio,
		Why: "a thread that hands on a lock waits for it at other times; producers of a queue only wake its consumers",
	}
	lockLeader = &check.Param{
		Name: "leader", Default: 0.8, Unit: quantity.Threads,
		Why: "when one of them waits for a client or an event nearly all the time, the others may wait for their " +
			"turn to do so, " +
			"without work",
	}
	lockRequest = &check.Param{
		Name: "request", Default: 0.1, Unit: quantity.Seconds,
		Why: "a person notices when an answer takes longer (J. Nielsen, Response Times: The 3 Important Limits): " +
			"where as many wait for the lock as requests are in progress, it is the requests that wait, and no " +
			"thread for a turn to accept",
	}
	lockWaiters = &check.Param{
		Name: "waiters", Default: 1, Unit: quantity.Goroutines,
		Why: "with less than one waiting on average the lock is short only at moments",
	}
	lockTurns = &check.Param{
		Name: "turns", Default: 1.5, Unit: quantity.Threads,
		Why: "threads that take turns wait for clients one at a time; if more wait for clients, they do so without " +
			"the lock",
	}
)

var lockContention = &check.Check{
	Name:  "lock-contention",
	Stage: check.Runtime,
	Doc: `Threads of a native program, or goroutines, wait for each other at a lock

Time in which threads are blocked in futex(2) for a lock that another thread has, or goroutines are parked at a mutex.
The CPU is idle meanwhile, so that no CPU profile shows it. (Locks of Java: see monitor-contention.)

Measured by the scheduler's events (always with --deep, else where the host switches between threads at most 5000 times
a second): for each futex the time waited, as a share of the window times the number of threads that waited for it; the
stacks that lead there; which thread ended the waits, and where: that is where the lock was released. A futex counts as
a lock when its value says so (2 in glibc and Rust). Others, such as Python's, count only when the threads that wait
hand them on among themselves. A condition variable can look the same, so that is never more than a note. A pool whose
threads take turns at accept() behind a lock has no work: that is a note, too. Locks that park each thread at a futex
of its own are recognised by the function that waits (a Mutex of Ruby, parking_lot and RwLock of Rust), in samples of
the threads' stacks.

For a program in Go, by samples of its goroutines: those that wait for a mutex, by the function that asks for it, as a
share of the time that goroutines spend in that function. The holder of a mutex is not recorded. It is one of those in
the same function that do not wait for it, and the check names what they do there. For Python the same with its
threads, where those that wait and those that do not are together as many as the requests in progress: to the kernel a
lock looks like a queue.

Fix: hold the lock for less (no I/O, no sleep, no logging, no remote call under it), or split it. Risk: what the lock
kept together may come apart. Won't help: more threads; they wait, too. Disproof: gdb -p PID -batch -ex 'thread apply
all bt', several times: no threads are in pthread_mutex_lock there.`,
	URL:   "https://www.akkadia.org/drepper/futex.pdf",
	Needs: []metric.Metric{metric.TargetInfo}, // and one of the first two below
	Uses: append([]metric.Metric{
		metric.ThreadWaitTime, metric.GoroutineProfileSamples, metric.GoRuntime, metric.ThreadWaits,
		metric.ScriptWallProfileSamples, metric.ScriptRuntime, metric.WallProfileSamples, metric.JVMInfo,
		metric.FutexWakes, metric.OffCPUProfileSamples, metric.WaitProfileSamples,
	}, append(evidence.CPUMetrics(), evidence.RequestMetrics()...)...),
	Params: []*check.Param{lockLevel, lockWarn, lockHandOffs, lockLeader, lockTurns, lockWaiters, lockRequest},
	Facts:  []check.Fact{evidence.EachOther},
	Run:    runLockContention,
}

// A nativeLock is one futex that threads waited for.
type nativeLock struct {
	pid, on        string
	sure           bool // its value is that of a lock
	seconds, count float64
	threads        map[string]string // name by id
}

func runLockContention(p *check.Pass) error {
	if _, java := p.Ranked(stacks.Wall); !java {
		if w, err := evidence.WaitingOf(p); err == nil || len(p.Info(metric.GoRuntime)) > 0 {
			return runMutexes(p, w, err)
		}
	}
	named := runNamedLocks(p)
	if !p.Recorded(metric.ThreadWaitTime) && !named {
		reason, remedy := p.Why(metric.ThreadWaitTime)
		return check.NotAssessed(remedy, "%s", reason)
	}
	locks := nativeLocks(p)
	if len(locks) == 0 {
		if !named {
			p.Read(quantity.Of("waits for locks", 0, quantity.Events))
		}
		return nil
	}
	window, err := evidence.OffCPUWindow(p)
	if err != nil {
		return err
	}
	read := named
	for _, l := range locks {
		handedOn, known := l.handOffs(p)
		if !l.sure && (!known || handedOn.Below(p.Param(lockHandOffs))) {
			continue
		}
		share := l.share(window)
		if !read {
			p.Read(share)
			read = true
		}
		if share.AtLeast(p.Param(lockLevel)) {
			l.report(p, window, share, handedOn, known)
		}
	}
	return nil
}

func nativeLocks(p *check.Pass) []*nativeLock {
	byAddress := map[string]*nativeLock{}
	for _, w := range evidence.ThreadWaits(p) {
		if w.Reason != "mutex" && w.Reason != "futex" {
			continue
		}
		l := byAddress[w.PID+" "+w.On]
		if l == nil {
			l = &nativeLock{pid: w.PID, on: w.On, threads: map[string]string{}}
			byAddress[w.PID+" "+w.On] = l
		}
		l.sure = l.sure || w.Reason == "mutex"
		l.seconds += w.Seconds
		l.count += w.Count
		l.threads[w.TID] = w.Comm
	}
	return evidence.SortedBy(byAddress, func(l *nativeLock) float64 { return l.seconds })
}

func (l *nativeLock) share(window quantity.Value) quantity.Value {
	all := window.Times(quantity.Of("", float64(len(l.threads)), quantity.None))
	return quantity.Of("waited", l.seconds, quantity.Seconds).Per(all).
		Named("waiting for the lock, share of the time of the %d threads that waited", len(l.threads))
}

// handOffs is the share of the waits that a thread ended which waits for the lock itself at other times.
func (l *nativeLock) handOffs(p *check.Pass) (share quantity.Value, known bool) {
	own, all := 0.0, 0.0
	for _, s := range p.Gauge(metric.FutexWakes, "pid", l.pid, "on", l.on) {
		all += s.Last()
		if _, waits := l.threads[s.Label("waker")]; waits {
			own += s.Last()
		}
	}
	if all == 0 {
		return quantity.Value{}, false
	}
	return quantity.Of("waits ended by one that waits too", own, quantity.Events).
		Per(quantity.Of("waits ended by a thread", all,
			quantity.Events)).
		Named("waits ended by a thread that waits for the lock at other times"), true
}

// leaders is how many of its threads wait for a client or an event at any moment.
func (l *nativeLock) leaders(p *check.Pass, window quantity.Value) quantity.Value {
	idle := 0.0
	for _, w := range evidence.ThreadWaits(p) {
		if _, waits := l.threads[w.TID]; !waits {
			continue
		}
		if w.Reason == "client" || w.Reason == "request" || strings.Contains(w.Syscall, "poll") ||
			strings.HasPrefix(w.Syscall, "accept") {
			idle += w.Seconds
		}
	}
	return quantity.Of("waited for clients and events", idle, quantity.Seconds).Per(window).As(quantity.Threads).
		Named("threads of them that wait for a client or an event at any moment")
}

func (l *nativeLock) pools() string {
	byPool := map[string]int{}
	for _, comm := range l.threads {
		byPool[metric.PoolOf(comm)]++
	}
	best, most := "", 0
	for pool, n := range byPool {
		if n > most || n == most && pool < best {
			best, most = pool, n
		}
	}
	return best
}

func (l *nativeLock) report(p *check.Pass, window, share, handedOn quantity.Value, known bool) {
	here := func(s stacks.Sample) bool { return s.Class == "mutex "+l.on || s.Class == "futex "+l.on }
	at := evidence.FirstOffCPUPath(p, here)
	waiters := l.waiters(window)
	id := "futex " + l.on
	if at != "" {
		id = at + " (" + id + ")"
	}
	f := check.Finding{
		Subject:  check.Subject{Kind: "lock", ID: id},
		Severity: check.Info,
		Weight:   share.Number(),
		Summary: fmt.Sprintf("%d threads of pid %s (%s) wait %s of their time for one lock", len(l.threads), l.pid,
			l.pools(),
			share.Text()),
		Evidence: []quantity.Value{share, waiters},
		Notes:    evidence.OffCPUPaths(p, here),
		Remedies: []check.Remedy{holdForLess(p, share)},
		Placebos: []string{"More threads: they wait, too."},
		Disproof: "gdb -p " + l.pid + " -batch -ex 'thread apply all bt', several times: no threads stand before " +
			"that lock.",
	}
	if at != "" {
		f.Summary += ", at " + at
	}
	if known {
		f.Evidence = append(f.Evidence, handedOn)
	}
	f.Notes = append(f.Notes, evidence.Wakers(p, l.on)...)
	l.conclude(p, f, window, share, waiters)
}

func (l *nativeLock) waiters(window quantity.Value) quantity.Value {
	return quantity.Of("waited", l.seconds, quantity.Seconds).Per(window).As(quantity.Threads).
		Named("threads that wait at any moment")
}

// conclude reports a finding, with the severity that its harm deserves.
func (l *nativeLock) conclude(p *check.Pass, f check.Finding, window, share, waiters quantity.Value) {
	if l.harms(p, window, share, waiters, &f) {
		f.Severity = check.Warning
		evidence.WithoutThreads(p, &f, waiters.Number())
	}
	f.Confidence = lowest(f.Confidence, evidence.SampledConfidence(int64(l.count), f.Doubts))
	p.Report(f)
}

func holdForLess(p *check.Pass, share quantity.Value) check.Remedy {
	return check.Remedy{
		Action: "Hold the lock for less: no I/O, sleep, logging or remote call under it; split it, or copy what is " +
			"needed and let it go.",
		Risk:   "what the lock kept together may come apart",
		Effect: fmt.Sprintf("%s: from %s to below %s", share.Label(), share.Text(), p.Param(lockLevel).Text()),
	}
}

// harms reports whether work waits for the lock, and adds what speaks against it.
func (l *nativeLock) harms(p *check.Pass, window, share, waiters quantity.Value, f *check.Finding) bool {
	if !l.sure {
		f.Doubts = append(f.Doubts, "the futex is not that of a plain mutex: a condition variable that the threads "+
			"signal each other "+
			"looks the same")
		return false
	}
	if len(p.Info(metric.JVMInfo)) > 0 {
		f.Doubts = append(f.Doubts, "in a JVM it is a lock of the JVM's own, such as that of the heap during a "+
			"collection")
		return false
	}
	if len(l.threads) < 2 {
		f.Doubts = append(f.Doubts, "one thread alone waits there: a thread that is handed its next piece of work "+
			"looks the same")
		return false
	}
	leaders := l.leaders(p, window)
	if leaders.AtLeast(p.Param(lockLeader)) && leaders.Below(p.Param(lockTurns)) &&
		!evidence.Noticed(p, f, waiters, lockRequest) {
		f.Evidence = append(f.Evidence, leaders)
		f.Doubts = append(f.Doubts, "the threads may take turns at waiting for clients, and have no work")
		return false
	}
	return share.AtLeast(p.Param(lockWarn))
}

// lowest returns the lower of two confidences; the first may be unset.
func lowest(a, b check.Confidence) check.Confidence {
	if a == 0 || b < a {
		return b
	}
	return a
}
