package ebpf

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/prometheus/procfs"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func softirqCollector(l *Loader) collect.Collector {
	return collect.Collector{
		Name: "bpf-softirq",
		Doc:  "Time of each CPU in softirqs by vector, and in hardware interrupts by line.",
		Overhead: "measured by the kernel in parts of the window and recorded as bpf_program_seconds_total: 0.2 µs a " +
			"softirq; where a " +
			"CPU has more than 2,000 a second they are timed for a twentieth of the time",
		Provides: append(Costs(), interruptMetrics()...),
		Requires: requires(),
		Since:    tracepointsWithTypes(),
		Open: func(ctx context.Context, env collect.Env) (collect.Source, error) {
			return openSoftirq(ctx, l, env)
		},
	}
}

func interruptMetrics() []metric.Metric {
	return []metric.Metric{
		metric.SoftirqsTimed, metric.SoftirqSeconds, metric.SoftirqDurations, metric.SoftirqTimedSeconds,
		metric.HardirqRuns, metric.HardirqSeconds,
	}
}

// vectorNames are the softirqs as in /proc/softirqs (kernel/softirq.c), at their index in softirq.bpf.c.
var vectorNames = [...]string{
	"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
	"RCU",
}

// x86Vectors are the interrupts without a line, as in /proc/interrupts (arch/x86/kernel/irq.c), and their index in
// softirq.bpf.c. CAL covers both kinds of function calls.
var x86Vectors = [...]struct {
	name    string
	indices []uint32
}{{"LOC", []uint32{16}}, {"RES", []uint32{17}}, {"CAL", []uint32{18, 19}}, {"IWI", []uint32{20}}}

// softirq is the source of bpf-softirq.
type softirq struct {
	set   *set
	proc  procfs.FS
	turns turns
	times softirqTimes
}

func openSoftirq(ctx context.Context, l *Loader, env collect.Env) (collect.Source, error) {
	unchanged := func(*cilium.CollectionSpec, *btf.Spec) error { return nil }
	proc, err := procfs.NewFS(env.Host.Proc)
	if err != nil {
		return nil, err
	}
	s := &softirq{proc: proc}
	s.set, err = l.open(ctx, bpf.LoadSoftirq, unchanged,
		bpf.SoftirqProgLocalTimerIn, bpf.SoftirqProgLocalTimerOut, bpf.SoftirqProgRescheduleIn,
		bpf.SoftirqProgRescheduleOut,
		bpf.SoftirqProgCallFunctionIn, bpf.SoftirqProgCallFunctionOut, bpf.SoftirqProgCallFunctionSingleIn,
		bpf.SoftirqProgCallFunctionSingleOut, bpf.SoftirqProgIrqWorkIn, bpf.SoftirqProgIrqWorkOut)
	if err != nil {
		return nil, err
	}
	if err := s.startTurns(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close unloads the programs.
func (s *softirq) Close() error {
	s.turns.close()
	return s.set.Close()
}

// Sample appends the times since the programs were loaded.
func (s *softirq) Sample(_ context.Context, a *recording.Appender) error {
	if err := s.appendSoftirqs(a); err != nil {
		return err
	}
	if err := s.appendDurations(a); err != nil {
		return err
	}
	if err := s.set.appendCost(a); err != nil {
		return err
	}
	for _, v := range x86Vectors {
		var sum []bpf.SoftirqSpent
		for _, i := range v.indices {
			spent, err := perCPU(s.set.collection.Maps[bpf.SoftirqMapVectors], i)
			if err != nil {
				return err
			}
			sum = addSpent(sum, spent)
		}
		appendSpent(a, v.name, sum)
	}
	a.None(interruptMetrics()...)
	return s.sampleLines(a)
}

// softirqBuckets is BUCKETS of softirq.bpf.c, and softirqBound is the upper bound of the first; each next bound is
// four times as large.
const (
	softirqBuckets = 12
	softirqBound   = 1024 * time.Nanosecond
)

// appendDurations appends the timed softirqs of all CPUs by how long they took.
func (s *softirq) appendDurations(a *recording.Appender) error {
	m := s.set.collection.Maps[bpf.SoftirqMapDurations]
	if n := len(vectorNames) * softirqBuckets; int(m.MaxEntries()) != n {
		return fmt.Errorf("map %s has %d entries, not %d", m, m.MaxEntries(), n)
	}
	for vector, name := range vectorNames {
		seconds := s.timed(vector)
		if seconds == 0 {
			continue
		}
		a.Counter(metric.SoftirqTimedSeconds, seconds, name)
		for i := range softirqBuckets {
			var cpus []uint64
			if err := m.Lookup(uint32(vector*softirqBuckets+i), &cpus); err != nil {
				return fmt.Errorf("read how long softirqs took: %w", err)
			}
			sum := uint64(0)
			for _, n := range cpus {
				sum += n
			}
			if sum > 0 {
				a.Counter(metric.SoftirqDurations, float64(sum), name, boundFrom(softirqBound, i, softirqBuckets))
			}
		}
	}
	return nil
}

func (s *softirq) sampleLines(a *recording.Appender) error {
	var irq uint32
	var spent []bpf.SoftirqSpent
	it := s.set.collection.Maps[bpf.SoftirqMapLines].Iterate()
	for it.Next(&irq, &spent) {
		appendSpent(a, strconv.FormatUint(uint64(irq), 10), spent)
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read the interrupt lines: %w", err)
	}
	_, err := s.set.appendLost(a, "interrupts of lines past the kernel's table")
	return err
}

func perCPU(m *cilium.Map, key uint32) (spent []bpf.SoftirqSpent, err error) {
	if err := m.Lookup(key, &spent); err != nil {
		return nil, fmt.Errorf("read map %s: %w", m, err)
	}
	return spent, nil
}

func addSpent(sum, more []bpf.SoftirqSpent) []bpf.SoftirqSpent {
	if sum == nil {
		return more
	}
	for i := range sum {
		sum[i].Count += more[i].Count
		sum[i].Ns += more[i].Ns
	}
	return sum
}

func appendSpent(a *recording.Appender, irq string, spent []bpf.SoftirqSpent) {
	for cpu, n := range spent {
		if n.Count == 0 {
			continue // also for possible CPUs that are not present
		}
		a.Counter(metric.HardirqRuns, float64(n.Count), strconv.Itoa(cpu), irq)
		a.Counter(metric.HardirqSeconds, float64(n.Ns)*1e-9, strconv.Itoa(cpu), irq)
	}
}
