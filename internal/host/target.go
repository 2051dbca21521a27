package host

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
)

// Selector names what to look at. At most one field is set; none means the whole host.
type Selector struct {
	PID         int
	Comm        string // exact command name, or the base name of argv[0] when longer than the kernel keeps
	CgroupPath  string // a directory below a cgroup mount, or a path from the root of a cgroup tree
	ContainerID string // a 64-digit id, a prefix that only one container has, or the name of a Docker container
}

// Kind says what sort of thing a target is.
type Kind string

// The kinds of target.
const (
	KindHost      Kind = "host"
	KindProcess   Kind = "process"
	KindCgroup    Kind = "cgroup"
	KindContainer Kind = "container"
)

// Target is what the selector named, as it was when resolved. For a cgroup or a container, the fields about one
// process describe its oldest root process.
type Target struct {
	Kind      Kind
	PIDs      []int // root processes: those whose parent is not in the target. Empty for the host
	Name      string
	Comm      string
	StartTime uint64 // of PIDs[0], in ticks after boot: distinguishes it from a later process with the same pid

	Namespaces Namespaces
	NSPid      int // the pid of PIDs[0] in its own, innermost pid namespace; 0 when unknown (before Linux 4.1)

	Cgroups   []CgroupLevel // own group first, then its ancestors, one controller after the other
	CgroupDir string        // the group whose subtree is the target, for cgroups and containers

	UID, GID int // effective
	User     string

	ContainerID      string
	ContainerRuntime string // docker, containerd, cri-o or podman
	PodUID           string // Kubernetes

	Runtime       Runtime
	RuntimeReason string   // why Runtime is what it is, or why it is not known
	Threads       int      // of PIDs[0]
	Cmdline       []string // argv of PIDs[0], secrets included: redact before it is stored
	Notes         []string // what could not be found out, and why
}

// Namespace is one namespace of the target.
type Namespace struct {
	Inode  uint64 // identifies the namespace while it lives; 0 when it may not be read
	Same   bool   // perfdoctor is in the same one
	Reason string // why Inode is 0
}

// Namespaces are the namespaces that decide which numbers describe the target.
type Namespaces struct{ Net, PID, Mnt, User Namespace }

// initPIDNS is PROC_PID_INIT_INO, the inode of the first pid namespace (include/linux/proc_ns.h).
const initPIDNS = 0xEFFFFFFC

// commLen is TASK_COMM_LEN less the closing zero (include/linux/sched.h).
const commLen = 15

// Resolve finds the target. Its error is ErrNoSuchProcess, ErrNoSuchCgroup, ErrNoSuchContainer, ErrPermission,
// ErrAmbiguous or ErrSelector if the user can fix it, and a read error otherwise.
func (h *Host) Resolve(ctx context.Context, sel Selector) (Target, error) {
	if err := sel.validate(); err != nil {
		return Target{}, err
	}
	t, err := clock.Within(resolveLimit, func() (Target, error) {
		return firewall.Parse("the target", func() (Target, error) { return h.resolve(ctx, sel) })
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return Target{}, fmt.Errorf("look for the target in %s: %w; a process there keeps whoever looks at it "+
			"waiting, ps too: name another target, or none", h.Proc, err)
	}
	return t, err
}

// resolveLimit is how long it may take to find a target. Listing the processes of a large host takes 0.1 s. But the
// kernel can keep a reader waiting for ever for a process that executes a program or changes its memory
// (exec_update_lock and mmap_lock).
const resolveLimit = 3 * time.Second

func (h *Host) resolve(ctx context.Context, sel Selector) (Target, error) {
	switch {
	case sel.PID != 0:
		return h.resolvePID(sel.PID)
	case sel.Comm != "":
		return h.resolveComm(ctx, sel.Comm)
	case sel.CgroupPath != "":
		return h.resolveCgroup(ctx, sel.CgroupPath)
	case sel.ContainerID != "":
		return h.resolveContainer(ctx, sel.ContainerID)
	}
	return h.wholeHost()
}

func (sel Selector) validate() error {
	set := 0
	for _, given := range []bool{sel.PID != 0, sel.Comm != "", sel.CgroupPath != "", sel.ContainerID != ""} {
		if given {
			set++
		}
	}
	if set > 1 {
		return kindErrorf(ErrSelector, "give one of --pid, --comm, --cgroup and --container, not several")
	}
	if sel.PID < 0 {
		return kindErrorf(ErrSelector, "pid %d is not a process id: give a positive number", sel.PID)
	}
	return nil
}

func (h *Host) wholeHost() (Target, error) {
	t := Target{Kind: KindHost, Name: "host"}
	t.Namespaces = h.namespaces("self")
	for _, own := range []struct {
		name  string
		first uint64
	}{{"pid", initPIDNS}, {"user", initUserNS}} {
		ino, err := h.ownNamespace(own.name)
		if err == nil && ino != own.first {
			t.Notes = append(t.Notes, "perfdoctor runs in a "+own.name+" namespace of its own: it sees part of "+
				"the host")
		}
	}
	return t, nil
}

// FirstPIDNamespace reports whether perfdoctor is in the first pid namespace: the pids that BPF programs get from the
// kernel are of that namespace.
func (h *Host) FirstPIDNamespace() bool {
	ino, err := h.ownNamespace("pid")
	return err == nil && ino == initPIDNS
}

func (h *Host) resolvePID(pid int) (Target, error) {
	status, err := h.readStatus(pid)
	if err != nil {
		return Target{}, err
	}
	t, err := h.processTarget(status.Tgid)
	if err != nil {
		return Target{}, err
	}
	if status.Tgid != pid {
		t.Notes = append(t.Notes, fmt.Sprintf("%d is a thread of process %d: the process is the target", pid,
			status.Tgid))
	}
	return t, nil
}

func (h *Host) processTarget(pid int) (Target, error) {
	t := Target{Kind: KindProcess, PIDs: []int{pid}}
	lines, err := h.describe(&t)
	if err != nil {
		return Target{}, err
	}
	t.Name = t.Comm + " (pid " + strconv.Itoa(pid) + ")"
	levels, notes, err := h.cgroupLevels(lines)
	if err != nil {
		notes = append(notes, "cgroups: "+err.Error())
	}
	t.Cgroups = levels
	t.Notes = append(t.Notes, notes...)
	return t, nil
}

// describe fills in what the first process of the target says about it, and returns its cgroups.
func (h *Host) describe(t *Target) ([]cgroupLine, error) {
	pid := t.PIDs[0]
	stat, _, err := h.ReadStat(pid, 0, nil)
	if err != nil {
		return nil, err
	}
	if stat.State == 'Z' || stat.State == 'X' {
		return nil, kindErrorf(ErrNoSuchProcess,
			"process %d (%s) has ended and only waits for its parent %d to collect it (zombie)", pid, stat.Comm,
			stat.PPID)
	}
	status, err := h.readStatus(pid)
	if err != nil {
		return nil, err
	}
	lines, err := h.readCgroup(pid)
	if err != nil {
		t.Notes = append(t.Notes, "cgroups: "+err.Error())
	}
	t.Comm, t.StartTime, t.Threads = stat.Comm, stat.StartTime, stat.Threads
	t.UID, t.GID = status.UID[1], status.GID[1]
	t.User = h.userName(t.UID)
	t.NSPid = status.InnermostPID(t.NSPid)
	t.Namespaces = h.namespaces(strconv.Itoa(pid))
	t.Cmdline = h.cmdline(pid)
	t.Runtime, t.RuntimeReason = h.runtimeOf(pid, stat)
	c := innermost(lines)
	t.ContainerID, t.ContainerRuntime, t.PodUID = c.id, c.runtime, c.podUID
	return lines, nil
}

// maxCmdline bounds a command line, which is for people to read and is kept for every process of the host: a Java
// program with a long class path has 30 KiB.
const maxCmdline = 64 << 10

// cmdline returns argv as far as it goes, nil for a kernel thread or when it may not be read. A process may overwrite
// its argv with one string, as nginx and PostgreSQL do.
func (h *Host) cmdline(pid int) []string {
	b, _, err := door.Read(h.pidPath(pid, "cmdline"), maxCmdline)
	b = bytes.TrimRight(b, "\x00")
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(string(b), "\x00")
}

// userName looks the id up in passwd; it returns "" if it is not there. os/user would ask NSS through cgo, which a
// static binary lacks.
func (h *Host) userName(uid int) string {
	f, err := os.Open(filepath.Join(h.Etc, "passwd"))
	if err != nil {
		return ""
	}
	defer f.Close()
	id := strconv.Itoa(uid)
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if p := strings.SplitN(sc.Text(), ":", 4); len(p) == 4 && p[2] == id {
			return p[0]
		}
	}
	return ""
}

func (h *Host) namespaces(pid string) Namespaces {
	return Namespaces{
		Net: h.namespace(pid, "net"), PID: h.namespace(pid, "pid"),
		Mnt: h.namespace(pid, "mnt"), User: h.namespace(pid, "user"),
	}
}

func (h *Host) namespace(pid, name string) Namespace {
	if pid == "self" {
		ino, err := h.ownNamespace(name)
		if err != nil {
			return Namespace{Reason: err.Error()}
		}
		return Namespace{Inode: ino, Same: true}
	}
	ino, err := readNamespace(filepath.Join(h.Proc, pid, "ns", name))
	if errors.Is(err, fs.ErrPermission) {
		return Namespace{Reason: err.Error() + "; run as root or with CAP_SYS_PTRACE"}
	}
	if err != nil {
		return Namespace{Reason: err.Error()}
	}
	own, err := h.ownNamespace(name)
	return Namespace{Inode: ino, Same: err == nil && own == ino}
}

// ownNamespace asks the calling thread: /proc/self is the main thread, which need not be in the same namespace.
func (h *Host) ownNamespace(name string) (uint64, error) {
	ino, err := readNamespace(filepath.Join(h.Proc, "thread-self/ns", name))
	if err != nil {
		// thread-self came with Linux 3.17.
		return readNamespace(filepath.Join(h.Proc, "self/ns", name))
	}
	return ino, nil
}

// readNamespace reads a link such as "net:[4026531840]" (fs/nsfs.c).
func readNamespace(file string) (uint64, error) {
	link, err := os.Readlink(file)
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(link, ":[")
	digits, ok := strings.CutSuffix(rest, "]")
	ino, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("%s: bad namespace link %q", file, link)
	}
	return ino, nil
}

func (h *Host) resolveComm(ctx context.Context, name string) (Target, error) {
	stats, err := h.allStats(ctx)
	if err != nil {
		return Target{}, err
	}
	self := h.selfPID()
	matched := map[int]bool{}
	for pid, st := range stats {
		if pid != self && st.State != 'Z' && h.commMatches(st, name) {
			matched[pid] = true
		}
	}
	top := roots(matched, stats)
	switch len(top) {
	case 0:
		return Target{}, kindErrorf(ErrNoSuchProcess, "no process has the command name %q%s", name, h.hiddenHint())
	case 1:
		return h.processTarget(top[0])
	}
	return Target{}, kindErrorf(ErrAmbiguous, "%d processes that are not each other's children have the command "+
		"name %q "+
		"(%s): choose one with --pid", len(top), name, h.listPIDs(top))
}

func (h *Host) commMatches(st Stat, name string) bool {
	if len(name) <= commLen {
		return st.Comm == name
	}
	// A kernel worker's name may be longer than a user thread's.
	if st.Comm == name {
		return true
	}
	argv := h.cmdline(st.PID)
	return len(argv) > 0 && path.Base(argv[0]) == name
}

func (h *Host) hiddenHint() string {
	if hide := h.hidepid(); hide != "" && h.checkCap(capSysPtrace) != nil {
		return fmt.Sprintf(" (%s is mounted with hidepid=%s, which hides other users' processes: run as root)", h.Proc,
			hide)
	}
	return ""
}

// maxListed keeps a message about many processes readable.
const maxListed = 10

// listPIDs lists processes with their users: anyone may give a program the name of another.
func (h *Host) listPIDs(pids []int) string {
	var list []string
	for _, pid := range pids[:min(len(pids), maxListed)] {
		one := strconv.Itoa(pid)
		if status, err := h.readStatus(pid); err == nil {
			one += " of " + h.UserName(status.UID[1])
		}
		list = append(list, one)
	}
	text := "pids " + strings.Join(list, ", ")
	if more := len(pids) - len(list); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// roots returns the members without an ancestor in the set, oldest first.
func roots(set map[int]bool, stats map[int]Stat) []int {
	var top []int
	for pid := range set {
		if !hasAncestor(pid, set, stats) {
			top = append(top, pid)
		}
	}
	slices.SortFunc(top, func(a, b int) int {
		if d := int64(stats[a].StartTime) - int64(stats[b].StartTime); d != 0 {
			return int(d)
		}
		return a - b
	})
	return top
}

func hasAncestor(pid int, set map[int]bool, stats map[int]Stat) bool {
	at := stats[pid].PPID
	// The bound guards against a loop in a table that was read while pids were reused.
	for range len(stats) {
		if set[at] {
			return true
		}
		st, ok := stats[at]
		if !ok || at == pid {
			return false
		}
		at = st.PPID
	}
	return false
}

func (h *Host) resolveCgroup(ctx context.Context, name string) (Target, error) {
	groups, err := h.findGroups(name)
	if err != nil {
		return Target{}, err
	}
	t := Target{Kind: KindCgroup, CgroupDir: groups[0].dir}
	if err := h.rootsOfGroup(ctx, &t); err != nil {
		return Target{}, err
	}
	if _, err := h.describe(&t); err != nil {
		return Target{}, err
	}
	t.Name = groups[0].path
	for _, g := range groups {
		t.Cgroups = append(t.Cgroups, g.tree.levels(g.path)...)
	}
	slices.SortStableFunc(t.Cgroups, func(a, b CgroupLevel) int { return controllerRank(a) - controllerRank(b) })
	if h.ownCgroupNS() {
		t.Notes = append(t.Notes, "perfdoctor runs in its own cgroup namespace: limits above its root cannot be seen")
	}
	return t, nil
}

// rootsOfGroup sets the root processes of a cgroup target.
func (h *Host) rootsOfGroup(ctx context.Context, t *Target) error {
	pids, err := h.groupPIDs(t.CgroupDir)
	if err != nil {
		return err
	}
	stats, err := h.statsOf(ctx, pids)
	if err != nil {
		return err
	}
	maps.DeleteFunc(stats, func(_ int, st Stat) bool { return st.State == 'Z' || st.State == 'X' })
	if len(stats) == 0 {
		return kindErrorf(ErrNoSuchProcess, "cgroup %s holds no process that can be seen here", t.CgroupDir)
	}
	set := map[int]bool{}
	for pid := range stats {
		set[pid] = true
	}
	t.PIDs = roots(set, stats)
	return nil
}

func (h *Host) resolveContainer(ctx context.Context, name string) (Target, error) {
	id, unnamed, err := h.containerNamed(ctx, name)
	if err != nil {
		return Target{}, err
	}
	prefix := id // a name takes precedence over the beginning of an id, as with Docker
	if id == "" {
		prefix = normalContainerID(name)
	}
	if prefix == "" {
		return Target{}, kindErrorf(ErrNoSuchContainer, "no running container of Docker's is named %q, and it is no "+
			"id of one: "+
			"give %d to %d hexadecimal digits%s", name, minContainerPrefix, containerIDLen, unnamed)
	}
	found, err := h.findContainers(ctx, prefix)
	if err != nil {
		return Target{}, err
	}
	if id != "" && len(found) > 0 {
		t, err := h.containerTarget(ctx, id, found[id])
		t.Name = Docker + " " + name
		return t, err
	}
	if len(found) == 0 {
		return Target{}, kindErrorf(ErrNoSuchContainer, "no process is in a container whose id begins with %s: "+
			"looked in the cgroup paths of %s/*/cgroup%s", prefix, h.Proc, h.hiddenHint())
	}
	ids := slices.Sorted(maps.Keys(found))
	if len(ids) > 1 {
		return Target{}, kindErrorf(ErrAmbiguous, "%d containers have an id that begins with %s: %s", len(ids), prefix,
			strings.Join(ids[:min(len(ids), maxListed)], ", "))
	}
	return h.containerTarget(ctx, ids[0], found[ids[0]])
}

// findContainers maps the ids that begin with prefix to their processes.
func (h *Host) findContainers(ctx context.Context, prefix string) (map[string][]int, error) {
	pids, err := h.allPIDs()
	if err != nil {
		return nil, err
	}
	found := map[string][]int{}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		lines, err := h.readCgroup(pid)
		if err != nil {
			continue // ended, or hidden from this user: it cannot be measured
		}
		for _, c := range containersOf(lines) {
			if strings.HasPrefix(c.id, prefix) {
				found[c.id] = append(found[c.id], pid)
			}
		}
	}
	return found, nil
}

func (h *Host) containerTarget(ctx context.Context, id string, pids []int) (Target, error) {
	stats, err := h.statsOf(ctx, pids)
	if err != nil {
		return Target{}, err
	}
	set := map[int]bool{}
	for pid, st := range stats {
		set[pid] = st.State != 'Z' && st.State != 'X'
	}
	maps.DeleteFunc(set, func(_ int, live bool) bool { return !live })
	if len(set) == 0 {
		return Target{}, kindErrorf(ErrNoSuchContainer, "container %s has ended", id)
	}
	t := Target{Kind: KindContainer, PIDs: roots(set, stats)}
	lines, err := h.describe(&t)
	if err != nil {
		return Target{}, err
	}
	levels, notes, err := h.cgroupLevels(lines)
	if err != nil {
		notes = append(notes, "cgroups: "+err.Error())
	}
	t.Cgroups, t.Notes = levels, append(t.Notes, notes...)
	for _, c := range containersOf(lines) {
		if c.id == id {
			t.ContainerID, t.ContainerRuntime, t.PodUID = c.id, c.runtime, c.podUID
		}
	}
	t.Name = strings.TrimSpace(t.ContainerRuntime + " " + id[:12])
	t.CgroupDir = containerDir(levels, id)
	return t, nil
}

// containerDir returns the directory of the container's own group: the highest level whose last component names it.
func containerDir(levels []CgroupLevel, id string) string {
	for _, l := range levels {
		found := containersIn(l.Path)
		if n := len(found); n > 0 && found[n-1].id == id && found[n-1].path == l.Path {
			return l.Dir
		}
	}
	return ""
}
