package ebpf

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	cilium "github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// The kernel measures programs for measuredFor of each measuredEvery: it reads the clock twice for each run of any
// program, which on most CPUs takes longer than the run (measured: 95 ns, where an empty program takes 54). An
// interval as long as that between samples has as many of the runs that samples cause as any other. The first one
// begins when the programs are loaded.
const (
	measuredFor   = time.Second
	measuredEvery = 8 * time.Second
)

// A meter adds up what the programs of a set cost in the intervals in which the kernel measures them. It has a clock
// of its own: a set that is sampled once, at the end, would otherwise have all programs measured for all of the
// window.
type meter struct {
	mu        sync.Mutex
	stats     io.Closer // the kernel measures while it is open; nil: not now
	since     time.Time
	before    map[string]cost // as the interval began: others may have had the kernel measure before
	costs     map[string]cost // of the intervals that are over
	refused   error           // why the kernel does not measure: before Linux 5.8, or without CAP_SYS_ADMIN
	failed    error           // of a turn
	turn      *time.Timer     // begins or ends an interval; nil: the set has iterators only
	iterators bool            // they are measured as they run, and not at all in between
	closed    bool

	opened  time.Time
	counted map[string]cost // of all runs, for programs that count their runs themselves (countRuns)
}

// A cost is what one program cost.
type cost struct {
	runs          uint64
	run, measured time.Duration
}

// startMeter has the kernel measure from now on: in turns, or where there are only iterators, while they run.
func (s *set) startMeter(spec *cilium.CollectionSpec) error {
	m := &s.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened, m.counted = time.Now(), map[string]cost{}
	err := s.begin()
	if err != nil || m.refused != nil {
		return err
	}
	m.iterators = true
	for _, p := range spec.Programs {
		m.iterators = m.iterators && p.AttachType == cilium.AttachTraceIter
	}
	if m.iterators {
		err = m.stats.Close()
		m.stats = nil
		return err
	}
	m.turn = time.AfterFunc(measuredFor, s.takeTurn)
	return nil
}

// begin begins an interval.
func (s *set) begin() error {
	stats, err := cilium.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		s.meter.refused = err
		return nil //nolint:nilerr // appendCost says so, and the programs serve without
	}
	s.meter.stats, s.meter.since = stats, time.Now()
	s.meter.before, err = s.runs(nil)
	return err
}

// takeTurn ends the interval or begins the next.
func (s *set) takeTurn() {
	m := &s.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	if m.stats == nil {
		m.failed = errors.Join(m.failed, s.begin())
		m.turn.Reset(measuredFor)
		return
	}
	now, err := s.runs(nil)
	if err == nil {
		m.costs = m.until(now)
	}
	m.failed = errors.Join(m.failed, err, m.stats.Close())
	m.stats = nil
	m.turn.Reset(measuredEvery - measuredFor)
}

// measured calls fn, in which iterators run, and has the kernel measure them.
func (s *set) measured(fn func() error) error {
	if !s.meter.iterators {
		return fn() // measured in turns, or not at all
	}
	stats, err := cilium.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("measure an iterator: %w", err)
	}
	return errors.Join(fn(), stats.Close())
}

// close ends the measuring.
func (m *meter) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.turn != nil {
		m.turn.Stop()
	}
	if m.stats == nil {
		return nil
	}
	err := m.stats.Close()
	m.stats = nil
	return err
}

// runs reads what the kernel measured of each program until now, and appends the events that a program missed because
// it already ran on that CPU.
func (s *set) runs(a *recording.Appender) (map[string]cost, error) {
	out := map[string]cost{}
	for name, p := range s.collection.Programs {
		st, err := p.Stats()
		if err != nil {
			return nil, fmt.Errorf("statistics of program %s: %w", name, err)
		}
		if a != nil {
			a.Lost(int(st.RecursionMisses), "events missed while program "+name+" ran on the same CPU")
		}
		out[name] = cost{runs: st.RunCount, run: st.Runtime}
	}
	return out, nil
}

// appendCost records what the programs cost in the intervals that were measured.
func (s *set) appendCost(a *recording.Appender) error {
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	now, err := s.runs(a)
	if err = errors.Join(err, s.meter.failed); err != nil {
		return err
	}
	if s.meter.refused != nil {
		s.meter.appendMissing(a)
		return nil
	}
	for name, c := range s.meter.until(now) {
		if all, own := s.meter.counted[name]; own {
			c = all
		}
		a.Counter(metric.BPFRuns, float64(c.runs), name)
		a.Counter(metric.BPFSeconds, c.run.Seconds(), name)
		a.Counter(metric.BPFMeasured, c.measured.Seconds(), name)
	}
	return nil
}

// countRuns records how often programs that are not always attached have run by now: the runs that the kernel measured
// stand for all.
func (s *set) countRuns(runs uint64, programs ...string) error {
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	now, err := s.runs(nil)
	if err != nil {
		return err
	}
	measured := s.meter.until(now)
	for _, name := range programs {
		all, m := s.meter.counted[name], measured[name]
		if m.runs > 0 {
			all.run += time.Duration(float64(runs-all.runs) * float64(m.run) / float64(m.runs))
			all.runs = runs
		}
		all.measured = time.Since(s.meter.opened)
		s.meter.counted[name] = all
	}
	return nil
}

func (m *meter) appendMissing(a *recording.Appender) {
	status, remedy := recording.StatusUnsupported, "Linux 5.8 or newer"
	if errors.Is(m.refused, unix.EPERM) {
		status, remedy = recording.StatusDenied, "run as root or with CAP_SYS_ADMIN"
	}
	for _, c := range Costs() {
		a.Missing(c, status, fmt.Sprintf("the kernel does not measure what BPF programs cost: %v", m.refused), remedy)
	}
}

// until adds up the intervals that are over and the one under way.
func (m *meter) until(now map[string]cost) map[string]cost {
	sums := map[string]cost{}
	for name, c := range now {
		sum := m.costs[name]
		if m.stats != nil || m.iterators {
			sum.runs += c.runs - m.before[name].runs
			sum.run += c.run - m.before[name].run
			sum.measured += time.Since(m.since)
		}
		sums[name] = sum
	}
	return sums
}
