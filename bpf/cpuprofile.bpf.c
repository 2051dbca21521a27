//go:build ignore

// What the CPUs run: which thread runs at each tick of a CPU's sampling clock, and its kernel and user stacks.
#include "names.h"
#include "stacks.h"

LICENSE("Dual BSD/GPL");

// Where the stack pointer is in the program's saved registers, or the register for the return address on machines
// whose calls use one, and where the saved registers are; see scheduler.bpf.c.
const volatile u32 regs_caller = 0;
const volatile bool caller_on_stack = 0;
const volatile bool regs_by_helper = 0;
const volatile u32 regs_from_stack = 0;
// Where the registers of struct dump are in them.
const volatile u32 regs_dumped[4] = {};

// Whether dumps are taken at all. Set before loading: if they are not, as for a whole host, the verifier does not
// follow how they are copied.
const volatile bool takes_dumps = 0;

struct where {
	u64 kernel_stack; // keys of the map stacks
	u64 user_stack;
	u64 caller; // where a function without a frame of its own returns to: a walk by frame pointers omits its caller
	u32 tgid;
	char comm[16];
	u32 bucket; // of time, from 0
};

// The time buckets, by the clock of ktime_ns. They are set once the programs are loaded: loading would take part of
// the first one.
struct times {
	u64 began;
	u64 bucket_ns;
};

struct {
	NUMBER(type, ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct times);
} clock SEC(".maps");

struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 4096);
	TYPE(key, struct where);
	TYPE(value, u64);
} samples SEC(".maps");

KEPT_STACKS(4096)

NAMES(profile_names)

// A program's stack is taken in this many steps, and the last one in halves: main() may have less than a step above it.
enum { DUMP_STEP = 2048, DUMP_STEPS = 8 };

// A sample with the content of a program's stack, for programs without frame pointers. It is not counted anywhere else.
struct dump {
	struct where at;
	u64 regs[4]; // program counter, stack pointer, frame pointer; and the register for the return address, if any
	u64 size;    // of stack, in bytes
	u8 stack[DUMP_STEP * DUMP_STEPS];
};

struct dump *dump_type __attribute__((unused));

// 127 dumps, several read at a time: waking the reader for each takes longer than walking its stack.
struct {
	NUMBER(type, RINGBUF);
	NUMBER(max_entries, 1 << 21);
} dumps SEC(".maps");

// This much unread data wakes the reader: a quarter of the ring.
#define UNREAD (1 << 19)

// The processes, by id, whose stacks are taken: the target's, each with its own id; and those that were seen here
// before anybody listed them, with the id of the one that they descend from.
struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 8192);
	TYPE(key, u32);
	TYPE(value, u32);
} dumped SEC(".maps");

// When the next dump may be taken, if they were spread evenly, by the clock of ktime_ns.
struct {
	NUMBER(type, ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} pace SEC(".maps");

// At most 1000 dumps a second are taken, all samples of ten busy CPUs, and a twentieth of that at once.
#define DUMP_EVERY_NS (1000000000 / 1000)
#define DUMPS_AT_ONCE 50

enum { LOST_SAMPLES, LOST_STACKS, LOST_KINDS };

LOST(LOST_KINDS)

#define PF_KTHREAD 0x00200000 // include/linux/sched.h

// registers returns those of the program that was interrupted, or has entered the kernel.
static inline void *registers(void)
{
	struct task_struct *p = (void *)current_task();

	if (regs_by_helper)
		return task_pt_regs(current_task_btf());
	return (void *)read(p->stack) + regs_from_stack;
}

static inline u64 caller(void)
{
	struct task_struct *p = (void *)current_task();
	void *regs = registers();
	u64 at = 0, word = 0;

	if (read(p->flags) & PF_KTHREAD)
		return 0;
	if (read_kernel(&at, sizeof(at), regs + regs_caller))
		return 0;
	if (!caller_on_stack)
		return at;
	return read_user(&word, sizeof(word), (void *)at) ? 0 : word;
}

static inline u32 bucket(void)
{
	u32 zero = 0;
	struct times *c = map_lookup(&clock, &zero);

	if (!c || !c->bucket_ns)
		return 0;
	return (ktime_ns() - c->began) / c->bucket_ns;
}

// in_pace reports whether a dump may be taken now. Two CPUs may pass at once in place of one.
static inline bool in_pace(void)
{
	u64 now = ktime_ns(), *next;
	u32 zero = 0;

	next = map_lookup(&pace, &zero);
	if (!next || *next > now)
		return 0;
	if (*next < now - DUMPS_AT_ONCE * DUMP_EVERY_NS)
		*next = now - DUMPS_AT_ONCE * DUMP_EVERY_NS;
	*next += DUMP_EVERY_NS;
	return 1;
}

// is_dumped reports whether the stack of the running process is to be taken. That includes a child of such a process,
// although it may end before the next list is made; only processes that were there at first stay.
static inline bool is_dumped(u32 tgid, bool *stays)
{
	struct task_struct *p = (void *)current_task();
	u32 parent, of, *known;

	known = map_lookup(&dumped, &tgid);
	*stays = known && *known == tgid;
	if (known)
		return 1;
	p = read(p->real_parent);
	parent = read(p->tgid);
	known = map_lookup(&dumped, &parent);
	if (!known)
		return 0;
	of = *known;
	map_update(&dumped, &tgid, &of, BPF_NOEXIST); // where there is no room it is not known by its children
	return 1;
}

// dump takes the sample with the stack; it returns false if it may not, or there is no room.
static inline bool dump(struct where *at)
{
	volatile u64 *size; // in memory the verifier forgets it, and follows one way with any size, not all with each
	struct dump *d;
	bool stays;
	void *regs;

	if (!takes_dumps || !is_dumped(at->tgid, &stays) || !in_pace())
		return 0;
	d = ring_reserve(&dumps, sizeof(*d), 0);
	if (!d)
		return 0;
	d->at = *at;
	regs = registers();
	for (int i = 0; i < 4; i++)
		read_kernel(&d->regs[i], sizeof(d->regs[i]), regs + regs_dumped[i]); // zeros it where it cannot
	size = &d->size;
	*size = 0;
	for (int i = 0; i < DUMP_STEPS; i++) {
		if (read_user(d->stack + i * DUMP_STEP, DUMP_STEP, (void *)d->regs[1] + i * DUMP_STEP))
			break;
		*size = (i + 1) * DUMP_STEP;
	}
#pragma unroll
	for (u64 piece = DUMP_STEP / 2; piece >= 8; piece /= 2) {
		u64 at = *size;

		if (at > sizeof(d->stack) - piece)
			break;
		if (!read_user(d->stack + at, piece, (void *)d->regs[1] + at))
			*size = at + piece;
	}
	stays = stays && ring_query(&dumps, BPF_RB_AVAIL_DATA) < UNREAD;
	ring_submit(d, stays ? BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP);
	return 1;
}

SEC("perf_event")
int sample(void *ctx)
{
	u64 one = 1, *count;
	struct where at = {};

	at.tgid = pid_tgid() >> 32;
	at.bucket = bucket();
	current_comm(at.comm, sizeof(at.comm));
	at.kernel_stack = keep(ctx, 0);
	at.user_stack = keep(ctx, BPF_F_USER_STACK);
	if (at.kernel_stack == STACK_LOST || at.user_stack == STACK_LOST)
		lose(LOST_STACKS, 1);
	if (at.user_stack != NO_STACK)
		at.caller = caller();
	if (dump(&at))
		return 0;
	count = map_lookup(&samples, &at);
	if (count) {
		add(*count, 1);
		return 0;
	}
	if (!map_update(&samples, &at, &one, BPF_NOEXIST))
		return 0;
	count = map_lookup(&samples, &at); // another CPU was first, or the map is full
	if (count)
		add(*count, 1);
	else
		lose(LOST_SAMPLES, 1);
	return 0;
}
