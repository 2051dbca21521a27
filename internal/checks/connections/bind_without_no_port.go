package connections

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	paramBindFull = &check.Param{
		Name: "full-share", Default: 0.9, Unit: quantity.Ratio,
		Why: "a bind() that fails while more than a tenth of the pool is free failed for another reason, such as an " +
			"address that is " +
			"not here",
	}
	paramBindShare = &check.Param{
		Name: "range-share", Default: 0.5, Unit: quantity.Ratio,
		Why: "bind() tries one half of the range first, as connect() does (inet_csk_find_open_port): beyond it each " +
			"call searches long",
	}
	paramBindCeiling = &check.Param{
		Name: "ceiling-share", Default: 0.6, Unit: quantity.Ratio,
		Why: "one more burst of two thirds reaches what the pool allows if each port is held for TIME_WAIT",
	}
	paramBindKernel = &check.Param{
		Name: "kernel-share", Default: 0.05, Unit: quantity.Ratio,
		Why: "as for the search of connect(): with less, the kernel does not spend its time in the search",
	}
	paramBindCost = &check.Param{
		Name: "search-cost", Default: 0.05, Unit: "CPUs",
		Why: "on an idle host a few searches are a good share of what the kernel does: below a twentieth of a CPU " +
			"they hold nothing back",
	}
)

var bindWithoutNoPort = &check.Check{
	Name:  "bind-without-no-port",
	Stage: check.Connections,
	Doc: `bind(address, 0) before connect() takes ports from one pool for all destinations
When a client binds its source address to port 0, bind() chooses the port before the destination is known. So no
connection of that address may use the port, whatever its destination (inet_csk_get_port in
net/ipv4/inet_connection_sock.c), not even one in TIME_WAIT. When none is left bind() fails with EADDRINUSE, "Address
already in use", not EADDRNOTAVAIL; no kernel counter moves.

Measured: calls of bind() for port 0 without IP_BIND_ADDRESS_NO_PORT and how many of them found a port, by process and
source address, against the ports in use from that address to all destinations. Failures while the pool is full are
critical. It is a warning when half of the pool is used and bind() takes ports faster than TIME_WAIT gives them back.
Where only connects whose port bind() chose were seen, a full pool is a warning.

Where BPF programs may run, samples of all CPUs show the search itself (inet_csk_get_port). It is also a warning when
the pool is more than half used and the search has a twentieth of the host's kernel samples, and of a CPU.

Fix: set IP_BIND_ADDRESS_NO_PORT before bind() (Linux 4.2): connect() then chooses the port, and each destination has
a pool of its own. Or do not bind where the routing table chooses the same address. Won't help: tcp_tw_reuse, which
bind() does not look at.
Disproved if bind() never fails with EADDRINUSE (strace -f -e trace=bind).`,
	URL:    "https://man7.org/linux/man-pages/man7/ip.7.html",
	Needs:  append(evidence.PortNeeds(), metric.ConnectsBound),
	Uses:   append(evidence.PortUses(), metric.HostCPUProfileSamples),
	Params: []*check.Param{paramBindFull, paramBindShare, paramBindCeiling, paramBindKernel, paramBindCost},
	Run:    runBindWithoutNoPort,
}

// bindsFailed returns how many calls found no port. A call that is still under way at the last sample is among them.
func bindsFailed(b evidence.BindPool) float64 { return max(0, b.Asked-b.Found) }

func runBindWithoutNoPort(p *check.Pass) error {
	r, err := evidence.PortRangeOf(p)
	if err != nil {
		return err
	}
	pools := evidence.BindPools(p)
	asked := 0.0
	for _, b := range pools {
		asked += b.Asked
	}
	p.Read(quantity.Of("sockets that had bind() choose their port", asked, quantity.Sockets))
	for _, b := range pools {
		assessBindPool(p, r, b)
	}
	return nil
}

// usesPool reports whether a path takes its ports from the pool: from the same source address, or from any if none
// was asked for.
func usesPool(b evidence.BindPool, c *evidence.ClientPath) bool {
	a, err := netip.ParseAddr(b.Source)
	return c.Source == b.Source || err == nil && a.IsUnspecified()
}

// poolUsed returns the ports in use from the address at the sample with most, those of them in TIME_WAIT, and the
// destinations.
func poolUsed(b evidence.BindPool, p *check.Pass) (ports, waiting float64, destinations []string) {
	var all, tw []float64
	for _, c := range evidence.ClientPaths(p) {
		if !usesPool(b, c) {
			continue
		}
		all, tw = addRows(all, c.Each(c.Total)), addRows(tw, c.Count(evidence.TimeWait))
		destinations = append(destinations, c.Destination)
	}
	slices.Sort(destinations)
	destinations = slices.Compact(destinations)
	at, ports := evidence.Peak(all)
	if ports == 0 {
		return 0, 0, destinations
	}
	return ports, tw[at], destinations
}

func addRows(sum, row []float64) []float64 {
	if sum == nil {
		return slices.Clone(row)
	}
	for i := range sum {
		sum[i] += row[i]
	}
	return sum
}

func assessBindPool(p *check.Pass, r evidence.PortRange, b evidence.BindPool) {
	ports, waiting, destinations := poolUsed(b, p)
	share := quantity.Of("in use to all destinations", ports, quantity.Ports).Per(r.Usable).
		Named("ports in use from %s, to all destinations together", b.Source)
	_, window := evidence.FlowSpan(p)
	if b.Asked == 0 || window.Number() <= 0 || share.Below(p.Param(paramBindShare)) {
		return
	}
	failing := quantity.Of("found no port", bindsFailed(b), quantity.Sockets).Per(window).As("binds/s").
		Named("bind() that found no port")
	taken := quantity.Of("found a port", b.Found, quantity.Sockets).Per(window).As("ports/s").
		Named("ports that bind() takes")
	f := check.Finding{
		Subject:    evidence.PIDSubject(b.PID, b.Comm),
		Severity:   check.Info,
		Confidence: check.High,
		Evidence:   []quantity.Value{r.Usable, share, taken},
		Notes:      []string{"from " + b.Source + " to " + few(destinations)},
		Remedies:   bindRemedies(r),
		Placebos:   []string{"tcp_tw_reuse: connect() looks at it, bind() does not", evidence.FinTimeoutPlacebo},
		Disproof:   "strace -f -e trace=bind shows no bind() with sin_port=htons(0) that fails with EADDRINUSE",
		Doubts:     slices.Clone(r.Doubts),
	}
	if p.Recorded(metric.BindsAsked) {
		f.Evidence = append(f.Evidence, failing)
	}
	if b.Found > 0 && b.Searched > 0 {
		f.Evidence = append(f.Evidence, quantity.Of("searched", b.Searched, quantity.Seconds).
			Per(quantity.Of("binds", b.Found, quantity.Sockets)).As(quantity.Seconds).
			Named("search for a port per bind()"))
	}
	judgePool(p, r, &f, b, poolNumbers{share, failing, taken, waiting})
	addBindSearch(p, &f)
	p.Report(f)
}

// bindSearch is the function in which bind() looks for a port (net/ipv4/inet_connection_sock.c). connect() does not
// call it, and listen() seldom does.
const bindSearch = "inet_csk_get_port"

// addBindSearch adds what samples of the CPUs say about the search.
func addBindSearch(p *check.Pass, f *check.Finding) {
	share, functions, ok := evidence.KernelShare(p, "search of bind() for a local port", nil, bindSearch)
	h, profiled := hotcode.HostOf(p.Recording)
	if !ok || !profiled || h.Duration <= 0 {
		return
	}
	spent := h.Inclusive(h.Set(func(f stacks.Frame) bool { return f.Kind == stacks.Kernel && f.Name == bindSearch }))
	cost := quantity.Of("CPU time", float64(spent.Value)/1e9, quantity.Seconds).
		Per(quantity.Of("window", h.Duration.Seconds(), quantity.Seconds)).As("CPUs").
		Named("CPU time in the search of bind()")
	f.Evidence = append(f.Evidence, share, cost)
	if functions != "" {
		f.Notes = append(f.Notes, "the kernel's samples in it: "+functions)
	}
	if share.AtLeast(p.Param(paramBindKernel)) && cost.AtLeast(p.Param(paramBindCost)) && f.Severity < check.Warning {
		f.Severity = check.Warning
		f.Summary += fmt.Sprintf("; the search for a free one has %s of the kernel's samples", share.Text())
	}
}

type poolNumbers struct {
	share, failing, taken quantity.Value
	waiting               float64 // ports in TIME_WAIT
}

// judgePool sets severity and summary.
func judgePool(p *check.Pass, r evidence.PortRange, f *check.Finding, b evidence.BindPool, n poolNumbers) {
	// Failures are the calls less the ports found: a call that was under way at the end is no failure.
	const underWay = 2
	full := n.share.AtLeast(p.Param(paramBindFull))
	ceiling := r.Usable.Per(quantity.Of("TIME_WAIT", evidence.TimeWaitSeconds,
		quantity.Seconds)).As("ports/s").Named("ports that TIME_WAIT gives back")
	f.Summary = fmt.Sprintf("bind(%s, 0) takes ports from one pool for all destinations: %s of them in use", b.Source,
		n.share.Text())
	switch {
	case full && bindsFailed(b) > underWay:
		f.Severity = check.Critical
		f.Summary = fmt.Sprintf("bind(%s, 0) fails with EADDRINUSE %.1f times a second: %s of %.0f ports in use, in "+
			"one pool for all "+
			"destinations",
			b.Source, n.failing.Number(), n.share.Text(), r.Usable.Number())
	case full && !p.Recorded(metric.BindsAsked):
		f.Severity, f.Confidence = check.Warning, check.Medium
		f.Doubts = append(f.Doubts, "bind() itself was not seen: whether it fails is inferred from the ports in use")
	case n.waiting > 0 && n.taken.Per(ceiling).AtLeast(p.Param(paramBindCeiling)):
		f.Severity = check.Warning
		f.Evidence = append(f.Evidence, ceiling)
		f.Summary += fmt.Sprintf("; it takes %s, TIME_WAIT gives back %s at most", n.taken.Text(), ceiling.Text())
	}
}

func bindRemedies(r evidence.PortRange) []check.Remedy {
	return []check.Remedy{{
		Action: "set IP_BIND_ADDRESS_NO_PORT on the socket before bind(): setsockopt(fd, IPPROTO_IP, " +
			"IP_BIND_ADDRESS_NO_PORT, &one, " +
			"sizeof one); " +
			"it serves IPv6 sockets, too",
		Risk: "until connect() the socket has no port: getsockname() says 0",
		Effect: "connect() chooses the port: each destination has " + r.Usable.Text() +
			" of its own, and tcp_tw_reuse counts",
	}, {
		Action: "do not bind where the routing table chooses the same source address",
		Risk:   "a route that changes then changes the address",
		Effect: "as above",
	}}
}

// destinationsShown is how many destinations a note lists.
const destinationsShown = 3

func few(destinations []string) string {
	if n := len(destinations); n > destinationsShown {
		return fmt.Sprintf("%s and %d more", strings.Join(destinations[:destinationsShown], ", "), n-destinationsShown)
	}
	return strings.Join(destinations, ", ")
}
