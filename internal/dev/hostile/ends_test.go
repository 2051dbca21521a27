package hostile_test

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// limited runs diagnose for a second with so many descriptors and returns the report as one line. Descriptors that the
// caller of the tests left open, as flock(1) does, are closed.
func limited(t *testing.T, files int, args string) (report string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second+grace)
	defer cancel()
	script := "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n " + strconv.Itoa(files) + "; exec " + program +
		" diagnose --duration 1s " + args
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return inOneLine(out.String()), cmd.ProcessState.ExitCode()
}

// inOneLine undoes the breaking of lines.
func inOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// sleeper starts a process that lives as long as the test.
func sleeper(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return strconv.Itoa(cmd.Process.Pid)
}

// Attacks 10, 17 and 18: with few descriptors, chance decided which collector got one. A living target was reported as
// ended, the kernel was blamed, and the exit code was 0, 3 or 4. Now each run says the same, whatever the host does.
func TestFewDescriptors(t *testing.T) {
	for _, files := range []int{8, 20, 64, 200} {
		for _, target := range []string{"--pid " + sleeper(t), "", "-o json"} {
			out, code := limited(t, files, target)
			if code != 4 || !strings.Contains(out, "too many open files: this process may open "+strconv.Itoa(
				files)+",") ||
				!strings.Contains(out, "ulimit -n 1024") {
				t.Errorf("%d descriptors, diagnose %s: exit code %d, want 4:\n%s", files, target, code, out)
			}
			for _, blamed := range []string{
				"Ended early", "verifier refuses", "report it with the kernel's version",
				"map create",
			} {
				if strings.Contains(out, blamed) {
					t.Errorf("%d descriptors, diagnose %s: the report says %q:\n%s", files, target, blamed, out)
				}
			}
		}
	}
}

// TestNothingToRead is attack 17: without /proc, and without rights on the target, next to nothing can be told. That is
// not good news.
func TestNothingToRead(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.Tool("unshare"), testenv.Tool("setpriv"))
	const stranger = "setpriv --reuid 12345 --regid 12345 --clear-groups "
	for name, script := range map[string]string{
		"no /proc":  "mount -t tmpfs tmpfs /proc; exec $0 diagnose --duration 1s",
		"no rights": "exec " + stranger + "$0 diagnose --duration 1s --pid " + sleeper(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := inShell(t, time.Second, t.TempDir(), script)
			// It can still tell that the CPUs are full, which is exit code 3.
			if o.code != 3 && o.code != 4 || strings.Contains(o.stdout, "NO BOTTLENECK FOUND") {
				t.Errorf("exit code %d, want 3 or 4:\n%s%s", o.code, o.stdout, o.stderr)
			}
		})
	}
}

// The limit drops below the number of descriptors that are open. So nothing more can be opened until the end, but the
// target lives.
func TestDescriptorsRunOut(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root)
	const window = 3 * time.Second
	cut := func(pid int) error {
		limit := unix.Rlimit{Cur: 20, Max: 20}
		return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil)
	}
	o := disturbed(t, window, time.Second, cut, "diagnose", "--pid", sleeper(t), "--duration", window.String(),
		"--interval", "500ms")
	out := inOneLine(o.stdout)
	if o.code != 0 && o.code != 3 && o.code != 4 || strings.Contains(out, "Ended early") ||
		!strings.Contains(out, "too many open files") {
		t.Errorf("exit code %d:\n%s\n%s", o.code, o.stdout, o.stderr)
	}
}
