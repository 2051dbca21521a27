package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramSynDrops = &check.Param{
		Name: "drops", Default: 1, Unit: "connections/s",
		Why: "a client a second that waits a second for its SYN to be repeated; less is scanners and chance",
	}
	paramSynCookies = &check.Param{
		Name: "cookies", Default: 10, Unit: "connections/s",
		Why: "a burst at start sends a few cookies and loses nothing; ten a second, lasting, is a flood or a " +
			"backlog too small",
	}
)

var synBacklogDrops = &check.Check{
	Name:  "syn-backlog-drops",
	Stage: check.Connections,
	Doc: `Listeners drop SYNs, or answer with cookies because the SYN backlog is full
A listener holds half-open connections up to its backlog and tcp_max_syn_backlog. When that is full it sends SYN cookies
(tcp_syncookies=1), which lose options where timestamps are off, or drops the SYN (0), and the client waits 1 s.

Measured: ListenDrops − ListenOverflows per second, that is drops for other reasons than a full accept queue;
TCPReqQFullDrop, drops for a full SYN backlog; and cookies sent, in at least half of the intervals. With
tcp_syncookies=2 cookies are always sent and say nothing.

Causes: clients far away or behind a lossy path (SYN-ACKs unanswered), a SYN flood, a burst beyond the backlog.
Fix: cookies on; a larger backlog in listen(), somaxconn and tcp_max_syn_backlog together; against a flood, filter it.
Won't help: tcp_max_syn_backlog alone, as the listen backlog caps it.
Disproved if SYN_RECV is near zero at all samples and clients connect without steps of 1 s.`,
	URL:   "https://www.kernel.org/doc/html/latest/networking/ip-sysctl.html",
	Needs: []metric.Metric{metric.ListenDrops, metric.ListenOverflows},
	Uses: []metric.Metric{
		metric.SyncookiesSent, metric.ReqQFullDrop, metric.Syncookies, metric.MaxSynBacklog, metric.Somaxconn,
		metric.ListenerSockets,
	},
	Params: []*check.Param{paramSynDrops, paramSynCookies},
	Run:    runSynBacklogDrops,
}

func runSynBacklogDrops(p *check.Pass) error {
	drops, err := evidence.NetRise(p, metric.ListenDrops, "SYNs and ACKs dropped by listeners")
	if err != nil {
		return err
	}
	over, err := evidence.NetRise(p, metric.ListenOverflows, "of these a full accept queue")
	if err != nil {
		return err
	}
	left := evidence.Growth{
		N:    drops.N.Minus(over.N).Named("dropped for another reason than the accept queue"),
		Span: drops.Span,
	}
	p.Read(left.Rate())
	full, _ := evidence.MaybeNetRise(p, metric.ReqQFullDrop, "dropped because a SYN backlog was full")
	cookies, lasting := lastingCookies(p)
	switch {
	case left.Rate().AtLeast(p.Param(paramSynDrops)):
		p.Report(synDropFinding(p, left, full))
	case lasting:
		p.Report(cookieFinding(p, cookies))
	}
	return nil
}

func lastingCookies(p *check.Pass) (evidence.Growth, bool) {
	mode, ok := evidence.Setting(p, metric.Syncookies)
	sent, recorded := evidence.MaybeNetRise(p, metric.SyncookiesSent, "SYN cookies sent")
	if !recorded || ok && mode == 2 {
		return evidence.Growth{}, false
	}
	return sent, sent.Rate().AtLeast(p.Param(paramSynCookies)) && evidence.Sustained(p, metric.SyncookiesSent)
}

func synDropFinding(p *check.Pass, left, full evidence.Growth) check.Finding {
	f := check.Finding{
		Subject:  evidence.NetNSSubject(p),
		Severity: check.Warning,
		Summary: fmt.Sprintf("listeners drop %s / %s = %s, not for a full accept queue", left.N.Text(),
			left.Span.Text(),
			left.Rate().Text()),
		Evidence: append([]quantity.Value{left.N, left.Rate()}, synBacklogFacts(p)...),
		Remedies: synBacklogRemedies(p),
		Disproof: "SYN_RECV is near zero at all samples, and clients connect without steps of 1 s",
	}
	if full.N.Number() > 0 {
		f.Severity = check.Critical
		f.Evidence = append(f.Evidence, full.Rate())
		f.Summary = fmt.Sprintf("SYN backlog full: %s / %s = %s lost; each client waits 1 s", full.N.Text(),
			full.Span.Text(),
			full.Rate().Text())
		return f
	}
	f.Confidence = check.Medium
	f.Doubts = []string{"no SYN backlog was full: memory, a filter or a missing route can drop a SYN as well"}
	return f
}

func cookieFinding(p *check.Pass, sent evidence.Growth) check.Finding {
	f := check.Finding{
		Subject:  evidence.NetNSSubject(p),
		Severity: check.Warning,
		Summary: fmt.Sprintf("a SYN backlog is full: %s / %s = %s answered with SYN cookies", sent.N.Text(),
			sent.Span.Text(),
			sent.Rate().Text()),
		Evidence: append([]quantity.Value{sent.Rate()}, synBacklogFacts(p)...),
		Remedies: synBacklogRemedies(p),
		Placebos: []string{"tcp_max_syn_backlog alone: the listen backlog caps the queue as well"},
		Disproof: "SYN_RECV is near zero at all samples",
	}
	if p.Lost(metric.Syncookies) {
		f.Severity = check.Info
		f.Doubts = []string{"tcp_syncookies was not read: with 2 cookies are sent to all, and no backlog is full"}
	}
	return f
}

// synBacklogFacts returns the settings and the listener with the most half-open connections.
func synBacklogFacts(p *check.Pass) []quantity.Value {
	var out []quantity.Value
	top := 0.0
	where := ""
	for _, s := range p.Gauge(metric.ListenerSockets, "state", "SYN_RECV") {
		if s.Max() > top {
			top, where = s.Max(), s.Label("listener")
		}
	}
	if top > 0 {
		out = append(out, quantity.Of("half-open (SYN_RECV) at "+where+", at most", top, quantity.Connections))
	}
	if v, ok := evidence.Setting(p, metric.MaxSynBacklog); ok {
		out = append(out, quantity.Of("tcp_max_syn_backlog", v, quantity.Connections))
	}
	if v, ok := evidence.Setting(p, metric.Syncookies); ok {
		out = append(out, quantity.Of("tcp_syncookies", v, quantity.None))
	}
	return out
}

func synBacklogRemedies(p *check.Pass) []check.Remedy {
	var out []check.Remedy
	if v, ok := evidence.Setting(p, metric.Syncookies); ok && v == 0 {
		out = append(out, check.Remedy{
			Action:  "turn SYN cookies on, so that a full backlog loses no SYN",
			Command: evidence.InNetNS(p, "sysctl -w net.ipv4.tcp_syncookies=1"),
			Risk:    "connections made by cookie lose window scaling and SACK where timestamps are off",
			Effect:  "drops for a full SYN backlog fall to 0",
		})
	}
	want := 4096.0 // the kernel's default of somaxconn since 5.4
	if v, ok := evidence.Setting(p, metric.MaxSynBacklog); ok {
		want = max(want, 2*v)
	}
	return append(out, check.Remedy{
		Action: "raise the listen backlog, somaxconn and tcp_max_syn_backlog together, and restart the listener",
		Command: evidence.InNetNS(p, check.Commandf("sysctl -w net.core.somaxconn=%.0f "+
			"net.ipv4.tcp_max_syn_backlog=%.0f", want, want)),
		Risk:   "memory for each half-open connection, about 300 bytes; a flood fills any backlog: filter it instead",
		Effect: fmt.Sprintf("up to %.0f half-open connections before a cookie or a drop", want),
	})
}
