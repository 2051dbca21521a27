package collect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/door"
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
	Budget     *Budget       // CPU time; nil for no limit
	Alone      bool          // the process is for this run only: its start is a part of the cost
	Asked      time.Time     // when the process was started for this run, if it was: see [afterWindow]

	late time.Duration // time from Asked until the run began
}

// Run collects until the duration is over, the context is done or the target has ended, and returns what was measured
// until then; a collection cut short says so in its Meta. It returns at most a second after that, even if collectors
// hang, plus the longest [Collector.Grace] if that collector needs it, but never later than [afterWindow] allows. It
// fails only if the interval or the duration is not positive, or nothing at all could be collected.
func Run(ctx context.Context, o Options) (*recording.Recording, error) {
	if o.Interval <= 0 || o.Duration <= 0 {
		return nil, fmt.Errorf("interval %v and duration %v must be above zero", o.Interval, o.Duration)
	}
	began, cpu := time.Now(), ownCPU()
	if o.Alone {
		cpu = 0
		lateTimers()
		runFirst()
	}
	if !o.Asked.IsZero() {
		o.late = began.Sub(o.Asked)
	}
	if err := enoughFiles(); err != nil {
		return o.unmeasured(err), nil
	}
	b := recording.NewBuilder()
	o.Env.Duration = o.Duration
	openCtx, abandon := context.WithCancel(ctx)
	defer abandon()
	workers := open(openCtx, b, o)
	covered, early := loop(ctx, b, workers, o)
	abandon() // tells an Open that still hangs that nobody waits for it
	finish(workers, o)
	o.Budget.leave(workers)
	m := o.metaOf(began, covered, cpu)
	m.EndedEarly = early
	m.addAll(workers)
	if m.Cost.Samples == 0 {
		return nil, nothing(m.Collectors)
	}
	return b.Done(m.Meta), nil
}

// unmeasured returns the recording of a run that opened no collector, for the given reason.
func (o Options) unmeasured(why error) *recording.Recording {
	m := o.metaOf(time.Now(), 0, ownCPU())
	for _, c := range o.Collectors {
		w := worker{c: c, err: why}
		m.add(w.report())
	}
	return recording.NewBuilder().Done(m.Meta)
}

// meta is the Meta of an unfinished recording.
type meta struct{ recording.Meta }

// metaOf returns the meta of a window that started at began, when perfdoctor itself had used cpu of CPU time; it
// lacks the collectors.
func (o Options) metaOf(began time.Time, covered, cpu time.Duration) *meta {
	m := &meta{o.Meta}
	m.Schema = recording.SchemaVersion
	m.Started = began.UTC().Truncate(time.Millisecond)
	m.Duration, m.Interval, m.Asked = covered.Seconds(), o.Interval.Seconds(), o.Duration.Seconds()
	m.Cost = recording.Cost{
		Wall: time.Since(began).Seconds(), CPU: (ownCPU() - cpu).Seconds(), MaxRSS: ownMaxRSS() + door.HelperMemory(),
		GivenUp: o.Budget.givenUp(began),
	}
	return m
}

func (m *meta) add(st recording.CollectorStatus, missing []recording.Missing) {
	m.Collectors = append(m.Collectors, st)
	m.Unsupported = append(m.Unsupported, missing...)
	m.Cost.Samples += st.Samples
	m.Cost.Late += st.Late
	for _, l := range st.Lost {
		m.Cost.Lost += l.Count
	}
}

// addAll closes all workers in parallel, because many may wait for the kernel, and adds their reports in their order.
func (m *meta) addAll(workers []*worker) {
	reports := make([]func(), len(workers))
	var all sync.WaitGroup
	for i, w := range workers {
		all.Go(func() {
			st, missing := w.report()
			reports[i] = func() { m.add(st, missing) }
		})
	}
	all.Wait()
	for _, add := range reports {
		add()
	}
}

// nothing says why there is no recording, with the reason of one collector: they mostly fail for the same reason.
func nothing(collectors []recording.CollectorStatus) error {
	const advice = "run `perfdoctor preflight` to see what is missing here"
	if len(collectors) == 0 {
		return errors.New("nothing could be collected: no collector was asked for")
	}
	return fmt.Errorf("nothing could be collected (%s: %s): %s", collectors[0].Name, collectors[0].Reason, advice)
}

// open opens all collectors in parallel.
func open(ctx context.Context, b *recording.Builder, o Options) []*worker {
	workers := make([]*worker, len(o.Collectors))
	var wg sync.WaitGroup
	for i, c := range o.Collectors {
		w := &worker{c: c, b: b, budget: o.Budget, opened: make(chan struct{})}
		workers[i] = w
		wg.Go(func() { w.open(ctx, o.Env) })
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(min(openGrace, o.Duration/4)): // a collector that hangs in Open must not hold up the others
	}
	return workers
}

// loop samples at every tick and once more at the end. It returns when the last samples began and, if it ended early,
// the reason.
func loop(ctx context.Context, b *recording.Builder, workers []*worker, o Options) (
	covered time.Duration, early string,
) {
	// Samples are not cut off by the context: each is short, and an interrupted one would read as a failure of its
	// collector.
	sampling := context.WithoutCancel(ctx)
	sampleAll(sampling, b, workers, o, first)
	o.Budget.join(workers)
	deadline := time.NewTimer(o.Duration - b.Elapsed())
	defer deadline.Stop()
	tick := newBeat(o.Interval)
	defer tick.timer.Stop()
	for n := 1; early == ""; n++ {
		select {
		case <-ctx.Done():
			early = fmt.Sprintf("interrupted after %.1f s of %.1f s", b.Elapsed().Seconds(), o.Duration.Seconds())
		case <-deadline.C:
			return sampleAll(sampling, b, workers, o, last), ""
		case <-tick.timer.C:
			tick.next()
			sampleBetween(sampling, b, workers, o, n)
			early = o.ended(b)
		}
		if o.Tick != nil {
			o.Tick(b.Elapsed(), o.Duration)
		}
	}
	return sampleAll(sampling, b, workers, o, last), early
}

// sampleBetween samples at the n-th tick, if the budget allows it and the last sample is not about to be taken anyway.
func sampleBetween(ctx context.Context, b *recording.Builder, workers []*worker, o Options, n int) {
	within := o.Budget.check(n)
	switch {
	case o.Duration-b.Elapsed() <= o.Interval/4:
	case within:
		sampleAll(ctx, b, workers, o, between)
	default:
		b.Skip()
	}
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

// A moment is where in the run a sample is taken.
type moment int

const (
	first moment = iota
	between
	last
)

// limit returns the time that one sample may take at this moment: half of the interval, so that a slow sample is late
// before the next is due. The slowest healthy one, 100,000 sockets with tcp_info, takes 0.1 s; on an emulated CPU
// most take 0.5 s.
func (o Options) limit(m moment) time.Duration {
	switch limit := max(o.Interval/2, 50*time.Millisecond); m {
	case first: // the first sample must not take all of a short run
		return min(limit, max(o.Duration/4, 50*time.Millisecond))
	case last:
		return min(limit, lastLimit)
	default:
		return limit
	}
}

// sampleAll starts one sample of each collector that is due, and waits for the first and the last ones only: they
// must cover the same time. It does not wait for collectors with a grace; finish does. It returns when all had begun:
// what samples take is not part of the time that they cover.
func sampleAll(
	ctx context.Context, b *recording.Builder, workers []*worker, o Options, m moment,
) (begun time.Duration) {
	limit := o.limit(m)
	var running []*worker
	for _, w := range workers {
		own := limit
		if m == last {
			own = max(limit, o.grace(w.c))
		}
		if w.start(ctx, own, m) && own == limit {
			running = append(running, w)
		}
	}
	begun = b.Elapsed()
	if m == between {
		return begun
	}
	timeout := time.After(limit)
	for _, w := range running {
		select {
		case <-w.idle():
		case <-timeout:
			return begun
		}
	}
	return begun
}

// grace returns [Collector.Grace], limited to what the run has time for.
func (o Options) grace(c Collector) time.Duration {
	return min(c.Grace, max(afterWindow-o.late, leastGrace))
}

// finish waits for what still runs. A sample that hangs is reported as late and dies with the process.
func finish(workers []*worker, o Options) {
	began := time.Now()
	for _, w := range workers {
		timeout := time.NewTimer(o.grace(w.c) + closeGrace - time.Since(began))
		w.settle(timeout.C)
		timeout.Stop()
	}
}
