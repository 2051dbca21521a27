package metric

import q "github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"

// Counters of /proc/PID/net/snmp and /proc/PID/net/netstat, per network namespace (include/uapi/linux/snmp.h).
var (
	TCPActiveOpens = netCounter("tcp_active_opens_total", q.Connections, "Tcp ActiveOpens",
		"Connections opened by this side: SYNs sent by connect().")
	TCPPassiveOpens = netCounter("tcp_passive_opens_total", q.Connections, "Tcp PassiveOpens",
		"Connections accepted into SYN_RECV.")
	TCPAttemptFails = netCounter("tcp_attempt_fails_total", q.Connections, "Tcp AttemptFails",
		"Connections that failed before they were established.")
	TCPEstabResets = netCounter("tcp_established_resets_total", q.Connections, "Tcp EstabResets",
		"Established connections that were reset.")
	TCPInSegs  = netCounter("tcp_in_segments_total", q.Segments, "Tcp InSegs", "Segments received.")
	TCPOutSegs = netCounter("tcp_out_segments_total", q.Segments, "Tcp OutSegs",
		"Segments sent, retransmitted ones not counted.")
	TCPRetransSegs = netCounter("tcp_retransmitted_segments_total", q.Segments, "Tcp RetransSegs",
		"Segments retransmitted, SYNs included.")
	TCPOutRsts = netCounter("tcp_out_resets_total", q.Segments, "Tcp OutRsts", "RST segments sent.")

	TCPSynRetrans = netCounter("tcp_syn_retransmits_total", q.Segments, "TcpExt TCPSynRetrans",
		"SYNs and SYN-ACKs retransmitted (kernel 3.16).")
	TCPDSACKRecv = netCounter("tcp_dsacks_received_total", q.Segments, "TcpExt TCPDSACKRecv",
		"Segments that a peer had twice, as it says (RFC 2883): they were retransmitted for nothing.")
	ListenOverflows = netCounter("tcp_listen_overflows_total", q.Connections, "TcpExt ListenOverflows",
		"Connections refused a place because an accept queue was full.")
	ListenDrops = netCounter("tcp_listen_drops_total", q.Connections, "TcpExt ListenDrops",
		"SYNs and ACKs a listener dropped for any reason, overflows included.")
	SyncookiesSent = netCounter("tcp_syncookies_sent_total", q.Connections, "TcpExt SyncookiesSent",
		"SYN cookies sent because a SYN backlog was full.")
	ReqQFullDrop = netCounter("tcp_request_queue_full_drops_total", q.Connections, "TcpExt TCPReqQFullDrop",
		"SYNs dropped because a SYN backlog was full and cookies are off.")
	TCPTimeWaitOverflow = netCounter("tcp_time_wait_overflow_total", q.Sockets, "TcpExt TCPTimeWaitOverflow",
		"TIME_WAIT sockets not kept because tcp_max_tw_buckets was reached.")
	TWEntered = netCounter("tcp_time_wait_expired_total", q.Sockets, "TcpExt TW",
		"TIME_WAIT sockets that ended by their timer.")
	TWRecycled = netCounter("tcp_time_wait_recycled_total", q.Sockets, "TcpExt TWRecycled",
		"TIME_WAIT sockets reused for a new connection (tcp_tw_reuse).")
	PAWSActive = netCounter("tcp_paws_active_total", q.Segments, "TcpExt PAWSActive",
		"SYN-ACKs dropped for an old timestamp.")
	PAWSEstab = netCounter("tcp_paws_established_total", q.Segments, "TcpExt PAWSEstab",
		"Segments of established connections dropped for an old timestamp.")
	PAWSTimewait = netCounter("tcp_paws_time_wait_total", q.Segments, "TcpExt PAWSTimewait",
		"SYNs to a TIME_WAIT socket dropped for an old timestamp (newer kernels only).")
	TCPTimeouts = netCounter("tcp_timeouts_total", q.Events, "TcpExt TCPTimeouts", "Retransmission timeouts.")
	PruneCalled = netCounter("tcp_receive_buffer_pruned_total", q.Events, "TcpExt PruneCalled",
		"Times a socket's receive buffer had to be pruned.")
	RcvPruned = netCounter("tcp_receive_pruned_total", q.Segments, "TcpExt RcvPruned",
		"Times pruning did not free enough and data was dropped.")
	TCPRcvQDrop = netCounter("tcp_receive_queue_drops_total", q.Segments, "TcpExt TCPRcvQDrop",
		"Segments dropped because the receive queue was full (kernel 5.10).")
	TCPBacklogDrop = netCounter("tcp_backlog_drops_total", q.Segments, "TcpExt TCPBacklogDrop",
		"Segments dropped because a socket's backlog was full.")
	TCPMemoryPressures = netCounter("tcp_memory_pressures_total", q.Events, "TcpExt TCPMemoryPressures",
		"Times TCP entered memory pressure.")
	TCPMemoryPressureMs = netCounter("tcp_memory_pressure_milliseconds_total", "ms", "TcpExt TCPMemoryPressuresChrono",
		"Time TCP spent in memory pressure (kernel 4.14).")
	TCPAbortOnMemory = netCounter("tcp_abort_on_memory_total", q.Connections, "TcpExt TCPAbortOnMemory",
		"Connections aborted because there were too many orphans or too little memory.")
	TCPAbortOnTimeout = netCounter("tcp_abort_on_timeout_total", q.Connections, "TcpExt TCPAbortOnTimeout",
		"Connections aborted after their last retransmission.")
	TCPOrigDataSent = netCounter("tcp_data_segments_sent_total", q.Segments, "TcpExt TCPOrigDataSent",
		"Segments with data sent, retransmitted ones not counted (kernel 3.16).")
	IPForwarded         = netCounter("ip_forwarded_packets_total", q.Packets, "Ip ForwDatagrams", "Packets forwarded.")
	IPReceived          = netCounter("ip_received_packets_total", q.Packets, "Ip InReceives", "Packets received.")
	IPSent              = netCounter("ip_sent_packets_total", q.Packets, "Ip OutRequests", "Packets sent.")
	UDPReceiveBufErrors = netCounter("udp_receive_buffer_errors_total", q.Packets, "Udp RcvbufErrors",
		"Datagrams dropped because a socket's buffer was full.")
	UDPInDatagrams = netCounter("udp_in_packets_total", q.Packets, "Udp InDatagrams",
		"Datagrams over IPv4 that programs read.")
	UDP6InDatagrams = netCounter("udp6_in_packets_total", q.Packets, "Udp6 InDatagrams",
		"Datagrams over IPv6 that programs read.")
)

// netCounter declares a counter whose Source is "FILE-GROUP FIELD". The collector finds it by that.
func netCounter(name string, unit q.Unit, field, help string) *Counter {
	return counter(name, unit, field, help, "netns")
}

// NetstatCounters lists the counters above. The collector finds each by its Source, "GROUP FIELD" as in the kernel's
// files.
func NetstatCounters() []*Counter {
	return []*Counter{
		TCPActiveOpens, TCPPassiveOpens, TCPAttemptFails, TCPEstabResets, TCPInSegs, TCPOutSegs, TCPRetransSegs,
		TCPOutRsts,
		TCPSynRetrans, TCPDSACKRecv, ListenOverflows, ListenDrops, SyncookiesSent, ReqQFullDrop, TCPTimeWaitOverflow,
		TWEntered, TWRecycled,
		PAWSActive, PAWSEstab, PAWSTimewait, TCPTimeouts, PruneCalled, RcvPruned, TCPRcvQDrop, TCPBacklogDrop,
		TCPMemoryPressures, TCPMemoryPressureMs, TCPAbortOnMemory, TCPAbortOnTimeout, TCPOrigDataSent,
		IPForwarded, IPReceived, IPSent, UDPReceiveBufErrors, UDPInDatagrams, UDP6InDatagrams,
	}
}
