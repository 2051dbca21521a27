package ebpf

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
	"github.com/perfdoctor/perfdoctor/internal/lab/vm/guest"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

const schedulerName = "bpf-scheduler"

func targetOf(t testing.TB, pid int) collect.Env {
	t.Helper()
	target, err := host.Local().Resolve(t.Context(), host.Selector{PID: pid})
	if err != nil {
		t.Fatal(err)
	}
	return collect.Env{Host: host.Local(), Target: target, Deep: true}
}

// gauges adds up a gauge's last values.
func gauges(rec *recording.Recording, g *metric.Gauge) float64 {
	n := 0.0
	for _, s := range rec.Gauge(g) {
		n += s.Last()
	}
	return n
}

// TestSleeps: a thread sleeps a prime number of times. The profile has exactly that many, with the stack of the sleep.
func TestSleeps(t *testing.T) {
	const n, each = 211, 2 * time.Millisecond
	o := openNamed(t, schedulerName, targetOf(t, os.Getpid()))
	done := make(chan struct{})
	var tid int
	var preempted uint64
	var took time.Duration
	naps := 0
	go func() {
		defer close(done)
		runtime.LockOSThread() // and is not unlocked: the thread ends here, and nobody else sleeps on it
		tid = unix.Gettid()
		before, began := preemptions(t, tid), time.Now()
		for range n {
			naps += napFor(each)
		}
		took = time.Since(began)
		preempted = preemptions(t, tid) - before
	}()
	<-done
	const after = time.Second // its end, after which it waits for nothing
	time.Sleep(after)
	rec := o.done()
	p, ok := rec.Profile(stacks.OffCPU)
	if !ok {
		t.Fatal("no profile")
	}
	all := p.Filter(func(s stacks.Sample) bool { return p.ThreadOf(s).ID == tid })
	if got := time.Duration(all.Total().Value); got > took+after/2 {
		t.Errorf("it waited %v, and lived for %v", got, took)
	}
	slept := all.
		Containing(p.Set(func(f stacks.Frame) bool {
			return f.Kind == stacks.Kernel &&
				strings.Contains(f.Name, "nanosleep")
		})).
		Containing(
			p.Set(func(f stacks.Frame) bool { return f.Kind == stacks.Native && strings.HasSuffix(f.Name, ".napFor") }))
	// A thread may lose its CPU while it sets its timer and find it expired when it runs again. Then it does not sleep
	// (do_nanosleep in kernel/time/hrtimer.c). The kernel counts where it was preempted, but not what a hypervisor
	// took. Hence two in a hundred.
	got, most := slept.Total().Count, int64(naps)
	t.Logf("%d of %d naps slept, preempted %d times", got, naps, preempted)
	if least := most - int64(preempted) - most/50; got > most || got < least {
		t.Errorf("%d sleeps in the profile, want %d, and %d at least", got, most, least)
	}
	if got := time.Duration(slept.Total().Value); got < n*each-time.Duration(preempted)*each || got > took {
		t.Errorf("slept %v in all, want %v or more, of %v", got, n*each, took)
	}
}

// TestManyStacks: a thread sleeps once at each of a thousand stacks. No stack is lost to another one, as one in twenty
// was in the kernel's own map of stacks.
func TestManyStacks(t *testing.T) {
	const n, turns, each = 1009, 10, 2 * time.Millisecond // far from 640 waits a second, above which they are sampled
	o := openNamed(t, schedulerName, targetOf(t, os.Getpid()))
	var preempted uint64
	tid, done := onThread(func() {
		self := unix.Gettid()
		before := preemptions(t, self)
		for way := range n {
			napAt(way, turns, each)
		}
		preempted = preemptions(t, self) - before
	})
	<-done
	rec := o.done()
	p, ok := rec.Profile(stacks.OffCPU)
	if !ok {
		t.Fatal("no profile")
	}
	slept := p.Filter(func(s stacks.Sample) bool { return p.ThreadOf(s).ID == tid }).
		Containing(p.Set(func(f stacks.Frame) bool {
			return f.Kind == stacks.Kernel &&
				strings.Contains(f.Name, "nanosleep")
		}))
	ways := map[string]bool{}
	for _, s := range slept.Samples {
		switch way := wayOf(slept, s); {
		case len(way) == turns:
			ways[way] = true
		case way != "": // a page of the stack that the host has taken back has none: a way less, below
			t.Errorf("%d sleeps have the way %q, want one of %d turns", s.Count, way, turns)
		}
	}
	t.Logf("%d ways of %d, preempted %d times", len(ways), n, preempted)
	if least := n - int(preempted) - n/50; len(ways) > n || len(ways) < least { // see TestSleeps
		t.Errorf("%d ways, want %d, and %d at least", len(ways), n, least)
	}
}

// wayOf returns the turns of napAt that a stack has, the last first.
func wayOf(p *stacks.Profile, s stacks.Sample) (way string) {
	for _, i := range s.Stack {
		switch name := p.Frames[i].Name; {
		case strings.HasSuffix(name, ".napLeft"):
			way += "l"
		case strings.HasSuffix(name, ".napRight"):
			way += "r"
		}
	}
	return way
}

// napAt sleeps below so many turns, left or right by the bits of way.
//
//go:noinline
func napAt(way, turns int, d time.Duration) {
	switch {
	case turns == 0:
		napFor(d)
	case way&1 == 0:
		napLeft(way>>1, turns-1, d)
	default:
		napRight(way>>1, turns-1, d)
	}
}

//go:noinline
func napLeft(way, turns int, d time.Duration) { napAt(way, turns, d) }

//go:noinline
func napRight(way, turns int, d time.Duration) { napAt(way, turns, d) }

// napFor gives how often it slept: Go's runtime interrupts threads.
//
//go:noinline
func napFor(d time.Duration) (naps int) {
	ts := unix.NsecToTimespec(int64(d))
	for naps = 1; unix.Nanosleep(&ts, &ts) == unix.EINTR; naps++ {
	}
	return naps
}

// preemptions is the second source: the kernel's count of a thread's involuntary switches.
func preemptions(t *testing.T, tid int) uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", tid))
	if err != nil {
		t.Error(err)
		return 0
	}
	st, err := host.ParseStatus(b)
	if err != nil {
		t.Error(err)
	}
	return st.InvoluntarySwitch
}

// TestThrottled: time without quota is told apart from time without a CPU, and agrees with the cgroup's own counter.
func TestThrottled(t *testing.T) {
	l := labtest.New(t)
	h, err := l.Host("a")
	if err != nil {
		t.Fatal(err)
	}
	group, err := l.Cgroup("pod", "app")
	if err != nil {
		t.Fatal(err)
	}
	if err := group.SetQuota(50*time.Millisecond, 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	child, err := h.StartChild(group, lab.ChildOptions{
		Mode: lab.ModeSpin, Duration: 10 * time.Minute,
		Spin: lab.SpinOptions{Threads: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := openNamed(t, schedulerName, targetOf(t, child.Pid))
	before, err := group.Throttling()
	if err != nil {
		t.Fatal(err)
	}
	delay := runDelay(t, child.Pid)
	time.Sleep(1500 * time.Millisecond)
	after, err := group.Throttling()
	if err != nil {
		t.Fatal(err)
	}
	delay = runDelay(t, child.Pid) - delay
	rec := o.done()
	if _, err := child.Stop(); err != nil {
		t.Fatal(err)
	}
	throttled, waited := gauges(rec, metric.ThreadThrottledTime), gauges(rec, metric.ThreadCPUWait)
	stopped := (after.Time - before.Time).Seconds()
	t.Logf("throttled %.3f s, cgroup %.3f s; waited for a CPU %.3f s; schedstat's run delay, which has both, %.3f s",
		throttled, stopped,
		waited, delay.Seconds())
	// Per thread; the child has a few threads that hardly run. The cgroup's counter is per CPU.
	if throttled < 0.7*stopped || throttled > 3*stopped+0.1 {
		t.Errorf("throttled %.3f s, the cgroup says %.3f s", throttled, stopped)
	}
	if sum := throttled + waited; sum < 0.85*delay.Seconds() || sum > 1.15*delay.Seconds()+0.1 {
		t.Errorf("throttled and waited %.3f s, schedstat has %.3f s", sum, delay.Seconds())
	}
}

// runDelay is the second source of waits: the run delay of all threads of a process, throttling included.
func runDelay(t *testing.T, pid int) time.Duration {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
		sum += delayOf(t, tid)
	}
	return sum
}

// delayOf is the run delay of one thread, which may end.
func delayOf(t *testing.T, tid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", tid))
	if err != nil {
		t.Error(err)
		return 0
	}
	ns, err := strconv.ParseInt(string(bytes.Fields(b)[1]), 10, 64)
	if err != nil {
		t.Error(err)
	}
	return time.Duration(ns)
}

// waitsNow is the sum of all waits until now.
func waitsNow(t *testing.T, o *opened) (sum time.Duration) {
	t.Helper()
	err := readHash(o.src.(*scheduler).set.collection.Maps[bpf.SchedulerMapThreads],
		func(_ uint32, th *bpf.SchedulerThread) {
			sum += time.Duration(th.WaitNs)
		})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// waitsAgree reads how long the target's threads waited for a CPU in a window, and schedstat's count of the same. The
// programs run before open returns, and what they counted by then is not in the second source. This thread waits for a
// CPU as well, even between its readings of the two sources. So the second is read before and after the first.
//
// The scheduler's clock and the programs' diverge in an emulated guest whose host is busy. On Linux 6.1 schedstat had
// 3.4, 40 and 14 s and the programs had 6.6, 35 and 25 s, in windows in which the guest stood still for seconds. By the
// programs' own clock, CLOCK_MONOTONIC, threads that always want a CPU wait whenever they have none.
func waitsAgree(t *testing.T, o *opened, pid, threads int) (waited time.Duration, agree bool) {
	t.Helper()
	before := [2]time.Duration{runDelay(t, pid)}
	began := time.Now()
	waited = -waitsNow(t, o)
	before[1] = runDelay(t, pid)
	time.Sleep(time.Second)
	after := [2]time.Duration{runDelay(t, pid)}
	window := time.Since(began)
	waited += waitsNow(t, o)
	after[1] = runDelay(t, pid)
	least, most := after[0]-before[1], after[1]-before[0]
	t.Logf("waited %.3f s in %.3f s, schedstat %.3f s to %.3f s", waited.Seconds(), window.Seconds(), least.Seconds(),
		most.Seconds())
	within := func(least, most time.Duration) bool {
		return waited > 0 && waited >= least*9/10 && waited <= most*11/10+100*time.Millisecond
	}
	if guest.Inside() && within(window*time.Duration(threads-runtime.NumCPU()), window*time.Duration(threads)) {
		return waited, true
	}
	return waited, within(least, most)
}

// TestCPUWaits: threads that outnumber the CPUs wait for one, and schedstat agrees on how long. The clock of an
// emulated guest may jump in one window if its host is busy. A wrong count is wrong in each window.
func TestCPUWaits(t *testing.T) {
	h, threads := newHost(t), 2*runtime.NumCPU()+1
	child, err := h.StartChild(nil, lab.ChildOptions{
		Mode: lab.ModeSpin, Duration: 10 * time.Minute, Spin: lab.SpinOptions{Threads: threads},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := openNamed(t, schedulerName, targetOf(t, child.Pid))
	var all time.Duration
	agree := false
	for windows := 0; windows < 3 && !agree; windows++ {
		var waited time.Duration
		waited, agree = waitsAgree(t, o, child.Pid, threads)
		all += waited
	}
	rec := o.done()
	if _, err := child.Stop(); err != nil {
		t.Fatal(err)
	}
	if !agree {
		t.Error("schedstat has other waits in each window")
	}
	// In whole nanoseconds: if nothing waited outside the windows, both are one sum, and the sum of the threads'
	// seconds is rounded.
	if recorded := time.Duration(math.Round(gauges(rec, metric.ThreadCPUWait) * 1e9)); recorded < all {
		t.Errorf("%v are recorded, %v were waited", recorded, all)
	}
	if waits, buckets := gauges(rec, metric.ThreadCPUWaits), gauges(rec, metric.CPUWaitDurations); waits == 0 ||
		waits != buckets {
		t.Errorf("%v waits, %v by their length", waits, buckets)
	}
	if n := gauges(rec, metric.ThreadThrottledTime); n != 0 {
		t.Errorf("throttled %v s without a quota", n)
	}
}
