package perf

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collect/collecttest"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/kernel/perfevent"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// childEnv makes the test binary a process to count: "touch" faults in 3000 pages at the first line it reads, "fork"
// starts a child that burns 0.2 s of CPU and waits for its end.
const childEnv = "PERFDOCTOR_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		if err := beChild(role); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const touched = 3000

func beChild(role string) error {
	if role == "burn" {
		return burn(200 * time.Millisecond)
	}
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	var err error
	if role == "fork" {
		cmd := exec.Command(os.Args[0])
		cmd.Env = []string{childEnv + "=burn"}
		err = cmd.Run()
	} else {
		err = touch()
	}
	if err != nil {
		return err
	}
	fmt.Println("done")
	_, _ = in.ReadString('\n')
	return nil
}

func touch() error {
	size := os.Getpagesize()
	mem, err := syscall.Mmap(-1, 0, touched*size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return err
	}
	if err := syscall.Madvise(mem, syscall.MADV_NOHUGEPAGE); err != nil {
		return err
	}
	for i := range touched {
		mem[i*size] = 1
	}
	return nil
}

// burn uses this much CPU time.
func burn(d time.Duration) error {
	var ru syscall.Rusage
	for {
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
			return err
		}
		if time.Duration(ru.Utime.Nano()+ru.Stime.Nano()) >= d {
			return nil
		}
	}
}

type child struct {
	t   testing.TB
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Reader
}

func startChild(t testing.TB, role string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	cmd.Stdin = r
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	t.Cleanup(func() {
		w.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c := &child{t: t, cmd: cmd, in: w, out: bufio.NewReader(out)}
	c.expect("ready")
	return c
}

func (c *child) expect(word string) {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != word {
		c.t.Fatalf("child said %q, %v; want %q", line, err, word)
	}
}

func (c *child) env() collect.Env {
	c.t.Helper()
	h := host.Local()
	target, err := h.Resolve(c.t.Context(), host.Selector{PID: c.cmd.Process.Pid})
	if err != nil {
		c.t.Fatal(err)
	}
	return collect.Env{Host: h, Target: target}
}

// openTarget opens the collector with all groups, however busy the machine of the test is.
func openTarget(t testing.TB, env collect.Env) *source {
	t.Helper()
	s := newSource(metric.ScopeTarget)
	s.env = env
	if err := s.openMembers(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func sample(t *testing.T, b *recording.Builder, s collect.Source) []recording.Missing {
	t.Helper()
	a := b.Appender()
	if err := s.Sample(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	_, missing := a.Commit()
	return missing
}

func increase(t *testing.T, rec *recording.Recording, scope string, event perfevent.Event) float64 {
	t.Helper()
	series := rec.Counter(metric.PerfEvents, "scope", scope, "event", string(event))
	if len(series) != 1 {
		t.Fatalf("%d series of %s %s", len(series), scope, event)
	}
	n, ok := series[0].Increase()
	if !ok {
		t.Fatalf("%s has one point", event)
	}
	return n
}

func TestTarget(t *testing.T) {
	testenv.Need(t, testenv.Root) // an ordinary user's faults in the kernel are not counted
	c := startChild(t, "touch")
	s := openTarget(t, c.env())
	b := recording.NewBuilder()
	sample(t, b, s)
	fmt.Fprintln(c.in)
	c.expect("done")
	missing := sample(t, b, s)
	rec := b.Done(recording.Meta{})
	if len(missing) > 0 {
		t.Errorf("missing: %v", missing)
	}
	if n := increase(t, rec, metric.ScopeTarget, perfevent.MinorFaults); n < touched || n > touched+1000 {
		t.Errorf("%v faults for %d pages", n, touched)
	}
	if n := increase(t, rec, metric.ScopeTarget, perfevent.TaskClock); n <= 0 || n > 2e9 {
		t.Errorf("task-clock %v ns", n)
	}
	for _, g := range rec.Gauge(metric.PerfRunning) {
		if g.Last() <= 0 || g.Last() > 1 {
			t.Errorf("%v ran for a share of %v", g.Labels, g.Last())
		}
	}
	checkHardware(t, rec, metric.ScopeTarget, targetEvents())
}

// checkHardware expects each event to have either a series or a reason, given once.
func checkHardware(t *testing.T, rec *recording.Recording, scope string, events []perfevent.Event) {
	t.Helper()
	for _, event := range events {
		counted := len(rec.Counter(metric.PerfEvents, "scope", scope, "event", string(event))) > 0
		why := rec.Info(metric.PerfUnavailable, "scope", scope, "event", string(event))
		if counted == (len(why) > 0) {
			t.Errorf("%s: counted %v, reasons %v", event, counted, why)
		}
		for _, w := range why {
			if len(w.Points) != 1 || w.Label("reason") == "" {
				t.Errorf("%s: %d points, reason %q", event, len(w.Points), w.Label("reason"))
			}
		}
	}
}

// TestForked counts a process that is born and ends between the first and the last sample; its counts must stay.
func TestForked(t *testing.T) {
	c := startChild(t, "fork")
	s := openTarget(t, c.env())
	b := recording.NewBuilder()
	missing := sample(t, b, s)
	if len(missing) > 0 {
		t.Skipf("nothing can be counted here: %v", missing)
	}
	fmt.Fprintln(c.in)
	done := make(chan struct{})
	go func() { c.expect("done"); close(done) }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		case <-time.After(20 * time.Millisecond):
		}
		sample(t, b, s)
	}
	// A process that has ended may be listed for a while (host.LateMembers).
	for end := time.Now().Add(time.Second); len(s.sets) != 1 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		sample(t, b, s)
	}
	rec := b.Done(recording.Meta{})
	if n := increase(t, rec, metric.ScopeTarget, perfevent.TaskClock) / 1e9; n < 0.1 || n > 1 {
		t.Errorf("the child burnt 0.2 s of CPU, %v s were counted", n)
	}
	values := rec.Counter(metric.PerfEvents, "event", string(perfevent.TaskClock))[0].Points
	if !slices.IsSortedFunc(values, func(x, y recording.Point) int { return int(x.Value - y.Value) }) {
		t.Errorf("the total fell: %v", values)
	}
	if len(s.sets) != 1 {
		t.Errorf("%d processes are open after one ended", len(s.sets))
	}
}

func TestHost(t *testing.T) {
	testenv.Need(t, testenv.Root)
	rec, err := collect.Run(t.Context(), collect.Options{
		Env:        collect.Env{Host: host.Local(), Target: host.Target{Kind: host.KindHost}},
		Collectors: Collectors(), Interval: 100 * time.Millisecond, Duration: 300 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("cost: %+v", rec.Meta.Collectors)
	want := float64(runtime.NumCPU()) * rec.Meta.Duration * 1e9
	if n := increase(t, rec, metric.ScopeHost, perfevent.CPUClock); n < want/2 || n > want*1.5 {
		t.Errorf("cpu-clock %v ns, want %v", n, want)
	}
	if n := increase(t, rec, metric.ScopeHost, perfevent.ContextSwitches); n <= 0 {
		t.Errorf("%v context switches", n)
	}
	events := targetEvents()
	events[slices.Index(events, perfevent.TaskClock)] = perfevent.CPUClock // both events would count wall time of a CPU
	checkHardware(t, rec, metric.ScopeHost, events)
}

// TestWhole takes the collector as the run does, whatever it decides to count on this machine at this moment. For a
// target it counts nothing if cycles cannot be counted.
func TestWhole(t *testing.T) {
	c := startChild(t, "touch")
	if why := countsCycles(); why != nil {
		if _, err := open(t.Context(), c.env()); err == nil || err.Error() != why.Error() {
			t.Errorf("opened with %v, want %v", err, why)
		}
		return
	}
	rec, err := collect.Run(t.Context(), collect.Options{
		Env: c.env(), Collectors: Collectors(), Interval: 100 * time.Millisecond, Duration: 300 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if st := rec.Meta.Collectors[0]; st.Status != recording.StatusOK {
		t.Errorf("status %+v", st)
	}
	checkHardware(t, rec, metric.ScopeTarget, targetEvents())
	if rec.Recorded(metric.PerfEvents) == (len(rec.Meta.Unsupported) > 0) {
		t.Errorf("recorded %v, missing %v", rec.Recorded(metric.PerfEvents), rec.Meta.Unsupported)
	}
}

// TestGone opens a target that ends before the first sample.
func TestGone(t *testing.T) {
	c := startChild(t, "touch")
	s := openTarget(t, c.env())
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for s.env.Host.Alive(s.env.Target) {
		time.Sleep(time.Millisecond)
	}
	b := recording.NewBuilder()
	for range 2 {
		sample(t, b, s) // no error
	}
}

// TestDenied counts root's process as nobody.
func TestDenied(t *testing.T) {
	testenv.Need(t, testenv.Root)
	c := startChild(t, "touch")
	s := newSource(metric.ScopeTarget)
	s.env = c.env()
	var missing []recording.Missing
	b := recording.NewBuilder()
	asNobody(t, func() {
		if err := s.openMembers(t.Context()); err != nil {
			t.Error(err)
			return
		}
		a := b.Appender()
		if err := s.Sample(t.Context(), a); err != nil {
			t.Error(err)
		}
		_, missing = a.Commit()
	})
	defer s.Close()
	if len(missing) != 2 || missing[0].Status != recording.StatusDenied || !strings.Contains(missing[0].Remedy,
		"root") {
		t.Errorf("missing %+v", missing)
	}
	if rec := b.Done(recording.Meta{}); rec.Recorded(metric.PerfEvents) {
		t.Error("events of another user's process were counted")
	}
}

// asNobody runs f on a thread of its own with another user. The thread ends with the goroutine that locks it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan syscall.Errno)
	go func() {
		runtime.LockOSThread()
		const nobody = 65534
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody)
		if errno == 0 {
			f()
		}
		done <- errno
	}()
	if errno := <-done; errno != 0 {
		t.Fatal(errno)
	}
}

func TestGroupsFor(t *testing.T) {
	for _, tt := range []struct {
		switches float64
		threads  int
		want     []perfevent.Group
	}{
		{busySwitches, manyThreads, nil},
		{busySwitches + 1, 1, []perfevent.Group{perfevent.Core}},
		{busySwitches + 1, manyThreads + 1, []perfevent.Group{perfevent.Core}},
		{0, manyThreads + 1, []perfevent.Group{perfevent.Core, perfevent.Software}},
	} {
		got, why := groupsFor(tt.switches, tt.threads)
		if !cmp.Equal(got, tt.want) || (why == "") != (tt.want == nil) {
			t.Errorf("%v switches, %d threads: %v, %q", tt.switches, tt.threads, got, why)
		}
	}
}

// TestSwitchRate watches a thread that does nothing but sleep 1 ms at a time.
func TestSwitchRate(t *testing.T) {
	stop, tid := make(chan struct{}), make(chan int)
	go func() {
		runtime.LockOSThread()
		tid <- syscall.Gettid()
		for {
			select {
			case <-stop:
				return
			default: // not time.Sleep, which would wake another thread
				_ = syscall.Nanosleep(&syscall.Timespec{Nsec: 1e6}, nil)
			}
		}
	}()
	dir := fmt.Sprintf("/proc/self/task/%d", <-tid)
	defer close(stop)
	if rate, err := switchRate(t.Context(), []string{dir, "/proc/self/task/0"}); err != nil || rate < 100 ||
		rate > 2000 {
		t.Errorf("%v switches a second, %v; want up to 1000", rate, err)
	}
	env := collect.Env{Host: host.Local(), Target: host.Target{Kind: host.KindProcess, PIDs: []int{os.Getpid()}}}
	if dirs, n := targetThreads(t.Context(), env); len(dirs) != 0 || n != 0 {
		t.Errorf("a target with another start time has %d threads", n)
	}
	target, err := env.Host.Resolve(t.Context(), host.Selector{PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	env.Target = target
	if dirs, n := targetThreads(t.Context(), env); n < 2 || len(dirs) == 0 {
		t.Errorf("%d threads, %d directories", n, len(dirs))
	}
}

// TestSums puts together counts of machines on which this test may not run.
func TestSums(t *testing.T) {
	count := func(
		event perfevent.Event, group perfevent.Group, status perfevent.Status, value float64, enabled, running uint64,
	) perfevent.Count {
		return perfevent.Count{
			Event: event, Group: group, Status: status, Value: value, Enabled: enabled,
			Running: running,
		}
	}
	partial := []perfevent.Count{ // no branch events, so that the core group holds two; cycles again in another group
		count(perfevent.Cycles, perfevent.Core, perfevent.Counted, 200, 10, 5),
		count(perfevent.Instructions, perfevent.Core, perfevent.Counted, 300, 10, 5),
		count(perfevent.Cycles, perfevent.Cache, perfevent.Counted, 190, 10, 5),
		count(perfevent.CacheMisses, perfevent.Cache, perfevent.NotCounted, 0, 10, 0),
		count(perfevent.Branches, perfevent.Core, perfevent.NotSupported, 0, 0, 0),
		{Event: perfevent.MajorFaults, Group: perfevent.Software, Reason: "perf_event_open: too many open files"},
	}
	totals, why := map[perfevent.Event]total{}, map[string]unavailable{}
	for range 2 { // two processes
		addCounts(totals, partial)
		addReasons(why, partial)
	}
	want := map[perfevent.Event]total{
		perfevent.Cycles: {400, 20, 10}, perfevent.Instructions: {600, 20, 10}, perfevent.CacheMisses: {0, 20, 0},
	}
	if diff := cmp.Diff(want, totals, cmp.AllowUnexported(total{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s := newSource(metric.ScopeTarget)
	b := recording.NewBuilder()
	a := b.Appender()
	s.samples = 2
	s.appendTotals(a, totals, why)
	s.appendReasons(a, why)
	a.Commit()
	rec := b.Done(recording.Meta{})
	if n := len(rec.Counter(metric.PerfEvents)); n != 2 {
		t.Errorf("%d series, want cycles and instructions: what had no time on a counter is unknown", n)
	}
	if g := rec.Gauge(metric.PerfRunning, "event", "cycles"); len(g) != 1 || g[0].Last() != 0.5 {
		t.Errorf("running share %v", g)
	}
	if n := len(rec.Info(metric.PerfUnavailable)); n != 3 {
		t.Errorf("%d reasons, want those of cache-misses, branches and major-faults", n)
	}
}

// TestOfGroup: a control group of v2 has both events, or the reason why not. A group of v1 is told apart from it.
func TestOfGroup(t *testing.T) {
	testenv.Need(t, testenv.Root)
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		t.Skipf("mount cgroup2: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	env := collect.Env{Host: host.Local(), Target: host.Target{Kind: host.KindCgroup, Cgroups: []host.CgroupLevel{
		{Version: 2, Path: "/", Dir: dir},
	}}}
	src, err := OfGroup().Open(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	rec := collecttest.Sample(t, src)
	for _, event := range []string{string(perfevent.Cycles), string(perfevent.Instructions)} {
		counted := len(rec.Counter(metric.PerfEvents, "scope", metric.ScopeTarget, "event", event))
		why := len(rec.Info(metric.PerfUnavailable, "scope", metric.ScopeTarget, "event", event))
		if counted+why != 1 {
			t.Errorf("%s: counted %v, said to be unavailable %v", event, counted, why)
		}
	}
	env.Target.Cgroups = append(env.Target.Cgroups, host.CgroupLevel{
		Controller: "cpu", Version: 1, Path: "/",
		Dir: dir,
	})
	if src, err := OfGroup().Open(t.Context(), env); err == nil {
		_ = src.Close()
		t.Error("counters of a group of v1 were opened")
	}
}
