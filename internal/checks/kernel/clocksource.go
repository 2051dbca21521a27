package kernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	clockSystem = &check.Param{
		Name: "system", Default: 0.2, Unit: quantity.Ratio,
		Why: "a slow clock read is a system call: without system time there are few of them",
	}
	clockKernel = &check.Param{
		Name: "kernel-share", Default: 0.05, Unit: quantity.Ratio,
		Why: "a program that reads a slow clock in a loop spends half of the kernel's time in it; below a twentieth " +
			"there is nothing to gain",
	}
	clockBusy = &check.Param{
		Name: "busy", Default: 0.25, Unit: quantity.Ratio,
		Why: "on a mostly idle host clock reads cost nobody anything",
	}
)

// clockFunctions read the time in the kernel (kernel/time, arch/x86/kernel/hpet.c, drivers/clocksource/acpi_pm.c).
var clockFunctions = []string{
	"ktime_get_ts64", "ktime_get_real_ts64", "ktime_get_coarse_ts64", "ktime_get", "getnstimeofday64",
	"do_gettimeofday", "read_hpet",
	"acpi_pm_read", "xen_clocksource_read", "xen_clocksource_get_cycles", "posix_get_realtime_timespec",
	"posix_get_monotonic_timespec",
	"__x64_sys_clock_gettime", "__x64_sys_gettimeofday", "__do_sys_clock_gettime",
}

// slowClocks need a system call and a device access for each read: they have no vDSO mode, or have one on older
// kernels only (arch/x86/entry/vdso, drivers/clocksource).
var slowClocks = []string{"hpet", "acpi_pm", "xen", "jiffies", "refined-jiffies", "pit", "hyperv_clocksource_msr"}

var clocksource = &check.Check{
	Name:  "clocksource",
	Stage: check.Kernel,
	Doc: `Reading the clock is a system call here

With the clock source tsc (or kvm-clock, hyperv_clocksource_tsc_page, arch_sys_counter) a program reads the time in
user space in 20 to 30 ns. With hpet, acpi_pm or xen each read enters the kernel and reads a device: 0.5 to 3 µs, with
a lock for hpet. Programs that log, trace or time out read it hundreds of thousands of times a second.

The check looks at the clock source in use. A slow one is a warning when the CPUs are busy and a good part of that is
system time, else a fact. Counters cannot prove that clock reads use the system time, so the confidence is medium.
Where BPF programs may run, samples of the kernel show it; if they show no clock reads, there is no warning.

Fix: tsc, if the kernel offers it. The kernel gives tsc up when it finds it unstable; dmesg says why: read it before
you force tsc. Disproof: strace -c -f -e clock_gettime,gettimeofday -p PID counts few calls.`,
	URL:    "https://docs.kernel.org/virt/kvm/x86/timekeeping.html",
	Needs:  []metric.Metric{metric.Clocksource, metric.CPUSeconds},
	Uses:   []metric.Metric{metric.HostCPUProfileSamples},
	Params: []*check.Param{clockSystem, clockBusy, clockKernel},
	Run:    runClocksource,
}

func runClocksource(p *check.Pass) error {
	_, all, err := evidence.CPUTimes(p)
	if err != nil {
		return err
	}
	facts := p.Info(metric.Clocksource)
	if len(facts) == 0 {
		return check.NotAssessed("", "no clock source was recorded")
	}
	current := facts[0].Label("current")
	if !slices.Contains(slowClocks, current) {
		p.Read(quantity.Of("slow clock sources in use (it is "+current+")", 0, quantity.None))
		return nil
	}
	offered := strings.FieldsFunc(facts[0].Label("available"), func(r rune) bool { return r == ' ' || r == ',' })
	f := check.Finding{
		Subject:    check.Host,
		Severity:   check.Info,
		Confidence: check.Medium,
		Summary:    fmt.Sprintf("the clock source is %s: every read of the time is a system call", current),
		Evidence:   []quantity.Value{all.Load()},
		Remedies:   []check.Remedy{fasterClock(offered)},
		Disproof:   "strace -c -f -e trace=clock_gettime,gettimeofday -p PID counts few calls.",
		Doubts:     []string{"it is likely, not shown, that reading the clock uses the system time"},
	}
	if all.Busy().Number() > 0 {
		system := all.OfBusy("system", "system")
		f.Evidence = append(f.Evidence, system)
		if system.AtLeast(p.Param(clockSystem)) && all.Load().AtLeast(p.Param(clockBusy)) {
			f.Severity = check.Warning
			f.Summary += fmt.Sprintf("; the kernel takes %s of the busy time", system.Text())
		}
	}
	if share, functions, ok := evidence.KernelShare(p, "reading the clock", nil, clockFunctions...); ok {
		p.Read(share)
		sampledClock(p, &f, share, functions)
	}
	p.Report(f)
	return nil
}

// sampledClock judges by a profile whether the system time goes to clock reads.
func sampledClock(p *check.Pass, f *check.Finding, share quantity.Value, functions string) {
	f.Evidence = append(f.Evidence, share)
	f.Confidence, f.Doubts = check.High, nil
	if share.Below(p.Param(clockKernel)) {
		f.Severity = check.Info
		return
	}
	f.Notes = append(f.Notes, "the kernel's samples in it: "+functions)
}

func fasterClock(offered []string) check.Remedy {
	r := check.Remedy{
		Action:  "Use the time stamp counter.",
		Command: "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
		Risk: "If the kernel gave tsc up as unstable (dmesg | grep -i clocksource), time can run unevenly " +
			"between CPUs.",
		Effect: "a read from about 1 µs to 20 to 30 ns",
	}
	if !slices.Contains(offered, "tsc") {
		r.Action = "The kernel does not offer tsc here: see dmesg for why, then the BIOS or hypervisor (invariant " +
			"TSC, kvm-clock)."
		r.Command = "dmesg | grep -iE 'tsc|clocksource'"
		r.Risk = "A change of the virtual machine's CPU model needs a restart."
	}
	return r
}
