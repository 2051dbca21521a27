package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

const waiter = `public class Waiter { public static void main(String[] a) throws Exception { Thread.sleep(600_000); } }`

// java starts a JVM that does nothing, from a source file, and returns its pid.
func java(t *testing.T, flags ...string) int {
	t.Helper()
	testenv.Need(t, testenv.Java, testenv.Tool("javac"))
	file := filepath.Join(t.TempDir(), "Waiter.java")
	if err := os.WriteFile(file, []byte(waiter), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("java", append(flags, file)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd.Process.Pid
}

// perfmapOf repeats the command while the JVM is too young to be recognised as one.
func perfmapOf(t *testing.T, pid int, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	for range 500 {
		code, stdout, stderr = run(t, append([]string{"perfmap", "--pid", strconv.Itoa(pid)}, args...)...)
		if !strings.Contains(stderr, "not a JVM") && !strings.Contains(stderr, "has not yet loaded") {
			return code, stdout, stderr
		}
		time.Sleep(10 * time.Millisecond)
	}
	return code, stdout, stderr
}

func TestPerfmap(t *testing.T) {
	pid := java(t)
	path := "/tmp/perf-" + strconv.Itoa(pid) + ".map"
	t.Cleanup(func() { os.Remove(path) })
	// A link of that name that somebody left is replaced, and the file it points to stays.
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(precious, path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		code, stdout, stderr := perfmapOf(t, pid)
		if code != 0 || stdout != "" || !strings.Contains(stderr, path+": ") ||
			!strings.Contains(stderr, "PreserveFramePointer") {
			t.Fatalf("exit %d, %q, %q", code, stdout, stderr)
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode() != 0o644 || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			t.Errorf("%v %v", info.Mode(), err)
		}
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), " Interpreter\n") {
			t.Errorf("the map: %.300s, %v", text, err)
		}
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
		t.Errorf("%q, %v", text, err)
	}
	file := filepath.Join(t.TempDir(), "map")
	if code, _, stderr := perfmapOf(t, pid, "-o", file, "--inlined"); code != 0 {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "->") {
		t.Errorf("no inlined method in %.300s, %v", text, err)
	}
	if code, stdout, stderr := perfmapOf(t, pid, "-o", "-"); code != 0 || !strings.Contains(stdout, " Interpreter\n") {
		t.Errorf("exit %d, %.300s, %s", code, stdout, stderr)
	}
	if code, _, stderr := perfmapOf(t, pid, "-o", filepath.Join(file, "x")); code != 1 ||
		!strings.Contains(stderr, "not a directory") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestPerfmapRefused(t *testing.T) {
	wantUsage(t, "give the JVM's process id", "perfmap")
	wantUsage(t, "--output is empty", "perfmap", "--pid", "1", "-o", "")
	wantUsage(t, "is not a JVM", "perfmap", "--pid", strconv.Itoa(os.Getpid()))
	wantUsage(t, "there is no process", "perfmap", "--pid", strconv.Itoa(1<<22+1))
	code, stdout, stderr := perfmapOf(t, java(t, "-XX:+DisableAttachMechanism"), "-o", "-")
	if code != 1 || stdout != "" ||
		!strings.Contains(stderr, "+DisableAttachMechanism (command line); restart it without that option") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}
