package connections

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var paramCeilingWarn = &check.Param{
	Name: "warn-share", Default: 0.6, Unit: quantity.Ratio,
	Why: "one more burst of two thirds reaches the ceiling, and beyond half the range each connect() searches long " +
		"for a port",
}

var shortConnectionCeiling = &check.Check{
	Name:  "short-connection-ceiling",
	Stage: check.Connections,
	Doc: `Short connections near the ceiling that local ports and TIME_WAIT set
The side that closes first keeps the connection in TIME_WAIT for 60 s, and with it a local port towards that
destination. So a client can open at most usable ports / 60 s connections per second to one destination address and
port: with the default range 28232 / 60 = 470. Beyond that connect() fails with EADDRNOTAVAIL, which no kernel counter
shows.

Measured per source and destination: sockets that entered TIME_WAIT in the last second, and TIME_WAIT held / 60 s,
which is the rate of the last minute. With tcp_tw_reuse=1 and timestamps (or 2 on loopback) a port is free again after
tcp_tw_reuse_delay (1 s on kernels without that setting), and the ceiling is ports / delay. Where the peer closes first
this side has no TIME_WAIT and no ceiling. A slow trickle may hold thousands of TIME_WAIT and is no fault: the share of
the ceiling counts.

Fix: keep-alive or a pool; then tcp_tw_reuse=1; then a wider range; then more destination or source addresses.
Won't help: tcp_fin_timeout, a larger tcp_max_tw_buckets.
Disproved if connect() never fails and the rate rises further under more load.`,
	URL:    "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/include/net/tcp.h",
	Needs:  evidence.PortNeeds(),
	Uses:   evidence.PortUses(),
	Params: []*check.Param{paramCeilingWarn, evidence.ParamPortsFull, evidence.ParamTWFall, evidence.ParamReuseDelay},
	Run:    runShortConnectionCeiling,
}

func runShortConnectionCeiling(p *check.Pass) error {
	r, err := evidence.PortRangeOf(p)
	if err != nil {
		return err
	}
	worst := evidence.WorstByDestination(evidence.Ceilings(p, r))
	if len(worst) == 0 {
		p.Read(quantity.Of("client-side TIME_WAIT to any destination", 0, quantity.Sockets))
		return nil
	}
	p.Read(worst[0].Share.Named("share of the port ceiling to %s", worst[0].Path.Destination))
	for _, c := range worst {
		if c.Share.AtLeast(p.Param(paramCeilingWarn)) {
			p.Report(ceilingFinding(p, r, c))
		}
	}
	return nil
}

func ceilingFinding(p *check.Pass, r evidence.PortRange, c evidence.Ceiling) check.Finding {
	f := check.Finding{
		Subject:  evidence.DestinationSubject(c.Path),
		Severity: check.Warning,
		Summary:  ceilingSummary(c),
		Evidence: []quantity.Value{c.Usable, c.Limit, c.Measured, c.Share},
		Notes:    []string{"from " + c.Path.Source + ", " + evidence.OwnersOf(p, c.Path.Destination)},
		Remedies: evidence.PortRemedies(p, r, c.Path),
		Placebos: []string{evidence.FinTimeoutPlacebo, "tcp_max_tw_buckets: raising it frees no port"},
		Disproof: "connect() to it never fails with EADDRNOTAVAIL (strace -f -e connect), and the rate rises " +
			"further under more load",
		Doubts:     r.Doubts,
		Confidence: check.High,
	}
	if c.Full || c.Reuse && c.Share.AtLeast(p.Param(evidence.ParamPortsFull)) {
		f.Severity = check.Critical
	}
	if failing, counted := evidence.Unavailable(p, c.Path.Destination); counted && failing.Number() > 0 {
		f.Severity = check.Critical
		f.Evidence = append(f.Evidence, failing)
		f.Summary = fmt.Sprintf("%s fail for want of a local port (EADDRNOTAVAIL): %s", failing.Text(), f.Summary)
	}
	if !c.Reuse { // with reuse the ports in TIME_WAIT are free again after the delay, and their number says nothing
		f.Evidence = append(f.Evidence, c.TimeWait.Per(c.Usable).Named("ports in TIME_WAIT"))
	}
	if v, ok := ceilingForecast(c); ok {
		f.Evidence = append(f.Evidence, v)
	}
	if len(r.Doubts) > 0 {
		f.Confidence = check.Medium
	}
	evidence.Gone(p, &f, check.FailedConnect)
	evidence.WithoutConnecting(p, &f)
	return f
}

func ceilingSummary(c evidence.Ceiling) string {
	s := fmt.Sprintf("%s / %s = %s; measured %s = %s of the ceiling", c.Usable.Text(), c.Hold.Text(), c.Limit.Text(),
		c.Measured.Text(), c.Share.Text())
	if c.Full && !c.Reuse {
		return s + "; no port is left"
	}
	v, ok := ceilingForecast(c)
	switch {
	case !ok:
		return s
	case v.Unit() == quantity.Seconds:
		return s + "; at this rate full in " + quantity.Of("", float64(int(v.Number()+0.5)), quantity.Seconds).Text()
	}
	return s + fmt.Sprintf("; levels off at %.0f of %.0f ports", v.Number(), c.Usable.Number())
}

// ceilingForecast returns when the range will be full at the measured rate, or, below the ceiling, how many ports
// TIME_WAIT will come to hold. With reuse there is no forecast: the ports in TIME_WAIT then say nothing.
func ceilingForecast(c evidence.Ceiling) (quantity.Value, bool) {
	growth := c.Path.Slope(c.Path.Count(evidence.TimeWait))
	if c.Full || c.Reuse || growth <= 0 {
		return quantity.Value{}, false
	}
	if !c.Share.AtLeast(quantity.Of("", 1, quantity.Ratio)) {
		return c.Measured.Times(c.Hold).As(quantity.Ports).Named("ports in TIME_WAIT once the rate has lasted 60 s"),
			true
	}
	free := quantity.Of("free", max(0, c.Usable.Number()-c.Blocked[len(c.Blocked)-1]), quantity.Ports)
	left := free.Per(quantity.Of("growth", growth, "ports/s")).As(quantity.Seconds).Named("time until no port is left")
	return left, c.Hold.AtLeast(left) // beyond the hold TIME_WAIT sockets end as fast as new ones come
}
