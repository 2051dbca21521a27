package checks

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/signature"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
)

// Causes is the table of what explains what. An edge says that the second check's finding is a consequence of the
// first's, if both found something about subjects that can be related. A chain of edges leads through findings only.
// So each edge is for a direct consequence, and has a recording among the cases in which a consequence would stand
// alone without it.
//
//nolint:funlen // a table
func Causes() check.Causes {
	table := check.Causes{
		// Dropped or damaged packets are retransmitted; a SYN after 1 s, and connects pile up meanwhile.
		{
			Cause: "softnet-drops", Effect: "nic-drops",
			Why: "a packet that the backlog refuses counts as dropped by a virtual device",
		},
		{Cause: "softnet-drops", Effect: "retransmits", Why: "dropped segments are retransmitted"},
		{Cause: "softnet-drops", Effect: "syn-retransmits", Why: "dropped SYNs are retransmitted"},
		{
			Cause: "conntrack-full", Effect: "retransmits",
			Why: "segments of flows without an entry are dropped and retransmitted",
		},
		{Cause: "conntrack-full", Effect: "syn-retransmits", Why: "a SYN for which the table has no room is dropped"},
		{
			Cause: "conntrack-full", Effect: "syn-sent-pileup",
			Why: "connects wait until the table has room for their SYN",
		},
		{Cause: "nic-drops", Effect: "retransmits", Why: "dropped segments are retransmitted"},
		{Cause: "nic-drops", Effect: "syn-retransmits", Why: "dropped SYNs are retransmitted"},
		{Cause: "nic-errors", Effect: "retransmits", Why: "damaged segments are retransmitted"},
		{Cause: "nic-errors", Effect: "syn-retransmits", Why: "damaged SYNs are retransmitted"},
		{
			Cause: "path-rtt-under-load", Effect: "retransmits",
			Why: "a long queue is also full at times, and drops",
		},

		// Who is asked, and how often.
		{
			Cause: "n-plus-one", Effect: "waiting-on-backend",
			Why: "many answers in turn add up, however short each is",
		},
		{
			Cause: "database-lock", Effect: "waiting-on-backend", If: evidence.MostAnswers,
			Why: "the database answers when its session has the lock",
		},

		// The CPU that handles the packets.
		{Cause: "snat-single-core", Effect: "softirq-imbalance", Why: "the forwarding is what that CPU's softirqs do"},
		{
			Cause: "irq-affinity", Effect: "softirq-imbalance",
			Why: "packets are handled on the CPU that their interrupt came to",
		},
		{
			Cause: "bridge-nat-cost", Effect: "softirq-imbalance", If: evidence.DearPackets,
			Why: "packets that cost a hundred times the usual would cost the same on two CPUs",
		},
		{Cause: "bridge-nat-cost", Effect: "cpu-in-softirq", Why: "each packet is handled several times, in softirq"},
		{Cause: "softirq-imbalance", Effect: "softnet-drops", Why: "the backlog of a CPU without time to spare fills"},
		{
			Cause: "softirq-imbalance", Effect: "nic-drops",
			Why: "a device's ring fills when its CPU does not poll in time",
		},
		{Cause: "softirq-imbalance", Effect: "cpu-in-softirq", Why: "most of the host's softirq time is that CPU's"},
		{
			Cause: "softirq-imbalance", Effect: "path-rtt-under-load", Unless: evidence.QueueAtEgress,
			Why: "packets wait for the CPU that handles them",
		},

		// Connections and their ports.
		{
			Cause: "bind-without-no-port", Effect: "short-connection-ceiling",
			Why: "bind() takes a port from all destinations at once",
		},
		{Cause: "short-connection-ceiling", Effect: "local-port-exhaustion", Why: "the ports are in TIME_WAIT"},
		{Cause: "short-connection-ceiling", Effect: "port-search-cliff", Why: "few free ports are left to find"},
		{Cause: "short-connection-ceiling", Effect: "no-keepalive", Why: "these connections are not kept"},
		{Cause: "port-search-cliff", Effect: "cpu-in-system", Why: "the search is the kernel's time"},
		{Cause: "no-keepalive", Effect: "time-wait-overflow", Why: "each connection leaves a TIME_WAIT"},
		{
			Cause: "no-keepalive", Effect: "cpu-in-system",
			Why: "the kernel opens and closes a connection for each request",
		},
		{
			Cause: "retransmits", Effect: "waiting-on-backend", If: evidence.MostAnswers,
			Why: "a request or an answer that is lost is sent again after 0.2 s and more",
		},
		{
			Cause: "no-keepalive", Effect: "waiting-on-backend", If: evidence.OpenedInRequests,
			Why: "most of the wait is for connections to be opened",
		},
		{Cause: "no-keepalive", Effect: "cpu-in-softirq", Why: "handshakes and ends of connections are packets more"},
		{
			Cause: "held-requests", Effect: "waiting-on-backend", If: evidence.OneServesAll,
			Why: "the thread that serves all waits for the answer itself, and each request for all before it",
		},
		{Cause: "few-connections", Effect: "held-requests", Why: "they wait inside it for one of these connections"},
		{
			Cause: "pool-exhausted", Effect: "few-connections",
			Why: "the pool lends no more than these connections",
		},
		{
			Cause: "pool-stuck", Effect: "few-connections", If: evidence.CarriersPinned,
			Why: "each pinned carrier asks over one connection, and nobody else can ask",
		},
		{Cause: "pool-exhausted", Effect: "held-requests", Why: "they wait inside it for what is lent out"},
		{Cause: "lock-contention", Effect: "held-requests", Why: "they wait inside it for the lock"},
		{Cause: "queue-bound", Effect: "held-requests", Why: "they wait inside it for room in the queue"},
		{Cause: "pool-stuck", Effect: "held-requests", Why: "they wait inside it where the pool stands"},
		{Cause: "target-stopped", Effect: "held-requests", Why: "a stopped process reads no requests"},
		{Cause: "dns-slow", Effect: "held-requests", Why: "they wait inside it for the address of a server"},
		{
			Cause: "event-loop-blocked", Effect: "held-requests",
			Why: "nobody works on a request while its loop stands still",
		},
		{Cause: "accept-queue-overflow", Effect: "syn-backlog-drops", Why: "SYNs to a full accept queue are dropped"},
		{Cause: "accept-queue-overflow", Effect: "syn-sent-pileup", Why: "connects wait until the queue has room"},
		{
			Cause: "accept-queue-overflow", Effect: "syn-retransmits",
			Why: "SYNs and their answers are retransmitted until there is room",
		},
		{Cause: "syn-sent-pileup", Effect: "syn-retransmits", Why: "connects that wait repeat their SYN"},
		{Cause: "paws-behind-nat", Effect: "syn-retransmits", Why: "SYNs with an older timestamp are dropped"},
		{
			Cause: "tls-no-resumption", Effect: "cpu-saturated", If: evidence.FillsCPUs,
			Why: "the handshakes take what would be idle",
		},
		{
			Cause: "tls-no-resumption", Effect: "hot-code", If: evidence.OwnsCPU,
			Why: "the handshake is most of what the hottest function does",
		},
		{
			Cause: "fd-limit", Effect: "accept-queue-overflow",
			Why: "accept() fails without a descriptor, and the queue fills",
		},
		{Cause: "fd-limit", Effect: "slow-accept", Why: "accept() fails without a descriptor, and the queue stays"},
		{Cause: "target-stopped", Effect: "slow-accept", Why: "a program that is stopped accepts nothing"},
		{Cause: "hot-code", Effect: "udp-drops", Why: "datagrams wait for a thread that computes for others"},
		{Cause: "cpu-throttled", Effect: "udp-drops", Why: "a program that is stopped reads nothing meanwhile"},
		{Cause: "target-stopped", Effect: "udp-drops", Why: "a program that is stopped reads nothing"},
		{
			Cause: "lock-contention", Effect: "slow-accept", If: evidence.EachOther,
			Why: "workers that wait for the lock accept nothing meanwhile, and more of them would wait as well",
		},
		{
			Cause: "pool-exhausted", Effect: "slow-accept", If: evidence.EachOther,
			Why: "workers that wait for their turn accept nothing meanwhile, and more of them would wait as well",
		},
		{Cause: "slow-reader", Effect: "slow-accept", Why: "workers that wait for the reader accept nothing meanwhile"},
		{
			Cause: "file-lock-wait", Effect: "slow-accept",
			Why: "workers that wait for the lock accept nothing meanwhile",
		},
		{Cause: "slow-accept", Effect: "held-requests", Why: "requests wait in connections that are not accepted"},
		{
			Cause: "slow-accept", Effect: "accept-queue-overflow",
			Why: "a queue from which hardly a connection is taken is full soon",
		},
		{
			Cause: "requests-given-up", Effect: "reset-storm",
			Why: "a client that gives up with an answer under way sends a reset",
		},
		{Cause: "connects-refused", Effect: "reset-storm", Why: "a refused connect is answered by a reset"},
		{Cause: "turned-away", Effect: "reset-storm", Why: "a server that closes with a request unread sends a reset"},
		{Cause: "close-wait-leak", Effect: "fd-limit", Why: "sockets that are never closed keep their descriptors"},
		{
			Cause: "tcp-memory-pressure", Effect: "rcvbuf-prune",
			Why: "under pressure the kernel takes memory from receive queues",
		},
		{
			Cause: "tcp-memory-pressure", Effect: "reset-storm", Unless: evidence.MemorySufficed,
			Why: "above the limit sockets are reset",
		},

		// The kernel's CPU time, and memory.
		{Cause: "cpu-steal", Effect: "cpu-saturated", Why: "threads queue for CPUs that the hypervisor took"},
		{Cause: "governor", Effect: "cpu-saturated", Why: "slow CPUs take longer for the same work"},
		{
			Cause: "cpu-saturated", Effect: "time-to-safepoint", Across: true,
			Why: "a thread without a CPU keeps all others waiting",
		},
		{
			Cause: "cpu-saturated", Effect: "context-switch-storm", Across: true,
			Why: "threads that queue push each other off the CPU",
		},
		{Cause: "clocksource", Effect: "cpu-in-system", Why: "each reading of the clock is a system call"},
		{Cause: "page-fault-storm", Effect: "cpu-in-system", Why: "faults are the kernel's time"},
		{Cause: "syscall-storm", Effect: "cpu-in-system", Why: "the calls are the kernel's time"},
		{Cause: "direct-reclaim", Effect: "cpu-in-system", Why: "freeing memory is the kernel's time"},
		{Cause: "direct-reclaim", Effect: "swap-in", Why: "memory that was freed is needed again"},
		{Cause: "direct-reclaim", Effect: "major-faults", Why: "pages that were freed are read again"},
		{Cause: "swap-in", Effect: "major-faults", Why: "each page that comes back from swap is a major fault"},
		{Cause: "major-faults", Effect: "io-wait", Why: "the pages are read from a disk"},

		// Limits around the process.
		{Cause: "cpu-throttled", Effect: "too-many-threads", Why: "threads that the limit stopped count as runnable"},
		{
			Cause: "cpu-throttled", Effect: "threads-vs-quota",
			Why: "pools of the host's size do harm only where the limit stops them",
		},
		{
			Cause: "cpu-throttled", Effect: "gc-threads-oversized",
			Why: "collector threads beyond the limit do harm only where it stops them",
		},
		{Cause: "pinned", Effect: "too-many-threads", Why: "the threads are too many for the CPUs it is bound to"},
		{Cause: "cpu-throttled", Effect: "accept-queue-overflow", Why: "a program that is stopped does not accept"},
		{Cause: "cpu-throttled", Effect: "time-to-safepoint", Why: "a stopped thread keeps all others waiting"},
		{Cause: "cpu-throttled", Effect: "context-switch-storm", Why: "threads share what the limit leaves"},
		{
			Cause: "cpu-throttled-burst", Effect: "too-many-threads",
			Why: "threads that the limit stopped count as runnable",
		},
		{
			Cause: "cpu-throttled-burst", Effect: "threads-vs-quota",
			Why: "pools of the host's size use the quota up at once",
		},
		{Cause: "cpu-throttled-burst", Effect: "gc-threads-oversized", Why: "a collection uses the quota up at once"},
		{
			Cause: "cpu-throttled-burst", Effect: "accept-queue-overflow",
			Why: "a program that is stopped does not accept",
		},
		{Cause: "cpu-throttled-burst", Effect: "time-to-safepoint", Why: "a stopped thread keeps all others waiting"},
		{Cause: "cpu-throttled-burst", Effect: "context-switch-storm", Why: "threads share what the limit leaves"},
		{Cause: "oom-kills", Effect: "memory-limit", If: evidence.KillsAtLimit, Why: "the kills are at that limit"},
		{Cause: "memory-limit", Effect: "major-faults", Why: "pages that did not fit are read again"},
		{Cause: "memory-limit", Effect: "swap-in", Why: "memory that did not fit is needed again"},

		// The runtime.
		{Cause: "heap-growth", Effect: "gc-overhead", Why: "the fuller the heap, the more collections"},
		{Cause: "direct-memory-full", Effect: "page-fault-storm", Why: "each buffer is cleared, on pages that are new"},
		{Cause: "direct-memory-full", Effect: "explicit-gc", Why: "Bits.reserveMemory calls System.gc() to free some"},
		{Cause: "direct-memory-full", Effect: "event-loop-blocked", Why: "the loop waits for direct memory, too"},
		{Cause: "explicit-gc", Effect: "gc-overhead", Why: "the program asks for the collections"},
		{
			Cause: "gc-threads-oversized", Effect: "gc-overhead",
			Why: "the collector's threads wait for each other's CPUs",
		},
		{
			Cause: "gc-threads-oversized", Effect: "too-many-threads", If: evidence.PoolsQueue,
			Why: "the pools are the threads that queue",
		},
		{
			Cause: "gc-threads-oversized", Effect: "cpu-saturated", If: evidence.PoolsQueue,
			Why: "the pools are the threads that queue",
		},
		{Cause: "gc-overhead", Effect: "safepoint-time", Why: "collections begin and end with a safepoint"},
		{Cause: "gc-overhead", Effect: "time-to-safepoint", Why: "collections ask for the safepoints"},
		{
			Cause: "time-to-safepoint", Effect: "safepoint-time",
			Why: "the time in safepoints includes the time to reach them",
		},
		{
			Cause: "gc-overhead", Effect: "lock-held", If: evidence.StopsMost,
			Why: "the holder of the lock is stopped for most of the time",
		},
		{
			Cause: "gc-overhead", Effect: "monitor-contention", If: evidence.StopsMost,
			Why: "the holder of the lock is stopped for most of the time",
		},
		{
			Cause: "gc-overhead", Effect: "event-loop-blocked", If: evidence.StopsMost,
			Why: "the thread that it waits for is stopped for most of the time",
		},
		{
			Cause: "safepoint-time", Effect: "lock-held", If: evidence.StopsMost,
			Why: "the holder of the lock is stopped for most of the time",
		},
		{
			Cause: "safepoint-time", Effect: "event-loop-blocked", If: evidence.StopsMost,
			Why: "the loop is stopped for most of the time",
		},
		{
			Cause: "safepoint-time", Effect: "single-thread-bound", If: evidence.StopsMost,
			Why: "the full thread is the one that stops all others",
		},
		{
			Cause: "class-loading", Effect: "gc-overhead", Unless: evidence.ObjectsFill,
			Why: "new classes begin the collections",
		},
		{Cause: "gc-overhead", Effect: "allocation-rate", Why: "the rate matters by the collections that it costs"},
		{
			Cause: "jit-warm-up", Effect: "cpu-saturated", If: evidence.FillsCPUs,
			Why: "the compilers take what would be idle",
		},
		{
			Cause: "jit-warm-up", Effect: "gc-overhead", If: evidence.LengthensPauses,
			Why: "the collector's threads wait for the CPUs of the compilers",
		},
		{Cause: "thread-growth", Effect: "off-heap-growth", Why: "each thread has a stack outside the heap"},

		// The code.
		{
			Cause: "jaxb-context-per-call", Effect: "jit-warm-up",
			Why: "the code that each context generates is new to the compilers",
		},
		{
			Cause: "source-compilation", Effect: "jit-warm-up",
			Why: "the classes that are made each time are new to the compilers",
		},
		{
			Cause: "logging-on-request-path", Effect: "logging-lock",
			Why: "each line is written under the appender's lock",
		},
		{
			Cause: "string-concat-loop", Effect: "interpreter-gc",
			Why: "each step leaves the old text as garbage, half of all steps' bytes",
		},
		{
			Cause: "syscall-storm", Effect: "hot-code", If: evidence.OwnsCPU,
			Why: "the hottest function is the one that makes the calls",
		},
		{
			Cause: "gil-contention", Effect: "single-thread-bound",
			Why: "the interpreter's lock lets one thread run at a time",
		},
		{
			Cause: "single-thread-bound", Effect: "pool-stuck", Unless: evidence.NobodysWork,
			Why: "what its threads wait for is made by the thread that is full",
		},
		{
			Cause: "single-thread-bound", Effect: "pool-exhausted", Unless: evidence.NobodysWork,
			Why: "the channel is emptied by the goroutine that has no time left",
		},
		{
			Cause: "memory-growth", Effect: "page-fault-storm", If: evidence.FillsMemory,
			Why: "each page that is kept was new once",
		},
		{
			Cause: "memory-growth", Effect: "interpreter-gc", If: evidence.FillsMemory,
			Why: "each collection marks what is kept once more",
		},
		{
			Cause: "hot-code", Effect: "single-thread-bound",
			Why: "the function is most of what the thread does",
		},
		{
			Cause: "lock-held", Effect: "lock-contention",
			Why: "the scheduler's events show one by one what a pool's threads stand in",
		},
		{
			Cause: "gil-contention", Effect: "lock-held",
			Why: "to the kernel the interpreter's lock is one like any other",
		},
		{
			Cause: "program-start", Effect: "blocked-on-child", If: evidence.OwnsCPU, Unless: evidence.ChildrenWait,
			Why: "the children that are waited for do little but start and end",
		},
		{
			Cause: "sequential-scan", Effect: "hot-code", If: evidence.OwnsCPU,
			Why: "the hottest function reads the table",
		},
		{
			Cause: "hot-code", Effect: "cpu-saturated", If: evidence.FillsCPUs,
			Why: "the function takes what would be idle",
		},
		{
			Cause: "type-pollution", Effect: "hot-code",
			Why: "the type checks are inlined into the code that is hot",
		},
		{Cause: "allocator-contention", Effect: "cpu-in-system", Why: "threads wait for an arena in futex calls"},
		{Cause: "allocator-contention", Effect: "syscall-storm", Why: "threads wait for an arena in futex calls"},
		{Cause: "allocator-contention", Effect: "lock-contention", Why: "the lock is that of an arena"},
	}
	return slices.Concat(table, signature.GarbageEdges(), signature.LockEdges(), signature.HotCodeEdges())
}
