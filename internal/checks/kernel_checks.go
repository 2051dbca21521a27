package checks

import "github.com/perfdoctor/perfdoctor/internal/check"

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
