package collect

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// niceness of this process while it observes, as atop has one (-20 there): beside 40 threads that want two CPUs one at
// 0 has its turn late, and samples with it, of just those hosts that are looked at for it. At -5 a thread counts as
// three others (sched_prio_to_weight in kernel/sched/core.c), and is no later than at -10. There it counts as nine,
// and the kernel moves the target's threads away from a CPU on which one runs for a millisecond, which leaves that
// idle. It uses no more CPU time for it: that has a budget.
const niceness = -5

// runFirst gives this process's threads that niceness, with CAP_SYS_NICE, unless somebody chose one.
func runFirst() { changeNiceness(0, niceness) }

// RunAsOthers takes back the niceness that a run had, before something else is started, which would inherit it.
func RunAsOthers() { changeNiceness(niceness, 0) }

// changeNiceness changes that of each thread that has the one: it is a thread's own (setpriority(2), BUGS).
func changeNiceness(from, to int) {
	for _, tid := range ownThreads() {
		// the system call gives 20 less the niceness, which is never negative; a thread that has just ended has none
		if left, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil && 20-left == from {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, to) // without the right it stays as it is
		}
	}
}

// ownThreads are this process's.
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
