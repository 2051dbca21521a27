// The kernel's functions by address: its own list takes 40 ms to write and to read, of which a profile needs some
// hundred lines.
#ifndef PERFDOCTOR_NAMES_H
#define PERFDOCTOR_NAMES_H

#include "kernel.h"

// What an iterator over a map's elements is given (Linux 5.9, kernel/bpf/map_iter.c), in words.
enum { ELEM_META = 0, ELEM_KEY = 2 };

// NAMES declares the map of the addresses to name, and the iterator, of a name that no other file has, that writes a
// line for each: the address, then what the kernel calls the instruction before it (lib/vsprintf.c, %pB: as of a return
// address, which may be the first of the next function).
#define NAMES(iterator, entries)                                                                                       \
	struct {                                                                                                       \
		NUMBER(type, HASH);                                                                                    \
		NUMBER(map_flags, BPF_F_NO_PREALLOC); /* it is empty but for a moment */                               \
		NUMBER(max_entries, entries);                                                                          \
		TYPE(key, u64);                                                                                        \
		TYPE(value, u32);                                                                                      \
	} addresses SEC(".maps");                                                                                      \
                                                                                                                       \
	SEC("iter/bpf_map_elem")                                                                                       \
	int iterator(u64 *ctx)                                                                                         \
	{                                                                                                              \
		u64 *key = (void *)ctx[ELEM_KEY], line[2];                                                             \
		char format[] = "%llx %pB\n";                                                                          \
                                                                                                                       \
		if (!key)                                                                                              \
			return 0; /* the end */                                                                        \
		line[0] = line[1] = *key;                                                                              \
		seq_printf(((struct bpf_iter_meta *)ctx[ELEM_META])->seq, format, sizeof(format), line, sizeof(line)); \
		return 0;                                                                                              \
	}

#endif
