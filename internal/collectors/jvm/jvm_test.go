package jvm

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/find"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/jvm/hsperf"
	"github.com/perfdoctor/perfdoctor/internal/jvm/jcmd"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// program collects when told to, with two threads in a deadlock and one with a long name.
const program = `
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
public class Program {
    public static void main(String[] args) throws Exception {
        Object x = new Object(), y = new Object();
        CountDownLatch both = new CountDownLatch(2);
        start("first-x-and-then-y", x, y, both);
        start("first-y-and-then-x", y, x, both);
        System.out.println("ready");
        for (int c; (c = System.in.read()) >= 0; ) {
            if (c == 'f') for (int i = 0; i < 36000; i++) kept.add(new Kept());
            for (int i = 0; i < (c == '1' ? 1 : 7); i++) System.gc();
            System.out.println("done");
        }
    }
    static class Kept { byte[] bytes = new byte[1024]; }
    static List<Kept> kept = new ArrayList<>();
    static void start(String name, Object a, Object b, CountDownLatch both) {
        Thread t = new Thread(() -> {
            synchronized (a) { both.countDown(); try { both.await(); } catch (InterruptedException e) { } synchronized (b) { } }
        }, name);
        t.setDaemon(true);
        t.start();
    }
}
`

type child struct {
	pid int
	in  io.Writer
	out *bufio.Reader
}

func startJava(t *testing.T, options ...string) *child {
	t.Helper()
	testenv.Need(t, testenv.Java)
	file := filepath.Join(t.TempDir(), "Program.java")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("java", append(options, file)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	c := &child{pid: cmd.Process.Pid, in: in, out: bufio.NewReader(out)}
	c.expect(t, "ready")
	return c
}

func (c *child) expect(t *testing.T, word string) {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != word {
		t.Fatalf("the JVM said %q, %v; want %q", line, err, word)
	}
}

func open(t *testing.T, pid int, n int) collect.Source {
	t.Helper()
	h := host.Local()
	target, err := h.Resolve(t.Context(), host.Selector{PID: pid})
	if err != nil {
		t.Fatal(err)
	}
	src, err := Collectors(&find.Look{})[n].Open(t.Context(), collect.Env{Host: h, Target: target})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	return src
}

func sample(t *testing.T, src collect.Source, b *recording.Builder) []recording.Missing {
	t.Helper()
	a := b.Appender()
	if err := src.Sample(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	lost, missing := a.Commit()
	if len(lost) > 0 {
		t.Errorf("lost %v", lost)
	}
	return missing
}

// TestCounts: seven full collections go in, seven come out, with their cost.
func TestCounts(t *testing.T) {
	c := startJava(t, "-XX:+UseSerialGC", "-Xmx64m")
	src, b := open(t, c.pid, 0), recording.NewBuilder()
	sample(t, src, b)
	fmt.Fprint(c.in, "x")
	c.expect(t, "done")
	sample(t, src, b)
	rec := b.Done(recording.Meta{})
	full := rec.Counter(metric.JVMGCs, "kind", "full")
	if len(full) != 1 {
		t.Fatalf("%d series of full collections", len(full))
	}
	if n, ok := full[0].Increase(); n != 7 || !ok {
		t.Errorf("%v full collections, %v", n, ok)
	}
	seconds, _ := rec.Counter(metric.JVMGCSeconds, "kind", "full")[0].Increase()
	stopped, _ := rec.Counter(metric.JVMSafepointSeconds)[0].Increase()
	if seconds <= 0 || stopped < seconds {
		t.Errorf("%v s in collections, %v s in safepoints", seconds, stopped)
	}
	if v := rec.Info(metric.JVMVersion)[0]; v.Label("collector") != "Serial" || v.Label("version") == "" {
		t.Errorf("version %v", v.Labels)
	}
	if v := rec.Info(metric.JVMGCCause, "cause", "System.gc()"); len(v) != 1 {
		t.Errorf("causes %v", rec.Info(metric.JVMGCCause))
	}
	if up := rec.Gauge(metric.JVMUptime)[0].Last(); up <= 0 || up > 600 {
		t.Errorf("up for %v s", up)
	}
}

// TestAnswers: a JVM's answers about its CPUs, flags, threads and deadlock.
func TestAnswers(t *testing.T) {
	c := startJava(t, "-XX:ActiveProcessorCount=3", "-XX:+UseParallelGC", "-XX:ParallelGCThreads=2", "-Xmx64m")
	src, b := open(t, c.pid, 1), recording.NewBuilder()
	for _, m := range sample(t, src, b) {
		t.Errorf("missing %+v", m)
	}
	rec := b.Done(recording.Meta{})
	if v := rec.Gauge(metric.JVMCPUs, "from", "ActiveProcessorCount"); len(v) != 1 || v[0].Last() != 3 {
		t.Errorf("CPUs %v", rec.Gauge(metric.JVMCPUs))
	}
	if v := rec.Info(metric.JVMFlag, "name", "ParallelGCThreads", "value", "2", "origin", "command line"); len(v) != 1 {
		t.Error("no flag ParallelGCThreads")
	}
	if v := rec.Info(metric.JVMDeadlock); len(v) != 2 || v[0].Label("holder") != v[1].Label("thread") ||
		!strings.HasPrefix(v[0].Label("at"), "Program.lambda$start$0(Program.java:") {
		t.Errorf("deadlock %v", v)
	}
	if v := rec.Info(metric.JVMThread, "name", "first-x-and-then-y"); len(v) != 1 {
		t.Error("no thread with its full name")
	} else if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/comm", c.pid, v[0].Label("tid"))); err != nil ||
		string(comm) != "first-x-and-the\n" {
		t.Errorf("the thread with that id is %q, %v", comm, err)
	}
	waiters := rec.Gauge(metric.JVMMonitorWaiters, "holder", "first-y-and-then-x")
	if len(waiters) != 1 || waiters[0].Last() != 1 || waiters[0].Label("class") != "java.lang.Object" {
		t.Errorf("waiters %v", rec.Gauge(metric.JVMMonitorWaiters))
	}
	if v := rec.Gauge(metric.JVMDumpSeconds); len(v) != 1 || v[0].Last() > 1 {
		t.Errorf("the dump took %v", v)
	}
	if v := rec.Gauge(metric.JVMCode, "kind", "size"); len(v) == 0 || v[0].Last() <= 0 {
		t.Errorf("code cache %v", v)
	}
	if !rec.Recorded(metric.JVMAgent) || len(rec.Info(metric.JVMAgent)) > 0 {
		t.Errorf("agents %v", rec.Info(metric.JVMAgent))
	}
}

// TestClasses: a heap that full collections leave full is asked what fills it. A heap with room is not.
func TestClasses(t *testing.T) {
	c := startJava(t, "-XX:+UseSerialGC", "-Xmx64m") // two thirds of it are the old generation
	for _, step := range []struct {
		what string
		kept float64 // objects
	}{{"1", 0}, {"f", 36000}} {
		src, b := open(t, c.pid, 1), recording.NewBuilder()
		fmt.Fprint(c.in, step.what)
		c.expect(t, "done")
		sample(t, src, b)
		rec := b.Done(recording.Meta{})
		if !rec.Recorded(metric.JVMClassBytes) {
			t.Errorf("%q: it is not said that nothing was asked", step.what)
		}
		got := rec.Gauge(metric.JVMClassObjects, "class", "Program$Kept")
		if (len(got) > 0) != (step.kept > 0) || len(got) > 0 && got[0].Last() != step.kept {
			t.Errorf("%q: objects kept %v, want %v", step.what, got, step.kept)
		}
	}
}

// TestNoCounters: each missing metric says why it is missing, and what would change that.
func TestNoCounters(t *testing.T) {
	c := startJava(t, "-XX:-UsePerfData", "-XX:+DisableAttachMechanism", "-Xmx64m")
	for n, want := range []string{"-XX:-UsePerfData", "-XX:+DisableAttachMechanism"} {
		src, b := open(t, c.pid, n), recording.NewBuilder()
		missing := sample(t, src, b)
		if len(missing) < len(answered()) {
			t.Errorf("%d metrics are missing", len(missing))
		}
		for _, m := range missing {
			if !strings.Contains(m.Reason, want) || m.Remedy == "" {
				t.Errorf("missing %+v, want %s", m, want)
			}
		}
	}
}

// TestNoJVM: without a JVM, that is a fact. Without a target, it is not known.
func TestNoJVM(t *testing.T) {
	src, b := open(t, os.Getpid(), 0), recording.NewBuilder()
	if missing := sample(t, src, b); len(missing) > 0 {
		t.Errorf("missing %v", missing)
	}
	if rec := b.Done(recording.Meta{}); !rec.Recorded(metric.JVMInfo) || len(rec.Info(metric.JVMInfo)) > 0 {
		t.Error("it is not said that there is no JVM")
	}
	_, err := openCounters(t.Context(), collect.Env{Host: host.Local(), Target: host.Target{Kind: host.KindHost}},
		&find.Look{})
	if status, _, remedy := collect.Classify(err); status != recording.StatusUnsupported || remedy == "" {
		t.Errorf("for the whole host: %v", err)
	}
}

func TestMajor(t *testing.T) {
	for version, want := range map[string]int{
		"17.0.15+6-Debian-1deb12u1": 17, "25.0.3+9-LTS": 25, "11.0.13+8": 11, "25.392-b08": 8, "21": 21,
		"21.0.1-beta+3": 21, "": 0, "x": 0,
	} {
		if got := major(version); got != want {
			t.Errorf("%q: %d, want %d", version, got, want)
		}
	}
}

func TestInnerID(t *testing.T) {
	if n, err := innerID("Name:\tx\nNSpid:\t4021\t17\nNSpgid:\t1\n"); n != 17 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, s := range []string{"", "Name:\tx\n", "\nNSpid:\t\n", "\nNSpid:\tx\n"} {
		if n, err := innerID(s); err == nil {
			t.Errorf("%q: %d", s, n)
		}
	}
}

// TestHolder: a thread in Object.wait has given up the monitor that its dump shows as locked.
func TestHolder(t *testing.T) {
	waits := jcmd.Thread{Name: "waits", Locks: []jcmd.Lock{{Use: jcmd.WaitingOn, Address: "0x1"}, {
		Use: jcmd.Held, Address: "0x1",
		Frame: 1,
	}}}
	holds := jcmd.Thread{
		Name: "holds", Locks: []jcmd.Lock{{Use: jcmd.Held, Address: "0x1", Frame: 1}},
		Frames: []jcmd.Frame{{Method: "in", Source: "A.java:1"}, {Method: "at", Source: "A.java:2"}},
	}
	holder, at, in := holderOf(jcmd.Dump{Threads: []jcmd.Thread{waits, holds}}, "0x1")
	if d := cmp.Diff([]string{"holds", "at(A.java:2)", "in(A.java:1)"}, []string{holder, at, in}); d != "" {
		t.Error(d)
	}
	if holder, _, _ := holderOf(jcmd.Dump{Threads: []jcmd.Thread{waits}}, "0x1"); holder != "" {
		t.Errorf("%s holds what it waits on", holder)
	}
}

func TestGCName(t *testing.T) {
	for want, texts := range map[string]map[string]string{
		"Serial": {"sun.gc.policy.name": "Copy:MSC"}, "Parallel": {"sun.gc.policy.name": "ParScav:MSC"},
		"G1": {"sun.gc.policy.name": "GarbageFirst"}, "Shenandoah": {"sun.gc.collector.1.name": "Shenandoah full"},
		"Z": {"sun.gc.collector.2.name": "ZGC major collection pauses"}, "unknown": {},
	} {
		if got := gcName(hsperf.Snapshot{Texts: texts}); got != want {
			t.Errorf("%v: %s", texts, got)
		}
	}
}

// TestAgents: a library that was mapped when the JVM was opened is not reported twice. The profiler that perfdoctor
// loaded since then is not reported at all: a JVM from 21 on lists it.
func TestAgents(t *testing.T) {
	m := &machine{VM: &jvm.VM{Agents: []jvm.Agent{{Name: "YourKit", Path: "/opt/libyjpagent.so", Profiler: true}}}}
	own := "/tmp/.perfdoctor-d8cd9c15aebdb93e535f9c032a59cf2d-libasyncProfiler-1aa55af4645f.so"
	got := m.agents(jcmd.Info{AgentsKnown: true, Agents: []jcmd.Agent{
		{Name: own},
		{Name: own, Path: own},
		{Name: "yjpagent", Path: "/opt/libyjpagent.so"},
		{Name: "/opt/apm.jar", Java: true},
	}})
	if d := cmp.Diff([][2]string{{"apm.jar", "java"}, {"YourKit", "profiler"}}, got); d != "" {
		t.Errorf("agents (-want +got):\n%s", d)
	}
}
