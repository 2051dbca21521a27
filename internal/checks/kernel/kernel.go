// Package kernel holds the rules about the kernel's share of the CPUs, and waits for memory, disks and answers.
//
// Each rule has a file named after it. A rule refers to no other rule: what several rules read from a recording is in
// package evidence.
package kernel

import "github.com/perfdoctor/perfdoctor/internal/check"

// Checks returns the rules in the order in which a reader should take them.
func Checks() []*check.Check {
	return []*check.Check{
		cpuInSoftirq,
		cpuInSystem,
		cpuHog,
		forkStorm,
		cpuSaturated,
		cpuSteal,
		ioWait,
		directReclaim,
		swapIn,
		majorFaults,
		contextSwitchStorm,
		handOver,
		irqAffinity,
		governor,
		clocksource,
		pageFaultStorm,
		syscallStorm,
		fsyncBound,
		nPlusOne,
		waitingOnBackend,
	}
}
