package ebpf

import (
	"context"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// inKernel is a set of programs that its user runs: [Sockets] or [Bandwidth].
type inKernel interface {
	AppendCost(a *recording.Appender) error
	Close() error
}

// A Background loads programs beside the first samples of a collector, since loading takes longer than an interval may
// be. Until they are loaded, and where they may not be, the collector has another way to measure the same. A nil
// Background never has any.
type Background[T inKernel] struct {
	loaded   chan struct{} // closed when the fields below are set
	programs T
	err      error // nil: the programs are there
	cancel   context.CancelFunc
}

// Load begins to load with open, whose context ends with [Background.Close].
func Load[T inKernel](l *Loader, open func(context.Context) (T, error)) *Background[T] {
	done := l.Keep()
	ctx, cancel := context.WithCancel(context.Background()) // not that of the first sample, which ends sooner
	b := &Background[T]{loaded: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(b.loaded)
		defer done()
		b.programs, b.err = firewall.Parse("programs of the kernel", func() (T, error) { return open(ctx) })
	}()
	return b
}

// Wait waits until the programs are loaded, or returns why they cannot be.
func (b *Background[T]) Wait() error {
	<-b.loaded
	return b.err
}

// Ready returns the programs once they are loaded. ok is false before that, and if they cannot be loaded.
func (b *Background[T]) Ready() (programs T, ok bool) {
	if !b.ended() || b.err != nil {
		return programs, false
	}
	return b.programs, true
}

// Append records what the programs cost, or why there are none and what the collector does instead.
func (b *Background[T]) Append(a *recording.Appender, instead string) error {
	if !b.ended() {
		return nil
	}
	if b.err == nil {
		return b.programs.AppendCost(a)
	}
	st, reason, remedy := collect.Classify(b.err)
	for _, m := range Costs() {
		a.Missing(m, st, reason+"; so "+instead, remedy)
	}
	return nil
}

// Close ends a load that is under way, and unloads the programs.
func (b *Background[T]) Close() error {
	if b == nil {
		return nil
	}
	b.cancel()
	if b.Wait() != nil {
		return nil //nolint:nilerr // nothing was loaded, as was recorded
	}
	return b.programs.Close()
}

// ended reports whether the load is over, one way or the other.
func (b *Background[T]) ended() bool {
	if b == nil {
		return false
	}
	select {
	case <-b.loaded:
		return true
	default:
		return false
	}
}
