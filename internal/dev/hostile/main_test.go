// Package hostile_test attacks the built program the way a hostile or dying target would.
package hostile_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// maxMemory is the most that perfdoctor may hold at its peak whatever a target does, in bytes: what the packaged
// unit grants (MemoryMax=256M).
const maxMemory = 256 << 20

// grace is how much longer than its window a run may take: what it opens before and names, checks and prints after.
const grace = 5 * time.Second

// program is the built perfdoctor, made by TestMain, or the one that PERFDOCTOR_PROGRAM names: to see that an attack
// succeeds on the build before its fix.
var program = os.Getenv("PERFDOCTOR_PROGRAM")

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if program != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "perfdoctor-hostile")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "perfdoctor")
	build := exec.Command("go", "build", "-o", program, "./cmd/perfdoctor")
	build.Dir = "../../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building perfdoctor: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}

// outcome is what a run of perfdoctor came to.
type outcome struct {
	stdout, stderr string
	code           int   // exit code, -1 when a signal ended it
	peak           int64 // largest resident memory, in bytes
	took           time.Duration
}

// perfdoctor runs the program with args and fails the test when it took more memory than maxMemory or did not end
// within window and grace.
func perfdoctor(t *testing.T, window time.Duration, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), window+6*grace)
	defer cancel()
	command := exec.CommandContext(ctx, program, args...)
	// An unkillable program must not keep its test.
	command.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	begin := time.Now()
	if err := command.Run(); err != nil && command.ProcessState == nil {
		t.Fatalf("perfdoctor %q: %v", args, err)
	}
	o := outcome{stdout: stdout.String(), stderr: stderr.String(), code: command.ProcessState.ExitCode(), took: time.Since(begin)}
	if usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage); ok {
		o.peak = usage.Maxrss * 1024 // ru_maxrss is in KiB, getrusage(2)
	}
	if o.peak > maxMemory {
		t.Errorf("perfdoctor %q: %d MiB at its peak, want at most %d", args, o.peak>>20, maxMemory>>20)
	}
	if o.took > window+grace {
		t.Errorf("perfdoctor %q: ended after %v, want at most %v", args, o.took.Round(time.Millisecond), window+grace)
	}
	return o
}
