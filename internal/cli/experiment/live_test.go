package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
)

// subjectName is the first argument that makes this program a perfdoctor which runs an experiment and may be killed.
const subjectName = "pd-experiment"

const (
	// shortest is a window long enough to kill the process in it.
	shortest = 500 * time.Millisecond
	// roomy is long enough to do something first, on a slow machine too.
	roomy = 2 * time.Second
)

func TestMain(m *testing.M) {
	if code, watched := Watch(); watched {
		os.Exit(code)
	}
	if code, child := lab.RunIfChild(); child {
		os.Exit(code)
	}
	if os.Args[0] == subjectName {
		os.Exit(subject(os.Args[1], os.Args[2], os.Args[3], os.Args[4]))
	}
	testenv.DefaultSignals()
	os.Exit(m.Run())
}

// subject runs one experiment on a target, as the command does.
func subject(kind, what, target, window string) int {
	e, err := prepared(kind, what, target)
	if err == nil {
		var r *Result
		if e.Duration, err = time.ParseDuration(window); err != nil {
			return 2
		}
		if r, err = e.Run(context.Background()); err == nil {
			fmt.Println(r.Result, r.Because, r.Undone)
			return 0
		}
	}
	fmt.Println(err)
	return 1
}

func prepared(kind, what, target string) (*Experiment, error) {
	h, ctx := host.Local(), context.Background()
	pid, err := strconv.Atoi(target)
	if err != nil {
		return nil, err
	}
	of, err := h.Resolve(ctx, host.Selector{PID: pid})
	if err != nil {
		return nil, err
	}
	switch kind {
	case "quota":
		return RaiseQuota(h, of, 0)
	case "group":
		return PauseGroup(ctx, h, of, what)
	}
	suspect, err := strconv.Atoi(what)
	if err != nil {
		return nil, err
	}
	return PauseProcess(ctx, h, of, suspect)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A site is a host with everything that experiments change: a group with a quota, one below each freezer, and a
// process.
type site struct {
	host     *lab.Host
	quota    string            // the control file
	groups   map[string]string // by directory, the control file
	target   *lab.Child        // in the group with the quota
	suspect  *lab.Child        // alone
	others   []*lab.Child      // in the groups
	original string            // what is in quota
}

// newSite makes one whose processes sleep.
func newSite(t *testing.T, l *lab.Lab, name string) *site {
	t.Helper()
	mode := lab.ChildOptions{Mode: lab.ModeSleep}
	h, err := l.Host(name)
	must(t, err)
	group, err := l.Cgroup(name)
	must(t, err)
	must(t, group.SetQuota(100*time.Millisecond, 20*time.Millisecond))
	dir, err := group.Dir("cpu")
	must(t, err)
	s := &site{host: h, groups: map[string]string{}, quota: dir + "/cpu.max"}
	if _, err := os.Stat(s.quota); err != nil {
		s.quota = dir + "/cpu.cfs_quota_us"
	}
	s.original = content(s.quota)
	s.target, err = h.StartChild(group, mode)
	must(t, err)
	s.suspect, err = h.StartChild(nil, mode)
	must(t, err)
	for root, file := range freezers(t) {
		child, err := h.StartChild(nil, mode)
		must(t, err)
		s.others = append(s.others, child)
		dir := fmt.Sprintf("%s/pd-experiment-%d-%s", root, os.Getpid(), name)
		must(t, os.Mkdir(dir, 0o750))
		t.Cleanup(func() { // before the lab ends the child, because a frozen child would not end
			awake := map[string]string{"cgroup.freeze": "0", "freezer.state": "THAWED"}[file]
			_ = os.WriteFile(dir+"/"+file, []byte(awake), 0)
			_, err := child.Stop()
			must(t, err)
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		must(t, os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(child.Pid)), 0))
		s.groups[dir] = dir + "/" + file
	}
	return s
}

// freezers are the roots of the trees that pause groups, with the name of the control file.
func freezers(t *testing.T) map[string]string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	roots := map[string]string{}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		switch {
		case f[2] == "cgroup2":
			roots[f[1]] = "cgroup.freeze"
		case f[2] == "cgroup" && slices.Contains(strings.Split(f[3], ","), "freezer"):
			roots[f[1]] = "freezer.state"
		}
	}
	if len(roots) == 0 {
		t.Fatal("no freezer is mounted")
	}
	return roots
}

func content(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// state is everything that experiments change.
func (s *site) state() map[string]string {
	out := map[string]string{s.quota: content(s.quota)}
	for _, file := range s.groups {
		out[file] = content(file)
	}
	for _, c := range append([]*lab.Child{s.target, s.suspect}, s.others...) {
		st, _, err := host.Local().ReadStat(c.Pid, 0, nil)
		out["process "+strconv.Itoa(c.Pid)] = fmt.Sprint(st.State == 'T', err)
	}
	return out
}

// trials are the arguments of all experiments of a site.
func (s *site) trials() [][]string {
	target := strconv.Itoa(s.target.Pid)
	out := [][]string{{"quota", "", target}, {"process", strconv.Itoa(s.suspect.Pid), target}}
	for _, dir := range slices.Sorted(maps.Keys(s.groups)) {
		out = append(out, []string{"group", dir, target})
	}
	return out
}

// A call is a running perfdoctor.
type call struct {
	*exec.Cmd
	out bytes.Buffer
}

func start(t *testing.T, s *site, window time.Duration, args []string) *call {
	t.Helper()
	c := &call{Cmd: exec.Command("/proc/self/exe", append(slices.Clone(args), window.String())...)}
	c.Args[0] = subjectName
	c.Stdout, c.Stderr = &c.out, &c.out
	must(t, s.host.Do(c.Start))
	return c
}

// watchdog is the child of a call, 0 if there is none.
func (c *call) watchdog() int {
	pid, err := strconv.Atoi(strings.TrimSpace(content(fmt.Sprintf("/proc/%d/task/%d/children", c.Process.Pid,
		c.Process.Pid))))
	if err != nil {
		return childOf(c.Process.Pid)
	}
	return pid
}

// childOf looks for the parent in every process, because a thread other than the first may have started the child.
func childOf(parent int) int {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0
	}
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if st, err := host.ParseStat(text); err == nil && st.PPID == parent && st.State != 'Z' {
			return st.PID
		}
	}
	return 0
}

// until waits for a condition, for half a minute at most: guests are slow.
func until(reached func() bool) bool {
	for deadline := time.Now().Add(30 * time.Second); !reached(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// changed waits until the call has changed something.
func (c *call) changed(t *testing.T, s *site, before map[string]string) {
	t.Helper()
	if !until(func() bool { return !maps.Equal(s.state(), before) }) {
		_ = c.Process.Kill()
		t.Fatalf("%v changed nothing: %s", c.Args, &c.out)
	}
}

// kills is how often perfdoctor, or its watchdog, is killed.
const kills = 50

// TestKilled kills perfdoctor or its watchdog in the middle of experiments, at random moments. Everything is as it was
// before.
func TestKilled(t *testing.T) {
	l := labtest.New(t)
	s := newSite(t, l, "killed")
	before, settings := s.state(), settingsOf(t, s)
	trials, hit := s.trials(), map[string]int{}
	for i := range kills {
		args := trials[i%len(trials)]
		c := start(t, s, shortest, args)
		if i%5 != 0 { // else at any moment, even before it
			c.changed(t, s, before)
		}
		time.Sleep(rand.N(shortest))
		victim, whom := c.Process.Pid, "perfdoctor"
		if i/len(trials)%2 == 1 {
			if pid := c.watchdog(); pid != 0 {
				victim, whom = pid, "watchdog"
			}
		}
		if !maps.Equal(s.state(), before) {
			hit[whom+" "+args[0]]++
		}
		must(t, unix.Kill(victim, unix.SIGKILL))
		_ = c.Wait() // ends with both, because they share its output
		if diff := cmp.Diff(before, s.state()); diff != "" {
			t.Fatalf("kill %d, of the %s, %v (-before +after):\n%s\n%s", i, whom, args, diff, &c.out)
		}
	}
	t.Logf("killed in the middle of a change: %v", hit)
	if diff := cmp.Diff(settings, settingsOf(t, s)); diff != "" {
		t.Errorf("settings, sockets and groups (-before +after):\n%s", diff)
	}
}

// settingsOf are the sysctls, the sockets of the site's host, and the names and limits of the groups of this test.
func settingsOf(t *testing.T, s *site) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := s.host.Do(func() error {
		for _, name := range []string{"tcp", "tcp6", "udp", "udp6", "raw", "unix", "packet", "netlink"} {
			file := "/proc/thread-self/net/" + name
			out[file] = content(file)
		}
		return filepath.WalkDir("/proc/sys", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !slices.ContainsFunc(counting, func(c string) bool {
				return strings.HasPrefix(name, "/proc/sys/"+c)
			}) {
				out[name] = content(name)
			}
			return nil // some may not be listed, before and after
		})
	})
	must(t, err)
	for root := range freezers(t) {
		found, err := filepath.Glob(fmt.Sprintf("%s/pd-experiment-%d-*/*", root, os.Getpid()))
		must(t, err)
		for _, file := range found {
			if name := filepath.Base(file); strings.Contains(name, "freez") || strings.Contains(name, "max") {
				out[file] = content(file)
			}
		}
	}
	found, err := filepath.Glob(filepath.Dir(s.quota) + "/*")
	must(t, err)
	for _, file := range found {
		if name := filepath.Base(file); strings.Contains(name, "cfs_") || strings.Contains(name, "max") {
			out[file] = content(file)
		}
	}
	return out
}

// counting are files below /proc/sys that look like settings but count by themselves.
var counting = []string{
	"kernel/random/", "kernel/ns_last_pid", "kernel/pty/nr", "fs/file-nr", "fs/inode-", "fs/dentry-state", "fs/aio-nr",
	"fs/quota/", "kernel/keys/", "net/netfilter/nf_conntrack_count", "fs/binfmt_misc", "dev/cdrom",
}

// TestBothKilled: if both are killed, the announced command undoes the change.
func TestBothKilled(t *testing.T) {
	l := labtest.New(t)
	s := newSite(t, l, "both")
	before := s.state()
	for _, args := range s.trials() {
		e, err := prepared(args[0], args[1], args[2])
		must(t, err)
		undo := e.Change().Undo
		e.Close()
		c := start(t, s, roomy, args)
		c.changed(t, s, before)
		watchdog := c.watchdog()
		if watchdog == 0 {
			t.Fatalf("%v: no watchdog: %s", args, &c.out)
		}
		must(t, unix.Kill(watchdog, unix.SIGSTOP)) // it must not be faster
		must(t, c.Process.Kill())
		must(t, unix.Kill(watchdog, unix.SIGKILL))
		_ = c.Wait()
		if maps.Equal(s.state(), before) {
			t.Errorf("%v: somebody undid it", args)
		}
		if out, err := exec.Command("sh", "-c", undo).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", undo, err, out)
		}
		if !until(func() bool { return maps.Equal(s.state(), before) }) {
			t.Errorf("%s: %s", undo, cmp.Diff(before, s.state()))
		}
	}
}

// TestInterference: changes that others make meanwhile are respected. What has gone needs no undoing.
func TestInterference(t *testing.T) {
	l := labtest.New(t)
	s := newSite(t, l, "others")
	before := s.state()
	other := "70000"
	if strings.HasSuffix(s.quota, "cpu.max") {
		other = "70000 100000"
	}

	c := start(t, s, roomy, s.trials()[0])
	c.changed(t, s, before)
	must(t, os.WriteFile(s.quota, []byte(other), 0))
	_ = c.Wait()
	if got := content(s.quota); got != other || !strings.Contains(c.out.String(), "set to "+other+" by another") {
		t.Errorf("the quota is %s, want %s: %s", got, other, &c.out)
	}
	must(t, os.WriteFile(s.quota, []byte(s.original), 0))

	c = start(t, s, roomy, s.trials()[0]) // also if the process that would have noticed is killed
	c.changed(t, s, before)
	must(t, os.WriteFile(s.quota, []byte(other), 0))
	must(t, c.Process.Kill())
	_ = c.Wait()
	if got := content(s.quota); got != other || !strings.Contains(c.out.String(), "set to "+other+" by another") {
		t.Errorf("the quota is %s, want %s: %s", got, other, &c.out)
	}
	must(t, os.WriteFile(s.quota, []byte(s.original), 0))

	c = start(t, s, roomy, s.trials()[0])
	c.changed(t, s, before)
	again := start(t, s, roomy, s.trials()[0])
	_ = again.Wait()
	if out := again.out.String(); !strings.Contains(out, "no CPU limit") && !strings.Contains(out, "under way") {
		t.Errorf("a second experiment: %s", out)
	}
	_ = c.Wait()

	c = start(t, s, roomy, s.trials()[1])
	c.changed(t, s, before)
	must(t, s.suspect.Signal(unix.SIGKILL))
	_ = c.Wait()
	if !strings.Contains(c.out.String(), "there is nothing to undo") {
		t.Errorf("a suspect that ends: %s", &c.out)
	}
}

// TestExited: after it has exited, a process has nothing to undo, even before it is reaped and if signals reach it.
func TestExited(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // it was killed
	dir, err := os.Open(fmt.Sprint("/proc/", cmd.Process.Pid))
	must(t, err)
	defer dir.Close()
	k := &knob{name: "process", pid: cmd.Process.Pid, before: running, during: stopped, file: dir}
	must(t, cmd.Process.Kill())
	if !until(func() bool {
		state, err := k.processState()
		return err == nil && state.State == 'Z'
	}) {
		t.Fatal("it does not exit")
	}
	if now, lasted, err := k.undo(); err != nil || lasted || !strings.Contains(now, "there is nothing to undo") {
		t.Errorf("undone: %q, lasted %v, %v", now, lasted, err)
	}
}

// TestGroupGone: if a group is removed in the middle, the experiment says so and writes to no other group.
func TestGroupGone(t *testing.T) {
	l := labtest.New(t)
	s := newSite(t, l, "gone")
	c := start(t, s, roomy, s.trials()[0])
	c.changed(t, s, s.state())
	must(t, s.target.Signal(unix.SIGKILL))
	<-s.target.Done()
	dir := filepath.Dir(s.quota)
	if !until(func() bool { return unix.Rmdir(dir) == nil }) {
		t.Fatalf("%s cannot be removed", dir)
	}
	must(t, os.Mkdir(dir, 0o750)) // of the same name
	_ = c.Wait()
	got, out := content(s.quota), c.out.String()
	if strings.HasPrefix(got, "20000") || !strings.Contains(out, "nothing to undo") {
		t.Errorf("the quota of the new group is %s: %s", got, out)
	}
}

// TestLate: a stopped perfdoctor does not keep the change.
func TestLate(t *testing.T) {
	l := labtest.New(t)
	s := newSite(t, l, "late")
	before := s.state()
	c := start(t, s, roomy, s.trials()[0])
	c.changed(t, s, before)
	must(t, c.Process.Signal(syscall.SIGSTOP))
	if !until(func() bool { return maps.Equal(s.state(), before) }) {
		t.Errorf("not undone: %s", cmp.Diff(before, s.state()))
	}
	must(t, c.Process.Signal(syscall.SIGCONT))
	_ = c.Wait()
	out := c.out.String()
	if !strings.Contains(out, "its watchdog has undone it") || strings.Contains(out, "stands") {
		t.Errorf("said: %s", out)
	}
}

// TestShows: a limit that throttles a group holds it back, and so does a neighbour on its CPU.
func TestShows(t *testing.T) {
	l := labtest.New(t)
	s := newSite(t, l, "shows")
	group, err := l.Cgroup("shows")
	must(t, err)
	spinner := func(group *lab.Cgroup, threads int) *lab.Child {
		t.Helper()
		c, err := s.host.StartChild(group, lab.ChildOptions{
			Mode: lab.ModeSpin, Spin: lab.SpinOptions{Threads: threads}, Affinity: []int{0}, Duration: time.Minute,
		})
		must(t, err)
		t.Cleanup(func() { _, _ = c.Stop() }) // the lab says what goes wrong
		return c
	}
	limited := spinner(group, 1)
	stands(t, "quota", "", strconv.Itoa(limited.Pid))
	_, err = limited.Stop()
	must(t, err)

	target, suspect := strconv.Itoa(spinner(nil, 1).Pid), strconv.Itoa(spinner(nil, 4).Pid)
	stands(t, "process", suspect, target)
	for dir := range s.groups {
		must(t, os.WriteFile(dir+"/cgroup.procs", []byte(suspect), 0))
		stands(t, "group", dir, target)
	}
}

// stands expects that outcome in one of three tries, because other programs take CPUs too. A try does not count if a
// reading took longer than it may, as it sometimes does in an emulated guest: then everything is undone.
func stands(t *testing.T, args ...string) {
	t.Helper()
	for tries, late := 0, 0; tries < 3 && late < 10; {
		r, err := tried(t, args)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Logf("%v: %v", args, err)
			late++
			continue
		}
		must(t, err)
		tries++
		t.Logf("%v: %+v: %s: %s", args, r.Windows, r.Result, r.Because)
		if r.Result == Stands {
			return
		}
	}
	t.Errorf("%v: does not stand in three tries", args)
}

func tried(t *testing.T, args []string) (*Result, error) {
	t.Helper()
	e, err := prepared(args[0], args[1], args[2])
	if err != nil {
		return nil, err
	}
	defer e.Close()
	e.Duration = time.Second
	return e.Run(t.Context())
}

// TestRefused: there is no experiment without an undo, on oneself, or on the process that started this one.
func TestRefused(t *testing.T) {
	l := labtest.New(t)
	s := newSite(t, l, "refused")
	target := strconv.Itoa(s.target.Pid)
	for _, args := range [][]string{
		{"process", "1", target},
		{"process", strconv.Itoa(os.Getpid()), target},
		{"process", strconv.Itoa(os.Getppid()), target},
		{"process", target, target},
		{"group", "/", target},
		{"quota", "", strconv.Itoa(s.suspect.Pid)},
	} {
		e, err := prepared(args[0], args[1], args[2])
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%v: %v, want a refusal", args, err)
		}
		if err == nil {
			e.Close()
		}
	}
	must(t, s.suspect.Signal(unix.SIGSTOP))
	if !until(func() bool {
		_, err := prepared("process", strconv.Itoa(s.suspect.Pid), target)
		return errors.Is(err, ErrRefused)
	}) {
		t.Error("a process that is stopped already is not refused")
	}
	must(t, s.suspect.Signal(unix.SIGCONT))
	if _, err := prepared("process", "4194304", target); !errors.Is(err, host.ErrNoSuchProcess) { // PID_MAX_LIMIT
		t.Errorf("a process that is not there: %v", err)
	}
}
