// Says ready, and until its input ends copies memory and counts, each by a function that is called by one of a name of its own.
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static char from[1 << 16], to[1 << 16];
volatile int more = 1;
volatile unsigned counter;

// It keeps no frame pointer: a function that calls none needs no frame.
__attribute__((noinline, optimize("omit-frame-pointer"))) void leaf(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		counter += i;
}

__attribute__((noinline)) void copier(unsigned n)
{
	memcpy(to, from, n);
	counter++;
}

__attribute__((noinline)) void counting(unsigned n)
{
	leaf(n);
	counter++;
}

__attribute__((noinline)) void middle(void)
{
	copier(sizeof(to) - counter % 2);
	counting(10000 + counter % 2);
	counter++;
}

int main(void)
{
	struct pollfd in = {0, POLLIN};

	puts("ready");
	fflush(stdout);
	while (!poll(&in, 1, 0))
		for (int i = 0; i < 100; i++)
			middle();
	return 0;
}
