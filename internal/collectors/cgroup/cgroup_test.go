package cgroup

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/ebpf"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/cgroupfs"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

var update = flag.Bool("update", false, "write what the collector makes of the trees into the archives")

// burnEnv makes the test binary burn CPU until it is killed.
const burnEnv = "PERFDOCTOR_TEST_BURN"

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(burnEnv) != "" {
		for i := 0; ; i++ {
			sink = i
		}
	}
	os.Exit(m.Run())
}

var sink int

// TestTrees reads whole trees of several kernels.
func TestTrees(t *testing.T) {
	archives, err := filepath.Glob("../../../testdata/trees/cgroup/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, file := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { testTree(t, file) })
	}
}

func testTree(t *testing.T, file string) {
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var levels []host.CgroupLevel
	var want string
	for _, f := range ar.Files {
		switch f.Name {
		case "levels":
			levels = parseLevels(t, dir, string(f.Data))
		case "want":
			want = string(f.Data)
		default:
			writeFile(t, filepath.Join(dir, f.Name), f.Data)
		}
	}
	got := strings.ReplaceAll(sampleOnce(t, &source{levels: levels, reader: newReader()}), dir, "$DIR")
	if *update {
		ar.Files = slices.DeleteFunc(ar.Files, func(f txtar.File) bool { return f.Name == "want" })
		ar.Files = append(ar.Files, txtar.File{Name: "want", Data: []byte(got)})
		if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// parseLevels reads lines of controller, version and path. The controller is empty for v2.
func parseLevels(t *testing.T, dir, text string) (levels []host.CgroupLevel) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		version, err := strconv.Atoi(f[1])
		if err != nil {
			t.Fatal(err)
		}
		tree := map[bool]string{true: "v2", false: f[0]}[version == 2]
		levels = append(levels, host.CgroupLevel{
			Controller: f[0], Version: version, Path: f[2],
			Dir: path.Join(dir, tree, f[2]),
		})
	}
	return levels
}

func writeFile(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// sampleOnce gives one sample as sorted lines.
func sampleOnce(t *testing.T, s collect.Source) string {
	t.Helper()
	b := recording.NewBuilder()
	a := b.Appender()
	if err := s.Sample(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	_, missing := a.Commit()
	rec := b.Done(recording.Meta{})
	var lines []string
	for _, m := range measured() {
		lines = append(lines, describe(rec, m)...)
	}
	for _, m := range missing {
		lines = append(lines, fmt.Sprintf("missing %s: %s: %s", m.Metric, m.Status, m.Reason))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func describe(rec *recording.Recording, m metric.Metric) (lines []string) {
	var series []*recording.Series
	switch m := m.(type) {
	case *metric.Counter:
		for _, s := range rec.Counter(m) {
			series = append(series, s.Series)
		}
	case *metric.Gauge:
		for _, s := range rec.Gauge(m) {
			series = append(series, s.Series)
		}
	}
	name := m.Describe().Name
	if rec.Recorded(m) && len(series) == 0 {
		return []string{"none " + name}
	}
	for _, s := range series {
		lines = append(lines, fmt.Sprintf("%s%q %v%s", name, s.Labels, s.Points[0].Value, more(s)))
	}
	return lines
}

// more marks a series that was appended to twice in one sample.
func more(s *recording.Series) string {
	if len(s.Points) == 1 {
		return ""
	}
	return fmt.Sprintf(" AND %d MORE", len(s.Points)-1)
}

// TestDenied, as the user nobody, reads groups that only root may read.
func TestDenied(t *testing.T) {
	testenv.Need(t, testenv.Root)
	dir := t.TempDir() // in one that only root may enter
	s := &source{levels: []host.CgroupLevel{{Version: 2, Path: "/", Dir: dir}}, reader: newReader()}
	b := recording.NewBuilder()
	a := b.Appender()
	asNobody(t, func() {
		if err := s.Sample(t.Context(), a); err != nil {
			t.Error(err)
		}
	})
	_, missing := a.Commit()
	rec := b.Done(recording.Meta{})
	for _, m := range measured() {
		if rec.Recorded(m) {
			t.Errorf("%s counts as measured", m.Describe().Name)
		}
	}
	if len(missing) != len(measured()) {
		t.Errorf("%d of %d metrics are said to be missing", len(missing), len(measured()))
	}
	for _, m := range missing {
		if m.Status != recording.StatusDenied || m.Remedy == "" {
			t.Errorf("missing %+v", m)
		}
	}
}

// asNobody runs f on a thread of its own with another effective user. The thread ends with the goroutine that locks it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan syscall.Errno)
	go func() {
		runtime.LockOSThread()
		const keep, nobody = ^uintptr(0), 65534
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, nobody, keep)
		if errno == 0 {
			f()
			// It may be the main thread, which is kept. /proc/self shows that thread's rights.
			_, _, errno = syscall.RawSyscall(syscall.SYS_SETRESUID, keep, 0, keep)
		}
		done <- errno
	}()
	if errno := <-done; errno != 0 {
		t.Fatal(errno)
	}
}

// TestRemoved samples groups that have gone. There is no error, and no claim that there was no limit.
func TestRemoved(t *testing.T) {
	gone := host.CgroupLevel{Version: 2, Path: "/gone", Dir: filepath.Join(t.TempDir(), "gone")}
	s := &source{levels: []host.CgroupLevel{gone}, reader: newReader()}
	b := recording.NewBuilder()
	a := b.Appender()
	if err := s.Sample(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	_, missing := a.Commit()
	rec := b.Done(recording.Meta{})
	for _, m := range measured() {
		if rec.Recorded(m) {
			t.Errorf("%s counts as measured", m.Describe().Name)
		}
	}
	if len(missing) > 0 {
		t.Errorf("missing %v", missing)
	}
}

// cpuGroup makes a group in the v1 tree of the cpu controller and removes it at the end.
func cpuGroup(t testing.TB, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 100 { // processes killed a moment ago still count as members
			if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s could not be removed", dir)
	})
}

func burn(t testing.TB, dir string) int {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), burnEnv+"=1", "GOMAXPROCS=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	})
	if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// nested makes three groups, limits the uppermost to 0.2 CPUs and burns CPU in the lowest.
func nested(t testing.TB) (pid int, top string) {
	t.Helper()
	testenv.Need(t, testenv.Root)
	const tree = "/sys/fs/cgroup/cpu"
	if _, err := os.Stat(tree + "/cpu.cfs_quota_us"); err != nil {
		t.Skipf("needs the v1 cpu controller: %v", err)
	}
	top = "/perfdoctor-test-" + strconv.Itoa(os.Getpid())
	for _, g := range []string{top, top + "/mid", top + "/mid/leaf"} {
		cpuGroup(t, tree+g)
	}
	if err := os.WriteFile(tree+top+"/cpu.cfs_quota_us", []byte("20000"), 0); err != nil {
		t.Fatal(err)
	}
	return burn(t, tree+top+"/mid/leaf"), top
}

func record(t *testing.T, env collect.Env, d time.Duration) *recording.Recording {
	t.Helper()
	rec, err := collect.Run(t.Context(), collect.Options{
		Env: env, Collectors: Collectors(&ebpf.Loader{}), Interval: 200 * time.Millisecond, Duration: d,
	})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// TestThrottledAncestor is the case that a look at the target's own group misses.
func TestThrottledAncestor(t *testing.T) {
	pid, top := nested(t)
	h := host.Local()
	target, err := h.Resolve(t.Context(), host.Selector{PID: pid})
	if err != nil {
		t.Fatal(err)
	}
	rec := record(t, collect.Env{Host: h, Target: target}, 1500*time.Millisecond)
	quotas := rec.Gauge(metric.CgroupQuota)
	if len(quotas) != 1 || quotas[0].Label("level") != "2" || quotas[0].Label("cgroup") != top ||
		quotas[0].Last() != 0.2 {
		t.Errorf("quota: %v", quotas)
	}
	checkThrottled(t, rec, top, "2")
	for _, m := range []metric.Metric{
		metric.CgroupMemory, metric.CgroupCpuset, metric.CgroupCPU,
		metric.CgroupPressure,
	} {
		if !rec.Recorded(m) {
			t.Errorf("%s is not there: %v", m.Describe().Name, rec.Meta.Unsupported)
		}
	}
	t.Logf("cost: %+v", rec.Meta.Collectors)
}

// TestThrottledOnHost finds the same group without being told the process.
func TestThrottledOnHost(t *testing.T) {
	_, top := nested(t)
	rec := record(t, collect.Env{Host: host.Local(), Target: host.Target{Kind: host.KindHost}}, 1500*time.Millisecond)
	checkThrottled(t, rec, top, "")
	if rec.Recorded(metric.CgroupMemoryLimit) || len(rec.Meta.Unsupported) < len(otherMetrics()) {
		t.Errorf("what is not read for the host must be said to be missing: %v", rec.Meta.Unsupported)
	}
}

func checkThrottled(t *testing.T, rec *recording.Recording, cgroup, level string) {
	t.Helper()
	rise := func(m *metric.Counter) float64 {
		for _, s := range rec.Counter(m) {
			if s.Label("cgroup") == cgroup && s.Label("level") == level {
				n, _ := s.Increase()
				return n
			}
		}
		t.Fatalf("no %s of %s at level %q", m.Describe().Name, cgroup, level)
		return 0
	}
	periods, throttled := rise(metric.CgroupPeriods), rise(metric.CgroupThrottled)
	if periods < 5 || throttled < periods/2 || throttled > periods+1 {
		t.Errorf("throttled in %v of %v periods: a busy loop has 0.2 CPUs", throttled, periods)
	}
	if used := rise(metric.CgroupThrottledTime); used <= 0 || used > 4 {
		t.Errorf("throttled for %v s", used)
	}
}

func TestWeight(t *testing.T) {
	for _, tt := range []struct {
		weight string
		shares float64
	}{{"1", 2}, {"39", 998.2}, {"10000", 262144}} {
		cpus, err := parseWeight([]byte(tt.weight + "\n"))
		if err != nil || cpus*sharesPerCPU < tt.shares-1 || cpus*sharesPerCPU > tt.shares+1 {
			t.Errorf("weight %s: %v shares, %v; want %v", tt.weight, cpus*sharesPerCPU, err, tt.shares)
		}
	}
}

func FuzzParse(f *testing.F) {
	archives, err := filepath.Glob("../../../testdata/trees/cgroup/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range archives {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, x := range ar.Files {
			f.Add(x.Data)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := parseMax(b); err == nil && (l.cpus < 0 || (l.cpus > 0) != (l.period > 0)) {
			t.Errorf("limit %+v", l)
		}
		if l, err := newBandwidth(b, []byte("100000\n")); err != nil && l != (bandwidth{}) {
			t.Errorf("limit %+v beside the error %v", l, err)
		}
		if n, ok, err := parseLimit(b); ok && (err != nil || n >= noLimit) {
			t.Errorf("limit %v, %v", n, err)
		}
		if n, err := parseWeight(b); n < 0 || n > 256 || err != nil && n != 0 {
			t.Errorf("weight of %v CPUs, %v", n, err)
		}
		if n, err := parseCPUs(b); n < 0 || err != nil && n != 0 {
			t.Errorf("%v CPUs, %v", n, err)
		}
		if s, err := parseStalled(b); err == nil && len(s) == 0 {
			t.Error("neither a line nor an error")
		}
		if _, err := cgroupfs.Key(b, "nr_periods"); err == nil && !bytes.Contains(b, []byte("nr_periods ")) {
			t.Error("a number from nowhere")
		}
	})
}

// TestPlaces finds where a report's commands must write: one row for each controller and level.
func TestPlaces(t *testing.T) {
	levels := []host.CgroupLevel{
		{Controller: "cpu", Version: 1, Path: "/a/b", Dir: "/cg/cpu/a/b"},
		{Controller: "cpu", Version: 1, Path: "/a", Dir: "/cg/cpu/a"},
		{Controller: "", Version: 2, Path: "/s", Dir: "/cg/unified/s"},
	}
	b := recording.NewBuilder()
	a := b.Appender()
	s := &source{levels: levels, reader: newReader()}
	if err := s.Sample(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	a.Commit()
	var got []string
	for _, x := range b.Done(recording.Meta{}).Info(metric.CgroupDir) {
		got = append(got, strings.Join(x.Labels, " "))
	}
	for _, want := range []string{"/a/b 0 cpu 1 /cg/cpu/a/b", "/a 1 cpu 1 /cg/cpu/a", "/s 0 memory 2 /cg/unified/s"} {
		if !slices.Contains(got, want) {
			t.Errorf("no row %q in %q", want, got)
		}
	}
}
