// Tells where functions of the C library are that a stripped one has no symbols for: those that it chose for this CPU, whose
// addresses the language gives, and those that called main and a thread's function.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *thread(void *unused) {
	printf("start_thread %p\n", __builtin_return_address(0));
	return NULL;
}

int main(void) {
	void *(*volatile copy)(void *, const void *, size_t) = memcpy;
	void *(*volatile set)(void *, int, size_t) = memset;
	size_t (*volatile length)(const char *) = strlen;
	pthread_t id;
	puts("ready");
	printf("memcpy %p\nmemset %p\nstrlen %p\n", (void *)copy, (void *)set, (void *)length);
	printf("__libc_start_call_main %p\n", __builtin_return_address(0));
	if (pthread_create(&id, NULL, thread, NULL) || pthread_join(id, NULL))
		return 1;
	puts("end");
	fflush(stdout);
	char c;
	return read(0, &c, 1) != 0;
}
