// Package runtime holds the rules about the language's runtime: collector, compiler, locks, pools.
//
// A rule is a file, named after it. It refers to no other rule: what several read of a recording is in package
// evidence.
package runtime

import "github.com/perfdoctor/perfdoctor/internal/check"

// Checks gives the rules in the order in which a reader should take them.
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
