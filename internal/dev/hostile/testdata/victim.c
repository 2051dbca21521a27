// A program that lays a trap under the name of its perf map and spins in memory that it made executable.
// victim link FILE | bind FILE | device | fuse | page | lock | exec | libraries DIRECTORY | inside DIRECTORY root|cwd @OPTIONS | arguments |
// maps DIRECTORY | files DIRECTORY | threads NUMBER | names NAME | methods MIB | mangled | spin; it prints "ready" once the trap is laid.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <unistd.h>

static void check(int ok, const char *what) {
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static int opens, reads; // whether the server answers what is asked to open a file, and to read it

static void answer(int fd, const void *request, const void *with, size_t size) {
	struct {
		struct fuse_out_header header;
		char with[4096];
	} out = {{sizeof out.header + size, 0, ((const struct fuse_in_header *)request)->unique}, {0}};
	if (size)
		memcpy(out.with, with, size);
	check(write(fd, &out, out.header.len) == out.header.len, "answer");
}

// What the server answers, by the number of the request: what a file is like and holds, so that it can be mapped and changed; of a
// directory, that one may be in it.
static int answered(int fd, const struct fuse_in_header *in, int mode) {
	static const char zeros[4096];
	struct fuse_attr_out like = {.attr_valid = 1000, .attr = {.ino = 1, .size = 4096, .mode = mode, .nlink = 2, .blksize = 4096}};
	struct fuse_open_out opened = {0};
	switch (in->opcode) {
	case FUSE_GETATTR:
		answer(fd, in, &like, sizeof like);
		return 1;
	case FUSE_ACCESS:
		answer(fd, in, NULL, 0);
		return 1;
	case FUSE_OPEN:
		answer(fd, in, &opened, sizeof opened);
		return 1;
	case FUSE_READ:
		if (reads)
			answer(fd, in, zeros, sizeof zeros);
		return reads;
	}
	return 0;
}

// The server answers that it is there, where it is to be entered or opened the above, and takes every other request without an answer:
// of one that was not taken a signal would end the wait (request_wait_answer in fs/fuse/dev.c). With this program its child ends too,
// and the kernel the mount.
static void fuse(const char *at, int mode) {
	static char request[1 << 20];
	char options[100];
	int fd = open("/dev/fuse", O_RDWR);
	check(fd >= 0, "/dev/fuse");
	snprintf(options, sizeof options, "fd=%d,rootmode=%o,user_id=0,group_id=0", fd, mode);
	check(!mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "private");
	check(!mount("victim", at, "fuse", 0, options), "mount");
	check(read(fd, request, sizeof request) > 0, "read");
	struct fuse_in_header *in = (void *)request;
	struct fuse_init_out init = {.major = 7, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 4096};
	check(in->opcode == FUSE_INIT, "init");
	answer(fd, request, &init, sizeof init);
	pid_t self = getpid();
	pid_t child = fork();
	check(child >= 0, "fork");
	if (child == 0) {
		// As whom it is ended: a program whose thread waits for this server ends after it only.
		check(!S_ISREG(mode) || !setresuid(65534, 65534, 65534), "setresuid");
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (getppid() == self && read(fd, request, sizeof request) > 0)
			if (opens)
				answered(fd, in, mode);
		exit(0);
	}
	close(fd);
}

static void *waits(void *entry) {
	poll(entry, 1, -1);
	return NULL;
}

// A file whose server answers no more than that it opens, without a name.
static int served(int how) {
	char file[] = "/tmp/servedXXXXXX";
	close(mkstemp(file));
	opens = 1;
	fuse(file, S_IFREG | 0600);
	int fd = open(file, how);
	struct stat size; // asks for it: without a size there is no page
	check(fd >= 0 && !fstat(fd, &size), file);
	check(!umount2(file, MNT_DETACH) && !unlink(file), file);
	return fd;
}

static char *dirty;

// What is mapped over a page that was written to waits for the server that is to write it (fuse_vma_close in fs/fuse/file.c), and has
// the lock of this program's memory meanwhile: who wants its list of mappings or its arguments waits, too.
static void *holds(void *none) {
	mmap(dirty, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	return none;
}

static void lock(void) {
	reads = 1;
	int fd = served(O_RDWR);
	dirty = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(dirty != MAP_FAILED && !setresuid(65534, 65534, 65534), "mmap");
	*dirty = 1;
}

// A child executes a program, and the server does not answer that a file is closed by that (do_close_on_exec in fs/exec.c): meanwhile
// what the child is may not be looked at (exec_update_lock).
static void execs(void) {
	served(O_RDONLY | O_CLOEXEC);
	check(!setresuid(65534, 65534, 65534), "setresuid");
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("/bin/sleep", "sleep", "300", NULL);
	}
	usleep(200000);
}

// It maps libraries by which it is a JVM and an interpreter of Python, and whose server answers no more than that they open.
static void libraries(const char *directory) {
	static const char *names[] = {"libjvm.so", "libpython3.11.so.1.0"};
	opens = 1;
	for (int i = 0; i < 2; i++) {
		char file[4096];
		struct stat size;
		snprintf(file, sizeof file, "%s/%s", directory, names[i]);
		close(open(file, O_CREAT | O_WRONLY, 0644));
		fuse(file, S_IFREG | 0755);
		int fd = open(file, O_RDONLY);
		check(fd >= 0 && !fstat(fd, &size), file);
		check(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED, file);
	}
}

// It maps itself under the name libjvm.so, so that its options are looked for, and its root or its working directory is one whose server
// answers no more than that one may be in it.
static void inside(const char *at, const char *what) {
	char library[4096];
	check(!mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) && !mount("none", at, "tmpfs", 0, NULL), "tmpfs");
	snprintf(library, sizeof library, "%s/libjvm.so", at);
	int fd = open(library, O_RDWR | O_CREAT, 0755);
	check(fd >= 0 && !ftruncate(fd, 4096), library);
	check(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED, library);
	opens = 1;
	fuse(at, S_IFDIR | 0755);
	check(!chdir(at), at);
	if (!strcmp(what, "root"))
		check(!chroot("."), at);
}

// A thread of nobody's waits in poll(2) for an entry in memory that is then made a page of a file whose server never answers. What root's
// processes do to root is no attack.
static void page(void) {
	int end[2];
	int fd = served(O_RDONLY);
	check(!pipe(end) && !setresuid(65534, 65534, 65534), "nobody's");
	struct pollfd *entry = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(entry != MAP_FAILED, "mmap");
	*entry = (struct pollfd){.fd = end[0], .events = POLLIN};
	pthread_t t;
	sigset_t alarm; // would end the wait
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	check(!sigprocmask(SIG_BLOCK, &alarm, NULL) && !pthread_create(&t, NULL, waits, entry), "thread");
	check(!sigprocmask(SIG_UNBLOCK, &alarm, NULL), "signals");
	usleep(200000);
	check(mmap(entry, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == entry, "mmap");
	check(!madvise(entry, 4096, MADV_RANDOM), "madvise"); // what is read ahead is waited for by others than who reads
}

// It says that its arguments and its environment are 1 GiB of memory each (PR_SET_MM_MAP, prctl(2)).
static void arguments(void) {
	const size_t size = 1UL << 30;
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	check(at != MAP_FAILED, "mmap");
	unsigned long from = (unsigned long)at, brk = (unsigned long)sbrk(0);
	struct prctl_mm_map map = {
		.start_code = from, .end_code = from + 1, .start_data = from, .end_data = from, .start_brk = brk, .brk = brk,
		.start_stack = from, .arg_start = from, .arg_end = from + size, .env_start = from, .env_end = from + size, .exe_fd = -1,
	};
	strcpy(at, "victim");
	// Its last byte stays 0: where it is not the kernel takes it for a title, and stops at the first 0 (get_mm_cmdline).
	check(!prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0), "PR_SET_MM_MAP");
}

// It maps one file 60,000 times, which has a name of 3,800 newlines: in /proc/PID/maps each is four characters, so that a line has 15 KB
// and all of them 900 MB (show_map_vma in fs/proc/task_mmu.c).
static void maps(const char *directory) {
	char name[251];
	memset(name, '\n', 250);
	name[250] = 0;
	check(!chdir(directory), directory);
	for (int i = 0; i < 15; i++)
		check(!mkdir(name, 0755) && !chdir(name), "directory");
	int fd = open("x", O_CREAT | O_RDWR, 0644);
	check(fd >= 0 && !ftruncate(fd, 4096), "file");
	for (int i = 0; i < 60000; i++)
		check(mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED, "mmap");
}

// It is called as a server of PostgreSQL is, and maps all files of a directory, and so do children of it.
static void files(const char *directory) {
	char file[4096];
	DIR *d = opendir(directory);
	check(d != NULL && !prctl(PR_SET_NAME, "postgres"), directory);
	for (struct dirent *e; (e = readdir(d)) != NULL;) {
		snprintf(file, sizeof file, "%s/%s", directory, e->d_name);
		int fd = open(file, O_RDONLY);
		if (e->d_type == DT_REG)
			check(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED, file);
		close(fd);
	}
	for (int i = 0; i < 20; i++) {
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
	}
}

// Many of these run side by side: while it spins, this takes three quarters of its time.
static void breathe(int sig) {
	(void)sig;
	usleep(15000);
}

static void *asleep(void *none) {
	for (;;)
		pause();
	return none;
}

static void threads(int n) {
	pthread_attr_t small;
	pthread_attr_init(&small);
	check(!pthread_attr_setstacksize(&small, 16 << 10), "stack");
	for (pthread_t t; n > 0; n--)
		check(!pthread_create(&t, &small, asleep, NULL), "thread");
}

// Its perf map has so many MiB of methods.
static void methods(const char *map, int mib) {
	FILE *f = fopen(map, "w");
	check(f != NULL, map);
	for (long at = 0; ftell(f) < (long)mib << 20; at += 16)
		fprintf(f, "%lx 10 com.example.service.Component%ld.method\n", 1 + at, at);
	fclose(f);
}

// It spins in a function by whose name the library panicked that made names of C++ readable in 2025.
__attribute__((noinline)) static void mangled(void) __asm__("_ZN1AcvT_cvT_IiEEv");
static void mangled(void) {
	for (;;)
		__asm__ volatile("");
}

int main(int argc, char **argv) {
	char map[100];
	snprintf(map, sizeof map, "/tmp/perf-%d.map", getpid());
	const char *trap = argv[1];
	if (!strcmp(trap, "link") || !strcmp(trap, "bind")) {
		check(!mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "private");
		// Links in a sticky directory are followed by nobody else, with fs.protected_symlinks (may_follow_link in fs/namei.c).
		check(!mount("none", "/tmp", "tmpfs", 0, "mode=755"), "tmpfs");
	}
	if (!strcmp(trap, "link"))
		check(!symlink(argv[2], map), "symlink");
	if (!strcmp(trap, "bind")) {
		close(open(map, O_CREAT | O_WRONLY, 0600));
		check(!mount(argv[2], map, NULL, MS_BIND, NULL), "bind");
	}
	if (!strcmp(trap, "device"))
		check(!mknod(map, S_IFCHR | 0600, makedev(1, 3)), "mknod"); // null(4), which does not mind
	if (!strcmp(trap, "arguments"))
		arguments();
	if (!strcmp(trap, "threads"))
		threads(atoi(argv[2]));
	if (!strcmp(trap, "fuse"))
		fuse("/tmp", S_IFDIR);
	if (!strcmp(trap, "page"))
		page();
	if (!strcmp(trap, "lock"))
		lock();
	if (!strcmp(trap, "exec"))
		execs();
	if (!strcmp(trap, "libraries"))
		libraries(argv[2]);
	if (!strcmp(trap, "inside"))
		inside(argv[2], argv[3]);
	if (!strcmp(trap, "maps"))
		maps(argv[2]);
	if (!strcmp(trap, "files"))
		files(argv[2]);
	if (!strcmp(trap, "methods"))
		methods(map, atoi(argv[2]));
	if (!strcmp(trap, "names"))
		prctl(PR_SET_NAME, argv[2]);
	unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(code != MAP_FAILED, "mmap");
#ifdef __x86_64__
	memcpy(code, "\xeb\xfe", 2); // jmp to itself
#else
	memcpy(code, "\x00\x00\x00\x14", 4); // b to itself
	__builtin___clear_cache((char *)code, (char *)code + 4);
#endif
	if (!strcmp(trap, "names")) {
		FILE *f = fopen(map, "w");
		check(f != NULL, map);
		fprintf(f, "%lx 1000 %s\n", (unsigned long)code, argv[2]);
		fclose(f);
	}
	signal(SIGALRM, breathe);
	struct itimerval often = {{0, 20000}, {0, 20000}};
	check(!setitimer(ITIMER_REAL, &often, NULL), "setitimer");
	pthread_t t;
	if (!strcmp(trap, "lock"))
		check(!pthread_create(&t, NULL, holds, NULL), "thread");
	for (int i = 0; i < 20; i++) // which SIGALRM cuts short
		usleep(10000);
	check(write(1, "ready\n", 6) == 6, "ready"); // puts(3) may want memory
	if (!strcmp(trap, "mangled"))
		mangled();
	((void (*)(void))code)();
}
