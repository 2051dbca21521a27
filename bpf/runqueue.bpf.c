//go:build ignore

// How long the threads of each control group run, wait for a CPU, and are stopped by a quota: from when a thread
// becomes runnable until it is switched to a CPU. Misses waits that began before the programs were loaded. Costs about
// 0.5 µs at each context switch and wakeup of the host.
#include "kernel.h"

LICENSE("Dual BSD/GPL");

// When the programs were loaded, by the clock of ktime_ns.
const volatile u64 began = 0;

// A thread that is runnable but does not run.
struct waiting {
	u64 since;
	u64 group;
	u64 queue;         // its cfs_rq at that time
	u64 stopped_until; // throttled_sum of that
	bool throttled;    // one of its groups had no quota left then
};

// By thread id. A host on which more threads wait at once can no longer be diagnosed.
struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 32768);
	TYPE(key, u32);
	TYPE(value, struct waiting);
} queued SEC(".maps");

struct usage {
	u64 run_ns;
	u64 wait_ns;
	u64 waits;
	u64 throttled_ns;
};

// By the id of the group of the cpu controller that a thread is in, 0: none.
struct {
	NUMBER(type, PERCPU_HASH);
	NUMBER(max_entries, 4096);
	TYPE(key, u64);
	TYPE(value, struct usage);
} groups SEC(".maps");

// Waits by length: at most 1,024 ns, four times that, and so on; the last has the rest, above 4.3 s.
#define BUCKETS 13

struct running {
	u64 since; // 0: nothing
	u64 group;
	bool known; // there was a switch
	u64 wait_ns; // of the waits that ended on this CPU, without the time stopped by quotas
	u64 waits[BUCKETS];
};

struct {
	NUMBER(type, PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct running);
} cpus SEC(".maps");

enum { LOST_THREADS, LOST_GROUPS, LOST_KINDS };

LOST(LOST_KINDS)

static inline u64 group_of(struct task_struct *p)
{
	return field_exists(p->sched_task_group) ? p->sched_task_group->css.cgroup->kn->id : 0;
}

static inline void queue(struct task_struct *p, u64 now)
{
	struct waiting w = {.since = now, .group = group_of(p)};
	struct cfs_rq *queue = read(p->se.cfs_rq);
	u32 tid = p->pid;

	w.queue = (u64)queue;
	w.throttled = is_throttled(queue);
	w.stopped_until = throttled_sum(queue);
	if (map_update(&queued, &tid, &w, BPF_NOEXIST) && !map_lookup(&queued, &tid))
		lose(LOST_THREADS, 1);
}

static inline int woken(struct task_struct *p)
{
	if (!p->on_cpu) // else it was still running
		queue(p, ktime_ns());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int group_wakeup(u64 *ctx)
{
	return woken((void *)ctx[0]);
}

SEC("tp_btf/sched_wakeup_new")
int group_new(u64 *ctx)
{
	return woken((void *)ctx[0]);
}

static inline struct usage *usage_of(u64 group)
{
	struct usage *u = map_lookup(&groups, &group), none = {};

	if (u)
		return u;
	map_update(&groups, &group, &none, BPF_NOEXIST);
	u = map_lookup(&groups, &group);
	if (!u)
		lose(LOST_GROUPS, 1);
	return u;
}

static inline u32 bucket(u64 ns)
{
	u32 b = 0;

#pragma nounroll
	for (u64 rest = ns >> 10; rest && b < BUCKETS - 1; rest >>= 2)
		b++;
	return b;
}

static inline void end_wait(struct running *cpu, struct usage *u, struct task_struct *p, u64 now)
{
	u32 tid = p->pid;
	struct waiting *w = map_lookup(&queued, &tid);
	u64 ns, stopped;

	if (!w)
		return;
	ns = now > w->since ? now - w->since : 0;
	stopped = stopped_of(ns, (void *)w->queue, w->stopped_until, w->throttled);
	map_delete(&queued, &tid);
	u->throttled_ns += stopped;
	u->wait_ns += ns - stopped;
	u->waits++;
	cpu->wait_ns += ns - stopped;
	cpu->waits[bucket(ns - stopped)]++;
}

SEC("tp_btf/sched_switch")
int group_switch(u64 *ctx)
{
	bool preempted = ctx[0];
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	u64 now = ktime_ns();
	struct running *cpu;
	struct usage *u;
	u32 zero = 0;

	cpu = map_lookup(&cpus, &zero);
	if (!cpu)
		return 0;
	if (!cpu->known && prev->pid) {
		cpu->since = began;
		cpu->group = group_of(prev);
	}
	cpu->known = 1;
	if (cpu->since && (u = usage_of(cpu->group)))
		u->run_ns += now - cpu->since;
	cpu->since = 0;
	// Not prev_state of the tracepoint: it says that a thread sleeps even if a signal kept it from that.
	if (prev->pid && (preempted || !state_of(prev)))
		queue(prev, now);
	if (!next->pid) // idle
		return 0;
	cpu->since = now;
	cpu->group = group_of(next);
	if ((u = usage_of(cpu->group)))
		end_wait(cpu, u, next, now);
	return 0;
}
