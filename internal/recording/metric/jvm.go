package metric

import q "github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"

// hsperf is where HotSpot's counters are. Reading them costs the JVM nothing: it keeps them in shared memory anyway.
const hsperf = "hsperfdata "

const histogram = "jcmd GC.class_histogram -all"

// UnknownCause is the cause of collections whose cause is not known.
const UnknownCause = "unknown"

// Java virtual machines among the target's processes. pid is the one in perfdoctor's pid namespace. A counter that is
// missing in a HotSpot JVM's release or collector has no series.
var (
	JVMInfo = info("jvm_info", "/proc/PID/maps",
		"A Java virtual machine: kind is HotSpot, OpenJ9 or GraalVM native image; only HotSpot is looked into.", "pid",
		"comm", "kind")
	JVMVersion = info("jvm_version_info", hsperf+"java.property.java.vm.version, sun.gc.policy.name",
		"Version of the JVM and its garbage collector (Serial, Parallel, G1, Z, Shenandoah).", "pid", "version",
		"collector")
	JVMUptime = gauge("jvm_uptime_seconds", q.Seconds, hsperf+"sun.rt.createVmEndTime",
		"Time since the JVM was created.", "pid")

	JVMGCSeconds = counter("jvm_gc_seconds_total", q.Seconds, hsperf+"sun.gc.collector.N.time",
		"Time in collections. kind is young, full, concurrent (pauses of a concurrent cycle) or cycle (Shenandoah "+
			"counts the concurrent work in); JDK 11's Z counts nothing.", "pid", "kind")
	JVMGCs = counter("jvm_gcs_total", q.Events, hsperf+"sun.gc.collector.N.invocations",
		"Collections, of the same kinds.", "pid", "kind")
	JVMGCCause = info("jvm_gc_cause_info", hsperf+"sun.gc.cause, sun.gc.lastCause",
		"Cause of the collection that ran, or had run last, at each sample.", "pid", "cause")
	JVMGCsByCause = counter("jvm_gcs_by_cause_total", q.Events,
		hsperf+"sun.gc.cause, sun.gc.lastCause, sun.gc.collector.N.invocations",
		"Collections since perfdoctor began to look, by the cause that HotSpot gives, read every 5 ms; cause is "+
			"unknown for those that came closer together.",
		"pid", "kind", "cause")

	JVMOperations = overWindow("jvm_recent_operations", q.Events, "jcmd VM.info, VM Operations",
		"Operations of the VM thread in the window, among the last 10 to 20 in HotSpot's log: collections by their "+
			"exact cause (since JDK 21; before, the operation tells).",
		"pid", "operation", "cause")

	JVMSafepoints = counter("jvm_safepoints_total", q.Events, hsperf+"sun.rt.safepoints",
		"Times all threads were stopped.", "pid")
	JVMSafepointSeconds = counter("jvm_safepoint_seconds_total", q.Seconds,
		hsperf+"sun.rt.safepointTime, sun.rt.safepointSyncTime",
		"Time in safepoints, reaching them included (JDK 11 counts that in, later ones beside: it is added).", "pid")
	JVMSafepointSync = counter("jvm_safepoint_sync_seconds_total", q.Seconds, hsperf+"sun.rt.safepointSyncTime",
		"Time to reach safepoints: some threads stand, others still run.", "pid")
	JVMApplication = counter("jvm_application_seconds_total", q.Seconds, hsperf+"sun.rt.applicationTime",
		"Time between safepoints; counted when the next one begins.", "pid")

	JVMCompileSeconds = counter("jvm_compile_seconds_total", q.Seconds, hsperf+"java.ci.totalTime",
		"Time in JIT compilations, a sum over the compiler threads.", "pid")
	JVMThreads = gauge("jvm_threads", q.Threads, hsperf+"java.threads.live, .daemon",
		"Platform threads of Java, live and of these daemon, as the JVM counts.", "pid", "kind")
	JVMThreadsStarted = counter("jvm_threads_started_total", q.Threads, hsperf+"java.threads.started",
		"Platform threads started.", "pid")
	JVMClassesLoaded = counter("jvm_classes_loaded_total", "classes",
		hsperf+"java.cls.loadedClasses, .sharedLoadedClasses", "Classes loaded.", "pid")
	JVMClassSeconds = counter("jvm_class_loading_seconds_total", q.Seconds, hsperf+"sun.cls.time",
		"Time in class loading, a sum over threads.", "pid")
	JVMSuperHash = counter("jvm_secondary_super_hash_seconds_total", q.Seconds,
		hsperf+"sun.cls.secondarySuperHashTime",
		"Time in building the hash tables that make type checks against interfaces cheap (JDK 23 and newer, or 21 "+
			"with the fix).", "pid")
	JVMGCCPU = counter("jvm_gc_cpu_seconds_total", q.Seconds, hsperf+"sun.threads.total_gc_cpu_time",
		"CPU time of the collector's threads (JDK 22; G1 and Parallel update it at their collections).", "pid")

	JVMSpace = gauge("jvm_heap_space_bytes", q.Bytes, hsperf+"sun.gc.generation.N.space.M",
		"A space of the heap: used, capacity, and max, the most it may grow to. Collectors update it at collections, Serial and Parallel every 50 ms.",
		"pid", "generation", "space", "kind")
	JVMClassBytes = gauge("jvm_heap_class_bytes", q.Bytes, histogram, "What the heap held after the window, by class: "+
		"the 30 largest. Asked only where full collections of the window left the old generation full.", "pid", "class")
	JVMClassObjects = gauge("jvm_heap_class_objects", q.Entries, histogram, "Objects of these classes.", "pid", "class")
	JVMMetaspace    = gauge("jvm_metaspace_bytes", q.Bytes, hsperf+"sun.gc.metaspace",
		"Metaspace: used, capacity; updated at collections.", "pid", "kind")

	JVMCPUs = gauge("jvm_cpus", q.CPUs, "jcmd VM.info", "CPUs that the JVM counts on; it sizes its pools "+
		"by them. from is ActiveProcessorCount (set by hand) or detected.", "pid", "from")
	JVMLimit = gauge("jvm_container_cpus", q.CPUs, "jcmd VM.info cpu_quota, cpu_period",
		"CPU limit as the JVM reads it.", "pid")
	JVMMemoryLimit = gauge("jvm_container_memory_bytes", q.Bytes, "jcmd VM.info memory_limit_in_bytes",
		"Memory limit as the JVM reads it.", "pid")
	JVMFlag = info("jvm_flag_info", "jcmd VM.flags -all", "Flags that the checks read, and where their values "+
		"are from (default, ergonomic, command line …).", "pid", "name", "value", "origin")
	JVMCode = gauge("jvm_code_cache_bytes", q.Bytes, "jcmd VM.info CodeHeap",
		"Code cache by heap: used, max_used, size.", "pid", "heap", "kind")
	JVMCodeFull = gauge("jvm_code_cache_full", q.Events, "jcmd VM.info full_count",
		"Times a code heap was full since the JVM's start; compiler is enabled or disabled.", "pid", "compiler")
	JVMAgent = info("jvm_agent_info", "jcmd VM.info, /proc/PID/maps",
		"Agents and profilers in the JVM; kind is library or java.", "pid", "name", "kind")

	JVMSwappedLibrary = info("jvm_swapped_library_info", "/proc/PID/map_files",
		"The library that perfdoctor placed for the JVM, where the JVM has loaded another file in its place: inodes "+
			"written and loaded (0: not known), and the uid of the latter.",
		"pid", "path", "written", "loaded", "uid")

	JVMThread = info("jvm_thread_info", "jcmd Thread.print -e",
		"Full name of a thread (the kernel's is cut at 15 bytes) and its pool: the name with * for each number. At "+
			"the end of the window.", "pid", "tid", "name", "pool")
	JVMPools = gauge("jvm_pool_threads", q.Threads, "jcmd Thread.print -e",
		"Threads per pool, by full name, at the end of the window.", "pid", "pool")
	JVMPoolAllocated = gauge("jvm_pool_allocated_bytes", q.Bytes, "jcmd Thread.print -e",
		"Bytes of Java objects that the pool's threads have allocated since they started.", "pid", "pool")
	JVMStates = gauge("jvm_thread_states", q.Threads, "jcmd Thread.print -e",
		"Java threads by state, at one moment.", "pid", "state")
	JVMMonitorWaiters = gauge("jvm_monitor_waiters", q.Threads, "jcmd Thread.print -e",
		"Threads that wait for a lock at one moment: its class, who holds it, where that thread took it and what it "+
			"is in, and where they wait. Locks of java.util.concurrent name no holder.",
		"pid", "lock", "class", "holder", "holder_at", "holder_in", "waiter_at")
	JVMDeadlock = info("jvm_deadlock_info", "jcmd Thread.print -e", "Threads that wait for each other for ever: "+
		"one series a thread of each cycle.", "pid", "cycle", "thread", "class", "holder", "at")
	JVMDumpSeconds = gauge("jvm_thread_dump_seconds", q.Seconds,
		"jcmd Thread.print -e, hsperfdata sun.rt.safepointTime",
		"What the one thread dump cost the JVM: how long its threads stood still, after the window.", "pid")

	TypeCheckSamples = counter("jvm_type_check_samples_total", q.Events, "perf_event_open cpu-clock, /proc/PID/mem",
		"Samples of the CPUs while a thread of the JVM ran, by where in a type check the program counter was: search "+
			"(next to repne scasq, of a check that the class's memory of one interface does not serve), write (of "+
			"what the search found), compare (just before the jump to a search), or elsewhere (x86-64; "+
			"src/hotspot/cpu/x86/macroAssembler_x86.cpp).",
		"pid", "at")
)

// GCPauseKinds returns the kinds of [JVMGCSeconds] during which the program stands still. Shenandoah counts its
// concurrent work with the pauses of a cycle, so its pauses are not known.
func GCPauseKinds() []string { return []string{"young", "full", "concurrent"} }
