package collect

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
)

// Passes bounds the cost of background passes.
type Passes struct {
	Share          float64       // of one CPU
	Least, Longest time.Duration // between two passes
}

// A Watch makes passes in a goroutine of its own, for a collector that is read at the end of a window.
type Watch struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	err    error
}

// Watch makes passes until [Watch.Stop], or until one fails. The time between two passes is random, so that a
// program's own rhythm is not mistaken for its state. It is longest after an idle pass, which found nothing to look
// at. what names the passes in the error of a pass that panicked. Passes count towards the collector that env opens,
// and become rarer if the budget is used up.
func (env Env) Watch(ctx context.Context, what string, p Passes,
	pass func(context.Context) (idle bool, err error),
) *Watch {
	w := &Watch{}
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx)) // the context of opening a collector ends earlier
	w.done.Go(func() {
		w.err = firewall.Run(what, func() error { return env.watch(ctx, p, pass) })
	})
	return w
}

func (env Env) watch(ctx context.Context, p Passes, pass func(context.Context) (idle bool, err error)) error {
	var budget *Budget
	if env.worker != nil {
		budget = env.worker.budget
	}
	for ctx.Err() == nil {
		// On full CPUs a pass waits longer than it runs: what counts is the thread's CPU time. No thread is kept
		// between passes, because another thread would have to wake it.
		runtime.LockOSThread()
		began := ThreadCPU()
		idle, err := pass(ctx)
		cost := ThreadCPU() - began + wakeCost
		runtime.UnlockOSThread()
		env.worker.passed(cost)
		if err != nil && ctx.Err() == nil { // otherwise the end cut it short
			return err
		}
		period := budget.rest(p.period(cost, idle))
		_ = clock.Sleep(ctx, period/2+rand.N(period)) // fails at the end
	}
	return nil
}

// wakeCost is what a pass costs besides its thread's time: the runtime's timer, its monitor (sysmon), which starts to
// wake every 20 µs again, and threads that are woken. Measured with Go 1.26 on Linux 6.18: 0.06 to 0.2 ms.
const wakeCost = 100 * time.Microsecond

// mostShare is the share of a CPU that passes may take if each is so expensive that with the longest rest they would
// take more: a pass over 10,000 threads takes 0.02 to 0.2 s, and a few of them say as much as many passes over a
// hundred threads.
const mostShare = 0.01

// period returns how long to wait after a pass, so that its cost is the share, within the bounds.
func (p Passes) period(cost time.Duration, idle bool) time.Duration {
	longest := max(p.Longest, time.Duration(float64(cost)/mostShare))
	if idle {
		return longest
	}
	return min(max(time.Duration(float64(cost)/p.Share), p.Least), longest)
}

// Stop ends the passes, and returns the error of the pass that failed. It may be called again.
func (w *Watch) Stop() error {
	w.cancel()
	w.done.Wait()
	return w.err
}
