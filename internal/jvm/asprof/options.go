package asprof

import (
	"fmt"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// Options are what a session samples, and how finely.
type Options struct {
	Library []byte         // async-profiler's shared library for the target's architecture
	Events  []stacks.Event // of CPU, Wall, Alloc and Lock, at least one
	CPU     time.Duration  // CPU time of a thread between two samples of it
	Wall    time.Duration  // between two samples of each thread, whether it runs or waits
	Alloc   int64          // bytes allocated between two samples
	Lock    time.Duration  // time waited for locks, by all threads together, between two samples
	Timeout time.Duration  // after which the profiler stops by itself, in whole seconds, at least one
}

// The defaults are to cost a JVM that keeps all CPUs busy some 2 % of its throughput, all four events together, as was
// measured when they were chosen (docs/decisions/0008): the CPU samples are half of it. `make bench-peers` measures the
// whole command.
const (
	// DefaultCPU is async-profiler's own default: 1000 samples in ten seconds of one busy CPU, so that a share of 10 %
	// is measured within 2 % (twice the standard error of a binomial share).
	DefaultCPU = 10 * time.Millisecond
	// DefaultWall is fifty samples of each thread in ten seconds; a pool of threads has as many more. Each sample of a
	// thread that runs is a signal to it; one that sleeps costs its first sample only.
	DefaultWall = 200 * time.Millisecond
	// DefaultAlloc is eight times async-profiler's own default: 120 samples a second from a program that allocates 500
	// MB/s, where that default's 1000 cost as much as all CPU samples.
	DefaultAlloc = 4 << 20
	// DefaultLock is where a wait begins to be felt. A lock that is waited for more often, each time for less, is
	// sampled in proportion to the time waited.
	DefaultLock = 10 * time.Millisecond
)

// memLimit bounds the memory that async-profiler uses in the target for stacks: fifty times what a program with
// thousands of different ones needs. Stacks beyond it are counted as lost.
const memLimit = "64m"

// DefaultEvents are all that can be sampled at a time.
func DefaultEvents() []stacks.Event {
	return []stacks.Event{stacks.CPU, stacks.Wall, stacks.Alloc, stacks.Lock}
}

// validate finds what async-profiler would refuse, or take for something else.
func (o Options) validate() error {
	if len(o.Events) == 0 {
		return fmt.Errorf("profile: no event is asked for")
	}
	for _, e := range o.Events {
		every, ok := o.every(e)
		if !ok {
			return fmt.Errorf("profile: %q is no event of async-profiler's: use cpu, wall, alloc or lock", e)
		}
		if every <= 0 {
			return fmt.Errorf("profile: the interval of %s is %d: it must be above zero", e, every)
		}
	}
	if o.Timeout < time.Second {
		return fmt.Errorf("profile: a timeout of %v is below a second", o.Timeout)
	}
	return nil
}

// every is the interval of an event in its unit, nanoseconds or bytes.
func (o Options) every(e stacks.Event) (n int64, ok bool) {
	switch e {
	case stacks.CPU:
		return int64(o.CPU), true
	case stacks.Wall:
		return int64(o.Wall), true
	case stacks.Alloc:
		return o.Alloc, true
	case stacks.Lock:
		return int64(o.Lock), true
	}
	return 0, false
}

// samplesOnly leaves out of the recording what else the profiler would write into it: the machine and the JVM's
// arguments (1), system properties (2), libraries (4), CPU load (8) and heap (16; JfrOption in src/arguments.h).
// Arguments and properties hold passwords, and the recording is kept.
const samplesOnly = "31"

// start is the command that begins a session, as Arguments::parse reads it (src/arguments.cpp of async-profiler). quiet
// and log keep its words out of the target's standard output. The clock is that of CLOCK_MONOTONIC, so that durations
// are nanoseconds.
func (o Options) start(cpuEvent, file, log string) string {
	words := []string{"start", "quiet"}
	for _, e := range o.Events {
		every, _ := o.every(e)
		switch e {
		case stacks.CPU:
			words = append(words, "event="+cpuEvent, fmt.Sprintf("interval=%d", every))
		default: // wall, alloc and lock have the names that we give them
			words = append(words, fmt.Sprintf("%s=%d", e, every))
		}
	}
	seconds := (o.Timeout + time.Second - 1) / time.Second
	return strings.Join(append(words, "jfr", "jfropts="+samplesOnly, "clock=monotonic", "memlimit="+memLimit,
		fmt.Sprintf("timeout=%d", seconds), "file="+file, "log="+log), ",")
}

// stop ends a session. Without a log the one that was opened is closed, so that no descriptor stays behind, and none of
// the words that would then go to the target's standard output is written at this level (Log::open in src/log.cpp).
const stop = "stop,quiet,loglevel=none"
