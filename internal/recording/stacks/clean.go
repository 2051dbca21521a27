package stacks

import (
	"regexp"
	"slices"
	"strings"
)

// Clean returns the profile as it should be ranked: without what interrupts did on top of the interrupted code, and
// with one name for each generated class. The time of a stripped tail stays with the interrupted code.
func (p *Profile) Clean() *Profile {
	entry, softirq, own := p.Set(IsInterrupt), p.Set(IsSoftirq), p.Set(isBottomHalf)
	b := NewBuilder(p.Event)
	frames := make([]int, len(p.Frames))
	for i, f := range p.Frames {
		f.Name = plainName(f)
		frames[i] = b.Frame(f)
	}
	for _, t := range p.Threads {
		b.threads.add(t)
	}
	for _, s := range p.Samples {
		var stack []int
		for _, f := range s.Stack[interruptEnd(s, entry, softirq, own):] {
			stack = append(stack, frames[f])
		}
		s.Stack = stack
		b.Add(s)
	}
	out := b.Profile()
	out.Engine, out.Interval, out.Duration, out.Bucket = p.Engine, p.Interval, p.Duration, p.Bucket
	out.Lost += p.Lost
	return out
}

// interruptEnd returns the position in the stack at which, going outwards, the thread's own work begins.
func interruptEnd(s Sample, entry, softirq, own Set) int {
	if at := s.Outermost(entry); at >= 0 {
		return at + 1
	}
	at := s.Outermost(softirq)
	if at < 0 || s.Outermost(own) > at {
		return 0
	}
	return at + 1
}

// IsInterrupt matches the kernel's entries from a device or timer interrupt. What runs inside belongs to whoever the
// interrupt is for, mostly another process's packets (arch/x86/include/asm/idtentry.h, arch/x86/kernel/irq.c,
// kernel/softirq.c; arch/arm64/kernel/entry.S and entry-common.c). Exceptions, such as asm_exc_page_fault, are the
// thread's own doing.
func IsInterrupt(f Frame) bool {
	return f.Kind == Kernel && (strings.HasPrefix(f.Name, "asm_sysvec_") || strings.HasPrefix(f.Name, "sysvec_") ||
		strings.HasPrefix(f.Name, "asm_common_interrupt") || slices.Contains(interruptEntries, f.Name))
}

var interruptEntries = []string{
	// x86, the last three until 5.7
	"common_interrupt", "apic_timer_interrupt", "smp_apic_timer_interrupt", "ret_from_intr", "do_IRQ",
	"irq_exit", "irq_exit_rcu", "__irq_exit_rcu",
	"el0_interrupt", "el1_interrupt", "el0_irq", "el1_irq", "el0t_64_irq", "el1h_64_irq", "gic_handle_irq", // arm64
}

// IsSoftirq matches the loop over pending softirqs (kernel/softirq.c): handle_softirqs since 6.10, __do_softirq before.
func IsSoftirq(f Frame) bool {
	return f.Kind == Kernel && (f.Name == "handle_softirqs" || f.Name == "__do_softirq")
}

// isBottomHalf matches the call that runs softirqs at the end of a thread's own network system call. Packets that it
// sends to a local address are received right there: that time is the thread's own, and is kept.
func isBottomHalf(f Frame) bool { return f.Kind == Kernel && f.Name == "__local_bh_enable_ip" }

// What HotSpot and the JDK put into the names of generated classes: an address, or a number that differs from run to
// run.
var (
	hiddenAddress = regexp.MustCompile(`[./+]0x[0-9a-f]+`)   // Foo$$Lambda/0x00007f0c0c000a00, since 15
	lambdaNumber  = regexp.MustCompile(`\$\$Lambda\$[0-9]+`) // Foo$$Lambda$14, until 20
	generated     = regexp.MustCompile(
		`(\$Proxy|Generated(?:Method|Constructor|SerializationConstructor)Accessor)[0-9]+`)
	methodHandle = regexp.MustCompile(`(LambdaForm\$(?:[DB]?MH|VH|LFI))\$[0-9]+`)
)

func plainName(f Frame) string {
	if !f.Managed() {
		return f.Name
	}
	n := hiddenAddress.ReplaceAllString(f.Name, "")
	n = lambdaNumber.ReplaceAllString(n, "$$$$Lambda")
	n = generated.ReplaceAllString(n, "$1")
	return methodHandle.ReplaceAllString(n, "$1")
}
