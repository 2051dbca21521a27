// Package checks holds the rules of thumb, one file each. It imports nothing that can see a host.
package checks

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// Suite lists every check, in the order of the cure.
func Suite() []*check.Check {
	return slices.Concat(pathChecks(), connectionChecks(), kernelChecks(), limitChecks(), runtimeChecks())
}

func pathChecks() []*check.Check {
	return []*check.Check{
		pathRTTUnderLoad,
		snatSingleCore,
		softirqImbalance,
		softnetDrops,
		conntrackFull,
		nicDrops,
		nicErrors,
		bridgeNATCost,
	}
}

func connectionChecks() []*check.Check {
	return []*check.Check{
		shortConnectionCeiling, localPortExhaustion, portSearchCliff, timeWaitOverflow,
		acceptQueueOverflow, synBacklogDrops, synSentPileup, synRetransmits,
		noKeepalive, connectionSkew, closeWaitLeak, retransmits, resetStorm, pawsBehindNAT,
		tcpMemoryPressure, tcpOrphans, rcvbufPrune,
	}
}

func kernelChecks() []*check.Check {
	return []*check.Check{
		cpuInSoftirq,
		cpuInSystem,
		cpuSaturated,
		cpuSteal,
		ioWait,
		directReclaim,
		swapIn,
		majorFaults,
		contextSwitchStorm,
		irqAffinity,
		governor,
		clocksource,
		pageFaultStorm,
	}
}

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

func runtimeChecks() []*check.Check {
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
		foreignAgents,
	}
}
