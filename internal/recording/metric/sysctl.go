package metric

import q "github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"

// Settings that the rules read. They belong to the target's network namespace if the kernel keeps them per namespace,
// else to the host (Documentation/networking/ip-sysctl.rst, Documentation/admin-guide/sysctl/net.rst).
var (
	PortRangeLow = sysctl("port_range_low", q.None, "net.ipv4.ip_local_port_range",
		"First local port that connect() may choose.")
	PortRangeHigh = sysctl("port_range_high", q.None, "net.ipv4.ip_local_port_range",
		"Last local port that connect() may choose.")
	ReservedPorts = sysctl("reserved_ports", q.Ports, "net.ipv4.ip_local_reserved_ports",
		"Ports inside the range that connect() must not choose.")
	TWReuse = sysctl("tcp_tw_reuse", q.None, "net.ipv4.tcp_tw_reuse",
		"0 off, 1 on, 2 for loopback only (the default since kernel 4.19).")
	TWReuseDelay = sysctl("tcp_tw_reuse_delay_seconds", q.Seconds, "net.ipv4.tcp_tw_reuse_delay",
		"Age at which a TIME_WAIT port can be reused; 1 s before the setting existed (kernel 6.14).")
	MaxTWBuckets = sysctl("tcp_max_tw_buckets", q.Sockets, "net.ipv4.tcp_max_tw_buckets",
		"Most TIME_WAIT sockets kept.")
	Timestamps    = sysctl("tcp_timestamps", q.None, "net.ipv4.tcp_timestamps", "0 off; tcp_tw_reuse needs them on.")
	Somaxconn     = sysctl("somaxconn", q.Connections, "net.core.somaxconn", "Upper limit of every listen backlog.")
	MaxSynBacklog = sysctl("tcp_max_syn_backlog", q.Connections, "net.ipv4.tcp_max_syn_backlog",
		"Connections in SYN_RECV a listener may hold without cookies.")
	Syncookies = sysctl("tcp_syncookies", q.None, "net.ipv4.tcp_syncookies",
		"0 off, 1 when a backlog is full, 2 always.")
	AbortOnOverflow = sysctl("tcp_abort_on_overflow", q.None, "net.ipv4.tcp_abort_on_overflow",
		"1: answer a full accept queue with RST instead of silence.")
	IPForward = sysctl("ip_forward", q.None, "net.ipv4.ip_forward",
		"1: the namespace routes packets for others.")
	MaxOrphans     = sysctl("tcp_max_orphans", q.Sockets, "net.ipv4.tcp_max_orphans", "Most orphaned sockets.")
	TCPMemPressure = sysctl("tcp_mem_pressure", q.Pages, "net.ipv4.tcp_mem",
		"Pages above which TCP moderates its memory; global.")
	TCPMemHigh       = sysctl("tcp_mem_high", q.Pages, "net.ipv4.tcp_mem", "Pages TCP may use at most; global.")
	NetdevMaxBacklog = sysctl("netdev_max_backlog", q.Packets, "net.core.netdev_max_backlog",
		"Most packets waiting in a CPU's backlog; global.")
	NetdevBudget = sysctl("netdev_budget", q.Packets, "net.core.netdev_budget",
		"Packets per net_rx_action; global.")
)

// sysctl declares a setting. Its Source is the key.
func sysctl(name string, unit q.Unit, key, help string) *Gauge {
	return gauge("sysctl_"+name, unit, key, help, "netns")
}
