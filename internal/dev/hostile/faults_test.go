package hostile_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// inShell runs perfdoctor as the last command of a script, "exec $0 …", with mounts of its own. $1 is their directory.
func inShell(t *testing.T, window time.Duration, dir, script string, flags ...string) outcome {
	t.Helper()
	args := append(flags, "--mount", "--propagation", "private", "sh", "-ec", script, program, dir)
	return outcomeOf(t, window, 0, nil, exec.Command("unshare", args...))
}

// TestFullAndReadOnly: ENOSPC and EROFS. The report is printed, the error names the file and the reason, and nothing
// half-written is left.
func TestFullAndReadOnly(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.Tool("unshare"))
	const run = "$0 diagnose --duration 1s --interval 250ms "
	const left = "; code=$?; ls -A $1 >&2; exit $code"
	for name, tt := range map[string]struct {
		script   string
		code     int
		reported bool
		says     string
	}{
		"full, directory": {
			"mount -t tmpfs -o size=64k tmpfs $1; set +e; " + run + "--save $1/x", 1, true,
			"no space left on device",
		},
		"full, zip": {
			"mount -t tmpfs -o size=4k tmpfs $1; set +e; " + run + "--save $1/x.zip", 1, true,
			"no space left on device",
		},
		"full, page": {
			"mount -t tmpfs -o size=64k tmpfs $1; set +e; " + run + "--html $1/x", 1, true,
			"no space left on device",
		},
		"read-only, recording": {
			"mount -t tmpfs -o ro tmpfs $1; set +e; " + run + "--save $1/x.zip", 2, false,
			"read-only file system: choose another one",
		},
		"read-only, page": {
			"mount -t tmpfs -o ro tmpfs $1; set +e; " + run + "--html $1/x", 2, false,
			"read-only file system: choose another one",
		},
		"read-only in mid-run": {"mount -t tmpfs tmpfs $1; (sleep 0.5; mount -o remount,ro $1) & set +e; " + run +
			"--save $1/x --html $1/y", 1, true, "read-only file system"},
		"full in memory of zip": {
			"mount -t tmpfs -o size=64k,nr_inodes=1 tmpfs $1; set +e; " + run + "--save $1/x.zip",
			1, true, "no space left on device",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := inShell(t, time.Second, t.TempDir(), tt.script+left)
			said, rest, _ := strings.Cut(o.stderr, "\n")
			if o.code != tt.code || !strings.Contains(said, tt.says) || strings.TrimSpace(rest) != "" {
				t.Errorf("exit code %d, want %d with %q and nothing left:\n%s", o.code, tt.code, tt.says, o.stderr)
			}
			if reported := strings.Contains(o.stdout, "PERFDOCTOR ITSELF"); reported != tt.reported {
				t.Errorf("there is a report: %v, want %v", reported, tt.reported)
			}
		})
	}
}

// groupIn makes a control group of version 1 for the test.
func groupIn(t *testing.T, controller string) string {
	t.Helper()
	name := fmt.Sprintf("perfdoctor-%d-%s", os.Getpid(), path.Base(t.Name()))
	dir := filepath.Join("/sys/fs/cgroup", controller, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no control group of version 1: %v", err)
	}
	t.Cleanup(func() {
		for range 100 { // a killed process leaves its group a moment later
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("%s is not removed", dir)
	})
	return dir
}

func set(t *testing.T, dir, file, value string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLittleMemory: in a group of 32 MiB the kernel kills perfdoctor, or perfdoctor ends with a reason, or it gives its
// report, if another group pays for the pages of its file. No half-written file has the name of a complete one.
func TestLittleMemory(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.Tool("unshare"))
	group, dir := groupIn(t, "memory"), t.TempDir()
	set(t, group, "memory.limit_in_bytes", strconv.Itoa(32<<20))
	const script = `echo $$ > GROUP/cgroup.procs; exec $0 diagnose --duration 1s --save $1/x.zip`
	o := inShell(t, time.Second, dir, strings.ReplaceAll(script, "GROUP", group))
	t.Logf("exit code %d (-1: killed), %s", o.code, o.stderr)
	_, err := os.Stat(filepath.Join(dir, "x.zip"))
	switch {
	case o.code == 0 || o.code == 3:
		if err != nil {
			t.Errorf("exit code %d: %v", o.code, err)
		}
	case o.code != -1 && o.code != 1 || o.code == 1 && o.stderr == "":
		t.Errorf("exit code %d:\n%s%s", o.code, o.stdout, o.stderr)
	}
	wholeFiles(t, dir)
}

// TestHaltedTarget: a process, or a JVM, that is stopped or frozen before or in the window does not hold up the run.
// The run says so.
func TestHaltedTarget(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root)
	const window = 2 * time.Second
	stop := func(pid string) func(int) error {
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(n, syscall.SIGCONT) }) // it may have ended
		return func(int) error { return syscall.Kill(n, syscall.SIGSTOP) }
	}
	check := func(t *testing.T, pid, want string, after time.Duration, halt func(int) error) {
		t.Helper()
		args := []string{"diagnose", "--pid", pid, "--duration", window.String(), "--interval", "500ms"}
		if after == 0 {
			if err := halt(0); err != nil {
				t.Fatal(err)
			}
			halt = nil
		}
		o := disturbed(t, window, after, halt, args...)
		if out := inOneLine(o.stdout); o.code != 0 && o.code != 3 ||
			!strings.Contains(out, "Halted: process "+pid+" is "+want) {
			t.Errorf("exit code %d, want one line with %q:\n%s%s", o.code, want, o.stdout, o.stderr)
		}
	}
	for name, after := range map[string]time.Duration{"before": 0, "meanwhile": time.Second} {
		t.Run("stopped "+name, func(t *testing.T) {
			t.Parallel()
			pid := sleeper(t)
			check(t, pid, "stopped (SIGSTOP or Ctrl-Z): kill -CONT "+pid, after, stop(pid))
		})
		t.Run("JVM stopped "+name, func(t *testing.T) {
			t.Parallel()
			pid := startOpenJVM(t, "1777")
			halt := stop(pid)
			check(t, pid, "stopped (SIGSTOP or Ctrl-Z): kill -CONT "+pid, after, halt)
			if err := exec.Command("kill", "-CONT", pid).Run(); err != nil {
				t.Fatal(err)
			}
			// It left what the JVM had open. The next run removes it.
			perfdoctor(t, window, "diagnose", "--pid", pid, "--duration", window.String())
			if files := leftIn(t, pid); len(files) > 0 {
				t.Errorf("left: %v", files)
			}
		})
		t.Run("frozen "+name, func(t *testing.T) {
			t.Parallel()
			group, pid := groupIn(t, "freezer"), sleeper(t)
			set(t, group, "cgroup.procs", pid)
			t.Cleanup(func() { // before the sleeper is to end, and the group removed
				set(t, group, "freezer.state", "THAWED")
				set(t, filepath.Dir(group), "cgroup.procs", pid)
			})
			check(t, pid, "frozen by its control group", after, func(int) error {
				return os.WriteFile(filepath.Join(group, "freezer.state"), []byte("FROZEN"), 0o600)
			})
		})
	}
}

// TestShiftedClock: in a time namespace perfdoctor's clocks differ from those of the kernel's programs. No number shows
// it.
func TestShiftedClock(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.BPF, testenv.Tool("unshare"))
	if _, err := os.Stat("/proc/self/ns/time"); err != nil {
		t.Skip(err)
	}
	const window = 2 * time.Second
	for _, shift := range []string{"1000000", "-1000"} { // no further back than the host's uptime
		dir := filepath.Join(t.TempDir(), "saved")
		o := inShell(t, window, dir, `exec $0 diagnose --deep --duration 2s --save $1`, "--time", "--monotonic="+shift,
			"--boottime="+shift)
		if o.code != 0 && o.code != 3 && o.code != 4 {
			t.Fatalf("shifted by %s s: exit code %d\n%s", shift, o.code, o.stderr)
		}
		for name, value := range largest(t, filepath.Join(dir, "samples.jsonl")) {
			switch name { // times since the window began, of all threads of a group together
			case "cgroup_cpu_wait_seconds", "cgroup_run_seconds", "run_queue_wait_seconds", "thread_wait_seconds",
				"thread_off_cpu_seconds":
				if value < 0 || value > 500*(window+grace).Seconds() {
					t.Errorf("shifted by %s s: %s is %g s in %v", shift, name, value, window)
				}
			}
		}
	}
}

// largest returns the largest number of each metric.
func largest(t *testing.T, samples string) map[string]float64 {
	t.Helper()
	f, err := os.Open(samples)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string]float64{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var sample struct{ M map[string][][]any }
		if err := json.Unmarshal(lines.Bytes(), &sample); err != nil {
			t.Fatal(err)
		}
		for name, rows := range sample.M {
			for _, row := range rows {
				if v, ok := row[len(row)-1].(float64); ok {
					out[name] = max(out[name], v)
				}
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no sample", samples)
	}
	return out
}

// TestNetworkVanishes: an interface, or the target with its whole network namespace, disappears in the window.
func TestNetworkVanishes(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Root, testenv.Tool("unshare"), testenv.Tool("ip"), testenv.Tool("nsenter"))
	const window = 3 * time.Second
	const inside = "ip link add v1 type veth peer name v2; ip link set v1 up; ip link set v2 up; echo ready; exec " +
		"sleep 60"
	for name, tt := range map[string]struct {
		vanish func(pid string) error
		says   string
	}{
		"interface": {func(pid string) error {
			return exec.Command("nsenter", "--net=/proc/"+pid+"/ns/net", "ip", "link", "del", "v1").Run()
		}, "PERFDOCTOR ITSELF"},
		"namespace": {
			func(pid string) error { return exec.Command("kill", "-KILL", pid).Run() },
			"Ended early: process",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := exec.Command("unshare", "--net", "sh", "-ec", inside)
			out, err := target.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := target.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			t.Cleanup(func() { _ = target.Process.Kill(); <-ended })
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				t.Fatalf("the target says %q: %v", line, err)
			}
			go func() { defer close(ended); _ = target.Wait() }() // reaped at once, so that it is seen to have ended
			pid := strconv.Itoa(target.Process.Pid)
			o := disturbed(t, window, 1500*time.Millisecond, func(int) error { return tt.vanish(pid) },
				"diagnose", "--pid", pid, "--duration", window.String(), "--interval", "500ms")
			if o.code != 0 && o.code != 3 || !strings.Contains(o.stdout, tt.says) ||
				strings.Contains(o.stderr, "goroutine ") {
				t.Errorf("exit code %d, want a report with %q:\n%s%s", o.code, tt.says, o.stdout, o.stderr)
			}
		})
	}
}
