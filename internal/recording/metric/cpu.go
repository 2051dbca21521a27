package metric

import q "github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"

// sleepsCounted is a property of delayed dequeue (152e11f6df29). It ended when the kernel left such threads where
// they are (61b82dfb6b7e).
const sleepsCounted = "Linux 6.12 and 6.13 may count a sleep too, of a thread moved to another CPU while it falls " +
	"asleep (kernel/sched/core.c, sched_info_enqueue)."

// CPU time and the kernel's per-CPU bookkeeping. All are for the whole host: these files are not namespaced.
var (
	CPUSeconds = counter("cpu_seconds_total", q.Seconds, "/proc/stat",
		"CPU time per CPU and mode: user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice. guest "+
			"is also counted in user (kernel/sched/cputime.c).",
		"cpu", "mode")
	Softirqs = counter("softirqs_total", q.Events, "/proc/softirqs",
		"Softirqs run per CPU and vector. A count, not a time: a saturated core runs few, long ones.", "cpu", "vector")
	Interrupts = counter("interrupts_total", q.Events, "/proc/interrupts",
		"Hardware interrupts per line, device and CPU; only lines that ever fired.", "irq", "device", "cpu")
	IRQAffinity = info("irq_affinity_info", "/proc/irq/N/effective_affinity_list",
		"CPUs that a device's interrupt line is delivered to.", "irq", "device", "cpus")
	SoftnetProcessed = counter("softnet_processed_packets_total", q.Packets, "/proc/net/softnet_stat",
		"Packets processed by a CPU's backlog or NAPI (net/core/net-procfs.c).", "cpu")
	SoftnetDropped = counter("softnet_dropped_packets_total", q.Packets, "/proc/net/softnet_stat",
		"Packets dropped because a CPU's backlog was full.", "cpu")
	SoftnetSqueezed = counter("softnet_times_squeezed_total", q.Events, "/proc/net/softnet_stat",
		"Times net_rx_action ran out of budget with work left; not a loss.", "cpu")
	SoftnetRPS = counter("softnet_received_rps_total", q.Events, "/proc/net/softnet_stat",
		"Times a CPU was woken by another to process its backlog (RPS).", "cpu")
	ContextSwitches = counter("context_switches_total", q.Switches, "/proc/stat", "Context switches of the whole host.")
	Forks           = counter("forks_total", q.Events, "/proc/stat", "Processes and threads created.")
	ProcsRunning    = gauge("procs_running", q.Threads, "/proc/stat",
		"Threads running or runnable on the whole host; of perfdoctor, only the one that reads.")
	ProcsBlocked = gauge("procs_blocked", q.Threads, "/proc/stat", "Threads blocked on I/O on the whole host.")
	Load         = gauge("load_average", q.None, "/proc/loadavg",
		"Load average over 1, 5 and 15 minutes: runnable plus uninterruptible threads.", "window")
	Pressure = counter("pressure_stalled_seconds_total", q.Seconds, "/proc/pressure",
		"Time in which some or all (full) tasks stalled on cpu, memory or io (Documentation/accounting/psi.rst).",
		"resource", "kind")
	CPURunDelay = counter("cpu_run_delay_seconds_total", q.Seconds, "/proc/schedstat",
		"Time tasks waited on a CPU's run queue; needs CONFIG_SCHEDSTATS "+
			"(Documentation/scheduler/sched-stats.rst). "+sleepsCounted, "cpu")
	CPUsOnline = gauge("cpus_online", q.CPUs, "/sys/devices/system/cpu/online", "CPUs online on the host.")
	Uptime     = gauge("uptime_seconds", q.Seconds, "/proc/uptime", "Time since boot.")
	HostInfo   = info("host_info", "uname(2), /proc/cpuinfo, /sys/hypervisor, /sys/class/dmi",
		"Kernel, machine, CPU model and virtualisation.", "kernel", "machine", "cpu_model", "virtualization")
	Clocksource = info("clocksource_info", "/sys/devices/system/clocksource/clocksource0",
		"Clock source in use and those available.", "current", "available")
	Governor = info("cpufreq_governor_info", "/sys/devices/system/cpu/cpuN/cpufreq/scaling_governor, scaling_driver",
		"Frequency governor and cpufreq driver per CPU; no series where the CPU has none. \"powersave\" means another "+
			"thing with intel_pstate than with acpi-cpufreq.", "cpu", "governor", "driver")
)

// Hardware and software performance counters.
var (
	PerfEvents = counter("perf_events_total", q.Events, "perf_event_open(2)",
		"Events counted for the target's threads or the host, scaled for multiplexing; task-clock is in nanoseconds.",
		"scope", "event")
	PerfRunning = gauge("perf_events_running_ratio", q.Ratio, "perf_event_open(2)",
		"Share of the enabled time in which the event was really on a counter; below one the count is an estimate.",
		"scope", "event")
	PerfUnavailable = info("perf_events_unavailable_info", "perf_event_open(2)",
		"Events that this machine or user cannot count, and why; \"cycles:k\" is what cycles lack when only user mode "+
			"is counted.",
		"scope", "event", "reason")
)
