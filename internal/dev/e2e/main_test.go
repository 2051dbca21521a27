package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// sideBySide is how many of the parallel tests wait at a time: for windows of an exporter, and for guests to boot.
const sideBySide = "4"

func TestMain(m *testing.M) {
	if code, child := lab.RunIfChild(); child {
		os.Exit(code)
	}
	testenv.DefaultSignals()
	if err := flag.Set("test.parallel", sideBySide); err != nil { // the flag itself comes later and wins
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(workDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// loadTime bounds each load, which its lab ends with the test. It is longer than all diagnoses of a test on a busy
// machine.
const loadTime = 5 * time.Minute

// workDir holds the program and the recordings. It is set once, by build.
var workDir string

// build makes the program, at the first test that is not skipped. Other users can read its directory, for the diagnosis
// without rights. They cannot read a test's own.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "perfdoctor-e2e-")
	if err != nil {
		return "", err
	}
	workDir = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "perfdoctor")
	cmd := exec.Command("go", "build", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags",
		"-s -w -X main.version=e2e", "-o", program, "../../../cmd/perfdoctor")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
	}
	return program, nil
})

// perfdoctor gives the path of the program.
func perfdoctor(t testing.TB) string {
	t.Helper()
	program, err := build()
	must(t, err)
	return program
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a state that a load has to reach before it is diagnosed.
func eventually(t testing.TB, what string, within time.Duration, reached func() bool) {
	t.Helper()
	const poll = 20 * time.Millisecond
	for deadline := time.Now().Add(within); !reached(); time.Sleep(poll) {
		if time.Now().After(deadline) {
			t.Fatalf("not reached within %v: %s", within, what)
		}
	}
}
