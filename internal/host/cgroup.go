package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A CgroupLevel is one control group the target lives in or below: its own or an ancestor. Limits of every level
// bind, so a quota may sit far above the target's own group.
type CgroupLevel struct {
	Controller string // cpu, cpuacct, memory, pids or cpuset of v1; "" for v2, where one group serves all
	Version    int    // 1 or 2
	Path       string // as in /proc/PID/cgroup, "/" is the root that perfdoctor sees
	Dir        string // the directory with its files on this host
}

// levelControllers are the v1 controllers perfdoctor reads. cpuacct is only listed apart from cpu where it is mounted
// apart; systemd mounts the two together.
func levelControllers() []string { return []string{"cpu", "cpuacct", "memory", "pids", "cpuset"} }

// cgroupLine is one line of /proc/PID/cgroup (kernel/cgroup/cgroup.c, proc_cgroup_show).
type cgroupLine struct {
	controllers []string // empty for v2; "name=systemd" for a named v1 hierarchy
	version     int
	path        string // may begin with /.. when the process is outside the reader's cgroup namespace
}

// parseCgroup reads /proc/PID/cgroup. An empty text is valid: a kernel without cgroups has one, and on some kernels a
// zombie.
func parseCgroup(r io.Reader) ([]cgroupLine, error) {
	var lines []cgroupLine
	sc := newScanner(r)
	for sc.Scan() {
		id, rest, ok := strings.Cut(sc.Text(), ":")
		controllers, p, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 || !strings.HasPrefix(p, "/") {
			return nil, fmt.Errorf("cgroup: bad line %q", clip(sc.Bytes()))
		}
		n, err := strconv.ParseUint(id, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("cgroup: bad hierarchy %q", clip([]byte(id)))
		}
		line := cgroupLine{version: 1, path: p}
		if n == 0 && controllers == "" {
			line.version = 2
			// A v2 group that was removed while the process was ending in it.
			line.path = strings.TrimSuffix(p, " (deleted)")
		} else {
			line.controllers = strings.Split(controllers, ",")
		}
		lines = append(lines, line)
	}
	return lines, sc.Err()
}

// newScanner reads lines of up to 1 MiB: overlay mounts list hundreds of directories in one line.
func newScanner(r io.Reader) *bufio.Scanner {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 4096), 1<<20)
	return sc
}

// mount is one line of /proc/PID/mountinfo (Documentation/filesystems/proc.rst, 3.5).
type mount struct {
	device  string // major:minor of the file system
	root    string // the directory within the file system that is mounted
	point   string
	options []string // of this mount
	fsType  string
	super   []string // options of the file system: v1 controllers, hidepid
}

// parseMountInfo reads mountinfo; octal escapes in paths are resolved.
func parseMountInfo(r io.Reader) ([]mount, error) {
	var mounts []mount
	sc := newScanner(r)
	for sc.Scan() {
		left, right, ok := strings.Cut(sc.Text(), " - ")
		f, g := strings.Fields(left), strings.Fields(right)
		// The source may be the empty string, which leaves two fields on the right.
		if !ok || len(f) < 6 || len(g) < 2 {
			return nil, fmt.Errorf("mountinfo: bad line %q", clip(sc.Bytes()))
		}
		mounts = append(mounts, mount{
			device: f[2], root: unescape(f[3]), point: unescape(f[4]), options: strings.Split(f[5], ","),
			fsType: g[0], super: strings.Split(g[len(g)-1], ","),
		})
	}
	return mounts, sc.Err()
}

// unescape resolves \ooo, which the kernel writes for space, tab, line break, backslash and # (fs/proc_namespace.c).
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// hierarchy is one mounted cgroup tree.
type hierarchy struct {
	version     int
	controllers []string // v1: controllers and name=; v2: nil
	root        string   // path within the hierarchy that is mounted, "/" unless a sub-tree is bind-mounted
	dir         string   // where it is on this host
	point       string   // where it is according to mountinfo
}

func (h *Host) mounts() ([]mount, error) {
	mounts, err := h.mountsOf("self")
	if err != nil {
		return nil, fmt.Errorf("find mounts: %w", err)
	}
	return mounts, nil
}

// hierarchies lists the mounted cgroup trees, those that show most of their tree first.
func (h *Host) hierarchies() ([]hierarchy, error) {
	mounts, err := h.mounts()
	if err != nil {
		return nil, err
	}
	var out []hierarchy
	for _, m := range mounts {
		hier := hierarchy{root: m.root, dir: h.onHost(m.point), point: m.point}
		switch m.fsType {
		case "cgroup2":
			hier.version = 2
		case "cgroup":
			hier.version = 1
			hier.controllers = m.super
		default:
			continue
		}
		out = append(out, hier)
	}
	slices.SortStableFunc(out, func(a, b hierarchy) int { return len(a.root) - len(b.root) })
	return out, nil
}

// onHost maps a mount point below /sys to where sysfs is read.
func (h *Host) onHost(point string) string {
	if rest, ok := below("/sys", point); ok {
		return strings.TrimSuffix(h.Sys+rest, "/")
	}
	return point
}

// below cuts the directory base off p, at whole path components; the rest is "/" or begins with it.
func below(base, p string) (rest string, ok bool) {
	if base == "/" {
		return p, strings.HasPrefix(p, "/")
	}
	rest, ok = strings.CutPrefix(p, base)
	if !ok || (rest != "" && rest[0] != '/') {
		return "", false
	}
	if rest == "" {
		return "/", true
	}
	return rest, true
}

// serves reports whether the tree is the one of a line of /proc/PID/cgroup.
func (t *hierarchy) serves(line cgroupLine) bool {
	if t.version != line.version {
		return false
	}
	if t.version == 2 {
		return true
	}
	return slices.ContainsFunc(line.controllers, func(c string) bool { return slices.Contains(t.controllers, c) })
}

// dirOf returns the directory of a group, "" when the group is not below the mounted root. A path with ".." left in
// it lies outside perfdoctor's cgroup namespace: joined to the mount point it would name some other directory.
func (t *hierarchy) dirOf(p string) string {
	rest, ok := below(t.root, p)
	if !ok || slices.Contains(strings.Split(rest, "/"), "..") {
		return ""
	}
	return strings.TrimSuffix(t.dir+rest, "/")
}

// levelNames returns the controllers under which the tree is listed, "" for v2.
func (t *hierarchy) levelNames() []string {
	if t.version == 2 {
		return []string{""}
	}
	var names []string
	for _, c := range levelControllers() {
		joined := c == "cpuacct" && slices.Contains(t.controllers, "cpu")
		if slices.Contains(t.controllers, c) && !joined {
			names = append(names, c)
		}
	}
	return names
}

// levels lists a group of this tree and its ancestors as far as they can be seen.
func (t *hierarchy) levels(p string) []CgroupLevel {
	var out []CgroupLevel
	for _, name := range t.levelNames() {
		for at := p; ; at = path.Dir(at) {
			dir := t.dirOf(at)
			if dir == "" {
				break
			}
			out = append(out, CgroupLevel{Controller: name, Version: t.version, Path: at, Dir: dir})
			if at == "/" || at == t.root {
				break
			}
		}
	}
	return out
}

// findTree returns the tree that shows the group of a line, nil when none does.
func findTree(trees []hierarchy, line cgroupLine) *hierarchy {
	for i := range trees {
		if trees[i].serves(line) && trees[i].dirOf(line.path) != "" {
			return &trees[i]
		}
	}
	return nil
}

func (h *Host) readCgroup(pid int) ([]cgroupLine, error) {
	b, err := ReadFile(h.pidPath(pid, "cgroup"), make([]byte, 1024))
	if err != nil {
		return nil, h.processError(pid, err)
	}
	return parseCgroup(strings.NewReader(string(b)))
}

// cgroupLevels lists every visible level of the groups in lines, and notes what is hidden.
func (h *Host) cgroupLevels(lines []cgroupLine) (levels []CgroupLevel, notes []string, err error) {
	trees, err := h.hierarchies()
	if err != nil {
		return nil, nil, err
	}
	for _, line := range lines {
		if line.version == 1 && len((&hierarchy{version: 1, controllers: line.controllers}).levelNames()) == 0 {
			continue
		}
		tree := findTree(trees, line)
		if tree == nil {
			notes = append(notes, hiddenNote(line))
			continue
		}
		levels = append(levels, tree.levels(line.path)...)
		if tree.root != "/" {
			notes = append(
				notes, fmt.Sprintf("cgroup levels above %s are not mounted at %s: limits there cannot be seen",
					tree.root, tree.point))
		}
	}
	if h.ownCgroupNS() {
		notes = append(notes, "perfdoctor runs in its own cgroup namespace: "+
			"limits above its root cannot be seen; run it on the host or with --cgroupns=host")
	}
	slices.SortStableFunc(levels, func(a, b CgroupLevel) int { return controllerRank(a) - controllerRank(b) })
	return levels, notes, nil
}

func hiddenNote(line cgroupLine) string {
	what := "cgroup v2"
	if line.version == 1 {
		what = "cgroup v1 " + strings.Join(line.controllers, ",")
	}
	if strings.HasPrefix(line.path, "/..") {
		return fmt.Sprintf("%s group %s is outside perfdoctor's cgroup namespace: run it on the host", what, line.path)
	}
	return fmt.Sprintf("%s group %s is not below any mounted cgroup tree", what, line.path)
}

// controllerRank sorts v1 controllers in the order of levelControllers, and v2 after them.
func controllerRank(l CgroupLevel) int {
	if l.Version == 2 {
		return len(levelControllers())
	}
	return slices.Index(levelControllers(), l.Controller)
}

// initCgroupNS is PROC_CGROUP_INIT_INO, the fixed inode of the first cgroup namespace (include/linux/proc_ns.h).
const initCgroupNS = 0xEFFFFFFB

// ownCgroupNS reports whether perfdoctor is known to be in another cgroup namespace than the first.
func (h *Host) ownCgroupNS() bool {
	ino, err := h.ownNamespace("cgroup")
	return err == nil && ino != initCgroupNS
}

// UnifiedRoot returns the directory of the root of the v2 cgroups: every process of the host is in it or below it. It
// fails where no v2 tree is mounted, or only a part of it is visible, as from within a container.
func (h *Host) UnifiedRoot() (string, error) {
	if h.ownCgroupNS() {
		return "", errors.New("perfdoctor is in a cgroup namespace of its own")
	}
	trees, err := h.hierarchies()
	if err != nil {
		return "", err
	}
	for _, t := range trees {
		if t.version == 2 && t.root == "/" {
			return t.dir, nil
		}
	}
	return "", errors.New("no whole v2 cgroup tree is mounted")
}

// group is a cgroup that the user named, in one tree.
type group struct {
	tree *hierarchy
	path string
	dir  string
}

// findGroups resolves --cgroup: a directory below a mount point, or a path from the root of a tree. The first group
// is the one whose processes count; the others are the same path in the other v1 trees.
func (h *Host) findGroups(name string) ([]group, error) {
	trees, err := h.hierarchies()
	if err != nil {
		return nil, err
	}
	if len(trees) == 0 {
		return nil, kindErrorf(ErrNoSuchCgroup, "no cgroup %s: no cgroup file system is mounted", name)
	}
	name = path.Clean(name)
	want, first := groupPath(trees, name)
	groups, looked := existingGroups(trees, want, first)
	if len(groups) == 0 {
		return nil, kindErrorf(ErrNoSuchCgroup, "no cgroup %s: looked for %s", name, strings.Join(looked, ", "))
	}
	return groups, nil
}

// groupPath turns a name into a path within a tree, and returns the tree if the name says which.
func groupPath(trees []hierarchy, name string) (string, *hierarchy) {
	var best *hierarchy
	for i := range trees {
		t := &trees[i]
		for _, base := range []string{t.point, t.dir} {
			_, ok := below(base, name)
			// The deepest mount point owns the directory: v1 trees lie below the /sys/fs/cgroup of a v2 hybrid.
			if ok && (best == nil || len(t.point) > len(best.point)) {
				best = t
			}
		}
	}
	if best == nil {
		return path.Join("/", name), nil
	}
	rest, ok := below(best.point, name)
	if !ok {
		rest, _ = below(best.dir, name)
	}
	return path.Join(best.root, rest), best
}

func existingGroups(trees []hierarchy, want string, first *hierarchy) (groups []group, looked []string) {
	for i := range trees {
		t := &trees[i]
		dir := t.dirOf(want)
		if dir == "" {
			continue
		}
		looked = append(looked, dir)
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			continue
		}
		g := group{tree: t, path: want, dir: dir}
		if first == t {
			groups = slices.Insert(groups, 0, g)
			continue
		}
		groups = append(groups, g)
	}
	if first != nil && (len(groups) == 0 || groups[0].tree != first) {
		// The same path in another tree is another set of processes than the one that was named.
		return nil, []string{first.dirOf(want)}
	}
	if first == nil {
		slices.SortStableFunc(groups, func(a, b group) int { return groupRank(a) - groupRank(b) })
	}
	return groups, looked
}

// groupRank prefers a tree with the cpu controller for the set of processes, then the others perfdoctor reads, then
// v2, and named trees last.
func groupRank(g group) int {
	names := g.tree.levelNames()
	if len(names) == 0 {
		return len(levelControllers()) + 1
	}
	return controllerRank(CgroupLevel{Controller: names[0], Version: g.tree.version})
}

// groupPIDs lists the processes of a group and all groups below it, in the reader's pid namespace.
func (h *Host) groupPIDs(dir string) ([]int, error) {
	seen := map[int]bool{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			// A sub-group may be removed during the walk, the group itself may not.
			if p != dir && errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if !d.IsDir() {
			return nil
		}
		pids, err := h.readGroup(p)
		if err != nil && (p == dir || !groupGone(err)) {
			return err
		}
		for _, pid := range pids {
			seen[pid] = true
		}
		return nil
	})
	if groupGone(err) {
		return nil, kindErrorf(ErrNoSuchCgroup, "cgroup %s is gone", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("list processes of cgroup: %w", err)
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// groupGone reports whether the error comes from a group that was removed while it was read.
func groupGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

func (h *Host) readGroup(dir string) ([]int, error) {
	b, err := ReadFile(dir+"/cgroup.procs", make([]byte, 4096))
	// A threaded v2 group has no list of processes, only of threads (Documentation/admin-guide/cgroup-v2.rst).
	if errors.Is(err, unix.EOPNOTSUPP) {
		return h.readThreadedGroup(dir)
	}
	if err != nil {
		return nil, err
	}
	return parsePIDs(b)
}

func (h *Host) readThreadedGroup(dir string) ([]int, error) {
	b, err := ReadFile(dir+"/cgroup.threads", make([]byte, 4096))
	if err != nil {
		return nil, err
	}
	tids, err := parsePIDs(b)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, tid := range tids {
		if st, err := h.readStatus(tid); err == nil {
			pids = append(pids, st.Tgid)
		}
	}
	return pids, nil
}

// parsePIDs reads numbers separated by blanks: cgroup.procs, or a children file. A 0 is a process of another pid
// namespace without a number here.
func parsePIDs(b []byte) ([]int, error) {
	f := fields{rest: b}
	var pids []int
	for {
		field := f.next()
		if len(field) == 0 {
			return pids, nil
		}
		pid, err := strconv.ParseUint(string(field), 10, 31)
		if err != nil {
			return nil, fmt.Errorf("bad pid %q", clip(field))
		}
		if pid != 0 {
			pids = append(pids, int(pid))
		}
	}
}

// CgroupPaths finds control groups below the directory dir by their ids, which are the inodes of their directories
// (kernfs_ino in include/linux/kernfs.h). Paths are relative to dir, without a leading slash; a group that is gone
// has none. all is false if the search was given up after most groups.
func CgroupPaths(ctx context.Context, dir string, ids map[uint64]bool, most int) (paths map[uint64]string, all bool,
	err error,
) {
	paths = map[uint64]string{}
	queue := []string{""}
	for n := 0; n < len(queue) && len(paths) < len(ids); n++ {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		if n >= most {
			return paths, false, nil
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, queue[n]), &st); err == nil && ids[st.Ino] {
			paths[st.Ino] = queue[n]
		}
		for _, name := range CgroupsBelow(filepath.Join(dir, queue[n])) {
			queue = append(queue, path.Join(queue[n], name))
		}
	}
	return paths, true, nil
}

// CgroupsBelow returns the names of the groups directly below the group in dir. It returns none if that group was
// removed meanwhile, or is delegated and closed to this user.
func CgroupsBelow(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// GroupDirs returns the directories of a group that a user names. The name of a directory yields that one; a path
// from the root of a tree yields one in each tree that has it. Its error is [ErrNoSuchCgroup].
func (h *Host) GroupDirs(name string) (dirs []string, err error) {
	groups, err := h.findGroups(name)
	for _, g := range groups {
		if g.dir == path.Clean(name) { // the same path in another tree is another set of processes
			return []string{g.dir}, nil
		}
		dirs = append(dirs, g.dir)
	}
	return dirs, err
}
