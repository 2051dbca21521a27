package jvm

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
)

// credentials are the user and groups that a thread acts as.
type credentials struct {
	uid, gid int
	groups   []int
}

// own reports whether perfdoctor is that user already.
func (c credentials) own() bool { return os.Geteuid() == c.uid && os.Getegid() == c.gid }

// do runs f as that user: f creates files as the target would, it reaches only what the target could reach, and the
// JVM sees its own user at the other end of its socket (SO_PEERCRED).
//
// do changes the ids of one thread, by raw system calls: those of package syscall change every thread of the process.
// The thread ends with f: a goroutine that returns while it is locked to its thread takes the thread along, so nobody
// else can use the changed ids. The kernel also makes the process undumpable (commit_creds in kernel/cred.c), which
// keeps the target's user from tracing the thread.
func (c credentials) do(f func() error) error {
	if c.own() {
		return f()
	}
	done := make(chan error, 1)
	go onSpareThread(func() {
		if err := c.assume(); err != nil {
			done <- err
			return
		}
		done <- firewall.Run("files in the target", f)
	})
	return <-done
}

// onSpareThread runs f on a thread that ends with it. It never uses the main thread, which cannot end and whose ids
// /proc/PID shows: if the scheduler picks that one, the goroutine holds it and tries again.
func onSpareThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return // locked
	}
	again := make(chan struct{})
	go func() {
		defer close(again)
		onSpareThread(f)
	}()
	<-again
	runtime.UnlockOSThread()
}

// assume changes the ids of the calling thread. Going from 0 to another user id also drops the thread's capabilities
// (capabilities(7)).
func (c credentials) assume() error {
	groups := make([]uint32, len(c.groups)+1) // one more, so that there is a first
	for i, g := range c.groups {
		groups[i] = uint32(g)
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(c.groups)), uintptr(unsafe.Pointer(&groups[0])), 0)
	if errno != 0 {
		return c.denied("setgroups", errno)
	}
	gid, uid := uintptr(c.gid), uintptr(c.uid)
	if _, _, errno = unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return c.denied("setresgid", errno)
	}
	if _, _, errno = unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return c.denied("setresuid", errno)
	}
	return nil
}

// errSwitch says that perfdoctor may not act as the target's user.
var errSwitch = errors.New("cannot act as the target's user")

func (c credentials) denied(call string, errno unix.Errno) error {
	return fmt.Errorf("%w: %s to uid %d, gid %d: %w", errSwitch, call, c.uid, c.gid, errno)
}
