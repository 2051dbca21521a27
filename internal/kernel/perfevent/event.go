package perfevent

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Event is one counter, named as perf-stat(1) names it.
type Event string

// The events this package counts. Units are occurrences, but for TaskClock and CPUClock, which are nanoseconds.
const (
	Cycles             Event = "cycles"
	Instructions       Event = "instructions"
	Branches           Event = "branches"
	BranchMisses       Event = "branch-misses"
	CacheReferences    Event = "cache-references"
	CacheMisses        Event = "cache-misses"
	StalledCyclesFront Event = "stalled-cycles-frontend"
	StalledCyclesBack  Event = "stalled-cycles-backend"
	DTLBLoadMisses     Event = "dTLB-load-misses"
	TaskClock          Event = "task-clock"
	CPUClock           Event = "cpu-clock"
	ContextSwitches    Event = "context-switches"
	CPUMigrations      Event = "cpu-migrations"
	MinorFaults        Event = "minor-faults"
	MajorFaults        Event = "major-faults"
)

const (
	// perf_event_attr.config of a PERF_TYPE_HW_CACHE event: cache, operation << 8, result << 16.
	dTLBReadMiss = unix.PERF_COUNT_HW_CACHE_DTLB | unix.PERF_COUNT_HW_CACHE_OP_READ<<8 |
		unix.PERF_COUNT_HW_CACHE_RESULT_MISS<<16
	inheritThread = uint64(1) << 35 // perf_event_attr.inherit_thread, Linux 5.13; x/sys has no name for it
)

// kind is what perf_event_open needs to know about an event.
type kind struct {
	event  Event
	typ    uint32
	config uint64
	// clock: hrtimer driven (kernel/events/core.c, task_clock_event_update), so exclude_kernel does not shorten it.
	clock bool
	// kernelOnly: raised with the kernel's own registers, so with exclude_kernel it is always 0 (perf_exclude_event).
	kernelOnly bool
}

// Group names events that are on the counters together.
type Group string

// The groups, ordered by worth. /proc also has what Software holds, only less exactly, so it can be left out.
const (
	Software Group = "software" // TaskClock or CPUClock, ContextSwitches, CPUMigrations, MinorFaults, MajorFaults
	Core     Group = "core"     // Cycles, Instructions, Branches, BranchMisses
	Cache    Group = "cache"    // Cycles, Instructions, CacheReferences, CacheMisses
	Stall    Group = "stall"    // Cycles, StalledCyclesFront, StalledCyclesBack
	TLB      Group = "tlb"      // Instructions, DTLBLoadMisses
)

// group is a set of events that the kernel puts on the counters together or not at all, so their ratios are consistent.
type group struct {
	name  Group
	kinds []kind
}

func hardware(event Event, config uint64) kind {
	return kind{event: event, typ: unix.PERF_TYPE_HARDWARE, config: config}
}

// groups returns the chosen groups, all when none is chosen. No hardware group is larger than four: a hyper-threaded
// Intel core has four general counters. Cycles and instructions come again in the later groups, since the two counts
// in IPC or misses per instruction must cover the same stretch of time.
func groups(clock kind, only []Group) []group {
	cycles := hardware(Cycles, unix.PERF_COUNT_HW_CPU_CYCLES)
	instructions := hardware(Instructions, unix.PERF_COUNT_HW_INSTRUCTIONS)
	all := []group{
		{Software, []kind{
			clock,
			{
				event: ContextSwitches, typ: unix.PERF_TYPE_SOFTWARE, config: unix.PERF_COUNT_SW_CONTEXT_SWITCHES,
				kernelOnly: true,
			},
			{
				event: CPUMigrations, typ: unix.PERF_TYPE_SOFTWARE, config: unix.PERF_COUNT_SW_CPU_MIGRATIONS,
				kernelOnly: true,
			},
			{event: MinorFaults, typ: unix.PERF_TYPE_SOFTWARE, config: unix.PERF_COUNT_SW_PAGE_FAULTS_MIN},
			{event: MajorFaults, typ: unix.PERF_TYPE_SOFTWARE, config: unix.PERF_COUNT_SW_PAGE_FAULTS_MAJ},
		}},
		{Core, []kind{
			cycles, instructions,
			hardware(Branches, unix.PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
			hardware(BranchMisses, unix.PERF_COUNT_HW_BRANCH_MISSES),
		}},
		{Cache, []kind{
			cycles, instructions,
			hardware(CacheReferences, unix.PERF_COUNT_HW_CACHE_REFERENCES),
			hardware(CacheMisses, unix.PERF_COUNT_HW_CACHE_MISSES),
		}},
		{Stall, []kind{
			cycles,
			hardware(StalledCyclesFront, unix.PERF_COUNT_HW_STALLED_CYCLES_FRONTEND),
			hardware(StalledCyclesBack, unix.PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
		}},
		{TLB, []kind{
			instructions,
			{event: DTLBLoadMisses, typ: unix.PERF_TYPE_HW_CACHE, config: dTLBReadMiss},
		}},
	}
	if len(only) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(g group) bool { return !slices.Contains(only, g.name) })
}

func taskClock() kind {
	return kind{event: TaskClock, typ: unix.PERF_TYPE_SOFTWARE, config: unix.PERF_COUNT_SW_TASK_CLOCK, clock: true}
}

// cpuClock replaces task-clock when a CPU is counted: per CPU both count wall time.
func cpuClock() kind {
	return kind{event: CPUClock, typ: unix.PERF_TYPE_SOFTWARE, config: unix.PERF_COUNT_SW_CPU_CLOCK, clock: true}
}
