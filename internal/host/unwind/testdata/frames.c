// Functions with frames of many kinds, that need no library and run nowhere.
int other(int *, int, int, int, int, int, int, int, int, int);

#define FRAMES(name, size, flags)                                                                                      \
	__attribute__((noinline, flags)) int fixed_##name(int n)                                                       \
	{                                                                                                              \
		int room[size];                                                                                        \
		if (n < 3)                                                                                             \
			return n;                                                                                      \
		return other(room, n, n, n, n, n, n, n, n, n) + room[n % size];                                        \
	}                                                                                                              \
	__attribute__((noinline, flags)) int grown_##name(int n)                                                       \
	{                                                                                                              \
		int *room = __builtin_alloca(size * n + size);                                                         \
		return other(room, n, n, n, n, n, n, n, n, n) + room[n % size] + fixed_##name(n - 1);                  \
	}

FRAMES(small, 2, optimize("O2"))
FRAMES(middle, 100, optimize("Os"))
FRAMES(large, 70000, optimize("O1"))
FRAMES(kept, 10, optimize("no-omit-frame-pointer"))
