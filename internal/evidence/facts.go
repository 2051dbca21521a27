package evidence

import "github.com/perfdoctor/perfdoctor/internal/check"

// What findings state about their numbers, for edges between rules that depend on it.
const (
	// QueueAtEgress says that a neighbour with CPUs of its own sees the same queue.
	QueueAtEgress check.Fact = "queue-at-the-egress"
	// DearPackets says that each packet costs several times the usual, through rules walked one by one.
	DearPackets check.Fact = "packets-are-dear"
	// OneServesAll says that one thread serves all requests, and waits itself.
	OneServesAll check.Fact = "one-thread-serves-all"
	// OpenedInRequests says that requests spend most of their time waiting for connections to be opened.
	OpenedInRequests check.Fact = "opened-in-requests"
	// FillsCPUs says that a fifth of the CPUs would be idle without it.
	FillsCPUs check.Fact = "fills-the-cpus"
	// LengthensPauses says that the pauses would be fine if the collector had not waited for a CPU.
	LengthensPauses check.Fact = "lengthens-pauses"
	// PoolsQueue says that most waiting threads belong to pools sized by the CPUs the JVM sees.
	PoolsQueue check.Fact = "sized-pools-wait"
	// KillsAtLimit says that the kills happen at a limit, and not because the host lacks memory.
	KillsAtLimit check.Fact = "kills-at-a-limit"
	// MemorySufficed says that the kernel counted no abort for lack of memory.
	MemorySufficed check.Fact = "memory-sufficed"
	// FillsMemory says that a process takes all memory that it may have within minutes.
	FillsMemory check.Fact = "fills-memory"
	// MostGarbage says that the collector works more for this code than for all other code.
	MostGarbage check.Fact = "makes-most-of-the-garbage"
	// ObjectsFill says that collections begin because objects fill the heap, and not for the metadata of classes.
	ObjectsFill check.Fact = "objects-fill-the-heap"
	// MostLockWaits says that most of the time that threads wait for locks they wait in this code.
	MostLockWaits check.Fact = "has-most-of-the-waits-for-locks"
	// MostAnswers says that this is most of what the target's threads wait for at destinations.
	MostAnswers check.Fact = "most-of-the-answers"
	// CarriersPinned says that virtual threads keep their carriers while they wait, so that no more can be under way.
	CarriersPinned check.Fact = "carriers-are-pinned"
	// NobodysWork says that no other thread's work ends the waits: a sleep, a permit, a connection.
	NobodysWork check.Fact = "nobodys-work"
	// ChildrenWait says that the awaited children hardly compute: they wait themselves.
	ChildrenWait check.Fact = "children-wait"
	// EachOther says that threads wait for others of their own pool, so that more of them would wait as well.
	EachOther check.Fact = "they-wait-for-each-other"
	// StopsMost says that all threads are stopped for most of the time, whatever they wait for meanwhile.
	StopsMost check.Fact = "stops-most-of-the-time"
	// OwnsCPU says that so much of the CPU time goes there that the owner of most of it is the same code.
	OwnsCPU check.Fact = "owns-the-cpu-time"
)
