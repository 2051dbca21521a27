//go:build ignore

// How long each CPU is in softirqs, by vector, and in hardware interrupts, by line, without the time of interrupts that came in
// between. /proc/stat has the sum, by ticks; /proc/softirqs and /proc/interrupts have counts.
#include "kernel.h"

LICENSE("Dual BSD/GPL");

// Softirq vectors are numbered as in include/linux/interrupt.h, 0 to 9. Then come the x86 vectors that bypass irq_handler_entry
// (arch/x86/include/asm/trace/irq_vectors.h).
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

// By number of the line.
struct {
	NUMBER(type, PERCPU_HASH);
	NUMBER(max_entries, 1024);
	TYPE(key, u32);
	TYPE(value, struct spent);
} lines SEC(".maps");

// What is under way on a CPU. Softirqs do not nest, and hardware interrupts neither (they run with interrupts off).
struct now {
	u64 soft; // since when, 0: not at all, or it is not timed
	u64 hard;
	u64 stolen; // by hardware interrupts from the softirq
	u64 tick;
	u32 timed;  // in this tick
	u32 random;
	u32 weight; // how many softirqs the time of this one stands for, 0: it is not timed
	bool seen;  // its begin
};

struct {
	NUMBER(type, PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct now);
} under_way SEC(".maps");

struct {
	NUMBER(type, ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} lost SEC(".maps");

static inline struct now *here(void)
{
	u32 zero = 0;

	return map_lookup(&under_way, &zero);
}

// Each CPU has values of its own, and what adds to them is not interrupted by itself: no atomics.
static inline void spend(struct spent *s, u64 ns)
{
	if (!s)
		return;
	s->count++;
	s->ns += ns;
}

// To read the clock twice is nearly all that a softirq costs here. All are timed up to this number a tick of each CPU (a tick is 1 to
// 10 ms), and of those beyond it one in WEIGHT by chance, which then stands for so many: of 25,000 a second on a CPU some 5,000, which
// gives the time of ten seconds within 1 %. All are counted.
#define TIMED_A_TICK 8
#define WEIGHT 8 // a power of two

static inline u32 weight_of(struct now *n)
{
	u64 tick = jiffies();

	if (n->tick != tick) {
		n->tick = tick;
		n->timed = 0;
	}
	if (n->timed < TIMED_A_TICK) {
		n->timed++;
		return 1;
	}
	n->random = n->random * 1664525 + 1013904223; // Numerical Recipes; its upper bits are random enough
	return n->random < ~0U / WEIGHT ? WEIGHT : 0;
}

SEC("tp_btf/softirq_entry")
int softirq_in(u64 *ctx)
{
	struct now *n = here();

	if (!n)
		return 0;
	n->seen = 1;
	n->stolen = 0;
	n->weight = weight_of(n);
	if (n->weight)
		n->soft = ktime_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_out(u64 *ctx)
{
	struct now *n = here();
	u32 vector = ctx[0];
	struct spent *s;
	u64 ns = 0;

	if (!n || !n->seen || vector >= SOFTIRQS)
		return 0; // it began before the program
	n->seen = 0;
	if (n->soft) {
		ns = ktime_ns() - n->soft;
		ns = ns > n->stolen ? ns - n->stolen : 0;
		n->soft = 0;
	}
	s = map_lookup(&vectors, &vector);
	if (!s)
		return 0;
	s->count++;
	s->ns += ns * n->weight;
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
	u32 irq = ctx[0], zero = 0;
	struct spent none = {}, *s;
	bool measured;
	u64 ns = leave(&measured), *n;

	if (!measured)
		return 0;
	s = map_lookup(&lines, &irq);
	if (!s) {
		map_update(&lines, &irq, &none, BPF_NOEXIST);
		s = map_lookup(&lines, &irq);
	}
	n = map_lookup(&lost, &zero);
	if (!s && n)
		add(*n, 1);
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
