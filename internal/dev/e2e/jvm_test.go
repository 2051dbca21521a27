package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// A jvm is a JVM that answers a line with a line.
type jvm struct{ *testenv.Child }

func startJVM(t *testing.T) *jvm {
	t.Helper()
	testenv.Need(t, testenv.Java, testenv.Tool("javac"), testenv.Tool("mvn"))
	dir := t.TempDir()
	out, err := exec.Command("javac", "-d", dir, "../../../testdata/java/Busy.java").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	j := &jvm{testenv.StartChild(t, exec.Command("java", "-Xmx256m", "-cp", dir, "Busy", "1", "10"))}
	j.Ready(t)
	return j
}

// answers asks the JVM whether it is alive. Its standard output may contain only its answer.
func (j *jvm) answers(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(j.In, "?\n")
	must(t, err)
	if line, err := j.Out.ReadString('\n'); err != nil || len(strings.Fields(line)) != 2 {
		t.Fatalf("the JVM's answer is %q: %v", line, err)
	}
}

// profiled tells whether async-profiler runs in it: then it has a thread of that name.
func (j *jvm) profiled(t *testing.T) bool {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", j.PID))
	must(t, err)
	for _, name := range names {
		if comm, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(comm), "Async-profiler") {
			return true
		}
	}
	return false
}

// left lists what perfdoctor has left in the JVM's directories.
func (j *jvm) left(t *testing.T) []string {
	t.Helper()
	cwd, err := os.Getwd()
	must(t, err)
	var all []string
	for _, dir := range []string{"/tmp", "/dev/shm", cwd} {
		for _, pattern := range []string{".perfdoctor-*", fmt.Sprintf(".attach_pid%d", j.PID)} {
			found, err := filepath.Glob(filepath.Join(dir, pattern))
			must(t, err)
			all = append(all, found...)
		}
	}
	return all
}

// endDiagnosis begins a diagnosis of the JVM and sends the signal at a random moment.
func (j *jvm) endDiagnosis(t *testing.T, by syscall.Signal, random *rand.Rand) {
	t.Helper()
	cmd := exec.Command(perfdoctor(t), "diagnose", "--pid", fmt.Sprint(j.PID), "--duration", "1s", "--interval",
		"500ms")
	must(t, cmd.Start())
	// its end, including the cleanup
	time.Sleep(time.Duration(random.Int64N(int64(1300 * time.Millisecond))))
	must(t, cmd.Process.Signal(by))
	cmd.Wait()
}

// TestKilledWhileProfiling: SIGKILL at random moments. The JVM lives and answers, its profiler stops by itself, and the
// next run removes what was left.
func TestKilledWhileProfiling(t *testing.T) {
	t.Parallel()
	const kills = 12 // hostile's TestKilled has more, of this command among others
	j := startJVM(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	left, running := 0, 0
	for range kills {
		j.endDiagnosis(t, syscall.SIGKILL, random)
		j.answers(t)
		if len(j.left(t)) > 0 {
			left++
		}
		if j.profiled(t) {
			running++
		}
	}
	t.Logf("%d of %d kills left files, %d a running profiler", left, kills, running)
	if left == 0 || running == 0 {
		t.Error("no kill hit a session: this test proves nothing")
	}
	const timeout = 6*time.Second + 2*time.Second // the window and 5 s more; the profiler's clock ticks once a second
	eventually(t, "the profiler stops by itself", timeout, func() bool { return !j.profiled(t) })
	measure := exec.Command(perfdoctor(t), "diagnose", "--pid", fmt.Sprint(j.PID), "--duration", "1s", "--interval",
		"500ms")
	if out, err := measure.CombinedOutput(); measure.ProcessState.ExitCode() == 1 {
		t.Fatalf("the next run: %v: %s", err, out)
	}
	if files := j.left(t); len(files) > 0 {
		t.Errorf("left after the next run: %v", files)
	}
	j.answers(t)
}

// TestInterruptedWhileProfiling: Ctrl-C at random moments leaves nothing, without a next run. It does not run in
// parallel with TestKilledWhileProfiling, which leaves files in the same directory.
func TestInterruptedWhileProfiling(t *testing.T) {
	j := startJVM(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 8 {
		j.endDiagnosis(t, syscall.SIGINT, random)
		if files := j.left(t); len(files) > 0 {
			t.Fatalf("interruption %d left %v", i, files)
		}
		eventually(t, "the profiler's thread ends", time.Second, func() bool { return !j.profiled(t) })
		j.answers(t)
	}
}
