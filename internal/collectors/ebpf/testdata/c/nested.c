// Says ready, and until its input ends computes in spin, under a, b and c: half of the time through qsort, and at times
// in the kernel and in the code that this lends to programs. It keeps no frame pointers.
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

volatile unsigned counter;
static int zeros;

__attribute__((noinline)) void spin(unsigned n)
{
	static char buf[1 << 18];
	struct timespec now;

	for (unsigned i = 0; i < n; i++)
		counter += i;
	for (unsigned i = 0; i < n / 256; i++)
		clock_gettime(CLOCK_MONOTONIC, &now);
	if (read(zeros, buf, sizeof(buf)) < 0)
		counter++;
}

__attribute__((noinline)) void c(unsigned n)
{
	volatile char room[100 + (n & 64)]; // a frame whose size only its frame pointer knows

	room[n & 31] = 0;
	spin(n);
	counter += room[n & 31];
}

__attribute__((noinline)) void b(unsigned n)
{
	c(n);
	counter++;
}

static int less(const void *x, const void *y)
{
	b(*(const int *)x);
	return y < x;
}

__attribute__((noinline)) void a(unsigned n)
{
	int two[2] = {n, n};

	b(n);
	qsort(two, 2, sizeof(*two), less);
	counter += two[1];
}

int main(void)
{
	struct pollfd in = {0, POLLIN};

	zeros = open("/dev/zero", O_RDONLY);
	puts("ready");
	fflush(stdout);
	while (!poll(&in, 1, 0))
		for (int i = 0; i < 100; i++)
			a(100000);
	return 0;
}
