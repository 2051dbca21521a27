package ebpf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/lab/vm/guest"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

const cpuProfileName = "bpf-cpu-profile"

// A program is a child that says "ready", and ends with its standard input.
type program struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

func start(t testing.TB, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(args[0], args[1:]...)}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out, p.cmd.Stderr = in, bufio.NewReader(out), os.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // only after an error: else it has ended
	if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%s said %q, %v", args[0], line, err)
	}
	return p
}

// end gives what else the program said.
func (p *program) end() string {
	p.t.Helper()
	if err := p.in.Close(); err != nil {
		p.t.Fatal(err)
	}
	text, err := io.ReadAll(p.out)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// profiled returns the profile of a while in which the process gets this much CPU time, as the kernel counts it, and
// the CPU time that it got.
func (p *program) profiled(d time.Duration) (own *stacks.Profile, used time.Duration) {
	p.t.Helper()
	return p.profiledBy(d, func() time.Duration { return cpuTime(p.t, p.cmd.Process.Pid) })
}

// profiledBy returns the profile of a while that is this long by a clock, with the CPU time that the process got in it.
func (p *program) profiledBy(d time.Duration, clock func() time.Duration) (own *stacks.Profile, used time.Duration) {
	p.t.Helper()
	const most = 10 // times as long, if others take the CPUs
	env := targetOf(p.t, p.cmd.Process.Pid)
	env.Duration = most * d
	o := openNamed(p.t, cpuProfileName, env)
	before, began, end := cpuTime(p.t, p.cmd.Process.Pid), clock(), time.Now().Add(env.Duration)
	for clock()-began < d && time.Now().Before(end) {
		time.Sleep(20 * time.Millisecond)
	}
	used = cpuTime(p.t, p.cmd.Process.Pid) - before
	all, ok := o.done().Profile(stacks.HostCPU)
	if !ok {
		p.t.Fatal("no profile")
	}
	own = all.Filter(func(s stacks.Sample) bool { return all.ThreadOf(s).ID == p.cmd.Process.Pid })
	return own, used
}

// cpuTime is the second source: the scheduler's sum over a process's threads, to the nanosecond.
func cpuTime(t testing.TB, pid int) (sum time.Duration) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("no threads of %d: %v", pid, err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // a compiler's thread of a JVM has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		var ns int64
		if _, err := fmt.Sscan(string(b), &ns); err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	return sum
}

// threadTime is the CPU time of this thread at the moment.
func threadTime(t testing.TB) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

func named(suffixes ...string) func(stacks.Frame) bool {
	return func(f stacks.Frame) bool {
		for _, s := range suffixes {
			if f.Name == s || strings.HasSuffix(f.Name, "."+s) || strings.HasSuffix(f.Name, "/"+s) {
				return true
			}
		}
		return false
	}
}

// share is how much of the profile has a frame.
func share(p *stacks.Profile, name string) float64 {
	return float64(p.Inclusive(p.Set(named(name))).Value) / float64(p.Total().Value)
}

// checkSum compares the samples with the CPU time. Each CPU's clock and the scheduler's share nothing.
func checkSum(t *testing.T, p *stacks.Profile, used time.Duration) {
	t.Helper()
	sampled := time.Duration(p.Total().Value)
	t.Logf("%d samples stand for %v, the kernel counted %v", p.Total().Count, sampled, used)
	// A program that keeps a CPU busy is sampled at each tick. For one that shares a CPU it is a matter of chance, 3
	// sigma of n samples. An emulated guest that waits for its host misses ticks, while its scheduler's clock goes on:
	// a third of them on a busy machine.
	tolerance := 0.05 + 3/math.Sqrt(float64(p.Total().Count))
	off := sampled.Seconds()/used.Seconds() - 1
	if off > tolerance || off < -tolerance && !guest.Inside() {
		t.Errorf("sampled %v of %v, more than %.0f %% off", sampled, used, 100*tolerance)
	}
}

// TestWhatRepeats has a program that alternates between two functions with the period of the sampling clock. A clock
// that kept its period would find it in only one of them.
func TestWhatRepeats(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	env := targetOf(t, os.Getpid())
	env.Duration = 6 * time.Second
	o := openNamed(t, cpuProfileName, env)
	var first, second time.Duration
	for began := time.Now(); time.Since(began) < env.Duration; {
		from := threadTime(t)
		firstHalf(began)
		middle := threadTime(t)
		secondHalf(began)
		first, second = first+middle-from, second+threadTime(t)-middle
	}
	all, ok := o.done().Profile(stacks.HostCPU)
	if !ok {
		t.Fatal("no profile")
	}
	own := all.Filter(func(s stacks.Sample) bool { return all.ThreadOf(s).ID == os.Getpid() })
	inFirst := float64(own.Inclusive(own.Set(named("ebpf.firstHalf"))).Value)
	inSecond := float64(own.Inclusive(own.Set(named("ebpf.secondHalf"))).Value)
	got, want := inFirst/(inFirst+inSecond), first.Seconds()/(first+second).Seconds()
	t.Logf("%.2f of the samples in one half, %.2f of the CPU time", got, want)
	// In 24 stretches of one period each, the samples wander through at most 2.5 of the program's periods: 0.06 is a
	// standard deviation.
	if math.Abs(got-want) > 0.3 {
		t.Errorf("%.2f of the samples in one half of what repeats every %v, want %.2f ± 0.3", got, meanPeriod, want)
	}
}

//go:noinline
func firstHalf(began time.Time) {
	for time.Since(began)%meanPeriod < meanPeriod/2 {
		continue
	}
}

//go:noinline
func secondHalf(began time.Time) {
	for time.Since(began)%meanPeriod >= meanPeriod/2 {
		continue
	}
}

// checkShare expects the share that another source gives, within three standard deviations.
func checkShare(t *testing.T, p *stacks.Profile, name string, want float64) {
	t.Helper()
	got, n := share(p, name), float64(p.Total().Count)
	tolerance := 0.02 + 3*math.Sqrt(want*(1-want)/n)
	t.Logf("%s has %.3f of %.0f samples, want %.3f ± %.3f", name, got, n, want, tolerance)
	if math.Abs(got-want) > tolerance {
		t.Errorf("%s has %.3f, want %.3f ± %.3f", name, got, want, tolerance)
	}
}

// TestSharesOfC: a program that knows how long each of two functions ran.
func TestSharesOfC(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF, testenv.Tool("gcc"))
	bin := filepath.Join(t.TempDir(), "shares")
	if out, err := exec.Command("gcc", "-O1", "-fno-omit-frame-pointer", "-o", bin,
		"testdata/c/shares.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := start(t, bin)
	own, used := p.profiled(2 * time.Second)
	var a, b float64
	if _, err := fmt.Sscan(p.end(), &a, &b); err != nil {
		t.Fatal(err)
	}
	checkSum(t, own, used)
	checkShare(t, own, "seventy", a/(a+b))
	checkShare(t, own, "thirty", b/(a+b))
}

// TestSharesOfGo: a stripped Go program, beside its own profiler.
func TestSharesOfGo(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF)
	dir := t.TempDir()
	bin, out := filepath.Join(dir, "shares"), filepath.Join(dir, "cpu.pprof")
	if text, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", bin, "./testdata/go").
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	p := start(t, bin, out)
	own, used := p.profiled(2 * time.Second)
	p.end()
	checkSum(t, own, used)
	want := goShare(t, out, "main.seventy")
	checkShare(t, own, "seventy", want)
	if want < 0.6 || want > 0.8 {
		t.Errorf("Go's profiler saw %.2f of it", want)
	}
}

// goShare is what Go's profiler saw of a function.
func goShare(t *testing.T, file, name string) float64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	var of, all float64
	for _, s := range p.Sample {
		all += float64(s.Value[1])
		for _, l := range s.Location {
			if l.Line[0].Function.Name == name {
				of += float64(s.Value[1])
				break
			}
		}
	}
	return of / all
}

// TestJVM: kernel and Java are in one stack, with names. Without frame pointers, only a part of it is left.
func TestJVM(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.BPF, testenv.Java, testenv.Tool("javac"))
	dir := t.TempDir()
	if out, err := exec.Command("javac", "-d", dir, "testdata/java/Mixed.java").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, tc := range []struct {
		flag  string
		whole bool
	}{{"-XX:+PreserveFramePointer", true}, {"-XX:-PreserveFramePointer", false}} {
		t.Run(tc.flag, func(t *testing.T) {
			t.Parallel()
			// Which of two methods is compiled first decides whether it inlines the other, which then has no frame of
			// its own. On a busy machine Mixed.kernel was inlined into Mixed.work.
			p := start(t, "java", "-Xmx64m", tc.flag, "-XX:CompileCommand=quiet",
				"-XX:CompileCommand=dontinline,Mixed.kernel", "-cp", dir, "Mixed")
			// Until it is compiled, however little of the CPUs it gets.
			for deadline := time.Now().Add(30 * time.Second); cpuTime(t, p.cmd.Process.Pid) < 2*time.Second; {
				if time.Now().After(deadline) {
					t.Fatal("the JVM gets no CPU time")
				}
				time.Sleep(50 * time.Millisecond)
			}
			own, used := p.profiled(3 * time.Second)
			p.end()
			checkSum(t, own, used)
			pic := stacks.PictureOf(own)
			t.Logf("%+v", pic)
			t.Logf("%.2f %% of %d frames have names", 100-100*float64(pic.Unnamed)/float64(max(pic.Frames, 1)),
				pic.Frames)
			if tc.whole && (pic.Frames == 0 || float64(pic.Unnamed) > 0.01*float64(pic.Frames)) {
				t.Errorf("%d of %d frames have no name, more than 1 %%", pic.Unnamed, pic.Frames)
			}
			// From main's thread to the copy in the kernel.
			mixed := own.Containing(own.Set(named("Mixed.work"))).Containing(own.Set(named("Mixed.kernel"))).
				Containing(own.Set(func(f stacks.Frame) bool {
					return f.Kind == stacks.Kernel &&
						strings.Contains(f.Name, "read_zero")
				}))
			deep := float64(pic.Shallow) / float64(max(pic.Managed, 1))
			if tc.whole && (mixed.Total().Count == 0 || deep > 0.05) {
				t.Errorf("%d samples from Java to the kernel; %.2f of the Java stacks are one frame deep",
					mixed.Total().Count, deep)
			}
			// How much of a stack is left by chance depends on the code: more for a program that recurses than for one
			// that calls libraries.
			if !tc.whole && deep < 0.1 {
				t.Errorf("%.2f of the Java stacks are one frame deep, without frame pointers", deep)
			}
		})
	}
}

// TestOwnCPU: this program computes, and has the kernel zero memory. It needs no compiler and no JVM, so it runs in
// guests too. Its two functions used what their thread used in them. The other threads of the Go runtime, which wait
// for each other by spinning, take a third of the whole in an emulated guest.
func TestOwnCPU(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	env := targetOf(t, os.Getpid())
	env.Duration = 3 * time.Second
	opened := time.Now()
	o := openNamed(t, cpuProfileName, env)
	before, began := cpuTime(t, os.Getpid()), time.Now()
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zeros.Close()
	var inCode, inKernel time.Duration
	for time.Since(began) < env.Duration {
		from := threadTime(t)
		compute()
		middle := threadTime(t)
		readZeros(t, zeros)
		inCode, inKernel = inCode+middle-from, inKernel+threadTime(t)-middle
	}
	used, worked := cpuTime(t, os.Getpid())-before, time.Since(began)
	rec := o.done()
	all, ok := rec.Profile(stacks.HostCPU)
	if !ok {
		t.Fatal("no profile")
	}
	own := all.Filter(func(s stacks.Sample) bool { return all.ThreadOf(s).ID == os.Getpid() })
	checkSum(t, own, used)
	checkShare(t, own, "ebpf.compute", inCode.Seconds()/used.Seconds())
	checkShare(t, own, "ebpf.readZeros", inKernel.Seconds()/used.Seconds())
	checkTimes(t, own, worked, time.Since(opened))
	// From Go's function to the system call, in one stack.
	entered := own.Containing(own.Set(named("ebpf.readZeros"))).Containing(own.Set(func(f stacks.Frame) bool {
		return f.Kind == stacks.Kernel && strings.HasSuffix(f.Name, "sys_read")
	}))
	if got := share(own, "ebpf.readZeros"); float64(entered.Total().Value) < 0.8*got*float64(own.Total().Value) {
		t.Errorf("%v of the samples of readZeros have the system call", entered.Total())
	}
}

// checkTimes expects samples in each time bucket in which the program worked all the time, and none after the profile's
// end.
func checkTimes(t *testing.T, p *stacks.Profile, worked, end time.Duration) {
	t.Helper()
	seen := map[time.Duration]int64{}
	for _, s := range p.Samples {
		seen[s.At] += s.Count
	}
	t.Logf("samples by the beginning of their time bucket: %v", seen)
	for at := time.Duration(0); at+p.Bucket <= worked; at += p.Bucket {
		if seen[at] == 0 {
			t.Errorf("no sample from %v on for %v, of %v of work", at, p.Bucket, worked)
		}
	}
	for at := range seen {
		if at%time.Second != 0 || at > end {
			t.Errorf("%d samples from %v on, in a profile that ended after %v", seen[at], at, end)
		}
	}
	if p.Bucket != time.Second {
		t.Errorf("buckets of %v", p.Bucket)
	}
}

var sink uint64

//go:noinline
func compute() {
	for i := range uint64(20_000_000) {
		sink = sink*6364136223846793005 + i
	}
}

//go:noinline
func readZeros(t *testing.T, zeros *os.File) {
	var buf [1 << 20]byte
	for range 200 {
		if _, err := zeros.Read(buf[:]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWholeHost: a host has no target, and its idle task has no samples.
func TestWholeHost(t *testing.T) {
	o := openNamed(t, cpuProfileName, collect.Env{
		Host: host.Local(), Target: host.Target{Kind: host.KindHost},
		Duration: time.Second,
	})
	time.Sleep(measuredFor / 2) // within the meter's first interval runs are counted, later they are estimated
	rec := o.done()
	p, ok := rec.Profile(stacks.HostCPU)
	if !ok {
		t.Fatal("no profile")
	}
	for _, s := range p.Samples {
		if th := p.ThreadOf(s); th.ID == 0 {
			t.Errorf("a sample of %+v", th)
		}
	}
	if runs := total(rec, metric.BPFRuns); int64(runs) != p.Total().Count {
		t.Errorf("%v runs, %d samples", runs, p.Total().Count)
	}
}

// TestTables: each sample has an entry for the kernel's stack and one for the program's, between the bounds. Time
// buckets can be told apart, and they fit.
func TestTables(t *testing.T) {
	for _, tc := range []struct {
		cpus   int
		window time.Duration
		want   uint32
		bucket time.Duration
	}{
		{1, time.Second, 1024, time.Second},
		{2, 10 * time.Second, 4096, time.Second},
		{2, 5 * time.Minute, 65536, 5 * time.Second},
		{64, 10 * time.Second, 65536, time.Second},
		{64, time.Minute, 65536, 15 * time.Second},
		{1, 0, 1024, time.Second},
		{2, 90 * time.Second, 65536, 2 * time.Second},
	} {
		if got := tableSize(tc.cpus, tc.window, maxSampleTable); got != tc.want {
			t.Errorf("%d CPUs for %v: %d entries, want %d", tc.cpus, tc.window, got, tc.want)
		}
		if got := bucketFor(tc.cpus, tc.window); got != tc.bucket {
			t.Errorf("%d CPUs for %v: buckets of %v, want %v", tc.cpus, tc.window, got, tc.bucket)
		}
	}
}
