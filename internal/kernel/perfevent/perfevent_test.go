package perfevent

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// read fails the test on any error.
func read(t testing.TB, s *Set) []Count {
	t.Helper()
	counts, err := s.Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

func value(t testing.TB, counts []Count, event Event) float64 {
	t.Helper()
	c, ok := find(counts, event)
	if !ok || c.Status != Counted {
		t.Fatalf("%s: %+v, found %v; want it counted", event, c, ok)
	}
	return c.Value
}

// thisThread counts only the calling thread, and locks it until the test ends.
func thisThread(t testing.TB, only ...Group) *Set {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	s, err := openThreads(os.Getpid(), only, func() ([]int, error) { return []int{unix.Gettid()}, nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func touch(t testing.TB, pages int) {
	t.Helper()
	size := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, pages*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		t.Fatal(err) // EINVAL: a kernel without huge pages
	}
	for i := 0; i < len(mem); i += size {
		mem[i] = 1
	}
	if err := unix.Munmap(mem); err != nil {
		t.Fatal(err)
	}
}

func TestMinorFaultsOfTouchedPages(t *testing.T) {
	testenv.Need(t, testenv.Root)
	s := thisThread(t)
	before := read(t, s)
	touch(t, 1009)
	after := read(t, s)
	faults := value(t, after, MinorFaults) - value(t, before, MinorFaults)
	if faults < 1009 || faults > 1009+60 { // the runtime's own pages come on top
		t.Errorf("minor faults = %v, want 1009 and a few", faults)
	}
	t.Logf("1009 pages touched: %v faults", faults)
}

func TestContextSwitchesOfSleeps(t *testing.T) {
	testenv.Need(t, testenv.Root)
	s := thisThread(t)
	var before, after unix.Rusage
	first := value(t, read(t, s), ContextSwitches)
	mustRusage(t, unix.RUSAGE_THREAD, &before)
	for range 101 {
		ts := unix.NsecToTimespec(int64(200 * time.Microsecond))
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, nil) != nil {
			continue
		}
	}
	mustRusage(t, unix.RUSAGE_THREAD, &after)
	switches := value(t, read(t, s), ContextSwitches) - first
	want := float64(after.Nvcsw + after.Nivcsw - before.Nvcsw - before.Nivcsw)
	// A preemption may be between the two readings; and a sleep is no switch if its timer fires before its thread is
	// off the CPU (kernel/time/hrtimer.c, do_nanosleep), as where the hypervisor takes the CPU just then.
	if switches < 90 || math.Abs(switches-want) > 3 {
		t.Errorf("context switches = %v, rusage says %v, slept 101 times", switches, want)
	}
	t.Logf("slept 101 times: %v switches, rusage %v", switches, want)
}

func mustRusage(t testing.TB, who int, usage *unix.Rusage) {
	t.Helper()
	if err := unix.Getrusage(who, usage); err != nil {
		t.Fatal(err)
	}
}

// spin burns CPU on a thread that is made for it. The thread ends with it, because a locked goroutine takes its thread
// along.
func spin(d time.Duration, done chan<- struct{}) {
	runtime.LockOSThread()
	var used unix.Timespec // CPU time, not wall time: a busy machine must not shrink what is compared
	for used.Nano() < int64(d) {
		if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used) != nil {
			break
		}
	}
	done <- struct{}{}
}

func TestTaskClockOfThreadsBornLater(t *testing.T) {
	testenv.Need(t, testenv.Root)
	time.Sleep(3 * time.Second / ticksPerSecond) // else the threads this process began with are unsure
	for _, wholeGroups := range []bool{true, false} {
		p := makePlan(groups(taskClock(), nil))
		if wholeGroups && !p.groupRead {
			t.Log("this kernel cannot read inherited groups whole (before 6.13)")
			continue
		}
		p.groupRead = wholeGroups
		s, err := openPlanned(os.Getpid(), p, func() ([]int, error) { return threads(os.Getpid()) })
		if err != nil {
			t.Fatal(err)
		}
		checkTaskClock(t, s, wholeGroups)
		s.Close()
	}
}

// checkTaskClock allows three tries. On a busy machine with two CPUs 24 of 25 were within 1 %, and single ones up to 4
// % below rusage. The reason is not established (rusage of a thread on another CPU is as old as its last tick, and a
// thread's exit runs on after its events are taken off, but neither was shown to add up to this).
func checkTaskClock(t *testing.T, s *Set, wholeGroups bool) {
	t.Helper()
	off := math.Inf(1)
	opened := s.Targets()
	for try := 0; try < 3 && off > 0.02; try++ {
		got, want := spinCounted(t, s)
		off = math.Abs(got-want) / want
		t.Logf("whole groups %v: task-clock/rusage = %.4f of %v, %d threads opened, %d unsure", wholeGroups, got/want,
			time.Duration(want), opened, s.Unsure())
	}
	if off > 0.02 {
		t.Errorf("whole groups %v: task-clock is %.1f %% off rusage", wholeGroups, 100*off)
	}
	if s.Targets() != opened {
		t.Errorf("Refresh opened %d threads that were inherited", s.Targets()-opened)
	}
}

// spinCounted returns the growth of task-clock and of rusage, ns, over six spinning threads that come and go.
func spinCounted(t *testing.T, s *Set) (got, want float64) {
	t.Helper()
	var before, after unix.Rusage
	first := value(t, read(t, s), TaskClock)
	mustRusage(t, unix.RUSAGE_SELF, &before)
	done := make(chan struct{})
	const spinners = 6 // more than the idle threads of the runtime, so that some are new
	for range spinners {
		go spin(50*time.Millisecond, done)
	}
	for range spinners {
		<-done
	}
	time.Sleep(20 * time.Millisecond) // let the spinners' threads end
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	mustRusage(t, unix.RUSAGE_SELF, &after)
	got = value(t, read(t, s), TaskClock) - first
	return got, float64(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
}

// TestRefreshOpensMissedThreads leaves all threads but one out of the listing. They are older than the set.
func TestRefreshOpensMissedThreads(t *testing.T) {
	testenv.Need(t, testenv.Root)
	time.Sleep(2 * time.Second / ticksPerSecond) // so that every thread is older by the coarse clock of start times
	all, err := threads(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	s := thisThread(t)
	if s.Targets() != 1 {
		t.Fatalf("%d threads opened, want 1", s.Targets())
	}
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	if s.Targets() < len(all) {
		t.Errorf("after Refresh %d threads are open, want all %d", s.Targets(), len(all))
	}
}

// onlyUser runs f on a thread that has given up root; the thread ends with it, as credentials are per thread.
func onlyUser(t *testing.T, f func() error) {
	t.Helper()
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, 65534, 65534, 65534); errno != 0 {
			result <- errno
			return
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			result <- errno
			return
		}
		result <- f()
	}()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestOtherUsersProcessIsDenied(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.Tool("sleep"))
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
	})
	onlyUser(t, func() error {
		s, err := OpenProcess(sleeper.Process.Pid)
		if err != nil {
			return err
		}
		defer s.Close()
		counts, err := s.Read(nil)
		if err != nil {
			return err
		}
		clock, _ := find(counts, TaskClock)
		if clock.Status != Denied || !strings.Contains(clock.Reason, "CAP_PERFMON") {
			t.Errorf("task-clock of another user's process: %+v, want it denied with the remedy", clock)
		}
		return nil
	})
}

func TestUserOnlyWhenParanoid(t *testing.T) {
	testenv.Need(t, testenv.Root)
	if paranoid() != "2" {
		t.Skipf("kernel.perf_event_paranoid is %s, not 2", paranoid())
	}
	onlyUser(t, func() error {
		s, err := openThreads(os.Getpid(), nil, func() ([]int, error) { return []int{unix.Gettid()}, nil })
		if err != nil {
			return err
		}
		defer s.Close()
		touch(t, 101)
		counts, err := s.Read(nil)
		if err != nil {
			return err
		}
		type row struct {
			Status   Status
			UserOnly bool
		}
		got := map[Event]row{}
		for _, event := range []Event{TaskClock, ContextSwitches, MinorFaults} {
			c, _ := find(counts, event)
			got[event] = row{c.Status, c.UserOnly}
		}
		want := map[Event]row{
			TaskClock:       {Counted, false}, // the clock runs on in the kernel
			ContextSwitches: {Denied, false},  // would always be 0
			MinorFaults:     {Counted, true},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("without privileges (-want +got):\n%s", diff)
		}
		return nil
	})
}

func TestHardwareIsCountedOrExplained(t *testing.T) {
	testenv.Need(t, testenv.Root)
	s := thisThread(t)
	counts := read(t, s)
	for _, c := range counts {
		if c.Group == Software {
			continue
		}
		if c.Status == NotCounted || (c.Status != Counted) != (c.Reason != "") ||
			(c.Status != Counted && c.Value != 0) {
			t.Errorf("%s in %s: %+v", c.Event, c.Group, c)
		}
	}
	cycles, _ := find(counts, Cycles)
	_, ok := ratioOf(nil, counts, Instructions, Cycles)
	if cycles.Status == NotSupported && ok {
		t.Error("instructions per cycle without a cycle counter")
	}
	t.Logf("cycles: %s %s", cycles.Status, cycles.Reason)
}

func TestHost(t *testing.T) {
	testenv.Need(t, testenv.Root)
	s, err := OpenHost([]int{0})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	start := time.Now()
	first := value(t, read(t, s), CPUClock)
	time.Sleep(50 * time.Millisecond)
	got := time.Duration(value(t, read(t, s), CPUClock) - first)
	if wall := time.Since(start); got < 50*time.Millisecond || got > wall {
		t.Errorf("cpu-clock of one CPU grew by %v in %v", got, wall)
	}
	onlyUser(t, func() error {
		s, err := OpenHost([]int{0})
		if err != nil {
			return err
		}
		defer s.Close()
		counts, err := s.Read(nil)
		if c, _ := find(counts, CPUClock); paranoid() == "2" && c.Status != Denied {
			t.Errorf("cpu-clock of a CPU without privileges: %+v, want it denied", c)
		}
		return err
	})
}

func TestOnlyTheChosenGroups(t *testing.T) {
	testenv.Need(t, testenv.Root)
	s, err := OpenProcess(os.Getpid(), Core)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got []Event
	for _, c := range read(t, s) {
		got = append(got, c.Event)
	}
	if diff := cmp.Diff([]Event{Cycles, Instructions, Branches, BranchMisses}, got); diff != "" {
		t.Errorf("events of the core group (-want +got):\n%s", diff)
	}
}

func TestGoneProcessIsAnError(t *testing.T) {
	if s, err := OpenProcess(1<<22 + 1); err == nil { // above the largest pid, PID_MAX_LIMIT
		s.Close()
		t.Error("OpenProcess of a pid that cannot exist succeeded")
	}
	if s, err := OpenHost(nil); err == nil {
		s.Close()
		t.Error("OpenHost of no CPU succeeded")
	}
}

func TestTruncationIsCounted(t *testing.T) {
	testenv.Need(t, testenv.Root)
	p := makePlan(groups(taskClock(), nil))
	s := newSet(os.Getpid())
	defer s.Close()
	s.plan, s.room = p, 2*p.size()
	tid := unix.Gettid()
	s.add([]int{tid, tid, tid, tid, tid})
	if s.Targets() != 2 || s.Truncated() != 3 || s.Files() != 2*p.size() {
		t.Errorf("targets %d, truncated %d, files %d; want 2, 3, %d", s.Targets(), s.Truncated(), s.Files(), 2*p.size())
	}
	s.Close()
	s = newSet(os.Getpid())
	s.plan, s.room = p, 0
	s.add([]int{tid})
	if _, err := s.checked(1); err == nil || !strings.Contains(err.Error(), "RLIMIT_NOFILE") {
		t.Errorf("no room at all: error %v, want one that names RLIMIT_NOFILE", err)
	}
}

func TestTallyScalesEachInterval(t *testing.T) {
	tests := []struct {
		name     string
		readings [][3]uint64 // raw, enabled, running
		want     float64
	}{
		{"always on", [][3]uint64{{100, 10, 10}, {300, 30, 30}}, 300},
		{"half of the time", [][3]uint64{{100, 10, 5}}, 200},
		{"only the second interval is multiplexed", [][3]uint64{{100, 10, 10}, {200, 30, 20}}, 300},
		{
			"an interval without the counter is covered by the next",
			[][3]uint64{{100, 10, 10}, {100, 20, 10}, {200, 30, 20}},
			300,
		},
		{"never on a counter", [][3]uint64{{0, 10, 0}}, 0},
		{"going back is not taken", [][3]uint64{{100, 10, 10}, {90, 20, 20}}, 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var sum tally
			for _, r := range tt.readings {
				sum.add(r[0], r[1], r[2])
			}
			if sum.value != tt.want {
				t.Errorf("value = %v, want %v", sum.value, tt.want)
			}
		})
	}
}

func TestRatioOfOneGroupOnly(t *testing.T) {
	count := func(e Event, group Group, v float64, running uint64) Count {
		c := Count{Event: e, Group: group, Value: v, Enabled: 100, Running: running, Status: Counted}
		if running == 0 {
			c.Status = NotCounted
		}
		return c
	}
	earlier := []Count{
		{Event: Cycles, Group: "cache", Value: 100, Enabled: 50, Running: 20, Status: Counted},
		{Event: Instructions, Group: "cache", Value: 200, Enabled: 50, Running: 20, Status: Counted},
	}
	later := []Count{
		count(Cycles, "core", 400, 50), count(Instructions, "core", 800, 0),
		count(Cycles, "cache", 500, 60), count(Instructions, "cache", 300, 60),
	}
	got, ok := ratioOf(earlier, later, Instructions, Cycles)
	want := ratio{Numerator: 100, Denominator: 400, Group: "cache", RunningShare: 0.8}
	if diff := cmp.Diff(want, got); diff != "" || !ok || got.value() != 0.25 {
		t.Errorf("ratio (-want +got), ok %v:\n%s", ok, diff)
	}
	if _, ok := ratioOf(later, later, Instructions, Cycles); ok {
		t.Error("a ratio of an interval in which nothing ran")
	}
	if _, ok := ratioOf(nil, later, BranchMisses, Cycles); ok {
		t.Error("a ratio of an event that is not there")
	}
}

func TestExplain(t *testing.T) {
	tests := []struct {
		err    error
		status Status
		says   string
	}{
		{unix.ENOENT, NotSupported, "virtual machine"},
		{unix.EOPNOTSUPP, NotSupported, "no such counter"},
		{unix.ENODEV, NotSupported, "no such counter"},
		{unix.ENOSYS, NotSupported, "CONFIG_PERF_EVENTS"},
		{unix.EINVAL, NotSupported, "group"},
		{unix.EACCES, Denied, "perf_event_paranoid"},
		{unix.EPERM, Denied, "seccomp"},
		{unix.EBUSY, NotCounted, "busy"},
	}
	for _, tt := range tests {
		status, reason := explain(tt.err)
		if status != tt.status || !strings.Contains(reason, tt.says) {
			t.Errorf("explain(%v) = %v, %q; want %v with %q", tt.err, status, reason, tt.status, tt.says)
		}
	}
}

func FuzzParseStart(f *testing.F) {
	f.Add([]byte("7 (a) b) c) S 1 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"))
	f.Add([]byte(")"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, stat []byte) {
		if _, err := parseStart(stat); err == nil && !strings.Contains(string(stat), ")") {
			t.Errorf("a start time in %q", stat)
		}
	})
}

func TestParseStart(t *testing.T) {
	got, err := parseStart([]byte("7 (a) b) c) S 1 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"))
	if err != nil || got != 4711 {
		t.Errorf("parseStart = %d, %v; want 4711", got, err)
	}
}

// BenchmarkRead is one reading of a process with 500 idle threads and a few running ones, by whole groups and event by
// event. ns/op is the cost of a sample.
func BenchmarkRead(b *testing.B) {
	testenv.Need(b, testenv.Root)
	stop := make(chan struct{})
	defer close(stop)
	for range 500 {
		ready := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(ready)
			<-stop
		}()
		<-ready
	}
	for _, wholeGroups := range []bool{true, false} {
		name := map[bool]string{true: "groups", false: "events"}[wholeGroups]
		b.Run(name, func(b *testing.B) {
			p := makePlan(groups(taskClock(), nil))
			p.groupRead = wholeGroups && p.groupRead
			start := time.Now()
			s, err := openPlanned(os.Getpid(), p, func() ([]int, error) { return threads(os.Getpid()) })
			if err != nil {
				b.Fatal(err)
			}
			opened := time.Since(start)
			var counts []Count
			for b.Loop() {
				if counts, err = s.Read(counts[:0]); err != nil {
					b.Fatal(err)
				}
			}
			start = time.Now()
			files := s.Files()
			s.Close()
			b.ReportMetric(float64(files), "files")
			b.ReportMetric(float64(opened.Milliseconds()), "open-ms")
			b.ReportMetric(float64(time.Since(start).Milliseconds()), "close-ms")
		})
	}
}

// TestMissingEventTakesNoOther plans groups with an event that no kernel has first, in the middle and alone. The others
// must be counted, and each count must come out under its own name.
func TestMissingEventTakesNoOther(t *testing.T) {
	testenv.Need(t, testenv.Root)
	missing := kind{event: "missing", typ: unix.PERF_TYPE_SOFTWARE, config: 1 << 20}
	software := groups(taskClock(), nil)[0].kinds
	clock, faults := software[0], software[3]
	wanted := []group{
		{"first", []kind{missing, clock, faults}},
		{"amid", []kind{faults, missing, clock}},
		{"alone", []kind{missing}},
	}
	for _, wholeGroups := range []bool{true, false} {
		p := makePlan(wanted)
		p.groupRead = wholeGroups && p.groupRead
		checkMissing(t, p)
	}
}

func checkMissing(t *testing.T, p plan) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, err := openPlanned(os.Getpid(), p, func() ([]int, error) { return []int{unix.Gettid()}, nil })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	touch(t, 499)
	counts := read(t, s)
	want := []Event{"missing", TaskClock, MinorFaults, MinorFaults, "missing", TaskClock, "missing"}
	for i, c := range counts {
		low := map[Event]float64{TaskClock: 10_000, MinorFaults: 499}[c.Event] // 499 faults take more than 10 µs
		high := map[Event]float64{TaskClock: 1e9, MinorFaults: 499 + 60}[c.Event]
		status := Counted
		if c.Event == "missing" {
			status = NotSupported
		}
		if c.Event != want[i] || c.Status != status || c.Value < low || c.Value > high {
			t.Errorf("%d: %+v, want %s %s from %v to %v", i, c, want[i], status, low, high)
		}
	}
	if len(counts) != len(want) || s.Files() != 4 {
		t.Errorf("%d counts, %d files; want %d, 4", len(counts), s.Files(), len(want))
	}
}

// BenchmarkSwitch passes a byte to and fro between two threads, two switches each way round: the cost to a target.
func BenchmarkSwitch(b *testing.B) {
	testenv.Need(b, testenv.Root)
	for _, counted := range []bool{false, true} {
		b.Run(map[bool]string{false: "alone", true: "counted"}[counted], func(b *testing.B) {
			if counted {
				s, err := OpenProcess(os.Getpid())
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
			}
			pingPong(b)
		})
	}
}

func pingPong(b *testing.B) {
	var to, from [2]int
	for _, p := range []*[2]int{&to, &from} {
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			b.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(done)
		_ = pass(to[0], from[1]) // ends when the writing end is closed
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	buf := []byte{1}
	for b.Loop() {
		if _, err := unix.Write(to[1], buf); err != nil {
			b.Fatal(err)
		}
		if _, err := unix.Read(from[0], buf); err != nil {
			b.Fatal(err)
		}
	}
	closeFiles([]int{to[1]})
	<-done
	closeFiles([]int{to[0], from[0], from[1]})
}

func pass(in, out int) error {
	buf := []byte{0}
	for {
		n, err := unix.Read(in, buf)
		if n == 0 || err != nil {
			return err
		}
		if _, err := unix.Write(out, buf); err != nil {
			return err
		}
	}
}

// cgroup makes a control group of v2, and returns its directory and that of the group in which this process is.
func cgroup(t *testing.T) (made, own string) {
	t.Helper()
	testenv.Need(t, testenv.Root)
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	i := strings.Index("\n"+string(b), "\n0::")
	if i < 0 {
		t.Skip("this kernel has no unified hierarchy")
	}
	line, _, _ := strings.Cut(string(b[i:]), "\n")
	root := t.TempDir()
	if err := unix.Mount("none", root, "cgroup2", 0, ""); err != nil {
		t.Skipf("mount cgroup2: %v", err)
	}
	own = filepath.Join(root, strings.TrimPrefix(line, "0::"))
	made = filepath.Join(own, fmt.Sprintf("perfdoctor-test-%d", os.Getpid()))
	if err := os.Mkdir(made, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		move(t, own)
		if err := errors.Join(os.Remove(made), unix.Unmount(root, 0)); err != nil {
			t.Error(err)
		}
	})
	return made, own
}

// groupValue is 0 as long as nothing has run in the group.
func groupValue(t *testing.T, s *Set, event Event) float64 {
	t.Helper()
	c, ok := find(read(t, s), event)
	if !ok || c.Status != Counted && (c.Status != NotCounted || strings.HasPrefix(c.Reason, "perf_event_open")) {
		t.Fatalf("%s: %+v, found %v", event, c, ok)
	}
	return c.Value
}

// move takes this process into a control group.
func move(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		t.Fatal(err)
	}
}

// onlineCPUs lists the CPUs. Those of a test are numbered without a gap.
func onlineCPUs(t *testing.T) (cpus []int) {
	t.Helper()
	for cpu := range runtime.NumCPU() {
		cpus = append(cpus, cpu)
	}
	return cpus
}

// TestGroupFaults counts page faults of a prime number while the process is in the group, and none when it is not.
func TestGroupFaults(t *testing.T) {
	enter, leave := cgroup(t)
	s, err := openCgroup(enter, onlineCPUs(t), groups(cpuClock(), []Group{Software}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	faults := func() float64 { return groupValue(t, s, MinorFaults) }
	before := faults()
	touch(t, 499)
	if grown := faults() - before; grown != 0 {
		t.Errorf("%v faults of a process that is not in the group", grown)
	}
	move(t, enter)
	before = faults()
	touch(t, 1009)
	grown := faults() - before
	move(t, leave)
	if grown < 1009 || grown > 1009+60 { // the runtime's own pages come on top
		t.Errorf("%v faults, want 1009 and a few", grown)
	}
	before = faults()
	touch(t, 499)
	if grown := faults() - before; grown != 0 {
		t.Errorf("%v faults of a process that has left the group", grown)
	}
	if _, err := OpenCgroup(filepath.Join(enter, "none"), onlineCPUs(t)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a group that is not there: %v", err)
	}
}
