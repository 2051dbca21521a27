package metric

import q "github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"

// Devices of the target's network namespace (and of the host's, by the netns label).
var (
	DevicePackets = counter("net_device_packets_total", q.Packets, "/proc/PID/net/dev",
		"Packets per device; direction is receive or transmit.", "netns", "device", "direction")
	DeviceBytes = counter("net_device_bytes_total", q.Bytes, "/proc/PID/net/dev", "Bytes per device.", "netns",
		"device", "direction")
	DeviceErrors = counter("net_device_errors_total", q.Packets, "/proc/PID/net/dev", "Errors per device: rx_errors "+
		"and tx_errors, which have frame, carrier and transmit FIFO errors in them.", "netns", "device", "direction")
	DeviceDrops = counter("net_device_drops_total", q.Packets, "/proc/PID/net/dev", "Packets dropped per device by "+
		"driver or device queue (missed ones and receive FIFO overruns included).", "netns", "device", "direction")
	QueueRPS = info("net_queue_rps_info", "/sys/class/net/DEV/queues/rx-N/rps_cpus",
		"CPUs that receive packet steering spreads a queue over; empty cpus: off. Of the namespace that sysfs was "+
			"mounted in.", "device", "queue", "cpus")
	QueueXPS = info("net_queue_xps_info", "/sys/class/net/DEV/queues/tx-N/xps_cpus",
		"CPUs that use a transmit queue.", "device", "queue", "cpus")
	DeviceQueues = gauge("net_device_queues", "queues", "/sys/class/net/DEV/queues",
		"Hardware or software queues of a device.", "device", "direction")
)

// Connection tracking, NAT and rules, per network namespace.
var (
	ConntrackEntries = gauge("conntrack_entries", q.Entries, "/proc/sys/net/netfilter/nf_conntrack_count",
		"Tracked connections.", "netns")
	ConntrackMax = gauge("conntrack_entries_limit", q.Entries, "/proc/sys/net/netfilter/nf_conntrack_max",
		"Most connections that can be tracked; one limit for the host, checked per namespace.", "netns")
	ConntrackDrops = counter("conntrack_drops_total", q.Packets, "/proc/PID/net/stat/nf_conntrack drop",
		"Packets dropped because the table was full or an entry could not be made.", "netns")
	ConntrackInsertFailed = counter("conntrack_insert_failed_total", q.Entries, "/proc/PID/net/stat/nf_conntrack "+
		"insert_failed", "Entries that could not be inserted, clashes of NAT source ports among them.", "netns")
	ConntrackEarlyDrops = counter("conntrack_early_drops_total", q.Entries,
		"/proc/PID/net/stat/nf_conntrack early_drop", "Entries evicted to make room in a full table.", "netns")
	ConntrackTimeWait = gauge("conntrack_tcp_timeout_time_wait_seconds", q.Seconds,
		"/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait",
		"How long a closed connection stays in the table.", "netns")
	NATRules = gauge("nat_rules", q.Rules, "NETLINK_NETFILTER, IPT_SO_GET_INFO",
		"Rules that translate addresses (nftables nat, masquerade and redirect; entries of the iptables nat table).",
		"netns")
	NetfilterRules = gauge("netfilter_rules", q.Rules, "NETLINK_NETFILTER, IPT_SO_GET_INFO",
		"Rules in the chains of a hook (prerouting, input, forward, output, postrouting), walked one after another by "+
			"a packet that matches none.", "netns", "hook")
)

// TCP sockets of the target's network namespace.
//
// A socket with the same local port as a listener in the namespace belongs to the server side, and is counted per
// listener. Every other socket belongs to the client side, and is counted per (local address, destination). The 64
// largest pairs of a sample are recorded. The sockets of smaller pairs are only in tcp_sockets and
// tcp_destination_smaller_sockets. Sockets past the collector's table of 20,000 are counted as lost.
var (
	Sockets = gauge("tcp_sockets", q.Sockets, "NETLINK_SOCK_DIAG", "TCP sockets by state (ESTABLISHED, "+
		"SYN_SENT, SYN_RECV, FIN_WAIT1, FIN_WAIT2, TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, LISTEN, CLOSING).", "state")
	DestinationSockets = gauge("tcp_destination_sockets", q.Sockets, "NETLINK_SOCK_DIAG",
		"Client-side sockets per local address, destination ip:port and state.", "source", "destination", "state")
	DestinationSmaller = gauge("tcp_destination_smaller_sockets", q.Sockets, "NETLINK_SOCK_DIAG",
		"Client-side sockets in any state of the pairs of local address and destination that are not recorded, "+
			"because they are smaller.")
	DestinationYoungTW = gauge("tcp_destination_time_wait_young", q.Sockets, "NETLINK_SOCK_DIAG timer",
		"Client-side TIME_WAIT sockets that entered the state in the last second, by their remaining time: "+
			"connections closed per second, by this side, to this destination.", "source", "destination")
	DestinationOwner = gauge("tcp_destination_owner_sockets", q.Sockets, "BPF iter/task_file, /proc/PID/fd",
		"Live client-side sockets (not TIME_WAIT) to a destination per process that holds them: the most seen at "+
			"once. All of them if BPF programs may run; else a random sample of up to 32 per local address, which "+
			"gives shares and not numbers.", "destination", "pid", "comm")
	DestinationRTT = gauge("tcp_destination_rtt_seconds", q.Seconds, "tcp_info tcpi_rtt",
		"Median smoothed round-trip time of the established connections to a destination.", "destination")
	DestinationMin = gauge("tcp_destination_min_rtt_seconds", q.Seconds, "tcp_info tcpi_min_rtt",
		"Least round-trip time any of these connections saw (kernel 4.6).", "destination")
	DestinationBytes = gauge("tcp_destination_bytes", q.Bytes, "tcp_info tcpi_bytes_acked + tcpi_bytes_received",
		"Bytes carried so far by the connections that are established now, per destination.", "destination")
	DestinationLost = gauge("tcp_destination_retransmitted_segments", q.Segments, "tcp_info tcpi_total_retrans",
		"Segments retransmitted so far by the connections that exist now, per destination.", "destination")
	DestinationSegs = gauge("tcp_destination_sent_segments", q.Segments, "tcp_info tcpi_segs_out",
		"Segments sent so far by the connections that exist now, per destination.", "destination")
	DestinationData = gauge("tcp_destination_data_segments", q.Segments, "tcp_info tcpi_data_segs_out",
		"Segments with data sent so far by the connections that exist now, per destination: requests, or parts of them "+
			"(kernel 4.6).", "destination")
	DestinationHeld = gauge("tcp_destination_held_back_sockets", q.Sockets, "tcp_info tcpi_notsent_bytes, tcpi_unacked",
		"Established connections to a destination that had less than a segment to send, and waited with it until the "+
			"peer acknowledges what is under way: Nagle's algorithm.", "destination")
	DestinationAsked = gauge("tcp_destination_unanswered_sockets", q.Sockets,
		"tcp_info tcpi_last_data_sent, tcpi_last_data_recv",
		"Established connections to a destination that have sent something since they last received: requests that "+
			"wait for an answer, where each connection has one at a time.", "destination")
	SynSentRetrans = gauge("tcp_destination_syn_sent_retransmitting", q.Sockets, "NETLINK_SOCK_DIAG retrans",
		"SYN_SENT sockets that have already sent their SYN again, per destination.", "destination")

	ListenerSockets = gauge("tcp_listener_sockets", q.Sockets, "NETLINK_SOCK_DIAG",
		"Server-side sockets per listener (ip:port) and state.", "listener", "state")
	ListenerQueue = gauge("tcp_listener_accept_queue", q.Connections, "NETLINK_SOCK_DIAG rqueue",
		"Connections waiting for accept().", "listener", "pid", "comm")
	ListenerBacklog = gauge("tcp_listener_backlog", q.Connections, "NETLINK_SOCK_DIAG wqueue",
		"Most connections that may wait: min(listen backlog, somaxconn).", "listener", "pid", "comm")
	UDPDrops = counter("udp_socket_drops_total", q.Packets, "/proc/PID/net/udp drops",
		"Datagrams that a bound UDP socket lost: its receive buffer was full, or their checksum was wrong. listener is "+
			"its address.", "listener", "pid", "comm")
	UDPQueue = gauge("udp_socket_receive_queue_bytes", q.Bytes, "/proc/PID/net/udp rx_queue",
		"Memory of the datagrams that wait in a bound UDP socket to be read.", "listener", "pid", "comm")
	UnixQueue = gauge("unix_listener_accept_queue", q.Connections, "NETLINK_SOCK_DIAG UNIX_DIAG_RQLEN",
		"Connections waiting for accept() at a socket of AF_UNIX (unix:path) that the target listens on, "+
			"without those on which its runtime listens for tools.",
		"listener", "pid", "comm")
	UnixBacklog = gauge("unix_listener_backlog", q.Connections, "NETLINK_SOCK_DIAG UNIX_DIAG_RQLEN",
		"Most connections that may wait there: with more connect() fails (EAGAIN) or blocks.",
		"listener", "pid", "comm")
	UnixOldest = gauge("unix_listener_oldest_seconds", q.Seconds, "NETLINK_SOCK_DIAG UNIX_DIAG_ICONS",
		"Time for which the longest waiting connection was seen to wait there: 0.1 s at least, or none was seen "+
			"twice.", "listener", "pid", "comm")
	ListenerPeers = gauge("tcp_listener_peer_sockets", q.Sockets, "NETLINK_SOCK_DIAG",
		"Established server-side sockets per listener and peer address; the largest peers.", "listener", "peer")
	ListenerBytes = gauge("tcp_listener_peer_bytes", q.Bytes, "tcp_info", "Bytes carried so far by those sockets.",
		"listener", "peer")
	ListenerHeld = gauge("tcp_listener_held_back_sockets", q.Sockets, "tcp_info tcpi_notsent_bytes, tcpi_unacked",
		"Established connections of a listener that are held back as in tcp_destination_held_back_sockets.", "listener")
	ListenerOwes = gauge("tcp_listener_unanswered_sockets", q.Sockets,
		"tcp_info tcpi_last_data_sent, tcpi_last_data_recv",
		"Established connections of a listener that have received something since they last sent: requests that have no "+
			"answer yet.", "listener")
	ListenerUnread = gauge("tcp_listener_unread_sockets", q.Sockets,
		"idiag_rqueue, tcp_info tcpi_last_data_recv",
		"Established connections of a listener with bytes that the program has not read for a second or more. It is "+
			"looked at only where answers are owed and nothing was sent or received since the sample before.", "listener")
	ListenerSegments = gauge("tcp_listener_data_segments", q.Segments,
		"tcp_info tcpi_data_segs_in, tcpi_data_segs_out",
		"The lesser of the data segments received and sent so far, connection by connection, for a listener's "+
			"established connections: requests with an answer, at most.", "listener")
	ProcessSockets = gauge("tcp_process_sockets", q.Sockets, "NETLINK_SOCK_DIAG, /proc/PID/fd",
		"TCP sockets per owning process and state, of processes whose fds could be read.", "pid", "comm", "state")
)

// Round trips from other places. `perfdoctor ping` measures them, and no collector does.
var (
	VantageRTT = gauge("vantage_rtt_seconds", q.Seconds, "tcp_info tcpi_rtt",
		"Round trip of one TCP handshake with a destination, from here, from a neighbour (an unloaded host behind the "+
			"same egress) or from outside of that.", "vantage", "destination")
	VantagePings = counter("vantage_pings_total", q.Connections, "connect(2)", "Handshakes begun from there.",
		"vantage", "destination")
	VantageUnanswered = counter("vantage_unanswered_pings_total", q.Connections, "connect(2)",
		"Those without an answer within 1 s.", "vantage", "destination")
)

// The values of the "vantage" label.
const (
	VantageHere      = "here"
	VantageNeighbour = "neighbour"
	VantageOutside   = "outside"
)

// Totals of a namespace that are cheaper than counting sockets.
var (
	TCPOrphans = gauge("tcp_orphans", q.Sockets, "/proc/PID/net/sockstat",
		"Sockets no process holds any more; one count for the host.", "netns")
	TCPMemory = gauge("tcp_memory_pages", q.Pages, "/proc/PID/net/sockstat",
		"Pages held by TCP socket buffers; one count for the host.", "netns")
	TCPTimeWait = gauge("tcp_time_wait_sockets", q.Sockets, "/proc/PID/net/sockstat",
		"TIME_WAIT sockets of the namespace.", "netns")
)
