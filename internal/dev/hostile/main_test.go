// Package hostile_test attacks the built program the way a hostile or dying target would.
package hostile_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// maxMemory is the most memory, in bytes, that perfdoctor may hold at its peak whatever a target does: what the
// packaged unit grants (MemoryMax=256M).
const maxMemory = 256 << 20

// grace is how much longer than its window a run may take: for what it opens before and names, checks and prints after.
const grace = 5 * time.Second

// program is the built perfdoctor, made by TestMain, or the one that PERFDOCTOR_PROGRAM names, to see that an attack
// succeeds on the build before its fix.
var program = os.Getenv("PERFDOCTOR_PROGRAM")

// sideBySide is how many attacks wait at a time: most of a run is its window.
const sideBySide = "8"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if spec := os.Getenv(heavyEnv); spec != "" {
		if err := writeHeavy(os.Stdout, spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	testenv.DefaultSignals()
	if err := flag.Set("test.parallel", sideBySide); err != nil { // the flag itself comes later and wins
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// JVMs have other file systems mounted over /tmp and /var/tmp, and run as another user.
	dir, err := os.MkdirTemp("/run", "perfdoctor-hostile-")
	if err != nil {
		dir, err = os.MkdirTemp("", "perfdoctor-hostile-") // without root, and without JVMs
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	builds = dir
	if program != "" {
		return m.Run()
	}
	program = filepath.Join(dir, "perfdoctor")
	// As make binary has it: other flags would compile all packages anew.
	build := exec.Command("go", "build", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w",
		"-o", program, "./cmd/perfdoctor")
	build.Dir = "../../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building perfdoctor: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}

// builds is a directory for what tests build, which every user can search. TestMain makes it.
var builds string

// busyClasses builds testdata/java/Busy.java once, and gives its directory.
var busyClasses = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(builds, "classes")
	out, err := exec.Command("javac", "-d", dir, "../../../testdata/java/Busy.java").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("javac: %w: %s", err, out)
	}
	return dir, nil
})

// victimBinary builds testdata/victim.c once.
var victimBinary = sync.OnceValues(func() (string, error) {
	file := filepath.Join(builds, "victim")
	out, err := exec.Command("gcc", "-O1", "-pthread", "-o", file, "testdata/victim.c").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("gcc: %w: %s", err, out)
	}
	return file, nil
})

// outcome is the outcome of a perfdoctor run.
type outcome struct {
	stdout, stderr string
	code           int   // exit code, -1 when a signal ended it
	peak           int64 // largest resident memory, in bytes
	took           time.Duration
}

// perfdoctor runs the program with args. It fails the test if the program took more memory than maxMemory or did not
// end within window and grace.
func perfdoctor(t *testing.T, window time.Duration, args ...string) outcome {
	t.Helper()
	return disturbed(t, window, 0, nil, args...)
}

// disturbed runs perfdoctor with a fault: after a while disturb is called with the process id.
func disturbed(t *testing.T, window, after time.Duration, disturb func(pid int) error, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), window+6*grace)
	defer cancel()
	return outcomeOf(t, window, after, disturb, exec.CommandContext(ctx, program, args...))
}

// forgetPeak resets the memory peak of this test to the current value. A child begins with it: until it executes the
// program it has its parent's memory, and ru_maxrss keeps that (exec_mmap in fs/exec.c, setmax_mm_hiwater_rss).
func forgetPeak(t *testing.T) {
	t.Helper()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // proc(5): resets VmHWM
		t.Fatal(err)
	}
}

// outcomeOf runs a command that becomes perfdoctor, as disturbed does.
func outcomeOf(t *testing.T, window, after time.Duration, disturb func(pid int) error, command *exec.Cmd) outcome {
	t.Helper()
	// An unkillable program must not hang its test.
	command.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	forgetPeak(t)
	begin := time.Now()
	if err := command.Start(); err != nil {
		t.Fatalf("%q: %v", command.Args, err)
	}
	if disturb != nil {
		time.Sleep(after)
		if err := disturb(command.Process.Pid); err != nil {
			t.Errorf("%q: %v", command.Args, err)
		}
	}
	_ = command.Wait() // its exit code is part of the outcome
	o := outcome{
		stdout: stdout.String(), stderr: stderr.String(), code: command.ProcessState.ExitCode(),
		took: time.Since(begin),
	}
	if usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage); ok {
		o.peak = usage.Maxrss * 1024 // ru_maxrss is in KiB, getrusage(2)
	}
	if o.peak > maxMemory {
		t.Errorf("%q: %d MiB at its peak, want at most %d", command.Args, o.peak>>20, maxMemory>>20)
	}
	if o.took > window+grace {
		t.Errorf("%q: ended after %v, want at most %v", command.Args, o.took.Round(time.Millisecond), window+grace)
	}
	return o
}
