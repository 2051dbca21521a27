package jvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/jvm/perfmap"
)

const (
	nobody = 65534
	// freshTmp gives the target a /tmp of its own, as systemd's PrivateTmp and containers do. Mount events must not
	// reach the host's own namespace.
	freshTmp = "mount --make-rprivate / && mount -t tmpfs none /tmp && chmod 1777 /tmp"
	// noVarTmp makes /var/tmp no place for a library; the program's classes stay there.
	noVarTmp = " && mount --bind /var/tmp /var/tmp && mount -o remount,bind,noexec /var/tmp"
	newProc  = " && mount -t proc none /proc"
)

// Root outside of the target can do everything, whatever the target's user and place.
func TestPlaces(t *testing.T) {
	const containers = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID
	for _, test := range []struct {
		name  string
		setup setup
		dir   string // where an executable file is to lie
	}{
		{"same user", setup{}, "/tmp/"},
		{"other user", setup{uid: nobody}, "/tmp/"},
		{"private tmp", setup{uid: nobody, spaces: syscall.CLONE_NEWNS, mounts: freshTmp}, "/tmp/"},
		{"container", setup{uid: nobody, spaces: containers, mounts: freshTmp + newProc}, "/tmp/"},
		{"user namespace", setup{spaces: containers | syscall.CLONE_NEWUSER, subuid: 100000, mounts: freshTmp +
			newProc}, "/tmp/"},
		{"noexec tmp", setup{uid: nobody, spaces: syscall.CLONE_NEWNS, mounts: freshTmp +
			" && mount -o remount,noexec /tmp"}, "/dev/shm/"},
		{"noexec tmp and shm", setup{
			uid: nobody, spaces: containers,
			mounts: freshTmp + newProc + " && mount -o remount,noexec /tmp && mount -t tmpfs -o noexec none /dev/shm " +
				"&& chmod 1777 /dev/shm" + noVarTmp,
		}, "/proc/self/cwd/"},
		{"noexec tmp and shm alone", setup{
			uid: nobody, spaces: containers,
			mounts: freshTmp + newProc + " && mount -o remount,noexec /tmp && mount -t tmpfs -o noexec none /dev/shm " +
				"&& chmod 1777 /dev/shm",
		}, "/var/tmp/"},
		// The attach trigger then goes to /tmp.
		{"read-only cwd", setup{uid: nobody, spaces: syscall.CLONE_NEWNS, mounts: freshTmp + " && cd /usr"}, "/tmp/"},
	} {
		t.Run(test.name, func(t *testing.T) {
			testenv.Need(t, testenv.Root)
			tg := test.setup.start(t)
			vm := tg.inspect(t)
			spaces := test.setup.spaces
			if vm.OtherMount != (spaces&syscall.CLONE_NEWNS != 0) ||
				vm.OtherPID != (spaces&syscall.CLONE_NEWPID != 0) ||
				vm.OtherUser != (spaces&syscall.CLONE_NEWUSER != 0) {
				t.Errorf("namespaces other than ours: mount %t, pid %t, user %t", vm.OtherMount, vm.OtherPID,
					vm.OtherUser)
			}
			if want := max(test.setup.uid, test.setup.subuid); vm.UID != want || vm.GID != want {
				t.Errorf("uid %d, gid %d, want %d", vm.UID, vm.GID, want)
			}
			if (spaces&syscall.CLONE_NEWPID != 0) != (vm.NSPid == 1) {
				t.Errorf("pid %d inside", vm.NSPid)
			}
			file, err := vm.Place("agent.so", perfmap.Agent(), 0o500)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(file.Path, test.dir+ownPrefix) {
				t.Errorf("placed at %s, not in %s", file.Path, test.dir)
			}
			out, err := vm.Place("out", nil, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			if err := vm.Load(within(t, 10*time.Second), file.Path, out.Path); err != nil {
				t.Error(err)
			}
			m, err := out.takeMap()
			if err != nil || len(m.Entries) < 50 {
				t.Errorf("map: %v, %v", m, err)
			}
			if err := file.Remove(); err != nil {
				t.Error(err)
			}
			tg.unharmed(t)
			if _, err := vm.PerfMap(within(t, 10*time.Second), false); err != nil {
				t.Error(err)
			}
			tg.unharmed(t)
		})
	}
}

// If no file can be placed, that is the reason.
func TestNoPlace(t *testing.T) {
	testenv.Need(t, testenv.Root)
	tg := setup{uid: nobody, spaces: syscall.CLONE_NEWNS, mounts: freshTmp +
		" && mount -o remount,noexec /tmp && mount -t tmpfs -o noexec none /dev/shm" + noVarTmp + " && cd /usr"}.start(
		t)
	_, err := tg.inspect(t).Place("x.so", []byte("x"), 0o500)
	const want = "/tmp: mounted noexec, /dev/shm: mounted noexec, /var/tmp: mounted noexec, /run/user/65534: "
	if causeOf(err) != NoPlace || !strings.Contains(err.Error(), want) {
		t.Errorf("placed: %v", err)
	}
	tg.unharmed(t)
}

// The JVM's options at its start, wherever they were written.
func TestOptionsOfRealJVM(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "args")
	if err := os.WriteFile(file, []byte("# off\n\"-XX:+DisableAttachMechanism\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const off = "-XX:+DisableAttachMechanism"
	for _, test := range []struct {
		name   string
		setup  setup
		source string
	}{
		{"command line", setup{flags: []string{off}}, "command line"},
		{"environment", setup{env: []string{"JAVA_TOOL_OPTIONS='" + off + "'"}}, "JAVA_TOOL_OPTIONS"},
		{
			"last word",
			setup{flags: []string{"-XX:-DisableAttachMechanism"}, env: []string{"_JAVA_OPTIONS=" + off}},
			"_JAVA_OPTIONS",
		},
		{"launcher", setup{env: []string{"JDK_JAVA_OPTIONS=" + off}}, "JDK_JAVA_OPTIONS"},
		{"argument file", setup{flags: []string{"@" + file}}, "command line"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tg := test.setup.start(t)
			vm := tg.inspect(t)
			_, err := vm.Jcmd(within(t, 10*time.Second), "VM.version")
			if causeOf(err) != AttachDisabled || vm.Options.Flags["DisableAttachMechanism"].Source != test.source {
				t.Errorf("%v; options %+v", err, vm.Options)
			}
			tg.unharmed(t)
		})
	}
}

func TestAgentLoadingDisabled(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			tg := setup{home: jdk(t, release), flags: []string{"-XX:-EnableDynamicAgentLoading"}}.start(t)
			vm := tg.inspect(t)
			if _, err := vm.Jcmd(within(t, 10*time.Second), "VM.version"); err != nil {
				t.Error(err)
			}
			if _, err := vm.PerfMap(within(t, 10*time.Second), true); causeOf(err) != LoadDisabled {
				t.Errorf("loaded: %v", err)
			}
			// If the option was not seen, the JVM says so.
			vm.Options = Options{}
			if _, err := vm.PerfMap(within(t, 10*time.Second), true); causeOf(err) != LoadDisabled {
				t.Errorf("loaded: %v", err)
			}
			tg.unharmed(t)
		})
	}
}

// With -Xrs the signal would end the JVM; it listens from the start instead.
func TestReducedSignals(t *testing.T) {
	tg := setup{flags: []string{"-Xrs"}}.start(t)
	vm := tg.inspect(t)
	if vm.CatchesQuit || !vm.Options.isTrue("ReduceSignalUsage") {
		t.Errorf("inspected as %+v", vm)
	}
	if _, err := vm.Jcmd(within(t, 10*time.Second), "VM.version"); err != nil {
		t.Error(err)
	}
	if err := os.Remove(fmt.Sprintf("/tmp/.java_pid%d", vm.NSPid)); err != nil {
		t.Fatal(err)
	}
	_, err := vm.Jcmd(within(t, 10*time.Second), "VM.version")
	if causeOf(err) != NoSignal || !strings.Contains(err.Error(), "-Xrs") {
		t.Errorf("without its socket: %v", err)
	}
	// The same if the option is not seen.
	vm.Options = Options{}
	if _, err := vm.Jcmd(within(t, 10*time.Second), "VM.version"); causeOf(err) != Starting &&
		causeOf(err) != NoSignal {
		t.Errorf("without its socket: %v", err)
	}
	tg.unharmed(t)
}

// A socket that a clean-up of /tmp removed is opened again (AttachListener::check_socket_file). A socket that a dead
// process left does not mislead.
func TestSocketGone(t *testing.T) {
	tg := setup{}.start(t)
	vm := tg.inspect(t)
	path := fmt.Sprintf("/tmp/.java_pid%d", vm.NSPid)
	dead, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(dead, &unix.SockaddrUnix{Name: path}), unix.Close(dead)); err != nil {
		t.Fatal(err)
	}
	if _, err := vm.Jcmd(within(t, 10*time.Second), "VM.version"); err != nil {
		t.Errorf("with the socket of a dead process: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := vm.Jcmd(within(t, 10*time.Second), "VM.version"); err != nil {
		t.Errorf("without its socket: %v", err)
	}
	tg.unharmed(t)
}

// A JVM is asked from its first moment. It may be too young, but it must survive.
func TestStarting(t *testing.T) {
	answered, young := 0, 0
	for range 5 {
		tg := setup{young: true}.start(t)
		for {
			vm, err := Inspect(tg.pid)
			if err != nil {
				if c := causeOf(err); c != NotJVM && c != Starting {
					t.Fatal(err)
				}
				young++
				continue
			}
			if _, err := vm.Jcmd(within(t, 20*time.Second), "VM.version"); err != nil {
				t.Errorf("a JVM that starts: %v", err)
			}
			answered++
			break
		}
		tg.await(t)
		tg.unharmed(t)
	}
	t.Logf("%d JVMs answered, after %d looks at one that was too young", answered, young)
}

func TestStopped(t *testing.T) {
	tg := setup{}.start(t)
	before := tg.inspect(t)
	if err := unix.Kill(tg.pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitState(t, tg.pid, 'T')
	for _, vm := range []*VM{tg.inspect(t), before} {
		start := time.Now()
		_, err := vm.Jcmd(within(t, 10*time.Second), "VM.version")
		if causeOf(err) != Stopped || !strings.Contains(err.Error(), "kill -CONT") || time.Since(start) > time.Second {
			t.Errorf("a stopped JVM after %v: %v", time.Since(start), err)
		}
	}
	if err := unix.Kill(tg.pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waitState(t, tg.pid, 'S')
	vm := tg.inspect(t)
	if _, err := vm.Jcmd(within(t, 10*time.Second), "VM.version"); err != nil {
		t.Error(err)
	}
	// Now it listens, and is stopped when it is asked: only the context ends that.
	if err := unix.Kill(tg.pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitState(t, tg.pid, 'T')
	_, err := vm.ask(within(t, 300*time.Millisecond), "jcmd", "VM.version")
	if causeOf(err) != Stopped {
		t.Errorf("stopped while it was asked: %v", err)
	}
	if err := unix.Kill(tg.pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	tg.unharmed(t)
}

func waitState(t *testing.T, pid int, state byte) {
	t.Helper()
	for range 500 {
		vm := VM{PID: pid}
		if err := vm.readStatus(); err != nil {
			t.Fatal(err)
		}
		if vm.State == state {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("process %d does not come to state %c", pid, state)
}

// A native debugger holds all of it.
func TestTraced(t *testing.T) {
	tg := setup{}.start(t)
	// The requests of a tracer must come from one thread (ptrace(2)).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.PtraceAttach(tg.pid); err != nil {
		t.Skipf("ptrace: %v", err)
	}
	if _, err := unix.Wait4(tg.pid, nil, unix.WALL, nil); err != nil {
		t.Fatal(err)
	}
	_, err := tg.inspect(t).Jcmd(within(t, time.Second), "VM.version")
	if causeOf(err) != Stopped || !strings.Contains(err.Error(), fmt.Sprintf("(its pid is %d)", unix.Gettid())) {
		t.Errorf("a traced JVM: %v", err)
	}
	if err := unix.PtraceDetach(tg.pid); err != nil {
		t.Fatal(err)
	}
	if _, err := tg.inspect(t).Jcmd(within(t, 10*time.Second), "VM.version"); err != nil {
		t.Error(err)
	}
	tg.unharmed(t)
}

// A JVM that waits for its Java debugger before it runs the program still answers.
func TestSuspended(t *testing.T) {
	tg := setup{
		young: true,
		flags: []string{"-agentlib:jdwp=transport=dt_socket,server=y,suspend=y,quiet=y,address=127.0.0.1:0"},
	}.start(t)
	var vm *VM
	var err error
	for vm == nil {
		vm, err = Inspect(tg.pid)
		if c := causeOf(err); err != nil && c != NotJVM && c != Starting {
			t.Fatal(err)
		}
	}
	if _, err := vm.Jcmd(within(t, 10*time.Second), "VM.version"); err != nil {
		t.Error(err)
	}
	if _, err := vm.PerfMap(within(t, 10*time.Second), true); err != nil {
		t.Error(err)
	}
	if !strings.Contains(vm.Options.Debugger, "suspend=y") {
		t.Errorf("debugger: %q", vm.Options.Debugger)
	}
	if got := tg.output(); got != "" {
		t.Errorf("it printed %q", got)
	}
}

// freeze uses whichever freezer the machine has.
func freeze(t *testing.T, pid int) (thaw func()) {
	t.Helper()
	name := "perfdoctor-jvm-test-" + strconv.Itoa(os.Getpid())
	for _, v := range []struct{ root, file, on, off string }{
		{"/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"},
		{"/sys/fs/cgroup", "cgroup.freeze", "1", "0"},
	} {
		dir := filepath.Join(v.root, name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, v.file)); err != nil {
			os.Remove(dir)
			continue
		}
		procs := []byte(strconv.Itoa(pid))
		if err := errors.Join(os.WriteFile(dir+"/cgroup.procs", procs, 0), os.WriteFile(dir+"/"+v.file, []byte(v.on),
			0)); err != nil {
			t.Fatal(err)
		}
		return func() {
			err := errors.Join(os.WriteFile(dir+"/"+v.file, []byte(v.off), 0), os.WriteFile(v.root+"/cgroup.procs",
				procs, 0))
			if err != nil {
				t.Fatal(err)
			}
			for range 100 {
				if err = os.Remove(dir); err == nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Error(err)
		}
	}
	t.Skip("no freezer")
	return nil
}

func TestFrozen(t *testing.T) {
	testenv.Need(t, testenv.Root)
	tg := setup{}.start(t)
	thaw := freeze(t, tg.pid)
	for range 100 {
		if tg.inspect(t).Frozen {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	_, err := tg.inspect(t).Jcmd(within(t, time.Second), "VM.version")
	thaw()
	if causeOf(err) != Stopped || !strings.Contains(err.Error(), "freezer") {
		t.Errorf("a frozen JVM: %v", err)
	}
	tg.unharmed(t)
}

// A foreign profiler is visible in what is mapped.
func TestForeignProfiler(t *testing.T) {
	dir := t.TempDir()
	library := filepath.Join(dir, "libasyncProfiler.so")
	if err := os.WriteFile(library, perfmap.Agent(), 0o755); err != nil {
		t.Fatal(err)
	}
	tg := setup{}.start(t)
	vm := tg.inspect(t)
	if len(vm.Profilers()) != 0 {
		t.Errorf("profilers before: %v", vm.Profilers())
	}
	// A library whose Agent_OnAttach fails is unloaded again.
	if err := errors.Join(os.WriteFile(dir+"/map", nil, 0o644), vm.Load(within(t, 10*time.Second), library,
		dir+"/map")); err != nil {
		t.Fatal(err)
	}
	got := tg.inspect(t).Profilers()
	if len(got) != 1 || got[0] != (Agent{Name: "async-profiler", Path: library, Profiler: true}) {
		t.Errorf("profilers: %+v", got)
	}
	tg.unharmed(t)
}

// Many requests at once get their answers, though the listener's queue takes five and is not open yet.
func TestManyAtOnce(t *testing.T) {
	tg := setup{uid: nobodyIfRoot()}.start(t)
	vm := tg.inspect(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if out, err := vm.Jcmd(within(t, 20*time.Second), "VM.version"); err != nil ||
				!strings.Contains(out, "JDK") {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
	wg.Wait()
	tg.unharmed(t)
}

func nobodyIfRoot() int {
	if os.Geteuid() == 0 {
		return nobody
	}
	return 0
}

// No thread keeps the ids of a target.
func TestCredentialsStayOnTheirThread(t *testing.T) {
	testenv.Need(t, testenv.Root)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			err := credentials{uid: nobody, gid: nobody}.do(func() error {
				if unix.Geteuid() != nobody || unix.Getegid() != nobody || unix.Gettid() == unix.Getpid() {
					return fmt.Errorf("uid %d, gid %d, thread %d", unix.Geteuid(), unix.Getegid(), unix.Gettid())
				}
				if _, err := os.ReadFile("/proc/1/environ"); err == nil {
					return errors.New("the thread may still read what is root's")
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for range 200 {
		if foreign := foreignThreads(t); len(foreign) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("threads with other ids: %v", foreignThreads(t))
}

func foreignThreads(t *testing.T) (found []string) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if err != nil {
			continue // it ended
		}
		s, err := parseStatus(text)
		if err != nil {
			t.Fatal(err)
		}
		if s.uid != 0 || s.gid != 0 {
			found = append(found, task.Name())
		}
	}
	return found
}

// asNobody runs one child of this test binary without rights, and returns what it says.
func asNobody(t *testing.T, what string, args ...string) string {
	t.Helper()
	testenv.Need(t, testenv.Unprivileged)
	dir, err := os.MkdirTemp("/var/tmp", "perfdoctor-jvm-test-") //nolint:usetesting // nobody cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary := filepath.Join(dir, "child")
	content, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(binary, content, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), childVar+"="+what)
	cmd.Dir = dir
	testenv.Drop(cmd)
	var complaints strings.Builder // a binary built for coverage writes on it that it cannot write
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, &complaints)
	}
	return string(out)
}

// child is what a process of its own does.
func child(what string, args []string) int {
	if what == "chroot" {
		return inChroot(args[0])
	}
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	vm, err := Inspect(pid)
	if err != nil {
		fmt.Println(causeOf(err), err)
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	switch what {
	case "counters":
		c, err := vm.OpenPerfData()
		if err != nil {
			fmt.Println(err)
			return 0
		}
		counters, err := c.Read()
		fmt.Println("counters:", len(counters.Longs), err)
	case "map":
		m, err := vm.PerfMap(ctx, true)
		if err != nil {
			fmt.Println(causeOf(err), err)
			return 0
		}
		fmt.Println("entries:", len(m.Entries) > 50)
	case "place and be killed":
		t, err := vm.enter()
		if err == nil {
			_, err = t.placeTrigger(vm.NSPid, false)
		}
		if err == nil {
			_, err = vm.placeDefaultMap()
		}
		var f *File
		if err == nil {
			f, err = vm.Place("left.so", []byte("x"), 0o500)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(f.Path)
		if len(args) > 1 {
			_, _ = os.Stdin.Read(make([]byte, 1)) // until the test closes it
		}
		_ = unix.Kill(unix.Getpid(), unix.SIGKILL)
	}
	return 0
}

func TestWithoutRights(t *testing.T) {
	testenv.Need(t, testenv.Root)
	mine := setup{uid: nobody}.start(t)
	if got := asNobody(t, "map", strconv.Itoa(mine.pid)); got != "entries: true\n" {
		t.Errorf("the same user: %s", got)
	}
	mine.unharmed(t)
	others := setup{}.start(t)
	got := asNobody(t, "map", strconv.Itoa(others.pid))
	if !strings.HasPrefix(got, string(Denied)+" ") || !strings.Contains(got, "run it as root or as the target's user") {
		t.Errorf("another user: %s", got)
	}
	others.unharmed(t)
}
