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

enum { LOST_SAMPLES, LOST_STACKS, LOST_KINDS };

LOST(LOST_KINDS)

#define PF_KTHREAD 0x00200000 // include/linux/sched.h

static inline u64 caller(void)
{
	struct task_struct *p = (void *)current_task();
	void *regs;
	u64 at = 0, word = 0;

	if (read(p->flags) & PF_KTHREAD)
		return 0;
	if (regs_by_helper)
		regs = task_pt_regs(current_task_btf());
	else
		regs = read(p->stack) + regs_from_stack;
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
