package html

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// TestProgram runs the tests of the page's program (web/test). Its modules are where `make bundle` puts them.
func TestProgram(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(root, ".cache/web/node_modules")
	if _, err := os.Stat(modules); err != nil {
		testenv.Need(t, testenv.Tool("npm"), testenv.Tool("node"))
		t.Fatalf("there is npm, but no modules for the program: run `make bundle`: %v", err)
	}
	testenv.Need(t, testenv.Tool("node"))
	built := t.TempDir()
	build := exec.CommandContext(t.Context(), "node", "build.mjs", built, "--tests")
	build.Dir = filepath.Join(root, "web")
	build.Env = append(os.Environ(), "NODE_PATH="+modules)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	tests, err := filepath.Glob(built + "/*.test.mjs")
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests were built: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), "node", append([]string{"--test"}, tests...)...).CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
