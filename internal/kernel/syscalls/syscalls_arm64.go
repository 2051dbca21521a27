package syscalls

import "golang.org/x/sys/unix"

// here are the names of those that this architecture alone has, by number.
var here = [...]string{
	unix.SYS_ARCH_SPECIFIC_SYSCALL: "arch_specific_syscall",
}
