//go:build ignore

// How long each CPU is in softirqs, by vector, and in hardware interrupts, by line, without the time of interrupts in
// between. /proc/stat has the sum, by ticks; /proc/softirqs and /proc/interrupts have counts.
#include "kernel.h"

LICENSE("Dual BSD/GPL");

// Softirq vectors are numbered as in include/linux/interrupt.h, 0 to 9. Then come the x86 vectors that bypass
// irq_handler_entry (arch/x86/include/asm/trace/irq_vectors.h).
enum { SOFTIRQS = 10, LOCAL_TIMER = 16, RESCHEDULE, CALL_FUNCTION, CALL_FUNCTION_SINGLE, IRQ_WORK, VECTORS };

struct spent {
	u64 count;
	u64 ns;
};

struct {
	NUMBER(type, PERCPU_ARRAY);
	NUMBER(max_entries, VECTORS);
	TYPE(key, u32);
	TYPE(value, struct spent);
} vectors SEC(".maps");

// How long softirqs took, by vector and bucket: at most 1,024 ns, four times that, and so on; the last has the rest.
#define BUCKETS 12

struct {
	NUMBER(type, PERCPU_ARRAY);
	NUMBER(max_entries, SOFTIRQS * BUCKETS);
	TYPE(key, u32);
	TYPE(value, u64);
} durations SEC(".maps");

// By number of the line.
struct {
	NUMBER(type, PERCPU_HASH);
	NUMBER(max_entries, 1024);
	TYPE(key, u32);
	TYPE(value, struct spent);
} lines SEC(".maps");

// What is under way on a CPU. Softirqs do not nest, and neither do hardware interrupts (they run with interrupts off).
struct now {
	u64 soft; // when the softirq began; 0: there is none, or its beginning was not seen
	u64 hard;
	u64 stolen; // by hardware interrupts from the softirq
	u64 turn; // the turn in which the softirq began
};

// The programs of softirqs are attached in turns where there are many softirqs. This is the turn's number: a softirq
// that began in one turn and ended while they were detached does not belong to the next.
volatile u64 turn = 0;

struct {
	NUMBER(type, PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct now);
} under_way SEC(".maps");

LOST(1)

static inline struct now *here(void)
{
	u32 zero = 0;

	return map_lookup(&under_way, &zero);
}

// Each CPU has values of its own, and the code that adds to them does not interrupt itself: no atomics are needed.
static inline void spend(struct spent *s, u64 ns)
{
	if (!s)
		return;
	s->count++;
	s->ns += ns;
}

static inline void sort_in(u32 vector, u64 ns)
{
	u32 slot = vector * BUCKETS;
	u64 *n;

#pragma nounroll
	for (u64 rest = ns >> 10; rest && slot < vector * BUCKETS + BUCKETS - 1; rest >>= 2)
		slot++;
	n = map_lookup(&durations, &slot);
	if (n)
		(*n)++;
}

SEC("tp_btf/softirq_entry")
int softirq_in(u64 *ctx)
{
	struct now *n = here();

	if (!n)
		return 0;
	n->stolen = 0;
	n->turn = turn;
	n->soft = ktime_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_out(u64 *ctx)
{
	struct now *n = here();
	u32 vector = ctx[0];
	u64 ns;

	if (!n || !n->soft || vector >= SOFTIRQS)
		return 0; // it began before the program
	ns = ktime_ns() - n->soft;
	n->soft = 0;
	if (n->turn != turn)
		return 0;
	ns = ns > n->stolen ? ns - n->stolen : 0;
	spend(map_lookup(&vectors, &vector), ns);
	sort_in(vector, ns);
	return 0;
}

static inline int enter(void)
{
	struct now *n = here();

	if (n)
		n->hard = ktime_ns();
	return 0;
}

static inline u64 leave(bool *measured)
{
	struct now *n = here();
	u64 ns;

	*measured = n && n->hard;
	if (!*measured)
		return 0;
	ns = ktime_ns() - n->hard;
	n->hard = 0;
	if (n->soft)
		n->stolen += ns;
	return ns;
}

static inline int leave_vector(u32 vector)
{
	bool measured;
	u64 ns = leave(&measured);

	if (measured)
		spend(map_lookup(&vectors, &vector), ns);
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int line_in(u64 *ctx)
{
	return enter();
}

SEC("tp_btf/irq_handler_exit")
int line_out(u64 *ctx)
{
	u32 irq = ctx[0];
	struct spent none = {}, *s;
	bool measured;
	u64 ns = leave(&measured);

	if (!measured)
		return 0;
	s = map_lookup(&lines, &irq);
	if (!s) {
		map_update(&lines, &irq, &none, BPF_NOEXIST);
		s = map_lookup(&lines, &irq);
	}
	if (!s)
		lose(0, 1);
	spend(s, ns);
	return 0;
}

#define VECTOR(name, number)                                                                                           \
	SEC("tp_btf/" #name "_entry") int name##_in(u64 *ctx) { return enter(); }                                      \
	SEC("tp_btf/" #name "_exit") int name##_out(u64 *ctx) { return leave_vector(number); }

VECTOR(local_timer, LOCAL_TIMER)
VECTOR(reschedule, RESCHEDULE)
VECTOR(call_function, CALL_FUNCTION)
VECTOR(call_function_single, CALL_FUNCTION_SINGLE)
VECTOR(irq_work, IRQ_WORK)
