package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Capability is something of the kernel, the machine or the user's rights that a collector needs.
type Capability struct {
	Name string // kebab-case, as preflight prints it
	Doc  string // what it is needed for
}

// Status is the answer of a probe.
type Status string

// The answers of a probe.
const (
	Available    Status = "available"
	Unsupported  Status = "unsupported"  // this kernel or machine does not have it, whoever asks
	Denied       Status = "denied"       // it is there, but not for this user or with these settings
	Inconclusive Status = "inconclusive" // the probe itself failed
)

// Probe is what is known about one capability.
type Probe struct {
	Capability Capability
	Status     Status
	Reason     string // what was read or tried
	Remedy     string // what would make it available; "" when nothing is needed or nothing helps
}

// row ties a capability to its probe.
type row struct {
	Capability
	probe func(*Host) Probe
}

// The capabilities a collector can name.
var (
	Root          = Capability{"root", "effective user id 0: files of all users, most sysctls"}
	SysAdmin      = Capability{"cap-sys-admin", "enter other network namespaces, BPF and perf before Linux 5.8"}
	NetAdmin      = Capability{"cap-net-admin", "read nftables and qdiscs, socket details of all users"}
	SysPtrace     = Capability{"cap-sys-ptrace", "namespaces, executables and maps of other users' processes"}
	DACReadSearch = Capability{"cap-dac-read-search", "read files whatever their mode"}
	Perfmon       = Capability{"cap-perfmon", "perf events of the whole host, tracing programs (Linux 5.8)"}
	BPF           = Capability{"cap-bpf", "load BPF programs: connections, interrupts, scheduling, owners of all " +
		"sockets (Linux 5.8)"}
	// PressureStall is PSI, Documentation/accounting/psi.rst.
	PressureStall = Capability{"psi", "share of time that tasks wait for CPU, memory or I/O"}
	SockDiag      = Capability{"sock-diag", "socket tables over netlink instead of /proc/net/tcp"}
	Conntrack     = Capability{"conntrack", "fill level and drops of the connection tracking table"}
	// Schedstat is /proc/PID/schedstat, Documentation/scheduler/sched-stats.rst.
	Schedstat = Capability{"schedstat", "time that threads wait on a run queue"}
	// DelayAccounting is Documentation/accounting/delay-accounting.rst.
	DelayAccounting = Capability{"delay-accounting", "time that threads wait for block I/O (Stat.BlkIODelay)"}
	AllProcesses    = Capability{"all-processes", "processes of other users in /proc (no hidepid)"}
	PerfTask        = Capability{"perf-task", "perf events of one's own processes"}
	PerfHost        = Capability{"perf-host", "perf events of the whole host and of the kernel"}
	HardwarePMU     = Capability{"hardware-pmu", "cycles, instructions and cache counters of the CPU"}
	BTF             = Capability{"btf", "kernel types, for BPF programs that run on every kernel"}
	KernelSymbols   = Capability{"kernel-symbols", "addresses in /proc/kallsyms, to name kernel functions in profiles"}
	CgroupV1        = Capability{"cgroup-v1", "limits and throttling of v1 control groups"}
	CgroupV2        = Capability{"cgroup-v2", "limits, throttling and pressure of v2 control groups"}
	Lockdown        = Capability{"lockdown", "kernel lockdown lets root trace and profile the kernel"}
)

func probeTable() []row {
	linux := func(c linuxCap) func(*Host) Probe { return func(h *Host) Probe { return h.probeLinuxCap(c) } }
	return []row{
		{Root, (*Host).probeRoot},
		{SysAdmin, linux(capSysAdmin)},
		{NetAdmin, linux(capNetAdmin)},
		{SysPtrace, linux(capSysPtrace)},
		{DACReadSearch, linux(capDACReadSearch)},
		{Perfmon, linux(capPerfmon)},
		{BPF, linux(capBPF)},
		{PressureStall, (*Host).probePSI},
		{SockDiag, (*Host).probeSockDiag},
		{Conntrack, (*Host).probeConntrack},
		{Schedstat, (*Host).probeSchedstat},
		{DelayAccounting, (*Host).probeDelayAccounting},
		{AllProcesses, (*Host).probeHidepid},
		{PerfTask, func(h *Host) Probe { return h.probeParanoid(2) }},
		// Level 0 is the highest that allows events on a whole CPU (kernel/events/core.c, perf_allow_cpu).
		{PerfHost, func(h *Host) Probe { return h.probeParanoid(0) }},
		{HardwarePMU, (*Host).probePMU},
		{BTF, (*Host).probeBTF},
		{KernelSymbols, (*Host).probeKernelSymbols},
		{CgroupV1, (*Host).probeCgroupV1},
		{CgroupV2, (*Host).probeCgroupV2},
		{Lockdown, (*Host).probeLockdown},
	}
}

// Capabilities lists all capabilities, in the order preflight shows them.
func Capabilities() []Capability {
	var out []Capability
	for _, r := range probeTable() {
		out = append(out, r.Capability)
	}
	return out
}

// Probe finds out whether perfdoctor has the capability here and now. It changes nothing, except that the kernel may
// load the sock_diag modules on demand, as it does for ss.
func (h *Host) Probe(c Capability) Probe {
	for _, r := range probeTable() {
		if r.Capability == c {
			p := r.probe(h)
			p.Capability = c
			return p
		}
	}
	return Probe{Capability: c, Status: Inconclusive, Reason: "perfdoctor has no probe named " + strconv.Quote(c.Name)}
}

func available(format string, args ...any) Probe {
	return Probe{Status: Available, Reason: fmt.Sprintf(format, args...)}
}

func failed(err error) Probe { return Probe{Status: Inconclusive, Reason: err.Error()} }

// linuxCap is a capability of include/uapi/linux/capability.h.
type linuxCap struct {
	bit   uint
	name  string
	since string // kernel release for those newer than the oldest kernel perfdoctor runs on
}

var (
	capDACReadSearch = linuxCap{2, "CAP_DAC_READ_SEARCH", ""}
	capNetAdmin      = linuxCap{12, "CAP_NET_ADMIN", ""}
	capSysPtrace     = linuxCap{19, "CAP_SYS_PTRACE", ""}
	capSysAdmin      = linuxCap{21, "CAP_SYS_ADMIN", ""}
	capPerfmon       = linuxCap{38, "CAP_PERFMON", "5.8"}
	capBPF           = linuxCap{39, "CAP_BPF", "5.8"}
)

// initUserNS is PROC_USER_INIT_INO, the inode of the first user namespace (include/linux/proc_ns.h).
const initUserNS = 0xEFFFFFFD

func (h *Host) selfStatus() (ProcStatus, error) {
	b, err := h.readProc("self/status")
	if err != nil {
		return ProcStatus{}, err
	}
	return ParseStatus(b)
}

// checkCap returns why the capability is not effective, nil when it is.
func (h *Host) checkCap(c linuxCap) error {
	st, err := h.selfStatus()
	if err != nil {
		return err
	}
	effective := st.CapEff
	has := effective&(1<<c.bit) != 0
	// CAP_SYS_ADMIN stands in for the two that were split off it (perfmon_capable, bpf_capable).
	if c == capPerfmon || c == capBPF {
		has = has || effective&(1<<capSysAdmin.bit) != 0
	}
	if !has {
		return fmt.Errorf("%s is not in the effective set (CapEff %016x)", c.name, effective)
	}
	if ino, err := h.ownNamespace("user"); err == nil && ino != initUserNS {
		return fmt.Errorf("%s counts only inside perfdoctor's user namespace, not for the host", c.name)
	}
	return nil
}

func (h *Host) probeLinuxCap(c linuxCap) Probe {
	if _, err := h.selfStatus(); err != nil {
		return failed(err)
	}
	err := h.checkCap(c)
	if err == nil {
		return available("%s is effective", c.name)
	}
	remedy := fmt.Sprintf("run as root, or: setcap %s+ep perfdoctor; in a container: --cap-add %s",
		strings.ToLower(c.name), strings.TrimPrefix(c.name, "CAP_"))
	if last, lastErr := h.readProc("sys/kernel/cap_last_cap"); lastErr == nil && c.since != "" {
		n, convErr := strconv.ParseUint(strings.TrimSpace(string(last)), 10, 8)
		if convErr == nil && uint64(c.bit) > n {
			return Probe{
				Status: Unsupported, Reason: c.name + " came with Linux " + c.since,
				Remedy: "CAP_SYS_ADMIN serves on this kernel: run as root",
			}
		}
	}
	return Probe{Status: Denied, Reason: err.Error(), Remedy: remedy}
}

func (h *Host) probeRoot() Probe {
	st, err := h.selfStatus()
	if err != nil {
		return failed(err)
	}
	if st.UID[1] != 0 {
		return Probe{Status: Denied, Reason: fmt.Sprintf("effective user id %d", st.UID[1]), Remedy: "run with sudo"}
	}
	if ino, err := h.ownNamespace("user"); err == nil && ino != initUserNS {
		return Probe{
			Status: Denied, Reason: "user id 0 of a user namespace, not of the host",
			Remedy: "run it on the host",
		}
	}
	return available("effective user id 0")
}

func (h *Host) probePSI() Probe {
	_, err := h.readProc("pressure/cpu")
	const bootRemedy = "boot with psi=1 on the kernel command line"
	switch {
	case err == nil:
		return available("%s/pressure/cpu is there", h.Proc)
	case errors.Is(err, unix.EOPNOTSUPP):
		// 4.20 to 5.x kept the files when PSI was off at boot.
		return Probe{Status: Denied, Reason: "PSI is built in and switched off", Remedy: bootRemedy}
	case errors.Is(err, fs.ErrPermission):
		return Probe{Status: Denied, Reason: err.Error(), Remedy: "run as root"}
	case !errors.Is(err, fs.ErrNotExist):
		return failed(err)
	}
	release, err := h.kernelRelease()
	if err == nil && release.before(4, 20) {
		return Probe{
			Status: Unsupported, Reason: "Linux " + release.text + " has no PSI",
			Remedy: "Linux 4.20 or newer",
		}
	}
	return Probe{
		Status: Unsupported, Reason: h.Proc + "/pressure is missing: CONFIG_PSI is off, or off at boot",
		Remedy: bootRemedy + ", or a kernel with CONFIG_PSI",
	}
}

func (h *Host) probeConntrack() Probe {
	b, err := h.readProc("sys/net/netfilter/nf_conntrack_count")
	switch {
	case err == nil:
		return available("%s connections are tracked", bytes.TrimSpace(b))
	case errors.Is(err, fs.ErrNotExist):
		return Probe{Status: Unsupported, Reason: "nf_conntrack is not loaded: no connection is tracked here, none " +
			"can be lost"}
	case errors.Is(err, fs.ErrPermission):
		return Probe{Status: Denied, Reason: err.Error(), Remedy: "run as root"}
	}
	return failed(err)
}

// probeSchedstat reads perfdoctor's own line: it has run, so its first number is 0 only if the kernel counts nothing
// (fs/proc/base.c, proc_pid_schedstat prints "0 0 0" then).
func (h *Host) probeSchedstat() Probe {
	b, err := h.readProc("self/schedstat")
	if errors.Is(err, fs.ErrNotExist) {
		return Probe{
			Status: Unsupported, Reason: h.Proc + "/self/schedstat is missing: CONFIG_SCHED_INFO is off",
			Remedy: "a kernel with CONFIG_SCHEDSTATS or CONFIG_TASK_DELAY_ACCT",
		}
	}
	if err != nil {
		return failed(err)
	}
	f := fields{rest: b}
	run, wait, count := f.unsigned("run time", 64), f.unsigned("wait time", 64), f.unsigned("timeslices", 64)
	if f.err != nil {
		return failed(fmt.Errorf("%s/self/schedstat: %w", h.Proc, f.err))
	}
	if run == 0 && wait == 0 && count == 0 {
		return Probe{
			Status: Unsupported, Reason: h.Proc + "/self/schedstat is all zero: the kernel does not count",
			Remedy: "a kernel with CONFIG_SCHEDSTATS, or boot with delayacct",
		}
	}
	return available("%s/self/schedstat counts", h.Proc)
}

func (h *Host) probeDelayAccounting() Probe {
	b, err := h.readProc("sys/kernel/task_delayacct")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		release, relErr := h.kernelRelease()
		if relErr == nil && release.before(5, 14) {
			return Probe{Status: Inconclusive, Reason: "Linux " + release.text + " has no switch to read: " +
				"it is on when CONFIG_TASK_DELAY_ACCT is, unless booted with nodelayacct"}
		}
		return Probe{
			Status: Unsupported, Reason: "sysctl kernel.task_delayacct is missing: CONFIG_TASK_DELAY_ACCT is off",
			Remedy: "a kernel with CONFIG_TASK_DELAY_ACCT",
		}
	case err != nil:
		return failed(err)
	case strings.TrimSpace(string(b)) == "0":
		return Probe{
			Status: Denied, Reason: "sysctl kernel.task_delayacct is 0, the default since Linux 5.14",
			Remedy: "sysctl kernel.task_delayacct=1, for processes started afterwards; or boot with delayacct",
		}
	}
	return available("sysctl kernel.task_delayacct is 1")
}

// hidepid returns the hidepid option of the procfs, "" when there is none (Documentation/filesystems/proc.rst, 4).
func (h *Host) hidepid() string {
	mounts, err := h.mounts()
	if err != nil {
		return ""
	}
	hide := ""
	for _, m := range mounts {
		// The last mount on a point covers the earlier ones.
		if m.fsType == "proc" && m.root == "/" && (m.point == "/proc" || m.point == h.Proc) {
			hide = optionValue(m.super, "hidepid")
		}
	}
	if hide == "off" || hide == "0" {
		return ""
	}
	return hide
}

func optionValue(options []string, name string) string {
	for _, o := range options {
		if v, ok := strings.CutPrefix(o, name+"="); ok {
			return v
		}
	}
	return ""
}

func (h *Host) probeHidepid() Probe {
	if _, err := h.mounts(); err != nil {
		return failed(err)
	}
	hide := h.hidepid()
	if hide == "" {
		return available("%s is mounted without hidepid", h.Proc)
	}
	if h.checkCap(capSysPtrace) == nil {
		return available("%s is mounted with hidepid=%s, which CAP_SYS_PTRACE sees through", h.Proc, hide)
	}
	return Probe{Status: Denied, Reason: fmt.Sprintf("%s is mounted with hidepid=%s: other users' processes are hidden",
		h.Proc, hide), Remedy: "run as root or with CAP_SYS_PTRACE"}
}

// probeParanoid compares kernel.perf_event_paranoid with the highest level that allows the use.
func (h *Host) probeParanoid(highest int) Probe {
	b, err := h.readProc("sys/kernel/perf_event_paranoid")
	if errors.Is(err, fs.ErrNotExist) {
		return Probe{
			Status: Unsupported, Reason: "sysctl kernel.perf_event_paranoid is missing: CONFIG_PERF_EVENTS is off",
			Remedy: "a kernel with CONFIG_PERF_EVENTS",
		}
	}
	if err != nil {
		return failed(err)
	}
	level, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return failed(fmt.Errorf("kernel.perf_event_paranoid: %w", err))
	}
	if level <= highest {
		return available("sysctl kernel.perf_event_paranoid is %d", level)
	}
	if h.checkCap(capPerfmon) == nil {
		return available("sysctl kernel.perf_event_paranoid is %d, which CAP_PERFMON or CAP_SYS_ADMIN overrides", level)
	}
	return Probe{
		Status: Denied, Reason: fmt.Sprintf("sysctl kernel.perf_event_paranoid is %d", level),
		Remedy: fmt.Sprintf("run as root or with CAP_PERFMON, or sysctl kernel.perf_event_paranoid=%d", highest),
	}
}

// probePMU opens a counter of CPU cycles on perfdoctor itself, in user mode, which needs the least rights.
func (h *Host) probePMU() Probe {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	switch {
	case err == nil:
		_ = unix.Close(fd)
		return available("a cycle counter opens")
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV):
		return Probe{
			Status: Unsupported, Reason: fmt.Sprintf("opening a cycle counter: %v: the CPU shows no PMU", err),
			Remedy: "on a virtual machine: let the hypervisor pass the PMU through; on a cloud: a larger or metal " +
				"instance",
		}
	case errors.Is(err, unix.ENOSYS):
		return Probe{
			Status: Unsupported, Reason: "the kernel has no perf_event_open",
			Remedy: "a kernel with CONFIG_PERF_EVENTS",
		}
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return Probe{
			Status: Denied, Reason: fmt.Sprintf("opening a cycle counter: %v", err),
			Remedy: "run as root or with CAP_PERFMON; in a container, allow perf_event_open in the seccomp profile",
		}
	}
	return failed(fmt.Errorf("open a cycle counter: %w", err))
}

func (h *Host) probeBTF() Probe {
	file := filepath.Join(h.Sys, "kernel/btf/vmlinux")
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Probe{
			Status: Unsupported, Reason: file + " is missing",
			Remedy: "Linux 5.4 or newer with CONFIG_DEBUG_INFO_BTF",
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return Probe{Status: Denied, Reason: err.Error(), Remedy: "run as root"}
	}
	if err != nil {
		return failed(err)
	}
	_ = f.Close()
	return available("%s is readable", file)
}

// kallsymsHead is how much of kallsyms is looked at: on x86 the first symbols are per-CPU and truly 0 up to about
// 30 KB.
const kallsymsHead = 256 << 10

func (h *Host) probeKernelSymbols() Probe {
	f, err := os.Open(filepath.Join(h.Proc, "kallsyms"))
	if errors.Is(err, fs.ErrNotExist) {
		return Probe{Status: Unsupported, Reason: err.Error(), Remedy: "a kernel with CONFIG_KALLSYMS"}
	}
	if err != nil {
		return Probe{Status: Denied, Reason: err.Error(), Remedy: "run as root"}
	}
	defer f.Close()
	sc := newScanner(f)
	for read := 0; read < kallsymsHead && sc.Scan(); read += len(sc.Bytes()) + 1 {
		if addr, _, ok := bytes.Cut(sc.Bytes(), []byte{' '}); ok && len(bytes.Trim(addr, "0")) > 0 {
			return available("%s/kallsyms shows addresses", h.Proc)
		}
	}
	if err := sc.Err(); err != nil {
		return failed(err)
	}
	restrict, err := h.readProc("sys/kernel/kptr_restrict")
	if err != nil {
		return failed(err)
	}
	return Probe{
		Status: Denied,
		Reason: fmt.Sprintf("%s/kallsyms shows only zeros; sysctl kernel.kptr_restrict is %s", h.Proc,
			bytes.TrimSpace(restrict)),
		Remedy: "run as root or with CAP_SYSLOG, and with sysctl kernel.kptr_restrict=1 or 0",
	}
}

func (h *Host) probeCgroupV1() Probe {
	trees, err := h.hierarchies()
	if err != nil {
		return failed(err)
	}
	var found []string
	for _, t := range trees {
		if t.version == 1 {
			found = append(found, t.levelNames()...)
		}
	}
	slices.Sort(found)
	if found = slices.Compact(found); len(found) == 0 {
		return Probe{Status: Unsupported, Reason: "no v1 cgroup tree is mounted with cpu, memory, pids or cpuset"}
	}
	return available("v1 controllers: %s", strings.Join(found, " "))
}

func (h *Host) probeCgroupV2() Probe {
	trees, err := h.hierarchies()
	if err != nil {
		return failed(err)
	}
	i := slices.IndexFunc(trees, func(t hierarchy) bool { return t.version == 2 })
	if i < 0 {
		return Probe{
			Status: Unsupported, Reason: "no v2 cgroup tree is mounted",
			Remedy: "boot with systemd.unified_cgroup_hierarchy=1 (Linux 4.15 or newer)",
		}
	}
	file := trees[i].dir + "/cgroup.controllers"
	b, err := os.ReadFile(file)
	if err != nil {
		return failed(err)
	}
	serves := func(c string) bool { return slices.Contains(levelControllers(), c) }
	if !slices.ContainsFunc(strings.Fields(string(b)), serves) {
		return Probe{
			Status: Unsupported,
			Reason: fmt.Sprintf("%s holds %q: cpu, memory, pids and cpuset are with v1", file, bytes.TrimSpace(b)),
			Remedy: "boot with systemd.unified_cgroup_hierarchy=1",
		}
	}
	return available("v2 controllers: %s", bytes.TrimSpace(b))
}

// probeLockdown reads the mode of security/lockdown. Integrity mode only forbids changing the running kernel;
// confidentiality also forbids reading it (LOCKDOWN_BPF_READ_KERNEL, LOCKDOWN_PERF in include/linux/security.h).
func (h *Host) probeLockdown() Probe {
	text, err := h.readSys("kernel/security/lockdown")
	if errors.Is(err, fs.ErrPermission) {
		return Probe{Status: Inconclusive, Reason: err.Error(), Remedy: "run as root"}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return h.lockdownUnknown()
	}
	if err != nil {
		return failed(err)
	}
	_, mode, _ := strings.Cut(text, "[")
	mode, _, ok := strings.Cut(mode, "]")
	switch {
	case !ok:
		return failed(fmt.Errorf("kernel/security/lockdown: no mode in %q", text))
	case mode == "none":
		return available("lockdown is off")
	case mode == "integrity":
		return available("lockdown=integrity: reading the kernel is allowed, changing it is not")
	}
	return Probe{
		Status: Denied, Reason: "lockdown=" + mode + ": perf, kprobes and BPF may not read kernel memory",
		Remedy: "boot without lockdown=" + mode + " (it often follows from Secure Boot)",
	}
}

func (h *Host) lockdownUnknown() Probe {
	entries, err := os.ReadDir(filepath.Join(h.Sys, "kernel/security"))
	if err == nil && len(entries) > 0 {
		return available("securityfs has no lockdown file: the kernel has no lockdown")
	}
	return Probe{
		Status: Inconclusive, Reason: "securityfs is not mounted: the lockdown mode cannot be read",
		Remedy: "mount -t securityfs securityfs /sys/kernel/security",
	}
}
