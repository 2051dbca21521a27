package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a program started in a host. It leads a process group of its own, which ends with it.
type Process struct {
	Pid int

	cmd    *exec.Cmd
	done   chan struct{}
	err    error // of cmd.Wait, once done is closed
	mu     sync.Mutex
	reaped bool // from then on the pid may belong to another process
}

// Start starts cmd in the host. The lab waits for it: use [Process.Wait], not cmd.Wait. The process is killed when
// this process dies, and stopped by Close.
func (h *Host) Start(cmd *exec.Cmd) (*Process, error) { return h.StartIn(Place{}, cmd) }

// Place is the part of the machine that a process gets in its host.
type Place struct {
	Group    *Cgroup // nil: this process's own
	Affinity []int   // the CPUs that its threads may run on (sched_setaffinity(2)); none: all
}

// StartIn starts cmd in the host. The process is in the place from its first instruction, so that a runtime that
// sizes itself to its quota or CPUs at start sees them.
func (h *Host) StartIn(place Place, cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	cmd.SysProcAttr.Setpgid = true
	err := heedingInterrupt(func() error { return h.keep.do(func() error { return place.start(cmd) }) })
	if err != nil {
		return nil, fmt.Errorf("host %s: start %s: %w", h.name, cmd.Path, err)
	}
	p := &Process{Pid: cmd.Process.Pid, cmd: cmd, done: make(chan struct{})}
	go p.reap()
	return p, h.lab.onClose(p.Stop)
}

// heedingInterrupt keeps a child from inheriting an ignored SIGINT. This process ignores SIGINT if it is a background
// job of a shell script. An ignored signal stays ignored over execve, a caught one does not (signal(7)). pgbench
// would then never end.
func heedingInterrupt(start func() error) error {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, os.Interrupt)
	defer signal.Stop(caught)
	return start()
}

// start starts cmd from the calling thread. A child inherits the affinity of that thread.
func (p Place) start(cmd *exec.Cmd) error {
	if len(p.Affinity) == 0 {
		return startInGroup(p.Group, cmd)
	}
	var before, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	for _, cpu := range p.Affinity {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("affinity to CPUs %v: %w (is one of them online?)", p.Affinity, err)
	}
	err := startInGroup(p.Group, cmd)
	return errors.Join(err, unix.SchedSetaffinity(0, &before))
}

func startInGroup(group *Cgroup, cmd *exec.Cmd) error {
	if group == nil {
		return cmd.Start()
	}
	if dir := group.v2Dir(); dir != "" {
		file, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		cmd.SysProcAttr.UseCgroupFD = true
		cmd.SysProcAttr.CgroupFD = int(file.Fd())
	}
	leave, err := group.joinThread()
	if err == nil {
		err = cmd.Start()
	}
	return errors.Join(err, leave())
}

// reap waits for the end without reaping the pid (WNOWAIT), so that it can kill the group while the pid still belongs
// to the process.
func (p *Process) reap() {
	defer close(p.done)
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.mu.Lock()
	p.reaped = true
	_ = unix.Kill(-p.Pid, unix.SIGKILL) // ESRCH: the process was alone
	p.mu.Unlock()
	p.err = p.cmd.Wait()
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end and returns the error of [exec.Cmd.Wait]. It can be called more than once.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends a signal to the process alone. After the process has ended it does nothing.
func (p *Process) Signal(sig unix.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil
	}
	return unix.Kill(p.Pid, sig)
}

// stopGrace is how long a server may take to close its sockets after SIGTERM. killWait is how long the kernel may
// take to free a killed process.
const (
	stopGrace = time.Second
	killWait  = 5 * time.Second
)

// Stop ends the process: SIGTERM, then SIGKILL after a second. How it ended is not an error.
func (p *Process) Stop() error {
	for _, step := range []struct {
		sig  unix.Signal
		wait time.Duration
	}{{unix.SIGTERM, stopGrace}, {unix.SIGKILL, killWait}} {
		if err := p.Signal(step.sig); err != nil {
			return fmt.Errorf("stop pid %d: %w", p.Pid, err)
		}
		select {
		case <-p.done:
			return nil
		case <-time.After(step.wait):
		}
	}
	return fmt.Errorf("stop pid %d: still there %v after SIGKILL", p.Pid, killWait)
}
