package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
)

// Run makes the plan's load and returns its result. Failed requests are in the Result; an error means that the plan
// cannot be run. When ctx ends, the load is cut short. That is not an error.
func Run(ctx context.Context, p Plan, d Dialer) (Result, error) {
	r, err := New(p, d)
	if err != nil {
		return Result{}, err
	}
	return r.Run(ctx)
}

// Runner is a load that can be inspected while it runs. It runs once.
type Runner struct {
	plan     Plan
	dialer   Dialer
	targets  []netip.AddrPort
	source   netip.Addr  // invalid: not bound
	tls      *tls.Config // nil: plain
	text     []byte      // a request
	lastText []byte      // HTTP: a request that asks the server to close
	rec      *recorder
	taken    atomic.Uint64 // requests begun in a closed loop
	turn     atomic.Uint64 // connections begun, for several targets

	mu   sync.Mutex
	kept []*os.File // connections that stay open until the load ends
}

// New checks the plan and prepares its load. The clock of the result starts here.
func New(p Plan, d Dialer) (*Runner, error) {
	p, err := p.normal()
	if err != nil {
		return nil, err
	}
	r := &Runner{plan: p, dialer: d}
	for _, text := range append([]string{p.Target}, p.Others...) {
		target, err := netip.ParseAddrPort(text)
		if err != nil {
			return nil, fmt.Errorf("load plan: target: %w", err)
		}
		r.targets = append(r.targets, target)
	}
	if p.BindIP != "" {
		if r.source, err = netip.ParseAddr(p.BindIP); err != nil {
			return nil, fmt.Errorf("load plan: bind_ip: %w", err)
		}
	}
	if p.TLS != NoTLS {
		r.tls = tlsClient(hostOnly(p.Host), p.TLS)
	}
	r.text, r.lastText = httpRequest(p, false), httpRequest(p, true)
	if p.Protocol == TCP {
		r.text = make([]byte, p.RequestBytes)
	}
	r.rec, err = newRecorder()
	return r, err
}

func hostOnly(hostPort string) string {
	if host, _, err := net.SplitHostPort(hostPort); err == nil {
		return host
	}
	return hostPort
}

// Snapshot returns the result until now. It can be called while the load runs, and afterwards.
func (r *Runner) Snapshot() (Result, error) { return r.rec.snapshot() }

// Run makes the load, see [Run].
func (r *Runner) Run(ctx context.Context) (Result, error) {
	grace := min(r.plan.Timeout, closedGrace)
	if r.plan.Open() {
		grace = r.plan.Timeout
	}
	begin, cancelBegin := context.WithTimeout(ctx, r.plan.Duration)
	defer cancelBegin()
	end, cancelEnd := context.WithTimeout(ctx, min(r.plan.Duration+grace, MaxDuration))
	defer cancelEnd()
	live := r.startLive(end)
	var err error
	if r.plan.Open() {
		err = r.openLoop(end)
	} else {
		r.closedLoop(begin, end)
	}
	r.keep(begin)
	cancelEnd()
	live.Wait()
	result, snapErr := r.rec.snapshot()
	return result, errors.Join(err, snapErr)
}

// keep waits for the end of the load's duration if connections stay open until then, and closes them.
func (r *Runner) keep(begin context.Context) {
	if len(r.kept) > 0 {
		<-begin.Done()
	}
	for _, file := range r.kept {
		_ = file.Close() // the peer may have reset it long ago
	}
}

// closedLoop has each worker begin requests until begin ends or the count is used up.
func (r *Runner) closedLoop(begin, end context.Context) {
	var workers sync.WaitGroup
	for range r.plan.Connections {
		workers.Go(func() { r.closedWorker(begin, end) })
	}
	workers.Wait()
}

// errorPause keeps a worker whose requests fail at once from using a whole CPU.
const errorPause = time.Millisecond

func (r *Runner) closedWorker(begin, end context.Context) {
	w := r.newWorker(end)
	defer context.AfterFunc(end, w.cut)()
	for begin.Err() == nil {
		n := r.take()
		if n == 0 {
			break
		}
		for ; n > 0 && begin.Err() == nil; n-- {
			if !w.request(time.Now()) {
				_ = clock.Sleep(begin, errorPause)
			}
		}
	}
	w.finishKept()
}

// finishKept ends a kept connection. The client closes it, because the load ends.
func (w *worker) finishKept() {
	w.last = false
	if w.run.plan.Close == ServerCloses {
		w.drop()
		return
	}
	w.finish()
}

// take returns how many of the remaining requests a worker begins next: those of one connection, so that a count of
// whole connections never splits one.
func (r *Runner) take() uint64 {
	n := uint64(max(r.plan.RequestsPerConn, 1))
	if r.plan.Count == 0 {
		return n
	}
	before := r.taken.Add(n) - n
	return min(n, r.plan.Count-min(r.plan.Count, before))
}

// openLoop hands the requests that are due to the workers in turn. When all workers are busy, a request waits while
// its clock runs.
func (r *Runner) openLoop(end context.Context) error {
	clock, err := newAlarm(end)
	if err != nil {
		return err
	}
	defer clock.close()
	due := make(chan time.Time)
	var workers sync.WaitGroup
	for range r.plan.Connections {
		workers.Go(func() { r.openWorker(end, due) })
	}
	begun, err := r.pace(end, clock, due)
	close(due)
	workers.Wait()
	r.rec.unfinished(r.dueAfter(begun, time.Since(r.rec.start)))
	return err
}

// pace sends the time of each request when it is due, and returns how many were taken.
func (r *Runner) pace(end context.Context, clock *alarm, due chan<- time.Time) (uint64, error) {
	plan := schedule{steps: r.plan.Steps}
	for n := uint64(0); ; n++ {
		offset, ok := plan.due(n)
		if !ok || r.plan.Count > 0 && n >= r.plan.Count {
			return n, nil
		}
		at := r.rec.start.Add(offset)
		if err := clock.wait(at); err != nil || end.Err() != nil {
			return n, err
		}
		select {
		case due <- at:
		case <-end.Done():
			return n, nil
		}
	}
}

// dueAfter counts the requests due within elapsed, starting with number n.
func (r *Runner) dueAfter(n uint64, elapsed time.Duration) uint64 {
	plan := schedule{steps: r.plan.Steps}
	missed := uint64(0)
	for ; r.plan.Count == 0 || n < r.plan.Count; n++ {
		offset, ok := plan.due(n)
		if !ok || offset > elapsed {
			break
		}
		missed++
	}
	return missed
}

func (r *Runner) openWorker(end context.Context, due <-chan time.Time) {
	w := r.newWorker(end)
	defer context.AfterFunc(end, w.cut)()
	for at := range due {
		w.request(at)
	}
	w.finishKept()
}

// alarm waits until a time. In an idle process, the runtime's timers are up to a millisecond late, because epoll_wait
// counts in milliseconds (runtime/netpoll_epoll.go). That would be most of the latency measured on loopback. A
// timerfd wakes epoll_wait itself.
type alarm struct {
	file *os.File
	ctx  context.Context
	stop func() bool
}

func newAlarm(ctx context.Context) (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	a := &alarm{file: os.NewFile(uintptr(fd), "timerfd"), ctx: ctx}
	a.stop = context.AfterFunc(ctx, func() { _ = a.file.SetDeadline(past()) })
	return a, nil
}

func (a *alarm) close() {
	a.stop()
	_ = a.file.Close()
}

// wait returns at the given time, or when the context ends.
func (a *alarm) wait(at time.Time) error {
	left := time.Until(at)
	if left <= 0 {
		return nil
	}
	raw, err := a.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	var armed error
	err = raw.Control(func(fd uintptr) {
		armed = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(left))}, nil)
	})
	if err := errors.Join(err, armed); err != nil {
		return fmt.Errorf("timerfd_settime: %w", err)
	}
	var expirations [8]byte
	if _, err := a.file.Read(expirations[:]); err != nil && a.ctx.Err() == nil {
		return fmt.Errorf("read timerfd: %w", err)
	}
	return nil
}

// startLive prints each second's line once it is over, until ctx ends.
func (r *Runner) startLive(ctx context.Context) *sync.WaitGroup {
	var printing sync.WaitGroup
	if r.plan.Live == nil {
		return &printing
	}
	printing.Go(func() {
		shown := 0
		for more := true; more; {
			more = clock.Sleep(ctx, time.Until(r.rec.start.Add(time.Duration(shown+1)*time.Second))) == nil
			for _, second := range r.rec.seconds(shown) {
				_, _ = fmt.Fprintln(r.plan.Live, second) // a reader that went away does not end the load
				shown++
			}
		}
	})
	return &printing
}
