package ebpf

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// A cpuTree is a tree of control groups with the cpu controller.
type cpuTree struct {
	dir string
	v2  bool
}

// newTree makes a group for a test, in the host's tree or in v2 mounted for the test.
func newTree(t testing.TB) cpuTree {
	t.Helper()
	testenv.Need(t, testenv.Root)
	tree := cpuTree{dir: "/sys/fs/cgroup/cpu"}
	if _, err := os.Stat(tree.dir + "/cpu.cfs_quota_us"); err != nil {
		tree = cpuTree{dir: "/sys/fs/cgroup", v2: true}
		if _, err := os.Stat(tree.dir + "/cgroup.controllers"); err != nil {
			tree.dir = t.TempDir()
			check(t, unix.Mount("none", tree.dir, "cgroup2", 0, ""))
			t.Cleanup(func() { check(t, unix.Unmount(tree.dir, 0)) })
		}
		check(t, os.WriteFile(tree.dir+"/cgroup.subtree_control", []byte("+cpu"), 0))
	}
	tree.dir += "/perfdoctor-bandwidth-" + strconv.Itoa(os.Getpid())
	tree.group(t, "")
	return tree
}

// group makes a group below the test's. Its own groups have the controller, too.
func (c cpuTree) group(t testing.TB, path string) string {
	t.Helper()
	dir := filepath.Join(c.dir, path)
	check(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() {
		for range 200 { // a process that was killed a moment ago is still a member
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s could not be removed", dir)
	})
	return dir
}

func (c cpuTree) delegate(t testing.TB, path string) {
	t.Helper()
	if c.v2 {
		check(t, os.WriteFile(filepath.Join(c.dir, path, "cgroup.subtree_control"), []byte("+cpu"), 0))
	}
}

// limit sets a quota and period in microseconds.
func (c cpuTree) limit(t testing.TB, dir string, quota, period int) {
	t.Helper()
	if c.v2 {
		check(t, os.WriteFile(dir+"/cpu.max", fmt.Appendf(nil, "%d %d", quota, period), 0))
		return
	}
	check(t, os.WriteFile(dir+"/cpu.cfs_period_us", strconv.AppendInt(nil, int64(period), 10), 0))
	check(t, os.WriteFile(dir+"/cpu.cfs_quota_us", strconv.AppendInt(nil, int64(quota), 10), 0))
}

// files is the second source: the group's files. Times of v2 are whole microseconds.
func (c cpuTree) files(t testing.TB, dir string) (l CPULimit, limited bool) {
	t.Helper()
	quotaFile, periodFile, throttled, unit := "cpu.cfs_quota_us", "cpu.cfs_period_us", "throttled_time", time.Nanosecond
	if c.v2 {
		quotaFile, periodFile, throttled, unit = "cpu.max", "cpu.max", "throttled_usec", time.Microsecond
	}
	quota, period := fields(t, dir, quotaFile), fields(t, dir, periodFile)
	if quota[0] == "-1" || quota[0] == "max" {
		return l, false
	}
	var st unix.Stat_t
	check(t, unix.Stat(dir, &st))
	l = CPULimit{ID: st.Ino, Quota: micros(t, quota[0]), Period: micros(t, period[len(period)-1])}
	if burst := c.burstFile(); isFile(dir + burst) {
		l.Burst = micros(t, fields(t, dir, burst)[0])
	}
	stat := fields(t, dir, "cpu.stat")
	for i := 0; i+1 < len(stat); i += 2 {
		n, err := strconv.ParseUint(stat[i+1], 10, 64)
		check(t, err)
		switch stat[i] {
		case "nr_periods":
			l.Periods = n
		case "nr_throttled":
			l.Throttled = n
		case throttled:
			l.ThrottledTime = time.Duration(n) * unit
		}
	}
	return l, true
}

// burstFile exists since Linux 5.14.
func (c cpuTree) burstFile() string {
	if c.v2 {
		return "/cpu.max.burst"
	}
	return "/cpu.cfs_burst_us"
}

func fields(t testing.TB, dir, file string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, file))
	check(t, err)
	return strings.Fields(string(b))
}

func micros(t testing.TB, s string) time.Duration {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	check(t, err)
	return time.Duration(n) * time.Microsecond
}

// openBandwidth skips kernels without the iterator: of the tested ones, 5.10.
func openBandwidth(t testing.TB, dir string) *Bandwidth {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.BPF)
	b, err := OpenBandwidth(t.Context(), &Loader{}, host.Local(), dir)
	var why *collect.UnavailableError
	if errors.As(err, &why) && why.Status == recording.StatusUnsupported && older(t, BandwidthFloor()) {
		t.Skip(why.Reason)
	}
	check(t, err)
	t.Cleanup(func() { check(t, b.Close()) })
	return b
}

// burnIn keeps a CPU busy in a group until the function it returns is called.
func burnIn(t testing.TB, dir string) (stop func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe") // a guest has no shell
	cmd.Env = append(os.Environ(), burnVar+"=1")
	check(t, cmd.Start())
	stop = func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()
	}
	t.Cleanup(stop)
	check(t, os.WriteFile(dir+"/cgroup.procs", strconv.AppendInt(nil, int64(cmd.Process.Pid), 10), 0))
	return stop
}

// TestBandwidth compares one pass with the files of every group: 23 with limits on three levels, some throttled.
func TestBandwidth(t *testing.T) {
	tree := newTree(t)
	b := openBandwidth(t, tree.dir)
	tree.delegate(t, "")
	const limited = 23
	var dirs []string
	for i := range limited {
		top := fmt.Sprintf("g%d", i)
		dir := tree.group(t, top)
		dirs = append(dirs, dir)
		if i%3 == 0 { // its limit is the limit of a group below it
			tree.delegate(t, top)
			dir = tree.group(t, top+"/below")
			dirs = append(dirs, dir)
		}
		tree.limit(t, dir, 2000+1000*i, 20_000+10_000*(i%4))
	}
	if burst := tree.burstFile(); isFile(dirs[5] + burst) {
		check(t, os.WriteFile(dirs[5]+burst, []byte("1500"), 0))
	}
	stop1, stop2 := burnIn(t, tree.dir+"/g0/below"), burnIn(t, tree.dir+"/g1")
	time.Sleep(500 * time.Millisecond)
	stop1()
	stop2()
	time.Sleep(150 * time.Millisecond) // the last period ends
	got := map[uint64]CPULimit{}
	check(t, b.Each(t.Context(), func(l *CPULimit) error {
		got[l.ID] = *l
		return nil
	}))
	if len(got) != limited {
		t.Errorf("%d groups with a limit, want %d", len(got), limited)
	}
	var periods, throttled uint64
	for _, dir := range dirs {
		want, ok := tree.files(t, dir)
		if !ok {
			continue
		}
		l := got[want.ID]
		if tree.v2 {
			l.ThrottledTime = l.ThrottledTime.Truncate(time.Microsecond)
		}
		if l != want {
			t.Errorf("%s: %+v, its files say %+v", dir, l, want)
		}
		periods, throttled = periods+want.Periods, throttled+want.Throttled
	}
	if periods < 10 || throttled == 0 {
		t.Errorf("%d periods, %d throttled: nothing was limited", periods, throttled)
	}
}

// TestAllLimitsOfTheHost compares every group of the host, whoever made it.
func TestAllLimitsOfTheHost(t *testing.T) {
	tree := newTree(t)
	tree.limit(t, tree.dir, 70_000, 100_000) // there is at least one
	root := cpuTree{dir: filepath.Dir(tree.dir), v2: tree.v2}
	b := openBandwidth(t, root.dir)
	got := map[uint64]CPULimit{}
	check(t, b.Each(t.Context(), func(l *CPULimit) error {
		got[l.ID] = *l
		return nil
	}))
	n := 0
	check(t, filepath.WalkDir(root.dir, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) { // a group that has ended
			return nil
		}
		// the root has no limit
		if err != nil || !d.IsDir() || path == root.dir || tree.v2 && !isFile(path+"/cpu.max") {
			return err
		}
		want, limited := root.files(t, path)
		l, told := got[want.ID]
		if limited && (l.Quota != want.Quota || l.Period != want.Period || l.Periods > want.Periods ||
			l.Throttled > want.Throttled) {
			t.Errorf("%s: %+v, its files said a moment later %+v", path, l, want)
		}
		if limited {
			n++
			if !told {
				t.Errorf("%s is missing", path)
			}
		}
		return nil
	}))
	if n != len(got) || n == 0 {
		t.Errorf("%d groups with a limit, by their files %d", len(got), n)
	}
}

func isFile(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// TestTooManyLimits: if there are more groups than one read of the iterator holds, it is an error, not a shorter list.
func TestTooManyLimits(t *testing.T) {
	tree := newTree(t)
	b := openBandwidth(t, tree.dir)
	tree.delegate(t, "")
	most := 8 * os.Getpagesize() / 48 // bytes of a record
	for i := range most + 10 {
		tree.limit(t, tree.group(t, strconv.Itoa(i)), 50_000, 100_000)
	}
	n := 0
	err := b.Each(t.Context(), func(*CPULimit) error { n++; return nil })
	if !errors.Is(err, ErrTooManyLimits) || n == 0 || n > most {
		t.Errorf("%d groups, %v; want at most %d and an error", n, err, most)
	}
}
