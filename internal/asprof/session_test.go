package asprof

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/asprof/library"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/testenv"
)

// workDir holds what tests share, readable by other users, which a test's own directory is not.
var workDir string

func TestMain(m *testing.M) {
	code := m.Run()
	if workDir != "" {
		os.RemoveAll(workDir)
	}
	os.Exit(code)
}

// classes compiles testdata/Busy.java for the oldest JVM that is tested.
var classes = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "perfdoctor-asprof-")
	if err != nil {
		return "", err
	}
	workDir = dir
	out, err := exec.Command("javac", "--release", "11", "-d", dir, "testdata/Busy.java").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir, os.Chmod(dir, 0o755)
})

// A busyJVM is a running testdata/Busy.java.
type busyJVM struct {
	*exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stdout strings.Builder // all it has written
}

// startJVM starts it with options of the JVM, changed by how, and ends it with the test.
func startJVM(t testing.TB, how func(*exec.Cmd), options ...string) *busyJVM {
	t.Helper()
	testenv.Need(t, testenv.Java, testenv.Tool("javac"))
	dir, err := classes()
	must(t, err)
	args := append([]string{"-Xmx256m", "-cp", dir}, options...)
	b := &busyJVM{Cmd: exec.Command("java", append(args, "Busy", "2", "20")...)}
	b.Stderr = os.Stderr
	b.in, err = b.StdinPipe()
	must(t, err)
	pipe, err := b.StdoutPipe()
	must(t, err)
	b.out = bufio.NewReader(io.TeeReader(pipe, &b.stdout))
	if how != nil {
		how(b.Cmd)
	}
	must(t, b.Start())
	t.Cleanup(func() { b.Process.Kill(); b.Wait() })
	if line := b.line(t); line != "ready\n" {
		t.Fatalf("the JVM says %q", line)
	}
	return b
}

func (b *busyJVM) line(t testing.TB) string {
	t.Helper()
	line, err := b.out.ReadString('\n')
	must(t, err)
	return line
}

// done asks the JVM for the work it has done, with its own time of the answer in nanoseconds.
func (b *busyJVM) done(t testing.TB) (at, work int64) {
	t.Helper()
	_, err := io.WriteString(b.in, "?\n")
	must(t, err)
	if n, err := fmt.Sscan(b.line(t), &at, &work); n != 2 {
		t.Fatalf("the JVM's answer: %v", err)
	}
	return at, work
}

func (b *busyJVM) inspect(t testing.TB) *jvm.VM {
	t.Helper()
	vm, err := jvm.Inspect(b.Process.Pid)
	must(t, err)
	return vm
}

func bundled(t testing.TB) []byte {
	t.Helper()
	lib, err := library.Bundled()
	if errors.Is(err, library.ErrNotBundled) {
		testenv.Need(t, testenv.Tool("mvn"))
		t.Fatal("async-profiler is not bundled, though there is Maven: run `make bundle`")
	}
	must(t, err)
	return lib
}

func defaults(t testing.TB) Options {
	t.Helper()
	return Options{
		Library: bundled(t), Events: DefaultEvents(),
		CPU: DefaultCPU, Wall: DefaultWall, Alloc: DefaultAlloc, Lock: DefaultLock, Timeout: 20 * time.Second,
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// leftovers lists files of perfdoctor's in /tmp and /dev/shm as the process sees them.
func leftovers(t testing.TB, pid int) []string {
	t.Helper()
	var all []string
	for _, dir := range []string{"/tmp", "/dev/shm", "/var/tmp"} {
		found, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "root", dir, ".perfdoctor-*"))
		must(t, err)
		all = append(all, found...)
	}
	return all
}

func TestSession(t *testing.T) {
	b := startJVM(t, nil)
	for round := range 3 {
		began := time.Now()
		s, err := Start(t.Context(), b.inspect(t), defaults(t))
		must(t, err)
		t.Logf("round %d: started in %v, %q, library %s", round, time.Since(began), s.Warnings, s.library)
		time.Sleep(time.Second)
		began = time.Now()
		f, err := s.Stop(t.Context())
		must(t, err)
		t.Logf("stopped in %v", time.Since(began))
		data, err := io.ReadAll(f)
		must(t, err)
		f.Close()
		if !strings.HasPrefix(string(data), "FLR\x00") {
			t.Errorf("no JFR file: %.20q", data)
		}
		t.Logf("%d bytes", len(data))
		if left := leftovers(t, b.Process.Pid); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		must(t, s.Close())
	}
	b.done(t)
	if got := strings.Count(b.stdout.String(), "\n"); got != 2 {
		t.Errorf("the target's standard output: %q", b.stdout.String())
	}
}

var _ = context.Background
