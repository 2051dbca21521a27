package checks

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
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
A connection whose handshake is done waits until the program calls accept(). When more wait than the backlog, which is the
smaller of listen()'s argument and net.core.somaxconn, the kernel drops the client's SYN or last ACK (tcp_v4_syn_recv_sock in
net/ipv4/tcp_ipv4.c). The client repeats after 1 s; with tcp_abort_on_overflow=1 it gets a RST.

Measured: ListenOverflows of the namespace over the window, which is exact, and the listeners' queue (Recv-Q of ss -ltn) against
their backlog (Send-Q) at each sample, which names the one. When none was full at a sample the namespace is named.

Cure: accept faster first (a blocked or single accept loop, too little CPU or quota), then a larger backlog, and somaxconn with it
when that is the limit in force. Placebo: tcp_max_syn_backlog, which is the queue before the handshake is done.
Wrong if ListenOverflows stands still under the same load.`,
	URL:   "https://man7.org/linux/man-pages/man2/listen.2.html",
	Needs: []metric.Metric{metric.ListenOverflows},
	Uses: append([]metric.Metric{metric.ListenerQueue, metric.ListenerBacklog, metric.Somaxconn, metric.AbortOnOverflow},
		flowUses()...),
	Params:   []*check.Param{paramAcceptOverflows},
	Explains: []*check.Check{synSentPileup, synRetransmits, synBacklogDrops},
	Run:      runAcceptQueueOverflow,
}

func runAcceptQueueOverflow(p *check.Pass) error {
	over, err := netRise(p, metric.ListenOverflows, "accept queue overflows")
	if err != nil {
		return err
	}
	p.Read(over.rate())
	if over.n.Below(p.Param(paramAcceptOverflows)) {
		return nil
	}
	f := check.Finding{
		Severity: check.Critical,
		Evidence: []quantity.Value{over.rate()},
		Placebos: []string{"tcp_max_syn_backlog: it is the queue before the handshake is done, this is the one after it"},
		Disproof: "TcpExtListenOverflows (nstat -az) stands still under the same load",
	}
	if l, ok := fullest(p); ok {
		nameListener(p, &f, over, l)
	} else {
		f.Subject, f.Confidence = netns(p), check.Medium
		f.Summary = fmt.Sprintf("%.0f connections met a full accept queue in %s = %s", over.n.Number(), over.span.Text(),
			over.rate().Text())
		f.Doubts = []string{"no listener's queue was full at a sample, so which one overflowed is not known"}
		f.Remedies = []check.Remedy{{
			Action:  "find the listener whose Recv-Q reaches its Send-Q",
			Command: inNetNS(p, "watch -n 0.1 ss -ltnp"),
			Risk:    "none, it only reads",
			Effect:  "names the program to make accept faster, or whose backlog to raise",
		}}
	}
	if v, ok := setting(p, metric.AbortOnOverflow); ok && v == 1 {
		f.Notes = append(f.Notes, "tcp_abort_on_overflow is 1: these clients get a connection reset instead of a wait of 1 s")
	} else {
		f.Notes = append(f.Notes, "each of these clients waits 1 s and more until its SYN or ACK is sent again")
	}
	p.Report(f)
	return nil
}

func nameListener(p *check.Pass, f *check.Finding, over growth, l listener) {
	f.Subject = check.Subject{Kind: "listener", ID: l.address}
	f.Summary = fmt.Sprintf("accept queue of %s at :%s holds %.0f, backlog %.0f; %.0f overflows in %s = %s", l.owner(), portOf(l.address),
		l.queue.Number(), l.backlog.Number(), over.n.Number(), over.span.Text(), over.rate().Text())
	if l.pid == "" {
		f.Notes = append(f.Notes, "whose it is could not be read: run as root to name the process")
	}
	f.Evidence = append(f.Evidence, l.queue, l.backlog)
	if v, ok := handshakes(p, l); ok {
		f.Evidence = append(f.Evidence, v)
	}
	if limit, ok := setting(p, metric.Somaxconn); ok {
		v := quantity.Of("somaxconn, not the limit here", limit, quantity.Connections)
		if l.backlog.Number() >= limit {
			v = v.Named("somaxconn, the limit in force")
		}
		f.Evidence = append(f.Evidence, v)
	}
	f.Remedies = []check.Remedy{{
		Action: "let " + l.owner() + " accept faster: no blocking work in its accept loop, more acceptors, enough CPU or quota",
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
		f.Notes = append(f.Notes, fmt.Sprintf("%d listeners had a full queue; the counter is the namespace's, for all of them", full))
	}
}

// handshakes gives the connections that reached the listener's queue per second, where BPF programs counted them.
func handshakes(p *check.Pass, l listener) (quantity.Value, bool) {
	n := 0.0
	for _, x := range flowsBy(p, metric.ConnectAttempts, "side", "server") {
		if portOf(x.endpoint) == portOf(l.address) {
			n += x.n
		}
	}
	_, window := flowSpan(p)
	return quantity.Of("handshakes done", n, quantity.Connections).Per(window).Named("connections that entered the queue"), n > 0
}
