package asprof_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/asprof"
	"github.com/perfdoctor/perfdoctor/internal/collectors/find"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/jvm/asprof/library"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// busyJVM starts internal/jvm/asprof's program with two busy threads, below a shell if sh is set, and returns the pid
// of the process it started.
func busyJVM(t *testing.T, sh bool) int {
	t.Helper()
	return startBusy(t, func(args []string) []string {
		if sh {
			return []string{"sh", "-c", strings.Join(args, " ") + "; true"}
		}
		return args
	})
}

// secret is among the arguments and the system properties of the JVM.
const secret = "never-to-be-recorded"

// startBusy starts the program with the command that how makes of its own.
func startBusy(t *testing.T, how func(args []string) []string) int {
	t.Helper()
	testenv.Need(t, testenv.Java, testenv.Tool("javac"), testenv.Tool("mvn"))
	if _, err := library.Bundled(); err != nil {
		t.Fatalf("%v, though there is Maven: run `make bundle`", err)
	}
	dir := t.TempDir()
	out, err := exec.Command("javac", "-d", dir, "../../../testdata/java/Busy.java").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	args := how([]string{"java", "-Xmx256m", "-Dshop.password=" + secret, "-cp", dir, "Busy", "2", "5"})
	child := testenv.StartChild(t, exec.Command(args[0], args[1:]...))
	child.Ready(t)
	return child.PID
}

// record runs the collector on a process for two seconds.
func record(t *testing.T, pid int, o asprof.Options) *recording.Recording {
	t.Helper()
	return recordFor(t, 2*time.Second, pid, o)
}

func recordFor(t *testing.T, window time.Duration, pid int, o asprof.Options) *recording.Recording {
	t.Helper()
	h := host.Local()
	target, err := h.Resolve(t.Context(), host.Selector{PID: pid})
	must(t, err)
	// A collector that always has a sample, because a run without any is an error.
	clock := collect.Collector{
		Name: "clock", Provides: []metric.Metric{metric.Uptime},
		Open: func(context.Context, collect.Env) (collect.Source, error) {
			return collect.SourceFunc(func(_ context.Context, a *recording.Appender) error {
				a.Gauge(metric.Uptime, 1)
				return nil
			}), nil
		},
	}
	rec, err := collect.Run(t.Context(), collect.Options{
		Env: collect.Env{Host: h, Target: target}, Collectors: append(asprof.Collectors(&find.Look{}, o), clock),
		Interval: 500 * time.Millisecond, Duration: window,
	})
	must(t, err)
	return rec
}

func TestProfiles(t *testing.T) {
	for name, sh := range map[string]bool{"process": false, "child of the process": true} {
		t.Run(name, func(t *testing.T) {
			rec := record(t, busyJVM(t, sh), asprof.Options{})
			for _, c := range rec.Meta.Collectors {
				if c.Status != recording.StatusOK {
					t.Fatalf("%+v", c)
				}
			}
			cpu := profile(t, rec, stacks.CPU)
			// On a shared machine the threads wait for the CPUs. TestAgreesWithFlat checks how much they then get.
			if busy := time.Duration(cpu.Total().Value); busy < cpu.Duration/20 || busy > 5*cpu.Duration/2 {
				t.Errorf("two busy threads on %v of CPU time in %v", busy, cpu.Duration)
			}
			if !strings.Contains(cpu.Engine, "async-profiler "+library.Version) || cpu.Interval != int64(
				asprof.DefaultInterval) {
				t.Errorf("engine %q, interval %d", cpu.Engine, cpu.Interval)
			}
			work := cpu.Inclusive(cpu.Set(func(f stacks.Frame) bool { return f.Name == "Busy.work" }))
			if share := float64(work.Value) / float64(cpu.Total().Value); share < 0.5 {
				t.Errorf("the working method has %.0f %% of the CPU samples", 100*share)
			}
			if alloc := profile(t, rec, stacks.Alloc); alloc.Total().Value < 10<<20 {
				t.Errorf("allocated %d bytes in two seconds", alloc.Total().Value)
			}
			wall := profile(t, rec, stacks.Wall)
			names := map[string]bool{}
			for _, thread := range wall.Threads {
				names[thread.Name] = true
			}
			for _, want := range []string{"busy-worker-with-a-long-name-0", "idle-3"} {
				if !names[want] {
					t.Errorf("no thread %s in the wall profile: %v", want, names)
				}
			}
			profile(t, rec, stacks.Lock)
		})
	}
}

// TestNoSecrets: what is kept of the profiler's own file contains neither the JVM's arguments nor its system
// properties.
func TestNoSecrets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "recording")
	must(t, record(t, busyJVM(t, false), asprof.Options{}).Save(dir))
	raw, err := os.ReadFile(filepath.Join(dir, "profiles/jvm.jfr"))
	must(t, err)
	for _, word := range []string{secret, "java.home", "shop.password"} {
		if bytes.Contains(raw, []byte(word)) {
			t.Errorf("%q is in the file", word)
		}
	}
	if !bytes.Contains(raw, []byte("Busy")) {
		t.Error("nothing of the program is in the file either")
	}
}

// TestAgreesWithFlat compares `go tool pprof -top` of the saved profile with async-profiler's own list of the same
// samples.
func TestAgreesWithFlat(t *testing.T) {
	testenv.Need(t, testenv.Tool("jcmd"), testenv.Tool("go"))
	pid := busyJVM(t, false)
	dir := filepath.Join(t.TempDir(), "recording")
	must(t, record(t, pid, asprof.Options{Events: []stacks.Event{stacks.CPU}}).Save(dir))
	out, err := exec.Command("go", "tool", "pprof", "-top", "-nodecount=30", filepath.Join(dir, "profiles/cpu.pb.gz")).
		Output()
	must(t, err)
	// "     4.27s 39.91% 39.91%      4.30s 40.19%  java.util.DualPivotQuicksort.sort"
	ours := shares(string(out), 1, 5)
	// " 4270642211 39.90% 0 java.util.DualPivotQuicksort.sort": the profiler keeps this until its next start.
	theirs := shares(flat(t, pid), 1, 3)
	if len(ours) < 5 || len(theirs) < 5 {
		t.Fatalf("pprof: %v\nasync-profiler: %v\n%s", ours, theirs, out)
	}
	for name, share := range theirs {
		if got := ours[name]; share > 2 && (got < share-1 || got > share+1) { // pprof leaves out what is small
			t.Errorf("%s: pprof says %v %%, async-profiler %v %%", name, got, share)
		}
	}
}

// flat lets async-profiler list the methods on top of the stacks of the last session.
func flat(t *testing.T, pid int) string {
	t.Helper()
	vm, err := jvm.Inspect(pid)
	must(t, err)
	if len(vm.Agents) != 1 || !vm.Agents[0].Own {
		t.Fatalf("libraries: %+v", vm.Agents)
	}
	file := filepath.Join(t.TempDir(), "flat.txt")
	options := strconv.Quote("dump,flat=30,quiet,file=" + file) // unquoted, jcmd would end it at the equals sign
	out, err := exec.Command("jcmd", strconv.Itoa(pid), "JVMTI.agent_load", vm.Agents[0].Path, options).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}

// shares reads lines with a percentage in column percent and a name in column name.
func shares(text string, percent, name int) map[string]float64 {
	list := map[string]float64{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) <= name {
			continue
		}
		if share, err := strconv.ParseFloat(strings.TrimSuffix(words[percent], "%"), 64); err == nil {
			list[strings.TrimSuffix(words[name], "_[k]")] = share // async-profiler's mark of a kernel function
		}
	}
	return list
}

func profile(t *testing.T, rec *recording.Recording, e stacks.Event) *stacks.Profile {
	t.Helper()
	p, ok := rec.Profile(e)
	if !ok {
		t.Fatalf("no %s profile: %+v", e, rec.Meta.Unsupported)
	}
	t.Logf("%s: %s, %+v, interval %d, %v, %d lost", e, p.Engine, p.Total(), p.Interval, p.Duration, p.Lost)
	return p
}

// TestNotProfiled has every reason that is not a failure, and every failure. Each is recorded for each metric.
func TestNotProfiled(t *testing.T) {
	pid := busyJVM(t, false)
	sleep := exec.Command("sleep", "60")
	must(t, sleep.Start())
	t.Cleanup(func() { sleep.Process.Kill(); sleep.Wait() })
	other := filepath.Join(t.TempDir(), "lib.so")
	must(t, os.WriteFile(other, []byte("no library"), 0o600))
	for _, tc := range []struct {
		name, want string
		pid        int
		options    asprof.Options
	}{
		{"off", "--no-jvm", pid, asprof.Options{Off: true}},
		{"no JVM", "no process of the target is a JVM", sleep.Process.Pid, asprof.Options{}},
		{"library missing", "no such file", pid, asprof.Options{Library: "/no/such.so"}},
		{"no library", "could not load", pid, asprof.Options{Library: other}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec := recordFor(t, time.Second, tc.pid, tc.options) // there is nothing to wait for
			for _, m := range []metric.Metric{metric.CPUProfileSamples, metric.LockProfileSamples} {
				if reason, _ := rec.Why(m); rec.Recorded(m) || !strings.Contains(reason, tc.want) {
					t.Errorf("%s: %q, want %q", m.Describe().Name, reason, tc.want)
				}
			}
		})
	}
	t.Run("host", func(t *testing.T) {
		h := host.Local()
		// as a killed run leaves it
		left := filepath.Join(os.TempDir(), ".perfdoctor-"+strings.Repeat("0", 32)+"-profile.jfr")
		must(t, os.WriteFile(left, nil, 0o600))
		src, err := asprof.Collectors(&find.Look{}, asprof.Options{})[0].Open(t.Context(),
			collect.Env{Host: h, Target: host.Target{Kind: host.KindHost}})
		must(t, err)
		a := recording.NewBuilder().Appender()
		must(t, src.Sample(t.Context(), a))
		if _, missing := a.Commit(); len(missing) != 5 || !strings.Contains(missing[0].Reason, "the whole host") {
			t.Errorf("%+v", missing)
		}
		if _, err := os.Stat(left); !os.IsNotExist(err) {
			t.Errorf("what a killed run left is still there: %v", err)
		}
	})
}

func TestOneEvent(t *testing.T) {
	rec := record(t, busyJVM(t, false), asprof.Options{
		Events:   []stacks.Event{stacks.Wall},
		Interval: 5 * time.Millisecond,
	})
	if p := profile(t, rec, stacks.Wall); p.Interval != int64(100*time.Millisecond) {
		t.Errorf("interval %d", p.Interval)
	}
	reason, remedy := rec.Why(metric.CPUProfileSamples)
	if rec.Recorded(metric.CPUProfileSamples) || !strings.Contains(reason, "left it out") ||
		!strings.Contains(remedy, "cpu") {
		t.Errorf("%q, %q", reason, remedy)
	}
}

// TestProbe: preflight loads nothing.
func TestProbe(t *testing.T) {
	pid := busyJVM(t, false)
	rec := recordFor(t, time.Second, pid, asprof.Options{Probe: true})
	if !rec.Recorded(metric.CPUProfileSamples) {
		t.Errorf("it says no: %+v", rec.Meta.Unsupported)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	must(t, err)
	if strings.Contains(string(maps), "perfdoctor") || strings.Contains(string(maps), "asyncProfiler") {
		t.Error("a library was loaded")
	}
}

// TestThreadIDs: the thread ids of a JVM in a pid namespace of its own are the host's.
func TestThreadIDs(t *testing.T) {
	testenv.Need(t, testenv.Root)
	outer := startBusy(t, func(args []string) []string {
		return append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"}, args...)
	})
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", outer, outer))
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	cpu := profile(t, record(t, pid, asprof.Options{}), stacks.CPU)
	workers := 0
	for _, thread := range cpu.Threads {
		if !strings.HasPrefix(thread.Name, "busy-worker") {
			continue
		}
		workers++
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", pid, thread.ID))
		if err != nil || !strings.HasPrefix(string(comm), "busy-worker") {
			t.Errorf("thread %+v is on the host %q, %v", thread, comm, err)
		}
	}
	if workers != 2 {
		t.Errorf("%d workers among %+v", workers, cpu.Threads)
	}
}
