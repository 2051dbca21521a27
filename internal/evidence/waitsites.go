package evidence

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A WaitSite is a method of the application in which threads wait for one kind of thing.
type WaitSite struct {
	Culprit
	Wait   hotcode.Wait
	Frame  string // the call that waits, such as HikariPool.getConnection
	Pool   string // of the waiting threads
	Holder string // the method in which others hold what these wait for
	Count  int64  // samples
	Inside int64  // nanoseconds of threads in the same method without this wait
	Hits   []Hit  // of the waiting threads

	callers []string // methods of the application that call it, the nearest first
}

// Share returns the share of the time in a site's method, or in its holders' method, that is spent waiting.
func (s *WaitSite) Share() quantity.Value {
	return quantity.Of("", float64(s.Value)/1e9, quantity.Seconds).
		Per(quantity.Of("", float64(s.Value+s.Inside)/1e9, quantity.Seconds))
}

// callers returns the methods of the application that call the frame at an index of a stack.
func (w *Waiting) callers(s stacks.Sample, at int) (out []string) {
	for _, f := range s.Stack[at+1:] {
		if w.Owners.Of(w.Frames[f]) == hotcode.Application {
			out = append(out, w.nameOf(f))
		}
	}
	return out
}

// callName returns the name of the call that waits; for calls that Go's compiler inserts, what the source says.
func callName(f stacks.Frame) string {
	for prefix, name := range map[string]string{
		"runtime.chansend": "a send to a channel", "runtime.chanrecv": "a receive from a channel",
		"runtime.selectgo": "a select", "internal/poll.runtime_pollWait": "the network",
	} {
		if strings.HasPrefix(f.Name, prefix) {
			return name
		}
	}
	return ShortName(f)
}

// mostHeld is the share of the time of goroutines past a channel from which on they count as holding what others wait
// for there: they work, or wait for something other than each other.
const mostHeld = 0.5

// Leases returns the sites where threads wait for something that others in the same method hold: a pooled object, or
// a permit. A queue often serves as a pool, and in Go a channel: a send or receive is a lease if others that got past
// it, in the same function or in its caller, do their work there, and a queue if they wait for the result.
//
// If nothing in its stack says that a thread has a request in hand, a lease looks like a worker that waits for work.
// Then there must be as many requests as threads that wait there and threads that are past it.
func (w *Waiting) Leases(p *check.Pass) []*WaitSite {
	out := w.Sites(hotcode.ForPool)
	kinds := []hotcode.Wait{hotcode.ForQueue, hotcode.ForItem, hotcode.ForWakeUp}
	if w.IsJava() {
		kinds = []hotcode.Wait{hotcode.ForItem} // Java's channels are queues
	}
	for _, wait := range kinds {
		sites := slices.DeleteFunc(w.Sites(wait), func(s *WaitSite) bool { return !w.isLease(s) })
		if len(sites) == 0 {
			sites = slices.DeleteFunc(w.sites(wait, w.Waits.Blocked), func(s *WaitSite) bool {
				return !w.isLease(s) || !w.AreRequests(p, s) || w.readNext(p, s) || w.readByOthers(s)
			})
		}
		out = append(out, sites...)
	}
	slices.SortStableFunc(out, func(a, b *WaitSite) int { return cmp.Compare(b.Value, a.Value) })
	return out
}

// sameNumber is by which share the requests not held past a site may differ from the threads that wait there: both
// are means of some ten samples.
const sameNumber = 0.2

// AreRequests reports whether the threads that wait at a site have a request each: the accepted requests without an
// answer are as many as the threads that wait there and those past it. Workers without work would be more.
func (w *Waiting) AreRequests(p *check.Pass, site *WaitSite) bool {
	r, ok := RequestsOf(p)
	wait, past := w.Threads("", site.Value).Number(), w.Threads("", site.Inside).Number()
	return ok && math.Abs(r.accepted(p)-past-wait) <= sameNumber*wait
}

// mostWait is the share of the requests waiting at a site from which on this is why no more are accepted.
const mostWait = 0.5

// KeepsOut reports whether so many accepted requests wait at a site that workers accept no more. Goroutines accept
// regardless.
func (w *Waiting) KeepsOut(site *WaitSite) bool {
	return !w.InGo() && site.Share().Number() >= mostWait
}

// readNext reports whether most threads past a site read from the network although the target asks nobody: they wait
// for the next request of their own client, and hold nothing that others wait for.
func (w *Waiting) readNext(p *check.Pass, site *WaitSite) bool {
	in := w.Set(func(f stacks.Frame) bool { return hotcode.ReadableName(f) == site.Holder })
	reads := w.Filter(func(s stacks.Sample) bool {
		wait, _ := w.Waits.Of(s)
		return wait == hotcode.ForNetwork && s.Innermost(in) >= 0
	}).Total().Value
	return 2*reads > site.Inside && w.Threads("", reads).Number() > 2*AskingConnections(p).Number()
}

// readByOthers reports whether about as many other threads read from the network as wait at a site: then each
// connection has one thread that reads and one that writes, as in NATS, and the latter waits there for something to
// send.
func (w *Waiting) readByOthers(site *WaitSite) bool {
	in := w.Set(func(f stacks.Frame) bool { return hotcode.ReadableName(f) == site.Holder })
	reads := w.Filter(func(s stacks.Sample) bool {
		wait, _ := w.Waits.Blocked(s)
		return wait == hotcode.ForNetwork && s.Innermost(in) < 0
	}).Total().Value
	return float64(reads) >= (1-sameNumber)*float64(site.Value)
}

// leastHolders is how many goroutines hold what others wait to receive, if it is lent: while one waits, all of it is
// lent, so one goroutine holds it at any moment. Samples of a running goroutine may miss half of that. Fewer mean a
// channel that somebody else sends to, such as a timer.
const leastHolders = 0.5

// isLease reports whether a site at a channel is a lease, and if so notes its holders' method.
func (w *Waiting) isLease(site *WaitSite) bool {
	for _, method := range append([]string{site.Method}, site.callers[:min(len(site.callers), 2)]...) {
		inside, held := w.heldIn(method, site.Wait)
		lent := site.Wait != hotcode.ForItem || w.IsJava() || w.Threads("", inside).Number() >= leastHolders
		if lent && held > 0 && float64(held) >= mostHeld*float64(inside) {
			site.Holder, site.Inside = method, inside
			return true
		}
	}
	return false
}

// heldIn returns the time of threads in a method that are not in the given wait, and the part of it in which they do
// not wait for each other.
func (w *Waiting) heldIn(method string, except hotcode.Wait) (inside, held int64) {
	in := w.Set(func(f stacks.Frame) bool { return hotcode.ReadableName(f) == method })
	for _, s := range w.Samples {
		wait, _ := w.Waits.Of(s)
		if s.Innermost(in) < 0 || wait == except || wait == hotcode.Idle {
			continue
		}
		inside += s.Value
		switch wait {
		case hotcode.ForQueue, hotcode.ForItem, hotcode.ForWakeUp, hotcode.ForThreads, hotcode.ForFuture:
		default:
			held += s.Value
		}
	}
	return inside, held
}

// Queues returns the sites where threads wait for room in a queue.
func (w *Waiting) Queues() []*WaitSite {
	out := w.Sites(hotcode.ForQueue)
	if !w.IsJava() {
		out = slices.DeleteFunc(out, w.isLease)
	}
	return out
}

// Sites groups the samples that wait for one kind of thing by the method of the application, the most time first.
func (w *Waiting) Sites(wait hotcode.Wait) []*WaitSite { return w.sites(wait, w.Waits.Of) }

// nameOf returns the name of a frame, as its author knows it.
func (w *Waiting) nameOf(frame int) string { return hotcode.ReadableName(w.Frames[frame]) }

func (w *Waiting) sites(wait hotcode.Wait, of func(stacks.Sample) (hotcode.Wait, int)) []*WaitSite {
	var hits []Hit
	first := map[string]*WaitSite{}
	for _, s := range w.Samples {
		is, at := of(s)
		if is != wait {
			continue
		}
		h := Hit{Sample: s, At: at}
		hits = append(hits, h)
		place := w.Owners.Nearest(w.Profile, s.Stack, h.At, nil)
		name := w.nameOf(s.Stack[place.At])
		if first[name] == nil {
			first[name] = &WaitSite{
				Wait: wait, Frame: callName(w.Frames[s.Stack[h.At]]), Pool: w.Pool(s), callers: w.callers(s, place.At),
			}
		}
		first[name].Count += s.Count
		first[name].Hits = append(first[name].Hits, h)
	}
	var out []*WaitSite
	for _, c := range Culprits(w.Profile, w.Owners, hits, nil) {
		site := first[c.Method]
		site.Culprit, site.Holder = *c, c.Method
		site.Inside, _ = w.Inside(c.Method, wait)
		out = append(out, site)
	}
	return out
}

// Inside returns the time of threads in a method that do not wait for the given thing, and what they do, the most
// first: if threads wait for a lock or a connection in a method, others in it hold one.
func (w *Waiting) Inside(method string, except hotcode.Wait) (total int64, parts []string) {
	in := w.Set(func(f stacks.Frame) bool { return hotcode.ReadableName(f) == method })
	sums := map[string]int64{}
	for _, s := range w.Samples {
		at := s.Innermost(in)
		wait, _ := w.Waits.Of(s)
		if at < 0 || wait == except || wait == hotcode.Idle {
			continue
		}
		what := "run"
		if wait != hotcode.NotWaiting {
			what = "wait for " + string(wait)
		}
		if at > 0 {
			what += " in " + ShortName(w.Frames[s.Stack[at-1]])
		}
		sums[what] += s.Value
		total += s.Value
	}
	var names []string
	for n := range sums {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]),
			strings.Compare(a, b))
	})
	for _, n := range names[:min(len(names), NamedCulprits)] {
		parts = append(parts, fmt.Sprintf("%s %s", quantity.Of("", float64(sums[n])/float64(total), quantity.Ratio).
			Text(), n))
	}
	return total, parts
}

// OthersWithWork says what threads with work but no request do: if any thread produces what those with a request wait
// for, it is one of them.
func (w *Waiting) OthersWithWork() (out []string) {
	sums := stacks.Group(w.Profile, func(s stacks.Sample) string {
		wait, at := w.Waits.Of(s)
		if request, _ := w.Waits.Serves(s); request || wait == hotcode.Idle || len(s.Stack) == 0 {
			return ""
		}
		what := "running"
		if wait != hotcode.NotWaiting {
			what = "waiting for " + string(wait)
			if place := w.Owners.Nearest(w.Profile, s.Stack, at, nil); place.Owner == hotcode.Application {
				what += " in " + w.nameOf(s.Stack[place.At])
			}
		}
		return w.Pool(s) + " (" + what + ")"
	})
	for _, g := range sums {
		if threads := w.Threads("", g.Value); g.Key != "" && len(out) < NamedCulprits &&
			threads.Number() >= leastWithWork {
			out = append(out, fmt.Sprintf("%s of %s", threads.Text(), g.Key))
		}
	}
	return out
}

// Standing says what most threads that are not idle wait for, and in which function of the application: "wait for a
// sleep in Shop::slow"; empty if that is less than half of their time.
func (w *Waiting) Standing() string {
	const most = 0.5
	all := int64(0)
	groups := stacks.Group(w.Profile, func(s stacks.Sample) string {
		wait, at := w.Waits.Of(s)
		if wait == hotcode.Idle || len(s.Stack) == 0 {
			return ""
		}
		all += s.Value
		place := w.Owners.Nearest(w.Profile, s.Stack, at, nil)
		if wait == hotcode.NotWaiting || place.Owner != hotcode.Application {
			return ""
		}
		return "wait for " + string(wait) + " in " + w.nameOf(s.Stack[place.At])
	})
	for _, g := range groups {
		if g.Key != "" && float64(g.Value) >= most*float64(all) {
			return g.Key
		}
	}
	return ""
}

// leastWithWork is how many threads must do one thing, on average, to be worth mentioning.
const leastWithWork = 0.1

// WithoutShare removes the share from what [Waiting.Inside] says: "wait for a sleep in Dao.find" from "96 % wait for
// …".
func WithoutShare(part string) string {
	_, what, _ := strings.Cut(part, " % ")
	return what
}
