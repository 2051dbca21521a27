package collect

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// A Budget is the CPU time that perfdoctor may use while it observes, for all collectors of all runs that share it.
// If it is exceeded, something is given up, one step at a time: first the rate of samples and background passes, then
// the collector that costs most.
type Budget struct {
	cpus float64 // that may be used
	text string  // the limit in words

	// Only every 2^rarer-th background pass is made and, from the first step on, only every other sample between the
	// first and the last. It is atomic, because a holder of the lock may wait for a pass that reads it.
	rarer atomic.Uint32

	mu      sync.Mutex
	workers []*worker
	since   time.Time // when the last step was taken, or the first run's collectors were opened
	used    time.Duration
	given   []givenUp
}

// A givenUp is one step.
type givenUp struct {
	at        time.Time
	what, why string
}

// NewBudget returns the budget of so many percent of so many CPUs. With a budget of zero nothing is ever given up.
func NewBudget(percent float64, cpus int) *Budget {
	return &Budget{cpus: percent / 100 * float64(cpus), text: fmt.Sprintf("%g %% of %d CPUs (--budget)", percent, cpus)}
}

const (
	// period is how long CPU time is added up unless it exceeds the budget earlier: what was saved in an hour must
	// not be spent in a minute.
	period = 10 * time.Second
	// unevenness is CPU time that is forgiven in each period: a sample that is due once, the garbage collector, or
	// names that are looked up for the first time. A lasting excess soon exceeds it.
	unevenness = 100 * time.Millisecond
	// mostRarer makes every 8th background pass: with fewer a window of ten seconds has hardly any.
	mostRarer = 3
	// mostRareSamples takes every other sample: ten seconds then have six, and rules that take means need five.
	// Samples cost less than passes.
	mostRareSamples = 1
	// leastOfSpent is the share of the spent time that samples and passes, or a collector, must have taken to be
	// given up: with less they are not the reason.
	leastOfSpent = 0.1
)

// join adds a run's collectors, and starts counting once they have their first samples.
func (b *Budget) join(workers []*worker) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.workers = append(b.workers, workers...)
	if b.since.IsZero() {
		b.restart(time.Now(), ownCPU())
	}
}

// leave removes them again.
func (b *Budget) leave(workers []*worker) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.workers = slices.DeleteFunc(b.workers, func(w *worker) bool { return slices.Contains(workers, w) })
}

// forgive leaves out the cost of opening a collector: it is paid once, and giving up cannot save it. BPF programs
// take 0.1 s.
func (b *Budget) forgive(used time.Duration) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += used
}

// restart starts counting anew.
func (b *Budget) restart(now time.Time, used time.Duration) {
	b.since, b.used = now, used
	for _, w := range b.workers {
		w.mu.Lock()
		w.cpu = 0
		w.mu.Unlock()
		w.passes.Store(0)
	}
}

// check takes a step if the budget is exceeded, and reports whether to take samples at the n-th tick.
func (b *Budget) check(n int) (sample bool) {
	if b == nil || b.cpus <= 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now, used := time.Now(), ownCPU()
	spent, passed := used-b.used, now.Sub(b.since)
	allowed := time.Duration(b.cpus * float64(passed))
	switch why := b.why(spent, passed); {
	case spent > allowed+unevenness:
		if what := b.giveUp(spent, why); what != "" {
			b.given = append(b.given, givenUp{now, what, why})
		}
		b.restart(now, used)
	case passed >= period:
		if b.rarer.Load() > 0 && spent < allowed/4 { // a step doubles the samples
			b.rarer.Add(^uint32(0))
		}
		b.restart(now, used)
	}
	return n&(1<<min(b.rarer.Load(), mostRareSamples)-1) == 0
}

func (b *Budget) why(spent, passed time.Duration) string {
	return fmt.Sprintf("perfdoctor used %.2f s of CPU time in %.1f s, and may use %s", spent.Seconds(),
		passed.Seconds(), b.text)
}

// giveUp takes the next step and returns what it was, "" if nothing is left that would help. What a probe's programs
// take in the kernel is not time of this process, and has its own bounds: a deep probe is given up like any other.
func (b *Budget) giveUp(spent time.Duration, why string) (what string) {
	least := time.Duration(leastOfSpent * float64(spent))
	var often time.Duration
	for _, w := range b.workers {
		often += w.oftenSpent()
	}
	if b.rarer.Load() < mostRarer && often >= least {
		if n := b.rarer.Add(1); n > mostRareSamples {
			return fmt.Sprintf("looks between samples: from now on every %dth", 1<<n)
		}
		return "samples, and looks between them: from now on every other one"
	}
	costliest := slices.MaxFunc(append(slices.Clone(b.workers), &worker{}),
		func(x, y *worker) int { return cmp.Compare(x.spent(), y.spent()) })
	if took := costliest.spent(); took >= least && costliest.giveUp(why) {
		return fmt.Sprintf("the collector %s, which took most (%.2f s)", costliest.c.Name, took.Seconds())
	}
	return ""
}

// rest lengthens the time between two background passes like the time between samples.
func (b *Budget) rest(period time.Duration) time.Duration {
	if b == nil {
		return period
	}
	return period << b.rarer.Load()
}

// givenUp returns what was given up since then.
func (b *Budget) givenUp(since time.Time) (out []recording.GivenUp) {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.given {
		if !g.at.Before(since) {
			out = append(out, recording.GivenUp{At: g.at.Sub(since).Seconds(), What: g.what, Why: g.why})
		}
	}
	if len(b.given) > maxGivenUp {
		b.given = slices.Clone(b.given[len(b.given)-maxGivenUp:])
	}
	return out
}

// maxGivenUp bounds the remembered steps: an exporter runs for months, and reopens what it gave up every ten minutes.
const maxGivenUp = 100

// oftenSpent returns the CPU time since the last step of what becomes rarer if the budget is used up: samples between
// the first and the last, and background passes.
func (w *worker) oftenSpent() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	passes := time.Duration(w.passes.Load())
	switch {
	case w.src == nil:
		return 0
	case w.c.Pace == EveryTick:
		return w.cpu + passes
	}
	return passes
}

// spent returns the CPU time of its samples and passes since the last step.
func (w *worker) spent() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.src == nil {
		return 0
	}
	return w.cpu + time.Duration(w.passes.Load())
}

// passed adds the CPU time of a background pass.
func (w *worker) passed(cpu time.Duration) {
	if w != nil {
		w.passes.Add(int64(cpu))
	}
}

// giveUp closes the collector, or has it closed as soon as its sample or Open returns. It returns false for a
// collector that could not be opened.
func (w *worker) giveUp(why string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.given != nil || w.src == nil && w.isOpened() {
		return false
	}
	w.given = Unavailable(recording.StatusBudget, "give perfdoctor more with --budget, or observe a smaller target",
		"it was given up: %s", why)
	if w.busy == nil && w.src != nil {
		_ = w.closeSource(w.src) // what cannot be undone now is undone at the end of the process
		w.src = nil
	}
	return true
}

// isOpened reports whether Open has returned. The worker must be locked.
func (w *worker) isOpened() bool {
	select {
	case <-w.opened:
		return true
	default:
		return false
	}
}
