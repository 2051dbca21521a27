// Package runtime holds the rules about the language's runtime: collector, compiler, locks, pools.
//
// Each rule is a file named after it, and refers to no other rule. What several rules read from a recording is in
// package evidence.
package runtime

import "github.com/perfdoctor/perfdoctor/internal/check"

// Checks returns the rules in the order in which a reader should take them.
func Checks() []*check.Check {
	return []*check.Check{
		javaDeadlock,
		heapGrowth,
		explicitGC,
		gcOverhead,
		allocationRate,
		serialGCByQuota,
		gcThreadsOversized,
		safepointTime,
		timeToSafepoint,
		jitWarmUp,
		codeCacheFull,
		threadGrowth,
		offHeapGrowth,
		memoryGrowth,
		swappedLibrary,
		foreignAgents,
		monitorContention,
		lockContention,
		gilContention,
		eventLoopBlocked,
		poolExhausted,
		queueBound,
		poolStuck,
	}
}
