package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramPAWSRate = &check.Param{
		Name: "rate", Default: 1, Unit: "segments/s",
		Why: "each is a connect that has to be tried again; one a second, in half of the intervals, is no stray " +
			"duplicate",
	}
	paramPAWSPeer = &check.Param{
		Name: "peer-share", Default: 0.5, Unit: quantity.Ratio,
		Why: "clients behind a NAT are one address here: a peer that has half of a listener's sockets may well be a " +
			"NAT",
	}
)

var pawsBehindNAT = &check.Check{
	Name:  "paws-behind-nat",
	Stage: check.Connections,
	Doc: `SYNs are dropped for an old timestamp: several hosts behind one address
TCP protects against old duplicates by timestamps (PAWS, RFC 7323). Each host has its own clock offset. When several
share an address by NAT, a SYN of one can meet this server's TIME_WAIT of another with a later timestamp: the server
answers with an ACK of the old connection. A Linux client resets that one and repeats its SYN after two ticks
(tcp_rcv_synsent_state_process in net/ipv4/tcp_input.c); others, or behind a firewall that drops the ACK, after 1 s.
Measured in the laboratory with an idle CPU: 12292 connections/s fell to 520, and at 400 a second one connect in ten
took 80 ms and more.

Measured: PAWSTimewait (SYNs to a socket in TIME_WAIT; newer kernels) and PAWSActive (SYN-ACKs), per second and in at
least half of the intervals. A peer address that holds at least half of a listener's sockets is the evidence for a
NAT.

Fix: keep-alive; let the client close first, so that this side holds no TIME_WAIT; a NAT that rewrites or spreads
ports at random; more addresses on the NAT.
Won't help: tcp_fin_timeout, tcp_max_syn_backlog, tcp_tw_reuse on the server; tcp_timestamps=0 there: the counter then
stands still, but the SYN's sequence number decides (tcp_timewait_state_process in net/ipv4/tcp_minisocks.c), which is
just as random behind a NAT.
Disproved if each client address is one host.`,
	URL:    "https://www.rfc-editor.org/rfc/rfc7323#section-5",
	Needs:  []metric.Metric{metric.PAWSActive},
	Uses:   []metric.Metric{metric.PAWSTimewait, metric.ListenerPeers, metric.TCPSynRetrans},
	Params: []*check.Param{paramPAWSRate, paramPAWSPeer},
	Beyond: "which hosts are behind the addresses of clients",
	Run:    runPAWSBehindNAT,
}

func runPAWSBehindNAT(p *check.Pass) error {
	active, err := evidence.NetRise(p, metric.PAWSActive, "SYN-ACKs dropped for an old timestamp (PAWSActive)")
	if err != nil {
		return err
	}
	p.Read(active.Rate())
	counter, worst := metric.PAWSActive, active
	tw, ok := evidence.MaybeNetRise(p, metric.PAWSTimewait,
		"SYNs to TIME_WAIT dropped for an old timestamp (PAWSTimewait)")
	if ok {
		p.Read(tw.Rate())
		if tw.Rate().AtLeast(worst.Rate()) {
			counter, worst = metric.PAWSTimewait, tw
		}
	}
	if worst.Rate().Below(p.Param(paramPAWSRate)) || !evidence.Sustained(p, counter) {
		return nil
	}
	f := check.Finding{
		Subject:  evidence.NetNSSubject(p),
		Severity: check.Warning,
		Summary: fmt.Sprintf("%.0f SYNs or SYN-ACKs dropped for an old timestamp / %s = %s; each is a connect that "+
			"is late",
			worst.N.Number(),
			worst.Span.Text(), worst.Rate().Text()),
		Evidence: []quantity.Value{worst.Rate()},
		Remedies: []check.Remedy{{
			Action: "keep connections open, or let the clients close first, so that this side holds no TIME_WAIT " +
				"for their ports",
			Risk:   "clients that close first hold TIME_WAIT and a local port for 60 s: see short-connection-ceiling",
			Effect: "drops for an old timestamp fall to 0",
		}},
		Placebos: []string{
			"tcp_fin_timeout, tcp_max_syn_backlog, tcp_tw_reuse on the server: none lets an older timestamp pass",
			"tcp_timestamps=0 on the server: the counter stands still, and SYNs are refused for their sequence " +
				"numbers instead",
		},
		Disproof: "each client address is one host, or all of them connect within a round trip",
	}
	nameNAT(p, &f)
	p.Report(f)
	return nil
}

// nameNAT adds the peer that holds most of a listener's sockets.
func nameNAT(p *check.Pass, f *check.Finding) {
	byListener := map[string]float64{}
	for _, s := range p.Gauge(metric.ListenerPeers) {
		byListener[s.Label("listener")] += s.Mean()
	}
	var best quantity.Value
	where := ""
	for _, s := range p.Gauge(metric.ListenerPeers) {
		all := byListener[s.Label("listener")]
		if all == 0 {
			continue
		}
		share := quantity.Of("", s.Mean(), quantity.Sockets).Per(quantity.Of("", all, quantity.Sockets)).
			Named("share of the sockets at %s from %s", s.Label("listener"), s.Label("peer"))
		if where == "" || share.Above(best) {
			best, where = share, s.Label("peer")
		}
	}
	if where == "" || best.Below(p.Param(paramPAWSPeer)) {
		f.Confidence = check.Medium
		f.Doubts = []string{"no peer address holds most of a listener's sockets, so which address hides several " +
			"hosts is not known"}
		return
	}
	f.Evidence = append(f.Evidence, best)
	f.Notes = append(f.Notes, "peer "+where+" may be a NAT: ask whether several hosts share it")
}
