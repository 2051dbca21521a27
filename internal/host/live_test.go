package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// TestMain lets the test binary be its own target. With this variable set it starts a child and waits.
func TestMain(m *testing.M) {
	if name := os.Getenv("HOST_TEST_COMM"); name != "" {
		os.Exit(beTarget(name))
	}
	os.Exit(m.Run())
}

// beTarget names itself, starts "sleep 60" from a thread that is not the main one, and waits for its input to close.
func beTarget(name string) int {
	if err := os.WriteFile("/proc/self/comm", []byte(name), 0); err != nil {
		return 1
	}
	sleep := exec.Command("sleep", "60")
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- sleep.Start()
		select {} // the child's parent is this thread: keep it
	}()
	if err := <-started; err != nil {
		return 1
	}
	if _, err := fmt.Fprintln(os.Stdout, sleep.Process.Pid); err != nil { // startTarget reads it
		return 1
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	_ = sleep.Process.Kill()
	return 0
}

// startTarget runs the test binary as a target and returns its pid and that of its child.
func startTarget(t testing.TB, name string) (pid, child int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "HOST_TEST_COMM="+name)
	target := testenv.StartChild(t, cmd)
	if _, err := fmt.Fscan(target.Out, &child); err != nil {
		t.Fatal("the target did not start: ", err)
	}
	return target.PID, child
}

func startSleep(t testing.TB, attr *syscall.SysProcAttr) *exec.Cmd {
	t.Helper()
	testenv.Need(t, testenv.Tool("sleep"))
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	waitForComm(t, cmd.Process.Pid, "sleep")
	return cmd
}

// waitForComm waits until a started process has executed its program.
func waitForComm(t testing.TB, pid int, comm string) {
	t.Helper()
	for range 200 {
		st, _, err := Local().ReadStat(pid, 0, nil)
		if err == nil && st.Comm == comm {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("process %d did not become %s", pid, comm)
}

func memberPIDs(t testing.TB, h *Host, target Target) []int {
	t.Helper()
	members, err := h.Members(context.Background(), target)
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, m := range members {
		pids = append(pids, m.PID)
	}
	return pids
}

func TestLivePID(t *testing.T) {
	h := Local()
	pid, child := startTarget(t, "a (b) c\n)d")
	got, err := h.Resolve(context.Background(), Selector{PID: pid})
	if err != nil {
		t.Fatal(err)
	}
	if got.Kind != KindProcess || got.Comm != "a (b) c\n)d" || got.Runtime != RuntimeGo || got.UID != os.Geteuid() {
		t.Errorf("target = %+v", got)
	}
	if got.NSPid != pid || !got.Namespaces.Net.Same || !got.Namespaces.User.Same || got.Threads < 2 {
		t.Errorf("namespaces, threads: %+v", got)
	}
	want := []int{pid, child}
	slices.Sort(want)
	if pids := memberPIDs(t, h, got); !slices.Equal(pids, want) {
		t.Errorf("members = %v, want %v", pids, want)
	}
	root, err := h.rootStat(got)
	if err != nil {
		t.Fatal(err)
	}
	byParents, err := h.treeByParents(context.Background(), root)
	if err != nil || len(byParents) != 2 || byParents[child].Comm != "sleep" {
		t.Errorf("by parents: %v, %v", byParents, err)
	}
}

func TestLiveThreadMeansItsProcess(t *testing.T) {
	pid, _ := startTarget(t, "threaded")
	tids, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	tid, err := strconv.Atoi(tids[len(tids)-1].Name())
	if err != nil || tid == pid {
		t.Fatalf("no second thread: %v, %v", tids, err)
	}
	got, err := Local().Resolve(context.Background(), Selector{PID: tid})
	if err != nil || got.PIDs[0] != pid || !strings.Contains(strings.Join(got.Notes, " "), "thread of process") {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestLiveComm(t *testing.T) {
	h := Local()
	name := fmt.Sprintf("pd%d", os.Getpid())
	pid, _ := startTarget(t, name)
	got, err := h.Resolve(context.Background(), Selector{Comm: name})
	if err != nil || got.PIDs[0] != pid {
		t.Fatalf("got %v, %v", got.PIDs, err)
	}
	second, _ := startTarget(t, name)
	_, err = h.Resolve(context.Background(), Selector{Comm: name})
	if !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), strconv.Itoa(second)) {
		t.Errorf("two targets: %v", err)
	}
	if _, err := h.Resolve(context.Background(), Selector{Comm: name + "x"}); !errors.Is(err, ErrNoSuchProcess) {
		t.Errorf("no target: %v", err)
	}
}

func TestLiveNeverItself(t *testing.T) {
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Local().Resolve(context.Background(), Selector{Comm: strings.TrimSuffix(string(comm), "\n")})
	if err == nil && slices.Contains(got.PIDs, os.Getpid()) {
		t.Error("found itself")
	}
}

func TestLiveEnd(t *testing.T) {
	h := Local()
	cmd := startSleep(t, nil)
	target, err := h.Resolve(context.Background(), Selector{PID: cmd.Process.Pid})
	if err != nil || !h.Alive(target) {
		t.Fatal("not alive: ", err)
	}
	later := target
	later.StartTime++
	if h.Alive(later) {
		t.Error("a process with another start time is alive")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitForZombie(t, cmd.Process.Pid)
	if _, err := h.Resolve(context.Background(), Selector{PID: cmd.Process.Pid}); !errors.Is(err, ErrNoSuchProcess) ||
		!strings.Contains(err.Error(), "zombie") {
		t.Errorf("zombie: %v", err)
	}
	_ = cmd.Wait()
	if h.Alive(target) {
		t.Error("alive after its end")
	}
	_, err = h.Members(context.Background(), target)
	want := fmt.Sprintf("no process with pid %d (it may have ended)", cmd.Process.Pid)
	if !errors.Is(err, ErrNoSuchProcess) || err.Error() != want {
		t.Errorf("members: %v, want %s", err, want)
	}
}

func waitForZombie(t *testing.T, pid int) {
	t.Helper()
	for range 200 {
		if st, _, err := Local().ReadStat(pid, 0, nil); err == nil && st.State == 'Z' {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("did not end")
}

func TestLiveUnprivileged(t *testing.T) {
	testenv.Need(t, testenv.Root)
	mine := startSleep(t, nil)
	// A thread that gave up its rights may not read the links of a process of root (fs/proc/base.c).
	err := onThread(func() error {
		// unix.Setresuid changes every thread of the process; the raw call changes this one.
		const nobody = 65534
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			return errno
		}
		got, err := Local().resolve(context.Background(), Selector{PID: mine.Process.Pid}) // by this thread
		if err != nil {
			return err
		}
		if got.Runtime != RuntimeUnknown || !strings.Contains(got.RuntimeReason, "CAP_SYS_PTRACE") {
			return fmt.Errorf("runtime %s: %s", got.Runtime, got.RuntimeReason)
		}
		if got.Namespaces.Net.Inode != 0 || !strings.Contains(got.Namespaces.Net.Reason, "permission denied") {
			return fmt.Errorf("namespace %+v", got.Namespaces.Net)
		}
		err = Local().InNetNS(mine.Process.Pid, func() error { return nil })
		if !errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), "CAP_SYS_ADMIN") {
			return fmt.Errorf("network namespace: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// onThread runs fn on a thread that is thrown away.
func onThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- fn()
	}()
	return <-done
}

func TestLiveNetNS(t *testing.T) {
	testenv.Need(t, testenv.Root)
	h := Local()
	other := startSleep(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})
	target, err := h.Resolve(context.Background(), Selector{PID: other.Process.Pid})
	if err != nil || target.Namespaces.Net.Same || !target.Namespaces.PID.Same {
		t.Fatalf("namespaces %+v, %v", target.Namespaces, err)
	}
	want := target.Namespaces.Net.Inode
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			err := h.InNetNS(other.Process.Pid, func() error {
				if unix.Gettid() == unix.Getpid() {
					return errors.New("the main thread was switched")
				}
				if ino, err := h.ownNamespace("net"); err != nil || ino != want {
					return fmt.Errorf("in namespace %d, want %d: %w", ino, want, err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		ino, err := readNamespace("/proc/self/task/" + task.Name() + "/ns/net")
		if err == nil && ino == want {
			t.Errorf("thread %s stayed in the other namespace", task.Name())
		}
	}
}

func TestLiveNetNSOutcomes(t *testing.T) {
	testenv.Need(t, testenv.Root)
	h := Local()
	pid := startSleep(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}).Process.Pid
	boom := errors.New("boom")
	if err := h.InNetNS(pid, func() error { return boom }); !errors.Is(err, boom) {
		t.Errorf("error lost: %v", err)
	}
	if err := h.InNetNS(pid, func() error { runtime.Goexit(); return nil }); !errors.Is(err, errGoexit) {
		t.Errorf("Goexit: %v", err)
	}
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("panic lost: %v", p)
			}
		}()
		_ = h.InNetNS(pid, func() error { panic("boom") })
	}()
	called := false
	if err := h.InNetNS(os.Getpid(), func() error { called = true; return nil }); err != nil || !called {
		t.Errorf("own namespace: %v", err)
	}
	if err := h.InNetNS(1<<30, func() error { return nil }); !errors.Is(err, ErrNoSuchProcess) {
		t.Errorf("unknown pid: %v", err)
	}
}

// makeGroups makes a/b/c in the first v1 tree or in v2 and returns the hierarchy and the directories.
func makeGroups(t *testing.T, h *Host) (hierarchy, []string) {
	t.Helper()
	testenv.Need(t, testenv.Root)
	trees, err := h.hierarchies()
	if err != nil || len(trees) == 0 {
		t.Skip("no cgroup file system is mounted: ", err)
	}
	tree := trees[0]
	base := filepath.Join(tree.dir, fmt.Sprintf("perfdoctor-host-%d", os.Getpid()))
	dirs := []string{base, base + "/b", base + "/b/c"}
	for _, d := range dirs {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(d); err != nil {
				t.Error(err)
			}
		})
	}
	return tree, dirs
}

func TestLiveCgroup(t *testing.T) {
	h := Local()
	tree, dirs := makeGroups(t, h)
	outer, inner := startSleep(t, nil), startSleep(t, nil)
	for dir, cmd := range map[string]*exec.Cmd{dirs[0]: outer, dirs[2]: inner} {
		if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	// The groups can only be removed once their processes are gone.
	t.Cleanup(func() {
		for _, cmd := range []*exec.Cmd{outer, inner} {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	want := []int{outer.Process.Pid, inner.Process.Pid}
	slices.Sort(want)
	target, err := h.Resolve(context.Background(), Selector{CgroupPath: dirs[0]})
	if err != nil {
		t.Fatal(err)
	}
	if pids := memberPIDs(t, h, target); !slices.Equal(pids, want) || len(target.PIDs) != 2 {
		t.Errorf("members %v, want %v; roots %v", pids, want, target.PIDs)
	}
	relative := strings.TrimPrefix(dirs[2], tree.dir)
	target, err = h.Resolve(context.Background(), Selector{CgroupPath: relative})
	if err != nil || !slices.Equal(target.PIDs, []int{inner.Process.Pid}) || !h.Alive(target) {
		t.Fatalf("relative: %+v, %v", target, err)
	}
	byPID, err := h.Resolve(context.Background(), Selector{PID: inner.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tree.levelNames() {
		if got := levelPaths(byPID.Cgroups, name, tree.version); len(got) != 4 || got[0] != relative || got[3] != "/" {
			t.Errorf("levels of %q: %v", name, got)
		}
	}
	if err := inner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = inner.Wait()
	if h.Alive(target) {
		t.Error("an empty group is alive")
	}
}

func levelPaths(levels []CgroupLevel, controller string, version int) (paths []string) {
	for _, l := range levels {
		if l.Controller == controller && l.Version == version {
			paths = append(paths, l.Path)
			if _, err := os.Stat(l.Dir); err != nil {
				paths = append(paths, err.Error())
			}
		}
	}
	return paths
}

func TestLiveProbesAndFacts(t *testing.T) {
	h := Local()
	for _, c := range Capabilities() {
		p := h.Probe(c)
		t.Logf("%-20s %-12s %s | %s", c.Name, p.Status, p.Reason, p.Remedy)
		if p.Capability != c || p.Reason == "" || p.Status == "" || c.Doc == "" {
			t.Errorf("incomplete probe %+v", p)
		}
		if p.Status == Inconclusive && c != Lockdown && c != DelayAccounting {
			t.Errorf("%s: %s", c.Name, p.Reason)
		}
	}
	if p := h.Probe(Capability{Name: "magic"}); p.Status != Inconclusive {
		t.Errorf("unknown capability: %+v", p)
	}
	f := h.Facts()
	t.Logf("%+v", f)
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	if f.KernelRelease != unix.ByteSliceToString(uts.Release[:]) || f.UserHZ != 100 || f.MemTotal < 1<<20 {
		t.Errorf("facts %+v", f)
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	boot := time.Now().Add(-time.Duration(info.Uptime) * time.Second)
	if d := boot.Sub(f.BootTime).Abs(); d > 5*time.Second {
		t.Errorf("boot time %s is %s off", f.BootTime, d)
	}
}

func BenchmarkParseStat(b *testing.B) {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseStat(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadStat(b *testing.B) {
	h, pid := Local(), os.Getpid()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if _, buf, err = h.ReadStat(pid, pid, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadStatProcfs(b *testing.B) {
	threads, err := procfs.AllThreads(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := threads[0].Stat(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMembers reports the cost of one listing of the host, and per process of it.
func BenchmarkMembers(b *testing.B) {
	h := Local()
	pid, _ := startTarget(b, "bench")
	for _, sel := range []Selector{{}, {PID: pid}} {
		target, err := h.Resolve(context.Background(), sel)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(string(target.Kind), func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				members, err := h.Members(context.Background(), target)
				if err != nil {
					b.Fatal(err)
				}
				n = len(members)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/process")
		})
	}
}
