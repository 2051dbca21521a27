package scripts

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// program computes in two functions until its input ends. One of them has three times as much to do. With "fork" its
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
elif sys.argv[1] == "contend":
    for _ in range(3): threading.Thread(target=work, daemon=True).start()
elif sys.argv[1] == "work":
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
if sys.argv[1] == "fork":
    os.kill(child, 9)
os._exit(0)
`

// start starts it below a command and returns the command's pid.
func start(t *testing.T, what string, under ...string) int {
	t.Helper()
	return startScript(t, program, "program.py", what, under, "python3")
}

// startScript runs a program in a file of that name, under other commands or none.
func startScript(t *testing.T, program, base, what string, under []string, command ...string) int {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.Tool(command[0]))
	file := filepath.Join(t.TempDir(), base)
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	args := slices.Concat(under, command, []string{file, what})
	child := testenv.StartChild(t, exec.Command(args[0], args[1:]...))
	child.Ready(t)
	return child.PID
}

// nodeProgram does the same in Node.js. Its smaller function runs in a worker, a thread with a heap of its own.
const nodeProgram = `const { Worker, isMainThread } = require('worker_threads');
function small(n) { let x = 0; while (n) x = (x * 31 + n--) % 65537; return x; }
function large(n) { let x = 0; while (n) x = (x * 31 + n--) % 65537; return x; }
function turn() {
  for (let i = 0; i < 50; i++) small(20000), large(60000);
  setTimeout(turn, 0);
}
const cell = new Int32Array(new SharedArrayBuffer(4));
function stand() { Atomics.wait(cell, 0, 0, 50); }
function run() { require('child_process').execFileSync('sleep', ['0.2']); }
function nested() { run(); setTimeout(nested, 1); }
function blocked() { stand(); setTimeout(blocked, 1); }
if (isMainThread) {
  console.log('ready');
  process.stdin.resume().on('end', () => process.exit(0));
  if (process.argv[2] === 'worker') new Worker(__filename);
  if (process.argv[2] === 'work') turn();
  if (process.argv[2] === 'blocked') blocked();
  if (process.argv[2] === 'nested') nested();
} else turn();
`

func startNode(t *testing.T, what string, under ...string) int {
	t.Helper()
	// What is inlined is its caller's.
	return startScript(t, nodeProgram, "program.js", what, under, "node", "--no-turbo-inlining")
}

// phpProgram does the same in PHP, until its input ends.
const phpProgram = `<?php
function small($n) { $x = 0; while ($n) $x = ($x * 31 + $n--) % 65537; return $x; }
function large($n) { $x = 0; while ($n) $x = ($x * 31 + $n--) % 65537; return $x; }
function turn() { small(20000); large(60000); }
function rest() { usleep(50000); }
echo "ready\n";
stream_set_blocking(STDIN, false);
for (; !feof(STDIN); fgets(STDIN)) $argv[1] === 'work' ? turn() : rest();
`

func startPHP(t *testing.T, what string, under ...string) int {
	t.Helper()
	return startScript(t, phpProgram, "program.php", what, under, "php")
}

// rubyProgram does the same in Ruby. Its other threads sleep, wait for an item and want a mutex.
const rubyProgram = `
def large(n)
  x = 0
  while n > 0
    x = (x * 31 + n) % 65537
    n -= 1
  end
  x
end
def little(n)
  x = 0
  while n > 0
    x = (x * 31 + n) % 65537
    n -= 1
  end
  x
end
def turn = loop { 50.times { little(20000); large(60000) } }
$stdout.sync = true
puts "ready"
case ARGV[0]
when "work" then Thread.new { turn }
when "contend" then 3.times { Thread.new { turn } }
when "rest"
  mutex = Mutex.new
  Thread.new { mutex.synchronize { sleep } }
  Thread.new { mutex.lock }
  Thread.new { Queue.new.pop }
  Thread.new { sleep 100 }
end
$stdin.read
`

func startRuby(t *testing.T, what string, under ...string) int {
	t.Helper()
	return startScript(t, rubyProgram, "program.rb", what, under, "ruby", "--disable-gems")
}

// record samples a target for a while, at least until it has used so many seconds of CPU time, and returns what the
// kernel counted meanwhile.
func record(t *testing.T, pid int, window time.Duration, busy float64) (
	rec *recording.Recording, used float64, err error,
) {
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
	for end := time.Now().Add(time.Minute); cpuTime(t, h, target)-before < busy && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
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

// TestShares: functions have the share of the CPU time that they use, and all of them have what the kernel counted. It
// tests a thread, a child that begins meanwhile, a process with ids in another namespace, and a worker.
func TestShares(t *testing.T) {
	inNamespace := []string{"unshare", "--pid", "--fork", "--mount-proc"}
	python := shareCase{start: start, small: "py::small:", large: "py::large:", file: "/program.py"}
	node := shareCase{start: startNode, small: "JS:small ", large: "JS:large ", file: "/program.js"}
	php := shareCase{start: startPHP, small: "PHP:small ", large: "PHP:large ", file: "/program.php"}
	ruby := shareCase{start: startRuby, small: "RUBY:little ", large: "RUBY:large ", file: "/program.rb"}
	for _, tc := range []struct {
		name, what string
		under      []string
		shareCase
	}{
		{"thread", "work", nil, python},
		{"child", "fork", nil, python},
		{"namespace", "work", inNamespace, python},
		{"Node", "work", nil, node},
		{"Node in a namespace", "work", inNamespace, node},
		{"worker of Node", "worker", nil, node},
		{"PHP", "work", nil, php},
		{"PHP in a namespace", "work", inNamespace, php},
		{"Ruby", "work", nil, ruby},
		{"Ruby in a namespace", "work", inNamespace, ruby},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // a share of what the program got
			tc.test(t, tc.start(t, tc.what, tc.under...))
		})
	}
}

// A shareCase is a program that has a small and a large function.
type shareCase struct {
	start              func(t *testing.T, what string, under ...string) int
	small, large, file string
}

func (c shareCase) test(t *testing.T, pid int) {
	t.Helper()
	// At 75 % and so many samples, less than 50 % occurs once in some thousand runs. On a busy machine there are fewer
	// samples.
	const enough, most = 40, 5
	sums := map[string]float64{}
	small, large, others, sampled, used, count := 0.0, 0.0, 0.0, 0.0, 0.0, int64(0)
	for try := 0; count < enough && try < most; try++ {
		rec, more, err := record(t, pid, 0, 2.5)
		if err != nil {
			t.Fatal(err)
		}
		p, ok := rec.Profile(stacks.Script)
		if !ok {
			t.Fatal("there is no profile")
		}
		used, sampled, count = used+more, sampled+float64(p.Total().Value)/1e9, count+p.Total().Count
		for _, s := range p.Samples {
			name, seconds := "", float64(s.Value)/1e9
			if len(s.Stack) > 0 { // else it runs no script at that moment
				name = p.Frames[s.Stack[0]].Name
			}
			sums[name] += seconds
			switch {
			case strings.HasPrefix(name, c.small) && strings.HasSuffix(name, c.file):
				small += seconds
			case strings.HasPrefix(name, c.large) && strings.HasSuffix(name, c.file):
				large += seconds
			default:
				others += seconds
			}
		}
	}
	if share := large / (small + large); count < enough || share < 0.5 || share > 0.95 {
		t.Errorf("large has %.2f of %d samples: %v", share, count, sums)
	}
	if others > 0.1*(small+large) {
		t.Errorf("%.2f s in other functions: %v", others, sums)
	}
	// Ticks, and what ran before and after.
	if math.Abs(sampled-used) > 0.1*used+0.05 {
		t.Errorf("samples of %.2f s, the kernel counted %.2f s", sampled, used)
	}
}

// TestIdle: an interpreter that does nothing has a profile without samples.
func TestIdle(t *testing.T) {
	rec, _, err := record(t, start(t, "sleep"), 300*time.Millisecond, 0)
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

// TestNone: a program that is not an interpreter is reported as such.
func TestNone(t *testing.T) {
	rec, _, err := record(t, os.Getpid(), 10*time.Millisecond, 0)
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

// TestWanting: of three threads that compute, one has the interpreter's lock and two want it. A thread that sleeps or
// waits for another thread wants nothing.
func TestWanting(t *testing.T) {
	for _, tc := range []struct {
		name, what  string
		start       func(t *testing.T, what string, under ...string) int
		least, most float64
	}{
		{"contend", "contend", start, 1.2, 2.2},
		{"work", "work", start, 0, 0.2},
		{"sleep", "sleep", start, 0, 0},
		{"contend in Ruby", "contend", startRuby, 1.2, 2.2},
		{"work in Ruby", "work", startRuby, 0, 0.2},
		{"rest in Ruby", "rest", startRuby, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const window = 2 * time.Second
			rec, _, err := record(t, tc.start(t, tc.what), window, 0)
			if err != nil {
				t.Fatal(err)
			}
			list := rec.Gauge(metric.ScriptLockWait)
			if len(list) != 1 {
				t.Fatalf("%d series, want one", len(list))
			}
			if n := list[0].Last() / window.Seconds(); n < tc.least || n > tc.most {
				t.Errorf("%.2f threads want the lock, want %v to %v", n, tc.least, tc.most)
			}
		})
	}
}

// TestWaitsOfPHP: a script that waits has the PHP function that waits, and its callers.
func TestWaitsOfPHP(t *testing.T) {
	const window = time.Second
	rec, _, err := record(t, startPHP(t, "rest"), window, 0)
	if err != nil {
		t.Fatal(err)
	}
	waited := time.Duration(0)
	p, _ := rec.Profile(stacks.ScriptWall)
	for _, s := range p.Samples {
		place := ""
		for _, frame := range s.Stack {
			name, _, _ := strings.Cut(p.Frames[frame].Name, " ")
			place += name + " "
		}
		if strings.HasSuffix(place, "nanosleep PHP:usleep PHP:rest PHP:{main} ") {
			waited += time.Duration(s.Value)
		} else {
			t.Errorf("it waits in %q", place)
		}
	}
	if waited < window/2 {
		t.Errorf("it waited %s of %s", waited, window)
	}
	if info := rec.Info(metric.ScriptRuntime); len(info) != 1 || !strings.HasPrefix(info[0].Label("runtime"), "PHP ") {
		t.Errorf("runtimes %v", info)
	}
}

// TestBlockedLoop: if an event loop waits in a handler, the functions are known, even if a loop for a child runs within
// it. If it waits for its events, there is nothing to report.
func TestBlockedLoop(t *testing.T) {
	const window = 3 * time.Second
	for what, want := range map[string]string{
		"blocked": "futex JS:stand JS:blocked ", "nested": "JS:run JS:nested ", "idle": "",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			rec, _, err := record(t, startNode(t, what), window, 0)
			if err != nil {
				t.Fatal(err)
			}
			places, waited := []string{}, time.Duration(0)
			if p, ok := rec.Profile(stacks.ScriptWall); ok {
				for _, s := range p.Samples {
					place := ""
					for _, frame := range s.Stack {
						name, _, _ := strings.Cut(p.Frames[frame].Name, " ")
						place += name + " "
					}
					places = append(places, place)
					if strings.Contains(place, want) {
						waited += time.Duration(s.Value)
					}
				}
			}
			if want == "" && len(places) > 0 || want != "" && waited < window/2 {
				t.Errorf("%s in %q, of %s; all: %q", waited, want, window, places)
			}
		})
	}
}
