package collect_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// counting is a collector of a counter that rises by one with each sample. It starts at zero at each Open.
func counting(m *metric.Counter, pace collect.Pace) (collect.Collector, *atomic.Int64, *atomic.Int64) {
	var opened, closed atomic.Int64
	return collect.Collector{
		Name: "counting", Provides: []metric.Metric{m}, Pace: pace,
		Open: func(context.Context, collect.Env) (collect.Source, error) {
			opened.Add(1)
			return &counter{metric: m, closed: &closed}, nil
		},
	}, &opened, &closed
}

type counter struct {
	metric *metric.Counter
	n      float64
	closed *atomic.Int64
}

func (c *counter) Sample(_ context.Context, a *recording.Appender) error {
	c.n++
	a.Counter(c.metric, c.n)
	return nil
}

func (c *counter) Close() error { c.closed.Add(1); return nil }

// windows collects n windows of four seconds.
func windows(t *testing.T, n int, cs ...collect.Collector) []*recording.Recording {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out []*recording.Recording
	err := collect.Windows(ctx, collect.Options{
		Env: collect.Env{Host: host.Local()}, Collectors: cs, Interval: time.Second, Duration: 4 * time.Second,
	}, func(rec *recording.Recording) {
		if out = append(out, rec); len(out) == n {
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func values(rec *recording.Recording, m *metric.Counter) []float64 {
	var out []float64
	for _, s := range rec.Counter(m) {
		for _, p := range s.Points {
			out = append(out, p.Value)
		}
	}
	return out
}

func TestWindowsHaveNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, opened, closed := counting(metric.Forks, collect.EveryTick)
		recs := windows(t, 3, c)
		for i, want := range [][]float64{{1, 2, 3, 4, 5}, {5, 6, 7, 8, 9}, {9, 10, 11, 12, 13}} {
			if diff := cmp.Diff(want, values(recs[i], metric.Forks)); diff != "" {
				t.Errorf("window %d (-want +got):\n%s", i, diff)
			}
			if d := recs[i].Meta.Duration; d != 4 {
				t.Errorf("window %d is of %v s", i, d)
			}
		}
		if opened.Load() != 1 || closed.Load() != 1 {
			t.Errorf("opened %d times, closed %d times, want once each", opened.Load(), closed.Load())
		}
	})
}

func TestWindowsReadCostlyCountersAtTheirEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := counting(metric.Forks, collect.FirstAndLast)
		recs := windows(t, 2, c)
		if diff := cmp.Diff([][]float64{{1, 2}, {2, 3}}, [][]float64{
			values(recs[0], metric.Forks),
			values(recs[1], metric.Forks),
		}); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestWindowsOpenAnewWhatIsReadAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, opened, closed := counting(metric.Forks, collect.AtEnd)
		for i, rec := range windows(t, 3, c) {
			if diff := cmp.Diff([]float64{1}, values(rec, metric.Forks)); diff != "" {
				t.Errorf("window %d (-want +got):\n%s", i, diff)
			}
		}
		if opened.Load() < 3 || opened.Load() != closed.Load() {
			t.Errorf("opened %d times, closed %d times", opened.Load(), closed.Load())
		}
	})
}

// A collector must also drop what it keeps of things that are gone. A counter that starts at zero again must not look
// like a rise from its old value.
func TestWindowsOpenAnewAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, opened, closed := counting(metric.Forks, collect.EveryTick)
		recs := windows(t, 400, c)
		if opened.Load() != 3 || closed.Load() != 3 { // at the start, and after 10 and 20 minutes
			t.Errorf("in 27 minutes opened %d times, closed %d times", opened.Load(), closed.Load())
		}
		for i, rec := range recs {
			v := values(rec, metric.Forks)
			if len(v) < 4 || v[len(v)-1]-v[0] != float64(len(v)-1) {
				t.Errorf("window %d has %v", i, v)
			}
		}
	})
}

func TestWindowsCarryFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		fact := collect.Collector{
			Name: "fact", Provides: []metric.Metric{metric.HostInfo}, Pace: collect.Once,
			Open: func(context.Context, collect.Env) (collect.Source, error) {
				return collect.SourceFunc(func(_ context.Context, a *recording.Appender) error {
					reads++
					time.Sleep(5 * time.Millisecond) // which it may spend every ten seconds
					labels := make([]string, len(metric.HostInfo.Describe().Labels))
					labels[0] = string(rune('a' + reads))
					a.Info(metric.HostInfo, labels...)
					return nil
				}), nil
			},
		}
		const n = 30 // two minutes
		for i, rec := range windows(t, n, fact) {
			if got := len(rec.Info(metric.HostInfo)); got != 1 {
				t.Errorf("window %d has %d facts, want the latest one", i, got)
			}
			if st := rec.Meta.Collectors[0]; st.Status != recording.StatusOK {
				t.Errorf("window %d: %+v", i, st)
			}
		}
		if reads < 5 || reads > 14 {
			t.Errorf("the fact was read %d times in two minutes", reads)
		}
	})
}

// A collector that takes too much CPU time at the ends of windows is left out of some. What it read last stands for
// these windows, but nothing of what was gone by then.
func TestWindowsSpareWhatIsCostly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		costly := collect.Collector{
			Name: "costly", Provides: []metric.Metric{metric.DestinationSmaller, metric.SynSentRetrans}, Share: 0.005,
			Open: func(context.Context, collect.Env) (collect.Source, error) {
				return collect.SourceFunc(func(_ context.Context, a *recording.Appender) error {
					reads++
					// 10 s, at the share that it may have
					for began := threadTime(t); threadTime(t)-began < 20*time.Millisecond; {
						continue
					}
					a.Gauge(metric.DestinationSmaller, float64(reads))
					a.Gauge(metric.SynSentRetrans, 1, string(rune('a'+reads)))
					return nil
				}), nil
			},
		}
		const n = 30 // two minutes
		for i, rec := range windows(t, n, costly) {
			if st := rec.Meta.Collectors[0]; st.Status != recording.StatusOK {
				t.Errorf("window %d: %+v", i, st)
			}
			last := rec.Gauge(metric.DestinationSmaller)
			if len(last) != 1 {
				t.Fatalf("window %d has %d readings' series", i, len(last))
			}
			// the one at its beginning and the one at its end
			if got := len(rec.Gauge(metric.SynSentRetrans)); got > 2 {
				t.Errorf("window %d has %d destinations, of which all but one are gone", i, got)
			}
		}
		if reads < 3 || reads > n/2 {
			t.Errorf("%d reads in %d windows", reads, n)
		}
	})
}

// threadTime is the CPU time of the thread, which a sample keeps.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used); err != nil {
		t.Error(err)
	}
	return time.Duration(used.Nano())
}

// A collector that hangs loses its own metrics, in each window. The others and the windows go on.
func TestWindowsGoOnBesideWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := counting(metric.Forks, collect.EveryTick)
		release := make(chan struct{})
		hanging := collect.Collector{
			Name: "hanging", Provides: []metric.Metric{metric.ProcsRunning},
			Open: func(context.Context, collect.Env) (collect.Source, error) {
				return collect.SourceFunc(func(context.Context, *recording.Appender) error { <-release; return nil }),
					nil
			},
		}
		deaf := collect.Collector{
			Name: "deaf", Provides: []metric.Metric{metric.ProcsBlocked},
			Open: func(context.Context, collect.Env) (collect.Source, error) {
				<-release
				return nil, errors.New("released")
			},
		}
		began := time.Now()
		recs := windows(t, 10, c, hanging, deaf)
		if took := time.Since(began); took > 50*time.Second {
			t.Errorf("10 windows of 4 s took %v", took)
		}
		for i, rec := range recs {
			if len(values(rec, metric.Forks)) < 4 {
				t.Errorf("window %d has no counters of the one that works", i)
			}
			for _, st := range rec.Meta.Collectors[1:] {
				if st.Status != recording.StatusTimeout {
					t.Errorf("window %d: %+v", i, st)
				}
			}
		}
		close(release)
	})
}

// A failed sample costs its own window, not the following ones.
func TestWindowsForgetFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		shaky := collect.Collector{
			Name: "shaky", Provides: []metric.Metric{metric.Forks},
			Open: func(context.Context, collect.Env) (collect.Source, error) {
				return collect.SourceFunc(func(_ context.Context, a *recording.Appender) error {
					if n++; n == 7 {
						panic("the seventh")
					}
					a.Counter(metric.Forks, float64(n))
					return nil
				}), nil
			},
		}
		var got []recording.Status
		for _, rec := range windows(t, 3, shaky) {
			got = append(got, rec.Meta.Collectors[0].Status)
		}
		if diff := cmp.Diff([]recording.Status{recording.StatusOK, recording.StatusFailed, recording.StatusOK},
			got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// slowToClose takes a while to undo its changes to the host. It counts its calls of Close.
type slowToClose struct {
	counter
	takes  time.Duration
	closes atomic.Int64
}

func (s *slowToClose) Close() error {
	s.closes.Add(1)
	time.Sleep(s.takes)
	return s.counter.Close()
}

// TestWindowsEndWithWhatIsRenewed: the run ends while a collector is reopened. Nothing of it is left open or closed
// twice, and the run waits for what is being undone: the process ends after it.
func TestWindowsEndWithWhatIsRenewed(t *testing.T) {
	for _, takes := range []time.Duration{0, 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var closed atomic.Int64
			var sources []*slowToClose
			windows(t, 3, collect.Collector{
				Name: "slow", Provides: []metric.Metric{metric.Forks}, Pace: collect.AtEnd,
				Open: func(ctx context.Context, _ collect.Env) (collect.Source, error) {
					if err := ctx.Err(); err != nil {
						return nil, err
					}
					s := &slowToClose{counter: counter{metric: metric.Forks, closed: &closed}, takes: takes}
					sources = append(sources, s)
					return s, nil
				},
			})
			if n := int(closed.Load()); n != len(sources) {
				t.Errorf("%d of %d sources are closed when the run has ended", n, len(sources))
			}
			synctest.Wait()
			for i, s := range sources {
				if n := s.closes.Load(); n != 1 {
					t.Errorf("source %d was closed %d times", i, n)
				}
			}
		})
	}
}
