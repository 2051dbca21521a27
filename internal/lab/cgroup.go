package lab

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/cgroupfs"
)

// Cgroup is a control group below the lab's own directory: in the v1 hierarchy of each controller if that is mounted,
// otherwise in v2. The memory group is made only when a limit is set, so that other processes stay in theirs.
type Cgroup struct {
	rel    string  // pd-<name>-<pid>/a/b
	parent *Cgroup // nil for the lab's own directory

	mu   sync.Mutex
	dirs map[string]groupDir // by controller
	home map[int]string      // the cgroup.procs file each added pid came from
}

type groupDir struct {
	hierarchy
	path string
}

// hierarchy is a mounted cgroup tree with one controller.
type hierarchy struct {
	root string
	v2   bool
}

// Cgroup makes (or returns) the group named by the elements, each nested in the one before, with the cpu controller.
// In v2 only the last element can hold processes (Documentation/admin-guide/cgroup-v2.rst, no internal processes).
func (l *Lab) Cgroup(path ...string) (*Cgroup, error) {
	for _, element := range path {
		if !namePattern.MatchString(element) {
			return nil, fmt.Errorf("cgroup name %q: want %s", element, namePattern)
		}
	}
	rel := filepath.Join(append([]string{l.run}, path...)...)
	l.mu.Lock()
	known := l.cgroups[rel]
	l.mu.Unlock()
	if known != nil {
		return known, nil
	}
	c := &Cgroup{rel: rel, dirs: map[string]groupDir{}, home: map[int]string{}}
	if len(path) > 0 {
		var err error
		if c.parent, err = l.Cgroup(path[:len(path)-1]...); err != nil {
			return nil, err
		}
	}
	if err := c.makeCPU(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.cgroups[rel] = c
	l.mu.Unlock()
	return c, l.onClose(c.remove) // each level removes its own, the innermost first
}

// makeCPU makes the group for the cpu controller and, if v1 mounts cpuacct separately, for cpuacct too: container
// engines put their processes in both, and cpuacct counts CPU use.
func (c *Cgroup) makeCPU() error {
	cpu, err := c.dir("cpu")
	if err != nil || cpu.v2 {
		return err
	}
	h, err := findHierarchy("cpuacct")
	if err != nil || h.root == cpu.root {
		return nil //nolint:nilerr // a kernel without the controller counts no use
	}
	_, err = c.dir("cpuacct")
	return err
}

// Dir returns the group's directory for a controller ("cpu", "memory", or "cpuacct" where v1 has it). It makes the
// directory if it does not exist yet.
func (c *Cgroup) Dir(controller string) (string, error) {
	d, err := c.dir(controller)
	return d.path, err
}

// Path returns the group's path within the hierarchy of its controllers, as in /proc/<pid>/cgroup.
func (c *Cgroup) Path() string { return "/" + c.rel }

func (c *Cgroup) dir(controller string) (groupDir, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d, ok := c.dirs[controller]; ok {
		return d, nil
	}
	if controller != "cpu" && controller != "cpuacct" && controller != "memory" {
		return groupDir{}, fmt.Errorf("cgroup controller %q: want cpu, cpuacct or memory", controller)
	}
	h, err := findHierarchy(controller)
	if err != nil {
		return groupDir{}, err
	}
	if c.parent != nil {
		if _, err := c.parent.dir(controller); err != nil {
			return groupDir{}, err
		}
	}
	d := groupDir{hierarchy: h, path: filepath.Join(h.root, c.rel)}
	if err := d.make(controller); err != nil {
		return groupDir{}, err
	}
	c.dirs[controller] = d
	return d, nil
}

// make creates the directory. In v2 it also enables the controller in the parent.
func (d groupDir) make(controller string) error {
	if d.v2 {
		control := filepath.Join(filepath.Dir(d.path), "cgroup.subtree_control")
		if err := os.WriteFile(control, []byte("+"+controller), 0); err != nil {
			return fmt.Errorf("enable cgroup controller %s: %w", controller, err)
		}
	}
	if err := os.Mkdir(d.path, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make cgroup: %w", err)
	}
	return nil
}

// findHierarchy looks for the controller among the v1 mounts, then in v2.
func findHierarchy(controller string) (hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return hierarchy{}, fmt.Errorf("read /proc/self/mounts: %w", err)
	}
	h, ok := hierarchyIn(mounts, controller, func(root string) bool { return hasController(root, controller) })
	if !ok {
		return hierarchy{}, fmt.Errorf("no cgroup v1 or v2 mount has the %s controller", controller)
	}
	return h, nil
}

// hierarchyIn parses lines "device path type options 0 0" (fs/proc_namespace.c). A controller is bound to one
// hierarchy: v2 offers it only if no v1 mount has it.
func hierarchyIn(mounts []byte, controller string, inV2 func(root string) bool) (hierarchy, bool) {
	var v2 hierarchy
	for line := range bytes.Lines(mounts) {
		field := strings.Fields(string(line))
		if len(field) < 4 {
			continue
		}
		if field[2] == "cgroup" && slices.Contains(strings.Split(field[3], ","), controller) {
			return hierarchy{root: field[1]}, true
		}
		if field[2] == "cgroup2" && inV2(field[1]) {
			v2 = hierarchy{root: field[1], v2: true}
		}
	}
	return v2, v2.v2
}

func hasController(root, controller string) bool {
	list, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(list)), controller)
}

// SetQuota lets the group use quota of CPU time, summed over CPUs, in each period. A quota of 0 lifts the limit. The
// kernel requires a period of 1 ms to 1 s and a quota of at least 1 ms (kernel/sched/core.c, tg_set_cfs_bandwidth).
func (c *Cgroup) SetQuota(period, quota time.Duration) error {
	d, err := c.dir("cpu")
	if err != nil {
		return err
	}
	if d.v2 {
		limit := "max"
		if quota > 0 {
			limit = strconv.FormatInt(quota.Microseconds(), 10)
		}
		return d.write("cpu.max", fmt.Sprintf("%s %d", limit, period.Microseconds()))
	}
	limit := int64(-1)
	if quota > 0 {
		limit = quota.Microseconds()
	}
	if err := d.write("cpu.cfs_period_us", strconv.FormatInt(period.Microseconds(), 10)); err != nil {
		return err
	}
	return d.write("cpu.cfs_quota_us", strconv.FormatInt(limit, 10))
}

// SetMemoryLimit bounds the group's memory in bytes and moves the group's processes under the limit.
func (c *Cgroup) SetMemoryLimit(bytes int64) error {
	d, err := c.dir("memory")
	if err != nil {
		return err
	}
	file := "memory.limit_in_bytes"
	if d.v2 {
		file = "memory.max"
	}
	if err := d.write(file, strconv.FormatInt(bytes, 10)); err != nil {
		return err
	}
	pids, err := c.Pids()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := c.Add(pid); err != nil {
			return err
		}
	}
	return nil
}

// Throttling is the group's share of cpu.stat, counted since it was made.
type Throttling struct {
	Periods   uint64        // periods in which the group ran (nr_periods)
	Throttled uint64        // the part of Periods in which it ran out of quota (nr_throttled)
	Time      time.Duration // waited for quota; v1 sums over CPUs (throttled_time), v2 too (throttled_usec)
}

// Throttling reads cpu.stat.
func (c *Cgroup) Throttling() (Throttling, error) {
	d, err := c.dir("cpu")
	if err != nil {
		return Throttling{}, err
	}
	path := filepath.Join(d.path, "cpu.stat")
	data, err := os.ReadFile(path)
	if err != nil {
		return Throttling{}, err
	}
	t, err := parseThrottling(data)
	if err != nil {
		return Throttling{}, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// parseThrottling reads cpu.stat. v1 has throttled_time in nanoseconds, v2 throttled_usec.
func parseThrottling(data []byte) (Throttling, error) {
	periods, err1 := cgroupfs.Key(data, "nr_periods")
	throttled, err2 := cgroupfs.Key(data, "nr_throttled")
	waited, unit := "throttled_usec", time.Microsecond
	if _, err := cgroupfs.Key(data, waited); errors.Is(err, cgroupfs.ErrNoKey) {
		waited, unit = "throttled_time", time.Nanosecond
	}
	n, err3 := cgroupfs.Key(data, waited)
	if err := errors.Join(err1, err2, err3); err != nil {
		return Throttling{}, err
	}
	return Throttling{Periods: uint64(periods), Throttled: uint64(throttled), Time: time.Duration(n) * unit}, nil
}

// Pids lists the processes in the group, without those in groups below it.
func (c *Cgroup) Pids() ([]int, error) {
	d, err := c.dir("cpu")
	if err != nil {
		return nil, err
	}
	return readPids(d.path)
}

func readPids(dir string) ([]int, error) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	scan := bufio.NewScanner(bytes.NewReader(data))
	for scan.Scan() {
		pid, err := strconv.Atoi(scan.Text())
		if err != nil {
			return nil, fmt.Errorf("%s/cgroup.procs: %w", dir, err)
		}
		pids = append(pids, pid)
	}
	return pids, scan.Err()
}

// Add moves a process with all its threads into the group. Close moves it back if it is still running.
func (c *Cgroup) Add(pid int) error {
	for controller, d := range c.snapshot() {
		from, err := d.current(controller, fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			return err
		}
		if err := d.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("move pid %d: %w", pid, err)
		}
		if !strings.HasPrefix(from, d.path) {
			c.mu.Lock()
			c.home[pid] = filepath.Join(from, "cgroup.procs")
			c.mu.Unlock()
		}
	}
	return nil
}

func (c *Cgroup) snapshot() map[string]groupDir {
	c.mu.Lock()
	defer c.mu.Unlock()
	dirs := map[string]groupDir{}
	for controller, d := range c.dirs {
		dirs[controller] = d
	}
	return dirs
}

// current returns the directory of the group that file, a /proc/<pid>/cgroup, names for the controller. Lines are
// "id:controllers:path", with no controllers for v2 (cgroups(7)).
func (h hierarchy) current(controller, file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range bytes.Lines(data) {
		field := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(field) != 3 {
			return "", fmt.Errorf("%s: line %q: want id:controllers:path", file, line)
		}
		if h.v2 && field[1] == "" || !h.v2 && slices.Contains(strings.Split(field[1], ","), controller) {
			return filepath.Join(h.root, field[2]), nil
		}
	}
	return "", fmt.Errorf("%s: no %s group", file, controller)
}

func (d groupDir) write(file, value string) error {
	path := filepath.Join(d.path, file)
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("write %q: %w", value, err) // the error names the path
	}
	return nil
}

// joinThread moves the calling thread into the group, for a child that must start in it. It returns a function that
// moves the thread back. Only v1 can move a single thread (its tasks file); v2 starts a child in a group with
// CLONE_INTO_CGROUP.
func (c *Cgroup) joinThread() (leave func() error, err error) {
	var back []func() error
	leave = func() error {
		var errs []error
		for _, step := range back {
			errs = append(errs, step())
		}
		return errors.Join(errs...)
	}
	tid := strconv.Itoa(unix.Gettid())
	for controller, d := range c.snapshot() {
		if d.v2 {
			continue
		}
		from, err := d.current(controller, "/proc/thread-self/cgroup")
		if err != nil {
			return leave, err
		}
		if err := d.write("tasks", tid); err != nil {
			return leave, err
		}
		back = append(back, func() error { return os.WriteFile(filepath.Join(from, "tasks"), []byte(tid), 0) })
	}
	return leave, nil
}

// v2Dir returns the group's directory in v2, or "".
func (c *Cgroup) v2Dir() string {
	for _, d := range c.snapshot() {
		if d.v2 {
			return d.path
		}
	}
	return ""
}

const (
	// removeWait is how long a group may stay busy: a killed process leaves its group when it is reaped.
	removeWait = 2 * time.Second
	removePoll = 10 * time.Millisecond
)

// remove moves processes that still run in the group back to their original groups, and removes the directories.
func (c *Cgroup) remove() error {
	var errs []error
	for _, d := range c.snapshot() {
		errs = append(errs, c.removeDir(d))
	}
	return errors.Join(errs...)
}

func (c *Cgroup) removeDir(d groupDir) error {
	for deadline := time.Now().Add(removeWait); ; time.Sleep(removePoll) {
		err := unix.Rmdir(d.path)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup %s: %w", d.path, err)
		}
		pids, err := readPids(d.path)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			c.sendHome(d, pid)
		}
	}
}

// sendHome returns no error: a process may have ended meanwhile, and a process that stays makes Rmdir fail.
func (c *Cgroup) sendHome(d groupDir, pid int) {
	c.mu.Lock()
	home, ok := c.home[pid]
	c.mu.Unlock()
	if !ok || !strings.HasPrefix(home, d.root+"/") {
		home = filepath.Join(d.root, "cgroup.procs")
	}
	_ = os.WriteFile(home, []byte(strconv.Itoa(pid)), 0)
}

var staleGroup = regexp.MustCompile(`^pd-[a-z0-9_]+-([0-9]+)$`)

// Sweep removes the empty cgroups of labs whose process was killed, from all hierarchies, and returns their
// directories. A group that is still in use stays, and is found again next time.
func Sweep() []string {
	var removed []string
	for _, dir := range StaleGroups() {
		removeTree(dir)
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			removed = append(removed, dir)
		}
	}
	return removed
}

// StaleGroups returns the groups that [Sweep] looks for, in all hierarchies.
func StaleGroups() []string {
	roots, err := cgroupRoots()
	if err != nil {
		return nil
	}
	var stale []string
	for _, root := range roots {
		entries, err := os.ReadDir(root)
		if err != nil {
			continue
		}
		for _, entry := range entries {
			if isStale(entry.Name()) {
				stale = append(stale, filepath.Join(root, entry.Name()))
			}
		}
	}
	return stale
}

func isStale(name string) bool {
	match := staleGroup.FindStringSubmatch(name)
	if match == nil {
		return false
	}
	pid, err := strconv.Atoi(match[1])
	return err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

func removeTree(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() {
			removeTree(filepath.Join(dir, entry.Name()))
		}
	}
	_ = unix.Rmdir(dir)
}
