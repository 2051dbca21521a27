// Stacks by a hash of their addresses. The kernel's own map of stacks has one place for all stacks whose hashes end
// alike. When it is a fifth full, it loses one stack in ten, each time that this is seen.
#ifndef PERFDOCTOR_STACKS_H
#define PERFDOCTOR_STACKS_H

#include "kernel.h"

#define DEPTH 127 // PERF_MAX_STACK_DEPTH, the kernel's own bound

struct stack {
	u64 ips[DEPTH]; // the innermost first, then zeros
};

// Keys that no stack has. NO_STACK: there is none, as the kernel's of a program, or a program's of a kernel thread.
// STACK_LOST: it could not be kept.
enum { NO_STACK = 0, STACK_LOST = 1 };

// KEPT_STACKS declares the map of a file's stacks, and keep, which takes a stack of the interrupted code and returns
// its key. A CPU must not be in keep twice at once.
#define KEPT_STACKS(entries)                                                                                           \
	struct {                                                                                                       \
		NUMBER(type, HASH);                                                                                    \
		NUMBER(max_entries, entries);                                                                          \
		TYPE(key, u64);                                                                                        \
		TYPE(value, struct stack);                                                                             \
	} stacks SEC(".maps");                                                                                         \
                                                                                                                       \
	/* Where a stack is put together: it is larger than a program's own stack may be. */                           \
	struct {                                                                                                       \
		NUMBER(type, PERCPU_ARRAY);                                                                            \
		NUMBER(max_entries, 1);                                                                                \
		TYPE(key, u32);                                                                                        \
		TYPE(value, struct stack);                                                                             \
	} scratch SEC(".maps");                                                                                        \
                                                                                                                       \
	static inline u64 keep(void *ctx, u64 flags)                                                                   \
	{                                                                                                              \
		u32 zero = 0;                                                                                          \
		struct stack *s = map_lookup(&scratch, &zero);                                                         \
		u64 key;                                                                                               \
                                                                                                                       \
		if (!s || get_stack(ctx, s, sizeof(*s), flags) <= 0)                                                   \
			return NO_STACK;                                                                               \
		key = hash_of(s);                                                                                      \
		/* Most stacks are known already, and a look takes no lock. */                                         \
		if (!map_lookup(&stacks, &key) && map_update(&stacks, &key, s, BPF_NOEXIST) && !map_lookup(&stacks, &key)) \
			return STACK_LOST;                                                                             \
		return key;                                                                                            \
	}

// hash_of mixes each address by a multiplication (the constant is 2^64 over the golden ratio) and folds the high bits,
// which the multiplication changes most, into the low ones.
static inline u64 hash_of(struct stack *s)
{
	u64 h = 0;

#pragma nounroll
	for (int i = 0; i < DEPTH && s->ips[i]; i++) {
		h = (h ^ s->ips[i]) * 0x9e3779b97f4a7c15ULL;
		h ^= h >> 32;
	}
	return h > STACK_LOST ? h : STACK_LOST + 1;
}

#endif
