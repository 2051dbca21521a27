//go:build ignore

// How long inet_hash_connect takes, in which connect() searches a local port and enters the socket
// (net/ipv4/inet_hashtables.c). It is the second source for what connections.bpf.c says of the search, where the
// kernel allows programs to be attached to its functions.
#include "kernel.h"

LICENSE("Dual BSD/GPL");

const volatile u32 only_tgid = 0;

struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 1024);
	TYPE(key, u32);
	TYPE(value, u64);
} began SEC(".maps");

struct search {
	u64 count;
	u64 ns;
};

struct {
	NUMBER(type, ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct search);
} searches SEC(".maps");

SEC("fentry/inet_hash_connect")
int search_begins(u64 *ctx)
{
	u32 tid = pid_tgid();
	u64 now = ktime_ns();

	if (pid_tgid() >> 32 == only_tgid)
		map_update(&began, &tid, &now, BPF_ANY);
	return 0;
}

SEC("fexit/inet_hash_connect")
int search_ends(u64 *ctx)
{
	u32 tid = pid_tgid(), zero = 0;
	u64 *since = map_lookup(&began, &tid);
	struct search *s = map_lookup(&searches, &zero);

	if (!since || !s)
		return 0;
	add(s->count, 1);
	add(s->ns, ktime_ns() - *since);
	map_delete(&began, &tid);
	return 0;
}
