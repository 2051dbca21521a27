package threadstates

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect/collecttest"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// TestWaits: each thread of a real program waits for one thing, in a wait that began before the first look.
func TestWaits(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.Tool("python3"))
	program := testenv.StartChild(t, exec.Command("python3", "testdata/waits.py"))
	var port, silent, stuck, child int
	var locked string
	if _, err := fmt.Fscan(program.Out, &port, &silent, &stuck, &child, &locked); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // until the buffers are full
	const window = time.Second
	rec := collecttest.Once(t, open, program.PID, window)

	var got []string
	for _, s := range rec.Gauge(metric.ThreadStillTime) {
		if s.Last() < 0.8*window.Seconds() {
			t.Errorf("%v stood still for %v", s.Labels, s.Last())
		}
		got = append(got, strings.TrimSpace(s.Label("for")+" "+s.Label("on")))
	}
	slices.Sort(got)
	for _, want := range []string{
		fmt.Sprintf("answer 127.0.0.1:%d", port), fmt.Sprintf("request :%d", port), fmt.Sprintf("client :%d", port),
		fmt.Sprintf("answer 127.0.0.1:%d", silent), fmt.Sprintf("room 127.0.0.1:%d", port),
		fmt.Sprintf("lock %s held by pid %d (python3)", locked, program.PID),
		fmt.Sprintf("child pid %d (sleep)", child), fmt.Sprintf("pipe pid %d (sleep)", stuck), "sleep", "events",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no thread waits for %q; they wait for %s", want, strings.Join(got, ", "))
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(got), func(s string) bool { return s != "events" })); n != 1 {
		t.Errorf("%d threads wait for events, want one: select of no descriptor is a sleep", n)
	}
	if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "futex ") }) {
		t.Errorf("no thread waits for a futex: %s", strings.Join(got, ", "))
	}
}

// TestManyThreads: if there are more threads than a pass looks at, the times cover all of them, to the end of the
// window.
func TestManyThreads(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.Tool("python3"))
	const threads = 1500
	program := testenv.StartChild(t, exec.Command("python3", "-c", fmt.Sprintf(`
import sys, threading, time
threading.stack_size(65536)
for i in range(%d): threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
print(0, flush=True)
sys.stdin.read()`, threads)))
	var started int
	if _, err := fmt.Fscan(program.Out, &started); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	rec := collecttest.Once(t, open, program.PID, 1500*time.Millisecond)
	window, total := time.Since(began).Seconds(), 0.0
	for _, s := range rec.Gauge(metric.ThreadStateTime) {
		total += s.Last()
	}
	if want := (threads + 1) * window; total < 0.95*want || total > want {
		t.Errorf("%v s of %d threads in %v s", total, threads+1, window)
	}
}
