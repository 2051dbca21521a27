package evidence

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// RequestSeconds returns the parameter for the time of a request from which on somebody waits for the target: a
// person notices a tenth of a second (J. Nielsen, Response Times: The 3 Important Limits).
func RequestSeconds() *check.Param {
	return &check.Param{
		Name: "request", Default: 0.1, Unit: quantity.Seconds,
		Why: "a person notices when an answer takes longer (J. Nielsen, Response Times: The 3 Important Limits)",
	}
}

// Requests is what clients wait for at the target's own ports.
type Requests struct {
	InProgress quantity.Value // those without an answer yet, mean ([waiting])
	Each       quantity.Value // seconds that a request takes, at least
	Late       quantity.Value // seconds that one in a hundred takes at least; 0 if answers were not timed
}

// late is the multiple of a noticeable mean from which on one request in a hundred is not slow by accident: half a
// second for 0.1 s. Half a second more for each search cost Google a fifth of its traffic (M. Mayer, Web 2.0 Summit
// 2006).
const late = 5

// Slow reports whether clients notice: requests take that long on average, or one in a hundred takes five times that.
// A mean hides the few that wait for all the others, as with a lock without a queue.
func (r Requests) Slow(longest quantity.Value) bool {
	return !r.Each.Below(longest) || r.Late.Number() >= late*longest.Number()
}

// slowText says how long a request takes: the mean or, if only a few are slow, how long these take.
func (r Requests) slowText(longest quantity.Value) string {
	if r.Each.Below(longest) {
		return fmt.Sprintf("one request in a hundred takes %s and more", r.Late.Text())
	}
	return fmt.Sprintf("a request takes %s and more", r.Each.Text())
}

// tail is the 99th percentile of the time from a request to its answer on the target's ports, in seconds.
type tail float64

func readTail(rec *recording.Recording) tail {
	e, ok := keynumber.NewSource(rec, keynumber.Told{}).Estimate("exchange_p99")
	if !ok {
		return 0
	}
	return tail(e.Mean)
}

// RequestsOf returns the requests to the target. By Little's law (J. Little, Operations Research 9, 1961) the time of
// a request is the number in progress over the number that arrive per second; since no more than [RequestsAtMost]
// arrive, it is that time or longer. ok is false if none arrived, or if there were too few samples for a mean.
func RequestsOf(p *check.Pass) (r Requests, ok bool) {
	n, looks := owing(p)
	most := RequestsAtMost(p)
	if n == 0 && servesUnix(p) {
		return unixRequests(p)
	}
	if n == 0 || looks < leastLooks || most.Number() == 0 || p.Meta.Duration <= 0 {
		return r, false
	}
	r.InProgress = quantity.Of("requests without an answer, mean", n, most.Unit())
	rate := most.Per(quantity.Of("window", p.Meta.Duration, quantity.Seconds)).Named("requests a second, at most")
	r.Each = r.InProgress.Per(rate).Named("time of a request, at least")
	r.Late = quantity.Of("time that one request in a hundred takes, and more", float64(check.Shared(p, readTail)),
		quantity.Seconds)
	return r, true
}

// unixRequests returns the requests to a target that listens on AF_UNIX sockets, for which the kernel keeps no times.
// A thread works on each request; it waited for it in accept(), in a read or for events, and the most frequent of
// these waits occurs once per request. Nothing is known of an event loop, nor of a database that works for itself
// alone: those wait for events only.
func unixRequests(p *check.Pass) (r Requests, ok bool) {
	l, seen := LedgerOf(p)
	calls, idle, clients := map[string]float64{}, 0.0, false
	for _, w := range ThreadWaits(p) {
		switch w.Reason {
		case "client", "request", "socket":
			clients = true
		case "other": // events, of any of several descriptors
		default:
			continue
		}
		calls[w.Syscall] += w.Count
		idle = max(idle, calls[w.Syscall])
	}
	if !seen || l.Window <= 0 || !clients {
		return r, false
	}
	r.InProgress = quantity.Of("threads with work, mean", l.Working()/l.Window, "requests")
	r.Each = r.InProgress.Per(quantity.Of("waits for the next request", idle, "requests").
		Per(quantity.Of("window", l.Window, quantity.Seconds))).Named("time of a request, at least")
	return r, r.InProgress.Number() > 0
}

// Unanswered returns how many clients wait for an answer at the target's ports, on average, whether or not requests
// arrive meanwhile.
func Unanswered(p *check.Pass) quantity.Value {
	n, _ := owing(p)
	return quantity.Of("clients without an answer, mean", n, "requests")
}

// owing returns how many clients wait for an answer at the target's ports, on average, and the number of samples.
func owing(p *check.Pass) (n float64, looks int) {
	var list []recording.GaugeSeries
	ports := map[string]bool{}
	for _, listener := range p.Info(metric.TargetListenPorts) {
		address := listener.Label("listener")
		list = append(list, p.Gauge(metric.ListenerOwes, "listener", address)...)
		ports[PortOf(address)] = true
	}
	for _, s := range list {
		looks = max(looks, len(s.Points))
	}
	return waiting(p, list, "server", func(endpoint string) bool { return ports[PortOf(endpoint)] }), looks
}

// Asking returns how many of the target's connections to a destination wait for an answer, mean.
func Asking(p *check.Pass, destination string) float64 {
	return waiting(p, p.Gauge(metric.DestinationAsked, "destination", destination), "client",
		func(endpoint string) bool { return endpoint == destination })
}

// waiting returns how many connections wait for an answer, on average.
func waiting(p *check.Pass, looks []recording.GaugeSeries, side string, of func(endpoint string) bool) float64 {
	timed, count := 0.0, 0.0
	for _, e := range *check.Shared(p, readExchanges) {
		if e.Timed && e.Side == side && of(e.Endpoint) {
			timed, count = timed+e.InProgress, count+e.Count
		}
	}
	return underWay(series.Values(Together(looks)), timed, count)
}

// EndedRequests returns how many of the requests in progress at any moment were answered in the window, mean. ok is
// false unless all were timed.
func EndedRequests(p *check.Pass) (n quantity.Value, ok bool) {
	sum := 0.0
	for _, e := range *check.Shared(p, readExchanges) {
		if e.Side != "server" {
			continue
		}
		if !e.Timed {
			return n, false
		}
		sum += e.InProgress
	}
	n = quantity.Of("requests in progress that end in the window, mean", sum, "requests")
	return n, len(p.Counter(metric.ExchangesCounted)) > 0
}

// AtTimer returns the share of the target's answers that were sent as a timer of the program fired, beyond those that
// coincide by chance. ok is false if that is not known for all answers, or there were too few.
func AtTimer(p *check.Pass) (beyondChance quantity.Value, ok bool) {
	clock := p.Counter(metric.AfterTimer)
	if len(clock) == 0 || p.Meta.Duration <= 0 {
		return beyondChance, false
	}
	began := clock[0].Points[0].At
	chance := min(1, riseSince(clock[0], began)/p.Meta.Duration)
	all, sent := 0.0, 0.0
	for _, e := range *check.Shared(p, readExchanges) {
		switch {
		case e.Side != "server":
		case !e.Timed:
			return beyondChance, false
		default:
			all += e.Count
		}
	}
	for _, s := range p.Counter(metric.ExchangesAtTimer) {
		sent += riseSince(s, began)
	}
	if all < leastTimed || chance == 1 {
		return beyondChance, false
	}
	answers := quantity.Of("answers", (1-chance)*all, "answers")
	sent = min(sent, all) // the two are read one after the other
	return quantity.Of("answers that were sent as a timer of the program fired, beyond those by chance",
		max(0, sent-chance*all), answers.Unit()).Per(answers).
		Named("of the answers were sent as a timer of the program fired"), true
}

// underWay returns how many requests have no answer, on average. Some ten samples of the sockets show it roughly:
// they once made 0.8 out of 0.25, and zero out of 0.14. If enough exchanges were timed it is the number of those, and
// the samples may add requests without an answer until the end: no more than waited at each later sample.
func underWay(looks []float64, timed, count float64) float64 {
	seen := series.Mean(looks)
	if count < leastTimed {
		return seen
	}
	return max(timed, min(seen, timed+stillWaiting(looks)))
}

// leastTimed is the number of timed exchanges that say more than ten samples do.
const leastTimed = 10

func readExchanges(rec *recording.Recording) *[]keynumber.Exchanges {
	list := keynumber.ExchangesOf(rec)
	return &list
}

// Silent reports whether a destination that the target asks ended no exchange in the window: it sent no answer.
func Silent(p *check.Pass, destination string) bool {
	return p.Recorded(metric.ExchangesCounted) && !slices.ContainsFunc(*check.Shared(p, readExchanges),
		func(e keynumber.Exchanges) bool {
			return e.Side == "client" && e.Endpoint == destination && e.Count > 0
		})
}

// stillWaiting returns the mean over the samples of the least number from each sample on.
func stillWaiting(looks []float64) float64 {
	least := slices.Clone(looks)
	for i := len(least) - 2; i >= 0; i-- {
		least[i] = min(least[i], least[i+1])
	}
	return series.Mean(least)
}

// EnoughLooks returns an error if clients were seen waiting at the target's ports, but there were too few samples for
// a mean: then the requests in progress are unknown.
func EnoughLooks(p *check.Pass) error {
	n, looks := owing(p)
	if n == 0 || looks >= leastLooks {
		return nil
	}
	return check.NotAssessed("profile for longer", "the target's connections were looked at only %d times", looks)
}

// AskingConnections returns how many of the target's own connections wait for an answer, on average.
func AskingConnections(p *check.Pass) quantity.Value {
	n := 0.0
	for _, destination := range LabelValues(p.Gauge(metric.DestinationAsked), "destination") {
		if OfTarget(p, destination) {
			n += Asking(p, destination)
		}
	}
	return quantity.Of("connections that wait for an answer, mean", n, quantity.Connections)
}

// ShortOfThreads reports whether requests wait for a thread, and not for a connection: each connection in use has a
// thread of its own, which waits for its answer. Waiters for a pooled connection would be seen in addition, as
// threads that wait for others. An event loop has no such threads.
func ShortOfThreads(p *check.Pass, l *ledger.Ledger) bool {
	r, ok := RequestsOf(p)
	if !ok || l.Window <= 0 {
		return false
	}
	answers, queue := 0.0, 0.0
	for _, pool := range l.Pools {
		if pool.Parts[ledger.Answer] == 0 {
			continue
		}
		answers += pool.Parts[ledger.Answer]
		for _, place := range pool.Places {
			queue += place.Queued(l.Window)
		}
	}
	asking := AskingConnections(p).Number()
	inside := r.InProgress.Number() - asking
	return answers > 0 && answers >= ownThread*asking*l.Window && queue < leastOwned*inside*l.Window
}

// ownThread is the share of the connections in use with a thread from which on all of them count as having one: both
// are means of a few samples, and a sample now and then finds a thread between two answers.
const ownThread = 0.8

// A HeldRequests divides the requests in progress by what happens to them.
type HeldRequests struct {
	Requests
	Works quantity.Value // threads that run, or wait with work at hand, mean
	Asks  quantity.Value // connections of the target that wait for an answer, mean
	Share quantity.Value // of the requests in progress, at least, that nobody works on and that wait for nobody else
}

// HeldOf returns how many of the requests to the target wait inside it. ok is false if it is false for [RequestsOf],
// or if the threads' time was not recorded.
func HeldOf(p *check.Pass) (h HeldRequests, ok bool) {
	l, seen := LedgerOf(p)
	if h.Requests, ok = RequestsOf(p); !ok || !seen || l.Window <= 0 {
		return h, false
	}
	h.Works = quantity.Of("threads that run, or wait with work at hand, mean", l.Working()/l.Window, quantity.Threads)
	h.Asks = AskingConnections(p)
	idle := h.InProgress.Number() - h.Works.Number() - h.Asks.Number()
	h.Share = quantity.Of("not worked on", max(0, idle), h.InProgress.Unit()).Per(h.InProgress).
		Named("share of the requests that are held, at least")
	return h, true
}

// Bounds for the share of a wait in the requests' time: less is not most of it, and more is not a wait of requests
// alone.
const (
	leastOwned = 0.5
	mostOwned  = 1.25 // both are means of a few samples
)

// Share returns the share of the requests' time that is a wait of so many threads or connections, on average. owned
// reports whether the wait belongs to the requests: a wait of more threads than there are requests is not, or not
// only, for them.
func (r Requests) Share(waiting quantity.Value) (share quantity.Value, owned bool) {
	share = waiting.As(r.InProgress.Unit()).Per(r.InProgress).Named("share of the time of requests")
	return share, share.Number() <= mostOwned
}

// Noticed makes a wait of so many threads or connections a warning if clients notice it: requests are slow
// ([Requests.Slow]), and most of their time is this wait; or connections wait to be accepted in every sample, and
// most of the threads with work are in this wait. It reports whether it did.
func Noticed(p *check.Pass, f *check.Finding, waiting quantity.Value, longest *check.Param) bool {
	if queues := NeverEmpty(p, leastLooks); len(queues) > 0 && mostOfWork(p, waiting) {
		fullest := slices.MaxFunc(queues, func(a, b QueueOf) int {
			return cmp.Compare(a.Queue.Number(), b.Queue.Number())
		})
		f.Severity = check.Warning
		f.Evidence = append(f.Evidence, fullest.Queue)
		f.Summary += "; meanwhile connections wait to be accepted"
		return true
	}
	r, ok := RequestsOf(p)
	if !ok || !r.Slow(p.Param(longest)) {
		return false
	}
	share, owned := r.Share(waiting)
	if !owned || share.Number() < leastOwned {
		return false
	}
	f.Severity = check.Warning
	f.Evidence = append(f.Evidence, r.InProgress, r.Each, share)
	if r.Each.Below(p.Param(longest)) {
		f.Evidence = append(f.Evidence, r.Late)
	}
	f.Summary += "; " + r.slowText(p.Param(longest))
	return true
}

// AllOfRequests reports whether there are no more threads with work than requests in progress: then no thread that
// counts as having work waits for work.
func AllOfRequests(p *check.Pass, w *Waiting) bool {
	r, ok := RequestsOf(p)
	if !ok {
		return false
	}
	_, owned := r.Share(w.WithWork())
	return owned
}

// accepted returns how many of the requests in progress do not wait to be accepted, on average.
func (r Requests) accepted(p *check.Pass) float64 {
	n := r.InProgress.Number()
	for _, listener := range p.Info(metric.TargetListenPorts) {
		n -= series.Mean(series.Values(Together(p.Gauge(metric.ListenerQueue, "listener", listener.Label("listener")))))
	}
	return max(0, n)
}

// A QueueOf is the mean length of the accept queue at an address of the target.
type QueueOf struct {
	Address string
	Queue   quantity.Value
}

// NeverEmpty returns the accept queues of the target that had connections in every sample, of at least so many.
func NeverEmpty(p *check.Pass, least float64) (list []QueueOf) {
	queues := map[string][]recording.GaugeSeries{}
	for _, listener := range p.Info(metric.TargetListenPorts) {
		address := listener.Label("listener")
		queues[address] = p.Gauge(metric.ListenerQueue, "listener", address)
	}
	for _, s := range p.Gauge(metric.UnixQueue) {
		queues[s.Label("listener")] = append(queues[s.Label("listener")], s)
	}
	for _, address := range slices.Sorted(maps.Keys(queues)) {
		looks := series.Values(Together(queues[address]))
		if float64(len(looks)) < least || slices.Min(looks) == 0 {
			continue
		}
		list = append(list, QueueOf{address, quantity.Of("connections to "+address+" that wait to be accepted, mean",
			series.Mean(looks), quantity.Connections)})
	}
	return list
}

// leastLooks is the number of samples of connections, a second apart, that are no burst.
const leastLooks = 5

// mostOfWork reports whether so many threads are at least half of the threads with work.
func mostOfWork(p *check.Pass, waiting quantity.Value) bool {
	l, ok := LedgerOf(p)
	return ok && l.Window > 0 && waiting.Number() >= leastOwned*l.Working()/l.Window
}
