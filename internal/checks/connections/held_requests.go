package connections

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	paramHeldRequest = evidence.RequestSeconds()
	paramHeldLock    = &check.Param{
		Name: "lock", Default: 0.02, Unit: quantity.Seconds,
		Why: "that a request takes, where most are known to wait for a lock or a pool of the program's own: nobody " +
			"designs that, however long it takes, and a lower mean comes from a few requests at a time",
	}
	paramHeldShare = &check.Param{
		Name: "held", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the time of requests: where most of it is work or a visible wait, other checks report it",
	}
	paramHeldTakers = &check.Param{
		Name: "takers", Default: 0.2, Unit: quantity.Threads,
		Why: "that wait for the next request or event: an event loop that is free for a fifth of the time takes what " +
			"comes, and one that holds requests back by design is free nearly all the time",
	}
	paramHeldQueue = &check.Param{
		Name: "queue", Default: 2, Unit: "requests",
		Why: "in progress for each thread that stands elsewhere: with one each they may stand there on purpose",
	}
	paramHeldTimer = &check.Param{
		Name: "timer", Default: 0.75, Unit: quantity.Ratio,
		Why: "of the answers, beyond those that match by chance: an answer that a timer sends may be late, because " +
			"its thread waits for a CPU or many are sent one after the other",
	}
	paramHeldFull = &check.Param{
		Name: "full", Default: 0.75, Unit: quantity.Ratio,
		Why: "of a CPU, by one thread, or of all CPUs that the program may use: a server that is busy three quarters " +
			"of the time has three requests in its queue (M/M/1; L. Kleinrock, Queueing Systems I, 3.2), and " +
			"requests wait for the CPU",
	}
)

var heldRequests = &check.Check{
	Name:  "held-requests",
	Stage: check.Connections,
	Doc: `Requests wait inside a program that has nothing to do

Clients wait for answers, and the program neither computes for them nor waits
for anybody else. It holds them back by a timer, a limit or a queue of its own:
limit_req of nginx, a pooler's queue, or a full pool of workers.

Measured: requests in progress by the sockets of clients without an answer, and
by Little's law how long each takes; set against the threads that run or wait
with work at hand, and the connections that wait for an answer of others.

It is not a fault on its own: long polls, subscriptions and blocking reads of a
queue look the same by design. It is a warning where no thread waits for the
next request or event meanwhile, and each thread that does something has
several requests to serve: an event loop sleeps in a handler, or waits there
for something else. Threads that did not run once are not counted.

It is also a warning where most requests are coroutines of Python (asyncio) or
async functions of Node.js that wait for a lock, a semaphore or a pool that
others have, or for room in a queue, or that sleep and are answered within the
window. The check names their functions and lines. For such a lock or pool less
time of a request is enough, since nobody designs that. A lock of Node.js is
recognised by its name (acquire, lock, runExclusive) or its library.

For any program but those in Java and Go it is a warning where the answers are
sent within two milliseconds of the end of a timed wait of one of its threads,
and requests end in the window: they wait for a time that the program has set,
such as a rate limit, a delay or a pause before the next try. Requests wait for
CPUs where the program uses up its own, or one of its threads uses a whole one,
or it always runs as many threads as its runtime allows. There this check is
silent.

And it is a warning where nothing was answered in all of the window while
requests lie unread in connections of the target, and it does not compute: it
hangs. Who holds requests back by design has read them.

Fix: find the limit in the program's configuration or its log, and raise it or
send less. Won't help: more CPUs. Disproof: clients wait by design, such as
long polls that end within seconds, or blocking reads of a queue.`,
	URL: "https://nginx.org/en/docs/http/ngx_http_limit_req_module.html",
	Needs: []metric.Metric{
		metric.ListenerOwes, metric.DestinationAsked,
	},
	Uses: append([]metric.Metric{
		metric.DestinationOwner, metric.TargetInfo, metric.OffCPUProfileSamples, metric.WaitProfileSamples,
		metric.ScriptWallProfileSamples, metric.CoroutineProfileSamples, metric.WallProfileSamples,
		metric.GoRuntime, metric.GoroutineProfileSamples,
		metric.CPUsOnline, metric.TargetCPUs,
		metric.CgroupCpuset, metric.CgroupQuota, metric.ScriptRuntime, metric.ThreadSwitches, metric.ExchangesAtTimer,
		metric.AfterTimer, metric.ListenerUnread,
	}, evidence.RequestMetrics()...),
	Params: []*check.Param{
		paramHeldRequest, paramHeldLock, paramHeldShare, paramHeldTakers, paramHeldQueue,
		paramHeldTimer, paramHeldFull,
	},
	Facts:  []check.Fact{evidence.OneServesAll},
	Beyond: "what clients wait for by design",
	Run:    runHeldRequests,
}

func runHeldRequests(p *check.Pass) error {
	if _, known := evidence.Serves(p); !known {
		return check.NotAssessed("name a process", "whose requests these are is known only for a target")
	}
	l, ok := evidence.LedgerOf(p)
	if !ok || l.Window <= 0 {
		return check.NotAssessed("profile for longer", "the states of threads were looked at in no pass")
	}
	if err := evidence.EnoughLooks(p); err != nil || reportUnread(p, l) {
		return err
	}
	return reportHeld(p, l)
}

func reportHeld(p *check.Pass, l *ledger.Ledger) error {
	h, ok := evidence.HeldOf(p)
	p.Read(quantity.Of("requests without an answer, mean", h.InProgress.Number(), "requests"))
	if !ok || h.Each.Below(p.Param(paramHeldLock)) {
		return nil
	}
	p.Read(h.Share)
	full := heldByCPU(p)
	p.Read(full)
	if _, flat := evidence.AtOnce(p); flat || full.AtLeast(p.Param(paramHeldFull)) {
		return nil
	}
	if h.Share.AtLeast(p.Param(paramHeldShare)) {
		f := heldFinding(p, h)
		gone := h.Share.Number() * h.InProgress.Number()
		n, stand, ok := heldCoroutines(p, h, &f)
		f.Summary, f.Lead.Why = f.Summary+stand, f.Lead.Why+stand
		switch {
		case ok:
			gone = n
		case h.Each.Below(p.Param(paramHeldRequest)):
			return nil
		default:
			heldByWhat(p, l, h, stand, &f)
			if f.Severity == check.Info && evidence.ShortOfThreads(p, l) {
				return nil // nothing holds them back: see waiting-on-backend
			}
		}
		evidence.WithoutThreads(p, &f, gone)
		p.Report(f)
	}
	return nil
}

// heldByCPU returns how full the fullest resource is for which requests may wait: a thread, an interpreter that runs
// one thread at a time, or all CPUs that the target may use.
func heldByCPU(p *check.Pass) quantity.Value {
	one := quantity.Of("a CPU", 1, quantity.CPUs)
	full := quantity.Of("running or ready to", 0, quantity.CPUs).Per(one).
		Named("part of the time that the busiest thread runs, or is ready to")
	all := 0.0
	for _, t := range evidence.BusyThreads(p) {
		if t.TID != 0 {
			all += t.Wants.Number()
		}
		if of := t.Wants.Per(one); of.Above(full) {
			full = of.Named("part of the time that %s %s runs, or is ready to", t.Kind(), t.Name())
		}
	}
	if cpus, ok := evidence.EffectiveCPUs(p); ok {
		if of := quantity.Of("threads running or ready, mean", all, quantity.CPUs).Per(cpus); full.Below(of) {
			return of
		}
	}
	return full
}

// heldByWhat makes it a warning if no thread is there to take a request, or else if timers send the answers.
func heldByWhat(p *check.Pass, l *ledger.Ledger, h evidence.HeldRequests, stand string, f *check.Finding) {
	blockedLoop(p, l, h, f)
	if f.Severity == check.Info {
		heldByTimer(p, h, stand, f)
	}
}

// blockedLoop makes it a warning if no thread is there to take a request.
func blockedLoop(p *check.Pass, l *ledger.Ledger, h evidence.HeldRequests, f *check.Finding) {
	takes := func(at ledger.Place) bool {
		return at.Part == ledger.Events || at.Part == ledger.Request && at.On != "" // a local socket has no address
	}
	takers, others, at := standing(l, takes)
	if loops := scriptLoops(p); len(loops) > 0 {
		takers, others, at = standingOf(p, l.Window, loops)
		if others.Number() < float64(len(loops))*p.Param(paramHeldShare).Number() { // it computes, or is free
			return
		}
	} else if n := bystanders(p, l.Window); n.Number() > 0 {
		takers = takers.Minus(n).Named("threads that wait for the next request or event, and take some, mean")
	}
	if w, err := evidence.WaitingOf(p); err == nil && w.IsJava() { // a JVM has a dozen threads of its own
		others = w.WithWork()
	}
	if !takers.Below(p.Param(paramHeldTakers)) || others.Number() <= 0 ||
		h.InProgress.Per(others).Number() < p.Param(paramHeldQueue).Number() {
		return
	}
	f.Severity = check.Warning
	f.Evidence = append(f.Evidence, takers, others)
	if others.Number() < aPool {
		f.Facts = append(f.Facts, evidence.OneServesAll)
	}
	f.Summary = fmt.Sprintf("%s in progress at any moment; each takes %s and more: no thread waits for the "+
		"next one meanwhile, and most of the time is a wait in %s", h.InProgress.Text(), h.Each.Text(), at.Call)
	evidence.NameFunction(p, f, at)
	f.Remedies = []check.Remedy{{
		Action: "take the wait out of the thread that serves all: a timer or an asynchronous call in an event loop, " +
			"or a thread of its own for what waits",
		Risk: "order changes: the next request begins before this one ends", Effect: f.Remedies[0].Effect,
	}}
	f.Placebos = []string{"more CPUs: the thread waits", "more connections or clients: they wait for the same thread"}
	f.Disproof = "the thread is seen in epoll_wait or poll most of the time (/proc/PID/task/TID/syscall)"
	if strings.HasPrefix(at.Call, "epoll_") {
		f.Disproof = "node --inspect shows that the function returns at once"
	}
}

// blockingReads lists servers in which clients wait for what comes next, and get an empty answer after a second or a
// few: BRPOP of Sidekiq and Celery, getMore and hello of MongoDB.
var blockingReads = []string{"redis-server", "valkey-server", "keydb-server", "beanstalkd", "mongod", "mongos"}

// heldByTimer makes it a warning if the program's timers send the answers and requests end in the window. stand says
// where they wait, if that is known. Java and Go are left out: their profiles show what waits for a timer, in the
// program's own terms, and their consumers of Kafka and NATS poll for half a second and more.
func heldByTimer(p *check.Pass, h evidence.HeldRequests, stand string, f *check.Finding) {
	if slices.Contains(blockingReads, p.Meta.Target.Name) || evidence.TargetIsJVM(p) || evidence.TargetIsGo(p) {
		return
	}
	atTimer, known := evidence.AtTimer(p)
	if !known {
		return
	}
	p.Read(atTimer)
	if atTimer.Below(p.Param(paramHeldTimer)) || mayBePolls(p, h.InProgress) {
		return
	}
	f.Severity = check.Warning
	f.Evidence = append(f.Evidence, atTimer)
	f.Summary = fmt.Sprintf("%s in progress at any moment; each takes %s and more, and %s of the answers are sent as "+
		"a timer of the program fires: it lets requests wait for a time that it has set%s", h.InProgress.Text(),
		h.Each.Text(), atTimer.Text(), stand)
	if p.Meta.Target.Name != "nginx" { // nginx has no such code
		f.Remedies[0].Action = "find the delay in the code (a sleep, a pause before the next try, an injected " +
			"fault), or the rate limit: " + f.Remedies[0].Action
	}
	f.Placebos = append(f.Placebos, "more workers or connections: each request waits as long")
	f.Disproof = "clients wait by design: long polls that end within seconds"
}

// aPool is the number of waiting threads from which on they are no longer one that serves all: with two, more of them
// would do as well.
const aPool = 2

// scriptLoops returns the threads that run the scripts of Node.js: the first of each process. The others wait for
// work of the runtime, at places of their own.
func scriptLoops(p *check.Pass) map[string]bool {
	out := map[string]bool{}
	for _, s := range p.Info(metric.ScriptRuntime) {
		if strings.HasPrefix(s.Label("runtime"), "Node.js") {
			out[s.Label("pid")] = true
		}
	}
	return out
}

// takesOf lists the words that thread_state_seconds has for a thread that takes the next request or event.
var takesOf = []string{"events", "request", "client"}

// standingOf is standing for some threads only.
func standingOf(
	p *check.Pass, window float64, threads map[string]bool,
) (takers, others quantity.Value, at ledger.Place) {
	taking, elsewhere, most := 0.0, 0.0, 0.0
	for _, s := range p.Gauge(metric.ThreadStateTime) {
		switch {
		case !threads[s.Label("tid")] || s.Label("state") != "waiting":
		case slices.Contains(takesOf, s.Label("for")):
			taking += s.Last()
		default:
			elsewhere += s.Last()
			if s.Last() > most {
				most, at = s.Last(), ledger.Place{Call: s.Label("syscall"), On: s.Label("on")}
			}
		}
	}
	inside, call := loopsInside(p, threads)
	taking, elsewhere = max(0, taking-inside), elsewhere+min(taking, inside)
	if inside > most {
		at = ledger.Place{Call: call}
	}
	return quantity.Of("event loops that wait for the next request or event, mean", taking/window, quantity.Threads),
		quantity.Of("event loops that stand elsewhere, mean", elsewhere/window, quantity.Threads), at
}

// loopsInside returns how many seconds event loops wait in a loop of their own within a handler, as for a child
// process (execSync), and the system call. Without their stacks they seem to wait for events.
func loopsInside(p *check.Pass, threads map[string]bool) (seconds float64, call string) {
	prof, ok := p.Ranked(stacks.ScriptWall)
	if !ok {
		return 0, ""
	}
	for _, s := range prof.Samples {
		if s.State != stacks.Sleeping || !threads[strconv.Itoa(prof.ThreadOf(s).ID)] {
			continue
		}
		if name := prof.Frames[s.Stack[0]].Name; strings.HasPrefix(name, "epoll_") {
			seconds, call = seconds+float64(s.Value)/1e9, name
		}
	}
	return seconds, call
}

// fewTurns is the ratio by which a thread counts as taking no requests: there are so many requests, and so many waits
// of the busiest thread, for each of its waits. A thread that a runtime keeps for itself wakes up a few times a
// minute. Workers that share the requests have few waits, too, but then none has many more.
const fewTurns = 20

// bystanders returns the mean number of threads that stand where requests are taken and take none, such as the thread
// of a JVM that waits for tools.
func bystanders(p *check.Pass, window float64) quantity.Value {
	switches, still, most := map[string]float64{}, map[string]bool{}, 0.0
	for _, s := range p.Counter(metric.ThreadSwitches, "kind", "voluntary") {
		if n, ok := s.Increase(); ok {
			switches[s.Label("tid")] = n
			most = max(most, n)
		}
	}
	for _, s := range p.Gauge(metric.ThreadStillTime) {
		still[s.Label("tid")] = true // these are left out already
	}
	requests, seconds := evidence.RequestsAtMost(p).Number(), 0.0
	for _, s := range p.Gauge(metric.ThreadStateTime) {
		n, known := switches[s.Label("tid")]
		waits := slices.Contains(takesOf, s.Label("for"))
		if waits && known && !still[s.Label("tid")] && n*fewTurns < min(requests, most) {
			seconds += s.Last()
		}
	}
	return quantity.Of("threads of these that wait far less often than requests come", seconds/window, quantity.Threads)
}

// standing returns how many threads stand where they take the next request, how many stand elsewhere, and where most
// of the latter do. It leaves out threads that stood at one place all the time and did not run once.
func standing(l *ledger.Ledger, takes func(ledger.Place) bool) (takers, others quantity.Value, at ledger.Place) {
	taking, elsewhere, most := 0.0, 0.0, 0.0
	for _, pool := range l.Pools {
		for _, place := range pool.Places {
			seconds := max(0, place.Seconds-float64(place.Still)*l.Window)
			if takes(place) {
				taking += seconds
				continue
			}
			elsewhere += seconds
			if seconds > most {
				at, most = place, seconds
			}
		}
	}
	return quantity.Of("threads that wait for the next request or event, mean", taking/l.Window, quantity.Threads),
		quantity.Of("threads that stand elsewhere, mean", elsewhere/l.Window, quantity.Threads), at
}

func heldFinding(p *check.Pass, h evidence.HeldRequests) check.Finding {
	return check.Finding{
		Subject:    evidence.TargetSubject(p),
		Severity:   check.Info,
		Confidence: check.Medium,
		Summary: fmt.Sprintf("%s in progress at any moment; each takes %s and more, while %s and "+
			"%s: the program holds them back by a timer, a limit or a queue of its own, or by design (long polls)",
			h.InProgress.Text(), h.Each.Text(), workText(h.Works), askText(h.Asks)),
		Evidence: []quantity.Value{h.InProgress, h.Each, h.Works, h.Asks, h.Share},
		Remedies: []check.Remedy{{
			Action: heldWhere(p.Meta.Target.Name),
			Risk:   "the limit may protect something that then gets more requests",
			Effect: fmt.Sprintf("up to %s of a request's time is saved", h.Share.Text()),
		}},
		Placebos: []string{"more CPUs: it uses the ones it has for only a small part of the time"},
		Disproof: "clients wait by design: long polls, subscriptions, streams",
		Lead: check.Lead{
			Heading: "requests are held",
			State: fmt.Sprintf("%s are in progress at any moment, and each takes %s and more", h.InProgress.Text(),
				h.Each.Text()),
			Why: "they wait inside the program, by a timer, a limit or a queue of its own, or by design (long polls)",
		},
	}
}

// heldWhere says where to look for what holds requests back. nginx delays requests above a rate and within the burst
// (ngx_http_limit_req_module), and logs that as a warning; it sends later what exceeds limit_rate.
func heldWhere(program string) string {
	if program == "nginx" {
		return "look for limit_rate, and for limit_req with a burst and without nodelay (nginx -T; its error log has " +
			"\"delaying request\"): raise the rate, or turn away what is over it"
	}
	where := "look for a limit in its configuration and log (rate limits, queues, sizes of pools)"
	if b := evidence.BoundsOf(program); b != (evidence.Bounds{}) {
		where += ", beginning with " + strings.Join(slices.DeleteFunc([]string{b.Serves, b.Asks},
			func(s string) bool { return s == "" }), " and ")
	}
	return where
}

// hardly is the number of threads or connections, at any moment, from which on they are worth a number.
const hardly = 0.05

func workText(works quantity.Value) string {
	if works.Number() < hardly {
		return "no thread works on them"
	}
	return works.Text() + " have work"
}

func askText(asks quantity.Value) string {
	if asks.Number() < hardly {
		return "nobody else is asked"
	}
	return asks.Text() + " wait for answers of others"
}
