// Package path holds the rules about what lies between machines: links, queues, address translation.
//
// A rule is a file, named after it. It refers to no other rule: what several read of a recording is in package
// evidence.
package path

import "github.com/perfdoctor/perfdoctor/internal/check"

// Checks gives the rules in the order in which a reader should take them.
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
