// Package jvm identifies a Java virtual machine, and talks to a running HotSpot.
//
// Inspect reads procfs only and changes nothing. Jcmd and Load attach by HotSpot's own protocol
// (src/hotspot/os/posix/attachListener_posix.cpp, before JDK 21 os/linux/attachListener_linux.cpp), so neither a JDK
// nor Java is needed beside the target. What cannot be done is a *Refusal, with its cause, a reason a person can
// read, and what would change it.
//
// A target is not trusted. Every path inside it is resolved beneath its own root and never leads out of that
// (openat2(2)). A thread with the target's own ids does so, so that neither a link nor a name in a container can make
// perfdoctor read or write what the target could not.
package jvm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Kind is the implementation of the virtual machine.
type Kind string

// The kinds that perfdoctor distinguishes.
const (
	HotSpot     Kind = "HotSpot"
	OpenJ9      Kind = "OpenJ9"
	NativeImage Kind = "GraalVM native image" // compiled ahead of time: there is no virtual machine to attach to
)

// Libc is the C library of the target, which decides whether a native library can be loaded into it.
type Libc string

// The C libraries that perfdoctor distinguishes.
const (
	Glibc Libc = "glibc"
	Musl  Libc = "musl"
)

// VM is a virtual machine as it was when it was inspected.
type VM struct {
	PID       int    // as perfdoctor counts
	NSPid     int    // as the target counts, which names its files; PID itself before Linux 4.1
	StartTime uint64 // in ticks after boot: distinguishes the process from a later one with the same pid

	Kind    Kind
	Sign    string // by what Kind was recognised, such as "maps /opt/jdk/lib/server/libjvm.so"
	Library string // the virtual machine's library as the target sees it; "" for a native image
	Version string // such as 17.0.9 or 17.0.9+9; "" when it could not be found out cheaply
	Libc    Libc   // "" when neither is mapped: statically linked

	UID, GID int   // effective, as perfdoctor's user namespace counts
	Groups   []int // supplementary

	OtherMount, OtherPID, OtherUser bool // the target is in another namespace than perfdoctor

	State       byte // of fs/proc/array.c: R, S, D, T stopped, t traced, Z, X
	Tracer      int  // id of the debugger's thread that holds it, 0 if none
	CatchesQuit bool // SIGQUIT has a handler; without one it would end the process
	Frozen      bool // by the cgroup freezer, as `docker pause` does

	Options Options
	Agents  []Agent  // libraries of profilers, debuggers and agents, and those of perfdoctor
	Notes   []string // what could not be found out, and why
}

// Inspect looks at a process. It costs a few reads of procfs, about 1 ms, most of it the list of mappings.
//
// Its error is a *Refusal with cause NotJVM, Gone or Denied, or says which part of procfs did not parse. A kind that
// cannot be attached to, or a stopped or starting process, is no error here: see [VM.Attachable].
func Inspect(pid int) (*VM, error) {
	if pid <= 0 {
		return nil, &Refusal{Cause: Gone, Reason: fmt.Sprintf("%d is not a process id", pid)}
	}
	vm := &VM{PID: pid}
	if err := vm.readStatus(); err != nil {
		return nil, vm.unreadable(err)
	}
	if vm.State == 'Z' || vm.State == 'X' {
		return nil, vm.gone()
	}
	libs, err := mappedFiles(vm.proc(""))
	if err != nil {
		return nil, vm.unreadable(err)
	}
	if err := vm.recognise(libs); err != nil {
		return nil, err
	}
	vm.Libc = libcOf(libs)
	vm.Agents = agentsOf(libs)
	vm.compareNamespaces()
	vm.Frozen = vm.isFrozen()
	if vm.Kind == HotSpot {
		vm.readOptions()
		vm.Version = vm.releaseVersion()
	}
	// If the process with this pid is still the same, all of it was about one process.
	if err := vm.check(); err != nil {
		return nil, err
	}
	return vm, nil
}

// Major is the feature release, such as 8, 11 or 17; 0 when the version is not known.
func (vm *VM) Major() int { return majorOf(vm.Version) }

// Attachable returns why the VM cannot be attached to, as far as that shows without trying, or nil. A VM that is
// still starting is attachable: Jcmd and Load wait for it.
func (vm *VM) Attachable() *Refusal {
	switch vm.Kind {
	case OpenJ9:
		return vm.refuse(UnsupportedVM, "the process runs on Eclipse OpenJ9 ("+vm.Sign+"), whose attach protocol, "+
			"counters and "+
			"profilers are others", "for this part of the diagnosis run the program on a HotSpot JVM, such as Temurin")
	case NativeImage:
		return vm.refuse(UnsupportedVM, "the process is a GraalVM native image ("+vm.Sign+"): compiled ahead of time, "+
			"it has no "+
			"virtual machine to ask", "profile it as a native program, with perf")
	}
	if r := vm.halted(); r != nil {
		return r
	}
	if v, ok := vm.Options.lookup("DisableAttachMechanism"); ok && v.Value == "true" {
		return vm.refuse(AttachDisabled, "the JVM was started with -XX:+DisableAttachMechanism ("+v.Source+")",
			"restart it without that option")
	}
	return nil
}

// Loadable returns why no library can be loaded into the VM, as far as that shows without trying, or nil.
func (vm *VM) Loadable() *Refusal {
	if r := vm.Attachable(); r != nil {
		return r
	}
	if v, ok := vm.Options.lookup("EnableDynamicAgentLoading"); ok && v.Value == "false" {
		return vm.refuse(LoadDisabled, "the JVM was started with -XX:-EnableDynamicAgentLoading ("+v.Source+
			"), which forbids to load a profiler", "restart it without that option")
	}
	return nil
}

// Profilers returns the foreign profilers that are loaded. A second profiler would disturb both, because the signals
// and events that a profiler samples with belong to the process.
func (vm *VM) Profilers() []Agent {
	var found []Agent
	for _, a := range vm.Agents {
		if a.Profiler && !a.Own {
			found = append(found, a)
		}
	}
	return found
}

// halted returns why the process does not run and so cannot answer, or nil.
func (vm *VM) halted() *Refusal {
	pid := strconv.Itoa(vm.PID)
	switch {
	case vm.State == 'T':
		return vm.refuse(Stopped, "the process is stopped (state T: SIGSTOP or Ctrl-Z)",
			"let it go on: kill -CONT "+pid)
	case vm.State == 't':
		return vm.refuse(Stopped, fmt.Sprintf("a debugger (its pid is %d) holds the process (state t)", vm.Tracer),
			"detach the debugger, or let the process go on in it")
	case vm.Frozen:
		return vm.refuse(Stopped, "the cgroup freezer holds the process, as `docker pause` does",
			"let it go on: docker unpause, or write 0 to cgroup.freeze of its group")
	}
	return nil
}

// check makes sure that the pid still names the process that was inspected, and refreshes what changes.
func (vm *VM) check() error {
	start, err := startTime(vm.proc("stat"))
	if err != nil {
		return vm.unreadable(err)
	}
	if vm.StartTime == 0 {
		vm.StartTime = start
	}
	if start != vm.StartTime {
		return vm.gone()
	}
	return nil
}

// proc is the path of one of the target's files in procfs.
func (vm *VM) proc(name string) string { return "/proc/" + strconv.Itoa(vm.PID) + "/" + name }

func (vm *VM) gone() *Refusal {
	return &Refusal{Cause: Gone, Reason: fmt.Sprintf("there is no process %d (it may have ended)", vm.PID)}
}

func (vm *VM) refuse(cause Cause, reason, remedy string) *Refusal {
	return &Refusal{Cause: cause, Reason: fmt.Sprintf("pid %d: %s", vm.PID, reason), Remedy: remedy}
}

// unreadable turns the error of reading procfs into a refusal if the user can do something about it.
func (vm *VM) unreadable(err error) error {
	var already *Refusal
	switch {
	case errors.As(err, &already):
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return vm.gone()
	case errors.Is(err, fs.ErrPermission):
		return vm.mayNotLook(err)
	}
	return err
}

func (vm *VM) mayNotLook(err error) *Refusal {
	who, remedy := "uid "+strconv.Itoa(os.Geteuid()), "run it as root or as the target's user"
	if os.Geteuid() == 0 {
		who, remedy = "root", "give it CAP_SYS_PTRACE, and in a container --pid=host and --user root of the host"
	}
	r := vm.refuse(Denied, fmt.Sprintf("perfdoctor, as %s, may not look into the process: %v", who, err), remedy)
	r.Err = err
	return r
}

// youngest is the age below which a process named java without a mapped JVM counts as starting. The launcher maps
// libjvm.so within some 10 ms; a throttled container may take a minute.
const youngest = time.Minute
