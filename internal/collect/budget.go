package collect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// A Budget is the CPU time that perfdoctor may use while it observes, of all collectors of all runs that share it. Past
// it something is given up, one step at a time: the deep probes first, then the frequency of samples, then the
// collector that costs most.
type Budget struct {
	cpus float64 // that may be used
	text string  // the limit in words

	mu      sync.Mutex
	workers []*worker
	since   time.Time // when the last step was taken, or the first run's collectors were open
	used    time.Duration
	rarer   uint // samples between the first and the last are taken every 2^rarer-th time only
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
	// mostRarer takes samples every 8th time: with fewer a window of ten seconds has none between the first and the
	// last.
	mostRarer = 3
	// leastOfSpent is the share of what was spent that a collector must have taken to be given up: else it is not the
	// reason.
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
		if b.rarer > 0 && spent < allowed/4 { // a step doubles the samples
			b.rarer--
		}
		b.restart(now, used)
	}
	return n&(1<<b.rarer-1) == 0
}

func (b *Budget) why(spent, passed time.Duration) string {
	return fmt.Sprintf("perfdoctor used %.2f s of CPU time in %.1f s, and may use %s", spent.Seconds(),
		passed.Seconds(), b.text)
}

// giveUp takes the next step and says what it was, "" if there is nothing left that would help.
func (b *Budget) giveUp(spent time.Duration, why string) (what string) {
	var deep []string
	for _, w := range b.workers {
		if w.c.Deep && w.giveUp(why) {
			deep = append(deep, w.c.Name)
		}
	}
	if len(deep) > 0 {
		slices.Sort(deep)
		return fmt.Sprintf("the deep probes (%s)", strings.Join(slices.Compact(deep), ", "))
	}
	if b.rarer < mostRarer && slices.ContainsFunc(b.workers, (*worker).often) {
		b.rarer++
		return fmt.Sprintf("samples: from now on every %d intervals", 1<<b.rarer)
	}
	costliest := slices.MaxFunc(append(slices.Clone(b.workers), &worker{}),
		func(x, y *worker) int { return cmp.Compare(x.spent(), y.spent()) })
	if took := costliest.spent(); took >= time.Duration(leastOfSpent*float64(spent)) && costliest.giveUp(why) {
		return fmt.Sprintf("the collector %s, which took most (%.2f s)", costliest.c.Name, took.Seconds())
	}
	return ""
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

// often tells that the collector samples between the first and the last.
func (w *worker) often() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.c.Pace == EveryTick && w.src != nil
}

// spent is the CPU time of its samples since the last step.
func (w *worker) spent() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.src == nil {
		return 0
	}
	return w.cpu
}

// giveUp closes the collector, or has it closed as soon as its sample or Open returns. It is false for one that could
// not be opened.
func (w *worker) giveUp(why string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.given != nil || w.src == nil && w.isOpened() {
		return false
	}
	w.given = Unavailable(recording.StatusBudget, "give perfdoctor more with --budget, observe a smaller target, or "+
		"leave --deep out",
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
