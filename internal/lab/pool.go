package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/lab/load"
)

// PoolOptions describe threads like those of a native program: each blocks in a system call while it waits for a
// backend or for a shared lock. A unit is a turn. Its latency counts from when it was due.
type PoolOptions struct {
	Threads int // 0: 1
	// ip:port of a server of [ServeOptions] that each thread asks over a connection of its own; "": none
	To    string
	Hold  time.Duration // sleep while holding the lock, as for a file or another program; 0: no lock is taken
	Every time.Duration // from the start of a thread's turn to the start of its next; 0: at once
}

func newPool(o PoolOptions, rec *recorder) (func(context.Context), error) {
	if o.Threads < 0 || o.Threads > maxThreads {
		return nil, fmt.Errorf("pool: %d threads: want 1 to %d", o.Threads, maxThreads)
	}
	o.Threads = max(o.Threads, 1)
	fds := make([]int, o.Threads)
	for i := range fds {
		fds[i] = -1
		if o.To == "" {
			continue
		}
		var err error
		if fds[i], err = dialBlocking(o.To); err != nil {
			return nil, fmt.Errorf("pool: %w", err)
		}
		rec.conn()
	}
	return func(ctx context.Context) {
		rec.ready("")
		lock := &futexLock{}
		stop := context.AfterFunc(ctx, func() {
			for _, fd := range fds {
				_ = unix.Shutdown(fd, unix.SHUT_RDWR) // ends a read that nobody answers
			}
		})
		defer stop()
		var threads sync.WaitGroup
		for i, fd := range fds {
			start := time.Now().Add(o.Every * time.Duration(i) / time.Duration(o.Threads)) // not all at the same moment
			threads.Go(func() { poolThread(ctx, o, fmt.Sprintf("worker-%d", i), fd, lock, start, rec) })
		}
		threads.Wait()
	}, nil
}

func dialBlocking(to string) (int, error) {
	addr, err := netip.ParseAddrPort(to)
	if err != nil {
		return -1, err
	}
	sa, family := load.Sockaddr(addr)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, sa); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("connect to %s: %w", to, err)
	}
	return fd, nil
}

func poolThread(ctx context.Context, o PoolOptions, name string, fd int, lock *futexLock, due time.Time,
	rec *recorder,
) {
	runtime.LockOSThread() // the thread ends with the goroutine
	if err := nameThread(name); err != nil {
		rec.fail(err)
	}
	for sleepUntil(due); ctx.Err() == nil; sleepUntil(due) {
		if fd >= 0 {
			if err := askBackend(fd); err != nil {
				if ctx.Err() == nil {
					rec.fail(err)
				}
				return
			}
		}
		if o.Hold > 0 {
			useShared(lock, o.Hold)
		}
		rec.unit(due)
		due = due.Add(o.Every)
		if o.Every == 0 {
			due = time.Now()
		}
	}
}

// nameThread sets the calling thread's name, as /proc/PID/task/TID/comm shows it.
func nameThread(name string) error {
	return os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", unix.Gettid()), []byte(name), 0)
}

// sleepUntil is where a thread without work sleeps.
func sleepUntil(due time.Time) {
	for d := time.Until(due); d > 0; d = time.Until(due) {
		napBlocking(d)
	}
}

// napBlocking sleeps in a system call. A signal may cut it short.
func napBlocking(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}

// askBackend sends a request and waits for its answer.
//
//go:noinline
func askBackend(fd int) error {
	var buf [requestBytes]byte
	if _, err := unix.Write(fd, buf[:]); err != nil {
		return err
	}
	for got := 0; got < len(buf); {
		n, err := unix.Read(fd, buf[got:])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n == 0:
			return unix.ECONNRESET
		default:
			got += n
		}
	}
	return nil
}

// useShared does something slow under the lock.
//
//go:noinline
func useShared(lock *futexLock, hold time.Duration) {
	lock.lock()
	defer lock.unlock()
	napBlocking(hold)
}

// A futexLock works like the locks of glibc and Rust, and much like musl's (Drepper, Futexes Are Tricky): 0 is free,
// 1 is held, 2 is held with waiters. Go's own mutexes park goroutines, so no thread waits for them.
type futexLock struct{ state atomic.Int32 }

func (f *futexLock) lock() {
	if f.state.CompareAndSwap(0, 1) {
		return
	}
	for f.state.Swap(2) != 0 {
		f.futex(futexWait, 2)
	}
}

func (f *futexLock) unlock() {
	if f.state.Swap(0) == 2 {
		f.futex(futexWake, 1)
	}
}

// Operations of futex(2), for the threads of one process (include/uapi/linux/futex.h).
const (
	futexWait = 0 | futexPrivate
	futexWake = 1 | futexPrivate

	futexPrivate = 128
)

// futex may return early, because the value has changed or a signal arrived. The caller must check again.
func (f *futexLock) futex(operation, value uintptr) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&f.state)), operation, value, 0, 0, 0)
}
