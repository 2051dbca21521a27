package evidence

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// A Listener is the accept queue of one listening socket at its fullest sample.
type Listener struct {
	Address, PID   string
	Comm           string
	Queue, Backlog quantity.Value
}

// Listeners returns the listening sockets of the namespace with a known backlog, in order of their addresses. The
// backlog is the kernel's sk_max_ack_backlog, already capped at somaxconn. A listener has one series until its owner
// is found and another one after that.
func Listeners(p *check.Pass) []Listener {
	return listenersOf(p, metric.ListenerBacklog, metric.ListenerQueue)
}

// UnixListeners returns the target's listening AF_UNIX sockets. Their backlog is the argument of listen().
func UnixListeners(p *check.Pass) []Listener {
	return listenersOf(p, metric.UnixBacklog, metric.UnixQueue)
}

func listenersOf(p *check.Pass, backlog, queue *metric.Gauge) []Listener {
	var out []Listener
	for _, s := range p.Gauge(backlog) {
		address := s.Label("listener")
		if n := len(out); n == 0 || out[n-1].Address != address {
			out = append(out, Listener{Address: address, Queue: longestQueue(p, queue, address)})
		}
		l := &out[len(out)-1]
		l.Backlog = quantity.Of("backlog in force", s.Last(), quantity.Connections)
		if s.Label("pid") != "" {
			l.PID, l.Comm = s.Label("pid"), s.Label("comm")
		}
	}
	return out
}

func longestQueue(p *check.Pass, queue *metric.Gauge, address string) quantity.Value {
	n := 0.0
	for _, s := range p.Gauge(queue, "listener", address) {
		n = max(n, s.Max())
	}
	return quantity.Of("connections waiting for accept(), at most", n, quantity.Connections)
}

// Full reports whether the queue is past its limit: the kernel refuses at queue > backlog (sk_acceptq_is_full in
// include/net/sock.h), so a full queue shows backlog + 1, and one just drained shows backlog.
func (l Listener) Full() bool { return l.Queue.Number() > 0 && l.Queue.AtLeast(l.Backlog) }

// over returns how far beyond its backlog the queue was.
func (l Listener) over() float64 { return l.Queue.Number() / max(1, l.Backlog.Number()) }

// Owner returns "pid 4021 (java)", or "the listening program" if its descriptors could not be read.
func (l Listener) Owner() string {
	if l.PID == "" {
		return "the listening program"
	}
	return "pid " + PIDName(l.PID, l.Comm)
}

// FullestListener returns the listener with the fullest queue among the full ones; ok is false if none was full in
// any sample.
func FullestListener(p *check.Pass) (top Listener, ok bool) {
	for _, l := range Listeners(p) {
		if l.Full() && (!ok || l.over() > top.over()) {
			top, ok = l, true
		}
	}
	return top, ok
}
