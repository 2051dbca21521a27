package collect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// source samples by a function; n counts the samples begun before this one.
type source struct {
	sample func(ctx context.Context, n int, a *recording.Appender) error
	n      int
	closed atomic.Int32
}

func (s *source) Sample(ctx context.Context, a *recording.Appender) error {
	n := s.n
	s.n++
	return s.sample(ctx, n, a)
}

func (s *source) Close() error { s.closed.Add(1); return nil }

func collector(name string, pace Pace, sample func(context.Context, int, *recording.Appender) error) (Collector,
	*source,
) {
	s := &source{sample: sample}
	return Collector{
		Name: name, Pace: pace, Provides: []metric.Metric{metric.Uptime},
		Open: func(context.Context, Env) (Source, error) { return s, nil },
	}, s
}

func count(m *metric.Gauge) func(context.Context, int, *recording.Appender) error {
	return func(_ context.Context, n int, a *recording.Appender) error {
		a.Gauge(m, float64(n))
		return nil
	}
}

const (
	interval = 100 * time.Millisecond
	duration = 500 * time.Millisecond
	// margin is how much later than requested a run may end, whatever its collectors do.
	margin = 500 * time.Millisecond
)

func run(ctx context.Context, t *testing.T, o Options) *recording.Recording {
	t.Helper()
	if o.Interval == 0 {
		o.Interval, o.Duration = interval, duration
	}
	o.Env.Host = host.Local()
	began := time.Now()
	rec, err := Run(ctx, o)
	if took := time.Since(began); took > o.Duration+margin {
		t.Errorf("a run of %v took %v", o.Duration, took)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func status(t *testing.T, rec *recording.Recording, name string) recording.CollectorStatus {
	t.Helper()
	for _, c := range rec.Meta.Collectors {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no status of collector %s in %+v", name, rec.Meta.Collectors)
	return recording.CollectorStatus{}
}

func TestPaces(t *testing.T) { synctest.Test(t, testPaces) }

func testPaces(t *testing.T) {
	every, es := collector("every", EveryTick, count(metric.Uptime))
	ends, _ := collector("ends", FirstAndLast, count(metric.MemoryTotal))
	once, _ := collector("once", Once, count(metric.SwapTotal))
	began := time.Now()
	rec := run(t.Context(), t, Options{Collectors: []Collector{every, ends, once}})
	points := func(m *metric.Gauge) []recording.Point {
		t.Helper()
		s := rec.Gauge(m)
		if len(s) != 1 {
			t.Fatalf("%s has %d series", m.Describe().Name, len(s))
		}
		return s[0].Points
	}
	all := points(metric.Uptime)
	if len(all) != 6 { // at 0, 100, 200, 300, 400 and 500 ms
		t.Errorf("%d samples in %v at every %v", len(all), duration, interval)
	}
	for i, p := range all {
		if p.Value != float64(i) {
			t.Errorf("sample %d is the collector's %v: one was lost", i, p.Value)
		}
	}
	if first := rec.Meta.Started.Sub(began) + all[0].At; first > 0 {
		t.Errorf("the first sample was taken after %v", first)
	}
	if at := all[len(all)-1].At; at < duration {
		t.Errorf("the last sample was taken after %v of %v", at, duration)
	}
	if p := points(metric.MemoryTotal); len(p) != 2 || p[0].At > 0 || p[1].At < duration {
		t.Errorf("first and last: %v", p)
	}
	if p := points(metric.SwapTotal); len(p) != 1 || p[0].At > 0 {
		t.Errorf("once: %v", p)
	}
	if n := es.closed.Load(); n != 1 {
		t.Errorf("the source was closed %d times", n)
	}
	m := rec.Meta
	if m.EndedEarly != "" || m.Duration < duration.Seconds() || m.Interval != 0.1 || m.Asked != 0.5 ||
		m.Schema != recording.SchemaVersion {
		t.Errorf("meta: %+v", m)
	}
	if m.Cost.Samples != len(all)+3 || m.Cost.Late != 0 || m.Cost.Wall < m.Duration || m.Cost.MaxRSS < 1<<20 {
		t.Errorf("cost: %+v with %d samples", m.Cost, len(all)+3)
	}
}

// TestCostOfStart: if a process exists only for the run, the cost is all that it used.
func TestCostOfStart(t *testing.T) {
	for end := ownCPU() + 30*time.Millisecond; ownCPU() < end; { // the start of the program
		continue
	}
	before := ownCPU()
	c, _ := collector("c", EveryTick, count(metric.Uptime))
	for _, alone := range []bool{false, true} {
		rec := run(t.Context(), t, Options{Collectors: []Collector{c}, Alone: alone})
		if got := rec.Meta.Cost.CPU; got >= before.Seconds() != alone {
			t.Errorf("alone %v: %.3f s of CPU time, of which %v are from before the run", alone, got, before)
		}
	}
}

// TestOneBadCollector runs each kind of bad collector beside a good one. The good one must not notice.
func TestOneBadCollector(t *testing.T) {
	// closed by nobody until the test ends: only the end of the process ends these
	blocked := make(chan struct{})
	t.Cleanup(func() { close(blocked) })
	sampling := func(f func(context.Context, int, *recording.Appender) error) Collector {
		c, _ := collector("bad", EveryTick, f)
		return c
	}
	opening := func(f func(context.Context, Env) (Source, error)) Collector {
		return Collector{Name: "bad", Provides: []metric.Metric{metric.SwapFree}, Open: f}
	}
	for _, tc := range []struct {
		name   string
		bad    Collector
		status recording.Status
		reason string
	}{
		{
			"sample hangs", sampling(func(context.Context, int, *recording.Appender) error { <-blocked; return nil }),
			recording.StatusTimeout, "did not return",
		},
		{
			"sample heeds its deadline", sampling(func(ctx context.Context, _ int, _ *recording.Appender) error {
				<-ctx.Done()
				return ctx.Err()
			}),
			recording.StatusTimeout, "no sample was in time",
		},
		{"sample of a socket with a deadline", sampling(func(context.Context, int, *recording.Appender) error {
			return fmt.Errorf("dump: %w", os.ErrDeadlineExceeded)
		}), recording.StatusTimeout, "dump"},
		{"last sample hangs", sampling(func(_ context.Context, n int, a *recording.Appender) error {
			if n > 1 {
				<-blocked
			}
			a.Gauge(metric.SwapFree, 1)
			return nil
		}), recording.StatusTimeout, "did not return"},
		{
			"open hangs", opening(func(context.Context, Env) (Source, error) { <-blocked; return nil, nil }),
			recording.StatusTimeout, "did not open",
		},
		{
			"open fails", opening(func(context.Context, Env) (Source, error) { return nil, errors.New("broken pipe") }),
			recording.StatusFailed, "broken pipe",
		},
		{
			"open panics", opening(func(context.Context, Env) (Source, error) { panic("at the disco") }),
			recording.StatusFailed, "at the disco",
		},
		{"unavailable", opening(func(context.Context, Env) (Source, error) {
			return nil, Unavailable(recording.StatusUnsupported, "a newer kernel", "no %s", "flux")
		}), recording.StatusUnsupported, "no flux"},
		{
			"sample fails", sampling(func(context.Context, int, *recording.Appender) error { return fs.ErrPermission }),
			recording.StatusDenied, "permission",
		},
		{
			"sample panics", sampling(func(context.Context, int, *recording.Appender) error { panic("at the disco") }),
			recording.StatusFailed, "at the disco",
		},
		{"not a number", sampling(func(_ context.Context, n int, a *recording.Appender) error {
			zero := float64(0)
			a.Gauge(metric.SwapFree, zero/zero)
			return nil
		}), recording.StatusFailed, "NaN"},
		{"wrong labels", sampling(func(_ context.Context, n int, a *recording.Appender) error {
			a.Gauge(metric.SwapFree, 1, "surplus")
			return nil
		}), recording.StatusFailed, "labels"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			good, _ := collector("good", EveryTick, count(metric.Uptime))
			rec := run(t.Context(), t, Options{Collectors: []Collector{tc.bad, good}})
			got := status(t, rec, "bad")
			if got.Status != tc.status || !strings.Contains(got.Reason, tc.reason) {
				t.Errorf("status %s, reason %q; want %s with %q", got.Status, got.Reason, tc.status, tc.reason)
			}
			if g := status(t, rec, "good"); g.Status != recording.StatusOK || g.Samples < 3 || g.Late > 0 {
				t.Errorf("the good collector: %+v", g)
			}
			first := rec.Gauge(metric.Uptime)[0].Points[0].At
			if first > 150*time.Millisecond {
				t.Errorf("the good collector's first sample waited %v for the bad one", first)
			}
		})
	}
}

// TestHangingAtDefaultPace is the case with the longest waits: a second between samples.
func TestHangingAtDefaultPace(t *testing.T) {
	t.Parallel()
	blocked := make(chan struct{})
	t.Cleanup(func() { close(blocked) })
	hang, _ := collector("hang", EveryTick, func(context.Context, int, *recording.Appender) error {
		<-blocked
		return nil
	})
	deaf, _ := collector("deaf", FirstAndLast, func(_ context.Context, n int, _ *recording.Appender) error {
		if n > 0 {
			<-blocked
		}
		return nil
	})
	good, _ := collector("good", EveryTick, count(metric.Uptime))
	run(t.Context(), t, Options{Collectors: []Collector{hang, deaf, good}, Interval: time.Second, Duration: 1200 *
		time.Millisecond})
}

func TestLateOpenIsSampled(t *testing.T) {
	for _, pace := range []Pace{EveryTick, FirstAndLast, Once} {
		t.Run(fmt.Sprint(pace), func(t *testing.T) {
			t.Parallel()
			slow, _ := collector("slow", pace, count(metric.Uptime))
			open := slow.Open
			slow.Open = func(ctx context.Context, env Env) (Source, error) {
				time.Sleep(250 * time.Millisecond)
				return open(ctx, env)
			}
			rec := run(t.Context(), t, Options{Collectors: []Collector{slow}})
			got := status(t, rec, "slow")
			if got.Status != recording.StatusOK || got.Samples < 1 || pace == Once && got.Samples != 1 {
				t.Errorf("a collector that opened late: %+v", got)
			}
		})
	}
}

// TestAtEnd: a collector at the end takes one sample when the window is over, with the time that it asked for. The
// others end in time.
func TestAtEnd(t *testing.T) {
	t.Parallel()
	const long = time.Second // more than margin
	good, _ := collector("good", EveryTick, count(metric.Uptime))
	var window time.Duration
	end, src := collector("end", AtEnd, func(ctx context.Context, _ int, a *recording.Appender) error {
		select {
		case <-time.After(long):
		case <-ctx.Done():
			return ctx.Err()
		}
		a.Gauge(metric.SwapFree, 1)
		return nil
	})
	end.Grace = 2 * long
	open := end.Open
	end.Open = func(ctx context.Context, env Env) (Source, error) { window = env.Duration; return open(ctx, env) }
	rec, err := Run(t.Context(), Options{
		Collectors: []Collector{end, good}, Interval: interval, Duration: duration, Env: Env{Host: host.Local()},
	})
	if err != nil {
		t.Fatal(err)
	}
	if st := status(t, rec, "end"); st.Status != recording.StatusOK || st.Samples != 1 || src.closed.Load() != 1 {
		t.Errorf("the collector that reads at the end: %+v, closed %d times", st, src.closed.Load())
	}
	if st := status(t, rec, "good"); st.Status != recording.StatusOK || st.Samples < 3 {
		t.Errorf("the other: %+v", st)
	}
	if d := rec.Meta.Duration; d > (duration + margin).Seconds() {
		t.Errorf("the recording covers %v s of %v: the grace of one collector is no part of the window", d, duration)
	}
	if at := rec.Gauge(metric.SwapFree)[0].Points[0].At; at < duration || at > duration+margin {
		t.Errorf("sampled at %v", at)
	}
	if window != duration {
		t.Errorf("it was opened for a window of %v", window)
	}
}

// TestGrace: what an Open does when the window ends during it, and how long a hanging sample is waited for.
func TestGrace(t *testing.T) {
	blocked := make(chan struct{})
	t.Cleanup(func() { close(blocked) })
	const grace = 700 * time.Millisecond
	graceful := func() (Collector, *source) {
		c, src := collector("graceful", AtEnd, func(context.Context, int, *recording.Appender) error {
			<-blocked
			return nil
		})
		c.Grace = grace
		return c, src
	}
	timed := func(t *testing.T, c Collector) (*recording.Recording, time.Duration) {
		t.Helper()
		good, _ := collector("good", EveryTick, count(metric.Uptime))
		began := time.Now()
		rec, err := Run(t.Context(), Options{
			Collectors: []Collector{c, good}, Interval: interval, Duration: duration, Env: Env{Host: host.Local()},
		})
		if err != nil {
			t.Fatal(err)
		}
		return rec, time.Since(began) - duration
	}
	t.Run("open undoes what it did", func(t *testing.T) {
		t.Parallel()
		c, src := graceful()
		undone := make(chan struct{})
		c.Open = func(ctx context.Context, _ Env) (Source, error) {
			<-ctx.Done()
			time.Sleep(grace / 2)
			close(undone)
			return nil, ctx.Err()
		}
		rec, over := timed(t, c)
		select {
		case <-undone:
		default:
			t.Error("the run did not wait for it")
		}
		if st := status(t, rec, "graceful"); st.Status != recording.StatusTimeout || !strings.Contains(st.Reason,
			"did not open") {
			t.Errorf("%+v", st)
		}
		if over > grace || src.closed.Load() != 0 {
			t.Errorf("%v after the window, closed %d times", over, src.closed.Load())
		}
	})
	t.Run("sample hangs", func(t *testing.T) {
		t.Parallel()
		c, _ := graceful()
		rec, over := timed(t, c)
		if st := status(t, rec, "graceful"); st.Status != recording.StatusTimeout {
			t.Errorf("%+v", st)
		}
		if over < grace || over > grace+margin {
			t.Errorf("the run ended %v after the window, with a grace of %v", over, grace)
		}
	})
}

// TestLateRun: the start-up time of the process is subtracted from the time after the window, but some always remains.
// Sources that hang on Close are waited for together.
func TestLateRun(t *testing.T) {
	blocked := make(chan struct{})
	t.Cleanup(func() { close(blocked) })
	for name, tt := range map[string]struct{ late, want time.Duration }{
		"in time":   {0, afterWindow},
		"late":      {500 * time.Millisecond, afterWindow - 500*time.Millisecond},
		"very late": {time.Hour, leastGrace},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hanging, _ := collector("hanging", AtEnd, func(context.Context, int, *recording.Appender) error {
				<-blocked
				return nil
			})
			hanging.Grace = time.Hour
			list := []Collector{hanging}
			for range 5 {
				c, _ := collector("closes never", EveryTick, count(metric.Uptime))
				c.Open = func(context.Context, Env) (Source, error) { return neverClosed{blocked}, nil }
				list = append(list, c)
			}
			began := time.Now()
			_, err := Run(t.Context(), Options{
				Collectors: list, Interval: interval, Duration: duration, Env: Env{Host: host.Local()},
				Asked: began.Add(-tt.late),
			})
			if err != nil {
				t.Fatal(err)
			}
			if over := time.Since(began) - duration - closeLimit; over < tt.want || over > tt.want+margin {
				t.Errorf("the run ended %v after the window and the close, want %v", over, tt.want)
			}
		})
	}
}

// neverClosed is a source that hangs on Close.
type neverClosed struct{ until chan struct{} }

func (s neverClosed) Sample(_ context.Context, a *recording.Appender) error {
	a.Gauge(metric.SwapFree, 1)
	return nil
}

func (s neverClosed) Close() error { <-s.until; return nil }

func TestSourceOpenedAfterTheEndIsClosed(t *testing.T) {
	t.Parallel()
	late, src := collector("late", EveryTick, count(metric.SwapFree))
	open := late.Open
	released := make(chan struct{})
	late.Open = func(ctx context.Context, env Env) (Source, error) {
		<-ctx.Done() // the run says that nobody waits any more
		defer close(released)
		return open(ctx, env)
	}
	good, _ := collector("good", EveryTick, count(metric.Uptime))
	run(t.Context(), t, Options{Collectors: []Collector{late, good}})
	<-released
	for deadline := time.Now().Add(5 * time.Second); src.closed.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the source was never closed")
		}
	}
}

// TestLateSampleDoesNotReachTheRecording: the checks read the recording while a hanging sample returns. The race
// detector judges.
func TestLateSampleDoesNotReachTheRecording(t *testing.T) {
	t.Parallel()
	release, committed := make(chan struct{}), make(chan struct{})
	hang, src := collector("hang", EveryTick, func(_ context.Context, _ int, a *recording.Appender) error {
		<-release
		a.Gauge(metric.SwapFree, 1)
		a.Lost(1, "thing")
		close(committed)
		return nil
	})
	good, _ := collector("good", EveryTick, count(metric.Uptime))
	rec := run(t.Context(), t, Options{Collectors: []Collector{hang, good}})
	close(release)
	for range 100 {
		if rec.Recorded(metric.SwapFree) {
			t.Fatal("a sample got into a finished recording")
		}
	}
	<-committed
	for deadline := time.Now().Add(5 * time.Second); src.closed.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the source was never closed")
		}
	}
	if rec.Recorded(metric.SwapFree) {
		t.Error("a sample got into a finished recording")
	}
}

func TestOneLateSampleCostsItselfOnly(t *testing.T) {
	t.Parallel()
	c, _ := collector("c", EveryTick, func(ctx context.Context, n int, a *recording.Appender) error {
		if n == 1 {
			return context.DeadlineExceeded
		}
		a.Gauge(metric.Uptime, 1)
		a.Lost(2, "things")
		a.Lost(3, "things")
		a.LostOfSample(7, "events")
		a.Missing(metric.SwapFree, recording.StatusUnsupported, "no swap", "")
		return nil
	})
	rec := run(t.Context(), t, Options{Collectors: []Collector{c}})
	got := status(t, rec, "c")
	if got.Status != recording.StatusOK || got.Late != 1 || rec.Meta.Cost.Late != 1 {
		t.Errorf("status: %+v", got)
	}
	if got.Samples < 2 {
		t.Fatalf("%d samples", got.Samples)
	}
	things, events := recording.Loss{What: "things", Count: 5}, recording.Loss{What: "events", Count: 7 * got.Samples}
	if !slices.Equal(got.Lost, []recording.Loss{things, events}) || rec.Meta.Cost.Lost != 5+7*got.Samples {
		t.Errorf("lost: %+v, want the worst sample's 2 + 3 things, and the 7 events of each of %d", got.Lost,
			got.Samples)
	}
	if len(rec.Meta.Unsupported) != 1 {
		t.Errorf("said once a sample: %+v", rec.Meta.Unsupported)
	}
}

func TestDutyShare(t *testing.T) {
	t.Parallel()
	const took = 40 * time.Millisecond
	slow, _ := collector("slow", EveryTick, func(context.Context, int, *recording.Appender) error {
		time.Sleep(took)
		return nil
	})
	// An interval in which a sample ends even on a busy machine. A sample that is still in flight at the next tick is
	// late.
	rec := run(t.Context(), t, Options{Collectors: []Collector{slow}, Interval: 100 * time.Millisecond, Duration: 900 *
		time.Millisecond})
	got := status(t, rec, "slow")
	// At 0, 400 and 800 ms, and the last sample, which is always taken. Without the limit there would be 9.
	if got.Samples < 2 || got.Samples > 4 || got.Late != 0 {
		t.Errorf("%d samples of %v in 0.9 s, %d late", got.Samples, took, got.Late)
	}
	if got.Longest < took.Seconds() || got.Busy < 2*took.Seconds() {
		t.Errorf("busy %v s, longest %v s", got.Busy, got.Longest)
	}
}

// TestLastSamples: the time of the last samples is not part of the window. The window ends as they begin.
func TestLastSamples(t *testing.T) {
	t.Parallel()
	const took = 200 * time.Millisecond // a run waits for it
	slow, _ := collector("slow", AtEnd, func(_ context.Context, _ int, a *recording.Appender) error {
		time.Sleep(took)
		a.Gauge(metric.SwapFree, 1)
		return nil
	})
	good, _ := collector("good", EveryTick, count(metric.Uptime))
	rec := run(t.Context(), t, Options{
		Collectors: []Collector{slow, good}, Interval: time.Second, Duration: time.Second,
	})
	points := rec.Gauge(metric.Uptime)[0].Points
	at := points[len(points)-1].At.Seconds()
	if d := rec.Meta.Duration; d < at || d > at+took.Seconds()/2 {
		t.Errorf("a window of %v s, whose last samples began after %v s", d, at)
	}
}

// TestShare: if the samples of a collector take more CPU time than its share, only the first and the last are taken. A
// collector that waits as long is not held back.
func TestShare(t *testing.T) {
	t.Parallel()
	// At 0.5 % a pause is 10 s, less the leeway. A collector that waits as long pauses for 0.5 s, or for a second if
	// others take the CPU from it. If only the first sample is expensive, and within the leeway, there is no pause.
	const took = 50 * time.Millisecond
	spin := func(d time.Duration) {
		for began := ThreadCPU(); ThreadCPU() < began+d; {
			continue
		}
	}
	costly, _ := collector("costly", EveryTick, func(context.Context, int, *recording.Appender) error {
		spin(took)
		return nil
	})
	idle, _ := collector("idle", EveryTick, func(context.Context, int, *recording.Appender) error {
		time.Sleep(took)
		return nil
	})
	uneven, _ := collector("uneven", EveryTick, func(_ context.Context, n int, _ *recording.Appender) error {
		if n == 0 {
			spin(20 * time.Millisecond)
		}
		return nil
	})
	costly.Share, idle.Share, uneven.Share = 0.005, 0.005, 0.005
	rec := run(t.Context(), t, Options{
		Collectors: []Collector{costly, idle, uneven}, Interval: 100 * time.Millisecond, Duration: 3 * time.Second,
	})
	if got := status(t, rec, "costly"); got.Samples != 2 {
		t.Errorf("%d samples of %v CPU in 3 s, want the first and the last", got.Samples, took)
	}
	for _, name := range []string{"idle", "uneven"} {
		if got := status(t, rec, name); got.Samples < 3 {
			t.Errorf("%s: %d samples, want more than the first and the last", name, got.Samples)
		}
	}
}

func TestEndedEarly(t *testing.T) {
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		c, _ := collector("c", FirstAndLast, func(ctx context.Context, n int, a *recording.Appender) error {
			a.Gauge(metric.Uptime, float64(n))
			return ctx.Err()
		})
		began := time.Now()
		rec := run(ctx, t, Options{Collectors: []Collector{c}, Interval: interval, Duration: 10 * time.Second})
		if took := time.Since(began); took > time.Second {
			t.Errorf("it ended %v after the start, interrupted at 0.25 s", took)
		}
		if !strings.HasPrefix(rec.Meta.EndedEarly, "interrupted after 0.") || !strings.HasSuffix(rec.Meta.EndedEarly,
			"of 10.0 s") {
			t.Errorf("ended early: %q", rec.Meta.EndedEarly)
		}
		if st := status(t, rec, "c"); st.Samples != 2 || st.Status != recording.StatusOK {
			t.Errorf("the last sample was not taken: %+v", st)
		}
	})
	t.Run("target gone", func(t *testing.T) {
		t.Parallel()
		c, _ := collector("c", EveryTick, count(metric.Uptime))
		polls, ticks := 0, 0
		rec := run(t.Context(), t, Options{
			Collectors: []Collector{c}, Interval: interval, Duration: 10 * time.Second,
			Ended: func() string {
				if polls++; polls < 2 {
					return ""
				}
				return "process 42 ended"
			},
			Tick: func(done, total time.Duration) {
				if ticks++; done <= 0 || done > total || total != 10*time.Second {
					t.Errorf("tick %v of %v", done, total)
				}
			},
		})
		if got := rec.Meta.EndedEarly; !strings.HasPrefix(got, "process 42 ended after 0.") || ticks != 2 {
			t.Errorf("ended early: %q after %d ticks", got, ticks)
		}
	})
}

func TestRunFails(t *testing.T) {
	bad := Collector{Name: "bad", Open: func(context.Context, Env) (Source, error) { return nil, fs.ErrPermission }}
	for _, tc := range []struct {
		o    Options
		want string
	}{
		{Options{Interval: 0, Duration: time.Second}, "above zero"},
		{Options{Interval: time.Second, Duration: -1}, "above zero"},
		{Options{Interval: time.Millisecond, Duration: 10 * time.Millisecond}, "no collector"},
		{
			Options{Interval: time.Millisecond, Duration: 10 * time.Millisecond, Collectors: []Collector{bad}},
			"bad: permission denied",
		},
	} {
		if rec, err := Run(t.Context(), tc.o); err == nil || rec != nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want one with %q", err, tc.want)
		}
	}
}

func TestClassify(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want recording.Status
	}{
		{fmt.Errorf("x: %w", Unavailable(recording.StatusDenied, "", "y")), recording.StatusDenied},
		{&fs.PathError{Op: "open", Path: "/x", Err: unix.ENOENT}, recording.StatusUnsupported},
		{fmt.Errorf("perf: %w", unix.EPERM), recording.StatusDenied},
		{fmt.Errorf("perf: %w", unix.EACCES), recording.StatusDenied},
		{fmt.Errorf("enter: %w", host.ErrPermission), recording.StatusDenied},
		{context.DeadlineExceeded, recording.StatusTimeout},
		{os.ErrDeadlineExceeded, recording.StatusTimeout},
		{errors.New("bad number"), recording.StatusFailed},
	} {
		if got, reason, _ := Classify(tc.err); got != tc.want || reason == "" {
			t.Errorf("%v is %s (%q), want %s", tc.err, got, reason, tc.want)
		}
	}
}

// TestFloor: an old kernel explains why a collector does not open, but forbids nothing.
func TestFloor(t *testing.T) {
	env := Env{Host: host.Local()}
	broken := errors.New("no such helper")
	for release, want := range map[string]string{
		"":     "no such helper",
		"2.6":  "no such helper",
		"99.0": "is older than 99.0, which brought helpers: no such helper",
	} {
		c := Collector{
			Name: "x", Since: Floor{Release: release, Brought: "helpers"},
			Open: func(context.Context, Env) (Source, error) { return nil, broken },
		}
		_, err := Open(t.Context(), c, env)
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("since %q: %v, want %q", release, err, want)
		}
		if st, _, remedy := Classify(err); release == "99.0" && (st != recording.StatusUnsupported ||
			remedy != "Linux 99.0 or newer") {
			t.Errorf("since %q: %s, %q", release, st, remedy)
		}
		c.Open = func(context.Context, Env) (Source, error) { return SourceFunc(nil), nil }
		if _, err := Open(t.Context(), c, env); err != nil {
			t.Errorf("since %q, and it works: %v", release, err)
		}
	}
}

func TestWanted(t *testing.T) {
	a, _ := collector("a", Once, nil)
	b := Collector{Name: "b", Provides: []metric.Metric{metric.SwapFree, metric.SwapTotal}}
	got := Wanted([]Collector{b, a}, map[string]bool{metric.SwapTotal.Describe().Name: true, metric.SwapFree.Describe().
		Name: true})
	if len(got) != 1 || got[0].Name != "b" {
		t.Errorf("wanted: %+v", got)
	}
}
