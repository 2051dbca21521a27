package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
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
// then; a collection cut short says so in its Meta. It returns at most half a second after that, also when collectors hang. It
// fails only when the interval or the duration is not positive, or nothing at all could be collected.
func Run(ctx context.Context, o Options) (*recording.Recording, error) {
	if o.Interval <= 0 || o.Duration <= 0 {
		return nil, fmt.Errorf("interval %v and duration %v must be above zero", o.Interval, o.Duration)
	}
	began, cpu := time.Now(), ownCPU()
	b := recording.NewBuilder()
	openCtx, abandon := context.WithCancel(ctx)
	defer abandon() // an Open that still hangs is told that nobody waits for it
	workers := open(openCtx, b, o)
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
		return nil, nothing(meta.Collectors)
	}
	meta.Cost.Wall = time.Since(began).Seconds()
	meta.Cost.CPU = (ownCPU() - cpu).Seconds()
	meta.Cost.MaxRSS = ownMaxRSS()
	return b.Done(meta), nil
}

// nothing says why there is no recording, with the reason of one collector: they mostly fail for the same.
func nothing(collectors []recording.CollectorStatus) error {
	const advice = "run `perfdoctor preflight` to see what is missing here"
	if len(collectors) == 0 {
		return errors.New("nothing could be collected: no collector was asked for")
	}
	return fmt.Errorf("nothing could be collected (%s: %s): %s", collectors[0].Name, collectors[0].Reason, advice)
}

// open opens all collectors side by side.
func open(ctx context.Context, b *recording.Builder, o Options) []*worker {
	workers := make([]*worker, len(o.Collectors))
	var wg sync.WaitGroup
	for i, c := range o.Collectors {
		w := &worker{c: c, b: b}
		workers[i] = w
		wg.Go(func() { w.open(ctx, o.Env) })
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(min(openGrace, o.Duration/4)): // one that hangs in Open must not hold up the others
	}
	return workers
}

// loop samples at every tick and once more at the end, and gives the reason when it ended before its time.
func loop(ctx context.Context, b *recording.Builder, workers []*worker, o Options) (early string) {
	// Samples are not cut off by the context: each is short, and an interrupted one would read as a failure of its collector.
	sampling := context.WithoutCancel(ctx)
	sampleAll(sampling, workers, o, first)
	deadline := time.NewTimer(o.Duration - b.Elapsed())
	defer deadline.Stop()
	tick := time.NewTicker(o.Interval)
	defer tick.Stop()
	for early == "" {
		select {
		case <-ctx.Done():
			early = fmt.Sprintf("interrupted after %.1f s of %.1f s", b.Elapsed().Seconds(), o.Duration.Seconds())
		case <-deadline.C:
			sampleAll(sampling, workers, o, last)
			return ""
		case <-tick.C:
			if o.Duration-b.Elapsed() > o.Interval/4 { // the last sample is about to be taken anyway
				sampleAll(sampling, workers, o, between)
			}
			early = o.ended(b)
		}
		if o.Tick != nil {
			o.Tick(b.Elapsed(), o.Duration)
		}
	}
	sampleAll(sampling, workers, o, last)
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

// limit is the time one sample may take at this moment.
func (o Options) limit(m moment) time.Duration {
	switch limit := min(sampleLimit, max(o.Interval/2, 50*time.Millisecond)); m {
	case first: // of a short run, the first sample must not be all
		return min(limit, max(o.Duration/4, 50*time.Millisecond))
	case last:
		return min(limit, lastLimit)
	default:
		return limit
	}
}

// sampleAll starts one sample of each collector that is due, and waits for the first and the last ones only: they must
// cover the same time.
func sampleAll(ctx context.Context, workers []*worker, o Options, m moment) {
	limit := o.limit(m)
	var running []*worker
	for _, w := range workers {
		if w.start(ctx, limit, m) {
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

// worker runs one collector. Its fields are guarded by mu; busy is closed when the sample in flight has ended, and nil without one.
type worker struct {
	c Collector
	b *recording.Builder

	mu      sync.Mutex
	src     Source
	err     error
	over    bool // the run has ended: what opens or returns from now on is closed at once
	started bool // a sample was begun
	busy    chan struct{}
	lateErr error // of the first sample that was late
	next    time.Time
	status  recording.CollectorStatus
	missing []recording.Missing
}

func (w *worker) open(ctx context.Context, env Env) {
	src, err := openChecked(ctx, w.c, env)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over && src != nil {
		_ = src.Close() // nobody is left to be told
		return
	}
	w.src, w.err = src, err
}

func openChecked(ctx context.Context, c Collector, env Env) (src Source, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("collector %s: %v", c.Name, r)
		}
	}()
	for _, req := range c.Requires {
		switch p := env.Host.Probe(req); p.Status {
		case host.Unsupported:
			return nil, Unavailable(recording.StatusUnsupported, p.Remedy, "%s", p.Reason)
		case host.Denied:
			return nil, Unavailable(recording.StatusDenied, p.Remedy, "%s", p.Reason)
		}
	}
	return c.Open(ctx, env)
}

// due tells whether the collector's pace asks for a sample now. The first one is due at any moment: the collector may have been
// late to open.
func (w *worker) due(m moment) bool {
	switch {
	case !w.started:
		return true
	case m == between:
		return w.c.Pace == EveryTick && !time.Now().Before(w.next)
	}
	return w.c.Pace != Once
}

// start begins a sample unless one is in flight, the collector is not open, none is due, or it has used up its share of time. It
// reports whether one is in flight now.
func (w *worker) start(ctx context.Context, limit time.Duration, m moment) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.src == nil:
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
	if w.over {
		_ = src.Close() // nobody is left to be told
	}
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
		w.fail(err)
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

// fail notes a sample that failed. One that was late costs itself only, so that it does not change the fate of a collector whose other
// samples were in time.
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

// report closes the source and gives the collector's status. A source whose sample or Open still hangs is closed when that returns,
// if ever.
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

// outcome gives the error that the collector's status tells, and closes the source.
func (w *worker) outcome() error {
	switch {
	case w.busy != nil:
		return fmt.Errorf("a sample did not return in time: %w", context.DeadlineExceeded)
	case w.src == nil && w.err != nil:
		return w.err
	case w.src == nil:
		return fmt.Errorf("it did not open before the end of the run: %w", context.DeadlineExceeded)
	}
	cerr := w.src.Close()
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

func ownCPU() time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// ownMaxRSS gives the peak resident memory in bytes, VmHWM of /proc/self/status, which is in KiB (fs/proc/task_mmu.c);
// 0 without /proc. ru_maxrss of getrusage does not do: it survives execve (setmax_mm_hiwater_rss in fs/exec.c), so that a
// program started by a larger one shows the size of that.
func ownMaxRSS() int64 {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		var kib int64
		if n, err := fmt.Sscanf(string(line), "VmHWM: %d kB", &kib); err == nil && n == 1 {
			return kib << 10
		}
	}
	return 0
}
