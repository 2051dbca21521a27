package process

import (
	"bufio"
	"os/exec"
	"syscall"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TestFullFileSystem: a process fills a file system of its own mount namespace, which this process does not see.
func TestFullFileSystem(t *testing.T) {
	testenv.Need(t, testenv.Root)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c",
		`mount -t tmpfs -o size=64k,nr_inodes=50 none "$1" && exec 3>"$1/log" &&
		{ head -c 100000 /dev/zero >&3 2>/dev/null; echo full; exec sleep 60; }`, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "full\n" {
		t.Fatalf("%q, %v", line, err)
	}
	rec, missing := take(t, spaceCollector(), target(t, cmd.Process.Pid))
	if len(missing) > 0 {
		t.Fatalf("%+v", missing)
	}
	of := map[string]string{"dir": dir}
	for m, want := range map[*metric.Gauge]float64{
		metric.FileSystemSize: 64 << 10, metric.FileSystemFree: 0,
		metric.FileSystemInodes: 50, metric.FileSystemUnused: 48, // the directory and the log
	} {
		if got := gauge(t, rec, m, of); got != want {
			t.Errorf("%s: %v, want %v", m.Describe().Name, got, want)
		}
	}
}
