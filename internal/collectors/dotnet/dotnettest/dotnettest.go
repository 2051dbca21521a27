// Package dotnettest runs programs of .NET for tests.
package dotnettest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// config names the runtime that `make jdks` unpacks.
const config = `{"runtimeOptions": {"framework": {"name": "Microsoft.NETCore.App", "version": "3.1.0"},
"configProperties": {"System.Globalization.Invariant": true}}}`

// Start compiles a program in C#, starts it with the environment given, and waits until it prints "ready". It should
// end with its input. The test is skipped where there is no compiler or no runtime.
func Start(t testing.TB, source string, environment ...string) *testenv.Child {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the wheel of .NET Core is for amd64 only")
	}
	testenv.Need(t, testenv.Tool("mcs"))
	_, file, _, _ := runtime.Caller(0)
	host := filepath.Join(filepath.Dir(file), "../../../../.cache/dotnet/dotnet")
	if _, err := os.Stat(host); err != nil {
		t.Skipf("no .NET (make jdks): %v", err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"program.cs": source, "program.runtimeconfig.json": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	compile := exec.CommandContext(t.Context(), "mcs", "-out:program.dll", "program.cs")
	compile.Dir = dir
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("mcs: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), host, "program.dll")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), environment...)
	child := testenv.StartChild(t, cmd)
	child.Ready(t)
	return child
}
