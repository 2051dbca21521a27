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
)

// limited runs diagnose for a second with so many descriptors.
func limited(t *testing.T, files int, args string) (stdout string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*grace)
	defer cancel()
	script := "ulimit -n " + strconv.Itoa(files) + "; exec " + program + " diagnose --duration 1s " + args
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

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

// Attack 10: without descriptors a living target was said to have ended.
func TestFewDescriptorsAreNoEnd(t *testing.T) {
	out, _ := limited(t, 20, "--pid "+sleeper(t))
	if strings.Contains(out, "Ended early") || !strings.Contains(out, "too many open files") {
		t.Errorf("the report of a living process:\n%s", out)
	}
}

// Attack 17: a run that could read nearly nothing gave exit code 0.
func TestNearlyNothingReadIsIncomplete(t *testing.T) {
	out, code := limited(t, 8, "--interval 500ms --pid "+sleeper(t)) // a busy host gives findings, a sleeper none
	if code != 4 || !strings.Contains(out, "INCOMPLETE") || !strings.Contains(out, "ulimit -n 1024") {
		t.Errorf("exit code %d, want 4:\n%s", code, out)
	}
}

// Attack 18: without descriptors the kernel was blamed: its verifier, or that it is too old.
func TestFewDescriptorsAreNoOldKernel(t *testing.T) {
	out, _ := limited(t, 64, "-o json")
	out = strings.Join(strings.Fields(out), " ")
	for _, blamed := range []string{"verifier refuses", "report it with the kernel's version", "map create"} {
		if strings.Contains(out, blamed) {
			t.Errorf("the report says %q:\n%s", blamed, out)
		}
	}
	if !strings.Contains(out, "raise ulimit -n (now 64)") {
		t.Errorf("the report does not name the limit:\n%s", out)
	}
}
