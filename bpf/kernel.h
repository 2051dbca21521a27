// What the programs use of the kernel: its types, whose real layout the loader looks up in the running kernel's BTF
// (CO-RE), and the helpers of include/uapi/linux/bpf.h. Written by hand, so that a program compiles with clang alone
// and is small.
#ifndef PERFDOCTOR_KERNEL_H
#define PERFDOCTOR_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
typedef _Bool bool;

#define SEC(name) __attribute__((section(name), used))
#define inline inline __attribute__((always_inline))
#define LICENSE(text) char license_text[] SEC("license") = text

// Maps are declared by their BTF (tools/lib/bpf/bpf_helpers.h): a number is the length of an array.
#define NUMBER(name, n) int(*name)[n]
#define TYPE(name, t) typeof(t) *name

enum map_type {
	HASH = 1,
	ARRAY = 2,
	PERCPU_HASH = 5,
	PERCPU_ARRAY = 6,
	LRU_HASH = 9,
	STACK = 23,
	RINGBUF = 27, // Linux 5.8
};

enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_F_NO_PREALLOC = 1 }; // of a map
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 }; // of ring_submit
enum { BPF_RB_AVAIL_DATA };                             // of ring_query: bytes that were not read yet
enum { BPF_F_USER_STACK = 1 << 8 };

struct file;
struct socket;
struct tcp_sock;
struct tcp_timewait_sock;
struct seq_file;

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const ktime_ns)(void) = (void *)5;
static u64 (*const pid_tgid)(void) = (void *)14;
static u64 (*const current_task)(void) = (void *)35;
static long (*const current_comm)(void *buf, u32 size) = (void *)16;
// Bytes of the stack's addresses; the rest of buf is zeroed. Linux 4.18.
static long (*const get_stack)(void *ctx, void *buf, u32 size, u64 flags) = (void *)67;
static long (*const map_push)(void *map, const void *value, u64 flags) = (void *)87;
static long (*const map_pop)(void *map, void *value) = (void *)88;
static long (*const read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*const read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static u64 (*const jiffies)(void) = (void *)118;
// In an iterator; args are u64 each. Linux 5.7, and %pB of 5.9.
static long (*const seq_printf)(struct seq_file *seq, const char *format, u32 format_size, const void *args,
	u32 args_size) = (void *)126;
static long (*const seq_write)(struct seq_file *seq, const void *data, u32 size) = (void *)127; // in an iterator
static void *(*const ring_reserve)(void *ring, u64 size, u64 flags) = (void *)131; // 0: no room
static void (*const ring_submit)(void *data, u64 flags) = (void *)132;
static u64 (*const ring_query)(void *ring, u64 what) = (void *)134;
static struct socket *(*const sock_from_file)(struct file *file) = (void *)162; // Linux 5.11
static struct tcp_timewait_sock *(*const tcp_timewait_of)(const void *sk) = (void *)138;
static struct tcp_sock *(*const tcp_sock_of)(const void *sk) = (void *)137; // 0 unless sk is one; Linux 5.9
static struct task_struct *(*const current_task_btf)(void) = (void *)158;     // Linux 5.11
static void *(*const task_pt_regs)(struct task_struct *p) = (void *)175;      // Linux 5.15

#define add(counter, n) __sync_fetch_and_add(&(counter), (n))
#define be16(x) __builtin_bswap16(x)

// LOST declares the map that counts what the programs of a file could not keep, by kind, and lose, which adds to it.
#define LOST(kinds)                                                                                                    \
	struct {                                                                                                       \
		NUMBER(type, ARRAY);                                                                                   \
		NUMBER(max_entries, kinds);                                                                            \
		TYPE(key, u32);                                                                                        \
		TYPE(value, u64);                                                                                      \
	} lost SEC(".maps");                                                                                           \
                                                                                                                       \
	static inline void lose(u32 kind, u64 n)                                                                       \
	{                                                                                                              \
		u64 *count = map_lookup(&lost, &kind);                                                                 \
                                                                                                                       \
		if (count)                                                                                             \
			add(*count, n);                                                                                \
	}

// read returns a field behind a pointer that the verifier knows nothing of; 0 if it cannot be read. It also reads
// pointers that the verifier would follow: for each, and on each path that leads there, Linux 6.18 searches all of the
// kernel's types by name (btf_nested_type_is_trusted in kernel/bpf/btf.c), which takes 1.4 ms.
#define read(field) \
	({ \
		typeof(((void)0, (field))) value = 0; /* of a const field without const: it would stay 0 */ \
		read_kernel((void *)&value, sizeof(value), (const void *)&(field)); \
		value; \
	})

// Whether the running kernel's type has the field (BPF_FIELD_EXISTS in tools/lib/bpf/bpf_core_read.h).
#define field_exists(field) __builtin_preserve_field_info(field, 2)

// The running kernel's value of an enumerator, and the offset of a field in its structure (enum bpf_enum_value_kind
// and bpf_field_info_kind in tools/lib/bpf/bpf_core_read.h).
#define enum_value(type, name) __builtin_preserve_enum_value(*(type *)name, 1)
#define byte_offset(type, field) __builtin_preserve_field_info(((type *)0)->field, 0)

// A bit field of one byte, in a structure that may be read directly (BPF_CORE_READ_BITFIELD in the same file).
#define bits(field, of)                                                                                                \
	((u64)(*(u8 *)((void *)(of) + __builtin_preserve_field_info(field, 0)))                                        \
		 << __builtin_preserve_field_info(field, 4) >>                                                         \
	 __builtin_preserve_field_info(field, 5))

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	u32 inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	union {
		u32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	volatile u8 skc_state;
	unsigned char skc_ipv6only : 1;
	unsigned long skc_flags;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct inode {
	u16 i_mode;
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
	void *private_data;
};

struct socket {
	struct file *file;
	struct sock *sk;
};

struct sock {
	struct sock_common __sk_common;
	int sk_err;
	u16 sk_protocol;
	u8 sk_userlocks; // a bit field before Linux 6.0
	struct socket *sk_socket;
	u32 sk_ack_backlog;
	u32 sk_max_ack_backlog;
	u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
};

struct inet_sock {
	struct sock sk;
	u16 inet_sport;
	unsigned long inet_flags; // Linux 6.6
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u8 icsk_retransmits;
	struct {
		u8 pending;
		u32 lrcvtime;
	} icsk_ack;
};

struct minmax_sample {
	u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 write_seq;
	u32 snd_nxt;
	u32 packets_out;
	u32 mss_cache;
	u32 segs_out;
	u32 data_segs_out;
	u32 data_segs_in;
	u32 total_retrans;
	u64 bytes_sent;
	u64 bytes_retrans;
	u64 bytes_received;
	u64 bytes_acked;
	u64 tcp_wstamp_ns;
	u64 tcp_clock_cache;
	u64 first_tx_mstamp;
	u32 lsndtime;
	u32 srtt_us;
	struct minmax rtt_min;
};

struct net_device {
	possible_net_t nd_net;
};

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned int len;
	char cb[48];
	u16 protocol;
	u16 network_header;
	unsigned char *head;
	unsigned char *data;
};

struct tcp_skb_cb {
	u32 seq;
	u32 end_seq;
};

struct timer_list {
	unsigned long expires;
};

struct inet_timewait_sock {
	volatile unsigned char tw_substate;
	struct timer_list tw_timer;
};

struct tcp_timewait_sock {
	struct inet_timewait_sock tw_sk;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 seq_num;
};

// With CONFIG_CFS_BANDWIDTH, of this group and those above it.
struct cfs_rq {
	int throttle_count;
	u64 throttled_clock_pelt_time; // Linux 5.19
	u64 throttled_clock_self_time; // Linux 6.6
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct task_struct {
	struct sched_entity se;
	unsigned int __state; // Linux 5.14
	void *stack;
	unsigned int flags;
	int on_cpu;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct files_struct *files;
	struct task_group *sched_task_group; // with CONFIG_CGROUP_SCHED
	char comm[16];
};

struct hrtimer_sleeper {
	struct task_struct *task;
};

enum cgroup_subsys_id { cpu_cgrp_id };

struct cgroup_subsys_state;

struct kernfs_node {
	u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
	struct cgroup_subsys_state *subsys[1];
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct cfs_bandwidth {
	s64 period;
	u64 quota;
	u64 burst;
	int nr_periods;
	int nr_throttled;
	u64 throttled_time;
};

struct task_group {
	struct cgroup_subsys_state css;
	struct cfs_bandwidth cfs_bandwidth;
};

#pragma clang attribute pop

// Before Linux 6.6.
struct inet_sock___old {
	u8 bind_address_no_port : 1;
} __attribute__((preserve_access_index));

// Before Linux 5.14.
struct task_struct___old {
	volatile long state;
} __attribute__((preserve_access_index));

// Before Linux 5.19.
struct cfs_rq___old {
	u64 throttled_clock_task_time;
} __attribute__((preserve_access_index));

static inline u64 state_of(struct task_struct *p)
{
	struct task_struct___old *old = (void *)p;

	return field_exists(p->__state) ? p->__state : old->state;
}

static inline u32 netns_of(const struct sock *sk)
{
	struct net *net = read(sk->__sk_common.skc_net.net);

	return read(net->ns.inum);
}

// is_throttled reports whether a group of the queue, its own or one above it, has no quota left.
static inline bool is_throttled(struct cfs_rq *queue)
{
	return field_exists(queue->throttle_count) && queue && read(queue->throttle_count) > 0;
}

// throttled_sum returns how long a queue was stopped, in the times that are over by now (tg_unthrottle_up in
// kernel/sched/fair.c). Before Linux 6.6 that is by a clock that is slower where the CPU is. If the queue is gone, it
// is any number.
static inline u64 throttled_sum(struct cfs_rq *queue)
{
	struct cfs_rq___old *old = (void *)queue;

	if (field_exists(queue->throttled_clock_self_time))
		return read(queue->throttled_clock_self_time);
	if (field_exists(queue->throttled_clock_pelt_time))
		return read(queue->throttled_clock_pelt_time);
	return field_exists(old->throttled_clock_task_time) ? read(old->throttled_clock_task_time) : 0;
}

// stopped_of returns for how much of ns a quota stopped a thread that waited in the queue: for all of it, if the
// thread was stopped when the wait began and the queue's clock cannot tell. From Linux 6.18 on a thread is stopped on
// its way out of the kernel, and may run until then.
static inline u64 stopped_of(u64 ns, struct cfs_rq *queue, u64 sum_then, bool throttled_then)
{
	u64 sum = throttled_sum(queue);
	u64 stopped = sum > sum_then ? sum - sum_then : 0;

	if (throttled_then && !field_exists(queue->throttled_clock_self_time))
		return ns;
	return stopped < ns ? stopped : ns;
}

#endif
