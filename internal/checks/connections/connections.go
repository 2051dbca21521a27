// Package connections holds the rules about sockets, local ports and the kernel's settings about them.
//
// A rule is a file, named after it. It refers to no other rule: what several read of a recording is in package
// evidence.
package connections

import "github.com/perfdoctor/perfdoctor/internal/check"

// Checks gives the rules in the order in which a reader should take them.
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
