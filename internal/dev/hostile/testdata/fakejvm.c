// A program that looks like a JVM from outside: it maps a libjvm.so, takes SIGQUIT, has counters and an attach socket.
// fakejvm KIND LIBJVM; it wants a mount namespace of its own, mounts a /tmp in it and prints "ready".
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

static const char *kind;
static char counters[100], socket_path[100];

static int is(const char *name) { return !strcmp(kind, name); }

static void check(int ok, const char *what) {
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void ignore(int sig) { (void)sig; }

// The head of hsperfdata (perfMemory.hpp), and one entry of a number.
static void fill(unsigned char *at, int entries, int length) {
	static const unsigned char head[8] = {0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1};
	memcpy(at, head, sizeof head);
	*(int *)(at + 24) = 32;
	*(int *)(at + 28) = entries;
	unsigned char *entry = at + 32;
	*(int *)entry = length;
	*(int *)(entry + 4) = 20;  // where its name is
	*(int *)(entry + 8) = 0;   // a number
	entry[12] = 'J';
	*(int *)(entry + 16) = 40; // where the number is
	strcpy((char *)entry + 20, "java.threads.live");
	*(long *)(entry + 40) = 7;
}

static int make_counters(unsigned char **at) {
	mkdir("/tmp/hsperfdata_root", 0755);
	snprintf(counters, sizeof counters, "/tmp/hsperfdata_root/%d", getpid());
	int fd = open(counters, O_RDWR | O_CREAT, 0600);
	check(fd >= 0 && !ftruncate(fd, 32768), counters);
	*at = mmap(NULL, 32768, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(*at != MAP_FAILED, "mmap");
	fill(*at, 1, 48);
	if (is("long-entry"))
		fill(*at, 1, 0x7fffffff);
	if (is("no-length"))
		fill(*at, 0x7fffffff, 0);
	if (is("truncated"))
		check(!ftruncate(fd, 30), "ftruncate");
	if (is("huge"))
		check(!ftruncate(fd, 1L << 40), "ftruncate");
	return fd;
}

// What is mounted over the file stands under the name that the list of mappings has.
static void swap(const char *secret) {
	const char *other = "/tmp/other";
	if (is("fifo"))
		check(!mkfifo(other, 0666), "mkfifo");
	else if (is("device"))
		check(!mknod(other, S_IFCHR | 0666, makedev(1, 5)), "mknod"); // zero(4) never ends
	else if (is("secret"))
		other = secret;
	else
		return;
	check(!mount(other, counters, NULL, MS_BIND, NULL), "bind");
}

static void answer(int c) {
	static char text[65536];
	char request[4096];
	if (read(c, request, sizeof request) <= 0)
		return;
	if (is("endless")) {
		memset(text, '0', sizeof text);
		while (write(c, text, sizeof text) > 0)
			;
	}
	if (is("silent"))
		pause();
	if (is("escapes"))
		dprintf(c, "0\n\033]0;owned\007\033[2J\342\200\256<script>alert(1)</script>\nhunter2\n");
	if (is("code"))
		dprintf(c, "99999999999999999999999999\n\033[2J");
}

// A socket that is answered by a child, which ends with this program.
static void serve(void) {
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	snprintf(socket_path, sizeof socket_path, "/tmp/.java_pid%d", getpid());
	strcpy(at.sun_path, is("link") ? "/tmp/of-another" : socket_path);
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(s >= 0 && !bind(s, (void *)&at, sizeof at) && !listen(s, 100), "listen");
	if (is("link")) { // of another user, under the name that this one's has
		check(!chown("/tmp/of-another", 12345, 12345), "chown");
		check(!symlink("/tmp/of-another", socket_path), "symlink");
	}
	pid_t child = fork();
	check(child >= 0, "fork");
	if (child)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	for (;;) {
		int c = accept(s, NULL, NULL);
		if (c >= 0 && fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			answer(c);
			exit(0);
		}
		close(c);
	}
}

int main(int argc, char **argv) {
	unsigned char *at;
	check(argc > 3, "arguments");
	kind = argv[1];
	int lib = open(argv[2], O_RDONLY);
	check(lib >= 0 && mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, lib, 0) != MAP_FAILED, argv[2]);
	char secret[100]; // it may lie below /tmp
	snprintf(secret, sizeof secret, "/proc/self/fd/%d", open(argv[3], O_PATH));
	signal(SIGQUIT, ignore);
	signal(SIGCHLD, SIG_IGN);
	prctl(PR_SET_NAME, "java");
	check(!mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "private");
	check(!mount("none", "/tmp", "tmpfs", 0, "mode=1777"), "tmpfs");
	int fd = make_counters(&at);
	if (is("mapped"))
		unlink(counters);
	swap(secret);
	if (!is("mapped"))
		serve();
	puts("ready");
	fflush(stdout);
	for (long i = 0;; i++) {
		if (is("changes")) {
			check(!ftruncate(fd, i % 3 * 100), "ftruncate");
			check(!ftruncate(fd, 32768), "ftruncate");
			fill(at, i % 7 ? 1 : 0x7fffffff, i % 5 ? 48 : -1);
		}
		if (i % 1000 == 0)
			usleep(100);
	}
}
