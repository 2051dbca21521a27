package sockets

import (
	"context"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/ebpf"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// programs are the iterators in the kernel. They are loaded beside the first samples, since that takes longer than an interval may
// be; until then, and where they may not be loaded, sock_diag and /proc/PID/fd tell the same.
type programs struct {
	loaded  chan struct{}
	sockets *ebpf.Sockets // nil: err says why
	err     error
	cancel  context.CancelFunc
}

// load begins to load.
func load(l *ebpf.Loader, env collect.Env, pid int) *programs {
	ctx, cancel := context.WithCancel(context.Background()) // not that of the first sample, which ends sooner
	p := &programs{loaded: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(p.loaded)
		p.sockets, p.err = ebpf.OpenSockets(ctx, l, env, pid)
	}()
	return p
}

// ready gives the iterators once they are loaded, nil before that and when they cannot be.
func (p *programs) ready() *ebpf.Sockets {
	if p == nil {
		return nil
	}
	select {
	case <-p.loaded:
		return p.sockets
	default:
		return nil
	}
}

// append records what the programs cost, or why there are none.
func (p *programs) append(a *recording.Appender) error {
	if p == nil {
		return nil
	}
	if s := p.ready(); s != nil {
		return s.AppendCost(a)
	}
	select {
	case <-p.loaded:
		st, reason, remedy := collect.Classify(p.err)
		for _, m := range ebpf.Costs() {
			a.Missing(m, st, reason+"; so whose the sockets are is told of a sample of them, by /proc/PID/fd", remedy)
		}
	default:
	}
	return nil
}

// close ends a load that is under way, and unloads.
func (p *programs) close() error {
	if p == nil {
		return nil
	}
	p.cancel()
	<-p.loaded
	if p.sockets == nil {
		return nil
	}
	return p.sockets.Close()
}
