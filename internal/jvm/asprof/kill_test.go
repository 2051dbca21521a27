package asprof

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/jvm/asprof/library"
)

// pidVar makes the test program profile the JVM with this pid, for a short time again and again, instead of running
// tests. The test kills this program.
const pidVar = "PERFDOCTOR_TEST_PROFILE"

const killedTimeout = 2 * time.Second

func profileForever(pid string) error {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	lib, err := library.Bundled()
	if err != nil {
		return err
	}
	o := Options{
		Library: lib, Events: DefaultEvents(), CPU: DefaultCPU, Wall: DefaultWall, Alloc: DefaultAlloc,
		Lock:    DefaultLock,
		Timeout: killedTimeout,
	}
	for {
		vm, err := jvm.Inspect(n)
		if err != nil {
			return err
		}
		s, err := Start(context.Background(), vm, o)
		if err != nil {
			return err
		}
		fmt.Println("started")
		time.Sleep(300 * time.Millisecond)
		f, err := s.Stop(context.Background())
		if err != nil {
			return err
		}
		f.Close()
		fmt.Println("stopped")
	}
}

// profilerRuns tells whether async-profiler runs in the process. With a JFR recording it has a timer thread,
// "Async-profiler Timer", whose name the kernel truncates.
func profilerRuns(t testing.TB, pid int) bool {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	must(t, err)
	for _, name := range names {
		if comm, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(comm), "Async-profiler") {
			return true
		}
	}
	return false
}

// awaitStop waits until the profiler does not run.
func awaitStop(t testing.TB, pid int, within time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(within); profilerRuns(t, pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the profiler still runs after %v", within)
		}
	}
}

// TestKilled kills perfdoctor's part at random moments of a session. The JVM lives and answers, its profiler ends in
// time, and the next session works and leaves nothing.
func TestKilled(t *testing.T) {
	const kills = 10 // internal/dev/e2e kills the whole program more often
	b := startJVM(t, ownTmp)
	bundled(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	left, running := 0, 0
	for i := range kills {
		// The first session loads the library, which takes up to a second; a later cycle is about 0.35 s.
		within := 400 * time.Millisecond
		if i == 0 {
			within = time.Second
		}
		killAfter(t, b.Process.Pid, time.Duration(random.Int64N(int64(within))))
		b.done(t)
		if len(leftovers(t, b.Process.Pid)) > 0 {
			left++
		}
		if !profilerRuns(t, b.Process.Pid) {
			continue
		}
		running++
		if i%4 == 0 { // the others: the next session stops the profiler
			awaitStop(t, b.Process.Pid, killedTimeout+2*time.Second) // its timer ticks once a second
		}
	}
	t.Logf("%d of %d kills left files, %d a running profiler", left, kills, running)
	if left == 0 || running == 0 {
		t.Errorf("no kill hit a session: this test proves nothing")
	}
	s, err := Start(t.Context(), b.inspect(t), defaults(t))
	must(t, err)
	time.Sleep(200 * time.Millisecond)
	f, err := s.Stop(t.Context())
	must(t, err)
	f.Close()
	if files := leftovers(t, b.Process.Pid); len(files) > 0 {
		t.Errorf("left after the next session: %v", files)
	}
	b.untouched(t)
	if got := strings.Count(b.stdout.String(), "\n"); got != kills+2 {
		t.Errorf("%d lines on the target's standard output, want %d: %q", got, kills+2, b.stdout.String())
	}
}

// TestKilledAndSwept: a diagnosis of the whole host removes the files of a killed session while its profiler still
// runs. The next session stops that profiler.
func TestKilledAndSwept(t *testing.T) {
	b := startJVM(t, ownTmp)
	bundled(t)
	for d := 300 * time.Millisecond; !profilerRuns(t, b.Process.Pid); d += 50 * time.Millisecond {
		if d > killedTimeout {
			t.Fatal("no kill left a running profiler")
		}
		killAfter(t, b.Process.Pid, d)
	}
	_, err := b.inspect(t).CleanLeftovers()
	must(t, err)
	s, err := Start(t.Context(), b.inspect(t), defaults(t))
	must(t, err)
	must(t, s.Close())
	b.untouched(t)
}

// killAfter starts the test program on the JVM and kills it a while after its first word or its start.
func killAfter(t *testing.T, pid int, d time.Duration) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), pidVar+"="+strconv.Itoa(pid))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	time.Sleep(d)
	must(t, cmd.Process.Kill())
	said, _ := io.ReadAll(out)
	cmd.Wait()
	t.Logf("killed after %v: %q", d, said)
}
