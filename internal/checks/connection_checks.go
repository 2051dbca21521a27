package checks

import "github.com/perfdoctor/perfdoctor/internal/check"

func connectionChecks() []*check.Check {
	return []*check.Check{
		shortConnectionCeiling, localPortExhaustion, portSearchCliff, timeWaitOverflow,
		acceptQueueOverflow, synBacklogDrops, synSentPileup, synRetransmits,
		noKeepalive, connectionSkew, closeWaitLeak, retransmits, resetStorm, pawsBehindNAT,
		tcpMemoryPressure, tcpOrphans, rcvbufPrune,
	}
}
