package vm

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/lab/vm/guest"
)

// A machine is a qemu command line without its files.
type machine struct {
	program string
	args    []string
	cmdline string   // the kernel's
	results string   // the device for the results, in the guest
	port    []string // how qemu makes that device from the chardev "results"
	accels  []accel  // in the order of trying
}

// An accel is a way to run the guest's CPU.
type accel struct {
	name string
	boot time.Duration // a guest that has not booted after this time hangs
	args []string
}

// The file descriptors in qemu: os/exec gives the first of ExtraFiles number 3.
const (
	kernelFile  = "/proc/self/fd/3"
	initrdFile  = "/proc/self/fd/4"
	resultsFile = "/proc/self/fd/5"
)

func machineFor(arch string, o Options) (machine, error) {
	m := machine{args: []string{
		"-m", fmt.Sprintf("%dM", (o.Memory+1<<20-1)>>20), "-smp", fmt.Sprint(o.CPUs),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-chardev", "file,id=results,path=" + resultsFile, "-kernel", kernelFile, "-initrd", initrdFile,
	}}
	// Without panic=-1 a guest whose init fails waits forever. Other kernel messages are only for errors.
	const common = " quiet panic=-1 " + guest.Marker
	name, hint := "", ""
	switch arch {
	case "amd64":
		// With five-level page tables TCG is slower, and 6.1 does not boot. q35 has a second serial port, and timers
		// for the kernel to calibrate its TSC.
		name, hint = "qemu-system-x86_64", "qemu-system-x86"
		m.args = append(m.args, "-M", "q35")
		// When qemu waits for the host's CPU, the clocksource watchdog mistakes that for a drift of the TSC and
		// changes to hpet, where each read exits the guest (5.10, on a loaded host, in 3 of 3 boots;
		// Documentation/admin-guide/kernel-parameters.txt, tsc=). The timer check is off as well, because the
		// interrupt then comes too late: "8254 timer not connected to IO-APIC", and 5.10 did not boot
		// (arch/x86/kernel/apic/io_apic.c, check_timer; kvm_guest_init switches that off, too).
		m.cmdline = "console=ttyS0 reboot=t tsc=reliable no_timer_check" + common
		m.results, m.port = "/dev/ttyS1", []string{"-serial", "chardev:results"}
		m.accels = []accel{emulated("max,la57=off", o)}
	case "arm64":
		name, hint = "qemu-system-aarch64", "qemu-system-arm"
		m.args = append(m.args, "-M", "virt,gic-version=3")
		m.cmdline, m.results, m.port = "console=ttyAMA0"+common, "/dev/ttyS0",
			[]string{"-device", "pci-serial,chardev=results"}
		// the oldest CPU with a PMU that lets Linux count cycles and instructions
		m.accels = []accel{emulated("cortex-a57", o)}
	}
	if t := o.InstructionTime; t > 0 && bits.OnesCount64(uint64(t)) != 1 {
		return m, fmt.Errorf("guest: %v an instruction: qemu can only do powers of two in ns", t)
	}
	m.accels = append(m.accels, m.accels[0]) // one retry
	if !o.Emulated && o.InstructionTime == 0 && arch == runtime.GOARCH &&
		unix.Access("/dev/kvm", unix.R_OK|unix.W_OK) == nil {
		m.accels = slices.Insert(m.accels, 0, accel{"kvm", kvmBootTimeout, []string{"-accel", "kvm", "-cpu", "host"}})
	}
	program, err := exec.LookPath(name)
	if err != nil {
		return m, fmt.Errorf("guest: %s is not installed: apt-get install --no-install-recommends %s", name, hint)
	}
	m.program = program
	return m, nil
}

// emulated returns TCG with one host thread for all CPUs. With one thread per CPU, a CPU of qemu 7.2 sometimes
// executes a breakpoint that another CPU put into kernel code and has already removed (static keys:
// arch/x86/kernel/alternative.c, text_poke_bp_batch): "Oops: int3" in 3 of 16 diagnoses on 6.12, against none of 13.
// Booting takes as long.
func emulated(cpu string, o Options) accel {
	if o.InstructionTime == 0 {
		return accel{"tcg", bootTimeout, []string{"-accel", "tcg,thread=single", "-cpu", cpu}}
	}
	shift := bits.TrailingZeros64(uint64(o.InstructionTime))
	return accel{"tcg", bootTimeout, []string{
		"-accel", "tcg,thread=single", "-icount", fmt.Sprintf("shift=%d", shift),
		"-cpu", cpu,
	}}
}

// checkBinary refuses a program that cannot run as init.
func checkBinary(path, arch string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("program for the guest: %s: %w: give a Linux program", path, err)
	}
	defer f.Close()
	want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if f.Machine != want {
		return fmt.Errorf("program for the guest: %s is for %v, the kernel for %s: build it with GOARCH=%s", path,
			f.Machine, arch, arch)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("program for the guest: %s needs shared libraries: build it with CGO_ENABLED=0", path)
		}
	}
	return nil
}

// errBoot is the error for a guest that failed before the command began. Another try may help.
var errBoot = errors.New("guest did not boot")

// tryBoots boots until one guest begins to run the command. /dev/kvm may exist and still not work, as in a virtual
// machine without nested virtualisation (seen: qemu aborts at its first register), so try to boot.
func (m machine) tryBoots(ctx context.Context, kernel, initrd *os.File, o Options) (Result, error) {
	var failed error
	for i, a := range m.accels {
		result, err := m.boot(ctx, a, kernel, initrd, o)
		result.BootTries = i + 1
		if !errors.Is(err, errBoot) || ctx.Err() != nil {
			return result, err
		}
		failed = err
	}
	return Result{BootTries: len(m.accels)}, failed
}

func (m machine) boot(ctx context.Context, a accel, kernel, initrd *os.File, o Options) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, w, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer r.Close()
	tail := &tailWriter{also: o.Console}
	cmd := exec.CommandContext(ctx, m.program, slices.Concat(m.args, a.args, m.port, []string{"-append", m.cmdline})...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = tail, tail, []*os.File{kernel, initrd, w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.WaitDelay = time.Second // its pipes end with the process
	start := time.Now()
	ended := startAndWait(cmd, w)

	hung := time.AfterFunc(a.boot, func() { cancel(fmt.Errorf("%w within %v", errBoot, a.boot)) })
	defer hung.Stop()
	c := collector{result: Result{Accelerator: a.name}, stderr: o.Stderr}
	err = c.collect(guest.NewFrames(r), func() {
		hung.Stop()
		c.result.Boot = time.Since(start)
	})
	if err != nil {
		cancel(err) // whatever the guest still does is useless
	}
	died := <-ended
	return c.finish(err, context.Cause(ctx), died, tail)
}

// startAndWait keeps one thread for qemu: the kernel sends Pdeathsig when the thread that started it ends. It closes
// the caller's write end of the pipe, so that reading ends with qemu.
func startAndWait(cmd *exec.Cmd, w *os.File) <-chan error {
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		err = errors.Join(err, w.Close())
		if err == nil {
			err = cmd.Wait()
		}
		ended <- err
	}()
	return ended
}

// A collector assembles frames.
type collector struct {
	result  Result
	booted  bool
	exited  *guest.Exited
	archive bytes.Buffer
	stderr  io.Writer // or nil
}

// maxResults bounds what one guest may send. At the speed of an emulated serial port, that takes minutes.
const maxResults = 256 << 20

func (c *collector) collect(frames *guest.Frames, booted func()) error {
	total := 0
	for {
		kind, data, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if total += len(data); total > maxResults {
			return fmt.Errorf("guest: more than %d bytes of results", maxResults)
		}
		if err := c.take(kind, data); err != nil {
			return fmt.Errorf("guest's results, frame %q: %w", kind, err)
		}
		if kind == guest.Boot {
			booted()
		}
	}
}

func (c *collector) take(kind guest.Kind, data []byte) error {
	switch kind {
	case guest.Boot:
		var b guest.Booted
		if err := json.Unmarshal(data, &b); err != nil {
			return err
		}
		c.booted, c.result.Release, c.result.Notes = true, b.Release, b.Notes
	case guest.Stdout:
		c.result.Stdout = append(c.result.Stdout, data...)
	case guest.Stderr:
		c.result.Stderr = append(c.result.Stderr, data...)
		if c.stderr != nil {
			_, _ = c.stderr.Write(data) // a reader that went away does not end the guest
		}
	case guest.Tar:
		c.archive.Write(data)
	case guest.Exit:
		return json.Unmarshal(data, &c.exited)
	default:
		return errors.New("unknown: the program in the guest is another version than the one that reads it")
	}
	return nil
}

// finish returns the outcome of the guest: what was damaged, why it was killed, or how the command ended.
func (c *collector) finish(damaged, killed, died error, tail *tailWriter) (Result, error) {
	switch {
	case c.exited != nil && c.exited.Error != "":
		return c.result, fmt.Errorf("guest: %s%s", c.exited.Error, tail.said())
	case c.exited != nil && damaged == nil:
		c.result.ExitCode = c.exited.Code
		files, err := untar(&c.archive)
		c.result.Files = files
		return c.result, err
	case damaged != nil:
		return c.result, fmt.Errorf("%w%s", damaged, tail.said())
	case killed != nil:
		return c.result, fmt.Errorf("%w%s", killed, tail.said())
	case !c.booted && died != nil:
		return c.result, fmt.Errorf("%w: qemu: %w%s", errBoot, died, tail.said())
	case !c.booted:
		return c.result, fmt.Errorf("%w: its kernel or init stopped%s", errBoot, tail.said())
	}
	return c.result, fmt.Errorf("guest stopped while the command ran, as it does when its kernel panics%s", tail.said())
}

func untar(r io.Reader) (map[string][]byte, error) {
	files := map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return files, fmt.Errorf("guest's files: %w", err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return files, fmt.Errorf("guest's file %s: %w", header.Name, err)
		}
		files[header.Name] = data
	}
}

// tailWriter keeps the end of what the guest's kernel and qemu say, for errors.
type tailWriter struct {
	also io.Writer
	end  []byte
}

// tailSize holds a kernel's panic with its call trace.
const tailSize = 4 << 10

func (t *tailWriter) Write(p []byte) (int, error) {
	t.end = append(t.end, p...)
	t.end = t.end[max(0, len(t.end)-tailSize):]
	if t.also == nil {
		return len(p), nil
	}
	return t.also.Write(p)
}

func (t *tailWriter) said() string {
	if text := bytes.TrimSpace(t.end); len(text) > 0 {
		return fmt.Sprintf("; the end of its console:\n%s", text)
	}
	return "; its console is silent"
}
