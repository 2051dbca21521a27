package metric

import q "github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"

const statfs = "/proc/PID/fd, statfs(2)"

// The target and its processes. Without a target these are the host's busiest processes.
var (
	TargetInfo = info("target_info", "/proc/PID", "The target: kind (host, process, cgroup, container), first pid, "+
		"name, runtime (jvm, go, python, node, native), container id and user.",
		"kind", "pid", "comm", "runtime", "container", "user")
	ProcessCPU = counter("process_cpu_seconds_total", q.Seconds, "/proc/PID/stat",
		"CPU time per process and mode (user, system); member is \"target\" for the target and its children, else "+
			"\"host\".", "pid", "comm", "mode", "member")
	ProcessChildrenCPU = counter("process_children_cpu_seconds_total", q.Seconds, "/proc/PID/stat",
		"CPU time of a process's children that have ended and that it has waited for, and of theirs, per mode (user, "+
			"system): also of those that began and ended between two readings. No series while it is 0; member as of "+
			"process_cpu_seconds_total.", "pid", "comm", "mode", "member")
	ProcessInfo = info("process_info", "/proc/PID/{stat,cgroup,status}", "A process of the host outside the "+
		"target, with the pid of its parent; those with the most CPU time or memory also have control group, "+
		"container and user.", "pid", "comm", "parent", "cgroup", "container", "user")
	HostProcessRSS = gauge("host_process_resident_bytes", q.Bytes, "/proc/PID/stat",
		"Resident memory of the host's processes that are not the target's.", "pid", "comm")
	HostProcessIO = counter("host_process_io_bytes_total", q.Bytes, "/proc/PID/io",
		"Bytes that processes of the host, the target's aside, had read from and written to disks; direction is read or "+
			"write.", "pid", "comm", "direction")
	HostProcessDelay = gauge("host_process_run_delay_seconds", q.Seconds, "/proc/PID/task/TID/schedstat",
		"Time that the current threads of a process of the host were runnable but not running, since each began. "+
			"The target's processes are left out. "+sleepsCounted, "pid", "comm")
	ProcessFaults = counter("process_page_faults_total", q.Faults, "/proc/PID/stat",
		"Page faults of the target's processes; kind is minor or major.", "pid", "comm", "kind")
	ProcessRSS = gauge("process_resident_bytes", q.Bytes, "/proc/PID/stat",
		"Resident memory of the target's processes.", "pid", "comm")
	ProcessPrivate = gauge("process_private_bytes", q.Bytes, "/proc/PID/statm",
		"Resident memory of the target's processes, the 32 busiest, that is neither of a file nor shared: heaps and "+
			"stacks.", "pid", "comm")
	ProcessThreads = gauge("process_threads", q.Threads, "/proc/PID/stat", "Threads of the target's processes.",
		"pid", "comm")
	ProcessFDs = gauge("process_open_fds", q.Files, "/proc/PID/fd", "Open file descriptors of the target's "+
		"processes (st_size of the directory since kernel 6.2, else counted).", "pid", "comm")
	ProcessFDLimit = gauge("process_max_fds", q.Files, "/proc/PID/limits", "Soft RLIMIT_NOFILE.", "pid", "comm")
	ProcessCalls   = counter("process_io_calls_total", q.Events, "/proc/PID/io", "Calls of the target's processes, the 32 "+
		"busiest, that read or wrote: read(2), write(2) and their kin, of files, pipes and sockets; recv(2) and "+
		"send(2) are not among them. direction is read or write.", "pid", "comm", "direction")
	ProcessCallBytes = counter("process_io_call_bytes_total", q.Bytes, "/proc/PID/io", "Bytes that they read and wrote.",
		"pid", "comm", "direction")
	FileSystemSize = gauge("target_filesystem_bytes", q.Bytes, statfs, "Size of a file system on which the target has "+
		"files open for writing; dir is the directory of one. Of a whole host that of its root.", "pid", "comm", "dir")
	FileSystemFree = gauge("target_filesystem_free_bytes", q.Bytes, statfs, "What is left of it for the target's user.",
		"pid", "comm", "dir")
	FileSystemInodes = gauge("target_filesystem_inodes", q.Files, statfs, "Files it can hold; none where they are not "+
		"counted.", "pid", "comm", "dir")
	FileSystemUnused = gauge("target_filesystem_free_inodes", q.Files, statfs, "Files that it can still hold.",
		"pid", "comm", "dir")
	ProcessStart = gauge("process_age_seconds", q.Seconds, "/proc/PID/stat", "Time since the process started: of the "+
		"target's and of the host's others.", "pid", "comm")
	ThreadCPU = counter("thread_cpu_seconds_total", q.Seconds, "/proc/PID/task/TID/stat",
		"CPU time per thread of the target and mode (user, system).", "pid", "tid", "comm", "mode")
	ThreadSwitches = counter("thread_context_switches_total", q.Switches, "/proc/PID/task/TID/status",
		"Context switches per thread; kind is voluntary or involuntary.", "pid", "tid", "comm", "kind")
	ThreadRunDelay = counter("thread_run_delay_seconds_total", q.Seconds, "/proc/PID/task/TID/schedstat",
		"Time a thread was runnable but not running (CONFIG_SCHED_INFO). "+sleepsCounted, "pid", "tid", "comm")
	TargetCPUs = gauge("target_allowed_cpus", q.CPUs, "/proc/PID/task/TID/status", "Online CPUs on which some "+
		"thread of the target that ran may run; cpu is \"all\" or the number of one CPU.", "cpu")
	ThreadStates = gauge("target_threads", q.Threads, "/proc/PID/task/TID/stat",
		"Threads of the target by state letter (R, S, D, T, Z, I).", "state")
	ThreadPools = gauge("target_pool_threads", q.Threads, "/proc/PID/task/TID/comm",
		"Threads of the target per pool: the thread name with its number taken off (\"GC Thread\", "+
			"\"nioEventLoopGro\").", "pool")
	ConnectionWaitTime = overWindow("tcp_connection_wait_seconds", q.Seconds,
		"/proc/PID/task/TID/syscall, NETLINK_SOCK_DIAG, sampled",
		"Time in the window that the target's threads stood in a system call for an answer on one connection, seen from "+
			"its client: source is its own end of it, destination the other. The 200 with the longest times.",
		"pid", "comm", "source", "destination")
	ThreadStateTime = overWindow("thread_state_seconds", q.Seconds, "/proc/PID/task/TID/{stat,syscall}, sampled",
		"Time in the window that a thread stood in one place. state is running (or ready to), waiting, disk "+
			"(uninterruptible), stopped or traced; for is what a waiting thread waits for: answer (from a "+
			"destination), message (from one that was not asked), request (from a client of an own port), client (to "+
			"accept), connect, room (the peer takes no more), socket (any other), "+
			"pipe, file, lock (of a file), mutex (held by on), futex, sleep, child, events (of any of several "+
			"descriptors), signal, memory (a page fault), other. on is the destination, own port, process, file or "+
			"address. The series beyond the first 500 are summed up by pool, without tid. With more than "+
			"1,000 threads only some are looked at; those sums also cover the threads that they stand for.",
		"pid", "tid", "comm", "state", "syscall", "for", "on")
	ThreadStillTime = overWindow("thread_still_seconds", q.Seconds, "/proc/PID/task/TID/{stat,syscall,schedstat}",
		"How long a thread stood in one place without running once: from when it was first seen to the end of the "+
			"window. No series of a thread that ran.", "pid", "tid", "comm", "state", "syscall", "for", "on")
	ThreadStatePasses = overWindow("thread_state_passes", q.Events, "/proc/PID/task",
		"How often all threads were looked at for thread_state_seconds.")
	TargetListenPorts = info("target_listen_info", "NETLINK_SOCK_DIAG, /proc/PID/fd",
		"Addresses the target's processes listen on.", "listener", "pid", "comm")
)

// Control groups: one series per level, from the target's own group up to the root. level is 0 for the target's own,
// 1 for its parent, and so on; cgroup is the path in its hierarchy.
var (
	CgroupQuota = gauge("cgroup_cpu_quota", q.CPUs, "cpu.max, cpu.cfs_quota_us",
		"CPU limit in CPUs (quota / period); no series for a level without a limit.", "cgroup", "level")
	CgroupPeriod = gauge("cgroup_cpu_period_seconds", q.Seconds, "cpu.max, cpu.cfs_period_us",
		"Enforcement period of the limit.", "cgroup", "level")
	CgroupBurst = gauge("cgroup_cpu_burst_seconds", q.Seconds, "cpu.max.burst, cpu.cfs_burst_us",
		"Unused quota a group may save up (kernel 5.14).", "cgroup", "level")
	CgroupShares = gauge("cgroup_cpu_request", q.CPUs, "cpu.weight, cpu.shares",
		"What a Kubernetes CPU request of this weight would be: shares / 1024.", "cgroup", "level")
	CgroupPeriods = counter("cgroup_cpu_periods_total", q.Periods, "cpu.stat nr_periods",
		"Enforcement periods in which the group had something to run.", "cgroup", "level")
	CgroupThrottled = counter("cgroup_cpu_throttled_periods_total", q.Periods, "cpu.stat nr_throttled",
		"Periods in which the group used up its quota and was stopped.", "cgroup", "level")
	CgroupThrottledTime = counter("cgroup_cpu_throttled_seconds_total", q.Seconds,
		"cpu.stat throttled_usec, throttled_time", "Time the group was stopped, a sum over CPUs that can exceed "+
			"wall time.", "cgroup", "level")
	CgroupCPU = counter("cgroup_cpu_seconds_total", q.Seconds, "cpu.stat usage_usec, cpuacct.usage",
		"CPU time of the group and its descendants.", "cgroup", "level")
	CgroupCpuset = gauge("cgroup_cpuset_cpus", q.CPUs, "cpuset.cpus.effective", "CPUs the group may run on.",
		"cgroup", "level")
	CgroupMemory = gauge("cgroup_memory_bytes", q.Bytes, "memory.current, memory.usage_in_bytes",
		"Memory charged to the group, page cache included.", "cgroup", "level")
	CgroupWorkingSet = gauge("cgroup_memory_working_set_bytes", q.Bytes, "memory.stat",
		"Memory less inactive page cache: what cannot simply be dropped.", "cgroup", "level")
	CgroupMemoryLimit = gauge("cgroup_memory_limit_bytes", q.Bytes, "memory.max, memory.limit_in_bytes",
		"Memory limit; no series for a level without one.", "cgroup", "level")
	CgroupOOMKills = counter("cgroup_oom_kills_total", q.Events, "memory.events oom_kill, memory.oom_control",
		"Processes of the group killed for memory (v1: kernel 4.13).", "cgroup", "level")
	CgroupMemoryMax = counter("cgroup_memory_limit_hits_total", q.Events, "memory.events max, memory.failcnt",
		"Times the limit was reached and memory had to be reclaimed.", "cgroup", "level")
	CgroupPIDs      = gauge("cgroup_pids", q.Threads, "pids.current", "Threads in the group.", "cgroup", "level")
	CgroupPIDsLimit = gauge("cgroup_pids_limit", q.Threads, "pids.max",
		"Most threads the group may have; no series without a limit.", "cgroup", "level")
	CgroupDir = info("cgroup_dir_info", "/proc/PID/cgroup, /proc/PID/mountinfo",
		"Where a level's files of a controller (cpu, memory, pids) are, for the commands that a report prints; "+
			"version is 1 or 2.", "cgroup", "level", "controller", "version", "dir")
	CgroupPressure = counter("cgroup_pressure_stalled_seconds_total", q.Seconds,
		"cpu.pressure, memory.pressure, io.pressure", "PSI of the group (v2).", "cgroup", "level", "resource", "kind")
)

// Profiles of the target: each is in the recording beside the metric that announces it (see
// docs/recording-format.md).
var (
	CPUProfileSamples = overWindow("cpu_profile_samples", q.Events, "profiles/cpu.pb.gz",
		"Samples of the profile of what the target's threads ran on the CPUs.")
	WallProfileSamples = overWindow("wall_profile_samples", q.Events, "profiles/wall.pb.gz",
		"Samples of the profile of all threads in turn, whether they ran or waited.")
	GoroutineProfileSamples = overWindow("goroutine_profile_samples", q.Events, "profiles/goroutine.pb.gz",
		"Samples of the profile of what the goroutines of programs in Go run or wait for.")
	WaitProfileSamples = overWindow("wait_profile_samples", q.Events, "profiles/waits.pb.gz",
		"Samples of the profile of where threads of a program of machine code wait in system calls.")
	ScriptWallProfileSamples = overWindow("script_wall_profile_samples", q.Events, "profiles/script-wall.pb.gz",
		"Samples of the profile of what all threads of Python and Ruby run or wait for, and what event loops of "+
			"Node.js and scripts of PHP wait for but events, as functions of their scripts.")
	CoroutineProfileSamples = overWindow("coroutine_profile_samples", q.Events, "profiles/coroutine.pb.gz",
		"Samples of the profile of the coroutines of Python (asyncio) that stand at an await: a search of the "+
			"interpreter's memory finds them, some times in the window.")
	GoRuntime = info("go_runtime_info", "/proc/PID/exe (.go.buildinfo)",
		"Programs in Go whose goroutines are in that profile, with the version of Go that built them.", "pid", "version")
	AllocProfileSamples = overWindow("alloc_profile_samples", q.Events, "profiles/alloc.pb.gz",
		"Samples of the profile of the objects allocated.")
	LockProfileSamples = overWindow("lock_profile_samples", q.Events, "profiles/lock.pb.gz",
		"Waits in the profile of contended locks.")
	OffCPUProfileSamples = overWindow("off_cpu_profile_samples", q.Events, "profiles/off-cpu.pb.gz",
		"Waits in the profile of the time threads were off the CPUs.")
	ScriptProfileSamples = overWindow("script_profile_samples", q.Events, "profiles/script-cpu.pb.gz",
		"Samples of the profile of the functions that the target's interpreters ran on the CPUs.")
	ScriptRuntime = info("script_runtime_info", "process_vm_readv(2)",
		"Processes whose functions are in that profile; runtime is such as CPython 3.11.", "pid", "runtime")
	ScriptLockWait = overWindow("script_lock_wait_seconds", q.Seconds, "/proc/PID/task/TID/syscall, sampled",
		"Time in the window that threads of CPython or Ruby stood in a wait for the interpreter's lock (GIL, GVL), all "+
			"together: they wait in futex(2) at an address in the interpreter's own data.", "pid")
	HostCPUProfileSamples = overWindow("host_cpu_profile_samples", q.Events, "profiles/host-cpu.pb.gz",
		"Samples of the profile of what the CPUs ran, of all processes, in the kernel and in programs.")
)
