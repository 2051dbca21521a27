package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// NetNS returns the number of a process's network namespace, 0 if it may not be read.
func (h *Host) NetNS(pid int) uint64 { return h.namespace(fmt.Sprint(pid), "net").Inode }

// InNetNS runs fn on a thread that is in the network namespace of the process. Sockets that fn opens stay in that
// namespace. fn runs on another goroutine than the caller's, and must not start goroutines that rely on the
// namespace. If the namespace is perfdoctor's own, there is no switch, which needs no right. A switch needs
// CAP_SYS_ADMIN (kernel/nsproxy.c), and CAP_SYS_PTRACE for a process of another user.
//
// Files below /proc/net follow the calling process, not the thread: read /proc/PID/net instead.
func (h *Host) InNetNS(pid int, fn func() error) error {
	ns := h.namespace(fmt.Sprint(pid), "net")
	if ns.Same {
		return fn()
	}
	file := h.pidPath(pid, "ns/net")
	target, err := os.Open(file)
	if errors.Is(err, fs.ErrPermission) {
		return enterDenied(pid, err)
	}
	if err != nil {
		return h.processError(pid, err)
	}
	defer target.Close()
	done := make(chan outcome, 1)
	go runOffMain(int(target.Fd()), fn, done)
	out := <-done
	if out.panicked != nil {
		panic(out.panicked)
	}
	if errors.Is(out.err, errSetns) && errors.Is(out.err, fs.ErrPermission) {
		return enterDenied(pid, out.err)
	}
	if errors.Is(out.err, errSetns) {
		return fmt.Errorf("enter the network namespace of process %d: %w", pid, out.err)
	}
	return out.err
}

func enterDenied(pid int, err error) error {
	return kindErrorf(ErrPermission, "enter the network namespace of process %d: %v; "+
		"run as root, or with CAP_SYS_ADMIN and, for another user's process, CAP_SYS_PTRACE", pid, err)
}

type outcome struct {
	err      error
	panicked any
}

var (
	errSetns  = errors.New("setns")
	errGoexit = errors.New("the function ended its goroutine")
)

// runOffMain keeps the switch off the main thread: /proc/self/net and so /proc/net are those of the main thread, and
// other goroutines may be reading them.
func runOffMain(ns int, fn func() error, done chan<- outcome) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		runSwitched(ns, fn, done)
		return
	}
	inner := make(chan outcome, 1)
	go func() {
		// The outer goroutine holds the main thread, so this one runs on another.
		runtime.LockOSThread()
		runSwitched(ns, fn, inner)
	}()
	out := <-inner
	runtime.UnlockOSThread()
	done <- out
}

// runSwitched runs on a locked thread. It unlocks the thread only once the thread is known to be back where it came
// from; otherwise the goroutine ends with the lock held, and Go's runtime destroys the thread.
func runSwitched(ns int, fn func() error, done chan<- outcome) {
	out := outcome{err: errGoexit}
	defer func() {
		if p := recover(); p != nil {
			out.panicked = p
		}
		done <- out
	}()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		out.err = err
		return
	}
	defer own.Close()
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		out.err = fmt.Errorf("%w: %w", errSetns, err)
		return
	}
	defer func() {
		if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	out.err = fn()
}
