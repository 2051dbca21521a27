package waitstacks

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collect/collecttest"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// waiters has one thread that sleeps, and one that waits for a lock that the first has.
const waiters = `#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t seats = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noipa)) int audit(int n) { return sleep(n) + 1; }
__attribute__((noipa)) int book(int n) { return pthread_mutex_lock(&seats) + n; }
__attribute__((noipa)) void *customer(void *arg) { book(1); return arg; }

int main(void)
{
	pthread_t other;

	pthread_mutex_lock(&seats);
	pthread_create(&other, 0, customer, 0);
	puts("ready");
	fflush(stdout);
	return audit(60) + 1;
}
`

// TestWaitStacks: threads of a program without frame pointers wait where they do.
func TestWaitStacks(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.Tool("gcc"))
	dir := t.TempDir()
	source, program := filepath.Join(dir, "waiters.c"), filepath.Join(dir, "waiters")
	if err := os.WriteFile(source, []byte(waiters), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "gcc", "-O2", "-fomit-frame-pointer", "-pthread", "-o", program, source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("it says %q: %v", line, err)
	}
	time.Sleep(50 * time.Millisecond)
	p := profileOf(t, cmd.Process.Pid)
	got := map[string]string{}
	for _, s := range p.Samples {
		var own []string
		for _, i := range s.Stack {
			if p.Frames[i].Module == "waiters" && !strings.HasPrefix(p.Frames[i].Name, "_") {
				own = append(own, p.Frames[i].Name)
			}
		}
		call, _, _ := strings.Cut(s.Class, " ")
		got[call] = strings.Join(own, " ← ")
		if took := time.Duration(s.Value); took != p.Duration {
			t.Errorf("%s has %v of %v", call, took, p.Duration)
		}
	}
	want := map[string]string{"clock_nanosleep": "audit ← main", "futex": "book ← customer"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// profileOf samples a process for a while.
func profileOf(t *testing.T, pid int) *stacks.Profile {
	t.Helper()
	p, ok := collecttest.Once(t, open, pid, time.Second).Profile(stacks.Waits)
	if !ok {
		t.Fatal("there is no profile")
	}
	return p
}
