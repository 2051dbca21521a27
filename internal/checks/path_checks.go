package checks

import "github.com/perfdoctor/perfdoctor/internal/check"

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
