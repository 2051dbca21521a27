package testenv_test

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// TestStartChild: a child is talked to, and ends with the test.
func TestStartChild(t *testing.T) {
	testenv.Need(t, testenv.Tool("sh"), testenv.Tool("cat"))
	pid := 0
	t.Run("talks", func(t *testing.T) {
		child := testenv.StartChild(t, exec.Command("sh", "-c", "echo ready; exec cat"))
		pid = child.PID
		child.Ready(t)
		if _, err := child.In.Write([]byte("a line\n")); err != nil {
			t.Fatal(err)
		}
		if line, err := child.Out.ReadString('\n'); err != nil || line != "a line\n" {
			t.Errorf("%q, %v", line, err)
		}
	})
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d is left", pid)
	}
}
