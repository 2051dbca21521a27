package collect

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// opened is a worker whose samples have taken so much CPU time.
func opened(name string, pace Pace, deep bool, cpu time.Duration) *worker {
	w := &worker{
		c: Collector{Name: name, Pace: pace, Deep: deep, Provides: []metric.Metric{metric.Uptime}},
		b: recording.NewBuilder(), cpu: cpu,
	}
	w.opened = make(chan struct{})
	close(w.opened)
	w.src = &source{sample: count(metric.Uptime)}
	return w
}

// TestOrderOfGivingUp: samples and passes go first, then the collector that took most. What did not cause it stays,
// even a deep probe.
func TestOrderOfGivingUp(t *testing.T) {
	const spent = time.Second
	workers := []*worker{
		opened("cpu", EveryTick, false, 10*time.Millisecond),
		opened("threads", EveryTick, false, 400*time.Millisecond),
		opened("sockets", FirstAndLast, false, 300*time.Millisecond), opened("bpf-scheduler", AtEnd, true, 0),
		opened("bpf-run-queue", AtEnd, true, 150*time.Millisecond), opened("thread-states", AtEnd, false, 0),
	}
	workers[5].passed(120 * time.Millisecond)
	b := NewBudget(2, 2)
	b.workers = workers
	var got []string
	for range 9 {
		got = append(got, b.giveUp(spent, "why"))
	}
	want := []string{
		"samples, and looks between them: from now on every other one",
		"looks between samples: from now on every 4th", "looks between samples: from now on every 8th",
		"the collector threads, which took most (0.40 s)", "the collector sockets, which took most (0.30 s)",
		"the collector bpf-run-queue, which took most (0.15 s)",
		"the collector thread-states, which took most (0.12 s)", "", "",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := b.rest(time.Second); got != 8*time.Second {
		t.Errorf("a second between passes becomes %s, want 8", got)
	}
	for _, w := range workers {
		st, _ := w.report()
		given := slices.Contains([]string{"threads", "sockets", "bpf-run-queue", "thread-states"}, w.c.Name)
		if given != (st.Status == recording.StatusBudget) || given && st.Remedy == "" {
			t.Errorf("%s: status %q (%s), remedy %q", w.c.Name, st.Status, st.Reason, st.Remedy)
		}
		if src, ok := w.src.(*source); ok && given || !given && ok && src.closed.Load() != 1 {
			t.Errorf("%s: its source was not closed once", w.c.Name)
		}
	}
}

// TestTicks: between the first and the last sample, at least every other one is taken.
func TestTicks(t *testing.T) {
	b := NewBudget(100, 1000) // never used up
	b.restart(time.Now(), ownCPU())
	for rarer, want := range []int{16, 8, 8, 8} {
		b.rarer.Store(uint32(rarer))
		n := 0
		for tick := 1; tick <= 16; tick++ {
			if b.check(tick) {
				n++
			}
		}
		if n != want {
			t.Errorf("%d samples in 16 intervals, want %d", n, want)
		}
	}
}

// TestCheck takes a step whenever too much was used and keeps the reason for the report. It takes samples more often
// again when little is used.
func TestCheck(t *testing.T) {
	began := time.Now()
	b := NewBudget(2, 2)
	w := opened("threads", EveryTick, false, 0)
	b.join([]*worker{w})
	b.check(1)
	if given := b.givenUp(began); given != nil {
		t.Fatalf("at once: %+v", given)
	}
	b.used -= time.Second // as if so much had been used
	w.cpu = time.Second
	b.check(2)
	given := b.givenUp(began)
	if len(given) != 1 || !strings.Contains(given[0].Text(), "2 % of 2 CPUs (--budget)") || b.rarer.Load() != 1 {
		t.Errorf("given up: %+v, want samples, and why", given)
	}
	b.check(3)
	b.since = b.since.Add(-2 * period) // as if so long had passed with nothing used
	b.check(4)
	if b.rarer.Load() != 0 || len(b.givenUp(began)) != 1 {
		t.Errorf("every %d intervals after a calm period, given up %+v", 1<<b.rarer.Load(), b.givenUp(began))
	}
	if later := b.givenUp(time.Now()); later != nil {
		t.Errorf("a recording that begins now has %+v", later)
	}
	var none *Budget
	none.join(nil)
	if !none.check(3) || none.givenUp(began) != nil {
		t.Error("no budget gives something up")
	}
}

// TestGivenUpInARun: what a collector measured until then stays, with less confidence. The others go on.
func TestGivenUpInARun(t *testing.T) {
	b := NewBudget(100, 1000)
	given, src := collector("given", EveryTick, func(_ context.Context, n int, a *recording.Appender) error {
		a.Gauge(metric.Uptime, float64(n))
		if n == 1 {
			for _, w := range b.workers {
				if w.c.Name == "given" {
					w.giveUp("of a test")
				}
			}
		}
		return nil
	})
	other, _ := collector("other", EveryTick, count(metric.ProcsRunning))
	other.Provides = []metric.Metric{metric.ProcsRunning}
	rec := run(t.Context(), t, Options{Collectors: []Collector{given, other}, Budget: b})
	if st := status(t, rec, "given"); st.Status != recording.StatusBudget || st.Samples != 2 || src.closed.Load() != 1 {
		t.Errorf("%+v, closed %d times", st, src.closed.Load())
	}
	if !rec.Recorded(metric.Uptime) || len(rec.Losses([]metric.Metric{metric.Uptime})) != 1 {
		t.Errorf("recorded %t, losses %q", rec.Recorded(metric.Uptime), rec.Losses([]metric.Metric{metric.Uptime}))
	}
	if st := status(t, rec, "other"); st.Status != recording.StatusOK {
		t.Errorf("the other: %+v", st)
	}
}
