// Package vm runs a program of this repository under another kernel, in a throwaway guest.
//
// A guest is qemu with a kernel and an initramfs made for the one run. It has no disk and no network, writes nothing
// on the host, and leaves nothing behind however the caller ends. It is root in its own machine, with cgroup v2, so
// it may change what a test or scenario must not change on the host. Where only emulation (TCG) works, it boots in
// about two seconds and runs five to six times slower than the host: its counts are true, its throughput is not.
package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/lab/vm/guest"
)

// A Kernel is what a guest boots; see [KernelAt] and [FetchKernel].
type Kernel struct {
	// Image is a vmlinux, a bzImage (/boot/vmlinuz-*) or an arm64 Image, under any usual compression.
	Image string
	// Modules is the folder of its modules, such as /lib/modules/6.1.0-56-amd64. If it is empty, only built-in code
	// works: Debian's kernels then have neither conntrack nor veth nor sock_diag.
	Modules string
}

// Options say what to run and where. Kernel and Binary are required.
type Options struct {
	Kernel Kernel
	// Binary is a static program for the kernel's architecture whose main calls package guest. It is the init of the
	// guest, where its path is /bin/ and its name.
	Binary string
	// Command is the program to run, by its path in the guest; Binary if empty. Args do not repeat it.
	Command string
	Args    []string
	// Env is added to a PATH of the usual four folders and HOME=/tmp.
	Env []string
	// Dir is the working directory in the guest; /tmp if empty.
	Dir string
	// Files are copied into the guest. It maps a path in the guest to a file or folder on the host.
	Files map[string]string
	// Outputs are files and folders to bring back from the guest when the command has ended.
	Outputs []string
	// Modules are loaded on top of the usual ones for sockets, netfilter, veth, bridges and delays.
	Modules []string
	// Sysctls are name=value, set before the command runs; a refused one is an error.
	Sysctls []string
	Memory  int64 // bytes; 1 GiB if 0
	CPUs    int   // 2 if 0; 1 with InstructionTime
	// Timeout bounds the whole run; 0: two minutes. A guest may use 40 s of it to boot, twice.
	Timeout time.Duration
	// Emulated does not use KVM, even if it is available.
	Emulated bool
	// InstructionTime, a power of two in ns, derives time from the count of instructions. Time is then deterministic,
	// and on arm64 the PMU counts instructions truly, at 1 ns / InstructionTime per cycle. 0: time is the host's.
	InstructionTime time.Duration
	// Console receives the guest's kernel messages as they appear.
	Console io.Writer
	// Stderr receives the command's standard error as it is written. The Result has it too.
	Stderr io.Writer
}

// Result is what came out of a guest. With an error, it holds what came before the error.
type Result struct {
	Stdout, Stderr []byte
	// ExitCode is the command's exit code, or 128 + the signal that killed it.
	ExitCode int
	// Files are the Outputs by their path in the guest. An output that did not exist is missing.
	Files map[string][]byte
	// Release is the release of the guest's kernel (uname -r).
	Release string
	// Accelerator is kvm or tcg.
	Accelerator string
	// Boot is the wall time from the start of qemu until the command began. BootTries counts the boots it took.
	Boot      time.Duration
	BootTries int
	// Notes are what the guest had to go without.
	Notes []string
}

const (
	// defaultMemory is enough for the kernel, twice the initramfs (while it is unpacked) and a small load.
	defaultMemory  = 1 << 30
	defaultCPUs    = 2 // the least that shows the effects of threads on several CPUs
	defaultTimeout = 2 * time.Minute
	// bootTimeout is for a guest that hangs. A boot on TCG takes two seconds on an idle machine with two CPUs, and took
	// 29 on one with a load average of 400.
	bootTimeout = 40 * time.Second
	// kvmBootTimeout is for a guest on KVM, which boots within a second. On a virtual machine whose host offers
	// broken nested virtualisation, /dev/kvm exists but a guest hangs.
	kvmBootTimeout = 4 * time.Second
)

// Run boots a guest, runs the command in it and waits for its end. An exit code other than 0 is not an error. Errors
// say which part of the guest did not work, and what to install or provide.
func Run(ctx context.Context, o Options) (Result, error) {
	o = o.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout,
		fmt.Errorf("guest: not done within %v: raise the time limit or make the run shorter", o.Timeout))
	defer cancel()
	img, err := loadImage(o.Kernel.Image)
	if err != nil {
		return Result{}, err
	}
	m, err := machineFor(img.arch, o)
	if err != nil {
		return Result{}, err
	}
	if err := checkBinary(o.Binary, img.arch); err != nil {
		return Result{}, err
	}
	root, err := rootFor(o, m.results)
	if err != nil {
		return Result{}, err
	}
	kernel, err := memoryFile("kernel", func(w io.Writer) error { _, err := w.Write(img.data); return err })
	if err != nil {
		return Result{}, err
	}
	defer kernel.Close()
	initrd, err := memoryFile("initramfs", root.write)
	if err != nil {
		return Result{}, err
	}
	defer initrd.Close()
	return m.tryBoots(ctx, kernel, initrd, o)
}

func (o Options) withDefaults() Options {
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
	if o.InstructionTime > 0 {
		o.CPUs = 1 // qemu counts the instructions of one thread that emulates all CPUs
	}
	if o.CPUs == 0 {
		o.CPUs = defaultCPUs
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Dir == "" {
		o.Dir = "/tmp"
	}
	if o.Command == "" {
		o.Command = guestPath(o.Binary)
	}
	return o
}

func guestPath(binary string) string { return path.Join("/bin", path.Base(binary)) }

// rootFor makes the guest's root: the program as init, modules, files and the configuration.
func rootFor(o Options, results string) (*initramfs, error) {
	tree, err := openModules(o.Kernel.Modules)
	if err != nil {
		return nil, err
	}
	modules, err := tree.resolve(defaultModules(), o.Modules)
	if err != nil {
		return nil, err
	}
	root := newInitramfs()
	config := guest.Config{
		Results: results, Sysctls: o.Sysctls, Outputs: o.Outputs, Command: o.Command, Args: o.Args, Dir: o.Dir,
		Env: append([]string{"PATH=/bin:/sbin:/usr/bin:/usr/sbin", "HOME=/tmp"}, o.Env...),
	}
	for _, m := range modules {
		at := "/lib/modules/" + m.name + ".ko"
		root.add(at, 0o600, m.data)
		config.Modules = append(config.Modules, at)
	}
	for name, host := range o.Files {
		if err := root.addHost(name, host); err != nil {
			return nil, fmt.Errorf("file for the guest: %w", err)
		}
	}
	if err := root.addHost(guestPath(o.Binary), o.Binary); err != nil {
		return nil, fmt.Errorf("program for the guest: %w", err)
	}
	root.link("/init", guestPath(o.Binary))
	data, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	root.add(guest.ConfigPath, 0o600, data)
	return root, nil
}

// memoryFile returns a file without a name, so that nothing can be left behind. The child opens it through
// /proc/self/fd.
func memoryFile(name string, write func(io.Writer) error) (*os.File, error) {
	fd, err := unix.MemfdCreate("perfdoctor-"+name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for the guest's %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := write(f); err != nil {
		return nil, errors.Join(fmt.Errorf("the guest's %s: %w", name, err), f.Close())
	}
	return f, nil
}

// KernelAt returns the kernel in a file and, in the usual layout, the folder of its modules: DIR/lib/modules/RELEASE
// for DIR/boot/vmlinuz-RELEASE. Debian's 6.1 in its own folder works as well as /boot.
func KernelAt(image string) (Kernel, error) {
	if _, err := os.Stat(image); err != nil {
		return Kernel{}, fmt.Errorf("kernel for the guest: %w", err)
	}
	k := Kernel{Image: image}
	for _, prefix := range []string{"vmlinuz-", "vmlinux-", "Image-"} {
		release, ok := strings.CutPrefix(path.Base(image), prefix)
		modules := path.Join(path.Dir(path.Dir(image)), "lib/modules", release)
		if _, err := os.Stat(path.Join(modules, "kernel")); ok && err == nil {
			k.Modules = modules
		}
	}
	return k, nil
}

// RunningKernel returns the kernel of this machine, from /boot. A container or a cloud machine may not have the file.
func RunningKernel() (Kernel, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return Kernel{}, err
	}
	k, err := KernelAt("/boot/vmlinuz-" + unix.ByteSliceToString(name.Release[:]))
	if err != nil {
		return k, fmt.Errorf("%w: this machine does not hold the file of the kernel it runs: give a kernel", err)
	}
	return k, nil
}

// output returns the end of what a program said, for an error.
func output(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return strings.TrimSpace(string(exit.Stderr))
	}
	return ""
}
