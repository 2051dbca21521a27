// Package checks holds the rules of thumb, one file each. It imports nothing that can see a host.
package checks

import (
	"slices"
	"sync"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// Suite lists every check, in the order of the cure.
func Suite() []*check.Check {
	return slices.Concat(pathChecks(), connectionChecks(), kernelChecks(), limitChecks(), runtimeChecks(), codeChecks())
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
		bindWithoutNoPort, shortConnectionCeiling, localPortExhaustion, portSearchCliff, timeWaitOverflow,
		acceptQueueOverflow, synBacklogDrops, synSentPileup, synRetransmits,
		noKeepalive, slowStart, tlsNoResumption, connectionSkew, closeWaitLeak, retransmits, resetStorm, pawsBehindNAT,
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
		syscallStorm,
		fsyncBound,
		waitingOnBackend,
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
	return slices.Concat([]*check.Check{
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
		eventLoopBlocked,
		poolExhausted,
		queueBound,
	}, signatureChecks(check.Runtime))
}

// codeChecks are of what the program itself does: the table of signatures, and what no stack shows.
func codeChecks() []*check.Check {
	return append(signatureChecks(check.Code), typePollution)
}

// fromTable makes the checks of the built-in table once: a check and its parameters are known by their addresses.
var fromTable = sync.OnceValue(func() []*check.Check {
	var out []*check.Check
	for _, s := range builtIn() {
		out = append(out, s.check(builtIn()))
	}
	return out
})

// signatureChecks gives the checks of the table in one stage, in the table's order.
func signatureChecks(stage check.Stage) (out []*check.Check) {
	for _, c := range fromTable() {
		if c.Stage == stage {
			out = append(out, c)
		}
	}
	return out
}
