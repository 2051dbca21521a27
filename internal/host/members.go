package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a process with its counters at the moment it was listed.
type Process struct{ Stat }

// Members lists the processes that belong to the target now, by ascending pid: everything for the host, a process
// with its descendants, or the subtree of a cgroup. A process that its parent's end has orphaned is found through its
// cgroup only. Processes that end during the listing are left out. If the target itself has ended, the error is
// ErrNoSuchProcess, ErrNoSuchCgroup or ErrNoSuchContainer. It costs 11 µs of CPU for each process of the host, or of
// the cgroup; for a process target it reads only the tree (979 processes: 10.8 ms; Linux 6.18).
func (h *Host) Members(ctx context.Context, t Target) ([]Process, error) {
	stats, err := h.memberStats(ctx, t)
	if err != nil {
		return nil, err
	}
	out := make([]Process, 0, len(stats))
	for _, st := range stats {
		out = append(out, Process{st})
	}
	slices.SortFunc(out, func(a, b Process) int { return a.PID - b.PID })
	return out, nil
}

// A listing is the last one of a process target.
type listing struct {
	mu   sync.Mutex
	of   [2]uint64 // the root's pid and start time
	at   time.Time
	born string // [Host.LastBorn] before the listing was made
	dear bool   // it is reused even if something was born
	list []Process

	open sync.Once
	load *os.File // /proc/loadavg, which is read hundreds of times; nil if it does not serve
}

const (
	// dearThreads is the number of threads from which on a listing is reused even if something was born. For the stat
	// of a process the kernel adds up all its threads (fs/proc/array.c, do_task_stat), which takes 2 ms for 10,000.
	dearThreads = 1000
	// listingOld is the age at which a listing is too old: few processes come or go in a quarter of a second. A dear
	// one lasts for a second.
	listingOld, dearOld = 250 * time.Millisecond, time.Second
)

// LateMembers is Members for callers that want to know which processes there are, but not their counters. Collectors
// that look at the same moment share a listing if nothing was born since, or if it is dear. The listing may still
// hold processes that have ended.
func (h *Host) LateMembers(ctx context.Context, t Target) ([]Process, error) {
	if h.last == nil || t.Kind != KindProcess || len(t.PIDs) == 0 {
		return h.Members(ctx, t)
	}
	l, of := h.last, [2]uint64{uint64(t.PIDs[0]), t.StartTime}
	l.mu.Lock()
	defer l.mu.Unlock()
	born := h.LastBorn()
	age := time.Since(l.at)
	if l.of == of && (l.dear && age < dearOld || born != "" && born == l.born && age < listingOld) {
		return slices.Clone(l.list), nil
	}
	list, err := h.Members(ctx, t)
	if err != nil {
		return nil, err
	}
	threads := 0
	for _, p := range list {
		threads += p.Threads
	}
	l.of, l.at, l.born, l.dear, l.list = of, time.Now(), born, threads >= dearThreads, list
	return slices.Clone(list), nil
}

// LastBorn returns the id of the process or thread that was born last on this host: while it stays the same, there is
// no new one. The id is the last word of /proc/loadavg (fs/proc/loadavg.c), which counts in the reader's own pid
// namespace. It is empty if this procfs shows the processes of another namespace, or cannot be read.
func (h *Host) LastBorn() string {
	if h.last == nil {
		return ""
	}
	h.last.open.Do(func() {
		if self, err := os.Readlink(h.Proc + "/self"); err == nil && self == strconv.Itoa(os.Getpid()) {
			h.last.load, _ = os.Open(h.Proc + "/loadavg") // nil: see above
		}
	})
	var text [64]byte // three averages, two numbers of threads, and an id, of at most 40 characters
	n, err := h.last.load.ReadAt(text[:], 0)
	if n == 0 || err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return string(text[bytes.LastIndexByte(text[:n], ' ')+1 : n])
}

func (h *Host) memberStats(ctx context.Context, t Target) (map[int]Stat, error) {
	switch t.Kind {
	case KindHost:
		return h.allStats(ctx)
	case KindProcess:
		return h.treeStats(ctx, t)
	case KindCgroup, KindContainer:
		return h.groupStats(ctx, t)
	}
	return nil, fmt.Errorf("target of unknown kind %q", t.Kind)
}

// Alive reports whether the target still exists: a process with the same start time, or a group or container with at
// least one process.
func (h *Host) Alive(t Target) bool {
	switch t.Kind {
	case KindHost:
		return true
	case KindProcess:
		_, err := h.rootStat(t)
		return !h.showsEnd(err)
	case KindCgroup, KindContainer:
		stats, err := h.groupStats(context.Background(), t)
		if err != nil {
			return !h.showsEnd(err)
		}
		return len(stats) > 0
	}
	return false
}

// showsEnd reports whether an error shows that the target has ended. An error such as EMFILE or EACCES says nothing
// about that. A missing file is proof only while /proc itself can be read.
func (h *Host) showsEnd(err error) bool {
	if !ended(err) && !groupGone(err) && !errors.Is(err, ErrNoSuchProcess) && !errors.Is(err, ErrNoSuchCgroup) &&
		!errors.Is(err, ErrNoSuchContainer) {
		return false
	}
	_, err = os.Stat(h.Proc + "/self")
	return err == nil
}

// rootStat reads the process of a process target and makes sure that it is still the same one.
func (h *Host) rootStat(t Target) (Stat, error) {
	if len(t.PIDs) == 0 {
		return Stat{}, kindErrorf(ErrNoSuchProcess, "the target names no process")
	}
	st, _, err := h.ReadStat(t.PIDs[0], 0, nil)
	if err != nil {
		return Stat{}, err
	}
	if st.StartTime != t.StartTime || st.State == 'Z' || st.State == 'X' {
		return Stat{}, kindErrorf(ErrNoSuchProcess, "process %d (%s) has ended", t.PIDs[0], t.Comm)
	}
	return st, nil
}

func (h *Host) groupStats(ctx context.Context, t Target) (map[int]Stat, error) {
	if t.CgroupDir != "" {
		pids, err := h.groupPIDs(t.CgroupDir)
		if err != nil {
			return nil, err
		}
		return h.statsOf(ctx, pids)
	}
	// The container's group cannot be seen from here (another cgroup namespace); its processes can.
	found, err := h.findContainers(ctx, t.ContainerID)
	if err != nil {
		return nil, err
	}
	if len(found[t.ContainerID]) == 0 {
		return nil, kindErrorf(ErrNoSuchContainer, "container %s has ended", t.ContainerID)
	}
	return h.statsOf(ctx, found[t.ContainerID])
}

func (h *Host) allStats(ctx context.Context) (map[int]Stat, error) {
	pids, err := h.allPIDs()
	if err != nil {
		return nil, err
	}
	return h.statsOf(ctx, pids)
}

// statsOf reads the stat of every pid that still exists and is visible.
func (h *Host) statsOf(ctx context.Context, pids []int) (map[int]Stat, error) {
	stats := make(map[int]Stat, len(pids))
	buf := make([]byte, 1024)
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b, err := readFile(h.statPath(pid, 0), buf, true)
		if ended(err) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return nil, err
		}
		st, err := ParseStat(b)
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		stats[pid] = st
		buf = b
	}
	return stats, nil
}

func ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// maxChildrenFiles bounds the children files read for one process. There is one file per thread, and reading one
// costs about as much as reading one stat: with more threads than this, one pass over all of /proc is cheaper on a
// host with the usual few hundred processes.
const maxChildrenFiles = 256

// errNoChildrenFiles says that the parents' pids must be used to find the tree.
var errNoChildrenFiles = errors.New("children files do not serve")

// treeStats returns the process and its descendants.
func (h *Host) treeStats(ctx context.Context, t Target) (map[int]Stat, error) {
	root, err := h.rootStat(t)
	if err != nil {
		return nil, err
	}
	stats, err := h.treeByChildren(ctx, root)
	if errors.Is(err, errNoChildrenFiles) {
		return h.treeByParents(ctx, root)
	}
	return stats, err
}

// treeByChildren follows /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN, fs/proc/array.c). A child that ends while
// the file is read can hide its next sibling for this one time.
func (h *Host) treeByChildren(ctx context.Context, root Stat) (map[int]Stat, error) {
	stats := map[int]Stat{root.PID: root}
	files := 0
	for queue := []int{root.PID}; len(queue) > 0; queue = queue[1:] {
		pid := queue[0]
		if files += stats[pid].Threads; files > maxChildrenFiles {
			return nil, errNoChildrenFiles
		}
		children, err := h.children(pid)
		if err != nil {
			return nil, err
		}
		fresh, err := h.statsOf(ctx, children)
		if err != nil {
			return nil, err
		}
		for child, st := range fresh {
			if _, known := stats[child]; !known {
				stats[child] = st
				queue = append(queue, child)
			}
		}
	}
	return stats, nil
}

// children lists the children of all threads of a process, none when it has ended.
func (h *Host) children(pid int) ([]int, error) {
	tids, err := os.ReadDir(h.pidPath(pid, "task"))
	if ended(err) {
		return nil, nil
	}
	if err != nil {
		return nil, h.processError(pid, err)
	}
	var out []int
	buf := make([]byte, 4096) // a page: seq_file returns no more at a time
	for _, tid := range tids {
		b, err := ReadFile(h.pidPath(pid, "task/"+tid.Name()+"/children"), buf)
		if ended(err) {
			if _, err := os.Stat(h.pidPath(pid, "task/"+tid.Name()+"/stat")); err == nil {
				return nil, errNoChildrenFiles
			}
			continue // the thread has ended
		}
		if err != nil {
			return nil, h.processError(pid, err)
		}
		pids, err := parsePIDs(b)
		if err != nil {
			return nil, fmt.Errorf("children of thread %s: %w", strconv.Quote(tid.Name()), err)
		}
		out, buf = append(out, pids...), b
	}
	return out, nil
}

func (h *Host) treeByParents(ctx context.Context, root Stat) (map[int]Stat, error) {
	pids, err := h.allPIDs()
	if err != nil {
		return nil, err
	}
	pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == root.PID }) // may be dear, and was read
	all, err := h.statsOf(ctx, pids)
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for pid, st := range all {
		children[st.PPID] = append(children[st.PPID], pid)
	}
	stats := map[int]Stat{root.PID: root}
	for queue := []int{root.PID}; len(queue) > 0; queue = queue[1:] {
		for _, child := range children[queue[0]] {
			if _, known := stats[child]; !known {
				stats[child] = all[child]
				queue = append(queue, child)
			}
		}
	}
	return stats, nil
}
