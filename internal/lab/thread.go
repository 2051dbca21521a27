package lab

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

// onOwnThread runs fn on a goroutine locked to a thread that ends with it, so that other goroutines never run on a
// thread whose namespace fn changed. It avoids the main thread: that thread cannot end (the runtime parks it), and
// /proc/self/net and /proc/<pid>/ns would show its namespace as that of the process.
func onOwnThread(fn func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			fn()
			return // still locked: the thread ends here
		}
		started := make(chan struct{})
		onOwnThread(func() {
			close(started)
			fn()
		})
		<-started // the main thread stays taken until fn has another thread
		runtime.UnlockOSThread()
	}()
}

// keeper is one thread inside a namespace that runs functions in turn. It starts the children, because
// PR_SET_PDEATHSIG fires when the parent *thread* ends (kernel/exit.c, reparent_leader), not the process.
type keeper struct {
	calls chan func()
	ended chan struct{}
}

// startKeeper starts the thread and runs enter on it first.
func startKeeper(enter func() error) (*keeper, error) {
	k := &keeper{calls: make(chan func()), ended: make(chan struct{})}
	entered := make(chan error, 1)
	onOwnThread(func() {
		defer close(k.ended)
		err := enter()
		entered <- err
		if err != nil {
			return
		}
		for call := range k.calls {
			call()
		}
	})
	return k, <-entered
}

var errHostClosed = errors.New("the host is closed")

// do runs fn on the thread and returns its error. It must not be called by fn.
func (k *keeper) do(fn func() error) error {
	result := make(chan error, 1)
	select {
	case k.calls <- func() { result <- fn() }:
		return <-result
	case <-k.ended:
		return errHostClosed
	}
}

// stop ends the thread after the running call.
func (k *keeper) stop() {
	stopped := make(chan struct{})
	select {
	case k.calls <- func() { close(stopped); runtime.Goexit() }:
		<-stopped
		<-k.ended
	case <-k.ended:
	}
}
