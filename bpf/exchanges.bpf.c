//go:build ignore

// How long the target's exchanges take. An exchange is what one side of a TCP connection sends until the other does,
// and the answer to that. What is sent and answered together, such as a pipeline of requests, is one exchange.
//
// A socket has the time when it sent last (tcp_wstamp_ns) and how much it sent (data_segs_out), so it is enough to
// look when segments arrive. Nothing runs when a segment is sent: there is no tracepoint for that.
#include "target.h"

LICENSE("Dual BSD/GPL");

enum { AF_INET6 = 10 };
enum { ESTABLISHED = 1, SYN_SENT };
enum { CLIENT = 1, SERVER = 2 };

// The target's network namespace.
const volatile u32 only_netns = 0;

// The ports that the target listens on, a bit each.
struct {
	NUMBER(type, ARRAY);
	NUMBER(max_entries, 1024);
	TYPE(key, u32);
	TYPE(value, u64);
} listeners SEC(".maps");

// Whether a connection was seen that the target itself began. Before that the ports tell what to follow, without a
// table lookup for each segment of all processes.
bool clients = 0;

// The programs that run for each segment are attached in turns where there are many. turn counts up when they are
// attached and when they are detached: what was noted in one turn is not valid in the next, since the socket has had
// exchanges in between that nobody saw.
volatile u32 turn = 0;

// Segments that the program was called for, by CPU.
struct {
	NUMBER(type, PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} met SEC(".maps");

// The state of a connection's exchange. The times are on the clock of ktime_ns, like the socket's own (tcp_clock_ns in
// include/net/tcp.h).
struct exchange {
	u64 asked;    // server: when the request began to arrive; client: when its end was sent; 0: not yet
	u64 answered; // server: when the end of the answer was sent; client: when it was read; 0: not yet
	u32 sent;     // data_segs_out at the last look
	u32 turn;     // the turn of all that
	u32 side;
	u32 at_timer; // the end of the answer was sent when a timed wait of the target had just run out
};

// By the address of the socket.
struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, u64);
	TYPE(value, struct exchange);
} exchanges SEC(".maps");

// A client's endpoint is the destination, a server's its own address and port. IPv4 addresses are mapped.
struct end {
	u32 addr[4];
	u16 port;
	u16 side;
};

// Buckets of times: the first is below 1,024 ns, then each doubling has 16 of the same width, and the last has the rest
// (from 68.7 s). A bucket is at most 6.25 % wide.
#define DOUBLINGS 26
#define BUCKETS (2 + DOUBLINGS * 16)
// The next power of two, so that a mask bounds the index: Linux 5.10 does not follow a comparison of its halves.
#define ROOM 512

struct times {
	u32 begun; // exchanges, also those whose end was not seen
	u32 at_timer; // those whose end was seen
	u32 buckets[ROOM];
};

struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 64);
	TYPE(key, struct end);
	TYPE(value, struct times);
} ends SEC(".maps");

// All zeros, which are too large for the stack.
struct {
	NUMBER(type, ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct times);
} none SEC(".maps");

// When timed waits of the target's threads last ran out: the number of the slot of time, of 2^20 ns, and of the next
// one, since the thread has yet to get a CPU, and may send many answers one after the other. The table goes back for a
// second, which is enough: what was sent is looked at when it is acknowledged, after 0.2 s at most (TCP_DELACK_MAX in
// include/net/tcp.h).
#define SLOT_SHIFT 20
#define SLOTS 1024

struct {
	NUMBER(type, ARRAY);
	NUMBER(max_entries, SLOTS);
	TYPE(key, u32);
	TYPE(value, u32);
} timeouts SEC(".maps");

// How many slots were noted.
u64 slots = 0;

enum { LOST_EXCHANGES, LOST_ENDS, LOST_KINDS };

LOST(LOST_KINDS)

static inline bool in_netns(const struct sock *sk)
{
	return netns_of(sk) == only_netns;
}

static inline bool listens(const struct sock *sk)
{
	u32 port = sk->__sk_common.skc_num, word = port >> 6;
	u64 *bits = map_lookup(&listeners, &word);

	return bits && *bits >> (port & 63) & 1;
}

// is_set returns 1 unless n is 0, without a branch: the verifier would follow both paths at each step of bucket, to
// the end of the program.
static inline u64 is_set(u64 n)
{
	u64 minus = -n;

	asm volatile("" : "+r"(minus)); // the compiler would make it a branch
	return (n | minus) >> 63;
}

static inline u32 bucket(u64 ns)
{
	u64 rest = ns >> 10;
	u32 log = 0, b;

	if (!rest)
		return 0;
#pragma unroll
	for (u32 step = 32; step; step >>= 1) {
		u32 shift = is_set(rest >> step) * step;

		rest >>= shift;
		log += shift;
	}
	b = 1 + 16 * log + (u32)(ns >> (log + 6) & 15);
	return b < BUCKETS ? b : BUCKETS - 1;
}

static inline void end_of(struct end *e, const struct sock *sk, u32 side)
{
	const struct sock_common *c = &sk->__sk_common;

	e->side = side;
	e->port = side == SERVER ? c->skc_num : be16(c->skc_dport);
	if (c->skc_family == AF_INET6) {
		const struct in6_addr *a = side == SERVER ? &c->skc_v6_rcv_saddr : &c->skc_v6_daddr;

		e->addr[0] = a->in6_u.u6_addr32[0];
		e->addr[1] = a->in6_u.u6_addr32[1];
		e->addr[2] = a->in6_u.u6_addr32[2];
		e->addr[3] = a->in6_u.u6_addr32[3];
		return;
	}
	e->addr[2] = 0xffff0000; // ::ffff in network order, as a little-endian word
	e->addr[3] = side == SERVER ? c->skc_rcv_saddr : c->skc_daddr;
}

static inline struct times *times_of(const struct sock *sk, u32 side)
{
	struct end e = {};
	struct times *t;
	u32 zero = 0;

	end_of(&e, sk, side);
	t = map_lookup(&ends, &e);
	if (t)
		return t;
	t = map_lookup(&none, &zero);
	if (t)
		map_update(&ends, &e, t, BPF_NOEXIST);
	t = map_lookup(&ends, &e);
	if (!t)
		lose(LOST_ENDS, 1);
	return t;
}

static inline void note_timeout(u32 slot)
{
	u32 at = slot & (SLOTS - 1);
	u32 *noted = map_lookup(&timeouts, &at);

	if (!noted || *noted == slot)
		return;
	*noted = slot;
	add(slots, 1);
}

static inline bool after_timeout(u64 ns)
{
	u32 slot = ns >> SLOT_SHIFT, at = slot & (SLOTS - 1);
	u32 *noted = map_lookup(&timeouts, &at);

	return noted && *noted == slot;
}

static inline bool is_over(const struct exchange *x)
{
	return x->asked && x->answered >= x->asked;
}

// over counts an exchange if it has ended.
static inline void over(struct times *t, const struct exchange *x)
{
	u32 b;

	if (!is_over(x))
		return;
	b = bucket(x->answered - x->asked);
	asm volatile("%0 &= %1" : "+r"(b) : "i"(ROOM - 1)); // the compiler would leave it out
	add(t->buckets[b], 1);
	add(t->at_timer, x->at_timer);
}

// begin counts the previous exchange, if there was one, and begins the next.
static inline void begin(const struct sock *sk, struct exchange *x, u64 asked)
{
	struct times *t = times_of(sk, x->side);

	if (t) {
		over(t, x);
		add(t->begun, 1);
	}
	x->asked = asked;
	x->answered = 0;
}

static inline void follow(u64 id, const struct exchange *x)
{
	if (x->side == CLIENT && !clients)
		clients = 1;
	if (map_update(&exchanges, &id, x, BPF_ANY))
		lose(LOST_EXCHANGES, 1);
}

// look notes that the socket has sent since the last look: a server the answer, a client a new request. The last
// segment that a server's socket sent belongs to the answer, even if one without data followed the previous request:
// look runs as soon as something comes, and without that nothing is acknowledged again.
static inline void look(const struct sock *sk, const struct tcp_sock *tp, struct exchange *x)
{
	u32 sent = tp->data_segs_out;

	if (sent == x->sent)
		return;
	x->sent = sent;
	if (x->side != SERVER) {
		begin(sk, x, tp->tcp_wstamp_ns);
		return;
	}
	x->answered = tp->tcp_wstamp_ns;
	x->at_timer = after_timeout(x->answered);
}

// forget drops what was noted in an earlier turn. What a client sent then or since is looked at next.
static inline void forget(const struct tcp_sock *tp, struct exchange *x)
{
	if (x->turn == turn)
		return;
	x->turn = turn;
	x->asked = 0;
	x->answered = 0;
	if (x->side == SERVER)
		x->sent = tp->data_segs_out;
}

// has_data reports whether a segment of an established connection has more than its header. Its control block says how
// many sequence numbers it takes (struct tcp_skb_cb in include/net/tcp.h). A single one may be its FIN: then the
// header tells. The header begins where the data of the buffer does (tcp_rcv_established in net/ipv4/tcp_input.c), and
// has its length in the upper half of its byte 12, in words.
static inline bool has_data(const struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = (void *)skb->cb;
	u32 takes = cb->end_seq - cb->seq;
	u8 offset = 0;

	if (takes != 1)
		return takes > 1;
	read_kernel(&offset, sizeof(offset), skb->data + 12);
	return skb->len > (offset >> 4) * 4;
}

// It runs before the kernel looks at the segment: the socket is as its last answer left it.
SEC("tp_btf/tcp_probe")
int arrive(u64 *ctx)
{
	const struct sock *sk = (void *)ctx[0];
	const struct sk_buff *skb = (void *)ctx[1];
	u64 id = (u64)sk;
	struct exchange *x, first = {.side = SERVER, .turn = turn};
	bool serves = listens(sk);
	const struct tcp_sock *tp;
	u32 zero = 0;
	u64 *n = map_lookup(&met, &zero);

	if (n)
		(*n)++; // a softirq that comes in between may cost one
	if (!serves && !clients)
		return 0;
	if (!in_netns(sk))
		return 0;
	x = map_lookup(&exchanges, &id);
	if (!x && !serves)
		return 0;
	tp = tcp_sock_of(sk);
	if (!tp)
		return 0;
	if (x) {
		forget(tp, x);
		look(sk, tp, x);
	}
	if (!has_data(skb))
		return 0;
	if (!x) {
		begin(sk, &first, ktime_ns());
		first.sent = tp->data_segs_out;
		follow(id, &first);
	} else if (x->side == CLIENT) {
		x->answered = ktime_ns();
	} else if (x->answered || !x->asked) {
		begin(sk, x, ktime_ns());
	}
	return 0;
}

// A client has an answer when it has read it.
SEC("tp_btf/tcp_rcv_space_adjust")
int read_some(u64 *ctx)
{
	const struct sock *sk = (void *)ctx[0];
	struct exchange *x, first = {.side = CLIENT, .turn = turn};
	u64 id = (u64)sk;
	const struct tcp_sock *tp;

	if (!clients && listens(sk))
		return 0;
	if (!is_target(pid_tgid() >> 32) || !in_netns(sk))
		return 0;
	x = map_lookup(&exchanges, &id);
	if (x) {
		if (x->side == CLIENT && x->answered && x->turn == turn)
			x->answered = ktime_ns();
		return 0;
	}
	// Data that a peer sent before it closed are read later. Nothing would end a connection followed from then on, and
	// the next socket in the same memory would have its entry.
	if (listens(sk) || sk->__sk_common.skc_state != ESTABLISHED)
		return 0;
	tp = tcp_sock_of(sk);
	if (!tp)
		return 0;
	first.sent = tp->data_segs_out;
	begin(sk, &first, 0); // nobody saw when
	follow(id, &first);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int change_state(u64 *ctx)
{
	const struct sock *sk = (void *)ctx[0];
	int from = ctx[1], to = ctx[2];
	struct exchange *x, first = {.side = CLIENT, .turn = turn};
	u64 id = (u64)sk;
	const struct tcp_sock *tp;
	struct times *t;

	if (from != ESTABLISHED && from != SYN_SENT && to != SYN_SENT)
		return 0;
	tp = tcp_sock_of(sk);
	if (!tp || !in_netns(sk))
		return 0;
	if (to == SYN_SENT) {
		if (is_target(pid_tgid() >> 32))
			follow(id, &first);
		return 0;
	}
	if (to == ESTABLISHED)
		return 0;
	x = map_lookup(&exchanges, &id);
	if (!x)
		return 0;
	if (x->turn == turn) {
		look(sk, tp, x);
		t = is_over(x) ? times_of(sk, x->side) : 0; // without an exchange it takes no room among the endpoints
		if (t)
			over(t, x);
	}
	map_delete(&exchanges, &id);
	return 0;
}

// A thread that waits with a timeout is woken by the timer of a struct hrtimer_sleeper (kernel/time/hrtimer.c). What
// other timers have in place of the thread is read as if it were one, but is no thread of the target.
SEC("tp_btf/hrtimer_expire_entry")
int expire(u64 *ctx)
{
	const struct hrtimer_sleeper *s = (void *)ctx[0];
	const struct task_struct *p = read(s->task);
	u32 slot = ktime_ns() >> SLOT_SHIFT;

	if (!p || !is_target(read(p->tgid)))
		return 0;
	note_timeout(slot);
	note_timeout(slot + 1);
	return 0;
}
