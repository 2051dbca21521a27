// Package limits holds the rules about the limits around a process: CPU quota, threads, memory, descriptors.
//
// A rule is a file, named after it. It refers to no other rule: what several read of a recording is in package
// evidence.
package limits

import "github.com/perfdoctor/perfdoctor/internal/check"

// Checks gives the rules in the order in which a reader should take them.
func Checks() []*check.Check {
	return []*check.Check{
		cpuThrottled,
		cpuThrottledBurst,
		pinned,
		singleThreadBound,
		threadsVsQuota,
		noLimitHostSized,
		tooManyThreads,
		oomKills,
		memoryLimit,
		diskFull,
		fdLimit,
		pidsLimit,
		ipcLow,
		falseSharing,
	}
}
