package checks

import (
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

const (
	// timeWaitSeconds is TCP_TIMEWAIT_LEN of include/net/tcp.h: compiled in, no sysctl changes it.
	timeWaitSeconds = 60
	// reuseDelaySeconds is what tcp_tw_reuse waits where tcp_tw_reuse_delay does not exist (before kernel 6.14).
	reuseDelaySeconds = 1
	// youngSeconds is the age up to which a socket is in tcp_destination_time_wait_young.
	youngSeconds = 1
	// The range that a cure can widen to: below 1024 ports are privileged.
	widestLow, widestHigh = 1024, 65535
)

// The share at which a port range is taken for full. Sockets come and go between two samples, so it is not quite one.
var paramPortsFull = &check.Param{
	Name: "full-share", Default: 0.98, Unit: quantity.Ratio,
	Why: "a full range loses and regains a few ports between two samples; below this connect() still finds one",
}

// portNeeds are the metrics without which no port budget can be computed.
func portNeeds() []metric.Metric {
	return []metric.Metric{metric.DestinationSockets, metric.PortRangeLow, metric.PortRangeHigh, metric.TWReuse, metric.Timestamps}
}

// portUses are those that make it better.
func portUses() []metric.Metric {
	return append([]metric.Metric{
		metric.DestinationYoungTW, metric.ReservedPorts, metric.TWReuseDelay, metric.DestinationOwner,
		metric.TCPActiveOpens, metric.Sockets, metric.ConnectsBound, metric.BindsAsked, metric.BindsFound, metric.BindSearchSeconds,
	}, flowUses()...)
}

// A portRange is the local ports that connect() may choose in the target's network namespace, and when it may take one
// again.
type portRange struct {
	low, high, reserved float64
	usable              quantity.Value
	reuse               float64 // net.ipv4.tcp_tw_reuse
	timestamps          bool
	delay               float64 // seconds, of tcp_tw_reuse_delay
	delaySetting        bool    // the kernel has that setting
	doubts              []string
	inBind              map[string]bool // source addresses whose ports bind() chooses, which does not look at tcp_tw_reuse
}

func readPortRange(p *check.Pass) (portRange, error) {
	r := portRange{delay: reuseDelaySeconds}
	var ts float64
	for _, x := range []struct {
		to *float64
		g  *metric.Gauge
	}{{&r.low, metric.PortRangeLow}, {&r.high, metric.PortRangeHigh}, {&r.reuse, metric.TWReuse}, {&ts, metric.Timestamps}} {
		v, err := needSetting(p, x.g)
		if err != nil {
			return r, err
		}
		*x.to = v
	}
	r.timestamps = ts != 0
	if !p.Recorded(metric.DestinationYoungTW) {
		r.doubts = append(r.doubts, "sockets that just entered TIME_WAIT were not counted, so the rate is that of the last minute")
	}
	if v, ok := setting(p, metric.ReservedPorts); ok {
		r.reserved = v
	} else {
		r.doubts = append(r.doubts, "net.ipv4.ip_local_reserved_ports was not recorded; reserved ports would lower the ceiling")
	}
	if v, ok := setting(p, metric.TWReuseDelay); ok {
		r.delay, r.delaySetting = v, true
	}
	for _, b := range bindPools(p) {
		if r.inBind == nil {
			r.inBind = map[string]bool{}
		}
		r.inBind[b.source] = b.asked > 0
	}
	n := r.high - r.low + 1 - r.reserved
	if n <= 0 {
		return r, check.NotAssessed("set net.ipv4.ip_local_port_range to a range with free ports",
			"the port range %.0f–%.0f with %.0f reserved ports has no usable port", r.low, r.high, r.reserved)
	}
	r.usable = quantity.Of(fmt.Sprintf("usable ports of %.0f–%.0f, %.0f reserved", r.low, r.high, r.reserved), n, quantity.Ports)
	return r, nil
}

// reuses reports whether connect() may take a port whose socket is in TIME_WAIT on this path: tcp_twsk_unique in
// net/ipv4/tcp_ipv4.c asks for timestamps, and with mode 2 for a loopback address. A port that bind() chooses is never one in
// TIME_WAIT.
func (r portRange) reuses(c *clientPath) bool {
	return !r.inBind[c.source] && r.timestamps && (r.reuse == 1 || r.reuse == 2 && c.loopback())
}

// hold is how long a closed connection keeps its port from a new one on this path.
func (r portRange) hold(c *clientPath) quantity.Value {
	if r.reuses(c) {
		return quantity.Of("tcp_tw_reuse_delay", r.delay, quantity.Seconds)
	}
	return quantity.Of("TIME_WAIT", timeWaitSeconds, quantity.Seconds)
}

// blocked is the ports no new connection can have at sample i: every live socket's, and those of TIME_WAIT too young to be
// reused.
func (r portRange) blocked(c *clientPath, i int) float64 {
	if !r.reuses(c) {
		return c.total(i)
	}
	return c.live(i) + min(c.at(timeWait, i), c.young[i]*min(1, r.delay/youngSeconds))
}

// A ceiling is what the port range allows on one path, and how much of that is used.
type ceiling struct {
	path     *clientPath
	reuse    bool
	usable   quantity.Value
	hold     quantity.Value
	limit    quantity.Value // connections/s
	measured quantity.Value // connections/s
	share    quantity.Value // of the limit
	timeWait quantity.Value // ports held by TIME_WAIT at their peak
	blocked  []float64      // ports a new connection cannot have, sample by sample
	full     bool
}

// ceilings computes every path on which this side holds TIME_WAIT. Where the peer closes first there is none, and no
// ceiling.
func ceilings(p *check.Pass, r portRange) []ceiling {
	var out []ceiling
	for _, c := range clientPaths(p) {
		_, held := peak(c.count(timeWait))
		_, young := peak(c.young)
		if held == 0 && young == 0 || r.hold(c).Number() <= 0 {
			continue
		}
		out = append(out, ceilingOf(p, r, c, max(held, young)))
	}
	return out
}

func ceilingOf(p *check.Pass, r portRange, c *clientPath, held float64) ceiling {
	out := ceiling{path: c, reuse: r.reuses(c), usable: r.usable, hold: r.hold(c)}
	out.limit = r.usable.Per(out.hold).As("connections/s").Named("ceiling")
	out.timeWait = quantity.Of("TIME_WAIT", held, quantity.Ports)
	out.blocked = c.each(func(i int) float64 { return r.blocked(c, i) })
	_, most := peak(out.blocked)
	out.full = quantity.Of("blocked", most, quantity.Ports).Per(r.usable).AtLeast(p.Param(paramPortsFull))
	out.measured = out.rate(p, r)
	out.share = out.measured.Per(out.limit).Named("share of the ceiling")
	return out
}

// rate is the connections per second that end in TIME_WAIT on the path. Without reuse there are two opinions: what entered
// TIME_WAIT each second, and what is held, which is 60 s of it. The larger counts, except that a range once full admits only
// what it lets go, and that a falling number speaks of the past.
func (c ceiling) rate(p *check.Pass, r portRange) quantity.Value {
	// The median, because one burst in the second before a sample is no rate: the minute's mean has its share of it.
	young := quantity.Of(fmt.Sprintf("connections closed by this side per second, median of %d samples", len(c.path.young)),
		median(c.path.young), "connections/s")
	if c.reuse {
		return c.reuseRate(p, r, young)
	}
	held := c.timeWait.As(quantity.Connections).Per(c.hold).Named("connections per second over the last minute, from TIME_WAIT held")
	tw := c.path.count(timeWait)
	falling := tw[len(tw)-1] < 0.9*tw[0] // more than expiry's jitter between two samples of a steady load
	switch {
	case c.full:
		return held
	case falling || young.Above(held):
		return young
	}
	return held
}

// reuseRate falls back on the namespace's connect() calls where ports return sooner than the young ones can be counted.
func (c ceiling) reuseRate(p *check.Pass, r portRange, young quantity.Value) quantity.Value {
	opens, ok := maybeRise(p, metric.TCPActiveOpens, "connect() calls in the namespace")
	if p.Recorded(metric.DestinationYoungTW) && r.delay >= youngSeconds || !ok {
		return young
	}
	all := 0.0
	for _, c := range clientPaths(p) {
		all += mean(c.count(timeWait))
	}
	if all == 0 {
		return young
	}
	share := quantity.Of("share of TIME_WAIT to this destination", mean(c.path.count(timeWait))/all, quantity.Ratio)
	apportioned := opens.rate().Times(share).Named("connections per second, this destination's share of connect() calls")
	if young.Above(apportioned) {
		return young
	}
	return apportioned
}

// worstByDestination keeps one ceiling a destination, that of the source nearest to its limit, the worst first.
func worstByDestination(all []ceiling) []ceiling {
	slices.SortStableFunc(all, func(a, b ceiling) int {
		switch {
		case a.share.Above(b.share):
			return -1
		case b.share.Above(a.share):
			return 1
		}
		return 0
	})
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(c ceiling) bool {
		dup := seen[c.path.destination]
		seen[c.path.destination] = true
		return dup
	})
}

// destinationSubject is the offender of a finding about a path.
func destinationSubject(c *clientPath) check.Subject {
	return check.Subject{Kind: "destination", ID: c.destination}
}

// portRemedies are the cures of a port range that is too small for its short connections, the best first, each with the
// ceiling it would give here.
func portRemedies(p *check.Pass, r portRange, c *clientPath) []check.Remedy {
	out := fewerTimeWaitRemedies(p, r, c)
	if m, ok := widenRemedy(p, r, c); ok {
		out = append(out, m)
	}
	return append(out, morePairsRemedy(r.usable.Per(r.hold(c)).As("connections/s")))
}

// fewerTimeWaitRemedies are those that leave fewer ports in TIME_WAIT, or take them from it.
func fewerTimeWaitRemedies(p *check.Pass, r portRange, c *clientPath) []check.Remedy {
	out := []check.Remedy{{
		Action: "keep connections to " + c.destination + " open and use them again (connection pool, HTTP keep-alive)",
		Risk:   "a pooled connection the peer closed meanwhile fails its next request: set the pool's idle time below the peer's",
		Effect: "connections per second fall to requests per second / requests per connection; TIME_WAIT falls within 60 s",
	}}
	if m, ok := reuseRemedy(p, r, c); ok {
		out = append(out, m)
	}
	return out
}

// morePairsRemedy spreads the connections over more four-tuples, each pair of addresses with a port range of its own.
func morePairsRemedy(each quantity.Value) check.Remedy {
	return check.Remedy{
		Action: "use more destinations (addresses or ports of the peer) or more source addresses",
		Risk:   "more to configure; a balancer that picks one address keeps the limit",
		Effect: fmt.Sprintf("each further (source, destination) pair adds %s", each.Text()),
	}
}

func reuseRemedy(p *check.Pass, r portRange, c *clientPath) (check.Remedy, bool) {
	switch {
	case r.inBind[c.source]:
		return check.Remedy{}, false
	case !r.reuses(c):
		m := check.Remedy{
			Action:  "let connect() take ports from TIME_WAIT",
			Command: inNetNS(p, "sysctl -w net.ipv4.tcp_tw_reuse=1"),
			Risk: "needs timestamps on both ends; a NAT or balancer on the path that keeps its own TIME_WAIT or rewrites " +
				"timestamps may drop the new SYN",
			Effect: "ceiling becomes " + r.usable.Per(quantity.Of("", r.delay, quantity.Seconds)).As("connections/s").Named("").String(),
		}
		if !r.timestamps {
			m.Action = "turn TCP timestamps on, without which tcp_tw_reuse does nothing, and let connect() take ports from TIME_WAIT"
			m.Command = inNetNS(p, "sysctl -w net.ipv4.tcp_timestamps=1 net.ipv4.tcp_tw_reuse=1")
		}
		return m, r.delay > 0
	case r.delaySetting && r.delay > 0.1:
		return check.Remedy{
			Action:  "let connect() take ports from TIME_WAIT sooner",
			Command: inNetNS(p, "sysctl -w net.ipv4.tcp_tw_reuse_delay=100"),
			Risk:    "the delay must exceed the time late segments of the old connection can take, about the round trip",
			Effect:  "ceiling becomes " + r.usable.Per(quantity.Of("", 0.1, quantity.Seconds)).As("connections/s").Named("").String(),
		}, true
	}
	return check.Remedy{}, false
}

func widenRemedy(p *check.Pass, r portRange, c *clientPath) (check.Remedy, bool) {
	wide := quantity.Of("ports", widestHigh-widestLow+1-r.reserved, quantity.Ports)
	if r.low <= widestLow && r.high >= widestHigh || !wide.Above(r.usable) {
		return check.Remedy{}, false
	}
	return check.Remedy{
		Action:  "widen the port range",
		Command: inNetNS(p, check.Commandf("sysctl -w net.ipv4.ip_local_port_range=\"%d %d\"", widestLow, widestHigh)),
		Risk: "a client may take a port a service wants to listen on: list those in net.ipv4.ip_local_reserved_ports; " +
			"beyond half the range connect() searches long and burns system CPU",
		Effect: "ceiling becomes " + wide.Per(r.hold(c)).As("connections/s").Named("").String(),
	}, true
}

// finTimeoutPlacebo is the cure that most guides name first.
const finTimeoutPlacebo = "tcp_fin_timeout: it is the time in FIN_WAIT2, TIME_WAIT stays 60 s (TCP_TIMEWAIT_LEN, include/net/tcp.h)"
