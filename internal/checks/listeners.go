package checks

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

// A listener is one listening socket's accept queue at its fullest sample.
type listener struct {
	address, pid, comm string
	queue, backlog     quantity.Value
}

// listeners gives the listening sockets of the namespace whose backlog is known, in order of their addresses. The backlog is
// the kernel's sk_max_ack_backlog, already cut to somaxconn. A listener has one series until its owner is found and another
// after that.
func listeners(p *check.Pass) []listener {
	var out []listener
	for _, s := range p.Gauge(metric.ListenerBacklog) {
		address := s.Label("listener")
		if n := len(out); n == 0 || out[n-1].address != address {
			out = append(out, listener{address: address, queue: longestQueue(p, address)})
		}
		l := &out[len(out)-1]
		l.backlog = quantity.Of("backlog in force", s.Last(), quantity.Connections)
		if s.Label("pid") != "" {
			l.pid, l.comm = s.Label("pid"), s.Label("comm")
		}
	}
	return out
}

func longestQueue(p *check.Pass, address string) quantity.Value {
	n := 0.0
	for _, s := range p.Gauge(metric.ListenerQueue, "listener", address) {
		n = max(n, s.Max())
	}
	return quantity.Of("connections waiting for accept(), at most", n, quantity.Connections)
}

// full reports whether the queue is past its limit: the kernel refuses at queue > backlog (sk_acceptq_is_full in
// include/net/sock.h), so a queue of backlog + 1 is what a full one shows, and one just drained shows backlog.
func (l listener) full() bool { return l.queue.Number() > 0 && l.queue.AtLeast(l.backlog) }

// over is how far beyond its backlog the queue was.
func (l listener) over() float64 { return l.queue.Number() / max(1, l.backlog.Number()) }

// owner is "pid 4021 (java)", or the listening program where its descriptors could not be read.
func (l listener) owner() string {
	if l.pid == "" {
		return "the listening program"
	}
	return "pid " + pidName(l.pid, l.comm)
}

// fullest is the listener whose queue was full and the fullest; ok is false when none was full at a sample.
func fullest(p *check.Pass) (top listener, ok bool) {
	for _, l := range listeners(p) {
		if l.full() && (!ok || l.over() > top.over()) {
			top, ok = l, true
		}
	}
	return top, ok
}

// backlogRemedy raises the limit that is in force: listen()'s argument, or somaxconn, or both.
func backlogRemedy(p *check.Pass, l listener) check.Remedy {
	want := max(2*l.backlog.Number(), 1024) // a burst of a thousand is a few milliseconds of a fast accept loop
	m := check.Remedy{
		Risk:   "a longer queue turns refusals into waiting: if accept() stays too slow, callers time out in the queue instead",
		Effect: fmt.Sprintf("room for %.0f waiting connections instead of %.0f, so bursts no longer overflow", want, l.backlog.Number()),
	}
	somaxconn, ok := setting(p, metric.Somaxconn)
	if ok && l.backlog.Number() < somaxconn {
		m.Action = fmt.Sprintf("raise the backlog that %s passes to listen() (now %.0f; somaxconn %.0f is not the limit), and restart it",
			l.owner(), l.backlog.Number(), somaxconn)
		if want > somaxconn {
			m.Command = inNetNS(p, check.Commandf("sysctl -w net.core.somaxconn=%.0f", want))
		}
		return m
	}
	m.Action = fmt.Sprintf("raise net.core.somaxconn and the backlog that %s passes to listen() together, and restart it", l.owner())
	m.Command = inNetNS(p, check.Commandf("sysctl -w net.core.somaxconn=%.0f", want))
	return m
}
