// Package connections holds the rules about sockets, local ports and the kernel's settings about them.
//
// Each rule has a file named after it. A rule refers to no other rule: what several rules read from a recording is in
// package evidence.
package connections

import "github.com/perfdoctor/perfdoctor/internal/check"

// Checks returns the rules in the order in which a reader should take them.
func Checks() []*check.Check {
	return []*check.Check{
		bindWithoutNoPort,
		shortConnectionCeiling,
		localPortExhaustion,
		portSearchCliff,
		timeWaitOverflow,
		acceptQueueOverflow,
		slowAccept,
		turnedAway,
		requestsGivenUp,
		connectsRefused,
		heldRequests,
		fewConnections,
		synBacklogDrops,
		synSentPileup,
		synRetransmits,
		noKeepalive,
		slowStart,
		nagleDelayedAck,
		tlsNoResumption,
		connectionSkew,
		closeWaitLeak,
		retransmits,
		resetStorm,
		pawsBehindNAT,
		tcpMemoryPressure,
		tcpOrphans,
		rcvbufPrune,
		udpDrops,
	}
}
