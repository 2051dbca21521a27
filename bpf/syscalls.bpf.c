//go:build ignore

// The target's system calls by number: how many, how long, and how they failed.
#include "target.h"

LICENSE("Dual BSD/GPL");

struct entry {
	u64 since;
	s64 call;
};

// By thread id: the call that a thread is in.
struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 16384);
	TYPE(key, u32);
	TYPE(value, struct entry);
} inside SEC(".maps");

// Buckets of durations: the first is below 1 µs, each next one four times as wide, the last has the rest (from 65 ms).
#define BUCKETS 10

struct call_totals {
	u64 calls;
	u64 ns;
	u64 bytes; // sum of the return values of calls that did not fail
	u64 buckets[BUCKETS];
};

#define CALLS 512

struct {
	NUMBER(type, PERCPU_ARRAY);
	NUMBER(max_entries, CALLS);
	TYPE(key, u32);
	TYPE(value, struct call_totals);
} totals SEC(".maps");

struct failure {
	u32 call;
	s32 error;
};

struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 2048);
	TYPE(key, struct failure);
	TYPE(value, u64);
} failures SEC(".maps");

enum { LOST_ENTRIES, LOST_FAILURES, LOST_CALLS, LOST_KINDS };

LOST(LOST_KINDS)

SEC("tp_btf/sys_enter")
int enter(u64 *ctx)
{
	u64 id = pid_tgid();
	u32 tid = id;
	struct entry *known, now = {};

	if (!is_target(id >> 32))
		return 0;
	known = map_lookup(&inside, &tid);
	if (known) {
		known->call = ctx[1];
		known->since = ktime_ns();
		return 0;
	}
	now.call = ctx[1];
	now.since = ktime_ns();
	if (map_update(&inside, &tid, &now, BPF_ANY))
		lose(LOST_ENTRIES, 1);
	return 0;
}

static inline void fail(u32 call, s32 error)
{
	struct failure key = {.call = call, .error = error};
	u64 *count = map_lookup(&failures, &key), none = 0;

	if (!count) {
		map_update(&failures, &key, &none, BPF_NOEXIST);
		count = map_lookup(&failures, &key);
	}
	if (count)
		add(*count, 1);
	else
		lose(LOST_FAILURES, 1);
}

#define MAX_ERRNO 4095 // include/linux/err.h

// A call that was entered before the programs were loaded is not counted, since nobody knows when it began. Neither
// are calls that have not returned yet.
SEC("tp_btf/sys_exit")
int leave(u64 *ctx)
{
	u64 id = pid_tgid(), ns;
	s64 returned = ctx[1];
	u32 tid = id, call, b = 0;
	struct call_totals *t;
	struct entry *e;

	if (!is_target(id >> 32))
		return 0;
	e = map_lookup(&inside, &tid);
	if (!e || !e->since)
		return 0;
	ns = ktime_ns() - e->since;
	e->since = 0;
	call = e->call;
	t = map_lookup(&totals, &call);
	if (!t) {
		lose(LOST_CALLS, 1);
		return 0;
	}
	t->calls++;
	t->ns += ns;
	for (u64 rest = ns >> 10; rest && b < BUCKETS - 1; rest >>= 2)
		b++;
	t->buckets[b]++;
	if (returned < 0 && returned >= -MAX_ERRNO)
		fail(call, -returned);
	else if (returned > 0)
		t->bytes += returned;
	return 0;
}
