package scripts

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// program computes, in two functions of which one has three times as much to do, until its input ends. With "fork" its
// child does so, after a while; with "sleep" nobody does.
const program = `import os, sys, threading, time

def small(n):
    while n: n -= 1

def large(n):
    while n: n -= 1

def work():
    while True:
        small(20000)
        large(60000)

def later():
    time.sleep(0.3)
    work()

if sys.argv[1] == "fork":
    child = os.fork()
    if child == 0:
        later()
elif sys.argv[1] == "work":
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
if sys.argv[1] == "fork":
    os.kill(child, 9)
os._exit(0)
`

// start starts it below a command, and gives the command's pid.
func start(t *testing.T, what string, under ...string) int {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.Tool("python3"))
	file := filepath.Join(t.TempDir(), "program.py")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(under, "python3", file, what)
	child := testenv.StartChild(t, exec.Command(args[0], args[1:]...))
	child.Ready(t)
	return child.PID
}

// record samples a target for a while, and says what the kernel counted of it meanwhile.
func record(t *testing.T, pid int, window time.Duration) (rec *recording.Recording, used float64, err error) {
	t.Helper()
	h := host.Local()
	target, err := h.Resolve(t.Context(), host.Selector{PID: pid})
	if err != nil {
		t.Fatal(err)
	}
	before := cpuTime(t, h, target)
	src, err := open(t.Context(), collect.Env{Host: h, Target: target})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	time.Sleep(window)
	b := recording.NewBuilder()
	a := b.Appender()
	err = src.Sample(t.Context(), a)
	used = cpuTime(t, h, target) - before
	a.Commit()
	return b.Done(recording.Meta{}), used, err
}

func cpuTime(t *testing.T, h *host.Host, target host.Target) (seconds float64) {
	t.Helper()
	members, err := h.Members(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		seconds += float64(m.UTime+m.STime) / float64(h.Facts().UserHZ)
	}
	return seconds
}

// TestShares: functions have the share of the CPU time that they use, and all of them what the kernel counted: of a
// thread, of a child that begins meanwhile, and of a process whose ids are those of another namespace.
func TestShares(t *testing.T) {
	for _, tc := range []struct {
		name, what string
		under      []string
	}{
		{"thread", "work", nil},
		{"child", "fork", nil},
		{"namespace", "work", []string{"unshare", "--pid", "--fork", "--mount-proc"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec, used, err := record(t, start(t, tc.what, tc.under...), 3*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			p, ok := rec.Profile(stacks.Script)
			if !ok {
				t.Fatal("there is no profile")
			}
			sums := map[string]float64{}
			for _, s := range p.Samples {
				sums[p.Frames[s.Stack[0]].Name] += float64(s.Value) / 1e9
			}
			all := p.Total()
			small, large := 0.0, 0.0
			for name, sum := range sums {
				if !strings.HasSuffix(name, "/program.py") {
					t.Errorf("function %s", name)
				}
				if strings.HasPrefix(name, "py::small:") {
					small = sum
				}
				if strings.HasPrefix(name, "py::large:") {
					large = sum
				}
			}
			// 75 %, of 40 samples and more: less than 50 % is once in some thousand runs.
			if share := large / (small + large); all.Count < 40 || share < 0.5 || share > 0.95 {
				t.Errorf("large has %.2f of %d samples: %v", share, all.Count, sums)
			}
			// Ticks, and what ran before and after.
			if sum := float64(all.Value) / 1e9; math.Abs(sum-used) > 0.1*used+0.05 {
				t.Errorf("samples of %.2f s, the kernel counted %.2f s", sum, used)
			}
		})
	}
}

// TestIdle: an interpreter that does nothing has a profile without samples.
func TestIdle(t *testing.T) {
	rec, _, err := record(t, start(t, "sleep"), 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := rec.Profile(stacks.Script)
	if !ok || len(p.Samples) != 0 {
		t.Errorf("profile %+v, %v", p, ok)
	}
	info := rec.Info(metric.ScriptRuntime)
	if len(info) != 1 || !strings.HasPrefix(info[0].Label("runtime"), "CPython 3.") {
		t.Errorf("runtimes %v", info)
	}
}

// TestNone: of another program it says that there is no interpreter.
func TestNone(t *testing.T) {
	rec, _, err := record(t, os.Getpid(), 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if !rec.Recorded(metric.ScriptRuntime) || len(rec.Info(metric.ScriptRuntime)) > 0 {
		t.Errorf("runtimes %v", rec.Info(metric.ScriptRuntime))
	}
	if _, ok := rec.Profile(stacks.Script); ok || rec.Recorded(metric.ScriptProfileSamples) {
		t.Error("there is a profile")
	}
}
