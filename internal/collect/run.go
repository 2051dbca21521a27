package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Options say what to collect, and for how long.
type Options struct {
	Env        Env
	Collectors []Collector
	Interval   time.Duration
	Duration   time.Duration
	Meta       recording.Meta // version and target; Run fills in the rest
	Tick       func(done, total time.Duration)
	Ended      func() string // polled each interval: why the target is gone, or ""
}

// Run collects until the duration is over, the context is done or the target has ended, and gives what was measured until
// then; a collection cut short says so in its Meta. It fails only when nothing at all could be collected.
func Run(ctx context.Context, o Options) (*recording.Recording, error) {
	began, cpu := time.Now(), ownCPU()
	b := recording.NewBuilder()
	workers := open(ctx, b, o)
	early := loop(ctx, b, workers, o)
	covered := b.Elapsed()
	finish(workers)
	meta := o.Meta
	meta.Schema = recording.SchemaVersion
	meta.Started = began.UTC().Truncate(time.Millisecond)
	meta.Duration, meta.EndedEarly = covered.Seconds(), early
	meta.Interval, meta.Asked = o.Interval.Seconds(), o.Duration.Seconds()
	for _, w := range workers {
		st, missing := w.report()
		meta.Collectors = append(meta.Collectors, st)
		meta.Unsupported = append(meta.Unsupported, missing...)
		meta.Cost.Samples += st.Samples
		meta.Cost.Late += st.Late
		for _, l := range st.Lost {
			meta.Cost.Lost += l.Count
		}
	}
	if meta.Cost.Samples == 0 {
		return nil, errors.New("nothing could be collected: run `perfdoctor preflight` to see what is missing here")
	}
	meta.Cost.Wall = time.Since(began).Seconds()
	meta.Cost.CPU = (ownCPU() - cpu).Seconds()
	meta.Cost.MaxRSS = ownMaxRSS()
	return b.Done(meta), nil
}

// open opens all collectors side by side and takes their first sample at once: the time before it is lost to the user.
func open(ctx context.Context, b *recording.Builder, o Options) []*worker {
	workers := make([]*worker, len(o.Collectors))
	var wg sync.WaitGroup
	for i, c := range o.Collectors {
		w := &worker{c: c, b: b, ready: make(chan struct{})}
		workers[i] = w
		wg.Go(func() { w.open(ctx, o.Env) })
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(sampleLimit): // one that hangs in Open must not hold up the others
	}
	return workers
}

// loop samples at every tick and once more at the end, and gives the reason when it ended before its time.
func loop(ctx context.Context, b *recording.Builder, workers []*worker, o Options) (early string) {
	sampleAll(ctx, workers, o.Interval, first)
	deadline := time.NewTimer(o.Duration - b.Elapsed())
	defer deadline.Stop()
	tick := time.NewTicker(o.Interval)
	defer tick.Stop()
	for early == "" {
		select {
		case <-ctx.Done():
			early = fmt.Sprintf("interrupted after %.1f s of %.1f s", b.Elapsed().Seconds(), o.Duration.Seconds())
		case <-deadline.C:
			sampleAll(context.WithoutCancel(ctx), workers, o.Interval, last)
			return ""
		case <-tick.C:
			if o.Duration-b.Elapsed() > o.Interval/4 { // the last sample is about to be taken anyway
				sampleAll(ctx, workers, o.Interval, between)
			}
			early = o.ended(b)
		}
		if o.Tick != nil {
			o.Tick(b.Elapsed(), o.Duration)
		}
	}
	sampleAll(context.WithoutCancel(ctx), workers, o.Interval, last)
	return early
}

func (o Options) ended(b *recording.Builder) string {
	if o.Ended == nil {
		return ""
	}
	if why := o.Ended(); why != "" {
		return fmt.Sprintf("%s after %.1f s of %.1f s", why, b.Elapsed().Seconds(), o.Duration.Seconds())
	}
	return ""
}

// moment is where in the run a sample is taken.
type moment int

const (
	first moment = iota
	between
	last
)

func (c *Collector) due(m moment) bool {
	return m == first || c.Pace == EveryTick || c.Pace == FirstAndLast && m == last
}

// sampleAll starts one sample of each collector that is due, and waits for the first and the last ones only: they must
// cover the same time.
func sampleAll(ctx context.Context, workers []*worker, interval time.Duration, m moment) {
	limit := min(sampleLimit, max(interval/2, 50*time.Millisecond))
	var running []*worker
	for _, w := range workers {
		if w.c.due(m) && w.start(ctx, limit, m) {
			running = append(running, w)
		}
	}
	if m == between {
		return
	}
	timeout := time.After(limit)
	for _, w := range running {
		select {
		case <-w.idle():
		case <-timeout:
			return
		}
	}
}

func finish(workers []*worker) {
	timeout := time.After(closeGrace)
	for _, w := range workers {
		select {
		case <-w.idle():
		case <-timeout:
			return // what still hangs is reported as late and dies with the process
		}
	}
}

// worker runs one collector. Its fields are guarded by mu; busy is closed when no sample is in flight.
type worker struct {
	c     Collector
	b     *recording.Builder
	ready chan struct{} // closed when Open has returned

	mu      sync.Mutex
	src     Source
	err     error
	busy    chan struct{}
	next    time.Time
	status  recording.CollectorStatus
	missing []recording.Missing
}

func (w *worker) open(ctx context.Context, env Env) {
	defer close(w.ready)
	src, err := openChecked(ctx, w.c, env)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.src, w.err = src, err
}

func openChecked(ctx context.Context, c Collector, env Env) (src Source, err error) {
	for _, req := range c.Requires {
		switch p := env.Host.Probe(req); p.Status {
		case host.Unsupported:
			return nil, Unavailable(recording.StatusUnsupported, p.Remedy, "%s", p.Reason)
		case host.Denied:
			return nil, Unavailable(recording.StatusDenied, p.Remedy, "%s", p.Reason)
		}
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("collector %s: %v", c.Name, r)
		}
	}()
	return c.Open(ctx, env)
}

// start begins a sample unless one is in flight, the collector is not open, or it has used up its share of time.
func (w *worker) start(ctx context.Context, limit time.Duration, m moment) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.src == nil:
		return false
	case w.busy != nil:
		w.status.Late++
		return false
	case m == between && time.Now().Before(w.next):
		return false
	}
	w.busy = make(chan struct{})
	go w.sample(ctx, w.src, limit)
	return true
}

func (w *worker) sample(ctx context.Context, src Source, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	a := w.b.Appender()
	err := sampleSafely(ctx, w.c.Name, src, a)
	took := time.Since(began)
	var lost []recording.Loss
	var missing []recording.Missing
	if err == nil {
		lost, missing = a.Commit()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(err, took, lost, missing)
	w.next = began.Add(time.Duration(float64(took) / dutyShare))
	close(w.busy)
	w.busy = nil
}

func sampleSafely(ctx context.Context, name string, src Source, a *recording.Appender) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("collector %s: %v", name, r)
		}
	}()
	return src.Sample(ctx, a)
}

func (w *worker) note(err error, took time.Duration, lost []recording.Loss, missing []recording.Missing) {
	st := &w.status
	st.Busy += took.Seconds()
	st.Longest = max(st.Longest, took.Seconds())
	if err != nil {
		w.err = err
		if errors.Is(err, context.DeadlineExceeded) {
			st.Late++
		}
		return
	}
	st.Samples++
	for _, l := range lost {
		addLoss(st, l)
	}
	for _, m := range missing {
		if !slices.ContainsFunc(w.missing, func(x recording.Missing) bool { return x.Metric == m.Metric }) {
			w.missing = append(w.missing, m)
		}
	}
}

// addLoss keeps the worst sample's loss of each kind: the same destinations are past the bound in every sample.
func addLoss(st *recording.CollectorStatus, l recording.Loss) {
	for i := range st.Lost {
		if st.Lost[i].What == l.What {
			st.Lost[i].Count = max(st.Lost[i].Count, l.Count)
			return
		}
	}
	st.Lost = append(st.Lost, l)
}

// idle gives a channel that is closed when no sample is in flight.
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

// report closes the source and gives the collector's status. A source whose sample still hangs is left to the process's end.
func (w *worker) report() (recording.CollectorStatus, []recording.Missing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.status
	st.Name, st.Status = w.c.Name, recording.StatusOK
	for _, m := range w.c.Provides {
		st.Metrics = append(st.Metrics, m.Describe().Name)
	}
	err := w.err
	switch {
	case w.busy != nil:
		err = fmt.Errorf("a sample did not return within %v: %w", sampleLimit, context.DeadlineExceeded)
	case w.src != nil:
		if cerr := w.src.Close(); err == nil {
			err = cerr
		}
	case err == nil:
		err = fmt.Errorf("it did not open within %v: %w", sampleLimit, context.DeadlineExceeded)
	}
	if err != nil {
		st.Status, st.Reason, st.Remedy = Classify(err)
	}
	return st, w.missing
}

func ownCPU() time.Duration {
	ru, err := rusage()
	if err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// ownMaxRSS gives the peak resident memory in bytes; ru_maxrss is in KiB (getrusage(2)).
func ownMaxRSS() int64 {
	ru, err := rusage()
	if err != nil {
		return 0
	}
	return ru.Maxrss << 10
}

func rusage() (ru unix.Rusage, err error) {
	err = unix.Getrusage(unix.RUSAGE_SELF, &ru)
	return ru, err
}
