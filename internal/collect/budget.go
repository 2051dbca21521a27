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

// A Budget is the CPU time that perfdoctor may use while it observes, of all collectors of all runs that share it. Past
// it something is given up, one step at a time: how often samples and passes in the background are taken first, then
// the collector that costs most.
type Budget struct {
	cpus float64 // that may be used
	text string  // the limit in words

	// Passes in the background are made every 2^rarer-th time only, and samples between the first and the last every
	// other time from its first step on. It is atomic, as a pass asks for it that somebody with the lock may wait for.
	rarer atomic.Uint32

	mu      sync.Mutex
	workers []*worker
	since   time.Time // when the last step was taken, or the first run's collectors were open
	used    time.Duration
	given   []givenUp
}

// givenUp is one step.
type givenUp struct {
	at        time.Time
	what, why string
}

// NewBudget gives the budget of so many percent of so many CPUs. Of none nothing is ever given up.
func NewBudget(percent float64, cpus int) *Budget {
	return &Budget{cpus: percent / 100 * float64(cpus), text: fmt.Sprintf("%g %% of %d CPUs (--budget)", percent, cpus)}
}

const (
	// period is how long CPU time is added up, if it is not too much before: what was saved in an hour is not to be
	// spent in a minute.
	period = 10 * time.Second
	// unevenness is CPU time that is forgiven in each period: a sample that is due once, the collector of garbage, or
	// names that are looked up for the first time. What is too much for long is more soon.
	unevenness = 100 * time.Millisecond
	// mostRarer takes passes in the background every 8th time: with fewer a window of ten seconds has hardly any.
	mostRarer = 3
	// mostRareSamples takes samples every other time: of ten seconds there are six then, and rules that take means want
	// five. They cost less than passes.
	mostRareSamples = 1
	// leastOfSpent is the share of what was spent that samples and passes, or a collector, must have taken to be given
	// up: else they are not the reason.
	leastOfSpent = 0.1
)

// join adds a run's collectors, and begins to count once they have their first samples.
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

// leave takes them out again.
func (b *Budget) leave(workers []*worker) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.workers = slices.DeleteFunc(b.workers, func(w *worker) bool { return slices.Contains(workers, w) })
}

// forgive leaves out what opening a collector took: it is paid once, and saves nothing to give up. BPF programs take
// 0.1 s.
func (b *Budget) forgive(used time.Duration) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += used
}

// restart begins to count anew.
func (b *Budget) restart(now time.Time, used time.Duration) {
	b.since, b.used = now, used
	for _, w := range b.workers {
		w.mu.Lock()
		w.cpu = 0
		w.mu.Unlock()
		w.passes.Store(0)
	}
}

// check takes a step if more was used than may be, and tells whether samples are to be taken at the n-th tick.
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

// giveUp takes the next step and says what it was, "" if there is nothing left that would help. What a probe's programs
// take in the kernel is no time of this process, and has bounds of its own: a deep one is given up as any other is.
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

// rest lengthens the time between two passes in the background as that between samples is.
func (b *Budget) rest(period time.Duration) time.Duration {
	if b == nil {
		return period
	}
	return period << b.rarer.Load()
}

// givenUp says what was given up since then.
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

// maxGivenUp bounds the steps that are remembered: an exporter runs for months, and opens what it gave up every ten
// minutes.
const maxGivenUp = 100

// oftenSpent is the CPU time since the last step of what is done less often where the budget is used up: samples
// between the first and the last, and passes in the background.
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

// spent is the CPU time of its samples and passes since the last step.
func (w *worker) spent() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.src == nil {
		return 0
	}
	return w.cpu + time.Duration(w.passes.Load())
}

// passed adds the CPU time of a pass in the background.
func (w *worker) passed(cpu time.Duration) {
	if w != nil {
		w.passes.Add(int64(cpu))
	}
}

// giveUp closes the collector, or has it closed as soon as its sample or Open returns. It is false for one that could
// not be opened.
func (w *worker) giveUp(why string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.given != nil || w.src == nil && w.isOpened() {
		return false
	}
	w.given = Unavailable(recording.StatusBudget, "give perfdoctor more with --budget, or observe a smaller target",
		"it was given up: %s", why)
	if w.busy == nil && w.src != nil {
		_ = w.closeSource(w.src) // what could not be undone now is undone at the end of the process
		w.src = nil
	}
	return true
}

// isOpened tells whether Open has returned. The worker is locked.
func (w *worker) isOpened() bool {
	select {
	case <-w.opened:
		return true
	default:
		return false
	}
}
