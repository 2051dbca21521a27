//go:build ignore

// What the CPUs run: at each tick of a CPU's sampling clock, who runs, and the stacks in the kernel and in the program.
#include "kernel.h"

LICENSE("Dual BSD/GPL");

// Where in a thread's saved registers of the program its stack pointer is, or on machines whose calls leave the return address in a
// register that, and where they are; see scheduler.bpf.c.
const volatile u32 regs_caller = 0;
const volatile bool caller_on_stack = 0;
const volatile bool regs_by_helper = 0;
const volatile u32 regs_from_stack = 0;

#define DEPTH 127 // PERF_MAX_STACK_DEPTH, the kernel's own bound

struct stack {
	u64 ips[DEPTH]; // the innermost first, then zeros
};

struct where {
	u64 kernel_stack; // keys of the map stacks; 0: none
	u64 user_stack;
	u64 caller; // what a function without a frame of its own returns to: a walk by frame pointers leaves its caller out
	u32 tgid;
	char comm[16];
	u32 pad;
};

struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 4096);
	TYPE(key, struct where);
	TYPE(value, u64);
} samples SEC(".maps");

// Stacks by a hash of their addresses. The kernel's own map of stacks has one place for all stacks whose hashes end alike, and loses
// one in ten when it is a fifth full.
struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 4096);
	TYPE(key, u64);
	TYPE(value, struct stack);
} stacks SEC(".maps");

// Where a stack is put together: it is larger than a program's own stack may be.
struct {
	NUMBER(type, PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct stack);
} scratch SEC(".maps");

enum { LOST_SAMPLES, LOST_STACKS, LOST_KINDS };

LOST(LOST_KINDS)

// hash mixes each address by a multiplication (the constant is 2^64 over the golden ratio) and folds the high bits, which it changes
// most, into the low ones.
static inline u64 hash(struct stack *s)
{
	u64 h = 0;

#pragma nounroll
	for (int i = 0; i < DEPTH; i++) {
		h = (h ^ s->ips[i]) * 0x9e3779b97f4a7c15ULL;
		h ^= h >> 32;
	}
	return h ? h : 1;
}

// keep takes a stack of the interrupted code, and gives its key: 0 if there is none, or it could not be kept.
static inline u64 keep(void *ctx, struct stack *s, u64 flags)
{
	u64 key;

	if (get_stack(ctx, s, sizeof(*s), flags) <= 0)
		return 0; // none of the kernel in a program, none of a program in a kernel thread
	key = hash(s);
	// Most stacks are known already, and a look takes no lock.
	if (!map_lookup(&stacks, &key) && map_update(&stacks, &key, s, BPF_NOEXIST) && !map_lookup(&stacks, &key)) {
		lose(LOST_STACKS, 1);
		return 0;
	}
	return key;
}

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

SEC("perf_event")
int sample(void *ctx)
{
	u32 zero = 0;
	u64 one = 1, *count;
	struct stack *s = map_lookup(&scratch, &zero);
	struct where at = {};

	if (!s)
		return 0;
	at.tgid = pid_tgid() >> 32;
	current_comm(at.comm, sizeof(at.comm));
	at.kernel_stack = keep(ctx, s, 0);
	at.user_stack = keep(ctx, s, BPF_F_USER_STACK);
	if (at.user_stack)
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
