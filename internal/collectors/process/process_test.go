package process

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func target(t testing.TB, pid int) collect.Env {
	t.Helper()
	h := host.Local()
	tgt, err := h.Resolve(t.Context(), host.Selector{PID: pid})
	if err != nil {
		t.Fatal(err)
	}
	return collect.Env{Host: h, Target: tgt}
}

func wholeHost() collect.Env {
	return collect.Env{Host: host.Local(), Target: host.Target{Kind: host.KindHost}}
}

// take records samples of one collector, with something happening between them.
func take(
	t *testing.T, c collect.Collector, env collect.Env, between ...func(),
) (*recording.Recording, []recording.Missing) {
	t.Helper()
	src, err := c.Open(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	b := recording.NewBuilder()
	var missing []recording.Missing
	for i := range len(between) + 1 {
		if i > 0 {
			between[i-1]()
		}
		a := b.Appender()
		if err := src.Sample(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		_, missing = a.Commit()
	}
	return b.Done(recording.Meta{}), missing
}

func gauge(t *testing.T, rec *recording.Recording, m *metric.Gauge, labels map[string]string) float64 {
	t.Helper()
	for _, s := range rec.Gauge(m) {
		if matches(s.Series, labels) {
			return s.Last()
		}
	}
	t.Fatalf("no %s with %v", m.Describe().Name, labels)
	return 0
}

func increase(t *testing.T, rec *recording.Recording, m *metric.Counter, labels map[string]string) (n float64) {
	t.Helper()
	found := false
	for _, s := range rec.Counter(m) {
		if matches(s.Series, labels) {
			d, ok := s.Increase()
			n, found = n+d, found || ok
		}
	}
	if !found {
		t.Fatalf("no increase of %s with %v", m.Describe().Name, labels)
	}
	return n
}

func matches(s *recording.Series, labels map[string]string) bool {
	for k, v := range labels {
		if s.Label(k) != v {
			return false
		}
	}
	return true
}

func TestMember(t *testing.T) {
	c := startChild(t, "threads 5 files 300 touch 2000")
	env := target(t, c.pid)
	rec, missing := take(t, memberCollector(), env, c.obey)
	pid := map[string]string{"pid": strconv.Itoa(c.pid)}
	if len(missing) > 0 {
		t.Errorf("missing: %v", missing)
	}
	if n := increase(t, rec, metric.ProcessFaults, map[string]string{"kind": "minor"}); n < 2000 || n > 6000 {
		t.Errorf("touching 2000 pages made %v minor faults", n)
	}
	if n := gauge(t, rec, metric.ProcessFDs, pid); n < 300 || n > 320 {
		t.Errorf("%v open files, want 300 and the few the runtime has", n)
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.pid))
	if err != nil || len(entries) != int(gauge(t, rec, metric.ProcessFDs, pid)) {
		t.Errorf("listing gives %d open files, %v", len(entries), err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if n := gauge(t, rec, metric.ProcessFDLimit, pid); n <= 0 || n > float64(limit.Max) {
		t.Errorf("limit %v, the hard one is %d", n, limit.Max)
	}
	if n := gauge(t, rec, metric.ProcessThreads, pid); n < 6 || n > 30 {
		t.Errorf("%v threads", n)
	}
	if n := gauge(t, rec, metric.ProcessRSS, pid); n < 2000*float64(os.Getpagesize()) || n > 1<<30 {
		t.Errorf("resident %v", n)
	}
	private, resident := gauge(t, rec, metric.ProcessPrivate, pid), gauge(t, rec, metric.ProcessRSS, pid)
	if private < 2000*float64(os.Getpagesize()) || private >= resident {
		t.Errorf("private %v of %v: the program's file is not", private, resident)
	}
	if n := gauge(t, rec, metric.ProcessStart, pid); n > 60 {
		t.Errorf("age %v s", n)
	}
}

// TestListedFiles lists files as for kernels before 6.2, within its budget.
func TestListedFiles(t *testing.T) {
	c := startChild(t, "files 300")
	c.obey()
	f := newFileCounter(host.Local())
	f.bySize = false
	f.begin()
	n, ok := f.count(t.Context(), c.pid)
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.pid))
	if err != nil || !ok || n != len(entries) {
		t.Errorf("counted %d, %v; the directory has %d, %v", n, ok, len(entries), err)
	}
	f.listed = maxListed
	if _, ok := f.count(t.Context(), c.pid); ok || f.over != 1 {
		t.Errorf("past the budget: %v, %d left out", ok, f.over)
	}
}

func TestThreads(t *testing.T) {
	c := startChild(t, "threads 7 burn 1")
	env := target(t, c.pid)
	c.obey()
	time.Sleep(50 * time.Millisecond) // until the burner has left its first tick behind
	began := time.Now()
	rec, missing := take(t, threadCollector(), env, func() { time.Sleep(700 * time.Millisecond) })
	wall := time.Since(began).Seconds()
	if n := gauge(t, rec, metric.ThreadPools, map[string]string{"pool": "GC Thread"}); n != 7 {
		t.Errorf("%v threads of GC Thread, want 7", n)
	}
	burner := map[string]string{"comm": "burner-0", "mode": "user"}
	if n := increase(t, rec, metric.ThreadCPU, burner); n < 0.1 || n > wall+0.1 {
		t.Errorf("the burner used %v s in %v s", n, wall)
	}
	idle := map[string]string{"comm": "GC Thread#0", "mode": "user"}
	if n := increase(t, rec, metric.ThreadCPU, idle); n != 0 {
		t.Errorf("an idle thread used %v s", n)
	}
	if n := increase(t, rec, metric.ThreadSwitches, map[string]string{
		"comm": "burner-0",
		"kind": "involuntary",
	}); n < 0 {
		t.Errorf("burner: %v involuntary switches", n)
	}
	for _, s := range rec.Counter(metric.ThreadSwitches) {
		if s.Label("comm") == "GC Thread#0" && len(s.Points) != 1 {
			t.Errorf("status of an idle thread was read %d times", len(s.Points))
		}
	}
	total := 0.0
	for _, s := range rec.Gauge(metric.ThreadStates) {
		total += s.Last()
	}
	if total < 9 {
		t.Errorf("%v threads by state", total)
	}
	delay := env.Host.Probe(host.Schedstat)
	if counted := len(rec.Counter(metric.ThreadRunDelay)) > 0; counted != (delay.Status == host.Available) {
		t.Errorf("run delay counted: %v, the probe says %s", counted, delay.Status)
	}
	if delay.Status != host.Available && (len(missing) != 1 || missing[0].Reason == "" || missing[0].Remedy == "") {
		t.Errorf("missing: %+v", missing)
	}
}

// TestEnded kills the target between two samples.
func TestEnded(t *testing.T) {
	for _, collector := range []collect.Collector{memberCollector(), threadCollector(), hostCollector()} {
		t.Run(collector.Name, func(t *testing.T) {
			c := startChild(t, "threads 1")
			env := target(t, c.pid)
			_, missing := take(t, collector, env, func() {
				if err := syscall.Kill(c.pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				for env.Host.Alive(env.Target) {
					time.Sleep(time.Millisecond)
				}
			})
			for _, m := range missing {
				if m.Metric != metric.ThreadRunDelay.Describe().Name {
					t.Errorf("missing: %v", m)
				}
			}
		})
	}
}

func TestHostProcesses(t *testing.T) {
	busy := startChild(t, "burn 1 files 200")
	busy.obey()
	other := startChild(t, "threads 1")
	wait := func() { time.Sleep(300 * time.Millisecond) }

	rec, _ := take(t, hostCollector(), wholeHost(), wait)
	pid := map[string]string{"pid": strconv.Itoa(busy.pid)}
	used := map[string]string{"pid": pid["pid"], "mode": "user", "member": "host"}
	if n := increase(t, rec, metric.ProcessCPU, used); n < 0.05 {
		t.Errorf("the busy process used %v s", n)
	}
	if n := gauge(t, rec, metric.ProcessFDs, pid); n < 200 {
		t.Errorf("%v open files", n)
	}
	for _, s := range rec.Gauge(metric.ProcessFDs) {
		if s.Label("pid") == strconv.Itoa(other.pid) {
			t.Error("a process with few open files has a series")
		}
	}
	if n := gauge(t, rec, metric.HostProcessRSS, pid); n < float64(os.Getpagesize()) {
		t.Errorf("resident %v", n)
	}
	who := map[string]string{"pid": pid["pid"], "parent": strconv.Itoa(os.Getpid())}
	named := false
	for _, s := range rec.Info(metric.ProcessInfo) {
		named = named || matches(s, who) && s.Label("user") != ""
	}
	if !named {
		t.Errorf("no process_info with %v and a user", who)
	}

	rec, _ = take(t, hostCollector(), target(t, busy.pid), wait)
	for _, s := range rec.Counter(metric.ProcessCPU) {
		if s.Label("pid") == strconv.Itoa(busy.pid) {
			t.Error("the target is listed among the host's processes")
		}
	}
	if len(rec.Counter(metric.ProcessCPU)) == 0 {
		t.Error("no other process of the host")
	}
}

// TestChildren: CPU time of a process's children is in its own counter once it has waited for them.
func TestChildren(t *testing.T) {
	env := target(t, os.Getpid())
	rec, _ := take(t, memberCollector(), env, func() {
		for range 3 {
			err := exec.Command("/bin/sh", "-c", "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done").Run()
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	own := map[string]string{"pid": strconv.Itoa(os.Getpid())}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		t.Fatal(err)
	}
	all := time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
	last := 0.0
	for _, s := range rec.Counter(metric.ProcessChildrenCPU) {
		if matches(s.Series, own) {
			last += s.Points[len(s.Points)-1].Value
		}
	}
	if last <= 0 || last > all+0.01 || last < all-0.05 {
		t.Errorf("children used %v s, getrusage says %v s", last, all)
	}
}

// TestHostBound makes the collector choose among more processes than have room.
func TestHostBound(t *testing.T) {
	list := func(pids int, ticks func(pid int) uint64) (out []host.Process) {
		for pid := 1; pid <= pids; pid++ {
			out = append(out, host.Process{Stat: host.Stat{PID: pid, Comm: "p", UTime: ticks(pid), StartTime: 1}})
		}
		return out
	}
	const all = maxHostProcesses + 50
	s := &hostSource{}
	b := recording.NewBuilder()
	a := b.Appender()
	s.appendCPU(a, list(all, func(pid int) uint64 { return uint64(pid) }))
	if lost, _ := a.Commit(); len(lost) != 0 {
		t.Errorf("first sample lost %v before anything ran", lost)
	}
	a = b.Appender()
	// Of the 50 with the least CPU time, ten run on, and so does one that has a series. Idle processes are no loss.
	s.appendCPU(a, list(all, func(pid int) uint64 {
		if pid <= 10 || pid == all {
			return uint64(pid) + 5
		}
		return uint64(pid)
	}))
	lost, _ := a.Commit()
	if len(lost) != 1 || lost[0].Count != 10 {
		t.Errorf("lost %v, want 10 processes", lost)
	}
	rec := b.Done(recording.Meta{})
	last := map[string]string{"pid": strconv.Itoa(all), "mode": "user"}
	if n := increase(t, rec, metric.ProcessCPU, last); math.Abs(n-0.05) > 1e-9 {
		t.Errorf("increase %v s, want 5 ticks", n)
	}
	if n := len(rec.Counter(metric.ProcessCPU)); n != 2*maxHostProcesses {
		t.Errorf("%d series", n)
	}
}

// TestFreshProcesses: a process that begins in the window has a place beside those that exist all the time.
func TestFreshProcesses(t *testing.T) {
	var list []host.Process
	for pid := 1; pid <= maxHostProcesses+50; pid++ {
		list = append(list, host.Process{Stat: host.Stat{PID: pid, Comm: "old", UTime: 1000, StartTime: 1}})
	}
	s := &hostSource{}
	b := recording.NewBuilder()
	a := b.Appender()
	s.appendCPU(a, list)
	a.Commit()
	a = b.Appender()
	list = append(list, host.Process{Stat: host.Stat{PID: 9999, Comm: "new", UTime: 3, StartTime: 2}})
	kept := s.appendCPU(a, list)
	a.Commit()
	if n := len(kept); n != maxHostProcesses+1 || kept[n-1].PID != 9999 {
		t.Errorf("%d processes, the last %d", n, kept[n-1].PID)
	}
	if n := len(b.Done(recording.Meta{}).Counter(metric.ProcessCPU, "comm", "new")); n != 2 {
		t.Errorf("%d series of the new one, want one a mode", n)
	}
}

func TestThreadBound(t *testing.T) {
	s := newThreadSource(target(t, os.Getpid()))
	sample := func(ticks func(tid int) uint64) map[int]bool {
		s.all = s.all[:0]
		for tid := 1; tid <= maxThreads+100; tid++ {
			s.all = append(s.all, thread{Stat: host.Stat{PID: tid, UTime: ticks(tid)}})
		}
		kept := map[int]bool{}
		next := map[host.TaskID]uint64{}
		for _, th := range s.choose() {
			kept[th.PID] = true
			next[th.Task()] = cpuTicks(th.Stat)
		}
		s.kept = next
		return kept
	}
	first := sample(func(tid int) uint64 { return uint64(tid) })
	if len(first) != maxThreads || first[100] || !first[101] {
		t.Errorf("%d threads kept; thread 100: %v, thread 101: %v", len(first), first[100], first[101])
	}
	second := sample(func(tid int) uint64 { return uint64(10_000 - tid) })
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("series broke off:\n%s", diff)
	}
}

// TestDetailsInTurn has more active threads than one sample reads details of.
func TestDetailsInTurn(t *testing.T) {
	const threads = maxDetails + 50
	c := startChild(t, fmt.Sprintf("threads %d", threads))
	c.obey()
	s := newThreadSource(target(t, c.pid))
	rec, _ := take(t, collect.Collector{Open: func(context.Context, collect.Env) (collect.Source, error) {
		return collect.SourceFunc(s.sample), nil
	}}, s.env, func() {
		read := 0
		for _, ticks := range s.kept {
			if ticks != neverRead {
				read++
			}
		}
		if read != maxDetails {
			t.Errorf("details of %d threads read in the first sample, want %d", read, maxDetails)
		}
	})
	read := map[string]bool{}
	for _, series := range rec.Counter(metric.ThreadSwitches) {
		read[series.Label("tid")] = true
	}
	if len(read) < threads {
		t.Errorf("details of %d of %d threads were read in two samples", len(read), threads)
	}
}

func TestTargetInfo(t *testing.T) {
	rec, _ := take(t, infoCollector(), target(t, os.Getpid()))
	infos := rec.Info(metric.TargetInfo)
	if len(infos) != 1 || infos[0].Label("kind") != "process" || infos[0].Label("pid") != strconv.Itoa(os.Getpid()) ||
		infos[0].Label("runtime") != "go" || infos[0].Label("user") == "" {
		t.Errorf("info %+v", infos)
	}
	rec, _ = take(t, infoCollector(), wholeHost())
	if got := rec.Info(metric.TargetInfo)[0].Labels; !cmp.Equal(got, []string{"host", "", "", "", "", ""}) {
		t.Errorf("host: %q", got)
	}
}

// TestWithoutTarget: nothing is missing in silence when the whole host is diagnosed.
func TestWithoutTarget(t *testing.T) {
	said := map[string]bool{}
	for _, c := range Collectors() {
		rec, missing := take(t, c, wholeHost(), func() {})
		for _, m := range missing {
			said[m.Metric] = m.Reason != ""
		}
		for _, m := range c.Provides {
			if rec.Recorded(m) {
				said[m.Describe().Name] = true
			}
		}
	}
	for _, c := range Collectors() {
		for _, m := range c.Provides {
			if !said[m.Describe().Name] {
				t.Errorf("%s: neither measured nor said why not", m.Describe().Name)
			}
		}
	}
}

// TestUnprivileged looks at root's process as nobody. Its files cannot be listed, and the recording says why and what
// to do.
func TestUnprivileged(t *testing.T) {
	testenv.Need(t, testenv.Root)
	c := startChild(t, "files 10")
	c.obey()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "perfdoctor-test") //nolint:usetesting // t.TempDir lies in one that only its owner may enter
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	copied := filepath.Join(dir, "test")
	b, err := os.ReadFile(exe)
	if err == nil {
		err = os.WriteFile(copied, b, 0o755)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied, "-test.run=^TestAsNobody$", "-test.v")
	cmd.Dir = dir
	cmd.Env = []string{"PERFDOCTOR_TEST_PID=" + strconv.Itoa(c.pid)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

// TestAsNobody is run by TestUnprivileged.
func TestAsNobody(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("PERFDOCTOR_TEST_PID"))
	if err != nil {
		t.Skip("run by TestUnprivileged")
	}
	env := target(t, pid)
	for _, c := range Collectors() {
		take(t, c, env, func() {}) // no error from any
	}
	m := &memberSource{env: env, files: newFileCounter(env.Host), pageSize: 4096}
	t.Logf("sizes tell the number of open files: %v", m.files.bySize)
	m.files.bySize = false
	b := recording.NewBuilder()
	a := b.Appender()
	if err := m.sample(context.Background(), a); err != nil {
		t.Fatal(err)
	}
	_, missing := a.Commit()
	denied := map[string]bool{}
	for _, m := range missing {
		if denied[m.Metric] = true; m.Status != recording.StatusDenied || !strings.Contains(m.Remedy, "root") {
			t.Errorf("missing %+v", m)
		}
	}
	want := map[string]bool{
		"process_open_fds": true, "process_io_calls_total": true, "process_io_call_bytes_total": true,
	}
	if diff := cmp.Diff(want, denied); diff != "" {
		t.Errorf("denied, -want +got:\n%s", diff)
	}
	rec := b.Done(recording.Meta{})
	if !rec.Recorded(metric.ProcessCPU) || rec.Recorded(metric.ProcessFDs) {
		t.Error("CPU time must be there and open files must not")
	}
}
