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

// The defaults should cost a JVM that keeps all CPUs busy some 2 % of its throughput, for all four events together,
// as measured when they were chosen (docs/decisions/0008); the CPU samples are half of that. `make bench-peers`
// measures the whole command.
const (
	// DefaultCPU is async-profiler's own default: 1000 samples in ten seconds of one busy CPU, so that a share of 10 %
	// is measured within 2 % (twice the standard error of a binomial share).
	DefaultCPU = 10 * time.Millisecond
	// DefaultWall takes fifty samples of each thread in ten seconds, and as many more of a pool of threads. Each
	// sample of a running thread is a signal to it; a sleeping thread costs its first sample only.
	DefaultWall = 200 * time.Millisecond
	// DefaultAlloc is eight times async-profiler's own default: it takes 120 samples a second from a program that
	// allocates 500 MB/s, where the 1000 of that default cost as much as all CPU samples.
	DefaultAlloc = 4 << 20
	// DefaultLock is where a wait becomes noticeable. A lock with more and shorter waits is sampled in proportion to
	// the time waited.
	DefaultLock = 10 * time.Millisecond
)

// memLimit bounds the memory that async-profiler uses in the target for stacks: fifty times the need of a program
// with thousands of different stacks. Stacks beyond it are counted as lost.
const memLimit = "64m"

// DefaultEvents returns all events that can be sampled at a time.
func DefaultEvents() []stacks.Event {
	return []stacks.Event{stacks.CPU, stacks.Wall, stacks.Alloc, stacks.Lock}
}

// validate rejects what async-profiler would refuse or misread.
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

// every returns the interval of an event in its unit, nanoseconds or bytes.
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

// samplesOnly keeps everything but samples out of the recording: the machine and the JVM's arguments (1), system
// properties (2), libraries (4), CPU load (8) and heap (16; JfrOption in src/arguments.h). Arguments and properties
// hold passwords, and the recording is kept.
const samplesOnly = "31"

// start returns the command that begins a session, as Arguments::parse reads it (src/arguments.cpp of
// async-profiler). quiet and log keep its messages out of the target's standard output. The clock is CLOCK_MONOTONIC,
// so that durations are nanoseconds.
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

// stop ends a session. It names no log, so async-profiler closes the open one and no descriptor stays behind.
// Messages would then go to the target's standard output, but at this level none is written (Log::open in
// src/log.cpp).
const stop = "stop,quiet,loglevel=none"
