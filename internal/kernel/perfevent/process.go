package perfevent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is USER_HZ, fixed at 100 on amd64 and arm64 (include/asm-generic/param.h): the unit of start times.
const ticksPerSecond = 100

// settleTries bounds how often a set is reopened because threads were born meanwhile.
const settleTries = 3

// OpenProcess counts all threads of a process, and those they create later, by inheritance; processes forked by it
// are left out where the kernel supports that (5.13, see Children). Refusals are not errors: the events come back
// Denied with the remedy. The error says that the process is gone, or that no descriptors are left to count it with.
//
// only chooses groups; none means all.
func OpenProcess(pid int, only ...Group) (*Set, error) {
	return openThreads(pid, only, func() ([]int, error) { return threads(pid) })
}

func openThreads(pid int, only []Group, list func() ([]int, error)) (*Set, error) {
	return openPlanned(pid, makePlan(groups(taskClock(), only)), list)
}

func openPlanned(pid int, p plan, list func() ([]int, error)) (*Set, error) {
	for try := 1; ; try++ {
		tids, err := list()
		if err != nil {
			return nil, err
		}
		s := newSet(pid)
		s.plan = p
		s.began = bootTicks()
		s.add(tids)
		s.ended = bootTicks()
		if _, err := s.checked(len(tids)); err != nil {
			return nil, err
		}
		// A thread born while the set was being opened may or may not have inherited; starting over still loses
		// nothing.
		tids, err = list()
		if err == nil {
			s.refresh(tids)
		}
		if s.unsure == 0 || try == settleTries {
			return s, nil
		}
		s.Close()
	}
}

// Refresh opens threads that the listing at the start missed. Threads born later are inherited, hence not opened.
// It is cheap when nothing is new, but reads a stat file for each thread it sees for the first time.
func (s *Set) Refresh() error {
	if s.pid == 0 {
		return nil
	}
	tids, err := threads(s.pid)
	if err != nil {
		return err
	}
	s.refresh(tids)
	return nil
}

func (s *Set) refresh(tids []int) {
	var missed []int
	for _, tid := range tids {
		if s.seen[tid] {
			continue
		}
		s.seen[tid] = true
		born, err := startTicks(tid)
		switch {
		case err != nil: // gone again
		case born < s.began:
			missed = append(missed, tid)
		case born <= s.ended:
			s.unsure++
		}
	}
	s.add(missed)
}

func (s *Set) add(tids []int) {
	for _, tid := range tids {
		s.seen[tid] = true
		s.open(tid, -1)
	}
}

// threads lists the thread ids of a process as seen in perfdoctor's pid namespace.
func threads(pid int) ([]int, error) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the threads of pid %d: %w: it has ended or /proc hides it (hidepid)", pid, err)
	}
	tids := make([]int, 0, len(entries))
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, fmt.Errorf("%s: thread id %q: %w", dir, e.Name(), err)
		}
		tids = append(tids, tid)
	}
	return tids, nil
}

// bootTicks is the present in the unit and clock of start times (fs/proc/array.c uses CLOCK_BOOTTIME).
func bootTicks() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // then every new thread counts as inherited
	}
	return uint64(ts.Nano() / int64(time.Second/ticksPerSecond))
}

// startTicks reads field 22 of /proc/TID/stat, in USER_HZ ticks since boot.
func startTicks(tid int) (uint64, error) {
	path := fmt.Sprintf("/proc/%d/stat", tid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	ticks, err := parseStart(b)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return ticks, nil
}

// parseStart finds the start time after the command name, which may itself hold blanks and brackets.
func parseStart(stat []byte) (uint64, error) {
	end := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[end+1:])
	const start = 22 - 3 // the field after the name is the third
	if end < 0 || len(fields) <= start {
		return 0, errors.New("no start time in a thread's stat")
	}
	ticks, err := strconv.ParseUint(string(fields[start]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("start time %q: %w", fields[start], err)
	}
	return ticks, nil
}
