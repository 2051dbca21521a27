package ebpf

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/host"
)

// A server that answers 120,000 requests a second on two CPUs lost 5 % of that to the programs, which are called twice
// a segment. So where a CPU gets more than busySegments a second, which cost 1.4 % of it, they are attached for
// exchangeTurn of each exchangeEvery. The kernel counts the segments that come in between (InSegs in /proc/net/snmp),
// and each is taken to have as many exchanges.
//
// So the number of exchanges is right, and their times are those of the turns. Beginning a turn takes 2 ms and
// interrupts each CPU, after which threads may move to other CPUs: beside one, pgbench's median was 43 µs, and 97 in
// all. So turns are for rates that only a benchmark reaches.
const (
	exchangeTurn  = time.Second / 8
	exchangeEvery = time.Second
	busySegments  = 40_000.0
)

// exchangeTimes is what the programs of exchanges saw, and what is derived from it.
type exchangeTimes struct {
	rate
	procs  []procfs.Proc // in the target's network namespace
	number uint32        // of the turn; odd while the programs are detached
	ends   map[bpf.ExchangesEnd]*endTimes
	came   float64 // segments to the namespace, as read last
	ofTurn float64 // those of the latest turn
}

// endTimes are the times of the exchanges with an endpoint.
type endTimes struct {
	read bpf.ExchangesTimes // as read last
	turn bpf.ExchangesTimes // in the latest turn
	sum  [exchangeBuckets]float64
	// atTimer counts those seen whose answer was sent when a timed wait had just ended.
	atTimer uint64
}

func (e *exchanges) startTurns(proc string, members []host.Process) error {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return err
	}
	t := &e.times
	t.limit, t.ends = busySegments, map[bpf.ExchangesEnd]*endTimes{}
	for _, m := range members {
		if p, err := fs.Proc(m.PID); err == nil { // else it has just ended
			t.procs = append(t.procs, p)
		}
	}
	t.came = t.segments()
	met, err := e.met()
	if err != nil {
		return err
	}
	t.mark(met)
	e.turns.length, e.turns.every = exchangeTurn, exchangeEvery
	e.turns.attach, e.turns.detach, e.turns.busy = e.beginTurn, e.endTurn, e.busy
	e.turns.start()
	return nil
}

// segments returns how many segments have come to the namespace until now, on all of its connections, the target's or
// not. Once no process in it runs any more, none come.
func (t *exchangeTimes) segments() float64 {
	for _, p := range t.procs {
		if s, err := p.Snmp(); err == nil && s.InSegs != nil {
			return *s.InSegs
		}
	}
	return t.came
}

func (e *exchanges) busy() (bool, error) {
	met, err := e.met()
	if err != nil {
		return false, err
	}
	busy := e.times.isBusy(met)
	e.times.mark(met)
	if !busy {
		e.times.forgetTurn()
	}
	return busy, nil
}

// met returns how many segments the programs were called for, by CPU.
func (e *exchanges) met() (cpus []uint64, err error) {
	if err := e.set.collection.Maps[bpf.ExchangesMapMet].Lookup(uint32(0), &cpus); err != nil {
		return nil, fmt.Errorf("read the number of segments: %w", err)
	}
	return cpus, nil
}

func (t *exchangeTimes) forgetTurn() {
	for _, end := range t.ends {
		end.turn = bpf.ExchangesTimes{}
	}
	t.ofTurn = 0
}

// beginTurn and endTurn read the segments and the programs' counts one after the other while the programs are
// attached: attaching and detaching them may take long where CPUs are full. What they count outside of the two
// readings is left out, as if nobody had seen it.
func (e *exchanges) beginTurn() error {
	err := errors.Join(e.nextTurn(),
		e.set.attachProgram(bpf.ExchangesProgReadSome), e.set.attachProgram(bpf.ExchangesProgArrive))
	if err != nil {
		return err
	}
	t := &e.times
	t.pass(true)
	err = e.count((*endTimes).leaveOut)
	t.forgetTurn()
	met, metErr := e.met()
	t.mark(met)
	return errors.Join(err, metErr)
}

func (e *exchanges) endTurn() error {
	err := e.read(false)
	for _, end := range e.times.ends {
		end.add(end.unfinished())
	}
	return errors.Join(err, e.set.detachProgram(bpf.ExchangesProgArrive),
		e.set.detachProgram(bpf.ExchangesProgReadSome), e.nextTurn(), e.count((*endTimes).leaveOut))
}

func (e *exchanges) nextTurn() error {
	e.times.number++
	if err := e.set.collection.Variables[bpf.ExchangesVarTurn].Set(e.times.number); err != nil {
		return fmt.Errorf("begin a turn: %w", err)
	}
	return nil
}

// read adds up what came since it was called last.
func (e *exchanges) read(detached bool) error {
	e.times.pass(detached)
	return e.count((*endTimes).count)
}

// pass accounts for the segments that came since it was called last. detached says that the programs were detached
// then.
func (t *exchangeTimes) pass(detached bool) {
	came := t.segments()
	more := max(0, came-t.came)
	t.came = came
	if !detached {
		t.ofTurn += more
		return
	}
	for _, end := range t.ends {
		end.add(end.begunInTurn() * more / max(1, t.ofTurn))
	}
}

// count passes to each endpoint what the programs counted there until now.
func (e *exchanges) count(to func(*endTimes, *bpf.ExchangesTimes)) error {
	ends := e.times.ends
	return readHash(e.set.collection.Maps[bpf.ExchangesMapEnds], func(end bpf.ExchangesEnd, now *bpf.ExchangesTimes) {
		if ends[end] == nil {
			ends[end] = &endTimes{}
		}
		to(ends[end], now)
	})
}

// count takes what the programs counted until now.
func (t *endTimes) count(now *bpf.ExchangesTimes) {
	t.turn.Begun += now.Begun - t.read.Begun
	t.atTimer += uint64(now.AtTimer - t.read.AtTimer)
	for i := range t.sum {
		more := now.Buckets[i] - t.read.Buckets[i]
		t.turn.Buckets[i] += more
		t.sum[i] += float64(more)
	}
	t.leaveOut(now)
}

// leaveOut begins to count from now on.
func (t *endTimes) leaveOut(now *bpf.ExchangesTimes) { t.read = *now }

// add adds exchanges that nobody saw, as if they took as long as those of the latest turn.
func (t *endTimes) add(exchanges float64) {
	seen := t.seenInTurn()
	if seen == 0 {
		return
	}
	for i, n := range t.turn.Buckets[:exchangeBuckets] {
		t.sum[i] += exchanges * float64(n) / seen
	}
}

func (t *endTimes) begunInTurn() float64 { return float64(t.turn.Begun) }

func (t *endTimes) seenInTurn() (sum float64) {
	for _, n := range t.turn.Buckets[:exchangeBuckets] {
		sum += float64(n)
	}
	return sum
}

// unfinished returns how many exchanges began in the turn but were not seen to end in it. At times more end than
// begin, such as the last one of a connection from before turns were needed.
func (t *endTimes) unfinished() float64 { return max(0, t.begunInTurn()-t.seenInTurn()) }
