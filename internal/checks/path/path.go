// Package path holds the rules about what lies between machines: links, queues, address translation.
//
// Each rule has a file named after it. A rule refers to no other rule: what several rules read from a recording is in
// package evidence.
package path

import "github.com/perfdoctor/perfdoctor/internal/check"

// Checks returns the rules in the order in which a reader should take them.
func Checks() []*check.Check {
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
