//go:build ignore

// The TCP sockets of the network namespace in which the iterator is created, and the descriptors of all processes that
// hold TCP sockets: what sock_diag and the links in /proc/PID/fd tell, without a message or a link for each.
#include "kernel.h"

LICENSE("Dual BSD/GPL");

enum { AF_INET = 2, AF_INET6 = 10, S_IFMT = 0170000, S_IFSOCK = 0140000, IPPROTO_TCP = 6, IPPROTO_MPTCP = 262 };

// include/net/tcp_states.h
enum { TCP_ESTABLISHED = 1, TCP_SYN_SENT, TCP_SYN_RECV, TCP_TIME_WAIT = 6, TCP_CLOSE_WAIT = 8, TCP_LISTEN = 10,
	TCP_NEW_SYN_RECV = 12 };

struct endpoints {
	u8 family;
	u8 state; // NEW_SYN_RECV is kept, unlike in sock_diag
	u16 local_port;
	u16 remote_port; // in network order
	u16 pad;
	u32 local[4]; // IPv4 takes the first word
	u32 remote[4];
};

// The fields that a socket's state has; the rest are zero.
struct tcp_socket {
	struct endpoints ends;
	u32 retransmits;  // of SYN_SENT
	s32 expires;	  // of TIME_WAIT: jiffies to its end
	u32 accept_queue; // of LISTEN
	u32 backlog;
	u32 v6_only;
	u32 segs_out; // of ESTABLISHED, as in tcp_info
	u32 srtt_us;  // times 8
	u32 min_rtt_us;
	u32 total_retrans;
	u32 notsent;
	u32 packets_out;
	u32 mss;
	u32 since_sent; // jiffies since data was sent, and since some arrived
	u32 since_received;
	u32 data_segs_in;
	u32 data_segs_out;
	u32 last; // whose data was the last: enum last
	u64 bytes_acked;
	u64 bytes_received;
	u64 inode; // of LISTEN and CLOSE_WAIT; 0: no file
};

struct held_socket {
	struct endpoints ends;
	u32 pid;
	u32 fd;
	u64 inode;
	char comm[16];
};

// A type that no map holds is among the object's types only if a variable has it.
struct tcp_socket *tcp_socket_type __attribute__((unused));
struct held_socket *held_socket_type __attribute__((unused));

// Only sockets of this network namespace are reported; 0: of all. An iterator over sockets knows its own namespace,
// one over descriptors does not.
const volatile u32 only_netns = 0;

// Linux 5.11.
const volatile bool has_sock_from_file = 0;

static inline void addresses(struct endpoints *e, const struct sock_common *sk)
{
	e->family = sk->skc_family;
	e->local_port = sk->skc_num;
	e->remote_port = sk->skc_dport;
	if (e->family == AF_INET6) {
		e->local[0] = sk->skc_v6_rcv_saddr.in6_u.u6_addr32[0];
		e->local[1] = sk->skc_v6_rcv_saddr.in6_u.u6_addr32[1];
		e->local[2] = sk->skc_v6_rcv_saddr.in6_u.u6_addr32[2];
		e->local[3] = sk->skc_v6_rcv_saddr.in6_u.u6_addr32[3];
		e->remote[0] = sk->skc_v6_daddr.in6_u.u6_addr32[0];
		e->remote[1] = sk->skc_v6_daddr.in6_u.u6_addr32[1];
		e->remote[2] = sk->skc_v6_daddr.in6_u.u6_addr32[2];
		e->remote[3] = sk->skc_v6_daddr.in6_u.u6_addr32[3];
		return;
	}
	e->local[0] = sk->skc_rcv_saddr;
	e->remote[0] = sk->skc_daddr;
}

enum last { LAST_UNKNOWN, LAST_SENT, LAST_RECEIVED };

// include/net/inet_connection_sock.h
enum { ICSK_ACK_SCHED = 1, ICSK_ACK_TIMER = 2 };

// Data sent and data received within one tick of each other look the same by lsndtime and lrcvtime. What came later is
// acknowledged without data, at once or after 40 ms, or will be; what came earlier was acknowledged with the data that
// was sent. Once all is acknowledged, first_tx_mstamp is the time of the last data sent (tcp_rate_skb_delivered in
// net/ipv4/tcp_rate.c), and tcp_wstamp_ns that of the last segment. Pacing, as in BBR, moves the latter by the time
// that what was sent takes at its rate (tcp_update_skb_after_send in tcp_output.c): up to 64 KiB, or for small
// messages, each a segment, a few times their mean.
static inline u32 last_data(const struct tcp_sock *tp)
{
	const struct inet_connection_sock *icsk = &tp->inet_conn;
	u64 sent = tp->first_tx_mstamp, last = tp->tcp_wstamp_ns / 1000, rate = icsk->icsk_inet.sk.sk_pacing_rate;
	u64 mean;

	if (!tp->data_segs_in || !tp->data_segs_out)
		return LAST_UNKNOWN;
	if (tp->packets_out)
		return LAST_SENT;
	if (icsk->icsk_ack.pending & (ICSK_ACK_SCHED | ICSK_ACK_TIMER))
		return LAST_RECEIVED;
	if (!icsk->icsk_inet.sk.sk_pacing_status)
		return last > sent ? LAST_RECEIVED : LAST_SENT;
	if (!rate)
		return LAST_UNKNOWN;
	if (last > sent + 65536 * 1000000ULL / rate)
		return LAST_RECEIVED;
	mean = tp->bytes_sent / tp->data_segs_out;
	if (2 * mean >= tp->mss_cache)
		return LAST_UNKNOWN;
	return last > sent + 1 + 4 * mean * 1000000ULL / rate ? LAST_RECEIVED : LAST_SENT;
}

// As in tcp_get_info and inet_csk_diag_fill (net/ipv4/tcp.c, inet_diag.c).
static inline void full_socket(struct tcp_socket *out, struct tcp_sock *tp)
{
	struct inet_connection_sock *icsk = &tp->inet_conn;
	struct sock *sk = (struct sock *)tp;

	// Reading the inode takes three more places in memory: for most sockets the other iterator tells whose they are.
	switch (out->ends.state) {
	case TCP_CLOSE_WAIT:
		out->inode = sk->sk_socket->file->f_inode->i_ino;
		break;
	case TCP_LISTEN:
		out->inode = sk->sk_socket->file->f_inode->i_ino;
		out->accept_queue = sk->sk_ack_backlog;
		out->backlog = sk->sk_max_ack_backlog;
		out->v6_only = bits(sk->__sk_common.skc_ipv6only, sk);
		break;
	case TCP_SYN_SENT:
		out->retransmits = icsk->icsk_retransmits;
		break;
	case TCP_ESTABLISHED:
		out->segs_out = tp->segs_out;
		out->srtt_us = tp->srtt_us;
		out->min_rtt_us = tp->rtt_min.s[0].v;
		out->total_retrans = tp->total_retrans;
		out->notsent = tp->write_seq - tp->snd_nxt;
		out->packets_out = tp->packets_out;
		out->mss = tp->mss_cache;
		out->since_sent = (u32)jiffies() - tp->lsndtime;
		out->since_received = (u32)jiffies() - icsk->icsk_ack.lrcvtime;
		out->data_segs_in = tp->data_segs_in;
		out->data_segs_out = tp->data_segs_out;
		out->last = last_data(tp);
		out->bytes_acked = tp->bytes_acked;
		out->bytes_received = tp->bytes_received;
	}
}

SEC("iter/tcp")
int sockets(u64 *ctx)
{
	struct sock_common *sk = (void *)ctx[1];
	struct tcp_socket out = {};
	struct tcp_timewait_sock *tw;
	struct tcp_sock *tp;

	if (!sk)
		return 0; // the end
	out.ends.state = sk->skc_state;
	addresses(&out.ends, sk);
	if (out.ends.state == TCP_TIME_WAIT) {
		tw = tcp_timewait_of(sk);
		if (!tw)
			return 0;
		out.ends.state = tw->tw_sk.tw_substate; // FIN_WAIT2 waits as such a socket, too
		out.expires = (s32)(tw->tw_sk.tw_timer.expires - jiffies());
	} else if (out.ends.state != TCP_NEW_SYN_RECV) {
		tp = tcp_sock_of(sk);
		if (!tp)
			return 0;
		full_socket(&out, tp);
	}
	seq_write(((struct bpf_iter_meta *)ctx[0])->seq, &out, sizeof(out));
	return 0;
}

// The types of the kernel's own pointers are known, so what is behind them is read directly. What is behind a void
// pointer is read by a call for each field, which takes four times as long.
#define GET(to, from)                                                                                                  \
	do {                                                                                                           \
		if (typed)                                                                                             \
			to = from;                                                                                     \
		else                                                                                                   \
			read_kernel(&to, sizeof(to), (const void *)&(from));                                           \
	} while (0)

static inline int held(u64 *ctx, struct sock *sk, bool typed)
{
	struct task_struct *task = (void *)ctx[1], *leader;
	struct file *file = (void *)ctx[3];
	struct held_socket out = {};
	struct net *net;
	u16 protocol;
	u32 netns;

	if (!task || !file)
		return 0;
	GET(protocol, sk->sk_protocol);
	GET(out.ends.family, sk->__sk_common.skc_family);
	// Go's listeners are MPTCP since 1.24. Their inode is that of the TCP socket below, which is what inet_diag shows
	// (mptcp_subflow_create_socket in net/mptcp/subflow.c).
	if (protocol != IPPROTO_TCP && protocol != IPPROTO_MPTCP)
		return 0;
	if (out.ends.family != AF_INET && out.ends.family != AF_INET6)
		return 0;
	GET(net, sk->__sk_common.skc_net.net);
	GET(netns, net->ns.inum);
	if (only_netns && netns != only_netns)
		return 0;
	GET(out.ends.state, sk->__sk_common.skc_state);
	GET(out.ends.local_port, sk->__sk_common.skc_num);
	GET(out.ends.remote_port, sk->__sk_common.skc_dport);
	if (out.ends.family == AF_INET6) {
		GET(out.ends.local[0], sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[0]);
		GET(out.ends.local[1], sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[1]);
		GET(out.ends.local[2], sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[2]);
		GET(out.ends.local[3], sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[3]);
		GET(out.ends.remote[0], sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[0]);
		GET(out.ends.remote[1], sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[1]);
		GET(out.ends.remote[2], sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[2]);
		GET(out.ends.remote[3], sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[3]);
	} else {
		GET(out.ends.local[0], sk->__sk_common.skc_rcv_saddr);
		GET(out.ends.remote[0], sk->__sk_common.skc_daddr);
	}
	leader = task->group_leader;
	out.inode = file->f_inode->i_ino;
	out.pid = task->tgid;
	out.fd = ctx[2];
	read_kernel(&out.comm, sizeof(out.comm), &leader->comm);
	seq_write(((struct bpf_iter_meta *)ctx[0])->seq, &out, sizeof(out));
	return 0;
}

SEC("iter/task_file")
int descriptors(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[1], *leader;
	struct file *file = (void *)ctx[3], *back;
	struct socket *socket;
	struct sock *sk;

	if (!task || !file || (file->f_inode->i_mode & S_IFMT) != S_IFSOCK)
		return 0;
	if (has_sock_from_file) {
		socket = sock_from_file(file);
		if (!socket)
			return 0;
		sk = socket->sk;
		return sk ? held(ctx, sk, 1) : 0;
	}
	leader = task->group_leader;
	if (task != leader && task->files == leader->files)
		return 0; // kernels that old show the descriptors of each thread (commit 67b6b863e6ab)
	// A socket's inode is opened by its path only with O_PATH, which leaves nothing here.
	socket = file->private_data;
	if (!socket || read_kernel(&back, sizeof(back), &socket->file) || back != file)
		return 0;
	if (read_kernel(&sk, sizeof(sk), &socket->sk) || !sk)
		return 0;
	return held(ctx, sk, 0);
}
