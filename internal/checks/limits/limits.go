// Package limits holds the rules about the limits around a process: CPU quota, threads, memory, descriptors.
//
// Each rule has a file named after it. A rule refers to no other rule: what several rules read from a recording is in
// package evidence.
package limits

import "github.com/perfdoctor/perfdoctor/internal/check"

// Checks returns the rules in the order in which a reader should take them.
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
