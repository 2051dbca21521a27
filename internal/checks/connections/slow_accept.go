package connections

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

var (
	paramSlowAcceptWait = evidence.RequestSeconds()
	paramSlowAcceptBusy = &check.Param{
		Name: "busy-share", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the time in which its threads have work: a program that runs, or waits for a CPU, for most of it " +
			"accepts late because of that, and other checks tell why",
	}
	paramSlowAcceptFull = &check.Param{
		Name: "full", Default: 0.75, Unit: quantity.CPUs,
		Why: "of an interpreter that runs one thread at a time: the thread that accepts waits for its turn like all " +
			"others",
	}
	paramSlowAcceptLooks = &check.Param{
		Name: "looks", Default: 5, Unit: "looks",
		Why: "connections that wait at each of so many looks a second apart are no burst",
	}
)

var slowAccept = &check.Check{
	Name:  "slow-accept",
	Stage: check.Connections,
	Doc: `Connections wait to be accepted by a program that has CPU time to spare

The kernel does the handshake: a client is connected, sends its request, and
waits. A program that takes no more connections has reached a limit of its own:
all workers of a pre-fork server wait for something, or it has as many
connections as its configuration allows.

Measured: the length of the accept queue at each look, and how many connections
were established in the window. The length divided by the rate is the least
time that a connection waits (Little's law); at a socket of AF_UNIX each client
is known, and how long it was seen to wait. The threads' states show that
meanwhile the program neither runs nor waits for a CPU, and that no interpreter
that runs one thread at a time is full. It is critical where the queue
overflows.

Fix: more workers or connections (pm.max_children, workers, -c, maxconn), or
speed up what the workers wait for. Won't help: a longer backlog; more
clients wait then, and longer. Disproof: Recv-Q of ss -ltn, or ss -lx, is 0 at most looks.`,
	URL:   "https://man7.org/linux/man-pages/man2/listen.2.html",
	Needs: []metric.Metric{metric.ListenerQueue},
	Uses: append([]metric.Metric{
		metric.ListenOverflows, metric.ListenerBacklog,
		metric.ScriptRuntime, metric.TargetInfo, metric.UnixBacklog, metric.UnixOldest,
		metric.WallProfileSamples, metric.ScriptWallProfileSamples, metric.GoroutineProfileSamples, metric.GoRuntime,
	}, evidence.RequestMetrics()...),
	Params: []*check.Param{paramSlowAcceptWait, paramSlowAcceptBusy, paramSlowAcceptFull, paramSlowAcceptLooks},
	Run:    runSlowAccept,
}

func runSlowAccept(p *check.Pass) error {
	if _, known := evidence.Serves(p); !known {
		return check.NotAssessed("name a process", "whether a program has time to accept is known only for a target")
	}
	l, ok := evidence.LedgerOf(p)
	if !ok {
		return check.NotAssessed("profile for longer", "the states of threads were looked at in no pass")
	}
	p.Read(quantity.Of("connections that wait to be accepted at every look", 0, quantity.Connections))
	if full, err := evidence.FullInterpreter(p, paramSlowAcceptFull); full || err != nil {
		return err
	}
	for _, q := range evidence.NeverEmpty(p, p.Param(paramSlowAcceptLooks).Number()) {
		queue := q.Queue.Named("connections that wait to be accepted, mean")
		if f, ok := slowAcceptFinding(p, l, q.Address, queue); ok {
			p.Report(f)
		}
	}
	return nil
}

func slowAcceptFinding(p *check.Pass, l *ledger.Ledger, address string, queue quantity.Value) (check.Finding, bool) {
	window := quantity.Of("window", p.Meta.Duration, quantity.Seconds)
	wait := acceptWait(p, address, queue, window)
	busy, work := busyShare(l)
	p.Read(wait)
	if wait.Below(p.Param(paramSlowAcceptWait)) || busy.AtLeast(p.Param(paramSlowAcceptBusy)) {
		return check.Finding{}, false
	}
	f := check.Finding{
		Subject:  check.Subject{Kind: "listener", ID: address},
		Severity: check.Warning,
		Weight:   1,
		Summary: fmt.Sprintf("the accept queue of %s at %s is never empty: %s on average, and %s until one is "+
			"accepted; the program has CPU time to spare and takes no more", ownerOf(p, address), address,
			queue.Text(), wait.Text()),
		Evidence: []quantity.Value{queue, wait, busy},
		Remedies: []check.Remedy{{
			Action: "let the program serve more at once: " + cmp.Or(evidence.BoundsOf(p.Meta.Target.Name).Serves,
				"more workers (workers, processes, threads), or more connections (-c, max_connections)"),
			Risk:   "what the workers ask gets more requests at once, and memory grows with each of them",
			Effect: fmt.Sprintf("connections are accepted at once instead of after %s", wait.Text()),
		}},
		Placebos: []string{"a longer backlog: more clients wait then, and longer"},
		Disproof: "Recv-Q of the listener is 0 at most looks (ss -ltn)",
	}
	evidence.WithoutThreads(p, &f, queue.Number())
	refused(p, &f, address)
	meanwhile(p, l, work, &f)
	return f, true
}

// meanwhile says what the program's threads do instead of accepting; work is the pool with most work, nil for none.
func meanwhile(p *check.Pass, l *ledger.Ledger, work *ledger.Pool, f *check.Finding) {
	standing := ""
	if w, err := evidence.WaitingOf(p); err == nil {
		standing = w.Standing()
	}
	if standing != "" {
		f.Summary += "; its threads " + standing
	}
	if work == nil {
		if !hanging(l, f) {
			keptByIdle(l, f)
		}
		return
	}
	place, waits := work.Sum(func(at ledger.Place) bool { return at.Part.Work() })
	if waits == 0 {
		place, _ = work.Sum(func(ledger.Place) bool { return true })
	}
	f.Notes = append(f.Notes, fmt.Sprintf("its threads with work: %s: %s, most in %s", work.Who(), work.Split(),
		cmp.Or(place.On, place.Call, string(place.Part))))
	const most = 0.8 // of the time with work: the rest is of those that begin and end
	if standing == "" && place.Asked() && place.Seconds >= most*work.Working() {
		f.Summary += "; its threads wait for answers of " + place.On + " meanwhile"
	}
}

// hanging reports whether the workers wait for the rest of what a peer has begun to send, and says so: an answer
// without a length ends with its connection, which the peer keeps open, or it stopped in the middle.
func hanging(l *ledger.Ledger, f *check.Finding) bool {
	for _, pool := range l.Pools {
		place, seconds := pool.Sum(func(at ledger.Place) bool { return at.Part == ledger.Message })
		const most = 0.7 // of the pool's time: the rest is of the process that watches over the workers
		if seconds < most*pool.Wall || place.On == "" {
			continue
		}
		f.Summary += "; they have had something from " + place.On + " and wait for more, which does not come"
		f.Remedies = append([]check.Remedy{{
			Action: "have " + place.On + " end its answers (Content-Length, or close the connection), and give what " +
				"reads them a timeout (PHP: default_socket_timeout)",
			Risk:   "an answer that takes longer than the timeout is lost",
			Effect: "a worker is free when the answer is complete, or the time is up",
		}}, f.Remedies...)
		return true
	}
	return false
}

// keptByIdle says what holds back a program without work: its workers, if each of them keeps a connection on which
// nobody asks, else a limit of its own. No worker can be waiting to accept, as there is always something to accept.
func keptByIdle(l *ledger.Ledger, f *check.Finding) {
	for _, pool := range l.Pools {
		workers := quantity.Of("waited for the next request of a client", pool.Parts[ledger.Request], quantity.Seconds).
			Per(quantity.Of("window", l.Window, quantity.Seconds)).As(quantity.Threads).
			Named("threads of %s that wait for the next request of a client that is connected", pool.Title())
		const most = 0.8 // of the pool's time: the rest is of those that start, watch over the others, or serve
		if pool.Parts[ledger.Request] < most*pool.Wall {
			continue
		}
		f.Summary += fmt.Sprintf("; %s of %s each keep a connection on which nobody asks", workers.Text(), pool.Title())
		f.Evidence = append(f.Evidence, workers)
		f.Remedies = append([]check.Remedy{{
			Action: "close idle connections sooner (KeepAliveTimeout, keep-alive), or keep them without a worker " +
				"each (mpm_event, asynchronous workers)",
			Risk:   "a client that asks again later connects anew",
			Effect: "a worker is free as soon as it has answered",
		}}, f.Remedies...)
		return
	}
	f.Notes = append(f.Notes, "no thread has work: a limit of its own, such as of connections, holds it back")
}

// refused makes it critical if connections are refused now. On a full socket of AF_UNIX connect() fails or blocks.
func refused(p *check.Pass, f *check.Finding, address string) {
	for _, l := range evidence.UnixListeners(p) {
		if l.Address != address {
			continue
		}
		if l.Queue.Above(l.Backlog) {
			f.Severity = check.Critical
			f.Summary += fmt.Sprintf("; with %.0f its backlog of %.0f is full, and connect() fails (EAGAIN)",
				l.Queue.Number(), l.Backlog.Number())
		}
		return
	}
	if over, ok := evidence.MaybeNetRise(p, metric.ListenOverflows, "accept queue overflows"); ok &&
		over.N.Number() > 0 {
		f.Severity = check.Critical
		f.Evidence = append(f.Evidence, over.Rate())
	}
}

// ownerOf names the program that listens at an address.
func ownerOf(p *check.Pass, address string) string {
	for _, l := range slices.Concat(evidence.Listeners(p), evidence.UnixListeners(p)) {
		if l.Address == address {
			return l.Owner()
		}
	}
	return evidence.Listener{}.Owner()
}

// acceptWait returns how long a connection waits to be accepted, at least: no more were accepted than were
// established in the network namespace. It returns the window if none was. For a socket of AF_UNIX it returns for how
// long one was seen to wait.
func acceptWait(p *check.Pass, address string, queue, window quantity.Value) quantity.Value {
	const wait = "time that a connection waits to be accepted, at least"
	if oldest := p.Gauge(metric.UnixOldest, "listener", address); len(oldest) > 0 {
		return quantity.Of(wait, series.Mean(series.Values(evidence.Together(oldest))), quantity.Seconds)
	}
	opened, ok := evidence.MaybeNetRise(p, metric.TCPPassiveOpens, "connections established")
	if !ok || opened.N.Below(queue) {
		return window.Named(wait)
	}
	return queue.Per(opened.Rate()).Named(wait)
}

// busyShare returns the part of the threads' time with work in which they run or wait for a CPU, and the pool with
// most work, which is nil if none has any.
func busyShare(l *ledger.Ledger) (share quantity.Value, most *ledger.Pool) {
	busy, work := l.Computing(), l.Working()
	for _, pool := range l.Pools {
		if most == nil && pool.Working() > workShown*pool.Wall {
			most = pool
		}
	}
	if most == nil {
		return quantity.Of("share of the window that threads run", busy/max(l.Window, 1), quantity.Ratio), nil
	}
	return quantity.Of("running or ready to run", busy, quantity.Seconds).
		Per(quantity.Of("with work", work, quantity.Seconds)).
		Named("of the time with work of all threads"), most
}

// workShown is the least share of a pool's time, spent with work, at which the work is named: less is the odd
// request.
const workShown = 0.1
