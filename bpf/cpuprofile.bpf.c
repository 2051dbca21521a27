//go:build ignore

// What the CPUs run: at each tick of a CPU's sampling clock, who runs, and the stacks in the kernel and in the program.
#include "names.h"
#include "stacks.h"

LICENSE("Dual BSD/GPL");

// Where in a thread's saved registers of the program its stack pointer is, or on machines whose calls leave the return
// address in a register that, and where they are; see scheduler.bpf.c.
const volatile u32 regs_caller = 0;
const volatile bool caller_on_stack = 0;
const volatile bool regs_by_helper = 0;
const volatile u32 regs_from_stack = 0;
// Where in them the registers of struct dump are.
const volatile u32 regs_dumped[4] = {};

// Whether stacks are taken at all. Set before loading: where they are not, as of a whole host, the verifier does not
// follow how they are copied.
const volatile bool takes_dumps = 0;

struct where {
	u64 kernel_stack; // keys of the map stacks
	u64 user_stack;
	u64 caller; // what a function without a frame of its own returns to: a walk by frame pointers leaves its caller out
	u32 tgid;
	char comm[16];
	u32 bucket; // of time, from 0
};

// The time buckets, told once the programs are loaded, and by the clock of ktime_ns: loading takes part of the first
// one.
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

// As much of a program's stack is taken, in steps, and the last one in halves: main() may have less above it than one.
enum { DUMP_STEP = 2048, DUMP_STEPS = 8 };

// A sample with what lies on the stack of a program, for one that keeps no frame pointers. It is counted nowhere else.
struct dump {
	struct where at;
	u64 regs[4]; // program counter, stack pointer, frame pointer; and what holds the return address, if one does
	u64 size;    // of stack, in bytes
	u8 stack[DUMP_STEP * DUMP_STEPS];
};

struct dump *dump_type __attribute__((unused));

// 127 dumps, which are read some at a time: to wake the reader for each takes longer than to walk its stack.
struct {
	NUMBER(type, RINGBUF);
	NUMBER(max_entries, 1 << 21);
} dumps SEC(".maps");

// So much makes the reader read: a quarter of the ring.
#define UNREAD (1 << 19)

// The processes, by id, of which stacks are taken: the target's, each with itself; and those that were seen here before
// anybody listed them, with the one that they descend from.
struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 8192);
	TYPE(key, u32);
	TYPE(value, u32);
} dumped SEC(".maps");

// When the next dump may be, were they spread evenly, by the clock of ktime_ns.
struct {
	NUMBER(type, ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} pace SEC(".maps");

// So many dumps a second are taken, all of ten busy CPUs together, and a twentieth of that at once.
#define DUMP_EVERY_NS (1000000000 / 1000)
#define DUMPS_AT_ONCE 50

enum { LOST_SAMPLES, LOST_STACKS, LOST_KINDS };

LOST(LOST_KINDS)

#define PF_KTHREAD 0x00200000 // include/linux/sched.h

// registers are those of the program that was interrupted, or has entered the kernel.
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

// in_pace tells whether a dump may be taken now. Two CPUs may be let pass for one.
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

// is_dumped tells whether the stack of the running process is to be taken. A child of such a one is another, though it
// may end before the next list is made; only what was there at first stays.
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

// dump takes the sample with the stack; false if it may not, or there is no room.
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
