//go:build ignore

// Who connects where, how it ends, and how long it takes: TCP connections per network namespace, destination and
// process.
//
// All of it comes from changes of a socket's state and from retransmitted and reset segments. Nothing runs per packet,
// and no tracepoint of system calls is used, since one would slow down every system call of the host.
#include "kernel.h"

LICENSE("Dual BSD/GPL");

enum { AF_INET6 = 10 };
enum { SOCK_DONE = 1 }; // a bit of skc_flags, set by tcp_fin()
enum { ESTABLISHED = 1, SYN_SENT, SYN_RECV, FIN_WAIT1, FIN_WAIT2, TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, LISTEN,
	CLOSING };
enum { EPIPE = 32, ECONNRESET = 104, ETIMEDOUT = 110, ECONNREFUSED = 111, EHOSTUNREACH = 113, ENETUNREACH = 101 };

// Sides of a connection.
enum { CLIENT = 1, SERVER = 2, UNKNOWN = 3 };

// The network namespace to look at, 0 for all. Set before loading, so that the others cost one comparison.
const volatile u32 only_netns = 0;

// Whether to follow connections on the server's side to their end, which nearly doubles the cost where both ends are on
// this host. They are counted as they are accepted in any case, and what they answered when they end (see served).
const volatile bool server_ends = 0;

// Numbers are added up by flow. A client's endpoint is the destination, a server's its own listening address and port.
// IPv4 addresses are mapped (::ffff:a.b.c.d). A flow of unknown side has neither endpoint nor pid: its connections
// were there before.
struct flow {
	u32 addr[4];
	u32 netns;
	u32 pid; // 0: of a server, or of processes past the bound of the table
	u16 port;
	u8 side;
	u8 pad[5];
} __attribute__((aligned(8))); // it is compared by words

// Buckets of times: the first is below 16 µs, each next one four times as wide, the last has the rest (from 67 s).
#define BUCKETS 13

// Sums of other counts are not counted: the established connections are the sum of the buckets. Counts that every
// connection changes are side by side, in few cache lines.
struct totals {
	u64 attempts;
	u64 connect_ns;
	u64 searches; // for a local port: connects, successful or not, with a known time until the SYN was sent
	u64 search_ns;
	u64 search_max_ns;
	u64 closed_local; // this side closed first
	u64 closed_peer;
	u64 life_ns;
	u64 bytes_sent; // by connections that have ended, as are the next two counts
	u64 bytes_received;
	u64 turns; // requests at most: the lesser of a connection's data segments sent and received
	u64 turned_away; // by the server, without an exchange (see turned_away)
	u64 few_exchanges; // ended by the server after GREETING at most, quickly
	u64 given_up; // by a client that had waited for an answer (see gave_up)
	u64 given_up_ns; // for so long
	u64 resets_open; // by either side, while a request had no answer (see reset_open)
	u64 connect_buckets[BUCKETS];
	u64 life_buckets[BUCKETS];
	u64 closed_both;
	u64 closed_reset; // neither: reset or aborted
	u64 unavailable; // failed before anything was sent: no local port was free (EADDRNOTAVAIL)
	u64 refused;
	u64 timed_out;
	u64 unreachable;
	u64 failed; // in other ways: the program gave up
	u64 bound;  // attempts whose local port bind() had chosen: for port 0, without IP_BIND_ADDRESS_NO_PORT
	u64 syn_retransmits; // of all connections, as are the counts below
	u64 retransmits;
	u64 resets_received;
	u64 resets_sent;
	u8 comm[16];
};

struct connection {
	u64 began;
	u64 established; // 0: not established yet
	u32 row; // NO_ROW: this socket has no connection under way
	u32 server; // 1: the connection was accepted
	u64 at_fin; // data_segs_out when the peer closed
};

#define NO_ROW (~0U)
#define FLOWS 4096

// The row of a flow's totals. It is looked up once per connection, which keeps the row from then on.
struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, FLOWS);
	TYPE(key, struct flow);
	TYPE(value, u32);
} flows SEC(".maps");

struct {
	NUMBER(type, ARRAY);
	NUMBER(max_entries, FLOWS);
	TYPE(key, u32);
	TYPE(value, struct totals);
} rows SEC(".maps");

// The rows that are not taken yet, filled before the programs are attached. Linux before 5.12 has no atomic operation
// that returns a number.
struct {
	NUMBER(type, STACK);
	NUMBER(max_entries, FLOWS);
	TYPE(value, u32);
} free_rows SEC(".maps");

// The flow that a CPU had last: mostly the next one is the same.
struct last {
	struct flow flow;
	u32 row;
};

struct {
	NUMBER(type, PERCPU_ARRAY);
	NUMBER(max_entries, 2); // by side
	TYPE(key, u32);
	TYPE(value, struct last);
} last_flow SEC(".maps");

// By the address of the socket. An entry stays for the next socket that the kernel puts there, which it does at once:
// inserting and deleting one would cost as much as all the rest.
struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, u64);
	TYPE(value, struct connection);
} connections SEC(".maps");

// Entries beyond this number do not stay, so that the table has room for connections.
#define LEFT 8192
u64 entries = 0;

enum { LOST_FLOWS, LOST_CONNECTIONS, LOST_KINDS };

LOST(LOST_KINDS)

static inline u32 create(const struct flow *f)
{
	struct totals *t;
	u32 row, *taken;

	if (map_pop(&free_rows, &row))
		return NO_ROW;
	t = map_lookup(&rows, &row);
	if (t && f->pid)
		current_comm(t->comm, sizeof(t->comm));
	if (map_update(&flows, f, &row, BPF_NOEXIST))
		map_push(&free_rows, &row, 0); // another CPU was faster
	taken = map_lookup(&flows, f);
	return taken ? *taken : NO_ROW;
}

// find finds or creates the row of a flow. In a full table processes share a row per destination, if there is room.
static inline u32 find(const struct flow *f)
{
	u32 *row = map_lookup(&flows, f), got;
	struct flow others;

	if (row)
		return *row;
	others = *f;
	others.pid = 0;
	if (f->pid && (row = map_lookup(&flows, &others)))
		return *row;
	got = create(f);
	if (got != NO_ROW || !f->pid)
		return got;
	lose(LOST_FLOWS, 1);
	return create(&others);
}

static inline bool same(const struct flow *a, const struct flow *b)
{
	const u64 *x = (const void *)a, *y = (const void *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3];
}

static inline u32 row_of(const struct flow *f)
{
	u32 slot = f->side == SERVER;
	struct last *last = map_lookup(&last_flow, &slot);
	u32 row;

	if (last && same(&last->flow, f))
		return last->row;
	row = find(f);
	if (last && row != NO_ROW) {
		last->flow = *f;
		last->row = row;
	}
	return row;
}

static inline struct totals *totals_of(u32 row)
{
	return map_lookup(&rows, &row);
}

static inline u32 bucket(u64 ns)
{
	u32 b = 0;

#pragma nounroll
	for (u64 rest = ns >> 14; rest && b < BUCKETS - 1; rest >>= 2) // 16,384 ns: nearly 16 µs
		b++;
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

// The locks of a socket's address and port, sk_userlocks (include/net/sock.h).
enum { SOCK_BINDADDR_LOCK = 4, SOCK_BINDPORT_LOCK = 8 };

// bound_to_any reports whether bind() has chosen the port of a connecting socket: the socket already has a port, which
// nobody named.
static inline bool bound_to_any(const struct sock *sk)
{
	return sk->__sk_common.skc_num && !(bits(sk->sk_userlocks, sk) & SOCK_BINDPORT_LOCK);
}

// follow returns the entry of a socket that begins a connection, 0 if there is no room.
static inline struct connection *follow(u64 id, u32 row)
{
	struct connection *c = map_lookup(&connections, &id), new = {.row = row};

	if (c) {
		c->established = 0;
		c->row = row;
		c->server = 0;
		return c;
	}
	if (map_update(&connections, &id, &new, BPF_NOEXIST)) {
		lose(LOST_CONNECTIONS, 1);
		return 0;
	}
	add(entries, 1);
	return map_lookup(&connections, &id);
}

// forget ends the entry of a connection.
static inline void forget(u64 id, struct connection *c)
{
	c->row = NO_ROW;
	if (entries > LEFT && !map_delete(&connections, &id))
		add(entries, -1);
}

static inline void begin(const struct sock *sk, u64 id, u32 netns)
{
	struct connection *c;
	u32 row;
	struct flow f = {};
	struct totals *t;

	f.netns = netns;
	f.side = CLIENT;
	f.pid = pid_tgid() >> 32;
	f.port = be16(sk->__sk_common.skc_dport);
	set_address(&f, sk, 0);
	row = row_of(&f);
	t = totals_of(row);
	if (!t)
		return;
	add(t->attempts, 1);
	if (bound_to_any(sk))
		add(t->bound, 1);
	c = follow(id, row);
	if (c)
		c->began = ktime_ns(); // last, so that the search for a port has not our own time in it
}

static inline void searched(struct totals *t, u64 ns)
{
	add(t->searches, 1);
	add(t->search_ns, ns);
	if (ns > t->search_max_ns)
		t->search_max_ns = ns; // two CPUs at once may lose one of two maxima, which does not matter
}

// answered ends SYN_SENT with a connection. The socket has both times, on the clock of ktime_ns (tcp_clock_ns in
// include/net/tcp.h), which saves reading it: tcp_clock_cache, of the segment that came (tcp_mstamp_refresh in
// net/ipv4/tcp_output.c), and tcp_wstamp_ns, of the last segment sent (tcp_update_skb_after_send there). The time from
// SYN_SENT until the SYN was sent is the search for a local port, unless the SYN was retransmitted.
static inline void answered(const struct tcp_sock *tp, struct connection *c)
{
	struct totals *t = totals_of(c->row);
	u64 now = tp->tcp_clock_cache;
	u64 sent = tp->tcp_wstamp_ns;

	if (now < c->began)
		now = ktime_ns(); // nothing came: a Fast Open connects before
	c->established = now;
	if (!t)
		return;
	add(t->connect_ns, now - c->began);
	add(t->connect_buckets[bucket(now - c->began)], 1);
	if (!tp->total_retrans && sent > c->began && sent < now)
		searched(t, sent - c->began);
}

// unanswered ends SYN_SENT without a connection.
static inline void unanswered(const struct sock *sk, const struct tcp_sock *tp, struct connection *c)
{
	struct totals *t = totals_of(c->row);
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
	struct connection *c;
	struct flow f = {};
	struct totals *t;
	u32 row;

	f.netns = netns;
	f.side = SERVER;
	f.port = be16(tp->inet_conn.icsk_inet.inet_sport);
	set_address(&f, sk, 1);
	row = row_of(&f);
	t = totals_of(row);
	if (!t)
		return;
	add(t->attempts, 1);
	if (!server_ends)
		return;
	c = follow(id, row);
	if (!c)
		return;
	c->began = c->established = ktime_ns();
	c->server = 1;
}

// end_of returns the time of a connection's end. If the peer's last acknowledgement or FIN ended it, the socket has
// that time (see answered).
static inline u64 end_of(const struct sock *sk, const struct tcp_sock *tp, int last)
{
	bool fin = sk->__sk_common.skc_flags >> SOCK_DONE & 1;

	if (!sk->sk_err && (last == LAST_ACK || (last == FIN_WAIT2 && fin)))
		return tp->tcp_clock_cache;
	return ktime_ns();
}

static inline u32 turns_of(const struct tcp_sock *tp)
{
	u32 out = tp->data_segs_out, in = tp->data_segs_in;

	return out < in ? out : in;
}

// A second in jiffies, CONFIG_HZ: a server that closes within a second after data came, or the connection did, means
// this client, and not any silent one. Set before loading.
const volatile u32 second = 1000;

// GREETING is how many exchanges come before a database says that it is full: libpq asks for GSSAPI, for TLS, and to
// begin (src/interfaces/libpq/fe-connect.c, PQconnectPoll).
#define GREETING 3

// GREETED is how many bytes PostgreSQL sends at least to a client that it lets in: it lists a dozen of its parameters
// (BeginReportingGUCOptions in src/backend/utils/misc/guc.c), 350 bytes and more. An error has some 150.
#define GREETED 256

// turned_away counts, on the server's side, connections that the server closed first with no or few exchanges, before
// the client was silent for long. A server at its limit of connections closes at once, or after a message about it. If
// a request is unread, the kernel resets the connection (__tcp_close in net/ipv4/tcp.c), and the last state is
// ESTABLISHED. After a message either side may be the first to close: then the message is what counts.
static inline void turned_away(const struct sock *sk, const struct tcp_sock *tp, struct totals *t, int last)
{
	u32 silent = (u32)jiffies() - tp->inet_conn.icsk_ack.lrcvtime, turns = turns_of(tp);
	bool unread = last == ESTABLISHED && !sk->sk_err;
	bool closed = unread || last == FIN_WAIT1 || last == FIN_WAIT2 || last == CLOSING;
	bool greeted = !turns || tp->bytes_sent - tp->bytes_retrans >= GREETED;

	if (silent > second || turns > GREETING || (!closed && greeted))
		return;
	if (!turns || (unread && tp->data_segs_in == 1)) // what was sent is no answer: the only request is unread
		add(t->turned_away, 1);
	else
		add(t->few_exchanges, 1);
}

// gave_up counts, on the client's side, connections that it closed first while what it had sent was unanswered, with
// the time since: a timeout, of a tenth of a second and more. A client that says good-bye and closes (libpq, MySQL's
// clients, TLS) does so at once, or in less than that if it has to wait for a CPU. What was sent in the same jiffy in
// which the last answer came counts as answered.
static inline void gave_up(const struct sock *sk, const struct tcp_sock *tp, struct totals *t, int last)
{
	u32 sent = tp->lsndtime, waited = (u32)jiffies() - sent;
	bool dropped = (last == ESTABLISHED || last == CLOSE_WAIT) && !sk->sk_err;
	bool first = last == FIN_WAIT1 || last == FIN_WAIT2 || last == CLOSING;
	bool open = (s32)(sent - tp->inet_conn.icsk_ack.lrcvtime) > 0 || !tp->data_segs_in;

	if (!tp->data_segs_out || !open || (!dropped && !first) || waited <= second / 10)
		return;
	add(t->given_up, 1);
	add(t->given_up_ns, (u64)waited * 1000000000 / second);
}

// reset_open counts connections that a reset ended while a request had no answer: the request is what came last. On
// other connections nothing was lost: a side that closes with SO_LINGER 0 has what it wanted. What a client sends
// after the server has closed is a good-bye, such as that of TLS, and not a request.
static inline void reset_open(const struct sock *sk, const struct tcp_sock *tp, struct totals *t, int last,
			      bool server, u64 at_fin)
{
	u32 received = tp->inet_conn.icsk_ack.lrcvtime;
	u32 out = tp->data_segs_out, in = tp->data_segs_in;
	s32 later = tp->lsndtime - received;
	bool dropped = (last == ESTABLISHED || last == CLOSE_WAIT) && !sk->sk_err;

	if (!dropped && sk->sk_err != ECONNRESET && sk->sk_err != EPIPE)
		return;
	if (!server && last == CLOSE_WAIT && out != at_fin)
		return;
	if (server ? in && (later < 0 || !out) : out && (later > 0 || !in))
		add(t->resets_open, 1);
}

// ended adds up a connection. Its last state tells who closed first: the side that did is in FIN_WAIT.
static inline void ended(const struct sock *sk, const struct tcp_sock *tp, struct connection *c, int last)
{
	struct totals *t = totals_of(c->row);
	u64 end = end_of(sk, tp, last);
	u64 life = end > c->established ? end - c->established : 0;

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
	// __tcp_close in net/ipv4/tcp.c); one that was reset or timed out has an error.
	if ((last == ESTABLISHED || last == CLOSE_WAIT) && !sk->sk_err)
		add(t->resets_sent, 1);
	add(t->life_ns, life);
	add(t->life_buckets[bucket(life)], 1);
	add(t->bytes_sent, tp->bytes_sent - tp->bytes_retrans);
	// the peer's FIN counts as a byte
	add(t->bytes_received, tp->bytes_received - (sk->__sk_common.skc_flags >> SOCK_DONE & 1));
	add(t->turns, turns_of(tp));
	reset_open(sk, tp, t, last, c->server, c->at_fin);
	if (c->server)
		turned_away(sk, tp, t, last);
	else
		gave_up(sk, tp, t, last);
}

// served adds up what a server answered on a connection that was not followed, if its listener accepted others since:
// otherwise nothing tells the connection from a client's that is older than the program.
static inline void served(const struct sock *sk, const struct tcp_sock *tp, u32 netns, int last)
{
	struct flow f = {};
	struct totals *t;
	u32 row, *known, slot = 1;
	struct last *recent = map_lookup(&last_flow, &slot);

	f.netns = netns;
	f.side = SERVER;
	f.port = be16(tp->inet_conn.icsk_inet.inet_sport);
	set_address(&f, sk, 1);
	if (recent && same(&recent->flow, &f)) {
		row = recent->row;
	} else {
		known = map_lookup(&flows, &f);
		if (!known)
			return;
		row = *known;
	}
	t = totals_of(row);
	if (!t)
		return;
	add(t->turns, turns_of(tp));
	turned_away(sk, tp, t, last);
	reset_open(sk, tp, t, last, 1, 0);
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

	if (to == CLOSE_WAIT) {
		c = map_lookup(&connections, &id);
		tp = tcp_sock_of(sk);
		if (c && tp)
			c->at_fin = tp->data_segs_out;
		return 0;
	}
	// Other changes of state do not matter.
	if (to != CLOSE && to != ESTABLISHED && to != SYN_SENT)
		return 0;
	if (from == LISTEN)
		return 0;
	if (to == CLOSE || from == SYN_SENT) {
		c = map_lookup(&connections, &id);
		tp = tcp_sock_of(sk);
		if (!tp)
			return 0;
		if (!c || c->row == NO_ROW) { // older than the program, of another namespace, or a server's
			netns = netns_of(sk);
			if (from != SYN_SENT && (!only_netns || netns == only_netns))
				served(sk, tp, netns, from);
			return 0;
		}
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
		forget(id, c);
		return 0;
	}
	netns = netns_of(sk);
	if (only_netns && netns != only_netns)
		return 0;
	tp = tcp_sock_of(sk);
	if (!tp)
		return 0; // SCTP, MPTCP and others change their state here, too
	if (to == SYN_SENT)
		begin(sk, id, netns);
	else
		accepted(sk, tp, id, netns);
	return 0;
}

// totals_of_socket is for segments, which come in any context.
static inline struct totals *totals_of_socket(const struct sock *sk)
{
	u64 id = (u64)sk;
	struct connection *c = map_lookup(&connections, &id);
	struct flow f = {};

	if (c && c->row != NO_ROW)
		return totals_of(c->row);
	f.netns = netns_of(sk);
	if (only_netns && f.netns != only_netns)
		return 0;
	f.side = UNKNOWN;
	return totals_of(find(&f));
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
