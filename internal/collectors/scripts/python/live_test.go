package python_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/python"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// script has a thread that computes, one that sleeps in a method, and a main thread that waits for its input.
const script = `import sys, threading, time

class Shop:
    def cart(self, n):
        # a line
        # between
        time.sleep(n)

def größe(n):
    total = 0
    while True:
        for i in range(n):
            total = total * 31 + i & 0xffffffff

def outer(): größe(1000)

for work in (outer, lambda: Shop().cart(1000)):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
`

var named = regexp.MustCompile(`^python3\.[0-9]+$`)

// interpreters are those of this machine: python3, and others beside it by name (python3.8), as pyenv and Debian name
// them.
func interpreters(t *testing.T) []string {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.Tool("python3"))
	found := map[string]bool{}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), pyenv()...) {
		programs, err := filepath.Glob(filepath.Join(dir, "python3*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range programs {
			program, err := filepath.EvalSymlinks(p)
			if err == nil && named.MatchString(filepath.Base(program)) && exec.Command(program, "-V").Run() == nil {
				found[program] = true
			}
		}
	}
	var out []string
	for p := range found {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// pyenv lists the directories in which pyenv keeps interpreters that are not in the PATH.
func pyenv() []string {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	dirs, err := filepath.Glob(filepath.Join(home, ".pyenv/versions/3.*/bin"))
	if err != nil {
		return nil
	}
	return dirs
}

func startScript(t *testing.T, interpreter, script string) (pid int, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "lädt.py")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	child := testenv.StartChild(t, exec.Command(interpreter, file))
	child.Ready(t)
	return child.PID, file
}

// TestStacks reads the threads of every interpreter of this machine. Names, files and lines are the script's.
func TestStacks(t *testing.T) {
	for _, interpreter := range interpreters(t) {
		t.Run(filepath.Base(interpreter), func(t *testing.T) { testStacks(t, interpreter) })
	}
}

// open opens a process; nil if its interpreter is too old.
func open(t *testing.T, interpreter string, pid int) *python.Process {
	t.Helper()
	p, err := python.Open("/proc/"+strconv.Itoa(pid), pid)
	if err == nil {
		return p
	}
	switch v := filepath.Base(interpreter); {
	case v == "python3.6" && errors.Is(err, python.ErrNone):
	case v == "python3.7" && strings.Contains(err.Error(), "CPython 3.7 is not known"):
	default:
		t.Fatal(err)
	}
	return nil
}

func testStacks(t *testing.T, interpreter string) {
	pid, file := startScript(t, interpreter, script)
	p := open(t, interpreter, pid)
	if p == nil {
		return
	}
	if want := strings.TrimPrefix(filepath.Base(interpreter), "python"); p.Version.String() != want {
		t.Errorf("version %s, want %s", p.Version, want)
	}
	atRest(t, p, pid)
	method, hot := "cart", map[int]int{}
	if p.Version.Minor >= 11 {
		method = "Shop.cart"
	}
	changed := 0
	const looks = 200
	for range looks {
		threads, err := p.Threads(func(id int) bool { return alive(pid, id) })
		if err != nil || len(threads) != 3 {
			t.Fatalf("threads %+v, %v", threads, err)
		}
		for _, thread := range threads {
			if !alive(pid, thread.ID) {
				t.Errorf("thread %d is none of the process", thread.ID)
			}
			calls, err := p.Stack(thread)
			switch {
			case errors.Is(err, python.ErrChanged):
				changed++
			case err != nil || len(calls) == 0:
				t.Fatalf("stack %v, %v", calls, err)
			case thread.ID == pid:
				if diff := cmp.Diff([]python.Call{{"<module>", file, 20}}, calls); diff != "" {
					t.Error(diff)
				}
			case calls[0].Function == method:
				lambda := calls[1]
				if calls[0].Line != 7 || calls[0].File != file || lambda.Function != "<lambda>" || lambda.Line != 17 {
					t.Errorf("stack %v", calls)
				}
			case calls[0].Function == "größe" && calls[1] == python.Call{"outer", file, 15}:
				hot[calls[0].Line]++
			default:
				t.Errorf("stack %v", calls)
			}
		}
		time.Sleep(time.Millisecond)
	}
	if hot[13] < looks/2 || hot[13]+hot[12] < looks*9/10 || changed > looks/10 {
		t.Errorf("lines of the busy function: %v, changed %d", hot, changed)
	}
}

// TestForked: a process that was forked without the interpreter's knowledge, as uWSGI does, has its own thread and no
// other.
func TestForked(t *testing.T) {
	const script = `
import ctypes, os, signal, sys
child = ctypes.PyDLL(None).fork()
if child:
    sys.stdin.read()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
else:
    print("ready", flush=True)
    while True: signal.pause()
`
	for _, interpreter := range interpreters(t) {
		t.Run(filepath.Base(interpreter), func(t *testing.T) {
			parent, file := startScript(t, interpreter, script)
			pid := strconv.Itoa(parent)
			children, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
			if err != nil {
				t.Fatal(err)
			}
			child, err := strconv.Atoi(strings.TrimSpace(string(children)))
			if err != nil {
				t.Fatal(err)
			}
			p := open(t, interpreter, child)
			if p == nil {
				return
			}
			threads, err := p.Threads(func(id int) bool { return id == child })
			if err != nil || len(threads) != 1 || threads[0].ID != child {
				t.Fatalf("threads %+v, %v; the process is %d", threads, err, child)
			}
			want := []python.Call{{Function: "<module>", File: file, Line: 10}}
			var calls []python.Call
			for range 200 { // it has yet to come to its last line
				if calls, err = p.Stack(threads[0]); err == nil && slices.Equal(calls, want) {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Errorf("%v, %v, want %v", calls, err, want)
		})
	}
}

// atRest waits until the threads are where they stay.
func atRest(t *testing.T, p *python.Process, pid int) {
	t.Helper()
	for range 500 {
		time.Sleep(10 * time.Millisecond)
		threads, err := p.Threads(func(id int) bool { return alive(pid, id) })
		if err != nil {
			t.Fatal(err)
		}
		at := map[int]bool{}
		for _, thread := range threads {
			calls, err := p.Stack(thread)
			if err == nil && len(calls) > 0 {
				at[calls[0].Line] = true
			}
		}
		if at[20] && at[7] && len(at) == 3 { // of main, of the one that sleeps, and of the one that computes
			return
		}
	}
	t.Fatal("the script does not begin")
}

func alive(pid, tid int) bool {
	_, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid))
	return err == nil
}

// TestNone: another program is not an interpreter.
func TestNone(t *testing.T) {
	pid := os.Getpid()
	if _, err := python.Open("/proc/"+strconv.Itoa(pid), pid); !errors.Is(err, python.ErrNone) {
		t.Errorf("error %v", err)
	}
}
