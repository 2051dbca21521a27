package collect

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// A worker runs one collector. mu guards its fields; busy is closed when the sample in flight has ended, and nil
// without one.
type worker struct {
	c Collector
	b *recording.Builder

	budget  *Budget // does not include opening it
	mu      sync.Mutex
	opened  chan struct{} // closed when Open has returned
	src     Source
	err     error
	over    bool // the run has ended: what opens or returns from now on is closed at once
	started bool // a sample was begun
	busy    chan struct{}
	lateErr error // from the first late sample
	next    time.Time
	cpu     time.Duration // of its samples since the budget's last step
	passes  atomic.Int64  // likewise, of its background passes; a holder of the lock may wait for one
	given   error         // why it was given up
	status  recording.CollectorStatus
	missing []recording.Missing

	continues bool          // from one window to the next (Windows)
	reopenAt  time.Time     // when to close and reopen it
	sparedTo  time.Time     // until when no sample is taken at the ends of windows either
	owes      time.Duration // CPU time of samples beyond the collector's share, at owesAt
	owesAt    time.Time
}

func (w *worker) open(ctx context.Context, env Env) {
	runtime.LockOSThread() // so that its CPU time is the cost of opening the collector
	cpu := ThreadCPU()
	env.worker = w
	src, err := Open(ctx, w.c, env)
	w.budget.forgive(ThreadCPU() - cpu)
	runtime.UnlockOSThread()
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.opened)
	if (w.over || w.given != nil) && src != nil {
		_ = src.Close() // nobody is left to be told
		return
	}
	w.src, w.err = src, err
}

// Open opens a collector as [Run] does, if all it requires is available. An error that an old kernel explains is an
// [UnavailableError] that says so.
func Open(ctx context.Context, c Collector, env Env) (Source, error) {
	src, err := openChecked(ctx, c, env)
	return src, c.Since.Explain(env.Host, err)
}

func openChecked(ctx context.Context, c Collector, env Env) (Source, error) {
	for _, req := range c.Requires {
		switch p := env.Host.Probe(req); p.Status {
		case host.Unsupported:
			return nil, Unavailable(recording.StatusUnsupported, p.Remedy, "%s", p.Reason)
		case host.Denied:
			return nil, Unavailable(recording.StatusDenied, p.Remedy, "%s", p.Reason)
		}
	}
	return firewall.Parse("collector "+c.Name, func() (Source, error) { return c.Open(ctx, env) })
}

// due reports whether the collector's pace asks for a sample now. The first sample is due at any moment: the
// collector may have opened late.
func (w *worker) due(m moment) bool {
	switch {
	case w.c.Pace == AtEnd:
		return m == last
	case !w.started:
		return true
	case w.spared():
		return false
	case m == between:
		return w.c.Pace == EveryTick && !time.Now().Before(w.next)
	}
	return w.c.Pace != Once
}

// start begins a sample, unless one is in flight, the collector is not open, no sample is due, or the collector has
// used up its share of time. It reports whether a sample is in flight now.
func (w *worker) start(ctx context.Context, limit time.Duration, m moment) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.src == nil, w.given != nil:
		return false
	case w.busy != nil:
		if m == between && w.c.Pace == EveryTick {
			w.status.Late++
		}
		return true // the one in flight is as good as a last one, if it returns in time
	case !w.due(m):
		return false
	}
	w.started = true
	w.busy = make(chan struct{})
	go w.sample(ctx, w.src, w.b.Appender(), limit)
	return true
}

func (w *worker) sample(ctx context.Context, src Source, a *recording.Appender, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	runtime.LockOSThread() // so that its CPU time is the cost of the sample
	defer runtime.UnlockOSThread()
	began, cpu := time.Now(), ThreadCPU()
	err := firewall.Run("collector "+w.c.Name, func() error { return src.Sample(ctx, a) })
	took := time.Since(began)
	cpu = ThreadCPU() - cpu
	var lost []recording.Loss
	var missing []recording.Missing
	if err == nil {
		lost, missing = a.Commit()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cpu += cpu
	w.note(err, took, lost, missing)
	w.rest(began, took, cpu)
	if err == nil && w.continues && w.c.Share > 0 {
		w.sparedTo = began.Add(time.Duration(float64(cpu) / endShare))
	}
	close(w.busy)
	w.busy = nil
	switch {
	case w.over:
		_ = src.Close() // nobody is left to be told
	case w.given != nil && w.src != nil:
		_ = src.Close()
		w.src = nil
	}
}

// rest keeps the collector to its share of the time, after a sample that took so long and so much CPU time.
func (w *worker) rest(began time.Time, took, cpu time.Duration) {
	share := dutyShare
	if w.continues {
		share = betweenShare
	}
	pause := float64(took) / share
	if w.c.Share > 0 {
		paid := time.Duration(w.c.Share * float64(began.Sub(w.owesAt)))
		w.owes, w.owesAt = max(0, w.owes-paid)+cpu, began
		pause = max(pause, float64(w.owes)/w.c.Share-float64(leeway))
	}
	w.next = began.Add(time.Duration(pause))
}

func (w *worker) note(err error, took time.Duration, lost []recording.Loss, missing []recording.Missing) {
	st := &w.status
	st.Busy += took.Seconds()
	st.Longest = max(st.Longest, took.Seconds())
	if err != nil {
		w.fail(err)
		return
	}
	st.Samples++
	if w.continues && w.c.Pace == Once {
		w.missing = nil // what was missing before is reported again, if it still is
	}
	for _, l := range lost {
		addLoss(st, l)
	}
	for _, m := range missing {
		i := slices.IndexFunc(w.missing, func(x recording.Missing) bool { return x.Metric == m.Metric })
		if i < 0 {
			w.missing = append(w.missing, m)
			continue
		}
		w.missing[i] = m // the latest reason: a reason from the start may no longer hold at the end
	}
}

// fail notes a failed sample. A late sample costs only itself: it does not change the status of a collector with
// other samples in time.
func (w *worker) fail(err error) {
	if late(err) {
		w.status.Late++
		if w.lateErr == nil {
			w.lateErr = err
		}
		return
	}
	w.err = err
}

// addLoss adds up losses that are separate for each sample. For other kinds it keeps the worst sample's loss: the
// same destinations exceed the bound in every sample.
func addLoss(st *recording.CollectorStatus, l recording.Loss) {
	i := slices.IndexFunc(st.Lost, func(old recording.Loss) bool { return old.What == l.What })
	switch {
	case i < 0:
		st.Lost = append(st.Lost, l)
	case l.PerSample:
		st.Lost[i].Count += l.Count
	default:
		st.Lost[i].Count = max(st.Lost[i].Count, l.Count)
	}
}

// settle waits until no sample is in flight and, for a collector with a grace, until its Open has returned, which may
// have something to undo.
func (w *worker) settle(timeout <-chan time.Time) {
	if w.c.Grace > 0 {
		w.mu.Lock()
		opened := w.opened
		w.mu.Unlock()
		select {
		case <-opened:
		case <-timeout:
			return
		}
	}
	select {
	case <-w.idle():
	case <-timeout:
	}
}

// idle returns a channel that is closed when no sample is in flight.
func (w *worker) idle() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy != nil {
		return w.busy
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

// report closes the source and returns the collector's status. If a sample or Open still hangs, the source is closed
// when that returns, if ever.
func (w *worker) report() (recording.CollectorStatus, []recording.Missing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	st := w.status
	st.Lost = slices.Clone(st.Lost) // a sample that hangs may still return and note its losses
	st.Name, st.Status = w.c.Name, recording.StatusOK
	for _, m := range w.c.Provides {
		st.Metrics = append(st.Metrics, m.Describe().Name)
	}
	if err := w.outcome(); err != nil {
		st.Status, st.Reason, st.Remedy = Classify(err)
	}
	return st, slices.Clone(w.missing)
}

// closeLimit is how long closing a source may take: it releases what is in the kernel, which takes some milliseconds.
const closeLimit = 300 * time.Millisecond

// closeSource closes a source. It abandons a source that takes longer, because its background pass hangs ([Watch]):
// what is not undone now is undone at the end of the process.
func (w *worker) closeSource(src Source) error {
	limit := min(w.c.Grace, leastGrace) + closeLimit
	_, err := clock.Within(limit, func() (struct{}, error) { return struct{}{}, src.Close() })
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// outcome returns the error for the collector's status, and closes the source.
func (w *worker) outcome() error {
	switch {
	case w.given != nil && w.busy == nil:
		return w.given
	case w.busy != nil:
		return fmt.Errorf("a sample did not return in time: %w", context.DeadlineExceeded)
	case w.src == nil && w.err != nil && !errors.Is(w.err, context.Canceled):
		return w.err
	case w.src == nil: // or it was told to give up
		return fmt.Errorf("it did not open before the end of the run: %w", context.DeadlineExceeded)
	}
	cerr := w.closeSource(w.src)
	switch {
	case w.err != nil:
		return w.err
	case cerr != nil:
		return cerr
	case w.status.Samples > 0:
		return nil
	case w.lateErr != nil:
		return fmt.Errorf("no sample was in time: %w", w.lateErr)
	}
	return fmt.Errorf("it opened too late for a sample: %w", context.DeadlineExceeded)
}
