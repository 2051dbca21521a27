package jvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// spinSource computes a little, so that methods are compiled and one is inlined, and prints nothing after "ready".
const spinSource = `
public class Spin {
    static volatile long sink;
    static int inner(int x) { return x * 31 + 7; }
    static long outer(long n) { long s = 0; for (int i = 0; i < n; i++) s += inner(i); return s; }
    public static void main(String[] args) throws Exception {
        System.out.println("ready");
        while (true) { sink = outer(100_000); Thread.sleep(5); }
    }
}
`

// spin compiles the program once, for the oldest JVM, where everybody may read it and no test mounts over it.
var spin = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("/var/tmp", "perfdoctor-jvm-test-")
	if err != nil {
		return "", err
	}
	spinDir = dir
	source := filepath.Join(dir, "Spin.java")
	err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(source, []byte(spinSource), 0o644))
	if err != nil {
		return dir, err
	}
	out, err := exec.Command("javac", "--release", "11", "-d", dir, source).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("javac: %w: %s", err, out)
	}
	return dir, err
})

// childVar makes the test binary do something as a process of its own; TestMain says what.
const childVar = "JVM_TEST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childVar); what != "" {
		os.Exit(child(what, os.Args[1:]))
	}
	status := m.Run()
	if spinDir != "" {
		os.RemoveAll(spinDir)
	}
	os.Exit(status)
}

// spinDir is the directory that spin made, for TestMain to remove.
var spinDir string

// target is a JVM under test.
type target struct {
	pid    int
	cmd    *exec.Cmd
	stdout *os.File
	cwd    string
}

// setup is how a JVM is started. The zero value is the java of PATH, as the user of the test.
type setup struct {
	home   string // of the JDK
	uid    int
	flags  []string
	env    []string
	spaces uintptr // CLONE_NEW...
	subuid int     // of a new user namespace: its root
	mounts string  // shell commands before java starts, in the namespaces
	young  bool    // do not wait until it is ready
}

func (s setup) start(t *testing.T) *target {
	t.Helper()
	testenv.Need(t, testenv.Java, testenv.Tool("javac"))
	classes, err := spin()
	if err != nil {
		t.Fatal(err)
	}
	tg := &target{}
	tg.cwd, err = os.MkdirTemp("/var/tmp", "perfdoctor-jvm-cwd-") //nolint:usetesting // the target cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tg.cwd) })
	owner := s.uid
	if s.subuid != 0 {
		owner = s.subuid
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(tg.cwd, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	java := "java"
	if s.home != "" {
		java = s.home + "/bin/java"
	}
	args := append([]string{java, "-Xmx64m", "-XX:TieredStopAtLevel=4"}, s.flags...)
	args = append(args, "-cp", classes, "Spin")
	if s.uid != 0 {
		u := strconv.Itoa(s.uid)
		args = append([]string{"setpriv", "--reuid", u, "--regid", u, "--clear-groups"}, args...)
	}
	script := "exec \"$@\""
	if s.mounts != "" {
		script = s.mounts + " && " + script
	}
	tg.cmd = exec.Command("/bin/sh", append([]string{"-c", script, "sh"}, args...)...)
	tg.cmd.Dir = tg.cwd
	tg.cmd.Env = append(os.Environ(), s.env...)
	tg.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: s.spaces}
	if s.subuid != 0 {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: s.subuid, Size: 65536}}
		tg.cmd.SysProcAttr.UidMappings, tg.cmd.SysProcAttr.GidMappings = ids, ids
		// The shell becomes the new namespace's root.
		tg.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true}
	}
	tg.stdout, err = os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	tg.cmd.Stdout = tg.stdout
	var stderr bytes.Buffer
	tg.cmd.Stderr = &stderr
	if err := tg.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tg.pid = tg.cmd.Process.Pid
	t.Cleanup(func() {
		_ = tg.cmd.Process.Signal(syscall.SIGCONT)
		tg.cmd.Process.Kill()
		tg.cmd.Wait()
		if t.Failed() {
			t.Logf("the target's stdout: %.300s\nand stderr: %.1000s", tg.output(), stderr.String())
		}
	})
	if !s.young {
		tg.await(t)
	}
	return tg
}

func (tg *target) output() string {
	text, _ := os.ReadFile(tg.stdout.Name())
	return string(text)
}

func (tg *target) await(t *testing.T) {
	t.Helper()
	for range 3000 {
		if strings.HasPrefix(tg.output(), "ready\n") {
			return
		}
		if unix.Kill(tg.pid, 0) != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the JVM does not start")
}

func (tg *target) inspect(t *testing.T) *VM {
	t.Helper()
	vm, err := Inspect(tg.pid)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// unharmed tells that the JVM is alive, printed nothing but its own line, and has no file of ours.
func (tg *target) unharmed(t *testing.T) {
	t.Helper()
	if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tg.pid)); err != nil ||
		bytes.Contains(state, []byte(") Z ")) {
		t.Errorf("the JVM is dead: %s %v", state, err)
		return
	}
	if got := tg.output(); got != "ready\n" {
		t.Errorf("the JVM printed on its standard output: %.200q", got)
	}
	nspid := strconv.Itoa(tg.inspect(t).NSPid)
	for _, dir := range []string{"root/tmp", "root/dev/shm", "cwd"} {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", tg.pid, dir))
		if err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		for _, e := range entries {
			owned := false
			if info, err := e.Info(); err == nil {
				owned = int(info.Sys().(*syscall.Stat_t).Uid) == tg.inspect(t).UID
			}
			name := e.Name()
			if name == ".attach_pid"+nspid || name == "perf-"+nspid+".map" || (strings.HasPrefix(name, ownPrefix) &&
				owned && dir == "cwd") {
				t.Errorf("%s/%s was left behind", dir, name)
			}
		}
	}
}

func causeOf(err error) Cause {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Cause
	}
	return ""
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// releases are the JVMs that `make jdks` provides.
var releases = []string{"11", "17", "21", "25"}

func jdk(t *testing.T, release string) string {
	home, err := filepath.Abs("../../.cache/jdk/" + release)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(home + "/bin/java"); err != nil {
		t.Skipf("no JDK %s (make jdks): %v", release, err)
	}
	return home
}

// Every release answers, has its version recognised, names its code, and prints nothing on its standard output.
func TestReleases(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			tg := setup{home: jdk(t, release)}.start(t)
			vm := tg.inspect(t)
			if vm.Kind != HotSpot || strconv.Itoa(vm.Major()) != release || vm.Libc != Glibc || vm.Attachable() != nil {
				t.Errorf("inspected as %+v", vm)
			}
			start := time.Now()
			version, err := vm.Jcmd(within(t, 10*time.Second), "VM.version")
			if err != nil || !strings.Contains(version, "JDK "+release) {
				t.Fatalf("VM.version: %q, %v", version, err)
			}
			first := time.Since(start)
			start = time.Now()
			flags, err := vm.Jcmd(within(t, 10*time.Second), "VM.flags")
			if err != nil || !strings.Contains(flags, "-XX:MaxHeapSize=67108864") {
				t.Errorf("VM.flags: %q, %v", flags, err)
			}
			t.Logf("the first command took %v, the second %v", first, time.Since(start))
			_, err = vm.Jcmd(within(t, 10*time.Second), "No.such")
			if causeOf(err) != Failed || !strings.Contains(err.Error(), "Unknown diagnostic command") {
				t.Errorf("No.such: %v", err)
			}
			tg.unharmed(t)
			tg.maps(t)
			tg.unharmed(t)
		})
	}
}

// maps makes the JVM's map in both ways, twice.
func (tg *target) maps(t *testing.T) {
	t.Helper()
	for _, inlined := range []bool{false, true, false, true} {
		vm := tg.inspect(t)
		var names []string
		// The compiler may not have reached it yet.
		for range 100 {
			m, err := vm.PerfMap(within(t, 10*time.Second), inlined)
			if err != nil {
				t.Fatalf("inlined %t: %v", inlined, err)
			}
			names = nil
			for _, e := range m.Entries {
				names = append(names, e.Name)
			}
			if slices.Contains(names, "Spin.outer") && (!inlined || slices.Contains(names, "Spin.outer->Spin.inner")) {
				break
			}
			names = append(names, "incomplete")
			time.Sleep(50 * time.Millisecond)
		}
		if slices.Contains(names, "incomplete") {
			t.Errorf("inlined %t: the map lacks Spin.outer, or what is inlined into it:\n%s", inlined,
				strings.Join(names, "\n"))
		}
		if !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, "interpreter") }) {
			t.Errorf("inlined %t: the map has no interpreter", inlined)
		}
	}
	libraries := 0
	for _, a := range tg.inspect(t).Agents {
		if a.Own {
			libraries++
		}
	}
	if libraries != 1 {
		t.Errorf("%d copies of the agent are mapped, not 1", libraries)
	}
}

// The failed loads: a file that does not exist, and one that is not a library.
func TestLoadFails(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			tg := setup{home: jdk(t, release)}.start(t)
			vm := tg.inspect(t)
			err := vm.Load(within(t, 10*time.Second), "/nowhere/x.so", "")
			r, ok := errors.AsType[*Refusal](err)
			if !ok || r.Cause != Failed || r.Code != -1 {
				t.Errorf("a library that is not there: %#v", err)
			}
			// The agent gives up on a file that it cannot open.
			err = vm.loadAgent(within(t, 10*time.Second), "/nowhere/map")
			r, ok = errors.AsType[*Refusal](err)
			if !ok || r.Cause != Failed || r.Code != 3 ||
				!strings.Contains(r.Reason, "could not open its output file") {
				t.Errorf("an agent that fails: %#v", err)
			}
			tg.unharmed(t)
		})
	}
}
