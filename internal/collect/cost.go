package collect

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
)

// ownCPU returns the CPU time that this process and its helpers have used, user and system.
func ownCPU() time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano()+ru.Stime.Nano()) + door.HelperCPU()
}

// ThreadCPU returns the CPU time that the calling thread has used.
func ThreadCPU() time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used); err != nil {
		return 0
	}
	return time.Duration(used.Nano())
}

// ProcessStart returns when this process was started, to a hundredth of a second (USER_HZ); the current time if /proc
// does not show it.
func ProcessStart() time.Time {
	const tick = time.Second / 100
	text, err := os.ReadFile("/proc/self/stat")
	st, parseErr := host.ParseStat(text)
	var up unix.Timespec
	if err != nil || parseErr != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Now()
	}
	return time.Now().Add(time.Duration(st.StartTime)*tick - time.Duration(up.Nano()))
}

// ownMaxRSS returns the peak resident memory in bytes, VmHWM of /proc/self/status, which is in KiB
// (fs/proc/task_mmu.c); 0 without /proc. ru_maxrss of getrusage does not do: it survives execve
// (setmax_mm_hiwater_rss in fs/exec.c), so a program started by a larger one shows the larger size.
func ownMaxRSS() int64 {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		var kib int64
		if n, err := fmt.Sscanf(string(line), "VmHWM: %d kB", &kib); err == nil && n == 1 {
			return kib << 10
		}
	}
	return 0
}

// timerSlack is how late the kernel may wake a thread whose timer has expired, instead of 0.05 ms: windows and passes
// are far longer, and measured.
const timerSlack = time.Millisecond

// lateTimers has the kernel wake the threads of this process late (timerslack_ns, proc(5); Linux 4.6, with
// CAP_SYS_NICE for all but one). The reason is the runtime's monitor (sysmon in Go's src/runtime/proc.go), which
// wakes every 20 µs for a while as soon as a goroutine runs: in 10 s next to a busy server it took 14 % of this
// process's CPU time, and with this setting a third of that. A process that is started later inherits it.
func lateTimers() {
	slack := []byte(strconv.FormatInt(int64(timerSlack), 10))
	for _, tid := range ownThreads() { // each is below /proc too, though not listed there
		_ = os.WriteFile("/proc/"+strconv.Itoa(tid)+"/timerslack_ns", slack, 0) // without permission it stays so
	}
}
