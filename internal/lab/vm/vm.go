// Package vm runs a program of this repository under another kernel, in a guest that is gone afterwards.
//
// A guest is qemu with a kernel and an initramfs made for the one run: no disk, no network, nothing written on the
// host, nothing left behind however the caller ends. It is root in a machine of its own, with cgroup v2, so it may
// change what a test or scenario must not change on the host. It boots in about two seconds where only emulation (TCG)
// works, and runs five to six times slower than the host then: counts are true in it, throughput is not.
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
	// Modules is the folder of its modules, such as /lib/modules/6.1.0-56-amd64. If empty, only what is built in works:
	// Debian's kernels then have neither conntrack nor veth nor sock_diag.
	Modules string
}

// Options say what to run and where. Kernel and Binary are required.
type Options struct {
	Kernel Kernel
	// Binary is a static program for the kernel's architecture whose main calls package guest: the init of the guest,
	// found there as /bin/ and its name.
	Binary string
	// Command is the program to run, by its path in the guest; Binary if empty. Args do not repeat it.
	Command string
	Args    []string
	// Env is added to a PATH of the usual four folders and HOME=/tmp.
	Env []string
	// Dir is the working directory in the guest; /tmp if empty.
	Dir string
	// Files are taken into the guest: from a path there to a file or folder here.
	Files map[string]string
	// Outputs are files and folders of the guest to bring back when the command has ended.
	Outputs []string
	// Modules are loaded on top of the usual ones for sockets, netfilter, veth, bridges and delays.
	Modules []string
	// Sysctls are name=value, set before the command runs; a refused one is an error.
	Sysctls []string
	Memory  int64 // bytes; 1 GiB if 0
	CPUs    int   // 2 if 0; 1 with InstructionTime
	// Timeout bounds the whole run, two minutes if 0. To boot a guest has 40 s of it, twice.
	Timeout time.Duration
	// Emulated leaves KVM out, also where it is.
	Emulated bool
	// InstructionTime, a power of two in ns, makes time a count of instructions: deterministic, and on arm64 with a PMU
	// that counts instructions truly, at 1 ns / InstructionTime per cycle. 0: time is the host's.
	InstructionTime time.Duration
	// Console gets what the guest's kernel says, while it says it.
	Console io.Writer
	// Stderr gets what the command writes there, while it writes it. It is in the Result too.
	Stderr io.Writer
}

// Result is what came out of a guest. With an error it holds what came before it.
type Result struct {
	Stdout, Stderr []byte
	// ExitCode is the command's, or 128 + the signal that killed it.
	ExitCode int
	// Files are Outputs by their path in the guest; one that did not exist is not there.
	Files map[string][]byte
	// Release is the guest's kernel (uname -r).
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
	// defaultMemory holds the kernel, the initramfs twice (while it is unpacked) and a small load.
	defaultMemory  = 1 << 30
	defaultCPUs    = 2 // the least that shows what threads on several CPUs do
	defaultTimeout = 2 * time.Minute
	// bootTimeout is for a guest that hangs. A boot on TCG takes two seconds on an idle machine with two CPUs, and took
	// 29 on one with a load average of 400.
	bootTimeout = 40 * time.Second
	// kvmBootTimeout is for a guest on KVM, which boots within a second. On a virtual machine whose host offers nested
	// virtualisation that does not work, /dev/kvm is there and a guest hangs.
	kvmBootTimeout = 4 * time.Second
)

// Run boots a guest, runs the command in it and waits for its end. An exit code other than 0 is no error: errors say
// what of the guest did not work, and what to install or give.
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
		o.CPUs = 1 // qemu counts instructions of one thread that plays all CPUs
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

// memoryFile is a file without a name, so that nothing can be left behind. Its child opens it through /proc/self/fd.
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

// KernelAt takes a kernel's file and, where the usual layout has it, the folder of its modules: for
// DIR/boot/vmlinuz-RELEASE that is DIR/lib/modules/RELEASE. Debian's 6.1 in a folder of its own works as well as /boot.
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

// RunningKernel is the kernel of this machine, from /boot. A container or a cloud machine may not have its file.
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

// output is the end of what a program said, for an error.
func output(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return strings.TrimSpace(string(exit.Stderr))
	}
	return ""
}
