package ebpf

import "golang.org/x/sys/unix"

// systemCallsHere are the names of those that this architecture alone has, by number.
var systemCallsHere = [...]string{
	unix.SYS_ARCH_SPECIFIC_SYSCALL: "arch_specific_syscall",
}
