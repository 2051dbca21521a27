package evidence

import "github.com/perfdoctor/perfdoctor/internal/check"

// What findings state of their numbers, for edges between rules that depend on it.
const (
	// QueueAtEgress is that a neighbour with CPUs of its own sees the same queue.
	QueueAtEgress check.Fact = "queue-at-the-egress"
	// DearPackets is that each costs several times the usual, by rules walked one by one.
	DearPackets check.Fact = "packets-are-dear"
	// OneServesAll is that one thread serves all requests, and waits itself.
	OneServesAll check.Fact = "one-thread-serves-all"
	// OpenedInRequests is that requests wait for connections to be opened for most of their time.
	OpenedInRequests check.Fact = "opened-in-requests"
	// FillsCPUs is that a fifth of the CPUs would be idle without it.
	FillsCPUs check.Fact = "fills-the-cpus"
	// LengthensPauses is that the pauses were no fault, had the collector not waited for a CPU.
	LengthensPauses check.Fact = "lengthens-pauses"
	// PoolsQueue is that most threads that wait are of pools sized by the CPUs the JVM sees.
	PoolsQueue check.Fact = "sized-pools-wait"
	// HaveTheHost is that the threads may use all CPUs of the host.
	HaveTheHost check.Fact = "no-limit-holds-them"
	// KillsAtLimit is that the kills are at a limit, and not for want of memory of the host.
	KillsAtLimit check.Fact = "kills-at-a-limit"
	// MemorySufficed is that the kernel counted no abort for want of memory.
	MemorySufficed check.Fact = "memory-sufficed"
	// MostGarbage is that the collector works for this code more than for all other.
	MostGarbage check.Fact = "makes-most-of-the-garbage"
	// MostAnswers is that most of what the target's threads wait for at destinations is this.
	MostAnswers check.Fact = "most-of-the-answers"
	// NobodysWork is that no other thread's work ends what threads wait for: a sleep, a permit, a connection.
	NobodysWork check.Fact = "nobodys-work"
	// ChildrenWait is that the children which are waited for hardly compute: they wait themselves.
	ChildrenWait check.Fact = "children-wait"
	// EachOther is that threads wait for others of their own pool, so that more of them would wait as well.
	EachOther check.Fact = "they-wait-for-each-other"
	// StopsMost is that all threads are stopped for most of the time, whatever they wait for meanwhile.
	StopsMost check.Fact = "stops-most-of-the-time"
	// OwnsCPU is that so much of the CPU time goes there that who owns most of it is of the same code.
	OwnsCPU check.Fact = "owns-the-cpu-time"
)
