// What the programs use of the kernel: its types, of which the loader looks up the real layout in the running
// kernel's BTF (CO-RE), and the helpers of include/uapi/linux/bpf.h. Written by hand, so that a program compiles with
// clang alone and is small.
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
	STACK_TRACE = 7,
	LRU_HASH = 9,
	STACK = 23,
};

enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_F_USER_STACK = 1 << 8, BPF_F_FAST_STACK_CMP = 1 << 9, BPF_F_REUSE_STACKID = 1 << 10 };

struct tcp_sock;

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const ktime_ns)(void) = (void *)5;
static u64 (*const pid_tgid)(void) = (void *)14;
static long (*const current_comm)(void *buf, u32 size) = (void *)16;
static long (*const get_stackid)(void *ctx, void *map, u64 flags) = (void *)27;
static u64 (*const current_task)(void) = (void *)35;
static long (*const probe_read_kernel)(void *dst, u32 size, const void *src) = (void *)113;
static long (*const map_push)(void *map, const void *value, u64 flags) = (void *)87;
static long (*const map_pop)(void *map, void *value) = (void *)88;
static u64 (*const jiffies64)(void) = (void *)118;
static struct tcp_sock *(*const tcp_sock_of)(const void *sk) = (void *)137; // 0 unless sk is one; Linux 5.9

#define add(counter, n) __sync_fetch_and_add(&(counter), (n))
#define be16(x) __builtin_bswap16(x)

// Whether the running kernel's type has the field (BPF_FIELD_EXISTS in tools/lib/bpf/bpf_core_read.h).
#define field_exists(field) __builtin_preserve_field_info(field, 2)

// The value of an unsigned field of at most 8 bits that has no address of its own (BPF_CORE_READ_BITFIELD in
// tools/lib/bpf/bpf_core_read.h): its offset is that of the byte it is in, after it is shifted to the top of 64 bits and back.
#define BITFIELD(p, field)                                                                                             \
	((u64)*(const u8 *)((const char *)(p) + __builtin_preserve_field_info((p)->field, 0))                         \
		 << __builtin_preserve_field_info((p)->field, 4) >> __builtin_preserve_field_info((p)->field, 5))

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
	unsigned long skc_flags;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	int sk_err;
	u16 sk_protocol;
	u8 sk_userlocks; // a bit field before Linux 6.0
};

struct inet_sock {
	struct sock sk;
	u16 inet_sport;
	unsigned long inet_flags; // Linux 6.6
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 segs_out;
	u32 data_segs_out;
	u32 data_segs_in;
	u32 total_retrans;
	u64 bytes_sent;
	u64 bytes_retrans;
	u64 bytes_received;
	u64 tcp_wstamp_ns;
	u64 tcp_clock_cache;
};

struct cfs_rq {
	int throttle_count; // of this group and those above it; with CONFIG_CFS_BANDWIDTH
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct task_struct {
	struct sched_entity se;
	unsigned int __state; // Linux 5.14
	int pid;
	int tgid;
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

#endif
