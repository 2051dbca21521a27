//go:build ignore

// The CPU limits of all control groups below one, and what came of them: what cpu.stat, cpu.max and, in v1,
// cpu.cfs_quota_us and cpu.cfs_period_us of each group say, in one pass over the groups that have a limit.
#include "kernel.h"

LICENSE("Dual BSD/GPL");

// The counts have the widths of struct cfs_bandwidth (kernel/sched/sched.h). Times are in nanoseconds.
struct limit {
	u64 id; // the inode of the group's directory
	u64 quota;
	u64 period;
	u64 burst; // Linux 5.14
	u64 throttled_ns;
	u32 periods;
	u32 throttled;
};

// A type that no map holds is among the object's types only if a variable has it.
struct limit *limit_type __attribute__((unused));

// RUNTIME_INF (kernel/sched/sched.h): no limit.
#define NONE ((u64)~0ULL)

SEC("iter/cgroup")
int limits(u64 *ctx)
{
	struct cgroup *group = (void *)ctx[1];
	struct cgroup_subsys_state *css;
	struct task_group *tg;
	struct limit out = {};

	if (!group)
		return 0; // the end
	if (read_kernel(&css, sizeof(css), &group->subsys[0] + enum_value(enum cgroup_subsys_id, cpu_cgrp_id)) || !css)
		return 0; // the controller is off for it
	tg = (void *)css - byte_offset(struct task_group, css);
	if (read_kernel(&out.quota, 8, &tg->cfs_bandwidth.quota) || out.quota == NONE)
		return 0;
	read_kernel(&out.period, 8, &tg->cfs_bandwidth.period);
	if (field_exists(tg->cfs_bandwidth.burst))
		read_kernel(&out.burst, 8, &tg->cfs_bandwidth.burst);
	read_kernel(&out.throttled_ns, 8, &tg->cfs_bandwidth.throttled_time);
	read_kernel(&out.periods, 4, &tg->cfs_bandwidth.nr_periods);
	read_kernel(&out.throttled, 4, &tg->cfs_bandwidth.nr_throttled);
	out.id = group->kn->id;
	seq_write(((struct bpf_iter_meta *)ctx[0])->seq, &out, sizeof(out));
	return 0;
}
