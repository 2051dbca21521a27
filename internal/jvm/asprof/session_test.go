package asprof

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/jvm/asprof/library"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// workDir holds what tests share. Other users can read it, unlike a test's own directory.
var workDir string

func TestMain(m *testing.M) {
	if pid := os.Getenv(pidVar); pid != "" {
		fmt.Fprintln(os.Stderr, profileForever(pid))
		os.Exit(1)
	}
	code := m.Run()
	if workDir != "" {
		os.RemoveAll(workDir)
	}
	os.Exit(code)
}

// classes compiles testdata/java/Busy.java for the oldest JVM that is tested.
var classes = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("/var/tmp", "perfdoctor-asprof-") // not /tmp, over which tests mount another
	if err != nil {
		return "", err
	}
	workDir = dir
	out, err := exec.Command("javac", "--release", "11", "-d", dir, "../../../testdata/java/Busy.java").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir, os.Chmod(dir, 0o755)
})

// A busyJVM is a running testdata/java/Busy.java.
type busyJVM struct {
	*exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stdout strings.Builder // all it has written
}

// startJVM starts the program with two busy threads and options of the JVM, changed by how, and ends it with the test.
func startJVM(t testing.TB, how func(*exec.Cmd), options ...string) *busyJVM {
	t.Helper()
	return startThreads(t, 2, how, options...)
}

// ownTmp gives the JVM a /tmp and a /dev/shm that no other test's session writes to. So a test can tell what its own
// session has left.
func ownTmp(cmd *exec.Cmd) {
	if os.Geteuid() != 0 {
		return
	}
	const script = `mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /dev/shm; exec "$@"`
	java := cmd.Args
	*cmd = *exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-ec", script, "sh"},
		java...)...)
}

func startThreads(t testing.TB, busy int, how func(*exec.Cmd), options ...string) *busyJVM {
	t.Helper()
	testenv.Need(t, testenv.Java, testenv.Tool("javac"))
	dir, err := classes()
	must(t, err)
	args := append([]string{"-Xmx256m", "-cp", dir}, options...)
	b := &busyJVM{Cmd: exec.Command("java", append(args, "Busy", strconv.Itoa(busy), "20")...)}
	if how != nil {
		how(b.Cmd)
	}
	b.Stderr = os.Stderr
	b.in, err = b.StdinPipe()
	must(t, err)
	pipe, err := b.StdoutPipe()
	must(t, err)
	b.out = bufio.NewReader(io.TeeReader(pipe, &b.stdout))
	must(t, b.Start())
	t.Cleanup(func() { b.Process.Kill(); b.Wait() })
	if line := b.line(t); line != "ready\n" {
		t.Fatalf("the JVM says %q", line)
	}
	return b
}

func (b *busyJVM) line(t testing.TB) string {
	t.Helper()
	line, err := b.out.ReadString('\n')
	must(t, err)
	return line
}

// done asks the JVM for the work it has done: it is alive, and works.
func (b *busyJVM) done(t testing.TB) {
	t.Helper()
	_, err := io.WriteString(b.in, "?\n")
	must(t, err)
	var at, work int64 // its own time, in nanoseconds
	if n, err := fmt.Sscan(b.line(t), &at, &work); n != 2 {
		t.Fatalf("the JVM's answer: %v", err)
	}
}

func (b *busyJVM) inspect(t testing.TB) *jvm.VM {
	t.Helper()
	vm, err := jvm.Inspect(b.Process.Pid)
	must(t, err)
	return vm
}

func bundled(t testing.TB) []byte {
	t.Helper()
	lib, err := library.Bundled()
	if errors.Is(err, library.ErrNotBundled) {
		testenv.Need(t, testenv.Tool("mvn"))
		t.Fatal("async-profiler is not bundled, though there is Maven: run `make bundle`")
	}
	must(t, err)
	return lib
}

func defaults(t testing.TB) Options {
	t.Helper()
	return Options{
		Library: bundled(t), Events: DefaultEvents(),
		CPU: DefaultCPU, Wall: DefaultWall, Alloc: DefaultAlloc, Lock: DefaultLock, Timeout: 20 * time.Second,
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// leftovers lists files of perfdoctor's in /tmp and /dev/shm as the process sees them.
func leftovers(t testing.TB, pid int) []string {
	t.Helper()
	var all []string
	for _, dir := range []string{"/tmp", "/dev/shm", "/var/tmp"} {
		found, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "root", dir, ".perfdoctor-*"))
		must(t, err)
		all = append(all, found...)
	}
	return all
}

// sample runs a session for a moment and returns its recording.
func sample(t testing.TB, vm *jvm.VM, o Options) (recording []byte, s *Session) {
	t.Helper()
	s, err := Start(t.Context(), vm, o)
	must(t, err)
	time.Sleep(500 * time.Millisecond)
	f, err := s.Stop(t.Context())
	must(t, err)
	defer f.Close()
	recording, err = io.ReadAll(f)
	must(t, err)
	if !strings.HasPrefix(string(recording), "FLR\x00") { // Chunk.MAGIC, jdk.jfr.internal.consumer.ChunkHeader
		t.Fatalf("no JFR file: %.20q", recording)
	}
	return recording, s
}

// untouched checks that only the library's mapping is left in the target, that the target answers, and that its
// standard output has only its answers.
func (b *busyJVM) untouched(t testing.TB) {
	t.Helper()
	b.done(t)
	if left := leftovers(t, b.Process.Pid); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	awaitStop(t, b.Process.Pid, time.Second) // its timer thread ends a moment after the profiler
	for i, line := range strings.Split(strings.TrimSpace(b.stdout.String()), "\n") {
		if i > 0 && len(strings.Fields(line)) != 2 {
			t.Errorf("on the target's standard output: %q", line)
		}
	}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", b.Process.Pid))
	must(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.Contains(to, ".perfdoctor-") {
			t.Errorf("the target still has %s open", to)
		}
	}
}

// TestSessions: the library is loaded once. Later sessions use the mapped one.
func TestSessions(t *testing.T) {
	b := startJVM(t, ownTmp)
	var first string
	for range 3 {
		_, s := sample(t, b.inspect(t), defaults(t))
		if first == "" {
			first = s.library
		}
		if !s.Lost.Known || s.Lost.Overflows != 0 {
			t.Errorf("lost: %+v", s.Lost)
		}
		if s.library != first {
			t.Errorf("library %s was loaded, though %s is there", s.library, first)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close after stop: %v", err)
		}
		b.untouched(t)
	}
	if n := len(b.inspect(t).Agents); n != 1 {
		t.Errorf("%d libraries are mapped: %+v", n, b.inspect(t).Agents)
	}
}

// TestClosed: a session that is closed, or whose start was abandoned, leaves nothing.
func TestClosed(t *testing.T) {
	b := startJVM(t, ownTmp)
	s, err := Start(t.Context(), b.inspect(t), defaults(t))
	must(t, err)
	must(t, s.Close())
	b.untouched(t)
	for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		s, err := Start(ctx, b.inspect(t), defaults(t))
		if err == nil {
			err = s.Close()
			must(t, err)
		}
		cancel()
		b.untouched(t)
	}
}

// TestStopsByItself: if nobody stops it before the timeout, the recording is complete.
func TestStopsByItself(t *testing.T) {
	b := startJVM(t, ownTmp)
	o := defaults(t)
	o.Timeout = time.Second
	s, err := Start(t.Context(), b.inspect(t), o)
	must(t, err)
	awaitStop(t, b.Process.Pid, o.Timeout+2*time.Second)
	f, err := s.Stop(t.Context())
	must(t, err)
	if info, err := f.Stat(); err != nil || info.Size() < 1000 {
		t.Errorf("the recording: %v, %v", info, err)
	}
	f.Close()
	b.untouched(t)
}

func TestTargetEnds(t *testing.T) {
	b := startJVM(t, nil)
	s, err := Start(t.Context(), b.inspect(t), defaults(t))
	must(t, err)
	jfr := strings.Replace(s.jfr.Path, "/tmp/", os.TempDir()+"/", 1)
	time.Sleep(200 * time.Millisecond)
	must(t, b.in.Close()) // main returns; the agent completes its recording (VM::VMDeath)
	b.Wait()
	f, err := s.Stop(t.Context())
	must(t, err)
	if info, err := f.Stat(); err != nil || info.Size() < 1000 {
		t.Errorf("the recording: %v, %v", info, err)
	}
	f.Close()
	if _, err := os.Stat(jfr); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", jfr, err)
	}
}

func TestTwoAtOnce(t *testing.T) {
	b := startJVM(t, ownTmp)
	s, err := Start(t.Context(), b.inspect(t), defaults(t))
	must(t, err)
	if _, err := Start(t.Context(), b.inspect(t), defaults(t)); !errors.Is(err, ErrBusy) {
		t.Errorf("a second session: %v, want ErrBusy", err)
	}
	if !profilerRuns(t, b.Process.Pid) {
		t.Error("the second session has stopped the first")
	}
	f, err := s.Stop(t.Context())
	must(t, err)
	f.Close()
	b.untouched(t)
}

// TestElsewhere profiles a JVM of another user in namespaces of its own, with a /tmp that perfdoctor does not see.
func TestElsewhere(t *testing.T) {
	testenv.Need(t, testenv.Root)
	for _, tc := range []struct{ name, mounts, place string }{
		{"private tmp", "mount -t tmpfs tmpfs /tmp", "/tmp/"},
		{"noexec tmp", "mount -t tmpfs -o noexec tmpfs /tmp; mount -t tmpfs tmpfs /dev/shm", "/dev/shm/"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := startJVM(t, func(cmd *exec.Cmd) {
				script := tc.mounts +
					`; chmod 1777 /tmp /dev/shm; cd /; exec setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"`
				java := cmd.Args
				*cmd = *exec.Command("unshare", append([]string{
					"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", "sh",
					"-ec", script, "sh",
				}, java...)...)
			})
			pid := childOf(t, b.Process.Pid)
			vm, err := jvm.Inspect(pid)
			must(t, err)
			if vm.UID != 65534 || !vm.OtherPID || !vm.OtherMount {
				t.Fatalf("the target is not elsewhere: %+v", vm)
			}
			data, s := sample(t, vm, defaults(t))
			if !strings.HasPrefix(s.library, tc.place) {
				t.Errorf("the library lay at %s, want %s", s.library, tc.place)
			}
			t.Logf("%d bytes, warnings %q", len(data), s.Warnings)
			if left := leftovers(t, pid); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			b.done(t)
		})
	}
}

// childOf returns the one child of a process.
func childOf(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	must(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	return child
}

// agentFile is the library in the form a user has it.
func agentFile(t testing.TB) string {
	t.Helper()
	dir, err := classes()
	must(t, err)
	file := filepath.Join(dir, "libasyncProfiler.so")
	must(t, os.WriteFile(file, bundled(t), 0o755))
	return file
}

// TestRefused has each reason why a JVM cannot be profiled. It is left alone.
func TestRefused(t *testing.T) {
	foreign := func(t *testing.T) string {
		return "-agentpath:" + agentFile(t) + "=start,quiet,event=ctimer,file=/dev/null,jfr,log=/dev/null"
	}
	for _, tc := range []struct {
		name, want string
		option     func(*testing.T) string
	}{
		{"foreign profiler", "another profiler is loaded, async-profiler", foreign},
		{"attach disabled", "DisableAttachMechanism", func(*testing.T) string { return "-XX:+DisableAttachMechanism" }},
		{
			"loading disabled", "EnableDynamicAgentLoading",
			func(*testing.T) string { return "-XX:-EnableDynamicAgentLoading" },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := startJVM(t, ownTmp, tc.option(t))
			_, err := Start(t.Context(), b.inspect(t), defaults(t))
			var r *jvm.Refusal
			if !errors.As(err, &r) || !strings.Contains(err.Error(), tc.want) || r.Remedy == "" {
				t.Errorf("error %v, want a refusal with %q and a remedy", err, tc.want)
			}
			b.done(t)
			if left := leftovers(t, b.Process.Pid); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestNoPerfEvents: the JVM may not open a descriptor for each thread, so timers take the samples.
func TestNoPerfEvents(t *testing.T) {
	testenv.Need(t, testenv.Tool("prlimit"))
	b := startJVM(t, func(cmd *exec.Cmd) {
		java := cmd.Args
		*cmd = *exec.Command("prlimit", append([]string{"--nofile=40:40"}, java...)...)
	})
	data, s := sample(t, b.inspect(t), defaults(t))
	if !strings.Contains(string(data), "ctimer") {
		t.Errorf("the engine is not ctimer; warnings: %q", s.Warnings)
	}
	b.untouched(t)
}

func TestBadOptions(t *testing.T) {
	good := Options{Events: DefaultEvents(), CPU: 1, Wall: 1, Alloc: 1, Lock: 1, Timeout: time.Second}
	must(t, good.validate())
	for want, change := range map[string]func(*Options){
		"no event":                func(o *Options) { o.Events = nil },
		`"off-cpu" is no event`:   func(o *Options) { o.Events = []stacks.Event{stacks.OffCPU} },
		"the interval of wall is": func(o *Options) { o.Wall = 0 },
		"timeout":                 func(o *Options) { o.Timeout = time.Millisecond },
	} {
		o := good
		change(&o)
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestStartCommand(t *testing.T) {
	o := Options{
		Events: DefaultEvents(), CPU: DefaultCPU, Wall: DefaultWall, Alloc: DefaultAlloc, Lock: DefaultLock,
		Timeout: 15100 * time.Millisecond,
	}
	want :=
		"start,quiet,event=cpu,interval=10000000,wall=200000000,alloc=4194304,lock=10000000,jfr,jfropts=31,clock=monotonic,memlimit=64m," +
			"timeout=16,file=/tmp/f.jfr,log=/tmp/l"
	if got := o.start("cpu", "/tmp/f.jfr", "/tmp/l"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLines(t *testing.T) {
	const log = "[WARN] perf_event_open for TID 7 failed: Too many open files\n[WARN] Kernel symbols are " +
		"unavailable. " +
		"Try\n  sysctl x=1\n" +
		"[WARN] Kernel symbols are unavailable. Try\n\n[ERROR] Profiler already started\n"
	want := []string{
		"perf_event_open for TID 7 failed: Too many open files", "Kernel symbols are unavailable. Try", "sysctl x=1",
		"Profiler already started",
	}
	if d := cmp.Diff(want, lines(log)); d != "" {
		t.Error(d)
	}
}

// safepoint is a line of HotSpot's log about a safepoint: of JDK 12 and later, or of 11.
var safepoint = regexp.MustCompile(`Safepoint "(\w+)"|Entering safepoint region: (\w+)`)

// TestSafepoints: attaching stops no thread of the JVM. async-profiler does when it is first told to sample locks, for
// some 10 us: it looks for the native method behind Unsafe.park through the table of JNI functions
// (LockTracer::initialize in src/lockTracer.cpp). JDK 11 ends the bias of a lock on the way. From JDK 21 on, HotSpot
// itself stops the threads for the first agent that is loaded at run time (VM_SetNotifyJvmtiEventsMode in
// src/hotspot/share/prims/jvmtiThreadState.cpp). No later session does.
func TestSafepoints(t *testing.T) {
	file := filepath.Join(t.TempDir(), "safepoints")
	b := startThreads(t, 0, nil, "-Xlog:safepoint=info:file="+file)
	time.Sleep(1500 * time.Millisecond) // the start has some of its own
	seen := len(safepoints(t, file))
	noLocks := defaults(t)
	noLocks.Events = []stacks.Event{stacks.CPU, stacks.Wall, stacks.Alloc}
	for _, session := range []struct {
		name    string
		options Options
		known   []string
	}{
		{"first, without locks", noLocks, []string{"SetNotifyJvmtiEventsMode"}},
		{"first with locks", defaults(t), []string{"JNIFunctionTableCopier", "RevokeBias"}},
		{"later", defaults(t), nil},
	} {
		sample(t, b.inspect(t), session.options)
		all := safepoints(t, file)
		for _, operation := range all[seen:] {
			if !slices.Contains(session.known, operation) {
				t.Errorf("%s: safepoint %s", session.name, operation)
			}
		}
		seen = len(all)
	}
	out, err := exec.Command("jcmd", strconv.Itoa(b.Process.Pid), "GC.run").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(safepoints(t, file)) == seen {
		t.Error("a collection shows no safepoint in the log: this test proves nothing")
	}
}

func safepoints(t testing.TB, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	var operations []string
	for _, m := range safepoint.FindAllStringSubmatch(string(text), -1) {
		operations = append(operations, m[1]+m[2])
	}
	return operations
}

func TestParseLost(t *testing.T) {
	for text, want := range map[string]Lost{
		"samples_total 9\nsamples_skipped_total 7\nstackwalk_ns_avg x\ncalltracestorage_overflows_total 2\n": {
			true, 7,
			2,
		},
		"samples_skipped_total 7\n":                                      {},
		"samples_skipped_total x\ncalltracestorage_overflows_total 2\n":  {},
		"samples_skipped_total -1\ncalltracestorage_overflows_total 2\n": {},
		"[ERROR] Unknown argument: metrics\n":                            {},
		"":                                                               {},
	} {
		if got := parseLost(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
