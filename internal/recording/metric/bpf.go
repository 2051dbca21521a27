package metric

import q "github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"

// TCP connections as BPF programs see them begin and end. The counts are exact, however many connections there are,
// and name the process that opened them.
//
// Labels: netns is "target" for the target's network namespace. Other namespaces, which are recorded if the target is
// the whole host, are net:[INODE] as in /proc/PID/ns/net. side is the connection's client or server. It is unknown
// for connections that existed before the recording: neither of their ends is kept. endpoint is what a client
// connects to and what a server listens on (ip:port). pid and comm are the client's that called connect(). They are
// empty for servers and for processes past the bound of the kernel's table.
//
// A server's connections are counted when they are accepted, and their answers when the connections end. How long
// they lived and who closed them is counted only with --deep.
//
// The counts begin when the programs are loaded: a series that begins later in the recording began at zero.
var (
	ConnectAttempts = counter("tcp_connect_attempts_total", q.Connections, tpState,
		"Connections begun: connect() of clients, accepted ones of servers.", flow()...)
	Connects        = counter("tcp_connects_total", q.Connections, tpState, "Connections established.", flow()...)
	ConnectFailures = counter("tcp_connect_failures_total", q.Connections, tpState+", sk_err",
		"Connects that failed. error is EADDRNOTAVAIL (no local port: nothing was sent), ECONNREFUSED, ETIMEDOUT, "+
			"EHOSTUNREACH or other (the program gave up before there was an answer).", flow("error")...)
	ConnectsBound = counter("tcp_connects_bound_total", q.Connections, tpState+", sk_userlocks",
		"Connects whose local port bind() had taken: to port 0, without IP_BIND_ADDRESS_NO_PORT.", flow()...)
	ConnectSeconds = counter("tcp_connect_seconds_total", q.Seconds, tpState, "Time that established connections "+
		"took to connect: from SYN_SENT to ESTABLISHED, search for a local port included.", flow()...)
	ConnectDurations = counter("tcp_connect_durations_total", q.Connections, tpState,
		"Connections by the time they took to connect: at most so many seconds, and more than the next smaller bound.",
		flow("at_most")...)
	PortSearches = counter("tcp_port_searches_total", q.Connections, tpState+", tcp_wstamp_ns",
		"Connects for which the duration of the kernel's search for a local port is known.", flow()...)
	PortSearchSeconds = counter("tcp_port_search_seconds_total", q.Seconds, tpState+", tcp_wstamp_ns",
		"Time of these from SYN_SENT until the first SYN was sent, or until no port was found.", flow()...)
	PortSearchLongest = gauge("tcp_port_search_longest_seconds", q.Seconds, tpState+", tcp_wstamp_ns",
		"The longest of them.", flow()...)
	ConnectionsClosed = counter("tcp_connections_closed_total", q.Connections, tpState,
		"Connections that ended. first is who closed first: local (this side, which then holds the TIME_WAIT), peer, "+
			"both, or reset.", flow("first")...)
	ConnectionSeconds = counter("tcp_connection_seconds_total", q.Seconds, tpState,
		"How long connections that ended were established.", flow()...)
	ConnectionLives = counter("tcp_connection_lives_total", q.Connections, tpState,
		"Connections that ended by how long they were established: at most so many seconds, and more than the next "+
			"smaller bound.", flow("at_most")...)
	ConnectionBytes = counter("tcp_connection_bytes_total", q.Bytes, "tcp_sock bytes_sent, bytes_retrans, "+
		"bytes_received", "Bytes of connections that ended; direction is sent or received.", flow("direction")...)
	ConnectionTurns = counter("tcp_connection_turns_total", q.Events, "tcp_sock data_segs_out, data_segs_in",
		"Requests with an answer that connections that ended can have had at most: the lesser of the data segments "+
			"sent and received, connection by connection.", flow()...)
	ConnectionsTurnedAway = counter("tcp_connections_turned_away_total", q.Connections,
		"tcp_sock data_segs_out, data_segs_in, icsk_ack.lrcvtime",
		"Accepted connections that the server closed first within a second of what the client sent last: after no "+
			"exchange, or with a request unread (exchanges is none), or after three at most (few); these also if the "+
			"client closed first and was sent less than 256 bytes.", flow("exchanges")...)
	RequestsGivenUp = counter("tcp_requests_given_up_total", q.Connections, tcpSent,
		"Connections that the client closed first, or reset, when it had waited for an answer for a tenth of a second and "+
			"more.", flow()...)
	RequestsGivenUpSeconds = counter("tcp_requests_given_up_seconds_total", q.Seconds, tcpSent,
		"How long it had waited.", flow()...)
	ResetsUnanswered = counter("tcp_resets_unanswered_total", q.Connections, tcpSent,
		"Connections that ended by a reset, of either side, while a request had no answer.", flow()...)
	FlowRetransmits = counter("tcp_flow_retransmits_total", q.Segments, "tp_btf/tcp_retransmit_skb",
		"Retransmitted segments; kind is syn (connecting) or data.", flow("kind")...)
	FlowResets = counter("tcp_flow_resets_total", q.Segments, "tp_btf/tcp_receive_reset, tcp_send_reset",
		"Resets; direction is sent or received.", flow("direction")...)
)

// ExchangeDurations covers the target only. side is the connection's server or client. endpoint is the server's own
// address that received the request, or the address that the client asked (ip:port).
var ExchangeDurations = counter("tcp_exchange_durations_total", q.Events,
	"tp_btf/tcp_probe, tcp_rcv_space_adjust, tcp_sock tcp_wstamp_ns",
	"Exchanges of the target's TCP connections by the time they took: at most so many seconds, and more than the next "+
		"smaller bound, a sixteenth of a power of two below. An exchange is what one side sent until the other did, "+
		"and the answer to it: requests that are sent together and answered together are one. A server's is from "+
		"the arrival of its first segment until the answer's last one is sent; a client's from its last segment "+
		"until the answer is read. It is counted when the next one begins or the connection ends. Where more than 40,000 "+
		"segments a second come on a CPU, it is done for an eighth of the time, and scaled by all segments.",
	"side", "endpoint", "at_most")

// The values of the label exchanges of [ConnectionsTurnedAway].
const (
	ExchangesNone = "none"
	ExchangesFew  = "few"
)

const tcpSent = "tcp_sock lsndtime, icsk_ack.lrcvtime"

const tpState = "tp_btf/inet_sock_set_state"

// flow returns the labels of a flow's metrics.
func flow(more ...string) []string {
	return append([]string{"netns", "side", "endpoint", "pid", "comm"}, more...)
}

// Sockets whose local port bind() chooses: it comes from one pool for each source address, whatever the destination.
//
// source is the requested address, or the unspecified one if the program had no wish. pid and comm belong to the
// process that called bind().
var (
	BindsAsked = counter("tcp_binds_any_port_total", q.Sockets, cgBind,
		"Calls of bind() for port 0 without IP_BIND_ADDRESS_NO_PORT.", "netns", "source", "pid", "comm")
	BindsFound = counter("tcp_binds_any_port_found_total", q.Sockets, cgBind, "Those of them that got a port. "+
		"The others failed: with EADDRINUSE if no port was left.", "netns", "source", "pid", "comm")
	BindSearchSeconds = counter("tcp_bind_search_seconds_total", q.Seconds, cgBind,
		"Time that those that got a port took to find it.", "netns", "source", "pid", "comm")
)

const cgBind = "BPF_CGROUP_INET4_BIND, BPF_CGROUP_INET4_POST_BIND and those of INET6"

// The cost of the BPF programs themselves.
var (
	BPFRuns = counter("bpf_program_runs_total", q.Events, "bpf(2) BPF_OBJ_GET_INFO_BY_FD run_cnt",
		"Runs of perfdoctor's own BPF programs while they were measured.", "program")
	BPFSeconds = counter("bpf_program_seconds_total", q.Seconds, "bpf(2) BPF_OBJ_GET_INFO_BY_FD run_time_ns",
		"CPU time of perfdoctor's own BPF programs, over all CPUs, while they were measured; it is in the time of "+
			"what they interrupt.", "program")
	// BPFMeasured exists because the kernel's measurement costs more than most of the programs: 0.1 µs a run.
	BPFMeasured = counter("bpf_program_measured_seconds_total", q.Seconds, "bpf(2) BPF_ENABLE_STATS",
		"Time for which the kernel measured perfdoctor's own BPF programs: a part of the recording, as it costs 0.1 "+
			"µs a run.", "program")
)

// ExchangesCounted is how long exchanges were counted: less than the recording if they were counted in turns.
var ExchangesCounted = counter("tcp_exchanges_counted_seconds_total", q.Seconds,
	"tp_btf/tcp_probe, tcp_rcv_space_adjust",
	"Time for which the exchanges in tcp_exchange_durations_total were seen: all of it, or an eighth where more than "+
		"40,000 segments a second come on a CPU. Then their times are those of a sample.")

// The target's answers that were sent within two milliseconds of a timer. Answers that are sent at any time fall into
// this time in proportion to its share of the whole.
var (
	ExchangesAtTimer = counter("tcp_exchanges_at_timer_total", q.Events,
		"tp_btf/hrtimer_expire_entry, tcp_sock tcp_wstamp_ns",
		"Exchanges seen for tcp_exchange_durations_total, with the target as the server, whose answer was sent within "+
			"1 to 2 ms of the end of a timed wait of one of its threads.", "endpoint")
	AfterTimer = counter("timed_waits_ended_seconds_total", q.Seconds, "tp_btf/hrtimer_expire_entry",
		"Time within 1 to 2 ms of the end of timed waits of the target's threads.")
)

// The target's questions to name servers over UDP. endpoint is the server asked (ip:port), as the packet leaves.
var (
	DNSQueries = counter("dns_queries_total", q.Events, "tp_btf/net_dev_queue",
		"Questions to a name server over UDP; one that is asked again with the same number, from the same port, is one.",
		"endpoint")
	DNSAnswers = counter("dns_answers_total", q.Events, "tp_btf/netif_receive_skb",
		"Answers to them by the type of the question (A, AAAA, other) and the code of the answer, both as dig names "+
			"them: NOERROR, NXDOMAIN (there is no such name), SERVFAIL.", "endpoint", "type", "code")
	DNSSeconds = counter("dns_query_seconds_total", q.Seconds, "tp_btf/net_dev_queue, netif_receive_skb",
		"Time that the questions went without an answer, summed up: open ones until now, none for more than "+
			"30 s.", "endpoint")
)

// Time in interrupts, which BPF programs measure at the beginning and end of each interrupt, not by ticks. Time of a
// nested interrupt does not count for the outer one.
var (
	SoftirqsTimed = counter("softirqs_timed_total", q.Events, "tp_btf/softirq_entry, softirq_exit",
		"Softirqs per CPU and vector that were timed: all, or if a CPU had more than 2,000 a second, those in a "+
			"twentieth of each second. softirqs_total has all.", "cpu", "vector")
	SoftirqSeconds = counter("softirq_seconds_total", q.Seconds, "tp_btf/softirq_entry, softirq_exit",
		"Time in softirqs per CPU and vector (HI, TIMER, NET_TX, NET_RX, BLOCK, IRQ_POLL, TASKLET, SCHED, HRTIMER, "+
			"RCU), without hardware interrupts in between. Those that were not timed (softirqs_timed_total) count as "+
			"long as the last 100 or more that were.", "cpu", "vector")
	SoftirqDurations = counter("softirq_durations_total", q.Events, "tp_btf/softirq_entry, softirq_exit",
		"Softirqs whose time was taken (softirqs_timed_total) by how long they took, without hardware interrupts in "+
			"between: at most so many seconds, and more than the next smaller bound. Of all CPUs.", "vector", "at_most")
	SoftirqTimedSeconds = counter("softirq_timed_seconds_total", q.Seconds, "tp_btf/softirq_entry, softirq_exit",
		"Time of those whose time was taken, without hardware interrupts in between. Of all CPUs.", "vector")
	HardirqRuns = counter("hardirq_runs_total", q.Events, "tp_btf/irq_handler_entry, irq_vectors",
		"Hardware interrupts handled per CPU and line since the recording began.", "cpu", "irq")
	HardirqSeconds = counter("hardirq_seconds_total", q.Seconds, "tp_btf/irq_handler_entry, irq_vectors",
		"Time in handlers of hardware interrupts per CPU and line: its number as in /proc/interrupts, or on x86 LOC, "+
			"RES, CAL and IWI as there.", "cpu", "irq")
)

var waitLabels = []string{"pid", "tid", "comm", "syscall", "for", "on"}

// The system calls of the target's processes that began and ended in the window.
var (
	SyscallCalls = overWindow("target_syscalls", q.Events, "tp_btf/sys_enter, sys_exit", "System calls by name.",
		"syscall")
	SyscallErrors = overWindow("target_syscall_errors", q.Events, "tp_btf/sys_exit",
		"Those that failed, by errno; ERESTART is a signal, after which the kernel or the program begins anew.",
		"syscall", "error")
	SyscallSeconds = overWindow("target_syscall_seconds", q.Seconds, "tp_btf/sys_enter, sys_exit",
		"Time in them, over all threads, whether they ran or waited.", "syscall")
	SyscallBytes = overWindow("target_syscall_bytes", q.Bytes, "tp_btf/sys_exit",
		"Bytes that calls of the read, write, send and receive families moved.", "syscall")
	SyscallDurations = overWindow("target_syscall_durations", q.Events, "tp_btf/sys_enter, sys_exit",
		"System calls by how long they took: at most so many seconds, and more than the next smaller bound.", "syscall",
		"at_most")
)

// What the target's threads waited for over the window, from the scheduler's own events, for processes that existed
// at its beginning. The metrics are read once, at its end. The stacks of the other waits are in the off-CPU profile.
var (
	ThreadCPUWait = overWindow("thread_cpu_wait_seconds", q.Seconds, "tp_btf/sched_switch, sched_wakeup",
		"Time in the window that a thread waited for a CPU while its cgroup had quota left: unlike the run delay of "+
			"schedstat it has no time of throttling in it.", "pid", "tid", "comm")
	ThreadCPUWaits = overWindow("thread_cpu_waits", q.Events, "tp_btf/sched_switch, sched_wakeup",
		"Waits for a CPU in the window.", "pid", "tid", "comm")
	ThreadThrottledTime = overWindow("thread_throttled_seconds", q.Seconds,
		"tp_btf/sched_switch, cfs_rq throttle_count, throttled_clock_pelt_time",
		"Time in the window of waits that began while the quota of the thread's cgroup, or of one above it, was used "+
			"up. Of other waits, only the part in which it was used up counts.", "pid", "tid", "comm")
	ThreadSleepTime = overWindow("thread_sleep_seconds", q.Seconds, "tp_btf/sched_switch, sched_wakeup",
		"Time in the window that a thread waited for something else than a CPU, until it was woken or the "+
			"window ended.", "pid", "tid", "comm")
	ThreadWaitTime = overWindow("thread_wait_seconds", q.Seconds, "tp_btf/sched_switch, task_pt_regs",
		"Time in the window that a thread waited in a system call (none: in a page fault) for one thing: answer (from "+
			"a destination, after sending to it), message (from a destination, without that), connect, room (the peer "+
			"takes no more), request (from a client of its own port), client (to accept), socket (any other), "+
			"mutex (a futex whose value says that it is a lock), futex, pipe, file, other. on is the destination's or "+
			"own address, or the futex's. Sampled as the off-CPU profile is.", waitLabels...)
	ThreadWaits = overWindow("thread_waits", q.Events, "tp_btf/sched_switch, task_pt_regs",
		"Waits of that time.", waitLabels...)
	FutexWakes = overWindow("futex_wakes", q.Events, "tp_btf/sched_waking",
		"Waits for a futex that a thread ended by its own call of futex(2); at is where it was then, the innermost "+
			"function first.", "pid", "on", "waker_pid", "waker", "waker_comm", "at")
	CPUWaitDurations = overWindow("target_cpu_waits", q.Events, "tp_btf/sched_switch, sched_wakeup",
		"Waits for a CPU of all the target's threads by their length: at most so many seconds, and more than the next "+
			"smaller bound.", "at_most")
)

// The time of the threads of each control group of the host over the window. It covers the threads in the group
// itself, not in groups below it. The group is the cpu controller's, of v1 or v2. unseen sums up groups that were
// removed before the window ended, or that are missing in the file system that perfdoctor sees.
var (
	CgroupCPURun = overWindow("cgroup_run_seconds", q.Seconds, "tp_btf/sched_switch",
		"Time in the window that the group's threads ran.", "cgroup")
	CgroupCPUWait = overWindow("cgroup_cpu_wait_seconds", q.Seconds, "tp_btf/sched_switch, sched_wakeup",
		"Time in the window that the group's threads waited for a CPU while they had quota left, summed over threads.",
		"cgroup")
	CgroupCPUWaits = overWindow("cgroup_cpu_waits", q.Events, "tp_btf/sched_switch, sched_wakeup",
		"Waits of the group's threads for a CPU that ended in the window.", "cgroup")
	RunQueueWaits = overWindow("run_queue_waits", q.Events, "tp_btf/sched_switch, sched_wakeup",
		"Waits of all threads of the host for a CPU that ended in the window, by their length without the time in "+
			"which a quota stopped them: at most so many seconds, and more than the next smaller bound.", "at_most")
	RunQueueWaitSeconds = overWindow("run_queue_wait_seconds", q.Seconds, "tp_btf/sched_switch, sched_wakeup",
		"Time of the waits of run_queue_waits.")
	CgroupThrottledWait = overWindow("cgroup_throttled_wait_seconds", q.Seconds,
		"tp_btf/sched_switch, cfs_rq throttle_count, throttled_clock_pelt_time", "Time in the window that the group's "+
			"runnable threads were stopped by a quota of its own or above it, summed over threads.", "cgroup")
)
