package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// termGrace is the time a started command has to end after SIGTERM; a JVM with shutdown hooks takes a second or two.
const termGrace = 5 * time.Second

// child is a command that perfdoctor started in order to diagnose it.
type child struct {
	cmd    *exec.Cmd
	done   chan struct{}
	killed bool // perfdoctor ended it
}

// startChild starts the command in its own process group, so that its children end with it. The command is tied to
// this process: it does not outlive a SIGKILL of perfdoctor.
func startChild(args []string, stderr *os.File) (*child, error) {
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // stop ends it, with time to clean up; a context would not
	cmd.Stdout, cmd.Stderr = stderr, stderr   // the standard output is the report's
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c := &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// Pdeathsig fires when the thread that started the command ends (prctl(2)): keep it until then
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		waitEnd(cmd.Process.Pid)
		// kill the rest of the group, while its number cannot belong to another
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		// a failing command is no error of ours: its status is read below
		_ = cmd.Wait()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, startError(args[0], err)
	}
	return c, nil
}

// startError strips what exec wraps around the reason.
func startError(name string, err error) error {
	var notFound *exec.Error
	var path *fs.PathError
	switch {
	case errors.As(err, &notFound):
		err = notFound.Err
	case errors.As(err, &path):
		err = path.Err
	}
	return command.UsageErrorf("cannot start %s: %v", name, err)
}

// waitEnd returns once the process has ended. It leaves the process as a zombie, so that its number and its group's
// number stay taken.
func waitEnd(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		continue
	}
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// stop ends the command and its process group, and returns its exit status in words.
func (c *child) stop() string {
	if !c.ended() {
		c.killed = true
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM) // ESRCH if it ends at this moment
		select {
		case <-c.done:
		case <-time.After(termGrace):
			_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
		}
	}
	<-c.done
	if c.killed {
		return "still running; ended by perfdoctor (" + c.cmd.ProcessState.String() + ")"
	}
	return c.cmd.ProcessState.String()
}

func (d *diagnosis) recordCommand(ctx context.Context, list []*check.Check) (*recording.Recording, error) {
	c, err := startChild(d.command, os.Stderr)
	if err != nil {
		return nil, err
	}
	status := sync.OnceValue(c.stop)
	defer status()
	if err := d.wait(ctx, c); err != nil {
		return nil, err
	}
	h := host.Local()
	t, described, err := d.resolve(ctx, h, host.Selector{PID: c.cmd.Process.Pid})
	if err != nil {
		if c.ended() {
			return nil, d.endedTooSoon(c)
		}
		return nil, fmt.Errorf("%s: %w", d.command[0], err)
	}
	described.Kind = "command"
	rec, err := d.collect(ctx, h, t, described, list, func() string {
		if c.ended() {
			return fmt.Sprintf("%s ended (%s)", t.Comm, c.cmd.ProcessState)
		}
		return ""
	})
	if err != nil {
		return nil, err
	}
	m := rec.Meta
	m.Target.ExitStatus = status()
	return rec.WithMeta(m), nil
}

// wait leaves the command alone during the delay.
func (d *diagnosis) wait(ctx context.Context, c *child) error {
	select {
	case <-time.After(d.delay):
		return nil
	case <-c.done:
		return d.endedTooSoon(c)
	case <-ctx.Done():
		return errInterrupted
	}
}

func (d *diagnosis) endedTooSoon(c *child) error {
	return fmt.Errorf("%s ended (%s) within the --delay of %v: nothing was observed; give a shorter --delay, or a "+
		"command that runs longer",
		d.command[0], c.cmd.ProcessState, d.delay)
}
