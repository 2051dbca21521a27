package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// betweenShare is the share of wall time that one collector may spend on samples within a window, and on facts. All
// of them together must stay below half a percent of a CPU. The samples at the ends of windows take the larger part
// of that: they give a window its rates, and are taken whatever they cost, up to [lastLimit].
const betweenShare = 0.0005

// endShare is the share of a CPU that a collector with a [Collector.Share] may take at the ends of windows. Its last
// reading stands for the windows in between. Reading 100,000 sockets of a host takes 0.15 s, so they are read every
// 75 s.
const endShare = 0.002

// reopenAfter is when a collector is closed and reopened. This drops what it keeps for things long gone, in its own
// memory or in tables of the kernel. Opening all collectors takes 0.2 s of CPU time, so this takes 0.03 % of a CPU.
const reopenAfter = 10 * time.Minute

// Windows collects window after window of o.Duration, without a gap, until the context is done. Collectors stay open
// from one window to the next, and the last sample of a window is the first of the next. Each finished window is
// passed to each, which must return soon: nothing is sampled meanwhile. A collector with the pace [AtEnd] is reopened
// for each window.
//
// It fails only if the interval or the duration is not positive. A window in which nothing could be collected says so
// in its Meta.
func Windows(ctx context.Context, o Options, each func(*recording.Recording)) error {
	if o.Interval <= 0 || o.Duration <= 0 {
		return fmt.Errorf("interval %v and duration %v must be above zero", o.Interval, o.Duration)
	}
	lateTimers()
	s := &stream{o: o, b: recording.NewBuilder(), began: time.Now(), cpu: ownCPU()}
	s.o.Env.Duration = o.Duration
	openCtx, abandon := context.WithCancel(ctx)
	s.workers = open(openCtx, s.b, s.o)
	for i, w := range s.workers {
		w.begin(s.began.Add(reopenAfter + staggered(i, len(s.workers))))
	}
	sampling := context.WithoutCancel(ctx)
	sampleAll(sampling, s.b, s.workers, s.o, first)
	o.Budget.join(s.workers)
	defer o.Budget.leave(s.workers)
	for s.wait(ctx, sampling) {
		each(s.end(openCtx, sampling))
	}
	abandon()
	s.join()
	finish(s.workers, s.o)
	for _, w := range s.workers {
		w.report()
	}
	return nil
}

// staggered keeps collectors from being reopened all at once.
func staggered(i, n int) time.Duration { return reopenAfter * time.Duration(i) / time.Duration(n) }

// A stream is a run of windows.
type stream struct {
	o       Options
	workers []*worker
	b       *recording.Builder // of the current window
	began   time.Time          // of that window
	cpu     time.Duration      // own CPU time at began

	renewals sync.WaitGroup
}

// join waits for the collectors that are being reopened, as long as [finish] does: what a collector undoes on the
// host when it is closed must be undone before the process ends.
func (s *stream) join() {
	done := make(chan struct{})
	go func() { s.renewals.Wait(); close(done) }()
	timeout := time.NewTimer(closeGrace)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
	}
}

// wait samples until the window is over, and returns false if the context is done earlier. A window after a late one
// is as long as any other: its time counts from its own beginning.
func (s *stream) wait(ctx, sampling context.Context) bool {
	deadline := time.NewTimer(s.o.Duration - s.b.Elapsed())
	defer deadline.Stop()
	tick := newBeat(s.o.Interval)
	defer tick.timer.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return false
		case <-deadline.C:
			return true
		case <-tick.timer.C:
			tick.next()
			sampleBetween(sampling, s.b, s.workers, s.o, n)
		}
	}
}

// end takes the last samples of the window and begins the next window with them.
func (s *stream) end(openCtx, sampling context.Context) *recording.Recording {
	from := s.b.Elapsed()
	covered := sampleAll(sampling, s.b, s.workers, s.o, last)
	settleGraces(s.workers)
	var facts, fresh []metric.Metric
	var renewed, again []*worker
	for _, w := range s.workers {
		switch {
		case w.renewable():
			renewed, fresh = append(renewed, w), append(fresh, w.c.Provides...)
		case w.c.Pace == Once && w.rested():
			again, fresh = append(again, w), append(fresh, w.c.Provides...)
		case w.c.Pace == Once:
			facts = append(facts, w.c.Provides...)
		case w.resting():
			facts = append(facts, gaugesOf(w.c.Provides)...)
		}
	}
	next := s.b.Continue(from, facts, fresh)
	m := s.o.metaOf(s.began, covered, s.cpu)
	for _, w := range s.workers {
		m.add(w.endWindow(next))
	}
	rec := s.b.Done(m.Meta)
	s.b, s.began, s.cpu = next, s.began.Add(from), ownCPU()
	for _, w := range renewed {
		src := w.detach()
		s.renewals.Go(func() { w.renew(openCtx, sampling, s.o, src) })
	}
	for _, w := range again {
		w.readAgain(sampling, s.o)
	}
	return rec
}

// settleGraces waits for the collectors that may take longer for their last sample than others.
func settleGraces(workers []*worker) {
	began := time.Now()
	for _, w := range workers {
		if w.c.Grace > 0 {
			timeout := time.NewTimer(w.c.Grace - time.Since(began))
			w.settle(timeout.C)
			timeout.Stop()
		}
	}
}

// renewable reports whether to reopen the collector: it reports only at the end of a window, it has been open for
// long, or it could not be opened. A collector with a hanging sample or Open is left alone.
func (w *worker) renewable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isOpened() {
		return false
	}
	return w.busy == nil && (w.c.Pace == AtEnd && w.src != nil && w.given == nil || !time.Now().Before(w.reopenAt))
}

// spared reports whether the last sample took so much CPU time that none is taken now. The worker must be locked.
func (w *worker) spared() bool { return w.continues && time.Now().Before(w.sparedTo) }

// resting is spared for a worker that is not locked.
func (w *worker) resting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spared()
}

// gaugesOf leaves out counters: a counter that stands still would have a rate of zero.
func gaugesOf(all []metric.Metric) (gauges []metric.Metric) {
	for _, m := range all {
		if m.Describe().Kind == metric.KindGauge {
			gauges = append(gauges, m)
		}
	}
	return gauges
}

// begin switches a worker that was just opened to windows.
func (w *worker) begin(reopenAt time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.continues, w.reopenAt = true, reopenAt
}

// detach removes the source from the worker, so that nobody else closes it: the run may end before it is reopened.
func (w *worker) detach() Source {
	w.mu.Lock()
	defer w.mu.Unlock()
	src := w.src
	w.src, w.err, w.given, w.started, w.opened = nil, nil, nil, false, make(chan struct{})
	w.reopenAt = time.Now().Add(reopenAfter)
	return src
}

// renew closes the worker's former source, opens another, and takes its first sample of the window.
func (w *worker) renew(openCtx, sampling context.Context, o Options, src Source) {
	if src != nil {
		// its last sample is taken, and what cannot be undone now is undone at the end of the process
		_ = w.closeSource(src)
	}
	w.open(openCtx, o.Env)
	if w.c.Pace != AtEnd {
		w.start(sampling, o.limit(between), between)
	}
}

// rested reports whether the collector may read its facts again without exceeding its share of the time. Facts change
// when somebody fixes what they show.
func (w *worker) rested() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.src != nil && w.busy == nil && !time.Now().Before(w.next)
}

// readAgain rereads facts for the window that begins.
func (w *worker) readAgain(sampling context.Context, o Options) {
	w.mu.Lock()
	w.started = false
	w.mu.Unlock()
	w.start(sampling, o.limit(between), between)
}

// endWindow returns the collector's status in the window that ends, and switches it to the next window.
func (w *worker) endWindow(next *recording.Builder) (recording.CollectorStatus, []recording.Missing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.status
	st.Name, st.Status = w.c.Name, recording.StatusOK
	for _, m := range w.c.Provides {
		st.Metrics = append(st.Metrics, m.Describe().Name)
	}
	if err := w.windowOutcome(); err != nil {
		st.Status, st.Reason, st.Remedy = Classify(err)
	}
	missing := slices.Clone(w.missing)
	w.b, w.status, w.lateErr = next, recording.CollectorStatus{}, nil
	if w.c.Pace != Once {
		w.missing = nil
	}
	if w.src != nil {
		w.err = nil // an error of a sample: the next may succeed
	}
	return st, missing
}

// windowOutcome is [worker.outcome] for one window: it leaves the source open.
func (w *worker) windowOutcome() error {
	switch {
	case w.given != nil:
		return w.given
	case w.busy != nil:
		return fmt.Errorf("a sample did not return in time: %w", context.DeadlineExceeded)
	case w.err != nil && !errors.Is(w.err, context.Canceled):
		return w.err
	case w.src == nil:
		return fmt.Errorf("it did not open before the end of the window: %w", context.DeadlineExceeded)
	case w.status.Samples > 0, (w.c.Pace == Once || w.spared()) && w.started && w.lateErr == nil:
		return nil
	case w.lateErr != nil:
		return fmt.Errorf("no sample was in time: %w", w.lateErr)
	}
	return fmt.Errorf("it opened too late for a sample: %w", context.DeadlineExceeded)
}
