package exporter

import (
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// A policy says what happens to a metric whose labels have no bound: processes, threads, destinations and groups come
// and go, and each would leave a series behind in Prometheus. A metric without a policy has labels that the machine
// bounds, and is passed on as it is.
type policy struct {
	keep  []string // labels that stay; series that differ only in others are folded into one
	each  []string // the labels of keep without bound: their largest values stay, the rest become other
	fold  fold
	own   bool   // only the target's own level of the control groups; the host's have none
	begun bool   // a series that appears began at zero
	leave string // why the metric is not exported; the checks have read it
}

// fold is how several series become one.
type fold int

const (
	sum fold = iota
	most
	least
)

func (f fold) of(a, b float64) float64 {
	switch f {
	case most:
		return max(a, b)
	case least:
		return min(a, b)
	default:
		return a + b
	}
}

// Reasons to leave a metric out.
const (
	perPID      = "it is about single processes or threads, whose names have no bound; a recording has them"
	placesOnly  = "it tells a report where files are"
	asBuckets   = "it is exported as a histogram"
	fineBuckets = "its hundreds of buckets would be as many series: a report has its quantiles"
	noSums      = "its values are names of threads, locks or places in a program"
)

// policies returns the policies of all metrics with such labels.
func policies() map[string]policy {
	out := map[string]policy{}
	set := func(p policy, ms ...metric.Metric) {
		for _, m := range ms {
			out[m.Describe().Name] = p
		}
	}
	setFlows(set)
	setSockets(set)
	setProcesses(set)
	setGroups(set)
	setJVMs(set)
	setDevices(set)
	return out
}

func setFlows(set func(policy, ...metric.Metric)) {
	flow := []string{"side", "endpoint", "comm"}
	by := func(more ...string) policy { return policy{keep: append(more, flow...), each: flow[1:], begun: true} }
	set(by(), metric.ConnectAttempts, metric.Connects, metric.ConnectsBound, metric.ConnectSeconds, metric.PortSearches,
		metric.PortSearchSeconds, metric.ConnectionSeconds, metric.ConnectionTurns, metric.RequestsGivenUp,
		metric.RequestsGivenUpSeconds, metric.ResetsUnanswered)
	set(by("error"), metric.ConnectFailures)
	set(by("first"), metric.ConnectionsClosed)
	set(by("exchanges"), metric.ConnectionsTurnedAway)
	set(by("direction"), metric.ConnectionBytes, metric.FlowResets)
	set(by("kind"), metric.FlowRetransmits)
	longest := by()
	longest.fold = most
	set(longest, metric.PortSearchLongest)
	set(policy{leave: asBuckets}, metric.ConnectDurations, metric.SoftirqDurations, metric.SoftirqTimedSeconds)
	set(policy{keep: []string{"side", "at_most"}, begun: true}, metric.ConnectionLives)
	set(policy{leave: fineBuckets}, metric.ExchangeDurations)
	asked := []string{"endpoint"}
	set(policy{keep: asked, each: asked, begun: true}, metric.DNSQueries, metric.DNSSeconds, metric.ExchangesAtTimer)
	set(policy{keep: []string{"endpoint", "type", "code"}, each: asked, begun: true}, metric.DNSAnswers)
	set(policy{keep: []string{"source", "comm"}, each: []string{"source", "comm"}, begun: true},
		metric.BindsAsked, metric.BindsFound, metric.BindSearchSeconds)
}

func setSockets(set func(policy, ...metric.Metric)) {
	pair, dest := []string{"source", "destination"}, []string{"destination"}
	set(policy{keep: append([]string{"state"}, pair...), each: pair}, metric.DestinationSockets)
	set(policy{keep: pair, each: pair}, metric.DestinationYoungTW)
	owner := []string{"destination", "comm"}
	set(policy{keep: owner, each: owner}, metric.DestinationOwner)
	set(policy{keep: dest, each: dest, fold: most}, metric.DestinationRTT)
	set(policy{keep: dest, each: dest, fold: least}, metric.DestinationMin)
	set(policy{keep: dest, each: dest}, metric.DestinationBytes, metric.DestinationHeld, metric.DestinationLost,
		metric.DestinationSegs, metric.DestinationData, metric.DestinationAsked, metric.SynSentRetrans)
	listener, accepting := []string{"listener"}, []string{"listener", "comm"}
	set(policy{keep: []string{"listener", "state"}, each: listener}, metric.ListenerSockets)
	set(policy{keep: accepting, each: accepting, fold: most}, metric.ListenerQueue, metric.UnixQueue, metric.UnixOldest)
	set(policy{keep: accepting, each: accepting, fold: least}, metric.ListenerBacklog, metric.UnixBacklog)
	set(policy{keep: accepting, each: accepting, begun: true}, metric.UDPDrops)
	set(policy{keep: accepting, each: accepting}, metric.UDPQueue)
	set(policy{keep: listener, each: listener}, metric.ListenerPeers, metric.ListenerBytes, metric.ListenerHeld,
		metric.ListenerOwes, metric.ListenerUnread, metric.ListenerSegments)
	comm := []string{"comm"}
	set(policy{keep: []string{"comm", "state"}, each: comm}, metric.ProcessSockets)
	set(policy{keep: accepting, each: accepting}, metric.TargetListenPorts)
	set(policy{leave: "no collector measures it"}, metric.VantageRTT, metric.VantagePings, metric.VantageUnanswered)
}

func setProcesses(set func(policy, ...metric.Metric)) {
	comm := []string{"comm"}
	set(policy{keep: []string{"comm", "mode", "member"}, each: comm}, metric.ProcessCPU,
		metric.ProcessChildrenCPU)
	set(policy{keep: []string{"comm", "kind"}, each: comm}, metric.ProcessFaults)
	set(policy{keep: comm, each: comm}, metric.ProcessRSS, metric.ProcessPrivate, metric.ProcessThreads,
		metric.HostProcessRSS)
	set(policy{keep: []string{"comm", "direction"}, each: comm}, metric.HostProcessIO, metric.ProcessCalls,
		metric.ProcessCallBytes)
	set(policy{leave: perPID}, metric.ProcessInfo, metric.HostProcessDelay)
	set(policy{keep: comm, each: comm, fold: most}, metric.ProcessFDs)
	set(policy{keep: comm, each: comm, fold: least}, metric.ProcessFDLimit, metric.ProcessStart)
	set(policy{leave: "a directory of the target's: a host's file systems are node_exporter's"},
		metric.FileSystemSize, metric.FileSystemFree, metric.FileSystemInodes, metric.FileSystemUnused)
	set(policy{keep: []string{"kind", "comm", "runtime"}, each: comm}, metric.TargetInfo)
	set(policy{keep: []string{"mode"}}, metric.ThreadCPU)
	set(policy{keep: []string{"kind"}}, metric.ThreadSwitches)
	set(policy{keep: []string{}}, metric.ThreadRunDelay)
	pool := []string{"pool"}
	set(policy{keep: pool, each: pool}, metric.ThreadPools)
	set(policy{keep: []string{"cpu"}}, metric.TargetCPUs)
	set(policy{leave: perPID}, metric.ThreadCPUWait, metric.ThreadCPUWaits, metric.ThreadThrottledTime,
		metric.ThreadSleepTime,
		metric.ThreadWaitTime, metric.ThreadWaits, metric.FutexWakes, metric.CPUWaitDurations,
		metric.ThreadStateTime, metric.ThreadStillTime, metric.ScriptRuntime, metric.ScriptLockWait, metric.GoRuntime,
		metric.ConnectionWaitTime, metric.DatabaseServer, metric.DatabaseSessionClient,
		metric.DatabaseSessionTime, metric.DatabaseLockTime, metric.DatabaseFrontTime,
		metric.DatabaseTransactionAge, metric.DatabaseStatementTime, metric.DatabaseWaitTime,
		metric.DatabaseStatementAge, metric.DatabaseFunctionTime, metric.DatabaseScanTime, metric.DatabaseScanPages,
		metric.DatabaseScanKept)
	set(policy{leave: asBuckets}, metric.RunQueueWaits, metric.RunQueueWaitSeconds)
	syscall := []string{"syscall"}
	set(policy{keep: syscall, each: syscall}, metric.SyscallCalls, metric.SyscallSeconds, metric.SyscallBytes)
	set(policy{keep: []string{"syscall", "error"}, each: syscall}, metric.SyscallErrors)
	set(policy{keep: []string{"syscall", "at_most"}, each: syscall}, metric.SyscallDurations)
}

func setGroups(set func(policy, ...metric.Metric)) {
	group := []string{"cgroup"}
	by := func(f fold, more ...string) policy {
		return policy{keep: append(more, "cgroup"), each: group, fold: f, own: true}
	}
	set(by(least), metric.CgroupQuota, metric.CgroupPeriod, metric.CgroupBurst, metric.CgroupShares,
		metric.CgroupCpuset,
		metric.CgroupMemoryLimit, metric.CgroupPIDsLimit)
	set(by(sum), metric.CgroupPeriods, metric.CgroupThrottled, metric.CgroupThrottledTime, metric.CgroupCPU,
		metric.CgroupMemory,
		metric.CgroupWorkingSet, metric.CgroupOOMKills, metric.CgroupMemoryMax, metric.CgroupPIDs)
	set(by(sum, "resource", "kind"), metric.CgroupPressure)
	set(policy{keep: group, each: group}, metric.CgroupCPURun, metric.CgroupCPUWait, metric.CgroupCPUWaits,
		metric.CgroupThrottledWait)
	set(policy{leave: placesOnly}, metric.CgroupDir)
}

func setJVMs(set func(policy, ...metric.Metric)) {
	set(policy{keep: []string{"comm", "kind"}, each: []string{"comm"}}, metric.JVMInfo)
	set(policy{keep: []string{"version", "collector"}}, metric.JVMVersion)
	set(policy{keep: []string{}, fold: least}, metric.JVMUptime, metric.JVMCPUs, metric.JVMLimit, metric.JVMMemoryLimit)
	set(policy{keep: []string{"kind"}}, metric.JVMGCSeconds, metric.JVMGCs, metric.JVMThreads, metric.JVMMetaspace)
	set(policy{keep: []string{"kind", "cause"}, begun: true}, metric.JVMGCsByCause)
	set(policy{keep: []string{}}, metric.JVMSafepoints, metric.JVMSafepointSeconds, metric.JVMSafepointSync,
		metric.JVMApplication,
		metric.JVMCompileSeconds, metric.JVMThreadsStarted, metric.JVMClassesLoaded, metric.JVMClassSeconds,
		metric.JVMSuperHash,
		metric.JVMGCCPU)
	set(policy{keep: []string{"generation", "space", "kind"}}, metric.JVMSpace)
	set(policy{leave: perPID}, metric.JVMGCCause, metric.JVMOperations, metric.JVMFlag, metric.JVMAgent,
		metric.JVMThread,
		metric.JVMSwappedLibrary,
		metric.JVMStates, metric.JVMDumpSeconds, metric.JVMCode, metric.JVMCodeFull, metric.TypeCheckSamples)
	set(policy{leave: noSums}, metric.JVMPools, metric.JVMPoolAllocated, metric.JVMMonitorWaiters, metric.JVMDeadlock,
		metric.JVMClassBytes, metric.JVMClassObjects)
}

func setDevices(set func(policy, ...metric.Metric)) {
	device := []string{"device"}
	by := func(more ...string) policy { return policy{keep: append(more, "device"), each: device} }
	// Each container has its own device at the host's end.
	set(by("netns", "direction"), metric.DevicePackets, metric.DeviceBytes, metric.DeviceErrors, metric.DeviceDrops)
	set(by("direction"), metric.DeviceQueues)
	set(policy{leave: "the queues of a device and the CPUs of an interrupt are as many as both together: the checks " +
		"read them"},
		metric.QueueRPS, metric.QueueXPS, metric.IRQAffinity)
	set(by(), metric.DiskReads, metric.DiskWrites, metric.DiskReadBytes, metric.DiskWriteBytes, metric.DiskReadSeconds,
		metric.DiskWriteSeconds, metric.DiskBusySeconds)
	// By CPU there would be hundreds of thousands on a large machine.
	set(policy{keep: []string{"irq", "device"}, each: []string{"irq", "device"}}, metric.Interrupts)
	set(policy{keep: []string{"irq"}, each: []string{"irq"}}, metric.HardirqRuns, metric.HardirqSeconds)
}
