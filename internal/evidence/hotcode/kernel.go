package hotcode

import (
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// Host is what samples of all CPUs show of the kernel: which of its functions run, for whom and through which system
// call. The id of a thread in them is the id of its process.
type Host struct {
	*stacks.Profile
	softirq, interrupt stacks.Set
}

// HostOf returns the samples of the recording's host; ok is false without them. They are as taken, with interrupts on
// top of the code that they interrupted.
func HostOf(rec *recording.Recording) (h *Host, ok bool) {
	p, ok := rec.Profile(stacks.HostCPU)
	if !ok {
		return nil, false
	}
	return &Host{p, p.Set(stacks.IsSoftirq), p.Set(stacks.IsInterrupt)}, true
}

// System returns the samples in the kernel on behalf of the running task: the sy of /proc/stat, which excludes
// interrupts and softirqs.
func (h *Host) System() *stacks.Profile {
	return h.Filter(func(s stacks.Sample) bool {
		return h.inKernel(s) && s.Innermost(h.softirq) < 0 && s.Innermost(h.interrupt) < 0
	})
}

// Softirq returns the samples in a softirq, cut to what it does: the si of /proc/stat.
func (h *Host) Softirq() *stacks.Profile { return h.Below(h.softirq) }

// InKernel returns all samples in the kernel.
func (h *Host) InKernel() *stacks.Profile { return h.Filter(h.inKernel) }

func (h *Host) inKernel(s stacks.Sample) bool {
	return len(s.Stack) > 0 && h.Frames[s.Stack[0]].Kind == stacks.Kernel
}

// Entry says how the thread of a sample entered the kernel: the name of a system call with parentheses, "page fault",
// or "kernel thread"; "" if the stack does not show it. p is the sample's profile.
func Entry(p *stacks.Profile, s stacks.Sample) string {
	user, inside := false, false
	for i := len(s.Stack) - 1; i >= 0; i-- {
		f := p.Frames[s.Stack[i]]
		if f.Kind != stacks.Kernel {
			user = true
			continue
		}
		if inside {
			switch call := syscallOf(f.Name); {
			case call != "":
				return call + "()"
			case !syscallEntry(f.Name):
				return "" // the way back to the program
			}
		}
		inside = inside || syscallEntry(f.Name)
		if pageFaults[f.Name] {
			return "page fault"
		}
	}
	if !user && len(s.Stack) > 0 && threadEntries[p.Frames[s.Stack[len(s.Stack)-1]].Name] {
		return "kernel thread"
	}
	return ""
}

// trafficCalls are the system calls on sockets, those that wait, and those that wake: what any server does for each
// request.
var trafficCalls = []string{
	"sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg", "accept", "accept4", "connect", "shutdown",
	"socket", "epoll_wait", "epoll_pwait", "epoll_ctl", "poll", "ppoll", "select", "pselect6", "futex", "nanosleep",
	"clock_nanosleep", "sched_yield", "io_uring_enter",
}

// answers are the functions with which servers write an answer, whatever its content.
var answers = ParsePatterns(
	"JS:* node:_http_outgoing", "JS:* node:net", "net/http.(*response).*", "net/http.(*http2responseWriter).*",
	"sun.net.httpserver.*", "org.apache.coyote.Response.*", "org.apache.coyote.http11.*", "io.netty.channel.Abstract*",
)

// kernelTraffic reports whether the kernel works for a socket, for a wait or its end, or for an interrupt. The
// functions below a call on a descriptor show that it is a socket (net/socket.c). p is the sample's profile.
func kernelTraffic(p *stacks.Profile, s stacks.Sample) bool {
	if len(s.Stack) == 0 || p.Frames[s.Stack[0]].Kind != stacks.Kernel {
		return false
	}
	entry := Entry(p, s)
	if call, ok := strings.CutSuffix(entry, "()"); ok && slices.Contains(trafficCalls, call) {
		return true
	}
	for _, i := range s.Stack {
		f := p.Frames[i]
		switch {
		case f.Kind != stacks.Kernel:
			return false
		case strings.HasPrefix(f.Name, "sock_") || strings.HasPrefix(f.Name, "__sock_"):
			return true
		case entry == "" && (stacks.IsSoftirq(f) || stacks.IsInterrupt(f)):
			return true
		}
	}
	return false
}

// Traffic returns the CPU time, in seconds, in which the kernel works for sockets, waits and wake-ups.
func (c *CPU) Traffic() float64 {
	var sum stacks.Weight
	for _, s := range c.Samples {
		if kernelTraffic(c.Profile, s) {
			sum.Add(s)
		}
	}
	return seconds(sum)
}

// OnTheWay reports whether a sample is on the way into the kernel or back, which is the same for each system call,
// and not in what the call does. p is the sample's profile.
func OnTheWay(p *stacks.Profile, s stacks.Sample) bool {
	return len(s.Stack) > 0 && p.Frames[s.Stack[0]].Kind == stacks.Kernel && syscallEntry(p.Frames[s.Stack[0]].Name)
}

// syscallEntry reports whether name is a function that every system call goes through (arch/x86/entry/common.c,
// syscall_64.c; arch/arm64/kernel/syscall.c).
func syscallEntry(name string) bool {
	name, _, _ = strings.Cut(name, ".") // suffix of a copy that the compiler made
	switch name {
	case "do_syscall_64", "x64_sys_call", "entry_SYSCALL_64_after_hwframe", "do_el0_svc", "el0_svc_common",
		"invoke_syscall",
		"__invoke_syscall":
		return true
	}
	return false
}

// syscallPrefixes are the prefixes of system call functions: arch/x86/include/asm/syscall_wrapper.h, the same of
// arm64, and include/linux/syscalls.h. The call's own function is seldom on the stack: it ends by jumping to one of
// the latter.
var syscallPrefixes = []string{
	"__x64_sys_", "__arm64_sys_", "__ia32_sys_", "__se_sys_", "__do_sys_", "__sys_", "ksys_", "do_sys_", "do_compat_",
	"do_",
}

// syscallOf returns the system call of the first function behind the entry; "" if it is none.
func syscallOf(name string) string {
	name, _, _ = strings.Cut(name, ".")
	for _, prefix := range syscallPrefixes {
		if call, ok := strings.CutPrefix(name, prefix); ok && !syscallEntry(name) {
			return strings.TrimPrefix(call, "new")
		}
	}
	return ""
}

// pageFaults are the entries of faults: arch/x86/mm/fault.c, arch/arm64/mm/fault.c.
var pageFaults = map[string]bool{
	"asm_exc_page_fault": true, "exc_page_fault": true, "do_user_addr_fault": true, "do_mem_abort": true,
	"do_page_fault": true,
}

// threadEntries are the functions that a kernel thread begins with (arch/x86/entry/entry_64.S, kernel/fork.c,
// arch/arm64/kernel/entry.S).
var threadEntries = map[string]bool{"ret_from_fork_asm": true, "ret_from_fork": true, "kthread": true}
