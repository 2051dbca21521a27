// The kernel's functions by address: its own list takes 40 ms to write and to read, of which a profile needs some
// hundred lines.
#ifndef PERFDOCTOR_NAMES_H
#define PERFDOCTOR_NAMES_H

#include "kernel.h"

// As many addresses are named in one run. A name has at most 512 characters (KSYM_NAME_LEN since Linux 6.1), so that
// all lines fit into what a run may write, eight pages (bpf_seq_read in kernel/bpf/bpf_iter.c).
enum { NAMED = 32 };

struct naming {
	u64 at[NAMED]; // 0 ends them
};

// NAMES declares the map of the addresses to name, and the iterator, of a name that no other file has, that writes a
// line for each: the address, then what the kernel calls the instruction before it (lib/vsprintf.c, %pB: as of a return
// address, which may be the first of the next function). It is an iterator over maps (Linux 5.8), of which it needs
// the first alone, whichever that is: one over the elements of its own map would be the natural one, but some kernels
// do not permit that.
#define NAMES(iterator)                                                                                                \
	struct {                                                                                                       \
		NUMBER(type, ARRAY);                                                                                   \
		NUMBER(max_entries, 1);                                                                                \
		TYPE(key, u32);                                                                                        \
		TYPE(value, struct naming);                                                                            \
	} addresses SEC(".maps");                                                                                      \
                                                                                                                       \
	SEC("iter/bpf_map")                                                                                            \
	int iterator(u64 *ctx)                                                                                         \
	{                                                                                                              \
		struct bpf_iter_meta *meta = (void *)ctx[0];                                                           \
		struct naming *naming;                                                                                 \
		char format[] = "%llx %pB\n";                                                                          \
		u32 zero = 0;                                                                                          \
		u64 line[2];                                                                                           \
                                                                                                                       \
		if (!ctx[1] || meta->seq_num)                                                                          \
			return 0;                                                                                      \
		naming = map_lookup(&addresses, &zero);                                                                \
		if (!naming)                                                                                           \
			return 0;                                                                                      \
		for (u32 i = 0; i < NAMED; i++) {                                                                      \
			line[0] = line[1] = naming->at[i];                                                             \
			if (!line[0])                                                                                  \
				break;                                                                                 \
			seq_printf(meta->seq, format, sizeof(format), line, sizeof(line));                             \
		}                                                                                                      \
		return 0;                                                                                              \
	}

#endif
