package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Facts describes the host. A field that could not be read keeps its zero value, and Missing has the reason.
type Facts struct {
	KernelRelease string // "6.1.0-18-amd64"
	KernelVersion string // the build: "#1 SMP PREEMPT_DYNAMIC ..."
	Arch          string // as Go names it: amd64, arm64

	CPUModel       string
	CPUsOnline     int
	Sockets        int
	Cores          int // physical cores with at least one CPU online
	ThreadsPerCore int // the most online CPUs that share a core

	// none, kvm, qemu, vmware, hyperv, xen, virtualbox, amazon, google, vm (unknown hypervisor) ...
	Virtualization string
	Clocksource    string
	Governor       string // cpufreq; several are joined with commas

	MemTotal uint64 // bytes
	BootTime time.Time
	UserHZ   int // ticks a second of the times in Stat

	ContainerID      string // of perfdoctor itself, "" outside containers
	ContainerRuntime string

	Missing []Missing
}

// Missing is a fact that could not be established.
type Missing struct{ Fact, Reason string }

// Facts reads what describes the host. It takes a few hundred small files on a large machine, so ask once.
func (h *Host) Facts() Facts {
	f := Facts{Arch: runtime.GOARCH}
	note := func(fact string, err error) {
		if err != nil {
			f.Missing = append(f.Missing, Missing{fact, err.Error()})
		}
	}
	var err error
	f.KernelRelease, err = h.line("sys/kernel/osrelease")
	note("kernel release", err)
	f.KernelVersion, err = h.line("sys/kernel/version")
	note("kernel version", err)
	cpu, err := h.cpuInfo()
	note("cpu model", err)
	f.CPUModel = cpu.model
	note("topology", h.topology(&f))
	f.Virtualization, err = h.virtualization(cpu)
	note("virtualization", err)
	f.Clocksource, err = h.readSys("devices/system/clocksource/clocksource0/current_clocksource")
	note("clocksource", err)
	f.Governor, err = h.governor()
	note("cpufreq governor", err)
	f.MemTotal, err = h.memTotal()
	note("memory", err)
	f.BootTime, err = h.bootTime()
	note("boot time", err)
	f.UserHZ, err = h.userHZ()
	note("user HZ", err)
	f.ContainerID, f.ContainerRuntime, err = h.ownContainer()
	note("own container", err)
	return f
}

func (h *Host) line(name string) (string, error) {
	b, err := h.readProc(name)
	return strings.TrimSpace(string(b)), err
}

// release is a parsed kernel release.
type release struct {
	major, minor int
	text         string
}

func (r release) before(major, minor int) bool {
	return r.major < major || (r.major == major && r.minor < minor)
}

func (h *Host) kernelRelease() (release, error) {
	text, err := h.line("sys/kernel/osrelease")
	if err != nil {
		return release{}, err
	}
	return parseRelease(text)
}

// KernelRelease returns what uname -r says, such as "6.1.0-18-amd64".
func (h *Host) KernelRelease() (string, error) {
	r, err := h.kernelRelease()
	return r.text, err
}

// ReleaseBefore reports whether a kernel release is older than another, by the first two numbers of each.
func ReleaseBefore(text, than string) (bool, error) {
	r, err := parseRelease(text)
	if err != nil {
		return false, err
	}
	limit, err := parseRelease(than)
	return r.before(limit.major, limit.minor), err
}

// parseRelease reads the two numbers that every release begins with: "6.1.0-18-amd64", "5.10-rc3", "4.18.0-553.el8".
func parseRelease(text string) (release, error) {
	major, rest, ok := strings.Cut(text, ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	a, errA := strconv.Atoi(major)
	b, errB := strconv.Atoi(rest[:end])
	if !ok || errA != nil || errB != nil {
		return release{}, fmt.Errorf("bad kernel release %q", text)
	}
	return release{a, b, text}, nil
}

// cpuInfo is what /proc/cpuinfo says about the first CPU.
type cpuInfo struct {
	model      string
	hypervisor bool // x86: the CPU says that it is virtual
	x86        bool
}

func (h *Host) cpuInfo() (cpuInfo, error) {
	b, err := h.readProc("cpuinfo")
	if err != nil {
		return cpuInfo{}, err
	}
	return parseCPUInfo(bytes.NewReader(b))
}

// parseCPUInfo reads the first processor: x86 has a model name, arm64 only the numbers of the designer and the part.
func parseCPUInfo(r io.Reader) (cpuInfo, error) {
	values := map[string]string{}
	sc := newScanner(r)
	for sc.Scan() {
		key, value, ok := strings.Cut(sc.Text(), ":")
		key = strings.TrimSpace(key)
		if _, seen := values[key]; ok && !seen {
			values[key] = strings.TrimSpace(value)
		}
	}
	flags, x86 := values["flags"]
	info := cpuInfo{model: values["model name"], x86: x86}
	info.hypervisor = slices.Contains(strings.Fields(flags), "hypervisor")
	if info.model == "" && values["CPU part"] != "" {
		info.model = armModel(values["CPU implementer"], values["CPU part"])
	}
	if info.model == "" {
		return info, errors.Join(errors.New("cpuinfo names no CPU model"), sc.Err())
	}
	return info, sc.Err()
}

// armModel names the parts that servers use (arch/arm64/include/asm/cputype.h).
func armModel(implementer, part string) string {
	names := map[string]string{
		"0x41 0xd03": "ARM Cortex-A53", "0x41 0xd07": "ARM Cortex-A57", "0x41 0xd08": "ARM Cortex-A72",
		"0x41 0xd0b": "ARM Cortex-A76", "0x41 0xd0c": "ARM Neoverse-N1", "0x41 0xd40": "ARM Neoverse-V1",
		"0x41 0xd49": "ARM Neoverse-N2", "0x41 0xd4f": "ARM Neoverse-V2", "0x48 0xd01": "HiSilicon TSV110",
		"0xc0 0xac3": "Ampere-1", "0xc0 0xac4": "Ampere-1a",
	}
	if name, ok := names[implementer+" "+part]; ok {
		return name
	}
	return "implementer " + implementer + " part " + part
}

// topology counts CPUs, cores and sockets from sysfs, which is exact where cpuinfo has no core ids (arm64).
func (h *Host) topology(f *Facts) error {
	online, err := h.OnlineCPUs()
	if err != nil {
		return err
	}
	f.CPUsOnline = len(online)
	sockets, cores := map[string]bool{}, map[string]int{}
	for _, cpu := range online {
		dir := fmt.Sprintf("devices/system/cpu/cpu%d/topology/", cpu)
		socket, err := h.readSys(dir + "physical_package_id")
		if err != nil {
			return err
		}
		siblings, err := h.readSys(dir + "thread_siblings_list")
		if err != nil {
			return err
		}
		sockets[socket] = true
		cores[siblings]++
	}
	f.Sockets, f.Cores = len(sockets), len(cores)
	for _, n := range cores {
		f.ThreadsPerCore = max(f.ThreadsPerCore, n)
	}
	return nil
}

// OnlineCPUs returns the numbers of the CPUs that are online, in ascending order.
func (h *Host) OnlineCPUs() ([]int, error) {
	text, err := h.readSys("devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	online, err := ParseCPUList(text)
	if err != nil {
		return nil, fmt.Errorf("devices/system/cpu/online: %w", err)
	}
	return online, nil
}

// maxCPU bounds a CPU list: the largest NR_CPUS of any architecture is 8192 (arch/x86/Kconfig).
const maxCPU = 8192

// ParseCPUList reads numbers of CPUs as "0-3,8,10-11" (lib/bitmap.c, bitmap_print_to_pagebuf), 8192 at most.
func ParseCPUList(text string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, errA := strconv.ParseUint(from, 10, 16)
		b, errB := strconv.ParseUint(to, 10, 16)
		if errA != nil || errB != nil || a > b || b >= maxCPU || len(cpus) >= maxCPU {
			return nil, fmt.Errorf("bad CPU list %q", clip([]byte(text)))
		}
		for cpu := a; cpu <= b; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}

// virtualization returns what the host runs on, from signs that only a hypervisor gives. gopsutil's
// host.Virtualization also guesses from loaded modules, and so calls a bare machine with the kvm module the host of a
// virtual one.
func (h *Host) virtualization(cpu cpuInfo) (string, error) {
	if kind, err := h.readSys("hypervisor/type"); err == nil {
		return kind, nil // drivers/xen/sys-hypervisor.c: "xen"
	}
	vendor, _ := h.readSys("class/dmi/id/sys_vendor")
	product, _ := h.readSys("class/dmi/id/product_name")
	if name := dmiHypervisor(vendor, product); name != "" {
		return name, nil
	}
	// A paravirtual clock is registered only after the hypervisor's own CPUID leaf or page was found.
	clocks, _ := h.readSys("devices/system/clocksource/clocksource0/available_clocksource")
	for _, c := range strings.Fields(clocks) {
		switch {
		case c == "kvm-clock":
			return "kvm", nil
		case strings.HasPrefix(c, "hyperv_"):
			return "hyperv", nil
		}
	}
	if b, err := os.ReadFile(filepath.Join(h.Sys, "firmware/devicetree/base/hypervisor/compatible")); err == nil {
		name, _, _ := strings.Cut(string(b), "\x00")
		return strings.TrimPrefix(name, "linux,"), nil
	}
	switch {
	case cpu.hypervisor:
		return "vm", nil
	case cpu.x86:
		return "none", nil
	case vendor != "":
		return "none", nil // a server with DMI whose vendor is not a hypervisor's
	}
	return "", errors.New("no DMI, device tree or CPU flag tells whether this is a virtual machine")
}

// dmiHypervisor recognises hypervisors and clouds by the names in their firmware.
func dmiHypervisor(vendor, product string) string {
	metal := strings.Contains(product, ".metal")
	for _, sign := range []struct{ text, name string }{
		{"Amazon EC2", "amazon"},
		{"Google Compute Engine", "google"},
		{"Google", "google"},
		{"Alibaba Cloud", "alibaba"},
		{"OpenStack", "openstack"},
		{"DigitalOcean", "digitalocean"},
		{"Hetzner", "hetzner"},
		{"VMware", "vmware"},
		{"VirtualBox", "virtualbox"},
		{"innotek", "virtualbox"},
		{"Parallels", "parallels"},
		{"Bochs", "bochs"},
		{"BHYVE", "bhyve"},
		{"Xen", "xen"},
		{"QEMU", "qemu"},
		{"KVM", "kvm"},
		{"Apple Virtualization", "apple"},
	} {
		if strings.Contains(vendor, sign.text) || strings.Contains(product, sign.text) {
			if metal {
				return "none"
			}
			return sign.name
		}
	}
	if vendor == "Microsoft Corporation" && product == "Virtual Machine" {
		return "hyperv" // Surface devices have the same vendor
	}
	return ""
}

func (h *Host) governor() (string, error) {
	files, err := filepath.Glob(filepath.Join(h.Sys, "devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"))
	if err != nil {
		return "", err
	}
	var found []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		found = append(found, strings.TrimSpace(string(b)))
	}
	if len(found) == 0 {
		return "", errors.New("no cpufreq driver: the firmware or the hypervisor sets the clock")
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), ","), nil
}

func (h *Host) memTotal() (uint64, error) {
	b, err := h.readProc("meminfo")
	if err != nil {
		return 0, err
	}
	kb, err := keyedNumber(bytes.NewReader(b), "MemTotal:")
	// meminfo's kB are 1024 bytes (fs/proc/meminfo.c, show_val_kb).
	return kb * 1024, err
}

func (h *Host) bootTime() (time.Time, error) {
	b, err := h.readProc("stat")
	if err != nil {
		return time.Time{}, err
	}
	sec, err := keyedNumber(bytes.NewReader(b), "btime")
	if err != nil || sec > 1<<40 {
		return time.Time{}, errors.Join(errors.New("no usable btime in stat"), err)
	}
	return time.Unix(int64(sec), 0), nil
}

// keyedNumber returns the first number on the line that begins with the key.
func keyedNumber(r io.Reader, key string) (uint64, error) {
	sc := newScanner(r)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 2 || f[0] != key {
			continue
		}
		v, err := strconv.ParseUint(f[1], 10, 54)
		if err != nil {
			return 0, fmt.Errorf("bad %s %q", key, clip([]byte(f[1])))
		}
		return v, nil
	}
	return 0, errors.Join(fmt.Errorf("no line %s", key), sc.Err())
}

// atClkTck is AT_CLKTCK of include/uapi/linux/auxvec.h: USER_HZ, what sysconf(_SC_CLK_TCK) returns.
const atClkTck = 17

func (h *Host) userHZ() (int, error) {
	b, err := h.readProc("self/auxv")
	if err == nil {
		return parseAuxv(b)
	}
	// If the program has file capabilities, the file belongs to root; Go's runtime keeps what the kernel handed over.
	pairs, auxErr := unix.Auxv()
	if auxErr != nil {
		return 0, err
	}
	for _, pair := range pairs {
		b = binary.NativeEndian.AppendUint64(b, uint64(pair[0]))
		b = binary.NativeEndian.AppendUint64(b, uint64(pair[1]))
	}
	return parseAuxv(b)
}

// parseAuxv finds AT_CLKTCK among the pairs of words that the kernel gave this process. perfdoctor runs on 64-bit
// kernels only, so a word is 8 bytes.
func parseAuxv(b []byte) (int, error) {
	for ; len(b) >= 16; b = b[16:] {
		if binary.NativeEndian.Uint64(b) != atClkTck {
			continue
		}
		hz := binary.NativeEndian.Uint64(b[8:])
		// It is 100 everywhere but on alpha and ia64, which have 1024.
		if hz == 0 || hz > 1024 {
			return 0, fmt.Errorf("auxv: bad AT_CLKTCK %d", hz)
		}
		return int(hz), nil
	}
	return 0, errors.New("auxv has no AT_CLKTCK")
}

// ownContainer finds the container perfdoctor runs in by its cgroup. Where a cgroup namespace hides that, it uses the
// host directory that the runtime mounts as /etc/hostname or /etc/hosts.
func (h *Host) ownContainer() (id, runtimeName string, err error) {
	b, err := h.readProc("self/cgroup")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", err
	}
	lines, err := parseCgroup(bytes.NewReader(b))
	if err != nil {
		return "", "", err
	}
	if c := innermost(lines); c.id != "" {
		return c.id, c.runtime, nil
	}
	mounts, err := h.mounts()
	if err != nil {
		return "", "", err
	}
	id, runtimeName = mountedContainer(mounts)
	return id, runtimeName, nil
}

// mountedContainer looks at the mounts that a runtime makes. In a pod they come from the kubelet or from the pod's
// sandbox, whose id is not the container's.
func mountedContainer(mounts []mount) (id, runtimeName string) {
	for _, m := range mounts {
		if strings.Contains(m.root, "/kubelet/pods/") {
			return "", ""
		}
		if m.point != "/etc/hostname" && m.point != "/etc/hosts" {
			continue
		}
		if found, name := mountedBy(m.root); found != "" {
			id, runtimeName = found, name
		}
	}
	return id, runtimeName
}

// mountedBy reads .../docker/containers/ID/hostname and .../overlay-containers/ID/userdata/hostname.
func mountedBy(root string) (id, runtimeName string) {
	parts := strings.Split(path.Dir(root), "/")
	for i := 1; i < len(parts); i++ {
		if len(parts[i]) != containerIDLen || !isHex(parts[i]) {
			continue
		}
		switch parts[i-1] {
		case "containers":
			return parts[i], Docker
		case "overlay-containers":
			return parts[i], Podman
		}
	}
	return "", ""
}
