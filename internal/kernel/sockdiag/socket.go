// Package sockdiag lists the TCP sockets of a network namespace: by NETLINK_SOCK_DIAG where the kernel has
// tcp_diag, by /proc/PID/net/tcp elsewhere. Both stream through one reused [Socket], so memory does not grow
// with the number of sockets.
package sockdiag

import (
	"fmt"
	"math"
	"net/netip"
)

// State is the state of a TCP socket, numbered as in include/net/tcp_states.h.
type State uint8

// The states a dump delivers. The kernel reports its internal NEW_SYN_RECV (12) as SYN_RECV.
const (
	Established State = iota + 1
	SynSent
	SynRecv
	FinWait1
	FinWait2
	TimeWait
	Close
	CloseWait
	LastAck
	Listen
	Closing
	newSynRecv // request sockets, since Linux 4.4; only used in a mask
)

// String returns the state's name as `ss` and netstat write it, such as TIME_WAIT.
func (s State) String() string {
	names := [...]string{
		"", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE",
		"CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING",
	}
	if s == 0 || int(s) >= len(names) {
		return fmt.Sprintf("STATE_%d", uint8(s))
	}
	return names[s]
}

// States is a set of states: bit 1<<State, as inet_diag_req_v2.idiag_states has them.
type States uint32

// AllStates is every TCP state. It leaves out TCPF_BOUND_INACTIVE (1<<13, Linux 6.8), which is no state of a
// connection and makes the kernel walk the bind hash as well.
const AllStates States = 1<<(newSynRecv+1) - 2

// StatesOf returns the set of the given states.
func StatesOf(states ...State) States {
	var m States
	for _, s := range states {
		m |= 1 << s
	}
	return m
}

// Has reports whether the set contains s.
func (m States) Has(s State) bool { return m&(1<<s) != 0 }

// Timer is the timer pending on a socket, numbered as idiag_timer (net/ipv4/inet_diag.c) and as the "tr"
// column of /proc/net/tcp.
type Timer uint8

// The timers.
const (
	TimerNone Timer = iota
	TimerRetransmit
	TimerKeepalive
	TimerTimeWait // also on FIN_WAIT2 sockets that are already reduced to a timewait minisocket
	TimerZeroWindowProbe
)

// Socket is one TCP socket. The dump functions reuse one Socket for all calls of fn: copy what must outlive
// the call. Local and Remote are comparable and can be map keys without allocating.
type Socket struct {
	// Family is unix.AF_INET or unix.AF_INET6, as the socket was made: an AF_INET6 socket may carry IPv4.
	Family uint8
	State  State
	// DualStack: an AF_INET6 socket with IPv4-mapped addresses. Local and Remote are then the plain IPv4 ones.
	DualStack bool
	// V6Only: an AF_INET6 LISTEN socket that takes no IPv4. Known from netlink only; false from /proc.
	V6Only bool

	Local, Remote netip.AddrPort
	// Interface is the index of the interface the socket is bound to, 0 for none (and always from /proc).
	Interface uint32

	Timer Timer
	// Retransmits counts the retransmissions, or probes with TimerZeroWindowProbe or TimerKeepalive, since the
	// last acknowledgement.
	Retransmits uint8
	// Expires is the time until Timer fires in milliseconds (10 ms steps from /proc).
	Expires uint32

	// RQueue is bytes not yet read by the application; on a LISTEN socket the connections waiting in the
	// accept queue. Overflow is RQueue > WQueue (sk_acceptq_is_full in include/net/sock.h).
	RQueue uint32
	// WQueue is bytes not yet acknowledged by the peer; on a LISTEN socket the limit of the accept queue, if
	// HasBacklog.
	WQueue uint32
	// HasBacklog: WQueue of this LISTEN socket is its backlog. /proc does not show it (net/ipv4/tcp_ipv4.c).
	HasBacklog bool

	UID uint32
	// Inode is the number in the socket:[N] of /proc/PID/fd. 0 for sockets without a file: TIME_WAIT,
	// SYN_RECV, orphans, and connections still in the accept queue. Netlink carries its low 32 bits.
	Inode uint64
	// Cookie identifies a socket as long as the namespace lives (SO_COOKIE). 0 from /proc.
	Cookie uint64

	// Info is the socket's tcp_info, if HasInfo.
	Info    Info
	HasInfo bool
}

// Info is the part of struct tcp_info (include/uapi/linux/tcp.h) that perfdoctor reads. The struct grows with the
// kernel: a field the running kernel lacks is 0, and its Has method returns false.
type Info struct {
	// Len is the number of bytes of tcp_info that the kernel returned.
	Len int

	RTT, RTTVar  uint32 // µs, smoothed; 0 before the first sample
	SndCwnd      uint32 // segments
	SndMSS       uint32 // bytes
	Unacked      uint32 // segments in flight
	Lost         uint32 // segments in flight believed lost
	Retrans      uint32 // segments in flight that were retransmitted
	TotalRetrans uint32 // segments retransmitted since the connection was made
	LastDataSent uint32 // ms ago
	LastDataRecv uint32 // ms ago

	BytesAcked, BytesReceived uint64 // HasBytes
	SegsOut, SegsIn           uint32 // HasSegs
	Notsent                   uint32 // bytes written but never sent, HasNotsent
	MinRTT                    uint32 // µs, HasMinRTT
	DataSegsIn, DataSegsOut   uint32 // HasDataSegs
	DeliveryRate              uint64 // bytes/s, HasDeliveryRate
	BusyTime                  uint64 // µs with data to send, HasBusyTime
	RwndLimited               uint64 // µs of BusyTime held back by the peer's receive window, HasBusyTime
	SndbufLimited             uint64 // µs of BusyTime held back by the send buffer, HasBusyTime

	// Last says which side sent the last data, even if LastDataSent and LastDataRecv are of the same tick. No
	// tcp_info has it: BPF programs in the kernel provide it.
	Last Side
}

// A Side of a connection.
type Side uint8

// The sides, as bpf/sockets.bpf.c has them.
const (
	SideUnknown Side = iota
	Self
	Peer
)

// HasBytes reports whether BytesAcked and BytesReceived are known (Linux 4.1).
func (i *Info) HasBytes() bool { return i.Len >= infoBytesReceived+8 }

// HasSegs reports whether SegsOut and SegsIn are known (Linux 4.2).
func (i *Info) HasSegs() bool { return i.Len >= infoSegsIn+4 }

// HasNotsent reports whether Notsent is known (Linux 4.6).
func (i *Info) HasNotsent() bool { return i.Len >= infoNotsent+4 }

// HeldBack reports whether the connection has less than a segment of data to send, and holds it back until the peer
// acknowledges what is in flight: Nagle's algorithm (tcp_nagle_check in net/ipv4/tcp_output.c). With more data unsent
// it waits for a window.
func (i *Info) HeldBack() bool {
	return i.HasNotsent() && i.Notsent > 0 && i.Notsent < i.SndMSS && i.Unacked > 0
}

// Asked reports whether the connection has sent something since it last received, so that a client waits for an answer.
func (i *Info) Asked() bool { return unanswered(i.LastDataSent, i.LastDataRecv, i.last() == Self) }

// Owes reports whether the connection has received something since it last sent, so that a server owes an answer.
func (i *Info) Owes() bool { return unanswered(i.LastDataRecv, i.LastDataSent, i.last() == Peer) }

// last returns the side that sent last. If the other side has not sent at all, its time is that of the connection's
// beginning. That is also the time of the first request if a client asks at once.
func (i *Info) last() Side {
	switch {
	case !i.HasDataSegs():
	case i.DataSegsIn > 0 && i.DataSegsOut == 0:
		return Peer
	case i.DataSegsOut > 0 && i.DataSegsIn == 0:
		return Self
	}
	return i.Last
}

// unanswered reports whether data that came last milliseconds ago still waits for an answer, when the latest answer
// was back milliseconds ago. If the next request follows an answer at once, both fall into one tick of 1 to 10 ms;
// isLast then says whether it did. A connection that goes on without an answer does not wait for one, such as one to
// a log server.
func unanswered(last, back uint32, isLast bool) bool {
	const justNow, oneWay = 1000, 10_000
	if last == back {
		return isLast
	}
	return last < back && (last > justNow || back-last < oneWay)
}

// HasMinRTT reports whether MinRTT is known (Linux 4.6) and the connection has had a sample: the kernel starts at ~0
// (tcp_init_sock in net/ipv4/tcp.c).
func (i *Info) HasMinRTT() bool { return i.Len >= infoMinRTT+4 && i.MinRTT != math.MaxUint32 }

// HasDataSegs reports whether DataSegsIn and DataSegsOut are known (Linux 4.6).
func (i *Info) HasDataSegs() bool { return i.Len >= infoDataSegsOut+4 }

// HasDeliveryRate reports whether DeliveryRate is known (Linux 4.9).
func (i *Info) HasDeliveryRate() bool { return i.Len >= infoDeliveryRate+8 }

// HasBusyTime reports whether BusyTime, RwndLimited and SndbufLimited are known (Linux 4.10).
func (i *Info) HasBusyTime() bool { return i.Len >= infoSndbufLimited+8 }
