package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

var paramAcceptOverflows = &check.Param{
	Name: "overflows", Default: 1, Unit: quantity.Connections,
	Why: "each overflow is a client that waits a second or is refused: none is normal",
}

var acceptQueueOverflow = &check.Check{
	Name:  "accept-queue-overflow",
	Stage: check.Connections,
	Doc: `A listener's accept queue overflows: clients wait a second or fail
A connection whose handshake is done waits until the program calls accept(). When more wait than the backlog, which is
the smaller of listen()'s argument and net.core.somaxconn, the kernel drops the client's SYN or last ACK
(tcp_v4_syn_recv_sock in net/ipv4/tcp_ipv4.c). The client repeats after 1 s; with tcp_abort_on_overflow=1 it gets a
RST.

Measured: ListenOverflows of the namespace over the window, which is exact, and the listeners' queue (Recv-Q of ss
-ltn) against their backlog (Send-Q) at each sample, which names the one. When none was full at a sample the namespace
is named.

Cure: accept faster first (a blocked or single accept loop, too little CPU or quota), then a larger backlog, and
somaxconn with it when that is the limit in force. Placebo: tcp_max_syn_backlog, which is the queue before the
handshake is done.
Wrong if ListenOverflows stands still under the same load.`,
	URL:   "https://man7.org/linux/man-pages/man2/listen.2.html",
	Needs: []metric.Metric{metric.ListenOverflows},
	Uses: append([]metric.Metric{
		metric.ListenerQueue, metric.ListenerBacklog, metric.Somaxconn,
		metric.AbortOnOverflow,
	},
		evidence.FlowUses()...),
	Params: []*check.Param{paramAcceptOverflows},
	Run:    runAcceptQueueOverflow,
}

func runAcceptQueueOverflow(p *check.Pass) error {
	over, err := evidence.NetRise(p, metric.ListenOverflows, "accept queue overflows")
	if err != nil {
		return err
	}
	p.Read(over.Rate())
	if over.N.Below(p.Param(paramAcceptOverflows)) {
		return nil
	}
	f := check.Finding{
		Severity: check.Critical,
		Evidence: []quantity.Value{over.Rate()},
		Placebos: []string{"tcp_max_syn_backlog: it is the queue before the handshake is done, this is the one " +
			"after it"},
		Disproof: "TcpExtListenOverflows (nstat -az) stands still under the same load",
	}
	if l, ok := fullest(p); ok {
		nameListener(p, &f, over, l)
	} else {
		f.Subject, f.Confidence = evidence.NetNSSubject(p), check.Medium
		f.Summary = fmt.Sprintf("%.0f connections met a full accept queue in %s = %s", over.N.Number(),
			over.Span.Text(),
			over.Rate().Text())
		f.Doubts = []string{"no listener's queue was full at a sample, so which one overflowed is not known"}
		f.Remedies = []check.Remedy{{
			Action:  "find the listener whose Recv-Q reaches its Send-Q",
			Command: evidence.InNetNS(p, "watch -n 0.1 ss -ltnp"),
			Risk:    "none, it only reads",
			Effect:  "names the program to make accept faster, or whose backlog to raise",
		}}
	}
	if v, ok := evidence.Setting(p, metric.AbortOnOverflow); ok && v == 1 {
		f.Notes = append(f.Notes, "tcp_abort_on_overflow is 1: these clients get a connection reset instead of a "+
			"wait of 1 s")
	} else {
		f.Notes = append(f.Notes, "each of these clients waits 1 s and more until its SYN or ACK is sent again")
	}
	p.Report(f)
	return nil
}

func nameListener(p *check.Pass, f *check.Finding, over evidence.Growth, l listener) {
	f.Subject = check.Subject{Kind: "listener", ID: l.address}
	f.Summary = fmt.Sprintf("accept queue of %s at :%s holds %.0f, backlog %.0f; %.0f overflows in %s = %s", l.owner(),
		evidence.PortOf(l.address),
		l.queue.Number(), l.backlog.Number(), over.N.Number(), over.Span.Text(), over.Rate().Text())
	if l.pid == "" {
		f.Notes = append(f.Notes, "whose it is could not be read: run as root to name the process")
	}
	f.Evidence = append(f.Evidence, l.queue, l.backlog)
	if v, ok := handshakes(p, l); ok {
		f.Evidence = append(f.Evidence, v)
	}
	if limit, ok := evidence.Setting(p, metric.Somaxconn); ok {
		v := quantity.Of("somaxconn, not the limit here", limit, quantity.Connections)
		if l.backlog.Number() >= limit {
			v = v.Named("somaxconn, the limit in force")
		}
		f.Evidence = append(f.Evidence, v)
	}
	f.Remedies = []check.Remedy{{
		Action: "let " + l.owner() + " accept faster: no blocking work in its accept loop, more acceptors, enough " +
			"CPU or quota",
		Risk:   "more connections are then served at once: what is behind must bear them",
		Effect: fmt.Sprintf("the queue stays below %.0f and overflows end", l.backlog.Number()),
	}, backlogRemedy(p, l)}
	full := 0
	for _, o := range listeners(p) {
		if o.full() {
			full++
		}
	}
	if full > 1 {
		f.Notes = append(f.Notes, fmt.Sprintf("%d listeners had a full queue; the counter is the namespace's, for "+
			"all of them", full))
	}
}

// handshakes gives the connections that reached the listener's queue per second, where BPF programs counted them.
func handshakes(p *check.Pass, l listener) (quantity.Value, bool) {
	n := 0.0
	for _, x := range evidence.FlowsBy(p, metric.ConnectAttempts, "side", "server") {
		if evidence.PortOf(x.Endpoint) == evidence.PortOf(l.address) {
			n += x.N
		}
	}
	_, window := evidence.FlowSpan(p)
	return quantity.Of("handshakes done", n, quantity.Connections).Per(window).
		Named("connections that entered the queue"), n > 0
}

// A listener is one listening socket's accept queue at its fullest sample.
type listener struct {
	address, pid, comm string
	queue, backlog     quantity.Value
}

// listeners gives the listening sockets of the namespace whose backlog is known, in order of their addresses. The
// backlog is the kernel's sk_max_ack_backlog, already cut to somaxconn. A listener has one series until its owner is
// found and another after that.
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
	return "pid " + evidence.PIDName(l.pid, l.comm)
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
		Risk: "a longer queue turns refusals into waiting: if accept() stays too slow, callers time out in the " +
			"queue instead",
		Effect: fmt.Sprintf("room for %.0f waiting connections instead of %.0f, so bursts no longer overflow", want,
			l.backlog.Number()),
	}
	somaxconn, ok := evidence.Setting(p, metric.Somaxconn)
	if ok && l.backlog.Number() < somaxconn {
		m.Action = fmt.Sprintf("raise the backlog that %s passes to listen() (now %.0f; somaxconn %.0f is not the "+
			"limit), and restart it",
			l.owner(), l.backlog.Number(), somaxconn)
		if want > somaxconn {
			m.Command = evidence.InNetNS(p, check.Commandf("sysctl -w net.core.somaxconn=%.0f", want))
		}
		return m
	}
	m.Action = fmt.Sprintf("raise net.core.somaxconn and the backlog that %s passes to listen() together, and "+
		"restart it", l.owner())
	m.Command = evidence.InNetNS(p, check.Commandf("sysctl -w net.core.somaxconn=%.0f", want))
	return m
}
