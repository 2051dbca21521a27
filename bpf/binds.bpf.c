//go:build ignore

// Who has bind() choose a local port, and whether it finds one: TCP sockets that are bound to port 0 without
// IP_BIND_ADDRESS_NO_PORT. The port is then chosen without knowing the destination, from one pool for all of them
// (net/ipv4/inet_connection_sock.c, inet_csk_get_port).
//
// The kernel calls these programs only in bind(), before a port is chosen and after one was found. A tracepoint of the
// system call would slow down every system call of the host (measured: by 51 ns). They let each bind() pass.
#include "kernel.h"

LICENSE("Dual BSD/GPL");

enum { SOCK_STREAM = 1, IPPROTO_TCP = 6, PASS = 1 };

// The network namespace to look at, 0 for all.
const volatile u32 only_netns = 0;

struct asker {
	u32 addr[4]; // the source address asked for; IPv4 is mapped
	u32 netns;
	u32 pid; // 0: of processes past the bound of the table
};

struct asked {
	u64 asked;
	u64 found;
	u64 search_ns; // of the searches that found one
	u8 comm[16];
};

struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 1024);
	TYPE(key, struct asker);
	TYPE(value, struct asked);
} askers SEC(".maps");

struct search {
	struct asker asker;
	u64 began;
};

// By thread: the search under way, or the last one that failed.
struct {
	NUMBER(type, LRU_HASH);
	NUMBER(max_entries, 4096);
	TYPE(key, u64);
	TYPE(value, struct search);
} searches SEC(".maps");

LOST(1)

// The context of the programs (include/uapi/linux/bpf.h). It has this layout on every kernel.
struct bpf_sock_addr {
	u32 user_family;
	u32 user_ip4;
	u32 user_ip6[4];
	u32 user_port;
	u32 family;
	u32 type;
	u32 protocol;
	u32 msg_src_ip4;
	u32 msg_src_ip6[4];
	void *sk __attribute__((aligned(8)));
};

// From Linux 6.6 on this is a bit of inet_flags, the 18th of include/net/inet_sock.h.
#define BIND_ADDRESS_NO_PORT 18

// port_later reports whether bind() is not to choose a port.
static inline bool port_later(const struct tcp_sock *tp)
{
	const struct inet_sock *inet = &tp->inet_conn.icsk_inet;
	const struct inet_sock___old *old = (const void *)inet;

	if (field_exists(inet->inet_flags))
		return inet->inet_flags >> BIND_ADDRESS_NO_PORT & 1;
	return bits(old->bind_address_no_port, old);
}

static inline struct asked *totals_of(struct asker *a)
{
	struct asked *t = map_lookup(&askers, a), fresh = {};

	if (t)
		return t;
	current_comm(fresh.comm, sizeof(fresh.comm));
	map_update(&askers, a, &fresh, BPF_NOEXIST);
	t = map_lookup(&askers, a);
	if (!t)
		lose(0, 1);
	return t;
}

static inline u32 current_pid(u64 task)
{
	u32 pid = 0;

	// Before Linux 6.10 this type of program may not call bpf_get_current_pid_tgid.
	read_kernel(&pid, sizeof(pid), &((struct task_struct *)task)->tgid);
	return pid;
}

static inline int ask(struct bpf_sock_addr *ctx, struct search *s)
{
	u64 task = current_task();
	const struct tcp_sock *tp;
	struct asked *t;

	map_delete(&searches, &task); // what failed before
	if (ctx->user_port || ctx->type != SOCK_STREAM || !ctx->sk)
		return PASS;
	tp = tcp_sock_of(ctx->sk);
	if (!tp || port_later(tp))
		return PASS;
	s->asker.netns = netns_of(&tp->inet_conn.icsk_inet.sk);
	if (only_netns && s->asker.netns != only_netns)
		return PASS;
	s->asker.pid = current_pid(task);
	t = totals_of(&s->asker);
	if (!t)
		return PASS;
	add(t->asked, 1);
	s->began = ktime_ns();
	map_update(&searches, &task, s, BPF_ANY);
	return PASS;
}

SEC("cgroup/bind4")
int bind4(struct bpf_sock_addr *ctx)
{
	struct search s = {};

	s.asker.addr[2] = 0xffff0000;
	s.asker.addr[3] = ctx->user_ip4;
	return ask(ctx, &s);
}

SEC("cgroup/bind6")
int bind6(struct bpf_sock_addr *ctx)
{
	struct search s = {};

	s.asker.addr[0] = ctx->user_ip6[0];
	s.asker.addr[1] = ctx->user_ip6[1];
	s.asker.addr[2] = ctx->user_ip6[2];
	s.asker.addr[3] = ctx->user_ip6[3];
	return ask(ctx, &s);
}

static inline int found(void)
{
	u64 task = current_task(), now = ktime_ns();
	struct search *s = map_lookup(&searches, &task);
	struct asked *t;

	if (!s)
		return PASS;
	t = map_lookup(&askers, &s->asker);
	if (t) {
		add(t->found, 1);
		add(t->search_ns, now - s->began);
	}
	map_delete(&searches, &task);
	return PASS;
}

SEC("cgroup/post_bind4")
int found4(void *ctx)
{
	return found();
}

SEC("cgroup/post_bind6")
int found6(void *ctx)
{
	return found();
}
