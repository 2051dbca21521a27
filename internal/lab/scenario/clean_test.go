package scenario

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// deadPID is a number that no process has: that of one which has been waited for.
func deadPID(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestStaleDirs(t *testing.T) {
	temp, dead := t.TempDir(), deadPID(t)
	stale := fmt.Sprintf("pd-ports_exhausted-%d-123456", dead)
	for _, name := range []string{
		stale, fmt.Sprintf("pd-ports_exhausted-%d-1", os.Getpid()), fmt.Sprintf("pd-x-%d", dead), "pd-x-y-1",
		fmt.Sprintf("other-%d-1", dead),
	} {
		if err := os.Mkdir(filepath.Join(temp, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	got, err := staleDirs(temp)
	if diff := cmp.Diff([]string{filepath.Join(temp, stale)}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestKillIn has a process in the directory, one below it, and one in a directory whose name begins the same way.
func TestKillIn(t *testing.T) {
	temp := t.TempDir()
	dir := filepath.Join(temp, "run")
	start := func(at string) *exec.Cmd {
		t.Helper()
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sleep", "60")
		cmd.Dir = at
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	in, below, beside := start(dir), start(filepath.Join(dir, "nginx")), start(dir+"-2")
	defer func() { _ = beside.Wait() }()
	killed, err := killIn(dir)
	if err != nil || len(killed) != 2 {
		t.Errorf("killed %v, %v, want two", killed, err)
	}
	for _, cmd := range []*exec.Cmd{in, below} {
		if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Errorf("pid %d: %v, want it killed", cmd.Process.Pid, err)
		}
	}
	if err := beside.Process.Kill(); err != nil {
		t.Errorf("the process beside the directory is gone: %v", err)
	}
}
