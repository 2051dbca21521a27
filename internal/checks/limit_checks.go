package checks

import "github.com/perfdoctor/perfdoctor/internal/check"

func limitChecks() []*check.Check {
	return []*check.Check{
		cpuThrottled,
		cpuThrottledBurst,
		threadsVsQuota,
		noLimitHostSized,
		tooManyThreads,
		oomKills,
		memoryLimit,
		fdLimit,
		pidsLimit,
		ipcLow,
		falseSharing,
	}
}
