package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var paramAcceptOverflows = &check.Param{
	Name: "overflows", Default: 1, Unit: quantity.Connections,
	Why: "each overflow is a client that waits a second or is refused: none is normal",
}

var acceptQueueOverflow = &check.Check{
	Name:  "accept-queue-overflow",
	Stage: check.Connections,
	Event: true,
	Doc: `A listener's accept queue overflows: clients wait a second or fail
A connection whose handshake is done waits until the program calls accept(). When more wait than the backlog, which is
the smaller of listen()'s argument and net.core.somaxconn, the kernel drops the client's SYN or last ACK
(tcp_v4_syn_recv_sock in net/ipv4/tcp_ipv4.c). The client retransmits after 1 s; with tcp_abort_on_overflow=1 it gets a
RST.

Measured: ListenOverflows of the namespace over the window, which is exact, and the listeners' queue (Recv-Q of ss
-ltn) against their backlog (Send-Q) at each sample, which names the listener. When no queue was full at a sample, the
namespace is named.

Fix: accept faster first (a blocked or single accept loop, too little CPU or quota), then a larger backlog, and
somaxconn with it when that is the limit in force. Won't help: tcp_max_syn_backlog, which is the queue before the
handshake is done.
Disproved if ListenOverflows stands still under the same load.`,
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
	if l, ok := evidence.FullestListener(p); ok {
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
		f.Notes = append(f.Notes, "each of these clients waits 1 s and more until its SYN or ACK is retransmitted")
	}
	p.Report(f)
	return nil
}

func nameListener(p *check.Pass, f *check.Finding, over evidence.Growth, l evidence.Listener) {
	f.Subject = check.Subject{Kind: "listener", ID: l.Address}
	f.Summary = fmt.Sprintf("accept queue of %s at :%s holds %.0f, backlog %.0f; %.0f overflows in %s = %s", l.Owner(),
		evidence.PortOf(l.Address),
		l.Queue.Number(), l.Backlog.Number(), over.N.Number(), over.Span.Text(), over.Rate().Text())
	if l.PID == "" {
		f.Notes = append(f.Notes, "whose it is could not be read: run as root to name the process")
	}
	f.Evidence = append(f.Evidence, l.Queue, l.Backlog)
	if v, ok := handshakes(p, l); ok {
		f.Evidence = append(f.Evidence, v)
	}
	if limit, ok := evidence.Setting(p, metric.Somaxconn); ok {
		v := quantity.Of("somaxconn, not the limit here", limit, quantity.Connections)
		if l.Backlog.Number() >= limit {
			v = v.Named("somaxconn, the limit in force")
		}
		f.Evidence = append(f.Evidence, v)
	}
	f.Remedies = []check.Remedy{{
		Action: "let " + l.Owner() + " accept faster: no blocking work in its accept loop, more acceptors, enough " +
			"CPU or quota",
		Risk:   "more connections are then served at once: what is behind must bear them",
		Effect: fmt.Sprintf("the queue stays below %.0f and overflows end", l.Backlog.Number()),
	}, backlogRemedy(p, l)}
	full := 0
	for _, o := range evidence.Listeners(p) {
		if o.Full() {
			full++
		}
	}
	if full > 1 {
		f.Notes = append(f.Notes, fmt.Sprintf("%d listeners had a full queue; the counter is the namespace's, for "+
			"all of them", full))
	}
}

// handshakes returns the rate of connections that reached the listener's queue, where BPF programs counted them.
func handshakes(p *check.Pass, l evidence.Listener) (quantity.Value, bool) {
	n := 0.0
	for _, x := range evidence.FlowsBy(p, metric.ConnectAttempts, "side", "server") {
		if evidence.PortOf(x.Endpoint) == evidence.PortOf(l.Address) {
			n += x.N
		}
	}
	_, window := evidence.FlowSpan(p)
	return quantity.Of("handshakes done", n, quantity.Connections).Per(window).
		Named("connections that entered the queue"), n > 0
}

// backlogRemedy raises the limit that is in force: listen()'s argument, or somaxconn, or both.
func backlogRemedy(p *check.Pass, l evidence.Listener) check.Remedy {
	want := max(2*l.Backlog.Number(), 1024) // a burst of a thousand is a few milliseconds of a fast accept loop
	m := check.Remedy{
		Risk: "a longer queue turns refusals into waiting: if accept() stays too slow, callers time out in the " +
			"queue instead",
		Effect: fmt.Sprintf("room for %.0f waiting connections instead of %.0f, so bursts no longer overflow", want,
			l.Backlog.Number()),
	}
	somaxconn, ok := evidence.Setting(p, metric.Somaxconn)
	if ok && l.Backlog.Number() < somaxconn {
		m.Action = fmt.Sprintf("raise the backlog that %s passes to listen() (now %.0f; somaxconn %.0f is not the "+
			"limit), and restart it",
			l.Owner(), l.Backlog.Number(), somaxconn)
		if want > somaxconn {
			m.Command = evidence.InNetNS(p, check.Commandf("sysctl -w net.core.somaxconn=%.0f", want))
		}
		return m
	}
	m.Action = fmt.Sprintf("raise net.core.somaxconn and the backlog that %s passes to listen() together, and "+
		"restart it", l.Owner())
	m.Command = evidence.InNetNS(p, check.Commandf("sysctl -w net.core.somaxconn=%.0f", want))
	return m
}
