package checks

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

var paramCeilingWarn = &check.Param{
	Name: "warn-share", Default: 0.6, Unit: quantity.Ratio,
	Why: "one more burst of two thirds reaches the ceiling, and beyond half the range each connect() searches long for a port",
}

var shortConnectionCeiling = &check.Check{
	Name:  "short-connection-ceiling",
	Stage: check.Connections,
	Doc: `Short connections near the ceiling that local ports and TIME_WAIT set
The side that closes first keeps the connection in TIME_WAIT for 60 s, and with it a local port towards that destination. So a
client can open at most usable ports / 60 s connections per second to one destination address and port: with the default range
28232 / 60 = 470. Beyond that connect() fails with EADDRNOTAVAIL, which no kernel counter shows.

Measured per source and destination: sockets that entered TIME_WAIT in the last second, and TIME_WAIT held / 60 s, which is the
rate of the last minute. With tcp_tw_reuse=1 and timestamps (or 2 on loopback) a port is free again after tcp_tw_reuse_delay,
1 s before that setting existed, and the ceiling is ports / delay. Where the peer closes first this side has no TIME_WAIT
and no ceiling. A slow trickle may hold thousands of TIME_WAIT and is no fault: the share of the ceiling counts.

Cure: keep-alive or a pool; then tcp_tw_reuse=1; then a wider range; then more destination or source addresses. Placebos:
tcp_fin_timeout, a larger tcp_max_tw_buckets.
Wrong if connect() fails never and the rate rises further under more load.`,
	URL:      "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/include/net/tcp.h",
	Needs:    portNeeds(),
	Uses:     portUses(),
	Params:   []*check.Param{paramCeilingWarn, paramPortsFull},
	Explains: []*check.Check{localPortExhaustion, portSearchCliff, noKeepalive, timeWaitOverflow, cpuInSystem, tooManyThreads},
	Run:      runShortConnectionCeiling,
}

func runShortConnectionCeiling(p *check.Pass) error {
	r, err := readPortRange(p)
	if err != nil {
		return err
	}
	worst := worstByDestination(ceilings(p, r))
	if len(worst) == 0 {
		p.Read(quantity.Of("client-side TIME_WAIT to any destination", 0, quantity.Sockets))
		return nil
	}
	p.Read(worst[0].share.Named("share of the port ceiling to %s", worst[0].path.destination))
	for _, c := range worst {
		if c.share.AtLeast(p.Param(paramCeilingWarn)) {
			p.Report(ceilingFinding(p, r, c))
		}
	}
	return nil
}

func ceilingFinding(p *check.Pass, r portRange, c ceiling) check.Finding {
	f := check.Finding{
		Subject:    destinationSubject(c.path),
		Severity:   check.Warning,
		Summary:    ceilingSummary(c),
		Evidence:   []quantity.Value{c.usable, c.limit, c.measured, c.share},
		Notes:      []string{"from " + c.path.source + ", " + ownersOf(p, c.path.destination)},
		Remedies:   portRemedies(p, r, c.path),
		Placebos:   []string{finTimeoutPlacebo, "tcp_max_tw_buckets: raising it frees no port"},
		Disproof:   "connect() to it never fails with EADDRNOTAVAIL (strace -f -e connect), and the rate rises further under more load",
		Doubts:     r.doubts,
		Confidence: check.High,
	}
	if c.full || c.reuse && c.share.AtLeast(p.Param(paramPortsFull)) {
		f.Severity = check.Critical
	}
	if failing, counted := unavailable(p, c.path.destination); counted && failing.Number() > 0 {
		f.Severity = check.Critical
		f.Evidence = append(f.Evidence, failing)
		f.Summary += fmt.Sprintf("; %s fail with EADDRNOTAVAIL", failing.Text())
	}
	if !c.reuse { // with reuse the ports in TIME_WAIT are free again after the delay, and their number says nothing
		f.Evidence = append(f.Evidence, c.timeWait.Per(c.usable).Named("ports in TIME_WAIT"))
	}
	if v, ok := c.forecast(); ok {
		f.Evidence = append(f.Evidence, v)
	}
	if len(r.doubts) > 0 {
		f.Confidence = check.Medium
	}
	return f
}

func ceilingSummary(c ceiling) string {
	s := fmt.Sprintf("%s / %s = %s; measured %s = %s of the ceiling", c.usable.Text(), c.hold.Text(), c.limit.Text(),
		c.measured.Text(), c.share.Text())
	if c.full && !c.reuse {
		return s + fmt.Sprintf("; TIME_WAIT %.0f of %.0f", c.timeWait.Number(), c.usable.Number())
	}
	v, ok := c.forecast()
	switch {
	case !ok:
		return s
	case v.Unit() == quantity.Seconds:
		return s + "; at this rate full in " + quantity.Of("", float64(int(v.Number()+0.5)), quantity.Seconds).Text()
	}
	return s + fmt.Sprintf("; levels off at %.0f of %.0f ports", v.Number(), c.usable.Number())
}

// forecast is when the range will be full at the measured rate, or, below the ceiling, how many ports TIME_WAIT will come to hold.
// With reuse the ports in TIME_WAIT say nothing, and there is none.
func (c ceiling) forecast() (quantity.Value, bool) {
	growth := c.path.slope(c.path.count(timeWait))
	if c.full || c.reuse || growth <= 0 {
		return quantity.Value{}, false
	}
	if !c.share.AtLeast(quantity.Of("", 1, quantity.Ratio)) {
		return c.measured.Times(c.hold).As(quantity.Ports).Named("ports in TIME_WAIT once the rate has lasted 60 s"), true
	}
	free := quantity.Of("free", max(0, c.usable.Number()-c.blocked[len(c.blocked)-1]), quantity.Ports)
	left := free.Per(quantity.Of("growth", growth, "ports/s")).As(quantity.Seconds).Named("time until no port is left")
	return left, c.hold.AtLeast(left) // beyond the hold TIME_WAIT sockets end as fast as new ones come
}
