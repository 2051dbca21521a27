/*
 * A JVMTI agent that writes where a JVM's compiled code lies, for HotSpot 11 to 25: one line for each range of
 * addresses, "start size name" in hexadecimal as perf reads it (tools/perf/Documentation/jit-interface.txt in the
 * kernel's source). Code into which methods were inlined gets a line for each range that one chain of methods covers,
 * the outermost first: "a.B.outer->a.C.inner".
 *
 * It is given the path of an existing file as its options, writes it, and is idle from then on. It stays mapped,
 * since a JVM never unloads an agent, and it may be called again.
 *
 * It uses no library, not even libc, and no header: so it loads under glibc and musl of any age, is the same whatever
 * is installed where it is built, and is compiled for another architecture by nothing but a compiler for it. What it
 * needs of JVMTI is declared here by the numbers of the specification
 * (https://docs.oracle.com/en/java/javase/17/docs/specs/jvmti.html, "Function Index" and "Events").
 */

typedef int jint;
typedef unsigned long word;
typedef void *jmethodID;
typedef void *jclass;

enum { OK = 0 };

/* Agent_OnAttach's results, which perfdoctor explains: loadReasons in perfmap.go. */
enum { NO_JVMTI = 1, NO_CAPABILITY = 2, NO_FILE = 3, NO_EVENTS = 4, WRITE_FAILED = 5, BUSY = 6 };

/* Positions in the function table. */
enum {
	SET_EVENT_NOTIFICATION_MODE = 2,
	DEALLOCATE = 47,
	GET_CLASS_SIGNATURE = 48,
	GET_METHOD_NAME = 64,
	GET_METHOD_DECLARING_CLASS = 65,
	SET_EVENT_CALLBACKS = 122,
	GENERATE_EVENTS = 123,
	DISPOSE_ENVIRONMENT = 127,
	ADD_CAPABILITIES = 142,
};

/* Numbers of events; the structure of callbacks begins with event 50. */
enum { FIRST_EVENT = 50, COMPILED_METHOD_LOAD = 68, DYNAMIC_CODE_GENERATED = 70, CALLBACKS = 40 };

/* can_generate_compiled_method_load_events is the 28th of the 128 bits of jvmtiCapabilities. */
enum { CAPABILITY_WORDS = 4, CAPABILITY = 1 << 27 };

enum { DISABLE = 0, ENABLE = 1 };

/* The oldest version with all of these functions. */
enum { JVMTI_VERSION_1_1 = 0x30010100 };

typedef struct env {
	void **functions; /* function n is at n - 1 */
} env;

typedef struct vm {
	void **functions; /* JNI's invocation interface: 3 reserved, Destroy, Attach, Detach, GetEnv */
} vm;

enum { GET_ENV = 6 };

/* The record of inlined methods, from jvmticmlr.h, which is no part of the specification: version 1 since JDK 6. */
enum { INLINE_INFO = 2 };

typedef struct header {
	int kind;
	jint major, minor;
	struct header *next;
} header;

typedef struct range {
	char *pc; /* of the call or safepoint at the end of the range */
	jint depth;
	jmethodID *methods; /* the innermost first */
	jint *bcis;
} range;

typedef struct inline_record {
	header head;
	jint count;
	range *ranges;
} inline_record;

#define CALL(e, n, ...) (((jint(*)(env *, ...))(e)->functions[(n) - 1])((e), __VA_ARGS__))
#define CALL0(e, n) (((jint(*)(env *))(e)->functions[(n) - 1])(e))

/* ---- the kernel */

#if defined(__x86_64__)
enum { SYS_WRITE = 1, SYS_CLOSE = 3, SYS_SCHED_YIELD = 24, SYS_OPENAT = 257 };
static long kernel(long n, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return result;
}
enum { O_NOFOLLOW = 0400000 };
#elif defined(__aarch64__)
enum { SYS_OPENAT = 56, SYS_CLOSE = 57, SYS_WRITE = 64, SYS_SCHED_YIELD = 124 };
static long kernel(long n, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}
enum { O_NOFOLLOW = 0100000 };
#else
#error "an architecture without system call numbers here"
#endif

enum { AT_FDCWD = -100, O_WRONLY = 1, O_TRUNC = 01000, O_CLOEXEC = 02000000, EINTR = 4 };

/* ---- output, by one thread at a time */

static char lock;         /* held while a line is written */
static char busy;         /* held during Agent_OnAttach */
static int out = -1;      /* -1: events that come late are dropped */
static int failed;        /* a write failed: nothing more is written */
static char buffer[1 << 16];
static word used;

static void acquire(void)
{
	while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE))
		kernel(SYS_SCHED_YIELD, 0, 0, 0, 0);
}

static void release(void)
{
	__atomic_clear(&lock, __ATOMIC_RELEASE);
}

static void flush(void)
{
	word done = 0;
	while (done < used && !failed) {
		long n = kernel(SYS_WRITE, out, (long)(buffer + done), (long)(used - done), 0);
		if (n > 0)
			done += (word)n;
		else if (n != -EINTR)
			failed = 1;
	}
	used = 0;
}

/* ---- a line, built in memory and written whole */

typedef struct text {
	char bytes[4096]; /* a chain of 15 inlined methods (MaxInlineLevel) of 250 bytes; longer ones are cut */
	word length;
} text;

/* Names of classes and methods may hold spaces and control characters; a line of the map may not. */
static void add(text *t, char c)
{
	if (t->length < sizeof t->bytes - 1)
		t->bytes[t->length++] = (c > 0 && c <= ' ') || c == 127 ? '_' : c;
}

static void add_string(text *t, const char *s)
{
	while (s && *s)
		add(t, *s++);
}

static void add_hex(text *t, word n)
{
	int shift = 60;
	while (shift > 0 && !(n >> shift & 15))
		shift -= 4;
	for (; shift >= 0; shift -= 4)
		add(t, "0123456789abcdef"[n >> shift & 15]);
}

static void put(const char *start, const char *end, const text *name)
{
	text line;
	line.length = 0;
	if (end <= start || !name->length)
		return;
	add_hex(&line, (word)start);
	line.bytes[line.length++] = ' ';
	add_hex(&line, (word)(end - start));
	line.bytes[line.length++] = ' ';
	for (word i = 0; i < name->length; i++)
		add(&line, name->bytes[i]);
	line.bytes[line.length++] = '\n'; /* add leaves a byte for it */

	acquire();
	if (out >= 0) {
		if (used + line.length > sizeof buffer)
			flush();
		for (word i = 0; i < line.length; i++)
			buffer[used++] = line.bytes[i];
	}
	release();
}

/* ---- names */

/* "Ljava/lang/String;" and "concat" become "java.lang.String.concat". */
static void add_method(env *e, text *t, jmethodID method)
{
	char *name = 0, *class_name = 0;
	jclass declaring = 0;
	if (CALL(e, GET_METHOD_NAME, method, &name, (char **)0, (char **)0) == OK &&
	    CALL(e, GET_METHOD_DECLARING_CLASS, method, &declaring) == OK &&
	    CALL(e, GET_CLASS_SIGNATURE, declaring, &class_name, (char **)0) == OK) {
		for (const char *s = class_name + (class_name[0] == 'L'); *s && *s != ';'; s++)
			add(t, *s == '/' ? '.' : *s);
		add(t, '.');
		add_string(t, name);
	} else {
		add_string(t, "[unknown]"); /* of a class that is unloaded at this moment */
	}
	if (name)
		CALL(e, DEALLOCATE, (unsigned char *)name);
	if (class_name)
		CALL(e, DEALLOCATE, (unsigned char *)class_name);
}

/* The chain of one range, the outermost first. */
static void add_chain(env *e, text *t, const range *r, jmethodID method)
{
	t->length = 0;
	if (r->depth <= 0 || !r->methods) {
		add_method(e, t, method);
		return;
	}
	for (jint i = r->depth - 1; i >= 0; i--) {
		add_method(e, t, r->methods[i]);
		if (i > 0)
			add_string(t, "->");
	}
}

static int same_chain(const range *a, const range *b)
{
	if (a->depth != b->depth)
		return 0;
	for (jint i = 0; i < a->depth; i++)
		if (a->methods[i] != b->methods[i])
			return 0;
	return 1;
}

/* ---- events */

static void unfold(env *e, jmethodID method, const char *start, const char *end, const inline_record *record)
{
	text name;
	for (jint i = 0; i < record->count; i++) {
		const range *r = &record->ranges[i];
		int last = i + 1 == record->count;
		if (!last && same_chain(r, &record->ranges[i + 1]))
			continue;
		/* What follows the last record is the code of slow paths: it is counted to it. */
		const char *to = last || r->pc > end ? end : r->pc;
		if (to <= start)
			continue;
		add_chain(e, &name, r, method);
		put(start, to, &name);
		start = to;
	}
}

static void on_method(env *e, jmethodID method, jint size, const char *address, jint map_length, const void *map,
		      const header *info)
{
	(void)map_length;
	(void)map;
	for (; info; info = info->next) {
		const inline_record *record = (const inline_record *)info;
		if (info->kind == INLINE_INFO && record->count > 0) {
			unfold(e, method, address, address + size, record);
			return;
		}
	}
	text name;
	name.length = 0;
	add_method(e, &name, method);
	put(address, address + size, &name);
}

/* The interpreter, stubs and adapters. */
static void on_code(env *e, const char *code_name, const char *address, jint size)
{
	(void)e;
	text name;
	name.length = 0;
	add_string(&name, code_name);
	put(address, address + size, &name);
}

/* ---- attach */

static jint generate(env *e)
{
	void *callbacks[CALLBACKS];
	for (int i = 0; i < CALLBACKS; i++)
		callbacks[i] = 0;
	callbacks[COMPILED_METHOD_LOAD - FIRST_EVENT] = (void *)on_method;
	callbacks[DYNAMIC_CODE_GENERATED - FIRST_EVENT] = (void *)on_code;
	if (CALL(e, SET_EVENT_CALLBACKS, callbacks, (jint)sizeof callbacks) != OK)
		return NO_EVENTS;
	static const int events[] = {DYNAMIC_CODE_GENERATED, COMPILED_METHOD_LOAD};
	jint result = OK;
	for (int i = 0; i < 2; i++)
		if (CALL(e, SET_EVENT_NOTIFICATION_MODE, ENABLE, events[i], (void *)0) != OK ||
		    CALL(e, GENERATE_EVENTS, events[i]) != OK)
			result = NO_EVENTS;
	for (int i = 0; i < 2; i++)
		CALL(e, SET_EVENT_NOTIFICATION_MODE, DISABLE, events[i], (void *)0);
	return result;
}

static jint write_map(env *e, const char *path)
{
	word capabilities[CAPABILITY_WORDS / 2];
	for (int i = 0; i < CAPABILITY_WORDS / 2; i++)
		capabilities[i] = 0;
	capabilities[0] = CAPABILITY;
	if (CALL(e, ADD_CAPABILITIES, capabilities) != OK)
		return NO_CAPABILITY;
	long fd = kernel(SYS_OPENAT, AT_FDCWD, (long)path, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0);
	if (fd < 0)
		return NO_FILE;
	acquire();
	out = (int)fd;
	failed = 0;
	used = 0;
	release();
	jint result = generate(e);
	acquire();
	flush();
	out = -1;
	if (result == OK && failed)
		result = WRITE_FAILED;
	release();
	kernel(SYS_CLOSE, fd, 0, 0, 0);
	return result;
}

__attribute__((visibility("default"))) jint Agent_OnAttach(vm *jvm, char *path, void *reserved)
{
	(void)reserved;
	if (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE))
		return BUSY;
	env *e = 0;
	jint result = NO_JVMTI;
	if (((jint(*)(vm *, env **, jint))jvm->functions[GET_ENV])(jvm, &e, JVMTI_VERSION_1_1) == OK) {
		result = write_map(e, path);
		CALL0(e, DISPOSE_ENVIRONMENT); /* so that compiling costs no more than before */
	}
	__atomic_clear(&busy, __ATOMIC_RELEASE);
	return result;
}
