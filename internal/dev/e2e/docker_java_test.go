package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// busyJava allocates and computes without end, in more threads than the quota feeds. It writes a file of its own, so
// that the container differs from its image.
const busyJava = `import java.nio.file.*;
public class Busy {
  static volatile long sink;
  public static void main(String[] a) throws Exception {
    Files.writeString(Path.of("/var/app/started"), "yes");
    for (int i = 0; i < 3; i++) new Thread(() -> { for (;;) { byte[] b = new byte[4096]; sink += b.length; } }).start();
    new Thread(() -> { for (;;) sink++; }).start();
  }
}
`

// TestDockerJVM diagnoses a JVM as in production: in a container with a quota, of another user, with a /tmp that only
// the container sees. The diagnosis must not change a file of the container.
func TestDockerJVM(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.Java, testenv.Tool("javac"), testenv.Tool("dockerd"), testenv.Tool("docker"))
	docker := engineOfContained(t)
	app := compiled(t, "Busy", busyJava)
	writable := filepath.Join(t.TempDir(), "image")
	must(t, os.MkdirAll(filepath.Join(writable, "var", "app"), 0o755))
	must(t, os.Chmod(filepath.Join(writable, "var", "app"), 0o777))
	archive := writable + ".tar"
	must(t, exec.Command("tar", "-C", writable, "-cf", archive, ".").Run())
	docker("import", archive, "busy")
	java, err := exec.LookPath("java")
	must(t, err)
	java, err = filepath.EvalSymlinks(java)
	must(t, err)
	// The image has no Java, but the machine does: its programs are mounted read-only.
	docker("run", "--detach", "--name", "pd-e2e-jvm", "--cpus", "0.5", "--memory", "512m", "--user", "65534:65534",
		"--tmpfs", "/tmp:exec", "--volume", "/usr:/usr:ro", "--volume", "/lib:/lib:ro", "--volume", "/lib64:/lib64:ro",
		"--volume", "/etc:/etc:ro", "--volume", app+":/app:ro", "--entrypoint", java, "busy", "-cp", "/app", "Busy")
	eventually(t, "the program has started", 60*time.Second, func() bool {
		return strings.Contains(docker("diff", "pd-e2e-jvm"), "/var/app/started")
	})
	changed := func() []string {
		return slices.Sorted(strings.SplitSeq(docker("diff", "pd-e2e-jvm"), "\n")) // in no order
	}
	before := changed()
	d := expect(t, want{
		verdict: []string{"cpu-throttled"}, severity: []string{"critical"}, text: []string{"0.5 CPUs"},
		required: []string{"serial-gc-by-quota"}, forbidden: []string{"cpu-saturated"},
	}.complaints, "--container", "pd-e2e-jvm")
	// What the system does to it, what its runtime does, and which code costs the CPU.
	for _, part := range []string{"pd-e2e-jvm, jvm", "WHERE THE CPU TIME GOES", "Busy.lambda$main"} {
		if !strings.Contains(d.text, part) {
			t.Errorf("the report does not say %q: %s", part, d.text)
		}
	}
	if strings.Contains(d.text, "no counters") || strings.Contains(d.text, "hsperfdata") {
		t.Errorf("the JVM's counters were not read: %s", d.text)
	}
	if diff := cmp.Diff(before, changed()); diff != "" {
		t.Errorf("the diagnosis changed files of the container (-before +after):\n%s", diff)
	}
	if state := docker("inspect", "--format", "{{.State.Status}}", "pd-e2e-jvm"); state != "running" {
		t.Errorf("the container is %s: %s", state, docker("logs", "pd-e2e-jvm"))
	}
}

// engineOfContained starts an engine and returns its client.
func engineOfContained(t *testing.T) func(args ...string) string {
	t.Helper()
	var said bytes.Buffer
	cmd, _ := startContained(t, &said)
	sockets, err := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("pd-contained-%d-*/docker.box/docker.sock",
		cmd.Process.Pid)))
	must(t, err)
	if len(sockets) != 1 {
		t.Fatalf("sockets of the engine: %v", sockets)
	}
	return func(args ...string) string {
		t.Helper()
		out, err := exec.Command("docker", append([]string{"--host", "unix://" + sockets[0]}, args...)...).
			CombinedOutput()
		if err != nil {
			t.Fatalf("docker %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
}

// compiled returns a directory with the class that others can read.
func compiled(t *testing.T, class, source string) string {
	t.Helper()
	perfdoctor(t)                            // makes workDir, which others can read
	dir, err := os.MkdirTemp(workDir, class) //nolint:usetesting // other users cannot enter a test's own
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	file := filepath.Join(dir, class+".java")
	must(t, os.WriteFile(file, []byte(source), 0o644))
	if out, err := exec.Command("javac", "-d", dir, file).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v: %s", err, out)
	}
	return dir
}
