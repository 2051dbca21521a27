package python_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/python"
)

// tasks has three requests, a task that has not begun, and ten that have ended. One request has a lock.
const tasks = `import asyncio, os, sys, threading

async def query():
    await asyncio.sleep(1000)

async def handle(lock):
    async with lock:
        await query()

async def nothing():
    pass

async def main():
    lock = asyncio.Lock()
    for _ in range(10):
        await asyncio.create_task(nothing())
    kept = [asyncio.create_task(handle(lock)) for _ in range(3)]
    never = nothing()
    await asyncio.sleep(0)
    print("ready", flush=True)
    await asyncio.gather(*kept)

def end():
    sys.stdin.read()
    os._exit(0)

threading.Thread(target=end, daemon=True).start()
asyncio.run(main())
`

// TestCoroutines finds the coroutines at an await, each with those that it awaits.
func TestCoroutines(t *testing.T) {
	for _, interpreter := range interpreters(t) {
		t.Run(filepath.Base(interpreter), func(t *testing.T) { testCoroutines(t, interpreter) })
	}
}

func testCoroutines(t *testing.T, interpreter string) {
	if filepath.Base(interpreter) == "python3.6" {
		return // asyncio.run() came with 3.7
	}
	pid, file := startScript(t, interpreter, tasks)
	p, err := python.Open("/proc/"+strconv.Itoa(pid), pid)
	if err != nil || !p.KnowsCoroutines() {
		if filepath.Base(interpreter) != "python3.7" { // which is not read
			t.Fatalf("coroutines are not known: %v", err)
		}
		return
	}
	var got []string
	for range 100 { // until the last await
		list, whole, err := p.Coroutines()
		if err != nil || !whole {
			t.Fatalf("whole: %v, %v", whole, err)
		}
		got = nil
		for _, c := range list {
			var calls []string
			for _, call := range c.Calls {
				at := filepath.Base(call.File)
				if call.File == file {
					at = strconv.Itoa(call.Line)
				}
				calls = append(calls, call.Function+" "+at)
			}
			got = append(got, strings.Join(calls, " < "))
		}
		if slices.Contains(got, "main 21") {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	slices.Sort(got)
	const waits = "Lock.acquire locks.py < _ContextManagerMixin.__aenter__ mixins.py < handle 7"
	waiting := func(s string) bool {
		return strings.Contains(s, "acquire locks.py") && strings.HasSuffix(s, "< handle 7")
	}
	for i, s := range got {
		if waiting(s) { // its class is another one by version, or unknown
			got[i] = waits
		}
	}
	if diff := cmp.Diff([]string{waits, waits, "main 21", "sleep tasks.py < query 4 < handle 8"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// hostile fills memory with the address of the type. The search takes each for a coroutine.
const hostile = `import struct, sys, types

trap = struct.pack("<Q", id(types.CoroutineType)) * 1_000_000
print("ready", flush=True)
sys.stdin.read()
`

// TestHostileCoroutines: a search of memory that looks like coroutines everywhere ends, and says that it is incomplete.
func TestHostileCoroutines(t *testing.T) {
	for _, interpreter := range interpreters(t) {
		pid, _ := startScript(t, interpreter, hostile)
		p, err := python.Open("/proc/"+strconv.Itoa(pid), pid)
		if err != nil || !p.KnowsCoroutines() {
			continue
		}
		if list, whole, err := p.Coroutines(); err != nil || whole || len(list) > 0 {
			t.Errorf("%s: %d coroutines, whole: %v, %v", interpreter, len(list), whole, err)
		}
	}
}

// switched has three greenlets that were switched away from, one that has ended, and one that has not begun.
const switched = `import greenlet, sys

def inner():
    hub.switch()

def handle():
    inner()

hub = greenlet.getcurrent()
ended = greenlet.greenlet(lambda: None)
ended.switch()
never = greenlet.greenlet(handle)
waiting = [greenlet.greenlet(handle) for _ in range(3)]
for g in waiting:
    g.switch()
print("ready", flush=True)
sys.stdin.read()
`

// TestGreenlets finds the greenlets that were switched away from, and not the one that runs.
func TestGreenlets(t *testing.T) {
	tried := 0
	for _, interpreter := range interpreters(t) {
		if exec.Command(interpreter, "-c", "import greenlet").Run() != nil {
			continue
		}
		tried++
		t.Run(filepath.Base(interpreter), func(t *testing.T) { testGreenlets(t, interpreter) })
	}
	if tried == 0 {
		t.Skip("no Python here has greenlets (python3-greenlet)")
	}
}

func testGreenlets(t *testing.T, interpreter string) {
	pid, file := startScript(t, interpreter, switched)
	p, err := python.Open("/proc/"+strconv.Itoa(pid), pid)
	if err != nil || !p.HasGreenlets() {
		t.Fatalf("greenlets are not known: %v", err)
	}
	list, whole, err := p.Greenlets()
	if err != nil || !whole {
		t.Fatalf("whole: %v, %v", whole, err)
	}
	got := [][]python.Call{}
	for _, g := range list {
		got = append(got, g.Calls)
	}
	one := []python.Call{{"inner", file, 4}, {"handle", file, 7}}
	if diff := cmp.Diff([][]python.Call{one, one, one}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
