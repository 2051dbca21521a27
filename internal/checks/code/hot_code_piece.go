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
		Why: "of the time in which threads are not idle: when they wait for longer than they compute, what they wait " +
			"for is fixed first",
	}
)

// A hotWork is what the threads of a server compute between two waits, or a child for its parent.
type hotWork struct {
	piece    quantity.Value // CPU time
	parent   bool           // it is a child's, and its parent waits
	computes quantity.Value // share of the program's time that is not idle
	evidence []quantity.Value
}

// text says what waits for it.
func (w *hotWork) text() string {
	if w.parent {
		return fmt.Sprintf("a child computes for %s, while its parent waits", w.piece.Text())
	}
	return fmt.Sprintf("a piece of work computes for %s, while who asked for it waits", w.piece.Text())
}

// hotWorkOf finds what a piece of work computes in this code, where somebody waits for it: of a server that is not
// full, or of children. Of a server it is the larger of two numbers, each of which is that or less.
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

// hotByWaits takes the CPU time of the threads that run the code, over their waits: a request is one wait at least.
// Where work queues up, a thread does 1 / (1 - its use) pieces in a row on average: the busy period of a queue
// (L. Kleinrock, Queueing Systems I, 5.8). Threads that are full say nothing.
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

// hotByRequests takes the CPU time in the code over the requests, of which there are at most so many. Go's scheduler
// waits far more often than for requests, and so do the threads of an interpreter for each other.
func hotByRequests(p *check.Pass, in map[hotKey]float64) (w *hotWork, ok bool) {
	requests := evidence.RequestsAtMost(p)
	rate := requests.Per(quantity.Of("window", p.Meta.Duration, quantity.Seconds)).Named("requests a second, at most")
	if p.Meta.Duration <= 0 || rate.Number() < p.Param(evidence.ParamAsked).Number() {
		return nil, false
	}
	seconds := 0.0
	for _, n := range slices.Sorted(maps.Values(in)) { // in one order: the sum is the same in each run
		seconds += n
	}
	each := quantity.Of("CPU time in it", seconds, quantity.Seconds).Per(requests).As(quantity.Seconds).
		Named("CPU time of a request, at least")
	return &hotWork{piece: each, evidence: []quantity.Value{each, rate}}, true
}

// hotByChildren takes the CPU time of the children that ended and were waited for, over how many there are at most: as
// many as the thread that waits for them has waits, and as the host began. A parent whose child goes on, as that of a
// server under tini, has no such time.
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

// hotParent gives the target's thread that waits for children for longest, and how long, in seconds.
func hotParent(p *check.Pass) (pid string, tid int, waited float64) {
	for _, s := range p.Gauge(metric.ThreadStateTime, "for", "child") {
		if n, err := strconv.Atoi(s.Label("tid")); err == nil && s.Last() > waited {
			pid, tid, waited = s.Label("pid"), n, s.Last()
		}
	}
	return pid, tid, waited
}

// hotComputing is how much of the time in which the target's threads are not idle they compute, or are ready to.
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

// hotBusiest gives the threads that the samples are of, without those that do next to nothing.
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
