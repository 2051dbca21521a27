package code

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	hotPiece = &check.Param{
		Name: "piece", Default: 0.02, Unit: quantity.Seconds,
		Why: "of CPU time between two waits: five in turn are a tenth of a second, which a person notices " +
			"(J. Nielsen, Response Times: The 3 Important Limits)",
	}
	hotComputes = &check.Param{
		Name: "computes", Default: 0.5, Unit: quantity.Ratio,
		Why: "of the time in which threads are not idle: when they wait for longer than they compute, fix what they " +
			"wait for first",
	}
)

// A hotWork is what threads of a server compute between two waits, or what a child computes for its parent.
type hotWork struct {
	piece    quantity.Value // CPU time
	parent   bool           // it is a child's, and its parent waits
	computes quantity.Value // share of the program's time that is not idle
	evidence []quantity.Value
}

// text says who waits for the work.
func (w *hotWork) text() string {
	if w.parent {
		return fmt.Sprintf("a child computes for %s, while its parent waits", w.piece.Text())
	}
	return fmt.Sprintf("a piece of work computes for %s, while whoever asked waits", w.piece.Text())
}

// hotWorkOf finds how long a piece of work computes in this code while somebody waits for it: in a server that is not
// full, or in children. For a server it takes the larger of two lower bounds.
func hotWorkOf(p *check.Pass, t *hotTarget, in map[hotKey]float64) (w *hotWork, ok bool) {
	if t.used.Below(p.Param(evidence.ParamServed)) {
		return nil, false
	}
	if w, ok = hotServedWork(p, t, in); ok {
		return w, true
	}
	return hotByChildren(p)
}

func hotServedWork(p *check.Pass, t *hotTarget, in map[hotKey]float64) (w *hotWork, ok bool) {
	if serves, known := evidence.Serves(p); !known || !serves {
		return nil, false
	}
	computes, known := hotComputing(p)
	if !known || computes.Below(p.Param(hotComputes)) {
		return nil, false
	}
	w, ok = hotByWaits(p, t, in)
	if by, known := hotByRequests(p, in); known && (!ok || by.piece.Number() > w.piece.Number()) {
		w, ok = by, true
	}
	if !ok || w.piece.Below(p.Param(hotPiece)) {
		return nil, false
	}
	w.computes = computes
	w.evidence = append(w.evidence, computes)
	return w, true
}

// hotByWaits divides the CPU time of the threads that run the code by their waits: a request is at least one wait. If
// work queues up, a thread does 1 / (1 - its use) pieces in a row on average: the busy period of a queue (L.
// Kleinrock, Queueing Systems I, 5.8). Full threads say nothing.
func hotByWaits(p *check.Pass, t *hotTarget, in map[hotKey]float64) (w *hotWork, ok bool) {
	waits := evidence.BeganWaits(p)
	var ran, waited, threads float64
	for _, thread := range evidence.BusyThreads(p) {
		if thread.TID == 0 { // an interpreter: its threads are in the list
			continue
		}
		if sumOf(in, hotKeysOf(thread, t.cpu)) > 0 && thread.Seconds > 0 {
			ran += thread.Seconds
			waited += waits[thread.TID]
			threads++
		}
	}
	if waited == 0 || p.Meta.Duration <= 0 {
		return nil, false
	}
	time := quantity.Of("CPU time of the threads that run it", ran, quantity.Seconds)
	each := time.Per(quantity.Of("their waits", waited, quantity.Unit("waits"))).As(quantity.Seconds).
		Named("CPU time from one wait to the next")
	use := time.Per(quantity.Of("their time", threads*p.Meta.Duration, quantity.Seconds)).As(quantity.CPUs).
		Named("CPUs used by each of these threads")
	return &hotWork{
		piece:    quantity.Of("a piece of work", each.Number()*max(0, 1-use.Number()), quantity.Seconds),
		evidence: []quantity.Value{each, use},
	}, use.Below(p.Param(hotThread))
}

// hotByRequests divides the CPU time in the code by the largest number of requests there can be. Waits would not do:
// Go's scheduler waits far more often than for requests, and the threads of an interpreter wait for each other.
func hotByRequests(p *check.Pass, in map[hotKey]float64) (w *hotWork, ok bool) {
	requests := evidence.RequestsAtMost(p)
	rate := requests.Per(quantity.Of("window", p.Meta.Duration, quantity.Seconds)).Named("requests a second, at most")
	if p.Meta.Duration <= 0 || rate.Number() < p.Param(evidence.ParamAsked).Number() {
		return nil, false
	}
	seconds := 0.0
	for _, n := range slices.Sorted(maps.Values(in)) { // in a fixed order, so that each run has the same sum
		seconds += n
	}
	each := quantity.Of("CPU time in it", seconds, quantity.Seconds).Per(requests).As(quantity.Seconds).
		Named("CPU time of a request, at least")
	return &hotWork{piece: each, evidence: []quantity.Value{each, rate}}, true
}

// hotByChildren divides the CPU time of the children that ended and were waited for by the largest number there can
// be: the waits of the thread that waits for them, or what the host began, whichever is less. A parent whose child
// goes on, such as tini above a server, has no such time.
func hotByChildren(p *check.Pass) (w *hotWork, ok bool) {
	pid, tid, waited := hotParent(p)
	ended := 0.0
	for _, s := range p.Counter(metric.ProcessChildrenCPU, "pid", pid) {
		n, _ := s.Increase()
		ended += n
	}
	most, _, known := evidence.Rise("processes and threads begun on the host", p.Counter(metric.Forks))
	if waits := evidence.BeganWaits(p)[tid]; waits > 0 && (!known || waits < most.Number()) {
		most = quantity.Of("waits of their parent", waits, quantity.Unit("waits"))
	}
	if most.Number() <= 0 || waited == 0 || ended == 0 {
		return nil, false
	}
	cpu := quantity.Of("CPU time of children that ended", ended, quantity.Seconds)
	w = &hotWork{
		parent: true,
		piece:  cpu.Per(most).As(quantity.Seconds).Named("CPU time of a child, at least"),
		computes: cpu.Per(quantity.Of("their parent waits for a child", waited, quantity.Seconds)).
			Named("of the time in which the parent waits for a child they compute"),
	}
	w.evidence = []quantity.Value{w.piece, w.computes}
	return w, !w.piece.Below(p.Param(hotPiece)) && !w.computes.Below(p.Param(hotComputes))
}

// hotParent returns the thread of the target that waits longest for children, and how long in seconds.
func hotParent(p *check.Pass) (pid string, tid int, waited float64) {
	for _, s := range p.Gauge(metric.ThreadStateTime, "for", "child") {
		if n, err := strconv.Atoi(s.Label("tid")); err == nil && s.Last() > waited {
			pid, tid, waited = s.Label("pid"), n, s.Last()
		}
	}
	return pid, tid, waited
}

// hotComputing is the time in which the target's threads compute, or are ready to, as a share of the time in which
// they are not idle.
func hotComputing(p *check.Pass) (v quantity.Value, known bool) {
	l, ok := evidence.LedgerOf(p)
	if !ok {
		return v, false
	}
	worked := l.Working()
	return quantity.Of("threads compute", l.Computing(), quantity.Seconds).
		Per(quantity.Of("threads are not idle", worked, quantity.Seconds)).
		Named("of the time in which threads are not idle they compute"), worked > 0
}

// hotBusiest returns the threads in the samples, without those that do next to nothing.
func hotBusiest(t *hotTarget) map[hotKey]float64 {
	const little = 0.01 // of the samples
	all := hotByThread(t.cpu, t.cpu.Samples, nil)
	for key, n := range all {
		if n < little*t.cpu.Sampled() {
			delete(all, key)
		}
	}
	return all
}
