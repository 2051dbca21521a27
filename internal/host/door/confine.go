package door

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A helper only copies bytes of other processes to a socket that it has. Before its first request it gives up
// everything else that it could do as root.

// helperMemory bounds the memory that a helper can write to, in bytes (RLIMIT_DATA, since Linux 4.7 with all private
// memory): it uses 10 MiB, and Go's runtime maps more than 60 that it does not touch.
const helperMemory = 256 << 20

// helperCalls returns the system calls that a helper may make: to take a request, read, and answer, and those that
// Go's runtime needs for threads, memory, signals and the end (src/runtime/sys_linux_amd64.s, os_linux.go). A helper
// cannot open a file, make a socket, execute a program, or write to the memory of others.
func helperCalls() []uint32 {
	return []uint32{
		unix.SYS_RECVFROM, unix.SYS_SENDTO, unix.SYS_PROCESS_VM_READV,
		unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, // of what it has open, and the text of a panic
		unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_SCHED_YIELD, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY,
		unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_PRCTL,
		unix.SYS_CLONE, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_TGKILL, unix.SYS_SCHED_GETAFFINITY,
		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
		unix.SYS_RESTART_SYSCALL,
		unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, // its timers
		unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	}
}

// confine takes away what a helper does not need. It accepts a kernel that lacks a means: without
// CONFIG_SECCOMP_FILTER there is no filter. It does not use Landlock, which forbids reading the memory of processes
// that are not confined by the same rules (hook_ptrace_access_check in security/landlock/task.c), and that is all
// that a helper is for.
func confine() error {
	limits := map[int]uint64{unix.RLIMIT_DATA: helperMemory, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_CORE: 0}
	for what, limit := range limits {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("limit what a helper may take: %w", err)
		}
	}
	// The flag below applies both to the runtime's other threads, too.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new rights: %w", err)
	}
	filter := helperFilter()
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	switch errno {
	case 0, unix.ENOSYS, unix.EINVAL: // the kernel has no filters
	case unix.EPERM: // a filter of whoever started perfdoctor forbids another one
	default:
		return fmt.Errorf("give up system calls: %w", errno)
	}
	return nil
}

// helperFilter is the program of the filter (seccomp(2)): a call that is not listed fails with EPERM, and one by the
// numbers of another architecture ends the helper.
func helperFilter() []unix.SockFilter {
	// struct seccomp_data of include/uapi/linux/seccomp.h.
	const number, architecture = 0, 4
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	equal := func(k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	end := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	out := []unix.SockFilter{
		load(architecture), equal(auditArch, 1, 0), end(unix.SECCOMP_RET_KILL_PROCESS), load(number),
	}
	calls := helperCalls()
	for i, call := range calls {
		out = append(out, equal(call, uint8(len(calls)-i), 0)) // beyond the other calls and the refusal
	}
	return append(out, end(unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM)), end(unix.SECCOMP_RET_ALLOW))
}
