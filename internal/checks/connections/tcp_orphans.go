package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var paramOrphanShare = &check.Param{
	Name: "share", Default: 0.5, Unit: quantity.Ratio,
	Why: "the kernel counts an orphan that makes no progress two or four times (tcp_out_of_resources, " +
		"net/ipv4/tcp_timer.c), " +
		"so resets begin at half",
}

var tcpOrphans = &check.Check{
	Name:  "tcp-orphans",
	Stage: check.Connections,
	Doc: `Orphaned TCP sockets near their limit
An orphan is a socket its program has closed while data or a FIN is still unacknowledged. The kernel bounds them for
the whole host (net.ipv4.tcp_max_orphans) and resets those beyond, which loses the tail of an answer.

Measured: orphans (/proc/net/sockstat) over tcp_max_orphans; half counts as near, as the kernel weighs stuck ones
double. A warning needs connections aborted (TCPAbortOnMemory) or orphans that grow; the level alone is info.

Cause: peers that vanish or read slowly after this side closed; answers cut short by clients on bad links.
Fix: fewer closes with data unsent; then tcp_max_orphans, up to 64 KiB of unswappable memory each.
Won't help: tcp_fin_timeout helps only those in FIN_WAIT2.
Disproved if TCPAbortOnMemory stands still and orphans fall.`,
	URL:    "https://www.kernel.org/doc/html/latest/networking/ip-sysctl.html",
	Needs:  []metric.Metric{metric.TCPOrphans, metric.MaxOrphans},
	Uses:   []metric.Metric{metric.TCPAbortOnMemory},
	Params: []*check.Param{paramOrphanShare},
	Run:    runTCPOrphans,
}

func runTCPOrphans(p *check.Pass) error {
	limit, err := evidence.NeedGlobalSetting(p, metric.MaxOrphans)
	if err != nil {
		return err
	}
	series := p.Gauge(metric.TCPOrphans, "netns", metric.NetNSTarget)
	if len(series) == 0 || limit <= 0 {
		return check.NotAssessed("", "tcp_orphans has no sample, or tcp_max_orphans is %.0f", limit)
	}
	s := series[0]
	share := quantity.Of("orphans, at most", s.Max(), quantity.Sockets).
		Per(quantity.Of("tcp_max_orphans", limit, quantity.Sockets)).
		Named("orphaned sockets")
	p.Read(share)
	if share.Below(p.Param(paramOrphanShare)) {
		return nil
	}
	f := check.Finding{
		Subject:  check.Host,
		Severity: check.Info,
		Summary:  fmt.Sprintf("%.0f orphaned sockets of %.0f allowed = %s", s.Max(), limit, share.Text()),
		Evidence: []quantity.Value{share},
		Remedies: orphanRemedies(p, limit),
		Placebos: []string{"tcp_fin_timeout: it ends only those in FIN_WAIT2, which hold no data"},
		Disproof: "TcpExtTCPAbortOnMemory stands still and the orphans fall",
	}
	if slope := s.Last() - s.First(); slope > 0 && s.Span() > 0 {
		rate := quantity.Of("more", slope, quantity.Sockets).Per(evidence.Span(s.Series)).Named("growth")
		left := quantity.Of("", max(0, limit-s.Last()), quantity.Sockets).Per(rate).As(quantity.Seconds).
			Named("time until the limit")
		f.Severity = check.Warning
		f.Evidence = append(f.Evidence, rate, left)
		f.Summary += fmt.Sprintf("; full in %.0f s", left.Number())
	}
	if a, ok := evidence.MaybeNetRise(p, metric.TCPAbortOnMemory, "connections aborted"); ok && a.N.Number() > 0 {
		f.Severity = check.Critical
		f.Evidence = append(f.Evidence, a.Rate())
		f.Summary += fmt.Sprintf("; %.0f connections aborted", a.N.Number())
	}
	p.Report(f)
	return nil
}

func orphanRemedies(p *check.Pass, limit float64) []check.Remedy {
	return []check.Remedy{{
		Action:  "find the peers that do not acknowledge after this side has closed",
		Command: evidence.InNetNS(p, "ss -tno state fin-wait-1 state last-ack state closing"),
		Risk:    "none, it only reads",
		Effect:  "orphans fall once these are gone",
	}, {
		Action:  "allow more orphans",
		Command: check.Commandf("sysctl -w net.ipv4.tcp_max_orphans=%.0f", 2*limit),
		Risk: fmt.Sprintf("each may hold up to 64 KiB that cannot be swapped: up to %s more",
			quantity.Of("", limit*64*1024, quantity.Bytes).Text()),
		Effect: fmt.Sprintf("the limit rises from %.0f to %.0f", limit, 2*limit),
	}}
}
