package metric

import "sync"

// All lists every metric, in the order of the documentation. A test compares it with the declarations.
func All() []Metric {
	return []Metric{
		CPUSeconds, Softirqs, Interrupts, IRQAffinity, SoftnetProcessed, SoftnetDropped, SoftnetSqueezed, SoftnetRPS,
		ContextSwitches, Forks, ProcsRunning, ProcsBlocked, Load, Pressure, CPURunDelay, CPUsOnline, Uptime, HostInfo,
		Clocksource, Governor, PerfEvents, PerfRunning, PerfUnavailable,
		MemoryTotal, MemoryAvailable, SwapTotal, SwapFree, MinorFaults, MajorFaults, SwapIn, SwapOut, DirectScan,
		DirectReclaimed, AllocStalls, CompactStalls, THPSplits, HostOOMKills, DiskReads, DiskWrites, DiskReadBytes,
		DiskWriteBytes, DiskReadSeconds, DiskWriteSeconds, DiskBusySeconds,
		DevicePackets, DeviceBytes, DeviceErrors, DeviceDrops, QueueRPS, QueueXPS, DeviceQueues, ConntrackEntries,
		ConntrackMax, ConntrackDrops, ConntrackInsertFailed, ConntrackEarlyDrops, ConntrackTimeWait, NATRules,
		NetfilterRules, Sockets, DestinationSockets, DestinationSmaller, DestinationYoungTW, DestinationOwner,
		DestinationRTT, DestinationMin,
		DestinationBytes, DestinationLost, DestinationSegs, DestinationData, DestinationHeld, DestinationAsked,
		SynSentRetrans, ListenerSockets, ListenerQueue, UDPDrops, UDPQueue, UnixQueue, UnixBacklog, UnixOldest,
		ListenerBacklog,
		ListenerPeers, ListenerBytes, ListenerHeld, ListenerOwes, ListenerUnread, ListenerSegments, ProcessSockets, VantageRTT, VantagePings, VantageUnanswered, TCPOrphans,
		TCPMemory, TCPTimeWait,
		TCPActiveOpens, TCPPassiveOpens, TCPAttemptFails, TCPEstabResets, TCPInSegs, TCPOutSegs, TCPRetransSegs,
		TCPOutRsts,
		TCPSynRetrans, TCPDSACKRecv, ListenOverflows, ListenDrops, SyncookiesSent, ReqQFullDrop, TCPTimeWaitOverflow,
		TWEntered, TWRecycled, PAWSActive, PAWSEstab, PAWSTimewait, TCPTimeouts, PruneCalled, RcvPruned, TCPRcvQDrop,
		TCPBacklogDrop,
		TCPMemoryPressures, TCPMemoryPressureMs, TCPAbortOnMemory, TCPAbortOnTimeout, TCPOrigDataSent, IPForwarded,
		IPReceived, IPSent, UDPReceiveBufErrors, UDPInDatagrams, UDP6InDatagrams,
		PortRangeLow, PortRangeHigh, ReservedPorts, TWReuse, TWReuseDelay, MaxTWBuckets, Timestamps, Somaxconn,
		MaxSynBacklog, Syncookies, AbortOnOverflow, IPForward, MaxOrphans, TCPMemPressure, TCPMemHigh, NetdevMaxBacklog,
		NetdevBudget,
		TargetInfo, ProcessCPU, ProcessChildrenCPU, ProcessInfo, HostProcessRSS, HostProcessIO, HostProcessDelay,
		ProcessFaults, ProcessRSS, ProcessPrivate, ProcessThreads, ProcessFDs, ProcessFDLimit, ProcessStart,
		FileSystemSize, FileSystemFree, FileSystemInodes, FileSystemUnused,
		ThreadCPU, ThreadSwitches, ThreadRunDelay, ThreadStates, ThreadPools, TargetCPUs, ProcessCalls, ProcessCallBytes,
		ThreadStateTime,
		ConnectionWaitTime,
		ThreadStillTime, ThreadStatePasses, TargetListenPorts, CgroupQuota,
		CgroupPeriod,
		CgroupBurst, CgroupShares, CgroupPeriods, CgroupThrottled, CgroupThrottledTime, CgroupCPU, CgroupCpuset,
		CgroupMemory, CgroupWorkingSet, CgroupMemoryLimit, CgroupOOMKills, CgroupMemoryMax, CgroupPIDs, CgroupPIDsLimit,
		ConnectAttempts, Connects, ConnectFailures, ConnectSeconds, ConnectDurations, PortSearches, PortSearchSeconds,
		PortSearchLongest, ConnectionsClosed, ConnectionSeconds, ConnectionLives, ConnectionBytes, ConnectsBound,
		ConnectionTurns, ConnectionsTurnedAway, RequestsGivenUp, RequestsGivenUpSeconds, ResetsUnanswered,
		ExchangeDurations, ExchangesCounted, ExchangesAtTimer, AfterTimer, DNSQueries, DNSAnswers, DNSSeconds,
		FlowRetransmits, FlowResets, BindsAsked, BindsFound, BindSearchSeconds, BPFRuns, BPFSeconds, BPFMeasured,
		SoftirqsTimed, SoftirqSeconds, SoftirqDurations, SoftirqTimedSeconds, HardirqRuns, HardirqSeconds,
		ThreadCPUWait, ThreadCPUWaits, ThreadThrottledTime, ThreadSleepTime, SyscallCalls, SyscallErrors,
		SyscallSeconds, SyscallBytes,
		SyscallDurations,
		ThreadWaitTime, ThreadWaits, FutexWakes, CPUWaitDurations,
		CgroupCPURun, CgroupCPUWait, CgroupCPUWaits, CgroupThrottledWait, RunQueueWaits, RunQueueWaitSeconds,
		JVMInfo, JVMVersion, JVMUptime, JVMGCSeconds, JVMGCs, JVMGCCause, JVMGCsByCause, JVMOperations, JVMSafepoints,
		JVMSafepointSeconds,
		JVMSafepointSync, JVMApplication, JVMCompileSeconds, JVMThreads, JVMThreadsStarted, JVMClassesLoaded,
		JVMClassSeconds, JVMSuperHash, JVMGCCPU, JVMSpace, JVMClassBytes, JVMClassObjects, JVMMetaspace,
		JVMCPUs, JVMLimit, JVMMemoryLimit,
		JVMFlag, JVMCode, JVMCodeFull, JVMAgent, JVMSwappedLibrary, JVMThread, JVMPools, JVMPoolAllocated, JVMStates,
		JVMMonitorWaiters,
		JVMDeadlock, JVMDumpSeconds, TypeCheckSamples,
		CgroupDir, CgroupPressure, CPUProfileSamples, WallProfileSamples, GoroutineProfileSamples, ScriptWallProfileSamples, CoroutineProfileSamples, WaitProfileSamples, GoRuntime, AllocProfileSamples, LockProfileSamples,
		OffCPUProfileSamples, HostCPUProfileSamples, ScriptProfileSamples, ScriptRuntime,
		ScriptLockWait,
		DatabaseServer, DatabaseSessionTime, DatabaseLockTime, DatabaseFrontTime, DatabaseTransactionAge, DatabasePasses,
		DatabaseSessionClient, DatabaseStatementTime, DatabaseFunctionTime, DatabaseWaitTime, DatabaseStatementAge, DatabaseScanTime, DatabaseScanPages, DatabaseScanKept,
		LoadRequests, LoadErrors, LoadDurations, LoadRate, LoadP99,
	}
}

// byName is built at the first use: reading a recording asks for every metric of every line.
var byName = sync.OnceValue(func() map[string]Metric {
	out := map[string]Metric{}
	for _, m := range All() {
		out[m.Describe().Name] = m
	}
	return out
})

// ByName finds a metric by its Prometheus name.
func ByName(name string) (Metric, bool) {
	m, ok := byName()[name]
	return m, ok
}
