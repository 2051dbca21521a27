package syscalls

import "golang.org/x/sys/unix"

// here has the names of the system calls that only this architecture has, by number.
var here = [...]string{
	unix.SYS_ARCH_SPECIFIC_SYSCALL: "arch_specific_syscall",
}
