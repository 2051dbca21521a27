package ebpf

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// A busy server runs 100,000 softirqs a second, and two programs are called for each. So where a CPU has more than
// busySoftirqs a second, which cost 0.04 % of it, they are attached for softirqTurn of each second, which takes 0.7
// ms. /proc/softirqs counts the others, which are taken to last as long as those that were timed.
const (
	softirqTurn   = 50 * time.Millisecond
	turnEvery     = time.Second
	busySoftirqs  = 2000.0
	enoughToTrust = 100 // softirqs whose mean stands for that of others
)

// softirqTimes is what the programs of softirqs saw.
type softirqTimes struct {
	rate
	number  uint64                          // of the turn
	missed  bool                            // the programs were detached since the softirqs were last read
	vectors [len(vectorNames)][]softirqTime // by CPU
}

// softirqTime is the time of the softirqs of a vector on a CPU.
type softirqTime struct {
	timed   bpf.SoftirqSpent // by the programs
	recent  bpf.SoftirqSpent // what of it is not in the mean yet
	mean    float64          // ns, of the latest enoughToTrust or more; 0: not known yet
	ran     uint64           // number of all, by /proc/softirqs
	untimed uint64           // those of them whose time is not known
	ns      float64          // of all others
}

// add takes what the programs and the kernel counted until now. missed says that the programs were detached since the
// last time.
func (v *softirqTime) add(timed bpf.SoftirqSpent, ran uint64, missed bool) {
	count, ns := timed.Count-v.timed.Count, timed.Ns-v.timed.Ns
	v.ns += float64(ns)
	v.recent.Count += count
	v.recent.Ns += ns
	if v.recent.Count >= enoughToTrust || v.mean == 0 && v.recent.Count > 0 {
		v.mean = float64(v.recent.Ns) / float64(v.recent.Count)
		v.recent = bpf.SoftirqSpent{}
	}
	if all := ran - v.ran; missed && all > count {
		v.untimed += all - count
	}
	if v.mean > 0 {
		v.ns += float64(v.untimed) * v.mean
		v.untimed = 0
	}
	v.timed, v.ran = timed, ran
}

// startTurns begins the first turn, with the programs attached.
func (s *softirq) startTurns() error {
	s.times.limit = busySoftirqs
	s.turns.length, s.turns.every = softirqTurn, turnEvery
	s.turns.attach, s.turns.detach, s.turns.busy = s.beginTurn, s.endTurn, s.busy
	if err := s.read(); err != nil {
		return err
	}
	s.times.mark(s.times.timedByCPU())
	s.turns.start()
	return nil
}

func (s *softirq) busy() (bool, error) {
	if err := s.read(); err != nil {
		return false, err
	}
	t := &s.times
	timed := t.timedByCPU()
	busy := t.isBusy(timed)
	t.mark(timed)
	return busy, nil
}

func (s *softirq) endTurn() error {
	s.times.missed = true
	return errors.Join(
		s.set.detachProgram(bpf.SoftirqProgSoftirqIn), s.set.detachProgram(bpf.SoftirqProgSoftirqOut))
}

func (s *softirq) beginTurn() error {
	t := &s.times
	t.number++
	if err := s.set.collection.Maps[".bss"].Put(uint32(0), t.number); err != nil {
		return fmt.Errorf("begin a turn: %w", err)
	}
	err := errors.Join(s.set.attachProgram(bpf.SoftirqProgSoftirqIn), s.set.attachProgram(bpf.SoftirqProgSoftirqOut))
	if err != nil {
		return err
	}
	if err := s.read(); err != nil {
		return err
	}
	t.missed = false
	t.mark(t.timedByCPU())
	return nil
}

func (t *softirqTimes) timedByCPU() []uint64 {
	counts := make([]uint64, len(t.vectors[0]))
	for _, cpus := range t.vectors {
		for cpu := range cpus {
			counts[cpu] += cpus[cpu].timed.Count
		}
	}
	return counts
}

// read adds up what ran since it was called last.
func (s *softirq) read() error {
	t := &s.times
	ran, err := s.proc.Softirqs()
	if err != nil {
		return fmt.Errorf("read the number of softirqs: %w", err)
	}
	counts := [len(vectorNames)][]uint64{
		ran.Hi, ran.Timer, ran.NetTx, ran.NetRx, ran.Block, ran.IRQPoll, ran.Tasklet, ran.Sched, ran.HRTimer, ran.RCU,
	}
	for i := range t.vectors {
		timed, err := perCPU(s.set.collection.Maps[bpf.SoftirqMapVectors], uint32(i))
		if err != nil {
			return err
		}
		if t.vectors[i] == nil {
			t.vectors[i] = make([]softirqTime, len(timed))
		}
		for cpu := range min(len(timed), len(counts[i])) { // /proc/softirqs has a column for each possible CPU, too
			t.vectors[i][cpu].add(timed[cpu], counts[i][cpu], t.missed)
		}
	}
	return nil
}

// timed returns how many seconds the timed softirqs of a vector took.
func (s *softirq) timed(vector int) float64 {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	ns := uint64(0)
	for _, v := range s.times.vectors[vector] {
		ns += v.timed.Ns
	}
	return float64(ns) * 1e-9
}

func (s *softirq) appendSoftirqs(a *recording.Appender) error {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	if err := errors.Join(s.turns.failed, s.read()); err != nil {
		return err
	}
	all := uint64(0)
	for i, cpus := range s.times.vectors {
		for cpu, v := range cpus {
			if v.timed.Count == 0 {
				continue // also for possible CPUs that are not present
			}
			a.Counter(metric.SoftirqsTimed, float64(v.timed.Count), strconv.Itoa(cpu), vectorNames[i])
			a.Counter(metric.SoftirqSeconds, v.ns*1e-9, strconv.Itoa(cpu), vectorNames[i])
			all += v.timed.Count
		}
	}
	return s.set.countRuns(all, bpf.SoftirqProgSoftirqIn, bpf.SoftirqProgSoftirqOut)
}
