package find_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/collectors/find"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
)

// program keeps a CPU busy for as many milliseconds as it is told, and says when it is done.
const program = `
public class Program {
    public static void main(String[] args) throws Exception {
        for (long end = System.nanoTime() + Long.parseLong(args[0]) * 1000000; System.nanoTime() < end; ) { }
        System.out.println("ready");
        System.in.read();
    }
}
`

// startShell starts a shell with a JVM for each time to burn, and returns its pid when all are ready.
func startShell(t *testing.T, burn ...string) int {
	t.Helper()
	testenv.Need(t, testenv.Java, testenv.Tool("javac"))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Program.java"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("javac", "-d", dir, filepath.Join(dir, "Program.java")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	script := "exec 3<&0; for ms in " + strings.Join(burn, " ") + "; do java -Xmx32m -Xint -cp " + dir +
		" Program $ms <&3 & done; wait"
	shell := testenv.StartChild(t, exec.Command("sh", "-c", script))
	for range burn {
		shell.Ready(t)
	}
	return shell.PID
}

func target(t *testing.T, pid int) (*host.Host, host.Target) {
	t.Helper()
	h := host.Local()
	to, err := h.Resolve(t.Context(), host.Selector{PID: pid})
	if err != nil {
		t.Fatal(err)
	}
	return h, to
}

// TestOrder: the JVMs with the most CPU time are found. The JVM that was named is the first, whatever it did.
func TestOrder(t *testing.T) {
	shell := startShell(t, "10", "1500", "10", "10", "10")
	h, to := target(t, shell)
	var look find.Look
	found, err := look.JVMs(t.Context(), h, to)
	if err != nil || len(found.List) != find.MaxVMs || found.More != 1 {
		t.Fatalf("found %+v, %v", found, err)
	}
	busiest := found.List[0].VM
	if text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(busiest.PID), "cmdline")); err != nil ||
		!strings.HasSuffix(string(text), "\x001500\x00") {
		t.Errorf("the first is %q, %v", text, err)
	}
	// Each caller has its own, of one look.
	busiest.Notes = append(busiest.Notes, "mine")
	busiest.State = 'x'
	again, err := look.JVMs(t.Context(), h, to)
	if err != nil || again.List[0].VM == busiest || again.List[0].VM.State == 'x' ||
		again.List[0].VM.PID != busiest.PID {
		t.Errorf("asked again: %+v, %v", again.List, err)
	}
	idle := found.List[1].VM.PID
	h, to = target(t, idle)
	found, err = (&find.Look{}).JVMs(t.Context(), h, to)
	if err != nil || len(found.List) != 1 || found.List[0].VM.PID != idle {
		t.Errorf("the one that is named: %+v, %v", found, err)
	}
}

// TestNone: a program that is not a JVM is not found. A process that cannot be looked into may be a JVM.
func TestNone(t *testing.T) {
	testenv.Need(t, testenv.Root)
	h, to := target(t, os.Getpid())
	found, err := (&find.Look{}).JVMs(t.Context(), h, to)
	if err != nil || len(found.List) != 0 {
		t.Errorf("found %+v, %v", found, err)
	}
	young := exec.Command("sleep", "60")
	young.Args[0] = "java"
	dir := t.TempDir()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sleep, filepath.Join(dir, "java")); err != nil {
		t.Fatal(err)
	}
	young.Path = filepath.Join(dir, "java") // its name is that of the file
	if err := young.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = young.Process.Kill(); _ = young.Wait() })
	h, to = target(t, young.Process.Pid)
	_, err = (&find.Look{}).JVMs(t.Context(), h, to)
	if r, ok := errors.AsType[*jvm.Refusal](err); !ok || r.Cause != jvm.Starting {
		t.Errorf("a java without its virtual machine: %v", err)
	}
}
