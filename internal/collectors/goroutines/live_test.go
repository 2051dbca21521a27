package goroutines

import (
	"bufio"
	"debug/dwarf"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collect/collecttest"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// shop has goroutines that wait at each kind of place, one that runs, and a main that waits for its input.
const shop = `package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

var (
	room   = make(chan int, 1)
	mu     sync.Mutex
	orders = make(chan int)
)

//go:noinline
func send(n int) { room <- n; room <- n }

//go:noinline
func lock(n int) { mu.Lock() }

//go:noinline
func sleep(n int) { time.Sleep(time.Duration(n) * time.Hour) }

//go:noinline
func receive(n int) { <-orders }

//go:noinline
func spin(n int) {
	for {
		n++
	}
}

//go:noinline
func deep(n int) {
	if n > 0 {
		deep(n - 1)
	}
	<-orders
}

func main() {
	mu.Lock()
	go send(3)
	go lock(3)
	go sleep(3)
	go receive(3)
	go spin(3)
	go deep(200)
	time.Sleep(50 * time.Millisecond)
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
}
`

// toolchains are the go commands on this machine, by version: the one that runs the test, and others that it has
// fetched (make toolchains does).
func toolchains(t *testing.T) map[string]string {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.Tool("go"))
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{runtime.Version(): "go"}
	found, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)),
		"golang.org/toolchain@v0.0.1-go1.*."+runtime.GOOS+"-"+runtime.GOARCH+"/bin/go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range found {
		_, version, _ := strings.Cut(filepath.Base(filepath.Dir(filepath.Dir(command))), "-")
		version = strings.TrimSuffix(version, "."+runtime.GOOS+"-"+runtime.GOARCH)
		if _, err := layoutOf(version); err == nil { // else one of those that are not read
			all[version] = command
		}
	}
	return all
}

// build compiles the program and returns its path.
func build(t *testing.T, command string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "shop")
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(shop), 0o600); err != nil {
		t.Fatal(err)
	}
	args := slices.Concat([]string{"build"}, flags, []string{"-o", program, "main.go"})
	cmd := exec.CommandContext(t.Context(), command, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=local", "GOFLAGS=", "GO111MODULE=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s build: %v\n%s", command, err, out)
	}
	return program
}

// TestLayout compares what is known of each version with what its compiler writes for debuggers.
func TestLayout(t *testing.T) {
	for version, command := range toolchains(t) {
		t.Run(version, func(t *testing.T) {
			want, err := layoutOf(version)
			if err != nil {
				t.Fatal(err)
			}
			f, err := elf.Open(build(t, command))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			g, gobuf := fields(t, f, "runtime.g"), fields(t, f, "runtime.gobuf")
			sched := g["sched"]
			got := layout{
				frame: sched + gobuf["bp"], inCall: g["syscallsp"], inCallFrame: g["syscallbp"],
				status: g["atomicstatus"], id: g["goid"], start: g["startpc"],
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(layout{})); diff != "" {
				t.Errorf("-known +in the program:\n%s", diff)
			}
			same := map[string][2]uint64{
				"sched.sp": {schedSP, sched + gobuf["sp"]}, "sched.pc": {schedPC, sched + gobuf["pc"]},
				"sched.g": {schedG, sched + gobuf["g"]}, "stack.hi": {stackEnd, g["stack"] + 8},
				"syscallpc": {want.inCall + 8, g["syscallpc"]},
			}
			for name, at := range same {
				if at[0] != at[1] {
					t.Errorf("%s is known at %d, and is at %d", name, at[0], at[1])
				}
			}
		})
	}
}

// fields returns where the fields of a structure are, according to the program's DWARF.
func fields(t *testing.T, f *elf.File, name string) map[string]uint64 {
	t.Helper()
	data, err := f.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	for r := data.Reader(); ; {
		e, err := r.Next()
		if err != nil || e == nil {
			t.Fatalf("%s: %v", name, err)
		}
		if e.Tag != dwarf.TagStructType || e.Val(dwarf.AttrName) != name {
			continue
		}
		kind, err := data.Type(e.Offset)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]uint64{}
		for _, field := range kind.(*dwarf.StructType).Field {
			out[field.Name] = uint64(field.ByteOffset)
		}
		return out
	}
}

// TestStacks reads the goroutines of programs of each version: whole, stripped, and built to lie anywhere.
func TestStacks(t *testing.T) {
	for version, command := range toolchains(t) {
		kinds := map[string][]string{"whole": nil, "stripped": {"-ldflags", "-s -w"}}
		if command == "go" { // it takes 10 s to compile everything that the program consists of
			kinds["pie"] = []string{"-buildmode=pie", "-ldflags", "-s -w"}
		}
		for name, flags := range kinds {
			t.Run(version+"/"+name, func(t *testing.T) { stacksOf(t, build(t, command, flags...)) })
		}
	}
}

func stacksOf(t *testing.T, program string) {
	t.Helper()
	pid := start(t, program)
	p, err := openProgram("/proc/"+strconv.Itoa(pid), pid, door.NewTableBudget())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	want := map[string]string{
		"main.send":    "runtime.gopark < runtime.chansend < runtime.chansend1 < main.send",
		"main.sleep":   "runtime.gopark < time.Sleep < main.sleep",
		"main.receive": "runtime.gopark < runtime.chanrecv < runtime.chanrecv1 < main.receive",
		"main.lock":    "runtime.gopark < … < main.lock",
		"main.deep":    "runtime.gopark < runtime.chanrecv < runtime.chanrecv1 < main.deep",
		"main.main":    "syscall.Syscall < … < main.main < runtime.main", // its input is a pipe
		"main.spin":    "runs",
	}
	got := map[string]string{}
	_, _, err = p.look(func(g *goroutine) {
		if g.state == runs || g.state == ready {
			got["main.spin"] = "runs"
			return
		}
		var all []string
		for _, f := range g.frames {
			all = append(all, f.Name)
		}
		if g.state == inCall && p.layout.inCallFrame == 0 {
			if diff := cmp.Diff([]string{"syscall.Syscall", "runtime.main"}, all); diff != "" {
				t.Errorf("a read before Go 1.23: -want +got:\n%s", diff)
			}
			got["main.main"] = want["main.main"]
			return
		}
		i := slices.IndexFunc(all, func(f string) bool { return strings.HasPrefix(f, "main.") })
		if i < 0 {
			t.Errorf("a goroutine in state %d is in %q", g.state, all)
			return
		}
		name, frames := all[i], all
		switch name {
		case "main.lock": // the functions between changed with Go 1.24
			frames = []string{frames[0], "…", name}
		case "main.main":
			frames = []string{frames[0], "…", name, frames[len(frames)-1]}
		case "main.deep":
			if len(frames) < maxDepth {
				t.Errorf("%d frames of a deep stack", len(frames))
			}
			frames = frames[:4]
		default: // before Go 1.22 a goroutine begins with a function without a name
			frames = frames[:i+1]
		}
		got[name] = strings.Join(frames, " < ")
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// start runs a program until the test ends, once it says that it is ready.
func start(t *testing.T, program string) (pid int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("it says %q: %v", line, err)
	}
	time.Sleep(10 * time.Millisecond) // main goes on to its read
	return cmd.Process.Pid
}

// TestProfile: each goroutine has the time of the window, and only one runs.
func TestProfile(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.Tool("go"))
	rec := collecttest.Once(t, open, start(t, build(t, "go", "-ldflags", "-s -w")), time.Second)
	if info := rec.Info(metric.GoRuntime); len(info) != 1 || info[0].Label("version") != runtime.Version() {
		t.Errorf("%v, want a program of %s", info, runtime.Version())
	}
	p, ok := rec.Profile(stacks.Goroutine)
	if !ok {
		t.Fatal("there is no profile")
	}
	took := map[string]time.Duration{}
	for _, s := range p.Samples {
		name := p.ThreadOf(s).Name
		if wrapper.MatchString(name) { // it ran whenever it was looked at
			name = "main.spin"
		}
		took[name] += time.Duration(s.Value)
		if runs := s.State == stacks.Running; runs != (name == "main.spin") {
			t.Errorf("%s runs: %v", name, runs)
		}
	}
	for _, name := range []string{"main.send", "main.lock", "main.sleep", "main.receive", "main.spin", "main.deep"} {
		if took[name] != p.Duration {
			t.Errorf("%s has %v of %v", name, took[name], p.Duration)
		}
	}
}

// TestNone: a program that is not in Go is reported as such.
func TestNone(t *testing.T) {
	testenv.Need(t, testenv.Root)
	cmd := exec.CommandContext(t.Context(), "cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil { // it returns once cat runs
		t.Fatal(err)
	}
	defer func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	}()
	rec := collecttest.Once(t, open, cmd.Process.Pid, time.Second)
	if !rec.Recorded(metric.GoRuntime) || len(rec.Info(metric.GoRuntime)) > 0 ||
		rec.Recorded(metric.GoroutineProfileSamples) {
		t.Errorf("programs in Go: %v", rec.Info(metric.GoRuntime))
	}
}
