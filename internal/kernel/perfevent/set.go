// Package perfevent counts hardware and software events of a process or of whole CPUs with perf_event_open(2).
//
// It only counts: no sampling, no ring buffer. It measures from the opening of the set on, and misses what ran
// before. It costs the reader one system call per group and thread (0.9 µs each; 500 threads 0.44 ms per reading of
// the software group), and the target 2.1 µs at each context switch of a counted thread (software group, 6.18, a
// virtual machine). A process that switches 100,000 times a second would lose a fifth of a CPU, so look at its rate
// in /proc first.
package perfevent

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxEvents bounds the descriptors of one set: each event is a file and about 1 KiB of kernel memory.
const maxEvents = 20000

// fileReserve is the part of RLIMIT_NOFILE left to the rest of perfdoctor, whose collectors have up to 182 files open
// at once on 2 CPUs (collect.leastFiles).
const fileReserve = 256

// Set is a set of counters opened together. It is not safe for concurrent use. Close it.
type Set struct {
	plan    plan
	targets []target
	seen    map[int]bool
	pid     int // 0 for CPUs
	// began and ended bracket the opening, in ticks since boot as in /proc/PID/stat field 22.
	began, ended uint64
	files, room  int
	truncated    int
	unsure       int
	skipped      int
	failed       error
	buf          []byte
	cost         time.Duration
}

// target is one thread or CPU, with its files and tallies per group of the plan.
type target struct {
	groups []openGroup
}

type openGroup struct {
	files   []int
	tallies []tally
}

// Truncated returns the number of threads or CPUs left out because descriptors ran out (RLIMIT_NOFILE or 20,000
// events).
func (s *Set) Truncated() int { return s.truncated }

// Skipped returns the number of threads or CPUs the kernel refused to count, with the last error; others are counted.
func (s *Set) Skipped() (int, error) {
	if s.skipped == 0 {
		return 0, nil
	}
	return s.skipped, s.failed
}

// Unsure returns the number of threads born while the set was being opened. The kernel does not tell whether their
// parent was already counted. They are not opened again: it is better to miss them than to count them twice.
func (s *Set) Unsure() int { return s.unsure }

// Targets returns the number of threads (not those inherited later) or CPUs opened.
func (s *Set) Targets() int { return len(s.targets) }

// Files returns the number of descriptors the set holds.
func (s *Set) Files() int { return s.files }

// Cost returns the wall time of the last Read, so that the caller can read less often when there are many threads.
func (s *Set) Cost() time.Duration { return s.cost }

// Children reports whether processes forked by the target are counted too: kernels before 5.13 have no
// inherit_thread.
func (s *Set) Children() bool { return s.pid != 0 && s.plan.bits&inheritThread == 0 }

// OpenHost counts everything on the given CPUs. It needs CAP_PERFMON (CAP_SYS_ADMIN before 5.8) or
// kernel.perf_event_paranoid <= 0; without them it returns the set with every event Denied. The set has cpu-clock
// instead of task-clock, which is wall time per CPU. The error is for arguments and for running out of descriptors
// only.
//
// only chooses groups; none means all.
func OpenHost(cpus []int, only ...Group) (*Set, error) {
	return openCPUs(groups(cpuClock(), only), -1, 0, cpus)
}

// openCPUs counts everything on each CPU, or what id and the flags in how select (perf_event_open(2)).
func openCPUs(wanted []group, id, how int, cpus []int) (*Set, error) {
	if len(cpus) == 0 {
		return nil, errors.New("no CPU to count on")
	}
	s := newSet(0)
	s.plan = plan{groupRead: true, how: how}.of(wanted, id, cpus[0])
	for _, cpu := range cpus {
		s.open(id, cpu)
	}
	return s.checked(len(cpus))
}

// OpenCgroup counts the cycles and instructions of a control group and the groups below it, on the given CPUs. dir is
// the group's directory in the unified hierarchy (v2), or in the hierarchy of perf_event if that has its own (v1). It
// needs the same rights as [OpenHost]. A CPU pays for each switch between any groups (perf_cgroup_switch in
// kernel/events/core.c). The error is for arguments, a group that is gone, and for running out of descriptors.
func OpenCgroup(dir string, cpus []int) (*Set, error) {
	core := groups(cpuClock(), []Group{Core})
	core[0].kinds = core[0].kinds[:2] // there may be a counter for each group and CPU
	return openCgroup(dir, cpus, core)
}

func openCgroup(dir string, cpus []int, wanted []group) (*Set, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the events hold the group
	return openCPUs(wanted, int(f.Fd()), unix.PERF_FLAG_PID_CGROUP, cpus)
}

func newSet(pid int) *Set {
	return &Set{pid: pid, seen: map[int]bool{}, room: fileRoom()}
}

// fileRoom returns how many descriptors a set may take.
func fileRoom() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return maxEvents
	}
	used := 0
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		used = len(entries)
	}
	if limit.Cur > maxEvents+fileReserve+uint64(used) {
		return maxEvents
	}
	return max(0, int(limit.Cur)-fileReserve-used)
}

func (s *Set) checked(wanted int) (*Set, error) {
	if s.truncated == wanted {
		s.Close()
		return nil, fmt.Errorf("perf_event_open: no descriptors left for %d events: raise RLIMIT_NOFILE", s.plan.size())
	}
	if len(s.targets) == 0 && errors.Is(s.failed, unix.ESRCH) {
		s.Close()
		return nil, fmt.Errorf("perf_event_open for pid %d: %w: it has ended", s.pid, s.failed)
	}
	return s, nil
}

// open adds one thread (cpu -1) or CPU (tid -1), whole or not at all.
func (s *Set) open(tid, cpu int) {
	if s.files+s.plan.size() > s.room {
		s.truncated++
		return
	}
	t, err := s.openTarget(tid, cpu)
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		s.truncated++
	case errors.Is(err, unix.ESRCH): // a thread that ended meanwhile
		s.failed = cmp.Or(s.failed, err)
	case err != nil:
		s.skipped++
		s.failed = err
	case s.plan.size() > 0:
		s.targets = append(s.targets, t)
		s.files += s.plan.size()
	}
}

func (s *Set) openTarget(tid, cpu int) (target, error) {
	t := target{groups: make([]openGroup, len(s.plan.groups))}
	for i := range s.plan.groups {
		files, err := s.openGroup(&s.plan.groups[i], tid, cpu)
		if err != nil {
			t.close()
			return target{}, err
		}
		t.groups[i] = openGroup{files: files, tallies: make([]tally, len(files))}
	}
	return t, nil
}

// brokenTries bounds the reopenings of a group whose thread cloned between the opening of its first and last event.
const brokenTries = 5

// openGroup opens a group so that it can be read. If a thread clones after the leader is open and before its last
// sibling is, the child holds a shorter group for good, and reading the parent's fails with ECHILD
// (kernel/events/core.c, __perf_read_group_add, 6.1): openGroup then reopens the group.
func (s *Set) openGroup(p *plannedGroup, tid, cpu int) ([]int, error) {
	var err error
	for range brokenTries {
		var files []int
		files, err = s.openGroupOnce(p, tid, cpu)
		if err != nil || len(files) == 0 || !s.plan.groupRead {
			return files, err
		}
		_, err = unix.Read(files[0], s.buffer())
		if !errors.Is(err, unix.ECHILD) {
			return files, nil // Read meets and reports any other trouble
		}
		closeFiles(files)
	}
	return nil, err
}

// openGroupOnce starts the group by its leader only once the group is complete. Events that join a running group of a
// thread that is on a CPU may count nothing until its next context switch: seen on 6.18 as 0 of 1009 faults.
func (s *Set) openGroupOnce(p *plannedGroup, tid, cpu int) ([]int, error) {
	files := make([]int, 0, len(p.slots))
	leader := -1
	for _, slot := range p.slots {
		bits := s.plan.flags(slot.userOnly)
		if leader < 0 {
			bits |= unix.PerfBitDisabled
		}
		fd, err := openEvent(slot.kind, tid, cpu, leader, bits, s.plan.format(), s.plan.how)
		if err != nil {
			closeFiles(files)
			return nil, err
		}
		files = append(files, fd)
		leader = files[0]
	}
	if leader < 0 {
		return nil, nil
	}
	if err := unix.IoctlSetInt(leader, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		closeFiles(files)
		return nil, err
	}
	return files, nil
}

func openEvent(k kind, tid, cpu, leader int, bits, format uint64, how int) (int, error) {
	attr := unix.PerfEventAttr{Type: k.typ, Config: k.config, Bits: bits, Read_format: format}
	attr.Size = uint32(unsafe.Sizeof(attr))
	return unix.PerfEventOpen(&attr, tid, cpu, leader, how|unix.PERF_FLAG_FD_CLOEXEC)
}

func (s *Set) buffer() []byte {
	if s.buf == nil {
		s.buf = make([]byte, 8*16) // number, enabled, running, then at most five values
	}
	return s.buf
}

// Read appends the totals since opening to dst, one Count per event and group in the fixed order of the plan. Counts
// of ended threads are kept: the kernel folds inherited ones into their parent, and the descriptor of an opened one
// stays readable. If a single read fails, that group keeps its last value. Read then returns the joined errors with
// the counts, which stay usable.
func (s *Set) Read(dst []Count) ([]Count, error) {
	start := time.Now()
	first := len(dst)
	dst = s.appendBlank(dst)
	var errs []error
	for i := range s.targets {
		if err := s.readTarget(&s.targets[i], dst[first:]); err != nil && len(errs) == 0 {
			errs = append(errs, err) // one error stands for all: 500 threads fail for one reason
		}
	}
	for i := range dst[first:] {
		s.finish(&dst[first+i])
	}
	s.cost = time.Since(start)
	return dst, errors.Join(errs...)
}

// appendBlank adds a Count for every slot, with the reason why nothing will come if that is already known.
func (s *Set) appendBlank(dst []Count) []Count {
	status, reason := NotCounted, ""
	if len(s.targets) == 0 && s.failed != nil {
		status, reason = explain(s.failed)
	}
	for _, slot := range s.plan.slots {
		c := Count{
			Event: slot.kind.event, Group: slot.group, Status: slot.status, Reason: slot.reason,
			UserOnly: slot.userOnly && !slot.kind.clock,
		}
		if slot.reason == "" {
			c.Status, c.Reason = status, reason
		}
		dst = append(dst, c)
	}
	return dst
}

func (s *Set) readTarget(t *target, counts []Count) error {
	var failed error
	for g := range t.groups {
		if err := s.readGroup(&t.groups[g]); err != nil {
			failed = fmt.Errorf("read of perf group %s: %w", s.plan.groups[g].name, err)
		}
		for i, tally := range t.groups[g].tallies {
			c := &counts[s.plan.groups[g].slots[i].index]
			c.Value += tally.value
			c.Raw += tally.raw
			c.Enabled += tally.enabled
			c.Running += tally.running
		}
	}
	return failed
}

func (s *Set) readGroup(g *openGroup) error {
	if s.plan.groupRead {
		return s.readWhole(g)
	}
	for i, fd := range g.files {
		words, err := s.readWords(fd, 3)
		if err != nil {
			return err
		}
		g.tallies[i].add(word(words, 0), word(words, 1), word(words, 2))
	}
	return nil
}

func (s *Set) readWhole(g *openGroup) error {
	if len(g.files) == 0 {
		return nil
	}
	words, err := s.readWords(g.files[0], 3+len(g.files))
	if err != nil {
		return err
	}
	if n := word(words, 0); n != uint64(len(g.files)) {
		return fmt.Errorf("kernel returned %d events instead of %d", n, len(g.files))
	}
	for i := range g.tallies {
		g.tallies[i].add(word(words, 3+i), word(words, 1), word(words, 2))
	}
	return nil
}

func (s *Set) readWords(fd, want int) ([]byte, error) {
	n, err := unix.Read(fd, s.buffer())
	if err != nil {
		return nil, err
	}
	if n != 8*want {
		return nil, fmt.Errorf("kernel returned %d bytes instead of %d", n, 8*want)
	}
	return s.buf[:n], nil
}

func word(b []byte, i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }

func (s *Set) finish(c *Count) {
	switch {
	case c.Status != NotCounted || c.Reason != "":
	case c.Running > 0:
		c.Status = Counted
	default:
		c.Reason = "no counted thread has run yet, or other users hold all counters (another perf, the NMI watchdog)"
	}
}

// Close closes all descriptors. The counts are gone then.
func (s *Set) Close() {
	for _, t := range s.targets {
		t.close()
	}
	s.targets, s.files = nil, 0
}

func (t *target) close() {
	for _, g := range t.groups {
		closeFiles(g.files)
	}
}

func closeFiles(files []int) {
	for _, fd := range files {
		_ = unix.Close(fd) // a perf descriptor has nothing to write back
	}
}
