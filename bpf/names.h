// The kernel's functions by address: the kernel's own list takes 40 ms to write and to read, and a profile needs only
// some hundred lines of it.
#ifndef PERFDOCTOR_NAMES_H
#define PERFDOCTOR_NAMES_H

#include "kernel.h"

// How many addresses one run names. A name has at most 512 characters (KSYM_NAME_LEN since Linux 6.1), so all lines
// fit into the eight pages that a run may write (bpf_seq_read in kernel/bpf/bpf_iter.c).
enum { NAMED = 32 };

struct naming {
	u64 at[NAMED]; // 0 ends the list
};

// NAMES declares the map of the addresses to name, and the iterator, whose name no other file has. The iterator writes
// a line for each: the address, then what the kernel calls the instruction before it (lib/vsprintf.c, %pB: for a
// return address, which may be the first of the next function). It iterates over maps (Linux 5.8), but runs only for
// the first, whichever that is: an iterator over the elements of its own map would be natural, but some kernels do not
// permit that.
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
