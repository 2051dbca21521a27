package perfevent

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// plan is what can be counted here. It is found once, on the calling thread (or the first CPU), so that an event that
// the machine lacks never makes others fail.
type plan struct {
	groups    []plannedGroup
	slots     []slot
	bits      uint64 // perf_event_attr flag bits for every event
	how       int    // flags of perf_event_open(2)
	groupRead bool   // one read of its leader returns the whole group
}

type plannedGroup struct {
	name  Group
	slots []slot // the ones that can be opened
}

type slot struct {
	kind     kind
	group    Group
	index    int // of its Count
	userOnly bool
	status   Status
	reason   string
}

func (p *plan) size() int {
	n := 0
	for _, g := range p.groups {
		n += len(g.slots)
	}
	return n
}

func (p *plan) flags(userOnly bool) uint64 {
	if userOnly {
		return p.bits | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv
	}
	return p.bits
}

func (p *plan) format() uint64 {
	format := uint64(unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING)
	if p.groupRead {
		format |= unix.PERF_FORMAT_GROUP
	}
	return format
}

// makePlan returns the plan for threads and those that they will start, tried on the calling thread.
func makePlan(wanted []group) plan {
	var p plan
	p.bits, p.groupRead = inheritance()
	return p.of(wanted, 0, -1)
}

// of tries every event in its group on a thread or a CPU.
func (p plan) of(wanted []group, tid, cpu int) plan {
	for _, g := range wanted {
		planned := plannedGroup{name: g.name}
		var files []int
		for _, k := range g.kinds {
			s := slot{kind: k, group: g.name, index: len(p.slots)}
			leader := -1
			if len(files) > 0 {
				leader = files[0]
			}
			fd := p.try(&s, tid, cpu, leader)
			p.slots = append(p.slots, s)
			if fd < 0 {
				continue
			}
			files = append(files, fd)
			planned.slots = append(planned.slots, s)
		}
		closeFiles(files)
		p.groups = append(p.groups, planned)
	}
	return p
}

// inheritance finds how new threads can be counted. inherit_thread (5.13) keeps forked processes out. inherit with
// PERF_FORMAT_GROUP is EINVAL before 6.13 (kernel/events/core.c, perf_event_alloc): the events of a group are then
// still scheduled together, but each needs its own read.
func inheritance() (flags uint64, groupRead bool) {
	dummy := kind{typ: unix.PERF_TYPE_SOFTWARE, config: unix.PERF_COUNT_SW_DUMMY}
	works := func(flags, format uint64) bool {
		fd, err := openEvent(dummy, 0, -1, -1, flags|unix.PerfBitExcludeKernel, format, 0)
		if err != nil {
			return false
		}
		closeFiles([]int{fd})
		return true
	}
	flags = unix.PerfBitInherit
	if works(flags|inheritThread, 0) {
		flags |= inheritThread
	}
	return flags, works(flags, unix.PERF_FORMAT_GROUP)
}

// try opens one event, if need be without the kernel's part, and writes the outcome into the slot.
func (p *plan) try(s *slot, tid, cpu, leader int) int {
	fd, err := openEvent(s.kind, tid, cpu, leader, p.flags(false), p.format(), p.how)
	if refused(err) && cpu < 0 && !s.kind.kernelOnly {
		fd, err = openEvent(s.kind, tid, cpu, leader, p.flags(true), p.format(), p.how)
		s.userOnly = true
	}
	if err != nil {
		s.status, s.reason = explain(err)
		s.userOnly = false
		return -1
	}
	return fd
}

func refused(err error) bool { return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) }

// explain turns an error of perf_event_open(2) into a status and a reason with the remedy.
func explain(err error) (Status, string) {
	switch {
	case refused(err):
		return Denied, fmt.Sprintf("perf_event_open: %v (kernel.perf_event_paranoid = %s): run as root, grant "+
			"CAP_PERFMON "+
			"(and CAP_SYS_PTRACE for another user's process), or in a container allow the system call in its seccomp "+
			"profile",
			err, paranoid())
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV):
		return NotSupported, fmt.Sprintf("perf_event_open: %v: this machine has no such counter; "+
			"a virtual machine has none unless its host passes a PMU through", err)
	case errors.Is(err, unix.ENOSYS):
		return NotSupported, "perf_event_open: the kernel is built without CONFIG_PERF_EVENTS"
	case errors.Is(err, unix.EINVAL):
		return NotSupported, "perf_event_open: invalid argument: the event does not fit on the counters with its group"
	}
	return NotCounted, fmt.Sprintf("perf_event_open: %v", err)
}

// paranoid returns the setting as text: -1 to 2 upstream, 3 and 4 with the patches of Debian and Ubuntu, which refuse
// all use by ordinary users.
func paranoid() string {
	const path = "/proc/sys/kernel/perf_event_paranoid"
	b, err := os.ReadFile(path)
	if err != nil {
		return "unreadable"
	}
	return strings.TrimSpace(string(b))
}
