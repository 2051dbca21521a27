//go:build ignore

// Who connects where, how it ends, and how long it takes: TCP connections per network namespace, destination and process.
//
// All of it comes from changes of a socket's state and from repeated and reset segments: nothing runs per packet, and no
// tracepoint of system calls is used, as one would slow every system call of the host down.
#include "kernel.h"

LICENSE("Dual BSD/GPL");

enum { AF_INET6 = 10 };
enum { SOCK_DONE = 1 }; // a bit of skc_flags, set by tcp_fin()
enum { ESTABLISHED = 1, SYN_SENT, SYN_RECV, FIN_WAIT1, FIN_WAIT2, TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, LISTEN, CLOSING };
enum { ETIMEDOUT = 110, ECONNREFUSED = 111, EHOSTUNREACH = 113, ENETUNREACH = 101 };

// Sides of a connection.
enum { CLIENT = 1, SERVER = 2, UNKNOWN = 3 };

// The network namespace to look at, 0 for all. Set before loading, so that the others cost one comparison.
const volatile u32 only_netns = 0;

// Whether to follow connections on the server's side to their end, which nearly doubles the cost where both ends are on this
// host. They are counted as they are accepted in any case.
const volatile bool server_ends = 0;

// A flow is what numbers are added up for. A client's endpoint is the destination, a server's its own listening
// address and port. IPv4 addresses are mapped (::ffff:a.b.c.d). A flow of unknown side has neither endpoint nor pid: its
// connections were there before.
struct flow {
	u32 addr[4];
	u32 netns;
	u32 pid; // 0: of a server, or of processes past the bound of the table
	u16 port;
	u8 side;
	u8 pad;
};

// Buckets of times: the first is below 16 µs, each next one four times as wide, the last has the rest (from 67 s).
#define BUCKETS 13

struct totals {
	u64 attempts;
	u64 established;
	u64 unavailable; // failed before anything was sent: no local port (EADDRNOTAVAIL)
	u64 refused;
	u64 timed_out;
	u64 unreachable;
	u64 failed; // in other ways: the program gave up
	u64 connect_ns;
	u64 searches; // for a local port: connects, successful or not, of which the time until the SYN was sent is known
	u64 search_ns;
	u64 search_max_ns;
	u64 closed_local; // this side closed first
	u64 closed_peer;
	u64 closed_both;
	u64 closed_reset; // neither: reset or aborted
	u64 life_ns;
	u64 bytes_sent; // by connections that have ended, as are those below
	u64 bytes_received;
	u64 data_sent; // segments with data
	u64 data_received;
	u64 turns;	 // requests at most: the lesser of a connection's data segments sent and received
	u64 syn_retransmits; // of all connections, as are those below
	u64 retransmits;
	u64 resets_received;
	u64 resets_sent;
	u64 connect_buckets[BUCKETS];
	u64 life_buckets[BUCKETS];
	u8 comm[16];
};

struct connection {
	struct flow flow;
	u64 began;
	u64 established; // 0: not yet
};

struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 4096);
	TYPE(key, struct flow);
	TYPE(value, struct totals);
} flows SEC(".maps");

// By the address of the socket.
struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, u64);
	TYPE(value, struct connection);
} connections SEC(".maps");

enum { LOST_FLOWS, LOST_CONNECTIONS, LOST_KINDS };

struct {
	NUMBER(type, ARRAY);
	NUMBER(max_entries, LOST_KINDS);
	TYPE(key, u32);
	TYPE(value, u64);
} lost SEC(".maps");

// A new flow's totals are copied from here: they are too large for the stack to be cleared at each event.
struct {
	NUMBER(type, PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct totals);
} blank SEC(".maps");

static inline void lose(u32 kind)
{
	u64 *n = map_lookup(&lost, &kind);

	if (n)
		add(*n, 1);
}

static inline struct totals *create(const struct flow *f)
{
	u32 zero = 0;
	struct totals *t = map_lookup(&blank, &zero);

	if (!t)
		return 0;
	if (f->pid)
		current_comm(t->comm, sizeof(t->comm));
	else
		t->comm[0] = 0;
	map_update(&flows, f, t, BPF_NOEXIST); // fails if another CPU was faster, or when the table is full
	return map_lookup(&flows, f);
}

// known gives the totals of a flow that was seen connecting, in whatever context.
static inline struct totals *known(const struct flow *f)
{
	struct totals *t = map_lookup(&flows, f);
	struct flow others;

	if (t || !f->pid)
		return t;
	others = *f;
	others.pid = 0;
	return map_lookup(&flows, &others);
}

// totals_of finds or creates totals. In a full table processes share one row per destination, and then none.
static inline struct totals *totals_of(const struct flow *f)
{
	struct totals *t = known(f);
	struct flow others;

	if (t)
		return t;
	t = create(f);
	if (t)
		return t;
	others = *f;
	others.pid = 0;
	t = create(&others);
	lose(LOST_FLOWS);
	return t;
}

static inline u32 bucket(u64 ns)
{
	u64 us = ns >> 14; // 16,384 ns: nearly 16 µs
	u32 b = 0;

#pragma unroll
	for (int i = 0; i < BUCKETS - 1; i++) {
		if (us) {
			b++;
			us >>= 2;
		}
	}
	return b;
}

static inline void set_address(struct flow *f, const struct sock *sk, bool local)
{
	const struct sock_common *c = &sk->__sk_common;

	if (c->skc_family == AF_INET6) {
		const struct in6_addr *a = local ? &c->skc_v6_rcv_saddr : &c->skc_v6_daddr;

		f->addr[0] = a->in6_u.u6_addr32[0];
		f->addr[1] = a->in6_u.u6_addr32[1];
		f->addr[2] = a->in6_u.u6_addr32[2];
		f->addr[3] = a->in6_u.u6_addr32[3];
		return;
	}
	f->addr[2] = 0xffff0000; // ::ffff in network order, as a little-endian word
	f->addr[3] = local ? c->skc_rcv_saddr : c->skc_daddr;
}

static inline void begin(const struct sock *sk, u64 id, u32 netns)
{
	struct connection c = {};
	struct totals *t;

	c.flow.netns = netns;
	c.flow.side = CLIENT;
	c.flow.pid = pid_tgid() >> 32;
	c.flow.port = be16(sk->__sk_common.skc_dport);
	set_address(&c.flow, sk, 0);
	t = totals_of(&c.flow);
	if (t)
		add(t->attempts, 1);
	c.began = ktime_ns(); // last, so that the search for a port has not our own time in it
	if (map_update(&connections, &id, &c, BPF_ANY))
		lose(LOST_CONNECTIONS);
}

static inline void searched(struct totals *t, u64 ns)
{
	add(t->searches, 1);
	add(t->search_ns, ns);
	if (ns > t->search_max_ns)
		t->search_max_ns = ns; // two CPUs at once may lose one of two maxima, which does not matter
}

// answered ends SYN_SENT with a connection. The time at which the SYN was sent is in the socket: tcp_wstamp_ns, of the last
// segment sent (tcp_update_skb_after_send in net/ipv4/tcp_output.c), on the clock of ktime_ns. What passed until then
// since SYN_SENT is the search for a local port, unless the SYN was repeated.
static inline void answered(const struct tcp_sock *tp, struct connection *c)
{
	struct totals *t = known(&c->flow);
	u64 now = ktime_ns();
	u64 sent = tp->tcp_wstamp_ns;

	c->established = now;
	if (!t)
		return;
	add(t->established, 1);
	add(t->connect_ns, now - c->began);
	add(t->connect_buckets[bucket(now - c->began)], 1);
	if (!tp->total_retrans && sent > c->began && sent < now)
		searched(t, sent - c->began);
}

// unanswered ends SYN_SENT without one.
static inline void unanswered(const struct sock *sk, const struct tcp_sock *tp, struct connection *c)
{
	struct totals *t = known(&c->flow);
	int err = sk->sk_err;

	if (!t)
		return;
	if (!tp->segs_out && !err) {
		add(t->unavailable, 1);
		searched(t, ktime_ns() - c->began);
	} else if (err == ECONNREFUSED) {
		add(t->refused, 1);
	} else if (err == ETIMEDOUT) {
		add(t->timed_out, 1);
	} else if (err == EHOSTUNREACH || err == ENETUNREACH) {
		add(t->unreachable, 1);
	} else {
		add(t->failed, 1);
	}
}

static inline void accepted(const struct sock *sk, const struct tcp_sock *tp, u64 id, u32 netns)
{
	struct connection c = {};
	struct totals *t;

	c.flow.netns = netns;
	c.flow.side = SERVER;
	c.flow.port = be16(tp->inet_conn.icsk_inet.inet_sport);
	set_address(&c.flow, sk, 1);
	t = totals_of(&c.flow);
	if (t) {
		add(t->attempts, 1);
		add(t->established, 1);
	}
	if (!server_ends)
		return;
	c.began = c.established = ktime_ns();
	if (map_update(&connections, &id, &c, BPF_ANY))
		lose(LOST_CONNECTIONS);
}

// ended adds up a connection. Its last state tells who closed first: FIN_WAIT is of the side that did.
static inline void ended(const struct sock *sk, const struct tcp_sock *tp, struct connection *c, int last)
{
	struct totals *t = known(&c->flow);
	u64 life = ktime_ns() - c->established;
	u32 out, in;

	if (!t)
		return;
	if (last == FIN_WAIT1 || last == FIN_WAIT2)
		add(t->closed_local, 1);
	else if (last == LAST_ACK || last == CLOSE_WAIT)
		add(t->closed_peer, 1);
	else if (last == CLOSING)
		add(t->closed_both, 1);
	else
		add(t->closed_reset, 1);
	// A program that drops a connection, or closes it with data unread, sends a reset after this (tcp_disconnect and
	// __tcp_close in net/ipv4/tcp.c); one that was reset or gave up has an error.
	if ((last == ESTABLISHED || last == CLOSE_WAIT) && !sk->sk_err)
		add(t->resets_sent, 1);
	add(t->life_ns, life);
	add(t->life_buckets[bucket(life)], 1);
	out = tp->data_segs_out;
	in = tp->data_segs_in;
	add(t->bytes_sent, tp->bytes_sent - tp->bytes_retrans);
	add(t->bytes_received, tp->bytes_received - (sk->__sk_common.skc_flags >> SOCK_DONE & 1)); // the peer's FIN counts as a byte
	add(t->data_sent, out);
	add(t->data_received, in);
	add(t->turns, out < in ? out : in);
}

SEC("tp_btf/inet_sock_set_state")
int set_state(u64 *ctx)
{
	const struct sock *sk = (void *)ctx[0];
	int from = ctx[1], to = ctx[2];
	u64 id = (u64)sk;
	const struct tcp_sock *tp;
	struct connection *c;
	u32 netns;

	if (to != CLOSE && to != ESTABLISHED && to != SYN_SENT)
		return 0;
	if (from == LISTEN)
		return 0;
	tp = tcp_sock_of(sk);
	if (!tp)
		return 0; // SCTP, MPTCP and others change their state here, too
	if (to == CLOSE || from == SYN_SENT) {
		c = map_lookup(&connections, &id);
		if (!c)
			return 0; // older than the program, or of another namespace
		if (from == SYN_SENT && to == ESTABLISHED) {
			answered(tp, c);
			return 0;
		}
		if (to != CLOSE)
			return 0; // simultaneous open
		if (c->established)
			ended(sk, tp, c, from);
		else
			unanswered(sk, tp, c);
		map_delete(&connections, &id);
		return 0;
	}
	netns = sk->__sk_common.skc_net.net->ns.inum;
	if (only_netns && netns != only_netns)
		return 0;
	if (to == SYN_SENT)
		begin(sk, id, netns);
	else
		accepted(sk, tp, id, netns);
	return 0;
}

// totals_of_socket serves segments, which come in any context.
static inline struct totals *totals_of_socket(const struct sock *sk)
{
	u64 id = (u64)sk;
	struct connection *c = map_lookup(&connections, &id);
	struct flow f = {};

	if (c)
		return known(&c->flow);
	f.netns = sk->__sk_common.skc_net.net->ns.inum;
	if (only_netns && f.netns != only_netns)
		return 0;
	f.side = UNKNOWN;
	return totals_of(&f);
}

SEC("tp_btf/tcp_retransmit_skb")
int retransmit(u64 *ctx)
{
	const struct sock *sk = (void *)ctx[0];
	struct totals *t = totals_of_socket(sk);

	if (!t)
		return 0;
	if (sk->__sk_common.skc_state == SYN_SENT)
		add(t->syn_retransmits, 1);
	else
		add(t->retransmits, 1);
	return 0;
}

SEC("tp_btf/tcp_receive_reset")
int receive_reset(u64 *ctx)
{
	struct totals *t = totals_of_socket((void *)ctx[0]);

	if (t)
		add(t->resets_received, 1);
	return 0;
}

SEC("tp_btf/tcp_send_reset")
int send_reset(u64 *ctx)
{
	const struct sock *sk = (void *)ctx[0];
	struct totals *t;

	if (!sk)
		return 0; // no socket is concerned: the answer to a segment for a port that is closed
	if (sk->__sk_common.skc_state == CLOSE)
		return 0; // ended() has counted it
	t = totals_of_socket(sk);
	if (t)
		add(t->resets_sent, 1);
	return 0;
}
