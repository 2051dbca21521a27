package evidence

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// A BindPool is the ports of one source address, with the process that takes them with bind().
type BindPool struct {
	Source       string
	Asked, Found float64 // calls of bind() for any port in the window
	Searched     float64 // seconds, by calls that found one
	PID, Comm    string  // the process that asked most
	most         float64
}

// BindPools returns the source addresses of the target's namespace, in order.
func BindPools(p *check.Pass) []BindPool {
	by := map[string]*BindPool{}
	if !p.Recorded(metric.BindsAsked) {
		return boundPools(p)
	}
	began, _ := FlowSpan(p)
	for _, s := range p.Counter(metric.BindsAsked, "netns", metric.NetNSTarget) {
		source := s.Label("source")
		if by[source] == nil {
			by[source] = &BindPool{Source: source}
		}
		b, n := by[source], RiseSince(s, began)
		b.Asked += n
		if n > b.most {
			b.most, b.PID, b.Comm = n, s.Label("pid"), s.Label("comm")
		}
	}
	for _, s := range p.Counter(metric.BindsFound, "netns", metric.NetNSTarget) {
		// else nobody was seen asking there: another program wrote the recording
		if b := by[s.Label("source")]; b != nil {
			b.Found += RiseSince(s, began)
		}
	}
	for _, s := range p.Counter(metric.BindSearchSeconds, "netns", metric.NetNSTarget) {
		if b := by[s.Label("source")]; b != nil {
			b.Searched += RiseSince(s, began)
		}
	}
	return sortedPools(by)
}

// boundPools derives the pools from connects if bind() itself is not seen: a process whose bind() failed never
// connects. Their source is the source of the sockets to the same destination.
func boundPools(p *check.Pass) []BindPool {
	began, _ := FlowSpan(p)
	by := map[string]*BindPool{}
	for _, s := range p.Counter(metric.ConnectsBound, "netns", metric.NetNSTarget, "side", "client") {
		n := RiseSince(s, began)
		for _, c := range ClientPaths(p) {
			if c.Destination != s.Label("endpoint") || n == 0 {
				continue
			}
			if by[c.Source] == nil {
				by[c.Source] = &BindPool{Source: c.Source}
			}
			b := by[c.Source]
			b.Asked, b.Found = b.Asked+n, b.Found+n
			if n > b.most {
				b.most, b.PID, b.Comm = n, s.Label("pid"), s.Label("comm")
			}
		}
	}
	return sortedPools(by)
}

func sortedPools(by map[string]*BindPool) []BindPool {
	var out []BindPool
	for _, b := range by {
		out = append(out, *b)
	}
	slices.SortFunc(out, func(x, y BindPool) int { return cmp.Compare(x.Source, y.Source) })
	return out
}

// A PortLoad is the ports blocked on one path.
type PortLoad struct {
	Path  *ClientPath
	At    int // the sample with the most
	Used  quantity.Value
	Share quantity.Value
	Slope float64 // ports/s
}

// PortLoadOf returns the ports that are blocked on a path at its fullest sample.
func PortLoadOf(r PortRange, c *ClientPath) PortLoad {
	row := c.Each(func(i int) float64 { return r.blocked(c, i) })
	at, n := Peak(row)
	used := quantity.Of("ports in use from "+c.Source+" to "+c.Destination, n, quantity.Ports)
	return PortLoad{
		Path: c, At: at, Used: used, Slope: c.Slope(row),
		Share: used.Per(r.Usable).Named("ports in use to %s", c.Destination),
	}
}

const (
	// TimeWaitSeconds is TCP_TIMEWAIT_LEN of include/net/tcp.h: compiled in, no sysctl changes it.
	TimeWaitSeconds = 60
	// reuseDelaySeconds is the delay of tcp_tw_reuse if tcp_tw_reuse_delay does not exist (before kernel 6.14).
	reuseDelaySeconds = 1
	// youngSeconds is the age up to which a socket is in tcp_destination_time_wait_young.
	youngSeconds = 1
	// WidestLow is the lowest port that a remedy can widen the range to: lower ones are privileged.
	WidestLow = 1024
	// WidestHigh is the highest port.
	WidestHigh = 65535
)

var (
	// ParamPortsFull is the share at which a port range counts as full. Sockets come and go between two samples, so
	// it is not quite one.
	ParamPortsFull = &check.Param{
		Name: "full-share", Default: 0.98, Unit: quantity.Ratio,
		Why: "a full range loses and regains a few ports between two samples; below this connect() still finds one",
	}
	// ParamTWFall is the decrease from which on sockets in TIME_WAIT are getting fewer.
	ParamTWFall = &check.Param{
		Name: "falling", Default: 0.1, Unit: quantity.Ratio,
		Why: "more than expiry's jitter between the samples of a steady load: what is held then speaks of the past",
	}
	// ParamReuseDelay is the delay that the remedy with tcp_tw_reuse_delay sets.
	ParamReuseDelay = &check.Param{
		Name: "reuse-delay", Default: 0.1, Unit: quantity.Seconds,
		Why: "the delay to set: longer than late segments of the old connection take, about a round trip, with a " +
			"margin",
	}
)

// PortNeeds returns the metrics that a port budget requires.
func PortNeeds() []metric.Metric {
	return []metric.Metric{
		metric.DestinationSockets, metric.PortRangeLow, metric.PortRangeHigh, metric.TWReuse,
		metric.Timestamps,
	}
}

// PortUses returns the metrics that make a port budget more accurate.
func PortUses() []metric.Metric {
	return append([]metric.Metric{
		metric.DestinationYoungTW, metric.ReservedPorts, metric.TWReuseDelay, metric.DestinationOwner,
		metric.TCPActiveOpens, metric.Sockets, metric.ConnectsBound, metric.BindsAsked, metric.BindsFound,
		metric.BindSearchSeconds,
	}, FlowUses()...)
}

// A PortRange is the local ports that connect() may choose in the target's network namespace, and when it may reuse
// one.
type PortRange struct {
	low, high, Reserved float64
	Usable              quantity.Value
	reuse               float64 // net.ipv4.tcp_tw_reuse
	timestamps          bool
	delay               float64 // seconds, from tcp_tw_reuse_delay
	delaySetting        bool    // the kernel has that setting
	Doubts              []string
	// source addresses with ports chosen by bind(), which ignores tcp_tw_reuse
	inBind map[string]bool
}

// PortRangeOf reads the range and the settings about TIME_WAIT from the recording.
func PortRangeOf(p *check.Pass) (PortRange, error) {
	r := PortRange{delay: reuseDelaySeconds}
	var ts float64
	for _, x := range []struct {
		to *float64
		g  *metric.Gauge
	}{
		{&r.low, metric.PortRangeLow},
		{&r.high, metric.PortRangeHigh},
		{&r.reuse, metric.TWReuse},
		{&ts, metric.Timestamps},
	} {
		v, err := needSetting(p, x.g)
		if err != nil {
			return r, err
		}
		*x.to = v
	}
	r.timestamps = ts != 0
	if !p.Recorded(metric.DestinationYoungTW) {
		r.Doubts = append(r.Doubts, "sockets that just entered TIME_WAIT were not counted, so the rate is that of "+
			"the last minute")
	}
	if v, ok := Setting(p, metric.ReservedPorts); ok {
		r.Reserved = v
	} else {
		r.Doubts = append(r.Doubts, "net.ipv4.ip_local_reserved_ports was not recorded; reserved ports would lower "+
			"the ceiling")
	}
	if v, ok := Setting(p, metric.TWReuseDelay); ok {
		r.delay, r.delaySetting = v, true
	}
	for _, b := range BindPools(p) {
		if r.inBind == nil {
			r.inBind = map[string]bool{}
		}
		r.inBind[b.Source] = b.Asked > 0
	}
	n := r.high - r.low + 1 - r.Reserved
	if n <= 0 {
		return r, check.NotAssessed("set net.ipv4.ip_local_port_range to a range with free ports",
			"the port range %.0f–%.0f with %.0f reserved ports has no usable port", r.low, r.high, r.Reserved)
	}
	r.Usable = quantity.Of(fmt.Sprintf("usable ports of %.0f–%.0f, %.0f reserved", r.low, r.high, r.Reserved), n,
		quantity.Ports)
	return r, nil
}

// reuses reports whether connect() may take a port whose socket is in TIME_WAIT on this path: tcp_twsk_unique in
// net/ipv4/tcp_ipv4.c requires timestamps, and with mode 2 a loopback address. bind() never chooses a port in
// TIME_WAIT.
func (r PortRange) reuses(c *ClientPath) bool {
	return !r.inBind[c.Source] && r.timestamps && (r.reuse == 1 || r.reuse == 2 && c.loopback())
}

// hold returns how long a closed connection keeps its port from a new one on this path.
func (r PortRange) hold(c *ClientPath) quantity.Value {
	if r.reuses(c) {
		return quantity.Of("tcp_tw_reuse_delay", r.delay, quantity.Seconds)
	}
	return quantity.Of("TIME_WAIT", TimeWaitSeconds, quantity.Seconds)
}

// blocked returns the ports that no new connection can have at sample i: those of live sockets, and those in
// TIME_WAIT too young to be reused.
func (r PortRange) blocked(c *ClientPath, i int) float64 {
	if !r.reuses(c) {
		return c.Total(i)
	}
	return c.Live(i) + min(c.At(TimeWait, i), c.Young[i]*min(1, r.delay/youngSeconds))
}

// A Ceiling is what the port range allows on one path, and how much of that is used.
type Ceiling struct {
	Path     *ClientPath
	Reuse    bool
	Usable   quantity.Value
	Hold     quantity.Value
	Limit    quantity.Value // connections/s
	Measured quantity.Value // connections/s
	Share    quantity.Value // of the limit
	TimeWait quantity.Value // ports held by TIME_WAIT at their peak
	Blocked  []float64      // ports that a new connection cannot have, sample by sample
	Full     bool
}

// Ceilings computes every path on which this side holds TIME_WAIT. If the peer closes first, there is no TIME_WAIT
// here and no ceiling.
func Ceilings(p *check.Pass, r PortRange) []Ceiling {
	var out []Ceiling
	for _, c := range ClientPaths(p) {
		_, held := Peak(c.Count(TimeWait))
		_, young := Peak(c.Young)
		if held == 0 && young == 0 || r.hold(c).Number() <= 0 {
			continue
		}
		out = append(out, ceilingOf(p, r, c, max(held, young)))
	}
	return out
}

func ceilingOf(p *check.Pass, r PortRange, c *ClientPath, held float64) Ceiling {
	out := Ceiling{Path: c, Reuse: r.reuses(c), Usable: r.Usable, Hold: r.hold(c)}
	out.Limit = r.Usable.Per(out.Hold).As("connections/s").Named("ceiling")
	out.TimeWait = quantity.Of("TIME_WAIT", held, quantity.Ports)
	out.Blocked = c.Each(func(i int) float64 { return r.blocked(c, i) })
	_, most := Peak(out.Blocked)
	out.Full = quantity.Of("blocked", most, quantity.Ports).Per(r.Usable).AtLeast(p.Param(ParamPortsFull))
	out.Measured = out.rate(p, r)
	out.Share = out.Measured.Per(out.Limit).Named("share of the ceiling")
	return out
}

// rate returns the connections per second that end in TIME_WAIT on the path. Without reuse there are two estimates:
// what entered TIME_WAIT each second, and what is held, which is 60 s of it. The larger counts, with two exceptions:
// a full range admits only as many as it releases, and a falling number describes the past.
func (c Ceiling) rate(p *check.Pass, r PortRange) quantity.Value {
	// The median, because one burst in the second before a sample is not a rate: the minute's mean includes its share
	// of it.
	young := quantity.Of(fmt.Sprintf("connections closed by this side per second, median of %d samples",
		len(c.Path.Young)),
		series.Median(c.Path.Young), "connections/s")
	if c.Reuse {
		return c.reuseRate(p, r, young)
	}
	held := c.TimeWait.As(quantity.Connections).Per(c.Hold).
		Named("connections per second over the last minute, from TIME_WAIT held")
	tw := c.Path.Count(TimeWait)
	fell := quantity.Of("fell", tw[0]-tw[len(tw)-1], quantity.Ports)
	falling := tw[0] > 0 && fell.Per(quantity.Of("", tw[0], quantity.Ports)).Above(p.Param(ParamTWFall))
	switch {
	case c.Full:
		return held
	case falling || young.Above(held):
		return young
	}
	return held
}

// reuseRate falls back to the namespace's connect() calls if ports return sooner than the young ones can be counted.
func (c Ceiling) reuseRate(p *check.Pass, r PortRange, young quantity.Value) quantity.Value {
	opens, ok := MaybeNetRise(p, metric.TCPActiveOpens, "connect() calls in the namespace")
	if p.Recorded(metric.DestinationYoungTW) && r.delay >= youngSeconds || !ok {
		return young
	}
	all := 0.0
	for _, c := range ClientPaths(p) {
		all += series.Mean(c.Count(TimeWait))
	}
	if all == 0 {
		return young
	}
	share := quantity.Of("share of TIME_WAIT to this destination", series.Mean(c.Path.Count(TimeWait))/all,
		quantity.Ratio)
	apportioned := opens.Rate().Times(share).Named("connections per second, this destination's share of connect() " +
		"calls")
	if young.Above(apportioned) {
		return young
	}
	return apportioned
}

// WorstByDestination keeps one ceiling per destination, for the source nearest to its limit, the worst first.
func WorstByDestination(all []Ceiling) []Ceiling {
	slices.SortStableFunc(all, func(a, b Ceiling) int {
		switch {
		case a.Share.Above(b.Share):
			return -1
		case b.Share.Above(a.Share):
			return 1
		}
		return 0
	})
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(c Ceiling) bool {
		dup := seen[c.Path.Destination]
		seen[c.Path.Destination] = true
		return dup
	})
}

// PortRemedies returns the remedies for a port range that is too small for its short connections, the best first,
// each with the ceiling it would give here.
func PortRemedies(p *check.Pass, r PortRange, c *ClientPath) []check.Remedy {
	out := FewerTimeWaitRemedies(p, r, c)
	if m, ok := WidenRemedy(p, r, c); ok {
		out = append(out, m)
	}
	return append(out, MorePairsRemedy(r.Usable.Per(r.hold(c)).As("connections/s")))
}

// FewerTimeWaitRemedies returns the remedies that leave fewer ports in TIME_WAIT, or reuse those in it.
func FewerTimeWaitRemedies(p *check.Pass, r PortRange, c *ClientPath) []check.Remedy {
	out := []check.Remedy{{
		Action: "keep connections to " + c.Destination + " open and use them again (connection pool, HTTP keep-alive)",
		Risk: "a pooled connection the peer closed meanwhile fails its next request: set the pool's idle time " +
			"below the peer's",
		Effect: "connections per second fall to requests per second / requests per connection; TIME_WAIT falls " +
			"within 60 s",
	}}
	if m, ok := reuseRemedy(p, r, c); ok {
		out = append(out, m)
	}
	return out
}

// MorePairsRemedy spreads the connections over more four-tuples, each pair of addresses having a port range of its
// own.
func MorePairsRemedy(each quantity.Value) check.Remedy {
	return check.Remedy{
		Action: "use more destinations (addresses or ports of the peer) or more source addresses",
		Risk:   "more to configure; a balancer that picks one address keeps the limit",
		Effect: fmt.Sprintf("each further (source, destination) pair adds %s", each.Text()),
	}
}

func reuseRemedy(p *check.Pass, r PortRange, c *ClientPath) (check.Remedy, bool) {
	delay, shorter := quantity.Of("", r.delay, quantity.Seconds), p.Param(ParamReuseDelay)
	switch {
	case r.inBind[c.Source]:
		return check.Remedy{}, false
	case !r.reuses(c):
		m := check.Remedy{
			Action:  "let connect() take ports from TIME_WAIT",
			Command: InNetNS(p, "sysctl -w net.ipv4.tcp_tw_reuse=1"),
			Risk: "needs timestamps on both ends; a NAT or balancer on the path that keeps its own TIME_WAIT or " +
				"rewrites " +
				"timestamps may drop the new SYN",
			Effect: "ceiling becomes " + r.Usable.Per(quantity.Of("", r.delay, quantity.Seconds)).As("connections/s").
				Named("").String(),
		}
		if !r.timestamps {
			m.Action = "turn TCP timestamps on, without which tcp_tw_reuse does nothing, and let connect() take " +
				"ports from TIME_WAIT"
			m.Command = InNetNS(p, "sysctl -w net.ipv4.tcp_timestamps=1 net.ipv4.tcp_tw_reuse=1")
		}
		return m, r.delay > 0
	case r.delaySetting && delay.Above(shorter):
		return check.Remedy{
			Action:  "let connect() take ports from TIME_WAIT sooner",
			Command: InNetNS(p, check.Commandf("sysctl -w net.ipv4.tcp_tw_reuse_delay=%.0f", shorter.Number()*1000)),
			Risk: "the delay must exceed the time late segments of the old connection can take, about the round " +
				"trip",
			Effect: "ceiling becomes " + r.Usable.Per(shorter.Named("")).As("connections/s").Named("").String(),
		}, true
	}
	return check.Remedy{}, false
}

// WidenRemedy widens the port range; ok is false if it cannot get wider.
func WidenRemedy(p *check.Pass, r PortRange, c *ClientPath) (check.Remedy, bool) {
	wide := quantity.Of("ports", WidestHigh-WidestLow+1-r.Reserved, quantity.Ports)
	if r.low <= WidestLow && r.high >= WidestHigh || !wide.Above(r.Usable) {
		return check.Remedy{}, false
	}
	return check.Remedy{
		Action:  "widen the port range",
		Command: InNetNS(p, check.Commandf("sysctl -w net.ipv4.ip_local_port_range=\"%d %d\"", WidestLow, WidestHigh)),
		Risk: "a client may take a port a service wants to listen on: list those in " +
			"net.ipv4.ip_local_reserved_ports; " +
			"beyond half the range connect() searches long and burns system CPU",
		Effect: "ceiling becomes " + wide.Per(r.hold(c)).As("connections/s").Named("").String(),
	}, true
}

// FinTimeoutPlacebo is the placebo that most guides name first.
const FinTimeoutPlacebo = "tcp_fin_timeout: it is the time in FIN_WAIT2, TIME_WAIT stays 60 s (TCP_TIMEWAIT_LEN, " +
	"include/net/tcp.h)"
