package scenario

import (
	"strconv"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// A follower records what a load measures during the diagnosis, so that a comparison knows the requests and their
// latencies.
type follower struct {
	*process
	builder *recording.Builder
	first   *recording.Appender // the first moment, for values that are known only at the end
	began   time.Time
	ended   chan struct{}
	once    sync.Once
	done    sync.WaitGroup
}

// followPoll is how often a load's process is asked for a new report. The process makes ten reports a second. A
// report counts for the time at which it is seen: polling later would set one second's requests against another
// second's CPU time.
const followPoll = 10 * time.Millisecond

// follow starts a follower. It takes the first report of each interval.
func (p *process) follow(interval time.Duration) *follower {
	b := recording.NewBuilder()
	f := &follower{process: p, builder: b, first: b.Appender(), began: time.Now(), ended: make(chan struct{})}
	if p.child != nil {
		f.done.Go(func() { f.watch(interval) })
	}
	return f
}

// stop ends the follower. It may be called more than once.
func (f *follower) stop() {
	f.once.Do(func() { close(f.ended) })
	f.done.Wait()
}

func (f *follower) watch(interval time.Duration) {
	tick := time.NewTicker(followPoll)
	defer tick.Stop()
	seen, due := f.child.Stats().Elapsed, time.Now()
	for {
		select {
		case <-f.ended:
			return
		case now := <-tick.C:
			s := f.child.Stats()
			if s.Elapsed == seen || now.Before(due) {
				continue
			}
			seen, due = s.Elapsed, due.Add(interval)
			f.take(s)
		}
	}
}

func (f *follower) take(s lab.Stats) {
	a := f.builder.Appender()
	a.Counter(metric.LoadRequests, float64(s.Units), f.Name)
	a.Counter(metric.LoadErrors, float64(s.ErrorCount()), f.Name)
	if s.Latency.Max > 0 { // a server of package load does not measure it
		s.EachTime(func(atMost time.Duration, n uint64) {
			a.Counter(metric.LoadDurations, float64(n), f.Name, strconv.FormatFloat(atMost.Seconds(), 'g', 4, 64))
		})
	}
	a.Commit()
}

// into returns the recording with what was seen added. m is what an external load generator said at its end.
func (f *follower) into(rec *recording.Recording, m measures) *recording.Recording {
	f.stop()
	if f.other != nil {
		for name, g := range map[string]*metric.Gauge{Throughput: metric.LoadRate, P99: metric.LoadP99} {
			if n, ok := m[name]; ok {
				f.first.Gauge(g, n, f.Name)
			}
		}
	}
	f.first.Commit()
	meta := rec.Meta
	meta.Started = f.began.UTC()
	if f.other != nil {
		meta.Started = rec.Meta.Started // what holds for the whole run holds for the window
	}
	other := f.builder.Done(meta)
	with, _ := rec.With(other, metric.LoadRequests, metric.LoadErrors, metric.LoadDurations, metric.LoadRate,
		metric.LoadP99)
	return with
}
