package evidence

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A BusyThread is the CPU time in the window of one of the target's threads, or of an interpreter that runs one of
// its threads at a time.
type BusyThread struct {
	PID, TID int // TID is 0 for an interpreter
	Comm     string
	Threads  []int // ids; several for an interpreter
	Seconds  float64
	Waited   float64        // seconds ready to run without a CPU
	Use      quantity.Value // CPUs
	Wants    quantity.Value // CPUs, including those it waited for
}

// Name returns 4021 (nginx).
func (t BusyThread) Name() string {
	if t.TID == 0 {
		return fmt.Sprintf("%d (%s)", t.PID, t.Comm)
	}
	return fmt.Sprintf("%d (%s)", t.TID, t.Comm)
}

// Kind returns thread or interpreter.
func (t BusyThread) Kind() string {
	if t.TID == 0 {
		return "interpreter"
	}
	return "thread"
}

// FullText says that it has no CPU time left.
func (t BusyThread) FullText() string {
	if t.TID == 0 {
		return "the interpreter of " + t.Name() + " is full, which runs one thread at a time"
	}
	return "thread " + t.Name() + " is full"
}

// FullThreads returns the threads and interpreters that use at least so much of a CPU, and want at least so much of
// one including the time they wait for it.
func FullThreads(p *check.Pass, use, wants quantity.Value) []BusyThread {
	return slices.DeleteFunc(BusyThreads(p), func(t BusyThread) bool {
		return t.Use.Below(use) || t.Wants.Below(wants)
	})
}

// FullInterpreter reports whether an interpreter of the target runs one thread at a time and has hardly any time left
// for the next. It returns an error if a Python process uses as much and its version was not read.
func FullInterpreter(p *check.Pass, full *check.Param) (bool, error) {
	for _, t := range BusyThreads(p) {
		if t.TID == 0 && t.Use.AtLeast(p.Param(full)) {
			return true, nil
		}
	}
	if len(p.Info(metric.ScriptRuntime)) > 0 {
		return false, nil
	}
	for _, s := range p.Info(metric.TargetInfo) {
		pid, err := strconv.Atoi(s.Label("pid"))
		if err == nil && s.Label("runtime") == "python" && cpusOf(p, pid) >= p.Param(full).Number() {
			return false, check.NotAssessed("look at what script-profile says of itself (-v)",
				"whether the interpreter is full is not known: its version was not read")
		}
	}
	return false, nil
}

// BusyThreads returns the CPU time of the target's threads and interpreters; it is empty if it was read only once.
func BusyThreads(p *check.Pass) []BusyThread {
	_, window, ok := Rise("", p.Counter(metric.ThreadCPU)) // shorter than the recording's
	if !ok {
		return nil
	}
	out := threadTimes(p)
	out = slices.Concat(out, interpreterTimes(p, out, window.Number()))
	for i := range out {
		t := &out[i]
		t.Use = quantity.Of("CPU time", t.Seconds, quantity.Seconds).Per(window).As(quantity.CPUs).
			Named("CPUs used by %s %s", t.Kind(), t.Name())
		t.Wants = quantity.Of("CPU time and time ready to run", t.Seconds+t.Waited, quantity.Seconds).Per(window).
			As(quantity.CPUs).Named("CPUs used or waited for by %s %s", t.Kind(), t.Name())
	}
	return out
}

// BeganWaits counts how often each of the target's threads began to wait, by its id.
func BeganWaits(p *check.Pass) map[int]float64 {
	waits := map[int]float64{}
	for _, s := range p.Counter(metric.ThreadSwitches, "kind", "voluntary") {
		tid, err := strconv.Atoi(s.Label("tid"))
		if n, counted := s.Increase(); counted && err == nil {
			waits[tid] += n // a thread that changes its name has two series
		}
	}
	return waits
}

// WaitsOfSleepers is BeganWaits that covers threads that hardly run, too: threads that take less than a tick of CPU
// time are not read again, and the scheduler's events show how often they waited.
func WaitsOfSleepers(p *check.Pass) map[int]float64 {
	waits, events := BeganWaits(p), map[int]float64{}
	for _, w := range ThreadWaits(p) {
		if tid, err := strconv.Atoi(w.TID); err == nil {
			events[tid] += w.Count
		}
	}
	for tid, n := range events {
		if waits[tid] == 0 {
			waits[tid] = n
		}
	}
	return waits
}

// interpreterTimes adds up the threads of each process whose interpreter runs one thread at a time, including what
// native libraries do in parallel.
func interpreterTimes(p *check.Pass, threads []BusyThread, window float64) (out []BusyThread) {
	for _, pid := range OneAtATime(p) {
		sum := BusyThread{PID: pid}
		for _, t := range threads {
			if t.PID == pid {
				sum.Threads = append(sum.Threads, t.TID)
				sum.Seconds += t.Seconds
				if t.TID == pid {
					sum.Comm = t.Comm
				}
			}
		}
		if len(sum.Threads) > 1 {
			sum.Seconds = max(sum.Seconds, cpusOf(p, pid)*window) // with threads that came and went between readings
			out = append(out, sum)
		}
	}
	return out
}

// cpusOf returns the CPUs that one process of the target uses; it may be read over a longer time than its threads.
func cpusOf(p *check.Pass, pid int) float64 {
	used, span, ok := Rise("", p.Counter(metric.ProcessCPU, "pid", strconv.Itoa(pid)))
	if !ok {
		return 0
	}
	return used.Number() / span.Number()
}

func threadTimes(p *check.Pass) []BusyThread {
	at := map[int]int{}
	var out []BusyThread
	for _, s := range p.Counter(metric.ThreadCPU) {
		n, counted := s.Increase()
		pid, err := strconv.Atoi(s.Label("pid"))
		tid, err2 := strconv.Atoi(s.Label("tid"))
		if !counted || err != nil || err2 != nil {
			continue
		}
		i, known := at[tid]
		if !known {
			i = len(out)
			at[tid] = i
			out = append(out, BusyThread{PID: pid, TID: tid, Threads: []int{tid}, Comm: s.Label("comm")})
		}
		out[i].Seconds += n
	}
	for _, s := range p.Counter(metric.ThreadRunDelay) {
		tid, err := strconv.Atoi(s.Label("tid"))
		if i, known := at[tid]; known && err == nil {
			n, _ := s.Increase()
			out[i].Waited += n
		}
	}
	return out
}
