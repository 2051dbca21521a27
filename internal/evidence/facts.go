package evidence

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
)

// What findings state of their numbers, for edges that depend on it.
const (
	QueueAtEgress check.Fact = "queue-at-the-egress" // a neighbour with CPUs of its own sees the same queue
	// each costs several times the usual, by rules walked one by one
	DearPackets check.Fact = "packets-are-dear"
	FillsCPUs   check.Fact = "fills-the-cpus" // a fifth of them would be idle without it
	// which were no fault, had the collector not waited for a CPU
	LengthensPauses check.Fact = "lengthens-pauses"
	// most that wait are of pools sized by the CPUs the JVM sees
	PoolsQueue     check.Fact = "sized-pools-wait"
	HaveTheHost    check.Fact = "no-limit-holds-them" // the threads may use all CPUs of the host
	KillsAtLimit   check.Fact = "kills-at-a-limit"    // and not for want of memory of the host
	MemorySufficed check.Fact = "memory-sufficed"     // the kernel counted no abort for want of memory
	// the collector works for this code more than for all other
	MostGarbage check.Fact = "makes-most-of-the-garbage"
)
