package ledger

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// record makes a recording of ten seconds. It calls each for the first reading and for the last.
func record(t *testing.T, each func(a *recording.Appender, last bool)) *recording.Recording {
	t.Helper()
	b := recording.NewBuilder()
	for _, last := range []bool{false, true} {
		a := b.Appender()
		each(a, last)
		a.Commit()
	}
	return b.Done(recording.Meta{Duration: 10})
}

// cpu appends what a thread used in the window.
func cpu(a *recording.Appender, last bool, tid, comm string, user, system, ready float64) {
	if !last {
		user, system, ready = 0, 0, 0
	}
	a.Counter(metric.ThreadCPU, user, "7", tid, comm, "user")
	a.Counter(metric.ThreadCPU, system, "7", tid, comm, "system")
	a.Counter(metric.ThreadRunDelay, ready, "7", tid, comm)
}

// TestAddsUp: counted time is taken as it is, and samples divide the rest.
func TestAddsUp(t *testing.T) {
	rec := record(t, func(a *recording.Appender, last bool) {
		cpu(a, last, "8", "worker-1", 2, 1, 1)
		cpu(a, last, "9", "worker-2", 0, 0, 0)
		if !last {
			return
		}
		a.Gauge(metric.ThreadStatePasses, 100)
		a.Gauge(metric.ThreadStateTime, 3.5, "7", "8", "worker-1", "running", "", "", "")
		a.Gauge(metric.ThreadStateTime, 4.5, "7", "8", "worker-1", "waiting", "recvfrom", "answer", "10.0.0.1:80")
		a.Gauge(metric.ThreadStateTime, 2, "7", "8", "worker-1", "waiting", "futex", "mutex", "0x1 held by thread 9")
		a.Gauge(metric.ThreadStateTime, 10, "7", "9", "worker-2", "waiting", "accept4", "client", ":80")
		a.Gauge(metric.ThreadStillTime, 10, "7", "9", "worker-2", "waiting", "accept4", "client", ":80")
	})
	l, ok := Of(rec)
	if !ok || len(l.Pools) != 1 || l.Passes != 100 {
		t.Fatalf("%+v, %v", l, ok)
	}
	p := l.Pools[0]
	want := rounded(map[Part]float64{
		User: 2, System: 1, Ready: 1, Request: 10, Answer: 6 * 4.5 / 6.5, Lock: 6 * 2 / 6.5,
	})
	if diff := cmp.Diff(want, rounded(p.Parts)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	total := 0.0
	for _, n := range p.Parts {
		total += n
	}
	if math.Abs(total-p.Wall) > 1e-9 || p.Wall != 20 || p.Threads != 2 {
		t.Errorf("parts add up to %v of %v, threads %v", total, p.Wall, p.Threads)
	}
	if p.Places[0].Part != Request || p.Places[0].Still != 1 || p.Places[1].On != "10.0.0.1:80" {
		t.Errorf("places: %+v", p.Places)
	}
	if math.Abs(p.Working()-10) > 1e-9 {
		t.Errorf("working %v, want 10", p.Working())
	}
}

// rounded removes rounding noise.
func rounded(parts map[Part]float64) map[Part]float64 {
	out := map[Part]float64{}
	for part, n := range parts {
		out[part] = math.Round(n*1e9) / 1e9
	}
	return out
}

// TestCountedMoreThanSeen: a thread that ran before it was first seen has at most the time for which it was seen.
func TestCountedMoreThanSeen(t *testing.T) {
	l, ok := Of(record(t, func(a *recording.Appender, last bool) {
		cpu(a, last, "8", "worker", 4, 0, 0)
		if last {
			a.Gauge(metric.ThreadStateTime, 2, "7", "8", "worker", "running", "", "", "")
		}
	}))
	if !ok || l.Pools[0].Wall != 2 || l.Pools[0].Parts[User] != 2 {
		t.Errorf("%+v", l.Pools[0])
	}
}

// TestTraced: the scheduler's events replace samples.
func TestTraced(t *testing.T) {
	l, ok := Of(record(t, func(a *recording.Appender, last bool) {
		cpu(a, last, "8", "worker", 1, 0, 0)
		if !last {
			return
		}
		a.Gauge(metric.ThreadStateTime, 10, "7", "8", "worker", "waiting", "read", "file", "/a")
		a.Gauge(metric.ThreadWaitTime, 9, "7", "8", "worker", "fsync", "other", "")
	}))
	if !ok || l.Pools[0].Parts[Disk] != 9 || l.Pools[0].Parts[File] != 0 {
		t.Errorf("%+v", l.Pools[0])
	}
}

// TestStoppedInWait: a thread that is stopped in a system call is stopped, whatever the scheduler's events say.
func TestStoppedInWait(t *testing.T) {
	rec := record(t, func(a *recording.Appender, last bool) {
		cpu(a, last, "8", "worker-1", 0, 0, 0)
		if !last {
			return
		}
		a.Gauge(metric.ThreadStatePasses, 100)
		a.Gauge(metric.ThreadStateTime, 7.5, "7", "8", "worker-1", "stopped", "", "", "")
		a.Gauge(metric.ThreadStateTime, 2.5, "7", "8", "worker-1", "waiting", "recvfrom", "request", ":80")
		// The scheduler sees it in its system call all the time.
		a.Gauge(metric.ThreadWaitTime, 10, "7", "8", "worker-1", "recvfrom", "request", ":80")
	})
	l, ok := Of(rec)
	if !ok || len(l.Pools) != 1 {
		t.Fatalf("%+v, %v", l, ok)
	}
	want := rounded(map[Part]float64{Stopped: 7.5, Request: 2.5})
	if diff := cmp.Diff(want, rounded(l.Pools[0].Parts)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

// TestUnsampled: time that no sample covers is reported as such.
func TestUnsampled(t *testing.T) {
	l, ok := Of(record(t, func(a *recording.Appender, last bool) {
		cpu(a, last, "8", "worker", 1, 0, 0)
		if last {
			a.Gauge(metric.ThreadStateTime, 10, "7", "8", "worker", "running", "", "", "")
		}
	}))
	if !ok || l.Pools[0].Parts[Unsampled] != 9 {
		t.Errorf("%+v", l.Pools[0])
	}
	if _, ok := Of(record(t, func(*recording.Appender, bool) {})); ok {
		t.Error("an account of nothing")
	}
}

// TestRingWorkers: a thread of io_uring outside a system call waits for work, or the disk. Any other waits for a page.
func TestRingWorkers(t *testing.T) {
	rec := record(t, func(a *recording.Appender, last bool) {
		for _, comm := range []string{"iou-wrk-7", "reader"} {
			tid := map[string]string{"iou-wrk-7": "8", "reader": "9"}[comm]
			cpu(a, last, tid, comm, 0, 0, 0)
			if last {
				a.Gauge(metric.ThreadStateTime, 7, "7", tid, comm, "waiting", "", "memory", "")
				a.Gauge(metric.ThreadStateTime, 3, "7", tid, comm, "disk", "", "memory", "")
				a.Gauge(metric.ThreadWaitTime, 10, "7", tid, comm, "", "memory", "")
			}
		}
		if last {
			a.Gauge(metric.ThreadStatePasses, 100)
		}
	})
	l, ok := Of(rec)
	if !ok {
		t.Fatal("no ledger")
	}
	got := map[string]map[Part]float64{}
	for _, p := range l.Pools {
		got[p.Name] = rounded(p.Parts)
	}
	want := map[string]map[Part]float64{"iou-wrk": {Events: 7, Disk: 3}, "reader": {Memory: 10}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLooksBeyondWindow: looks begin before the window and end after it, but the account is of the window.
func TestLooksBeyondWindow(t *testing.T) {
	l, ok := Of(record(t, func(a *recording.Appender, last bool) {
		cpu(a, last, "8", "worker", 2, 0, 0)
		if last {
			a.Gauge(metric.ThreadStateTime, 3, "7", "8", "worker", "running", "", "", "")
			a.Gauge(metric.ThreadStateTime, 9, "7", "8", "worker", "waiting", "recvfrom", "request", ":80")
		}
	}))
	if !ok || len(l.Pools) != 1 {
		t.Fatalf("%+v, %v", l, ok)
	}
	want := rounded(map[Part]float64{User: 2, Request: 8})
	if diff := cmp.Diff(want, rounded(l.Pools[0].Parts)); diff != "" || l.Pools[0].Threads != 1 {
		t.Errorf("%v threads, parts (-want +got):\n%s", l.Pools[0].Threads, diff)
	}
}

// TestEventsOfUnseen: of many threads, the ones looked at stand for all. Events of a thread that was not looked at
// belong to them.
func TestEventsOfUnseen(t *testing.T) {
	l, ok := Of(record(t, func(a *recording.Appender, last bool) {
		if !last {
			return
		}
		a.Gauge(metric.ThreadStateTime, 10, "7", "8", "worker", "waiting", "pause", "other", "")
		a.Gauge(metric.ThreadStateTime, 30, "7", "", "worker", "waiting", "pause", "other", "")
		a.Gauge(metric.ThreadWaitTime, 11, "7", "9", "worker", "pause", "other", "")
	}))
	if !ok || len(l.Pools) != 1 {
		t.Fatalf("%+v, %v", l, ok)
	}
	if p := l.Pools[0]; math.Round(p.Wall) != 40 || math.Round(p.Threads) != 4 {
		t.Errorf("%v s of %v threads, want 40 s of 4", p.Wall, p.Threads)
	}
}
