package waitstacks

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collect/collecttest"
	"github.com/perfdoctor/perfdoctor/internal/collectors/dotnet"
	"github.com/perfdoctor/perfdoctor/internal/collectors/dotnet/dotnettest"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// waiters has one thread that sleeps, and one that waits for a lock that the first holds.
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

// TestWaitStacks: threads of a program without frame pointers have the stacks of their waits.
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
	p := profileOf(t, cmd.Process.Pid, stacks.Waits, time.Second)
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
func profileOf(t *testing.T, pid int, event stacks.Event, d time.Duration) *stacks.Profile {
	t.Helper()
	opened := func(ctx context.Context, env collect.Env) (collect.Source, error) {
		return open(ctx, env, &dotnet.Names{})
	}
	p, ok := collecttest.Once(t, opened, pid, d).Profile(event)
	if !ok {
		t.Fatal("there is no profile")
	}
	return p
}

// desk has a thread that sleeps with a lock, one that waits for that lock, and one that runs at times.
const desk = `
using System;
using System.Runtime.CompilerServices;
using System.Threading;

class Desk {
	static object seats = new object();
	static int rests;
	// The runtime's own Sleep may keep no frame pointer, so that its caller is not seen. A method with a finally has one.
	[MethodImpl(MethodImplOptions.NoInlining)]
	static void Rest(int ms) { try { Thread.Sleep(ms); } finally { rests++; } }
	static void Audit() { lock (seats) { Console.WriteLine("ready"); Rest(60000); } }
	static void Book() { lock (seats) { Console.WriteLine("booked"); } }
	static void Count() {
		for (var chance = new Random(1);;) { // in no step with the sampling
			var end = DateTime.UtcNow.AddMilliseconds(chance.Next(5, 40));
			while (DateTime.UtcNow < end) { }
			Rest(chance.Next(5, 40));
		}
	}
	static void Run(ThreadStart work) {
		var t = new Thread(work);
		t.IsBackground = true;
		t.Start();
	}
	static void Main() {
		Run(Audit);
		Thread.Sleep(200);
		Run(Book);
		Run(Count);
		Console.In.ReadToEnd();
	}
}
`

// TestDotNet: threads of .NET wait in their methods. The functions of the runtime say for what.
func TestDotNet(t *testing.T) {
	testenv.Need(t, testenv.Root)
	child := dotnettest.Start(t, desk)
	time.Sleep(400 * time.Millisecond)
	// The first look reads the tables of the runtime. The next looks wait until that is a small share.
	p := profileOf(t, child.PID, stacks.ScriptWall, 5*time.Second)
	got := map[string]time.Duration{}
	for _, s := range p.Samples {
		does := map[stacks.State]string{stacks.Running: "runs"}[s.State]
		outermost := ""
		for _, i := range s.Stack {
			switch name := p.Frames[i].Name; {
			case name == "AwareLock::Enter":
				does = "wants a lock"
			case name == "Thread::UserSleep":
				does = "sleeps"
			case strings.HasPrefix(name, "Desk."):
				outermost = name
			}
		}
		got[outermost+" "+does] += time.Duration(s.Value)
	}
	for _, want := range []string{"Desk.Audit sleeps", "Desk.Book wants a lock"} {
		if got[want] != p.Duration {
			t.Errorf("%s for %v of %v: %v", want, got[want], p.Duration, got)
		}
	}
	if ran, slept := got["Desk.Count runs"], got["Desk.Count sleeps"]; ran < p.Duration/10 || slept < p.Duration/10 {
		t.Errorf("what runs half the time ran %v and slept %v: %v", ran, slept, got)
	}
}
