//go:build ignore

// What the target's threads wait for: a CPU, their cgroup's quota, or, with the stack that led there, something else.
#include "kernel.h"

LICENSE("Dual BSD/GPL");

// The target's processes. All others cost one comparison if there is one process, else a lookup.
const volatile u32 only_tgid = 0;

// Whether sched_switch tells the state that prev was switched out with (Linux 5.18). The state in the task may have changed since: a
// thread is woken at times before the CPU has switched.
const volatile bool has_prev_state = 0;

struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 4096);
	TYPE(key, u32);
	TYPE(value, u8);
} targets SEC(".maps");

// Buckets of run-queue waits: the first is below 16 µs, each next one four times as wide, the last has the rest (from 1 s).
#define BUCKETS 10

struct thread {
	u64 runnable; // since when it waits for a CPU; 0: it does not
	u64 asleep;   // since when it waits for something else
	s32 kernel_stack;
	s32 user_stack;
	u32 weight; // how many waits this one stands for; 0: no stack was taken
	u32 tgid;
	bool throttled; // its cgroup had no quota left as it became runnable
	u64 waits;
	u64 wait_ns;
	u64 wait_max_ns;
	u64 throttles;
	u64 throttled_ns;
	u64 sleeps;
	u64 sleep_ns;
	u64 preemptions;
	u64 wait_buckets[BUCKETS];
};

// By thread id.
struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 16384);
	TYPE(key, u32);
	TYPE(value, struct thread);
} threads SEC(".maps");

struct place {
	u32 tid;
	u32 tgid;
	s32 kernel_stack;
	s32 user_stack;
};

struct slept {
	u64 count;
	u64 ns;
};

struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 16384);
	TYPE(key, struct place);
	TYPE(value, struct slept);
} sleeps SEC(".maps");

#define DEPTH 127 // PERF_MAX_STACK_DEPTH, the kernel's own bound

struct {
	NUMBER(type, STACK_TRACE);
	NUMBER(max_entries, 8192);
	NUMBER(key_size, 4);
	NUMBER(value_size, DEPTH * 8);
} stacks SEC(".maps");

struct sampling {
	u64 since;
	u32 taken; // in this period
	u32 every; // one of so many waits has its stack taken
	u32 left;  // until the next
};

struct {
	NUMBER(type, PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct sampling);
} sampling SEC(".maps");

enum { LOST_THREADS, LOST_PLACES, LOST_STACKS, LOST_KINDS };

struct {
	NUMBER(type, ARRAY);
	NUMBER(max_entries, LOST_KINDS);
	TYPE(key, u32);
	TYPE(value, u64);
} lost SEC(".maps");

static inline void lose(u32 kind, u64 n)
{
	u64 *count = map_lookup(&lost, &kind);

	if (count)
		add(*count, n);
}

static inline bool is_target(struct task_struct *p)
{
	u32 tgid = p->tgid;

	if (only_tgid)
		return tgid == only_tgid;
	return map_lookup(&targets, &tgid) != 0;
}

static inline struct thread *thread_of(struct task_struct *p)
{
	u32 tid = p->pid;
	struct thread *t = map_lookup(&threads, &tid);
	struct thread fresh = {};

	if (t)
		return t;
	fresh.tgid = p->tgid;
	map_update(&threads, &tid, &fresh, BPF_NOEXIST);
	t = map_lookup(&threads, &tid);
	if (!t)
		lose(LOST_THREADS, 1);
	return t;
}

static inline bool is_throttled(struct task_struct *p)
{
	struct cfs_rq *queue = p->se.cfs_rq;

	return field_exists(queue->throttle_count) && queue && queue->throttle_count > 0;
}

static inline u64 state_of(struct task_struct *p)
{
	struct task_struct___old *old = (void *)p;

	return field_exists(p->__state) ? p->__state : old->state;
}

static inline void queue(struct thread *t, struct task_struct *p, u64 now)
{
	t->runnable = now;
	t->throttled = is_throttled(p);
}

static inline int woken(struct task_struct *p)
{
	struct thread *t;

	if (!is_target(p))
		return 0;
	t = thread_of(p);
	if (!t || t->runnable)
		return 0;
	queue(t, p, ktime_ns());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int wakeup(u64 *ctx)
{
	return woken((void *)ctx[0]);
}

SEC("tp_btf/sched_wakeup_new")
int wakeup_new(u64 *ctx)
{
	return woken((void *)ctx[0]);
}

// The period after which the sampling is set anew, and the stacks that a CPU may take in it: 1000 a second, 3 µs each.
#define PERIOD_NS 100000000ULL
#define STACKS_A_PERIOD 100

// weight_now chooses so many waits that a CPU takes about 1000 stacks a second. It says how many waits the one that begins stands for, 0 if its stack is not to be taken.
static inline u32 weight_now(u64 now)
{
	u32 zero = 0;
	struct sampling *s = map_lookup(&sampling, &zero);

	if (!s)
		return 1;
	if (!s->every)
		s->every = 1;
	if (now - s->since > PERIOD_NS) {
		if (s->taken < STACKS_A_PERIOD / 4 && s->every > 1)
			s->every /= 2;
		s->since = now;
		s->taken = 0;
	}
	if (s->left > 1) {
		s->left--;
		return 0;
	}
	if (++s->taken >= STACKS_A_PERIOD && s->every < 4096) {
		s->every *= 2;
		s->taken = 0;
	}
	s->left = s->every;
	return s->every;
}

static inline void fall_asleep(void *ctx, struct thread *t, bool woken_already, u64 now)
{
	t->asleep = now;
	if (!woken_already)
		t->runnable = 0; // of a wakeup while it ran
	t->weight = weight_now(now);
	if (!t->weight)
		return;
	t->kernel_stack = get_stackid(ctx, &stacks, BPF_F_FAST_STACK_CMP);
	t->user_stack = get_stackid(ctx, &stacks, BPF_F_USER_STACK | BPF_F_FAST_STACK_CMP);
}

static inline u32 bucket(u64 ns)
{
	u64 rest = ns >> 14;
	u32 b = 0;

#pragma unroll
	for (int i = 0; i < BUCKETS - 1; i++) {
		if (rest) {
			b++;
			rest >>= 2;
		}
	}
	return b;
}

static inline void end_sleep(struct thread *t, u32 tid, u64 until)
{
	u64 ns = until > t->asleep ? until - t->asleep : 0;
	struct place at = {};
	struct slept *s, none = {};

	t->asleep = 0;
	t->sleeps++;
	t->sleep_ns += ns;
	if (!t->weight)
		return;
	at.tid = tid;
	at.tgid = t->tgid;
	at.kernel_stack = t->kernel_stack;
	at.user_stack = t->user_stack;
	if (at.kernel_stack < 0 && at.user_stack < 0)
		lose(LOST_STACKS, t->weight);
	s = map_lookup(&sleeps, &at);
	if (!s) {
		map_update(&sleeps, &at, &none, BPF_NOEXIST);
		s = map_lookup(&sleeps, &at);
	}
	if (!s) {
		lose(LOST_PLACES, t->weight);
		return;
	}
	add(s->count, t->weight);
	add(s->ns, ns * t->weight);
}

static inline void end_wait(struct thread *t, u64 now)
{
	u64 ns = now - t->runnable;

	t->runnable = 0;
	if (t->throttled) {
		t->throttles++;
		t->throttled_ns += ns;
		return;
	}
	t->waits++;
	t->wait_ns += ns;
	t->wait_buckets[bucket(ns)]++;
	if (ns > t->wait_max_ns)
		t->wait_max_ns = ns;
}

// A thread is switched by one CPU at a time, so nothing here but what threads share needs an atomic.
SEC("tp_btf/sched_switch")
int sched_switch(u64 *ctx)
{
	bool preempted = ctx[0];
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	bool out = is_target(prev), in = is_target(next);
	struct thread *t;
	u64 now;

	if (!out && !in)
		return 0;
	now = ktime_ns();
	if (out && (t = thread_of(prev))) {
		u64 state = state_of(prev);
		u64 switched_with = has_prev_state ? ctx[3] : state;

		if (preempted || !switched_with) {
			t->preemptions++;
			queue(t, prev, now);
		} else {
			fall_asleep(ctx, t, !state, now);
		}
	}
	if (in && (t = thread_of(next))) {
		if (t->asleep)
			end_sleep(t, next->pid, t->runnable ? t->runnable : now);
		if (t->runnable)
			end_wait(t, now);
	}
	return 0;
}
