package symbols

import (
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
	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/host/unwind"
	"github.com/perfdoctor/perfdoctor/internal/kernel/syscalls"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// sleeper sleeps in a function of its own.
const sleeper = `#include <stdio.h>
#include <unistd.h>

__attribute__((noipa)) int audit(int n) { return sleep(n) + 1; }

int main(void)
{
	puts("ready");
	fflush(stdout);
	return audit(60) + 1;
}
`

// TestWalker: the stack of a program without frame pointers has its functions, even if they get their names after the
// program has ended.
func TestWalker(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.Tool("gcc"))
	dir := t.TempDir()
	source, program := filepath.Join(dir, "sleeper.c"), filepath.Join(dir, "sleeper")
	check(t, os.WriteFile(source, []byte(sleeper), 0o600))
	build := exec.Command("gcc", "-O2", "-fomit-frame-pointer", "-o", program, source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	pid, _ := started(t, program)
	w := NewWalker("/proc")
	defer w.Close()
	list := walked(t, w, pid)
	own := func(s *Symbolizer) (names []string) {
		defer s.Close()
		for _, f := range s.UserStack(pid, list) {
			if f.Module == "sleeper" && !strings.HasPrefix(f.Name, "_") {
				names = append(names, f.Name)
			}
		}
		return names
	}
	want := []string{"audit", "main"}
	if diff := cmp.Diff(want, own(New("/proc", nil))); diff != "" {
		t.Errorf("while it runs: -want +got:\n%s", diff)
	}
	none := t.TempDir() // a procfs of no process
	if got := New(none, nil).UserFrames(pid, list[0])[0]; got.Name != stacks.Unnamed {
		t.Errorf("the walker gives names that were not learnt of it: %+v", got)
	}
	for what, ended := range map[string][]uint32{"it has ended": {pid}, "it ends after the list of those": nil} {
		after := New(none, nil)
		after.Learn(w, ended)
		if diff := cmp.Diff(want, own(after)); diff != "" {
			t.Errorf("when %s: -want +got:\n%s", what, diff)
		}
	}
}

// walked returns the stack of a process that sleeps.
func walked(t *testing.T, w *Walker, pid uint32) []uint64 {
	t.Helper()
	dir, stack := fmt.Sprintf("/proc/%d", pid), make([]byte, 16<<10)
	for began := time.Now(); time.Since(began) < 5*time.Second; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(dir + "/syscall")
		check(t, err)
		e, err := syscalls.Parse(text)
		if err != nil || e.Running || !slices.Contains([]string{"nanosleep", "clock_nanosleep"}, e.Name) {
			continue
		}
		n, _ := door.MemoryOf(dir).ReadAt(stack, int64(e.SP)) // it ends where the stack does
		list, whole, err := w.Walk(pid, unwind.Registers{PC: e.PC, SP: e.SP, OnlySP: true}, stack[:n])
		if err != nil || !whole {
			t.Fatalf("%d addresses, to the outermost function: %v, %v", len(list), whole, err)
		}
		return list
	}
	t.Fatal("it does not sleep")
	return nil
}
