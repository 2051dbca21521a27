package collect

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// niceness is the niceness of this process while it observes; atop has one, too (-20). Next to 40 threads that want
// two CPUs, a thread at 0 gets its turn late, and so do its samples, on just those hosts that are observed for this
// reason. At -5 a thread counts as three others (sched_prio_to_weight in kernel/sched/core.c), and is no later than
// at -10. At -10 it counts as nine, and the kernel moves the target's threads away from a CPU on which one runs for a
// millisecond, which leaves that CPU idle. The process uses no more CPU time for it: that has a budget.
const niceness = -5

// runFirst sets that niceness on this process's threads, with CAP_SYS_NICE, unless somebody chose one.
func runFirst() { changeNiceness(0, niceness) }

// RunAsOthers resets the niceness of a run before something else is started, which would inherit it.
func RunAsOthers() { changeNiceness(niceness, 0) }

// changeNiceness changes the niceness of each thread that has from: niceness is per thread (setpriority(2), BUGS).
func changeNiceness(from, to int) {
	for _, tid := range ownThreads() {
		// the system call returns 20 minus the niceness, which is never negative; it fails for a thread that has just
		// ended
		if left, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil && 20-left == from {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, to) // without permission it stays so
		}
	}
}

// ownThreads returns the ids of this process's threads.
func ownThreads() []int {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil
	}
	out := make([]int, 0, len(entries))
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, tid)
		}
	}
	return out
}
