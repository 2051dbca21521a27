// shares runs two functions in turns, one for 70 % of the iterations, and prints the CPU time it measured of each, in nanoseconds,
// when its standard input ends.
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static volatile uint64_t sink;

// Each has the loop in itself: a function that calls nothing keeps no frame pointer, and hides who called it.
__attribute__((noinline)) void seventy(void)
{
	for (uint64_t i = 0; i < 700000; i++)
		sink = sink * 6364136223846793005u + i;
}

__attribute__((noinline)) void thirty(void)
{
	for (uint64_t i = 0; i < 300000; i++)
		sink = sink * 6364136223846793005u + i;
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

int main(void)
{
	uint64_t a = 0, b = 0;
	struct pollfd in = {.fd = 0, .events = POLLIN};

	puts("ready");
	fflush(stdout);
	while (poll(&in, 1, 0) == 0) {
		uint64_t t0 = now(), t1, t2;

		seventy();
		t1 = now();
		thirty();
		t2 = now();
		a += t1 - t0;
		b += t2 - t1;
	}
	printf("%llu %llu\n", (unsigned long long)a, (unsigned long long)b);
}
