// The target's processes, for programs that follow only these.
#ifndef PERFDOCTOR_TARGET_H
#define PERFDOCTOR_TARGET_H

#include "kernel.h"

// Other processes cost one comparison if the target has one process, otherwise a lookup.
const volatile u32 only_tgid = 0;

struct {
	NUMBER(type, HASH);
	NUMBER(max_entries, 4096);
	TYPE(key, u32);
	TYPE(value, u8);
} targets SEC(".maps");

static inline bool is_target(u32 tgid)
{
	if (only_tgid)
		return tgid == only_tgid;
	return map_lookup(&targets, &tgid) != 0;
}

#endif
