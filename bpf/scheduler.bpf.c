//go:build ignore

// What the target's threads wait for: a CPU, their cgroup's quota, or, with the stack that led there, something else.
#include "names.h"
#include "stacks.h"
#include "target.h"

LICENSE("Dual BSD/GPL");

// What a system call may wait for, by its number on this machine. The loader sets it.
enum { CALL_OTHER, CALL_READS, CALL_WRITES, CALL_POLL, CALL_FUTEX };
#define CALLS 512
const volatile u8 calls[CALLS] = {};

// Where the number and arguments of a thread's system call are in its saved registers, which differ by machine, and
// how to find the registers: by a helper from Linux 5.15 on, before that at the end of the thread's stack.
const volatile u32 regs_call = 0;
const volatile u32 regs_arguments[3] = {};
// the offset of the stack pointer, or of the register that calls leave the return address in
const volatile u32 regs_caller = 0;
const volatile bool caller_on_stack = 0;
const volatile bool regs_by_helper = 0;
const volatile u32 regs_from_stack = 0;

// When the programs were loaded, by the clock of ktime_ns.
const volatile u64 began = 0;

// The ports that somebody in the target's network namespace listened on when the programs were loaded: a connection
// with one of them comes from a client of that server.
struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 4096);
	TYPE(key, u16);
	TYPE(value, u8);
} listeners SEC(".maps");

// Buckets of run-queue waits: the first is below 16 µs, each next one four times as wide, the last has the rest (from
// 1 s).
#define BUCKETS 10

// Which waits of a thread have their stack taken.
struct sampling {
	u64 since;
	u32 taken; // in this period
	u32 every; // one of this many waits has its stack taken
	u32 left;  // until the next
};

// What a thread waits for.
enum reason {
	FOR_OTHER,   // see call
	FOR_FUTEX,   // object
	FOR_MUTEX,   // object: a futex whose value says that it is a held lock with waiters
	FOR_ANSWER,  // of a TCP peer, to which the thread has sent since it last received
	FOR_MESSAGE, // of a TCP peer, to which it has not sent since
	FOR_REQUEST, // of a client, port: the server's own
	FOR_CONNECT, // the peer to accept
	FOR_ROOM,    // the peer to take what was sent
	FOR_CLIENT,  // a new connection to port
	FOR_SOCKET,  // any other socket
	FOR_PIPE,    //
	FOR_FILE,    //
};

struct place {
	u32 tid;
	u32 tgid;
	u64 kernel_stack; // keys of the map stacks
	u64 user_stack;
	s32 call; // number of the system call, -1: none
	enum reason reason;
	u32 family;
	u32 port; // of the peer; of this side if the reason says so
	u32 peer[4];
	u64 object; // address of the futex
	u64 caller; // see cpuprofile.bpf.c
	u32 first; // time buckets in which the wait began and ended
	u32 last;
};

struct thread {
	u64 runnable; // when it began to wait for a CPU; 0: it does not wait
	u64 asleep;   // when it began to wait for something else
	struct place at; // while it is asleep, if weight is not 0
	u32 weight; // how many waits this wait stands for; 0: no stack was taken
	u32 waker; // thread that ends the wait for a futex; 0: none known
	u32 waker_tgid;
	bool throttled; // its cgroup had no quota left when it became runnable
	u64 queue; // its cfs_rq then, and throttled_sum of that
	u64 stopped_until;
	u64 waker_stack;
	u64 waits;
	u64 wait_ns;
	u64 wait_max_ns;
	u64 throttles;
	u64 throttled_ns;
	u64 sleeps;
	u64 sleep_ns;
	u64 preemptions;
	u64 wait_buckets[BUCKETS];
	struct sampling sampling;
};

// By thread id.
struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 16384);
	TYPE(key, u32);
	TYPE(value, struct thread);
} threads SEC(".maps");

// The time buckets, by the clock of ktime_ns. They are set once the programs are loaded; see cpuprofile.bpf.c.
struct times {
	u64 began;
	u64 bucket_ns; // 0: there are none
};

struct {
	NUMBER(type, ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct times);
} clock SEC(".maps");

struct slept {
	u64 count;
	u64 ns;
	u64 first_ns; // the part in the bucket in which the waits began
};

struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, struct place);
	TYPE(value, struct slept);
} sleeps SEC(".maps");

// Who ends the waits for a futex, and where in its program.
struct wake {
	u64 object;
	u64 waker_stack;
	u32 tgid; // of the threads that wait
	u32 waker;
	u32 waker_tgid;
	u32 pad;
};

struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 8192);
	TYPE(key, struct wake);
	TYPE(value, struct slept);
} wakes SEC(".maps");

// A new thread, all zeros: nobody writes it. The stack of a program has no room for it.
struct {
	NUMBER(type, ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct thread);
} blank SEC(".maps");

KEPT_STACKS(8192)

NAMES(waits_names)

// How many stacks a CPU took in this period.
struct budget {
	u64 since;
	u32 taken;
};

struct {
	NUMBER(type, PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct budget);
} budgets SEC(".maps");

enum { LOST_THREADS, LOST_PLACES, LOST_STACKS, LOST_WAKES, LOST_KINDS };

LOST(LOST_KINDS)

static inline struct thread *thread_of(struct task_struct *p)
{
	u32 tid = p->pid, zero = 0;
	struct thread *t = map_lookup(&threads, &tid), *fresh;

	if (t)
		return t;
	fresh = map_lookup(&blank, &zero);
	if (fresh)
		map_update(&threads, &tid, fresh, BPF_NOEXIST);
	t = map_lookup(&threads, &tid);
	if (!t) {
		lose(LOST_THREADS, 1);
		return 0;
	}
	t->at.tid = tid;
	t->at.tgid = p->tgid;
	return t;
}

static inline void queue(struct thread *t, struct task_struct *p, u64 now)
{
	struct cfs_rq *queue = read(p->se.cfs_rq);

	t->runnable = now;
	t->throttled = is_throttled(queue);
	t->queue = (u64)queue;
	t->stopped_until = throttled_sum(queue);
}

static inline int woken(struct task_struct *p)
{
	struct thread *t;

	if (!is_target(p->tgid))
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

// The period after which the sampling is set anew. A thread that waits up to 640 times a second (with 64 stacks) has
// every stack taken: the waits that matter are long, and therefore few. A thread that naps for microseconds is
// sampled, and takes nothing from the others. A CPU takes at most 10,000 stacks a second, 3 µs each.
#define PERIOD_NS 100000000ULL
#define STACKS_OF_A_CPU 1000

// How many stacks of a thread are taken in a period before only one of several waits has its stack taken.
const volatile u32 thread_stacks = 64;

static inline bool affordable(u64 now)
{
	u32 zero = 0;
	struct budget *b = map_lookup(&budgets, &zero);

	if (!b)
		return 1;
	if (now - b->since > PERIOD_NS) {
		b->since = now;
		b->taken = 0;
	}
	return ++b->taken <= STACKS_OF_A_CPU;
}

// weight_now returns how many waits of the thread the one that begins stands for, 0 if its stack is not to be taken.
static inline u32 weight_now(struct sampling *s, u64 now)
{
	if (!s->every)
		s->every = 1;
	if (now - s->since > PERIOD_NS) {
		if (s->taken < thread_stacks / 4 && s->every > 1)
			s->every /= 2;
		s->since = now;
		s->taken = 0;
	}
	if (s->left > 1) {
		s->left--;
		return 0;
	}
	if (++s->taken >= thread_stacks && s->every < 4096) {
		s->every *= 2;
		s->taken = 0;
	}
	s->left = s->every;
	return s->every;
}

#define PF_IO_WORKER 0x10 // include/linux/sched.h: an io_uring thread, whose registers say nothing

// call_of returns the number of the system call that a thread with these registers is in, -1 if it is in none.
static inline s32 call_of(struct task_struct *p, void *regs)
{
	s32 call = -1;

	if (!regs || p->flags & PF_IO_WORKER)
		return -1;
	read_kernel(&call, sizeof(call), regs + regs_call);
	return call;
}

static inline void *regs_of(struct task_struct *p)
{
	if (regs_by_helper)
		return task_pt_regs(p);
	return p->stack + regs_from_stack;
}

static inline u64 argument(void *regs, u32 i)
{
	u64 value = 0;

	read_kernel(&value, sizeof(value), regs + regs_arguments[i]);
	return value;
}

static inline u8 kind_of(s32 call)
{
	u32 n = call;

	return n < CALLS ? calls[n] : CALL_OTHER;
}

enum { TCP_ESTABLISHED = 1, TCP_SYN_SENT = 2, TCP_LISTEN = 10 };
enum { AF_INET = 2, AF_INET6 = 10 };
#define IPPROTO_TCP 6

// A peer is to answer if something was sent to it after it last sent something, or in the same tick.
static inline bool is_asked(struct sock *sk)
{
	struct tcp_sock *tp = (void *)sk;

	return (s32)(read(tp->lsndtime) - read(tp->inet_conn.icsk_ack.lrcvtime)) >= 0;
}

static inline enum reason reason_of(struct sock *sk, u8 state, bool writes)
{
	if (state == TCP_SYN_SENT)
		return FOR_CONNECT;
	if (writes)
		return FOR_ROOM;
	return is_asked(sk) ? FOR_ANSWER : FOR_MESSAGE;
}

static inline void note_socket(struct place *at, struct sock *sk, bool writes)
{
	u16 local = read(sk->__sk_common.skc_num);
	u8 state = read(sk->__sk_common.skc_state);

	at->reason = FOR_SOCKET;
	at->family = read(sk->__sk_common.skc_family);
	if (at->family != AF_INET && at->family != AF_INET6)
		return;
	if (state == TCP_LISTEN || map_lookup(&listeners, &local)) {
		at->reason = state == TCP_LISTEN ? FOR_CLIENT : writes ? FOR_ROOM : FOR_REQUEST;
		at->port = local;
		return;
	}
	at->port = be16(read(sk->__sk_common.skc_dport));
	if (at->family == AF_INET)
		at->peer[0] = read(sk->__sk_common.skc_daddr);
	else
		read_kernel(at->peer, sizeof(at->peer), &sk->__sk_common.skc_v6_daddr);
	if (read(sk->sk_protocol) == IPPROTO_TCP)
		at->reason = reason_of(sk, state, writes);
}

// Types of files (include/uapi/linux/stat.h).
enum { S_IFMT = 0170000, S_IFSOCK = 0140000, S_IFREG = 0100000, S_IFBLK = 0060000, S_IFIFO = 0010000 };

// note_file notes what is behind a descriptor of the thread. Nothing here is locked: a file that another thread closes
// at this moment reads as something else, but never as an error.
static inline void note_file(struct task_struct *p, struct place *at, u32 fd, bool writes)
{
	struct files_struct *files = read(p->files);
	struct fdtable *fdt = read(files->fdt);
	struct file *file = 0, **table;
	struct socket *socket;
	struct inode *inode;
	struct sock *sk;
	u16 type;

	if (!fdt || fd >= read(fdt->max_fds))
		return;
	table = read(fdt->fd);
	read_kernel(&file, sizeof(file), table + fd);
	inode = read(file->f_inode);
	type = read(inode->i_mode) & S_IFMT;
	if (type == S_IFREG || type == S_IFBLK)
		at->reason = FOR_FILE;
	else if (type == S_IFIFO)
		at->reason = FOR_PIPE;
	else if (type == S_IFSOCK) {
		socket = read(file->private_data);
		sk = read(socket->sk);
		if (sk)
			note_socket(at, sk, writes);
	}
}

struct pollfd {
	s32 fd;
	u16 events;
	u16 revents;
};

#define POLLIN 1

static inline void note_poll(struct task_struct *p, struct place *at, void *regs)
{
	struct pollfd one = {};

	if (argument(regs, 1) != 1) // of several it may be any
		return;
	if (read_user(&one, sizeof(one), (void *)argument(regs, 0)) || one.fd < 0)
		return;
	note_file(p, at, one.fd, !(one.events & POLLIN));
}

// Operations of futex(2), without its flags (include/uapi/linux/futex.h).
enum { FUTEX_WAIT = 0, FUTEX_LOCK_PI = 6, FUTEX_WAIT_BITSET = 9, FUTEX_LOCK_PI2 = 13 };
#define FUTEX_CMD_MASK 0x7f

// A lock's value is 2 while it is held and waited for, in glibc, Go and Rust (Drepper, Futexes Are Tricky), and has
// its highest bit set in musl and in robust locks. The value of a condition variable or semaphore is a count, not such
// a constant.
static inline enum reason futex_reason(void *regs)
{
	u32 operation = argument(regs, 1) & FUTEX_CMD_MASK, value = argument(regs, 2);

	if (operation == FUTEX_LOCK_PI || operation == FUTEX_LOCK_PI2)
		return FOR_MUTEX;
	if (operation != FUTEX_WAIT && operation != FUTEX_WAIT_BITSET)
		return FOR_FUTEX;
	return value == 2 || value >> 31 ? FOR_MUTEX : FOR_FUTEX;
}

// note_caller is for the running thread: it reads the memory of the current process.
static inline void note_caller(struct task_struct *p, struct place *at)
{
	u64 value = 0, word = 0;

	read_kernel(&value, sizeof(value), regs_of(p) + regs_caller);
	if (caller_on_stack)
		at->caller = read_user(&word, sizeof(word), (void *)value) ? 0 : word;
	else
		at->caller = value;
}

static inline void note_reason(struct task_struct *p, struct place *at)
{
	void *regs = regs_of(p);
	u8 kind;

	at->call = call_of(p, regs);
	at->reason = FOR_OTHER;
	at->family = 0;
	at->port = 0;
	at->object = 0;
	__builtin_memset(at->peer, 0, sizeof(at->peer));
	kind = kind_of(at->call);
	if (kind == CALL_FUTEX) {
		at->object = argument(regs, 0);
		at->reason = futex_reason(regs);
	} else if (kind == CALL_POLL) {
		note_poll(p, at, regs);
	} else if (kind == CALL_READS || kind == CALL_WRITES) {
		note_file(p, at, argument(regs, 0), kind == CALL_WRITES);
	}
}

// The waker of a futex wait is the current thread if it calls futex itself. In other cases, what ends the wait, such
// as a timer, has interrupted the current thread.
SEC("tp_btf/sched_waking")
int waking(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0], *self;
	struct thread *t;
	void *regs;
	s32 call = -1;
	u32 tid;

	if (!is_target(p->tgid))
		return 0;
	tid = p->pid;
	t = map_lookup(&threads, &tid);
	if (!t || !t->asleep || !t->weight || !t->at.object || t->waker)
		return 0;
	if (regs_by_helper) {
		regs = task_pt_regs(current_task_btf());
	} else {
		self = (void *)current_task();
		regs = read(self->stack) + regs_from_stack;
	}
	read_kernel(&call, sizeof(call), regs + regs_call);
	if (kind_of(call) != CALL_FUTEX)
		return 0;
	t->waker = pid_tgid();
	t->waker_tgid = pid_tgid() >> 32;
	t->waker_stack = keep(ctx, BPF_F_USER_STACK);
	if (t->waker_stack == STACK_LOST)
		lose(LOST_STACKS, t->weight);
	return 0;
}

static inline void fall_asleep(void *ctx, struct thread *t, struct task_struct *p, u64 now)
{
	t->asleep = now;
	t->runnable = 0; // of a wakeup while it ran
	t->weight = weight_now(&t->sampling, now);
	if (!t->weight)
		return;
	if (!affordable(now)) {
		lose(LOST_STACKS, t->weight);
		t->weight = 0;
		return;
	}
	t->waker = 0;
	t->at.kernel_stack = keep(ctx, 0);
	t->at.user_stack = keep(ctx, BPF_F_USER_STACK);
	if (t->at.kernel_stack == STACK_LOST || t->at.user_stack == STACK_LOST)
		lose(LOST_STACKS, t->weight);
	note_reason(p, &t->at);
	note_caller(p, &t->at);
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

// note_times notes which time buckets a wait spans, and returns how much of it was in the first.
static inline u64 note_times(struct place *at, u64 from, u64 until)
{
	u32 zero = 0;
	struct times *c = map_lookup(&clock, &zero);
	u64 end;

	at->first = at->last = 0;
	if (!c || !c->bucket_ns || until <= c->began)
		return until - from;
	if (from > c->began)
		at->first = (from - c->began) / c->bucket_ns;
	at->last = (until - c->began) / c->bucket_ns;
	end = c->began + (at->first + 1ULL) * c->bucket_ns;
	return until < end ? until - from : end - from;
}

static inline void end_sleep(struct thread *t, u64 until)
{
	u64 from = t->asleep, ns = until > from ? until - from : 0, first_ns;
	struct slept *s, none = {};
	struct wake by = {};

	t->asleep = 0;
	t->sleeps++;
	t->sleep_ns += ns;
	if (!t->weight)
		return;
	first_ns = note_times(&t->at, from, from + ns);
	s = map_lookup(&sleeps, &t->at);
	if (!s) {
		map_update(&sleeps, &t->at, &none, BPF_NOEXIST);
		s = map_lookup(&sleeps, &t->at);
	}
	if (!s) {
		lose(LOST_PLACES, t->weight);
	} else {
		add(s->count, t->weight);
		add(s->ns, ns * t->weight);
		add(s->first_ns, first_ns * t->weight);
	}
	if (!t->waker)
		return;
	by.object = t->at.object;
	by.tgid = t->at.tgid;
	by.waker = t->waker;
	by.waker_tgid = t->waker_tgid;
	by.waker_stack = t->waker_stack;
	s = map_lookup(&wakes, &by);
	if (!s) {
		map_update(&wakes, &by, &none, BPF_NOEXIST);
		s = map_lookup(&wakes, &by);
	}
	if (!s) {
		lose(LOST_WAKES, t->weight);
		return;
	}
	add(s->count, t->weight);
	add(s->ns, ns * t->weight);
}

static inline void end_wait(struct thread *t, u64 now)
{
	u64 ns = now - t->runnable, stopped;

	t->runnable = 0;
	stopped = stopped_of(ns, (void *)t->queue, t->stopped_until, t->throttled);
	if (stopped) {
		t->throttles++;
		t->throttled_ns += stopped;
		if (stopped == ns)
			return;
		ns -= stopped;
	}
	t->waits++;
	t->wait_ns += ns;
	t->wait_buckets[bucket(ns)]++;
	if (ns > t->wait_max_ns)
		t->wait_max_ns = ns;
}

#define TASK_DEAD 0x80 // include/linux/sched.h, since 4.14

// Only one CPU at a time switches a thread, so only what threads share needs an atomic here.
SEC("tp_btf/sched_switch")
int sched_switch(u64 *ctx)
{
	bool preempted = ctx[0];
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	bool out = is_target(prev->tgid), in = is_target(next->tgid);
	struct thread *t;
	u64 now;

	if (!out && !in)
		return 0;
	now = ktime_ns();
	if (out && (t = thread_of(prev))) {
		// Not prev_state of the tracepoint: before Linux 6.16 it says that a thread sleeps even if a signal kept it
		// from that. A thread that is woken is TASK_WAKING until the CPU has switched, not TASK_RUNNING
		// (try_to_wake_up in kernel/sched/core.c).
		if (preempted || !state_of(prev)) {
			t->preemptions++;
			queue(t, prev, now);
		} else if (state_of(prev) & TASK_DEAD) {
			t->runnable = 0; // it has ended, and waits for nothing
		} else {
			fall_asleep(ctx, t, prev, now);
		}
	}
	if (in && (t = thread_of(next))) {
		if (t->asleep)
			end_sleep(t, t->runnable ? t->runnable : now);
		if (t->runnable)
			end_wait(t, now);
	}
	return 0;
}

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task; // 0 at the end
};

// asleep notes what threads wait for that have slept since the programs were loaded: no switch has shown them. They
// have no stack.
SEC("iter/task")
int asleep(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct thread *t;
	u32 tid;

	if (!p || !is_target(p->tgid) || !state_of(p))
		return 0;
	tid = p->pid;
	if (map_lookup(&threads, &tid))
		return 0;
	t = thread_of(p);
	if (!t)
		return 0;
	note_reason(p, &t->at);
	t->at.kernel_stack = t->at.user_stack = NO_STACK;
	t->at.caller = 0;
	t->weight = 1;
	t->asleep = began;
	return 0;
}
