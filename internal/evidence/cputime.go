package evidence

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// NamedProcesses is how many processes a finding names: past the third they rarely change what to do.
const NamedProcesses = 3

// worthNaming is the least CPU time for which a process is named, 5 ticks at 250 Hz: less is sampling noise.
const worthNaming = 0.02

type processTime struct {
	who     string // "4021 (java)"
	seconds float64
}

// busiestProcesses names the processes with the most CPU time in the modes (user, system), the busiest first.
func busiestProcesses(p *check.Pass, modes ...string) []processTime {
	byProcess := map[string]float64{}
	for _, s := range p.Counter(metric.ProcessCPU) {
		if n, ok := s.Increase(); ok && slices.Contains(modes, s.Label("mode")) {
			byProcess[PIDName(s.Label("pid"), s.Label("comm"))] += n
		}
	}
	var out []processTime
	for who, n := range byProcess {
		if n >= worthNaming {
			out = append(out, processTime{who, n})
		}
	}
	slices.SortFunc(out, func(a, b processTime) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), strings.Compare(a.who, b.who))
	})
	return out[:min(len(out), NamedProcesses)]
}

// BusiestNote returns the line of a finding that names the busiest processes; empty if none is known.
func BusiestNote(p *check.Pass, what string, modes ...string) []string {
	var parts []string
	for _, t := range busiestProcesses(p, modes...) {
		parts = append(parts, fmt.Sprintf("%s %s", t.who, quantity.Of("", t.seconds, quantity.Seconds).Text()))
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"most " + what + ": " + strings.Join(parts, ", ")}
}

// ParamSystemLevel is the kernel's share of the busy time from which on it is worth a finding.
var ParamSystemLevel = &check.Param{
	Name: "level", Default: 0.3, Unit: quantity.Ratio,
	Why: "programs that compute stay below it; servers that move data are above it in good health",
}

// ParamBusyEnough is shared by the checks that use shares of busy time.
var ParamBusyEnough = &check.Param{
	Name: "min-busy", Default: 1, Unit: quantity.Seconds,
	Why: "CPU time is sampled by the tick: at 250 ticks a second 1 s is 250 samples, and a share of 20 % is known " +
		"to 2.5 points",
}

// A CPUTime is what one CPU, or all together, did in the window: seconds by the mode names of /proc/stat.
//
// guest is included in user already (kernel/sched/cputime.c account_guest_time) and not counted twice. steal is time
// the hypervisor gave to others: part of the wall time, but not work done here. Idle time is measured from context
// switch to context switch (kernel/time/tick-sched.c); work is counted by ticks, which miss threads that run between
// two of them.
type CPUTime struct {
	ID    string // "1"; empty for all CPUs
	modes map[string]float64
	wall  float64 // seconds between the first reading and the last, of all CPUs together
}

// CPUTimes returns every CPU that was read at least twice, in order of number, and their sum.
func CPUTimes(p *check.Pass) (each []CPUTime, all CPUTime, err error) {
	byID := map[string]CPUTime{}
	all = CPUTime{modes: map[string]float64{}}
	for _, s := range p.Counter(metric.CPUSeconds) {
		n, ok := s.Increase()
		if !ok {
			continue
		}
		id := s.Label("cpu")
		if byID[id].modes == nil {
			byID[id] = CPUTime{ID: id, modes: map[string]float64{}}
		}
		t := byID[id]
		t.modes[s.Label("mode")] += n
		t.wall = max(t.wall, s.Span().Seconds())
		byID[id] = t
		all.modes[s.Label("mode")] += n
	}
	for _, t := range byID {
		if t.wall > 0 {
			each = append(each, t)
			all.wall += t.wall
		}
	}
	if len(each) == 0 {
		return nil, all, OneSample()
	}
	slices.SortFunc(each, func(a, b CPUTime) int {
		return cmp.Or(cmp.Compare(a.number(), b.number()), cmp.Compare(a.ID, b.ID))
	})
	return each, all, nil
}

// BusyShares returns the CPUs, their sum and the share of its busy time spent in a mode; ok is false if there was too
// little busy time for a share. It notes what it read.
func BusyShares(p *check.Pass, mode string) (each []CPUTime, all CPUTime, share quantity.Value, ok bool, err error) {
	each, all, err = CPUTimes(p)
	if err != nil {
		return nil, all, share, false, err
	}
	if all.Busy().Below(p.Param(ParamBusyEnough)) {
		p.Read(all.Busy())
		return each, all, share, false, nil
	}
	share = all.OfBusy(mode, mode)
	p.Read(share)
	return each, all, share, true, nil
}

func (t CPUTime) number() int {
	n, err := strconv.Atoi(t.ID)
	if err != nil {
		return -1 // sorts first; the id is still shown as recorded
	}
	return n
}

// Name returns "CPU 3", or "all CPUs" for the sum.
func (t CPUTime) Name() string {
	if t.ID == "" {
		return "all CPUs"
	}
	return "CPU " + t.ID
}

// Time returns the sum of modes.
func (t CPUTime) Time(label string, modes ...string) quantity.Value {
	n := 0.0
	for _, m := range modes {
		n += t.modes[m]
	}
	return quantity.Of(label, n, quantity.Seconds)
}

// Busy returns the time in which it ran something, as counted by ticks: the base for shares of modes.
func (t CPUTime) Busy() quantity.Value {
	return t.Time("busy time of "+t.Name(), "user", "nice", "system", "irq", "softirq")
}

// OfWall returns the share of the wall time spent in modes; the wall time is never zero in what CPUTimes returns.
func (t CPUTime) OfWall(what string, modes ...string) quantity.Value {
	return t.Time(what, modes...).Per(t.wallTime()).Named("%s, share of the time of %s", what, t.Name())
}

func (t CPUTime) wallTime() quantity.Value {
	return quantity.Of("wall time of "+t.Name(), t.wall, quantity.Seconds)
}

// OfBusy returns the share of the busy time spent in modes. Check first that there was busy time.
func (t CPUTime) OfBusy(what string, modes ...string) quantity.Value {
	return t.Time(what, modes...).Per(t.Busy()).Named("%s, share of the busy time of %s", what, t.Name())
}

// Load returns the share of the wall time that was neither idle nor steal time.
func (t CPUTime) Load() quantity.Value {
	away := t.Time("", "idle", "iowait", "steal").Number()
	busy := quantity.Of("time of "+t.Name()+" that was not idle", max(0, t.wall-away), quantity.Seconds)
	return busy.Per(t.wallTime()).Named("%s busy", t.Name())
}

// Softirq returns the share of the time in softirq.
func (t CPUTime) Softirq() quantity.Value { return t.OfWall("softirq", "softirq") }

// HottestSoftirq splits off the CPU with the largest softirq share of its time.
func HottestSoftirq(each []CPUTime) (hot CPUTime, others []CPUTime) {
	i := 0
	for j := range each {
		if each[j].Softirq().Above(each[i].Softirq()) {
			i = j
		}
	}
	return each[i], slices.Concat(each[:i], each[i+1:])
}

// MedianSoftirq returns the median share of time that CPUs spend in softirq.
func MedianSoftirq(cpus []CPUTime) quantity.Value {
	return MedianShare("softirq, median share of the other CPUs", cpus, CPUTime.Softirq)
}

// MedianShare returns the median of a share over CPUs.
func MedianShare(label string, cpus []CPUTime, share func(CPUTime) quantity.Value) quantity.Value {
	shares := make([]float64, 0, len(cpus))
	for _, t := range cpus {
		shares = append(shares, share(t).Number())
	}
	return quantity.Of(label, series.Median(shares), quantity.Ratio)
}

// CPUOf returns the CPU with an id.
func CPUOf(each []CPUTime, id string) (CPUTime, bool) {
	i := slices.IndexFunc(each, func(t CPUTime) bool { return t.ID == id })
	if i < 0 {
		return CPUTime{}, false
	}
	return each[i], true
}

// C2CCommand returns the command that records which cache lines CPUs take from each other.
func C2CCommand(p *check.Pass) check.Command {
	if pid := p.Meta.Target.PID; pid > 0 {
		return check.Commandf("perf c2c record -p %d -- sleep 10 && perf c2c report --stdio", pid)
	}
	return "perf c2c record -a -- sleep 10 && perf c2c report --stdio"
}

// ParamCPUTaken is the CPU use from which on a consumer takes its CPU time from the requests.
var ParamCPUTaken = &check.Param{
	Name: "cpu-used", Default: 0.8, Unit: quantity.Ratio,
	Why: "with a fifth of the CPUs idle, what else takes their time takes nothing from the requests",
}

// RunnableThreads returns the mean number of threads that ran or wanted to run. It subtracts the reader of
// /proc/stat, which runs while it reads.
func RunnableThreads(p *check.Pass) (quantity.Value, bool) {
	s, ok := First(p.Gauge(metric.ProcsRunning))
	if !ok {
		return quantity.Value{}, false
	}
	return quantity.Of("runnable threads, mean", max(0, s.Mean()-1), quantity.Threads), true
}

// RunnablePerCPU returns the length of the run queues, including running threads.
func RunnablePerCPU(p *check.Pass) (runnable, perCPU quantity.Value, ok bool) {
	runnable, ok = RunnableThreads(p)
	cpus, known := OnlineCPUs(p)
	if !ok || !known {
		return runnable, perCPU, false
	}
	perCPU = runnable.Per(cpus).As(ThreadsPerCPU).Named("run queue, with what runs")
	return runnable, perCPU, true
}

// ThreadsPerCPU is the unit of the length of run queues.
const ThreadsPerCPU = quantity.Unit("threads per CPU")
