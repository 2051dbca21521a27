package ebpf

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// onThread runs a function on a thread of its own, which ends with it, and returns the thread's id.
func onThread(fn func()) (tid int, done <-chan struct{}) {
	ids, end := make(chan int), make(chan struct{})
	go func() {
		defer close(end)
		runtime.LockOSThread() // and is not unlocked
		ids <- unix.Gettid()
		fn()
	}()
	return <-ids, end
}

// waitsOf adds up a thread's waits.
func waitsOf(rec *recording.Recording, tid int, labels ...string) (n, seconds float64) {
	labels = append(labels, "tid", strconv.Itoa(tid))
	for _, s := range rec.Gauge(metric.ThreadWaits, labels...) {
		n += s.Last()
	}
	for _, s := range rec.Gauge(metric.ThreadWaitTime, labels...) {
		seconds += s.Last()
	}
	return n, seconds
}

// wantWaits checks a number of waits. If a thread loses its CPU before it sleeps, what it is about to wait for may be
// there already: as often as the kernel says that it was preempted.
func wantWaits(t *testing.T, got float64, n int, preempted uint64, what string) {
	t.Helper()
	t.Logf("%s: %v of %d, preempted %d times", what, got, n, preempted)
	if got > float64(n) || got < float64(n)-float64(preempted) {
		t.Errorf("%s: %v waits, want %d, and %d less at most", what, got, n, preempted)
	}
}

// socketPair returns a TCP connection of blocking sockets over loopback: the client's end, the server's end, and its
// destination.
func socketPair(t *testing.T) (client, server int, to string) {
	t.Helper()
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.Listen(listener, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	addr, err := unix.Getsockname(listener)
	if err != nil {
		t.Fatal(err)
	}
	if client, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
		err = unix.Connect(client, addr)
	}
	if err == nil {
		server, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, fd := range []int{client, server, listener} {
			if err := unix.Close(fd); err != nil {
				t.Errorf("close %d: %v", fd, err)
			}
		}
	})
	return client, server, fmt.Sprintf("127.0.0.1:%d", addr.(*unix.SockaddrInet4).Port)
}

// TestWaitsForAnswer: a thread asks a prime number of times, by read and by poll, and the answers are late. The waits
// are for the destination it asked. Those of the other side are for a request of a client, because somebody listens on
// its port.
func TestWaitsForAnswer(t *testing.T) {
	const n, late = 101, 5 * time.Millisecond // far from 640 waits a second, above which they are sampled
	client, server, to := socketPair(t)
	o := openNamed(t, schedulerName, targetOf(t, os.Getpid()))
	var preempted uint64
	first := 0
	one := []byte{1}
	ready := make(chan struct{})
	second, answered := onThread(func() {
		for range 2 * n {
			if _, err := unix.Read(server, one); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(late)
			if _, err := unix.Write(server, one); err != nil {
				t.Error(err)
				return
			}
		}
	})
	first, asked := onThread(func() {
		<-ready
		before := preemptions(t, first)
		ask(t, client, n)
		preempted = preemptions(t, first) - before
	})
	close(ready)
	<-asked
	<-answered
	rec := o.done()
	reads, seconds := waitsOf(rec, first, "syscall", "read", "for", "answer", "on", to)
	wantWaits(t, reads, n, preempted, "read")
	polls, more := waitsOf(rec, first, "syscall", "ppoll", "for", "answer", "on", to)
	wantWaits(t, polls, n, preempted, "poll")
	if got := time.Duration((seconds + more) * 1e9); got < (2*n-20)*late-time.Duration(preempted)*late ||
		got > 8*n*late {
		t.Errorf("waited %v, want %v or somewhat more", got, 2*n*late)
	}
	if got, _ := waitsOf(rec, first, "for", "request"); got != 0 {
		t.Errorf("%v waits of the client are for a request", got)
	}
	requests, _ := waitsOf(rec, second, "syscall", "read", "for", "request", "on", to[len("127.0.0.1"):])
	if requests == 0 || requests > 2*n {
		t.Errorf("%v waits for a request, want some, and %d at most", requests, 2*n)
	}
}

// ask asks n times with a blocking read, and n times with poll before it.
func ask(t *testing.T, fd, n int) {
	one := []byte{1}
	for i := range 2 * n {
		// until the other end waits for it: on one CPU an answer makes this end run before the other can
		time.Sleep(time.Millisecond)
		if _, err := unix.Write(fd, one); err != nil {
			t.Error(err)
			return
		}
		for i >= n {
			ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if ready == 1 || err != nil && err != unix.EINTR {
				break
			}
		}
		for {
			_, err := unix.Read(fd, one)
			if err == nil {
				break
			}
			if err != unix.EINTR {
				t.Error(err)
				return
			}
		}
	}
}

// A drepper is the lock of "Futexes Are Tricky": 0 free, 1 held, 2 held and waited for.
type drepper struct{ state, waits, woken atomic.Int32 }

func (d *drepper) lock() {
	for v := int32(1); !d.state.CompareAndSwap(0, v); v = 2 {
		if d.state.Load() == 2 || d.state.CompareAndSwap(1, 2) {
			switch futex(&d.state, 0, 2) {
			case 0:
				d.woken.Add(1)
				d.waits.Add(1)
			case unix.EINTR: // Go's runtime interrupts threads
				d.waits.Add(1)
			}
		}
	}
}

func (d *drepper) unlock() {
	if d.state.Swap(0) == 2 {
		_ = futex(&d.state, 1, 1)
	}
}

func futex(at *atomic.Int32, operation, value int) unix.Errno {
	const private = 128
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(at)), uintptr(operation|private),
		uintptr(value), 0, 0, 0)
	return errno
}

// TestHandOffs: a thread takes a lock a prime number of times from another thread that holds it. So many waits are for
// that lock, and the other thread's unlock ended so many.
func TestHandOffs(t *testing.T) {
	const n, hold = 97, 10 * time.Millisecond // far from 640 waits a second, above which they are sampled
	o := openNamed(t, schedulerName, targetOf(t, os.Getpid()))
	d := &drepper{}
	waits, turns := make(chan struct{}), make(chan struct{})
	var preempted uint64
	waiter := 0
	waiter, done := onThread(func() {
		<-turns
		before := preemptions(t, waiter)
		waits <- struct{}{}
		for range n {
			<-turns
			waits <- struct{}{}
			d.lock()
			d.unlock()
			waits <- struct{}{}
		}
		preempted = preemptions(t, waiter) - before
	})
	holder, held := onThread(func() {
		turns <- struct{}{}
		<-waits
		for range n {
			d.lock()
			turns <- struct{}{}
			<-waits
			for d.state.Load() != 2 { // until the other waits, or is about to
				time.Sleep(100 * time.Microsecond)
			}
			time.Sleep(hold)
			letGo(d)
			<-waits
		}
	})
	<-done
	<-held
	rec := o.done()
	on := fmt.Sprintf("%p", &d.state)
	got, seconds := waitsOf(rec, waiter, "syscall", "futex", "for", "mutex", "on", on)
	wantWaits(t, got, int(d.waits.Load()), preempted, "mutex")
	if seconds < 0.9*n*hold.Seconds() {
		t.Errorf("waited %v s for the lock, want %v or more", seconds, n*hold.Seconds())
	}
	wakes := 0.0
	for _, s := range rec.Gauge(metric.FutexWakes, "on", on, "waker", strconv.Itoa(holder)) {
		if !strings.Contains(s.Label("at"), "letGo") {
			t.Errorf("the holder woke at %q, want letGo in it", s.Label("at"))
		}
		wakes += s.Last()
	}
	wantWaits(t, wakes, int(d.woken.Load()), preempted, "wakes by the holder")
	if woken := d.woken.Load(); woken < n-int32(preempted) {
		t.Errorf("woken %d times of %d", woken, n)
	}
	p, _ := rec.Profile(stacks.OffCPU)
	slept := p.Filter(func(s stacks.Sample) bool { return s.Class == "mutex "+on }).
		Containing(p.Set(func(f stacks.Frame) bool { return strings.HasSuffix(f.Name, ".(*drepper).lock") }))
	if slept.Total().Count != int64(got) {
		t.Errorf("%d waits in the profile, want %v", slept.Total().Count, got)
	}
}

//go:noinline
func letGo(d *drepper) { d.unlock() }

// TestAsleepThroughout: a thread that began to wait before the programs were loaded, and still waits, is not forgotten.
func TestAsleepThroughout(t *testing.T) {
	client, _, to := socketPair(t)
	if _, err := unix.Write(client, []byte{1}); err != nil {
		t.Fatal(err)
	}
	tid, done := onThread(func() { _, _ = unix.Read(client, []byte{1}) })
	time.Sleep(50 * time.Millisecond)
	o := openNamed(t, schedulerName, targetOf(t, os.Getpid()))
	time.Sleep(300 * time.Millisecond)
	rec := o.done()
	if err := unix.Shutdown(client, unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	<-done
	n, seconds := waitsOf(rec, tid, "syscall", "read", "for", "answer", "on", to)
	if n != 1 || seconds < 0.3 || seconds > 3 {
		t.Errorf("%v waits of %v s, want one of the 0.3 s of the window or a little more", n, seconds)
	}
}

// TestTimesOfWaits: short sleeps, then a long one. Each has its time in the buckets in which it was, and no more than
// these last.
func TestTimesOfWaits(t *testing.T) {
	env := targetOf(t, os.Getpid())
	env.Duration = 4 * time.Second
	o := openNamed(t, schedulerName, env)
	const long = 2300 * time.Millisecond // two ends and a bucket between them at least
	tid, done := onThread(func() {
		for range 5 {
			napFor(20 * time.Millisecond)
		}
		sleepLong(long)
	})
	<-done
	rec := o.done()
	p, ok := rec.Profile(stacks.OffCPU)
	if !ok || p.Bucket != time.Second {
		t.Fatalf("profile %v, buckets of %v", ok, p.Bucket)
	}
	of := func(function string) map[time.Duration]time.Duration {
		out := map[time.Duration]time.Duration{}
		calls := p.Set(func(f stacks.Frame) bool {
			return f.Kind == stacks.Native &&
				strings.HasSuffix(f.Name, function)
		})
		for _, s := range p.Filter(func(s stacks.Sample) bool { return p.ThreadOf(s).ID == tid }).Containing(calls).
			Samples {
			out[s.At] += time.Duration(s.Value)
		}
		return out
	}
	naps, sleep := of(".napFor"), of(".sleepLong")
	t.Logf("naps %v, the long sleep %v", naps, sleep)
	first, last, sum := time.Hour, time.Duration(0), time.Duration(0)
	for at, took := range sleep {
		first, last, sum = min(first, at), max(last, at), sum+took
		if took > p.Bucket {
			t.Errorf("%v in the bucket from %v on", took, at)
		}
	}
	if sum < long-long/20 || len(sleep) < 3 || time.Duration(len(sleep)-1)*p.Bucket != last-first {
		t.Errorf("the sleep of %v is %v", long, sleep)
	}
	for at := first + p.Bucket; at < last; at += p.Bucket {
		if sleep[at] < p.Bucket-p.Bucket/20 { // a signal may interrupt it
			t.Errorf("%v from %v on, within the sleep", sleep[at], at)
		}
	}
	for at := range naps {
		if at > first {
			t.Errorf("a nap from %v on, after the long sleep began in %v", at, first)
		}
	}
}

//go:noinline
func sleepLong(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	for unix.Nanosleep(&ts, &ts) == unix.EINTR {
	}
}

// TestSpread: the parts of waits add up to the whole, in the buckets in which they were. Too many buckets are merged.
func TestSpread(t *testing.T) {
	const second = uint64(time.Second)
	place := func(tid, first, last uint32) bpf.SchedulerPlace {
		return bpf.SchedulerPlace{Tid: tid, First: first, Last: last}
	}
	sleeps := map[bpf.SchedulerPlace]bpf.SchedulerSlept{
		place(1, 2, 2): {Count: 7, Ns: 5, FirstNs: 5},
		place(1, 0, 3): {Count: 2, Ns: 5 * second, FirstNs: second / 2},
		place(2, 4, 5): {Count: 1, Ns: 3, FirstNs: 1},
	}
	got, bucket := spread(sleeps, second)
	for _, parts := range got {
		slices.SortFunc(parts, func(x, y part) int {
			return cmp.Or(cmp.Compare(x.bucket, y.bucket),
				cmp.Compare(x.ns, y.ns))
		})
	}
	want := map[bpf.SchedulerPlace][]part{
		place(1, 0, 0): {{0, 0, second / 2}, {1, 0, 2 * second}, {2, 7, 5}, {2, 0, 2 * second}, {3, 2, second / 2}},
		place(2, 0, 0): {{4, 0, 1}, {5, 1, 2}},
	}
	if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(part{})); diff != "" || bucket != time.Second {
		t.Errorf("buckets of %v, -want +got:\n%s", bucket, diff)
	}
	many := map[bpf.SchedulerPlace]bpf.SchedulerSlept{}
	for tid := range uint32(maxParts) {
		many[place(tid, 0, 3)] = bpf.SchedulerSlept{Count: 1, Ns: 3 * second, FirstNs: second / 2}
	}
	got, bucket = spread(many, second)
	if bucket != 4*time.Second || got[place(5, 0, 0)][3].bucket != 0 {
		t.Errorf("%d waits of 4 buckets are in buckets of %v, such as %v", maxParts, bucket, got[place(5, 0, 0)])
	}
}

// TestWaitBucket: times are as fine as the table has room for.
func TestWaitBucket(t *testing.T) {
	for _, tc := range []struct {
		threads      int
		window, want time.Duration
	}{
		{1, 10 * time.Second, time.Second},
		{200, 10 * time.Second, time.Second},
		{200, 5 * time.Minute, 8 * time.Second},
		{2000, 10 * time.Second, 3 * time.Second},
		{5000, 10 * time.Second, 0},
	} {
		if got := waitBucket(tc.threads, tc.window); got != tc.want {
			t.Errorf("%d threads for %v: buckets of %v, want %v", tc.threads, tc.window, got, tc.want)
		}
	}
}
