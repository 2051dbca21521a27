package evidence

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// FlowUses returns the metrics of connections that BPF programs see begin and end. They name the process and count
// exactly; without them the checks use what sockets and counters show.
func FlowUses() []metric.Metric {
	return []metric.Metric{
		metric.ConnectAttempts, metric.Connects, metric.ConnectFailures, metric.PortSearches, metric.PortSearchSeconds,
		// says since when they count
		metric.ConnectionsClosed, metric.ConnectionTurns, metric.FlowRetransmits, metric.BPFRuns,
		metric.ConnectSeconds, metric.ConnectionSeconds,
	}
}

// FlowRise returns the increase of a counter of connections from this namespace to a destination, over all processes,
// or over those that match pairs of label and value. It counts from the recording's beginning: a series that begins
// later began at zero, unlike any counter of the kernel.
func FlowRise(p *check.Pass, c *metric.Counter, destination string, match ...string) float64 {
	began, _ := FlowSpan(p)
	return clientRise(p, c, began, append([]string{"endpoint", destination}, match...)...)
}

// clientRise returns the increase since began of a counter of connections from this namespace, over those that match.
func clientRise(p *check.Pass, c *metric.Counter, began time.Duration, match ...string) (n float64) {
	for _, s := range p.Counter(c, append([]string{"netns", metric.NetNSTarget, "side", "client"}, match...)...) {
		n += RiseSince(s, began)
	}
	return n
}

// RiseSince returns the increase of a counter of BPF programs since they began to count: a series that begins later
// began at zero.
func RiseSince(s recording.CounterSeries, began time.Duration) float64 {
	return series.RiseSince(s.Points, began)
}

// FlowSpan returns when flows were first counted, and for how long.
func FlowSpan(p *check.Pass) (began time.Duration, window quantity.Value) {
	var ended time.Duration
	seen := false
	for _, c := range []*metric.Counter{metric.BPFRuns, metric.ConnectAttempts} {
		for _, s := range p.Counter(c) {
			first, last := s.Points[0].At, s.Points[len(s.Points)-1].At
			if !seen || first < began {
				began = first
			}
			ended, seen = max(ended, last), true
		}
	}
	return began, quantity.Of("window", (ended - began).Seconds(), quantity.Seconds)
}

// FlowsSeen reports whether flows were counted for some time.
func FlowsSeen(p *check.Pass) bool {
	_, window := FlowSpan(p)
	return p.Recorded(metric.ConnectAttempts) && window.Number() > 0
}

// A ClientFlow is one process's connections to one destination in the window.
type ClientFlow struct {
	Destination, pid, comm  string
	Attempts, Closed, Turns float64

	connects, connecting, open float64       // established connects, and seconds
	began                      time.Duration // see [FlowSpan]
}

// Handshake returns how long a connect took, mean; zero if none was established.
func (f ClientFlow) Handshake() quantity.Value {
	return quantity.Of("time of a handshake, mean", f.connecting/max(f.connects, 1), quantity.Seconds)
}

// Life returns how long a connection was open until it ended, mean; zero if none ended.
func (f ClientFlow) Life() quantity.Value {
	return quantity.Of("time for which a connection is open, mean", f.open/max(f.Closed, 1), quantity.Seconds)
}

// Rise returns the increase of another counter of its connections.
func (f ClientFlow) Rise(p *check.Pass, c *metric.Counter) float64 {
	return clientRise(p, c, f.began, "endpoint", f.Destination, "pid", f.pid, "comm", f.comm)
}

// Failed returns how many of its connects failed with an error, such as ECONNREFUSED.
func (f ClientFlow) Failed(p *check.Pass, code string) float64 {
	return clientRise(p, metric.ConnectFailures, f.began, "endpoint", f.Destination, "pid", f.pid, "comm", f.comm,
		"error", code)
}

// Alternative returns how many connects another flow established, if the same process opened them to the same port of
// another address; otherwise zero.
func (f ClientFlow) Alternative(o ClientFlow) float64 {
	if o.pid != f.pid || o.Destination == f.Destination || PortOf(o.Destination) != PortOf(f.Destination) {
		return 0
	}
	return o.connects
}

// Subject is the flow's process, or its destination if several processes are counted together.
func (f ClientFlow) Subject() check.Subject {
	if f.pid == "" {
		return check.Subject{Kind: "destination", ID: f.Destination}
	}
	return check.Subject{Kind: "pid", ID: PIDName(f.pid, f.comm)}
}

// Add adds another process's flow to the same destination.
func (f *ClientFlow) Add(o ClientFlow) {
	f.Attempts, f.Closed, f.Turns = f.Attempts+o.Attempts, f.Closed+o.Closed, f.Turns+o.Turns
	f.connects, f.connecting, f.open = f.connects+o.connects, f.connecting+o.connecting, f.open+o.open
}

// Name returns "pid 4021 (java)"; a flow without a process stands for several.
func (f ClientFlow) Name() string {
	if f.pid == "" {
		return "processes that were too many to name"
	}
	return "pid " + PIDName(f.pid, f.comm)
}

// ClientFlows returns the flows of the target's namespace, the one with the most connections first.
func ClientFlows(p *check.Pass) []ClientFlow {
	began, _ := FlowSpan(p)
	var out []ClientFlow
	for _, s := range p.Counter(metric.ConnectAttempts, "netns", metric.NetNSTarget, "side", "client") {
		f := ClientFlow{
			Destination: s.Label("endpoint"), pid: s.Label("pid"), comm: s.Label("comm"), Attempts: RiseSince(s, began),
			began: began,
		}
		f.Closed, f.Turns = f.Rise(p, metric.ConnectionsClosed), f.Rise(p, metric.ConnectionTurns)
		f.connects, f.connecting = f.Rise(p, metric.Connects), f.Rise(p, metric.ConnectSeconds)
		f.open = f.Rise(p, metric.ConnectionSeconds)
		out = append(out, f)
	}
	slices.SortStableFunc(out, func(a, b ClientFlow) int { return cmp.Compare(b.Attempts, a.Attempts) })
	return out
}

// OpenersOf names the processes that connect to a destination with their connects per second; empty if none was seen.
func OpenersOf(p *check.Pass, destination string) string {
	if !FlowsSeen(p) {
		return ""
	}
	_, window := FlowSpan(p)
	var names []string
	more := 0
	for _, f := range ClientFlows(p) {
		switch {
		case f.Destination != destination || f.Attempts == 0:
		case len(names) == OwnersShown:
			more++
		default:
			rate := quantity.Of("", f.Attempts, quantity.Connections).Per(window)
			names = append(names, f.Name()+", "+rate.Text())
		}
	}
	if len(names) == 0 {
		return ""
	}
	if more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return "opened by " + strings.Join(names, "; ")
}

// An EndpointFlow is the increase of a counter of one endpoint's connections, of one side, in the target's namespace.
type EndpointFlow struct {
	Side, Endpoint, pid, comm string
	N                         float64
}

// FlowsBy returns the flows with a counter that rose, the largest first; with pairs of label and value, only those
// that match. Connections that existed before have neither endpoint nor process, and are left out.
func FlowsBy(p *check.Pass, c *metric.Counter, match ...string) []EndpointFlow {
	if !FlowsSeen(p) {
		return nil
	}
	began, _ := FlowSpan(p)
	by := map[EndpointFlow]float64{}
	for _, s := range p.Counter(c, append([]string{"netns", metric.NetNSTarget}, match...)...) {
		f := EndpointFlow{
			Side: s.Label("side"), Endpoint: s.Label("endpoint"), pid: s.Label("pid"),
			comm: s.Label("comm"),
		}
		if f.Endpoint != "" {
			by[f] += RiseSince(s, began)
		}
	}
	var out []EndpointFlow
	for f, n := range by {
		if f.N = n; n > 0 {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b EndpointFlow) int {
		return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Endpoint, b.Endpoint), strings.Compare(a.pid, b.pid),
			strings.Compare(a.Side, b.Side))
	})
	return out
}

// Text names the connections.
func (f EndpointFlow) Text() string {
	switch {
	case f.Side == "server":
		return "connections accepted at " + f.Endpoint
	case f.pid == "":
		return "connections to " + f.Endpoint
	}
	return "connections of pid " + PIDName(f.pid, f.comm) + " to " + f.Endpoint
}

// Unavailable returns the connects per second to a destination that found no local port; ok is false if none was
// counted.
func Unavailable(p *check.Pass, destination string) (rate quantity.Value, ok bool) {
	if !FlowsSeen(p) {
		return quantity.Value{}, false
	}
	_, window := FlowSpan(p)
	n := FlowRise(p, metric.ConnectFailures, destination, "error", "EADDRNOTAVAIL")
	return quantity.Of("connects without a local port (EADDRNOTAVAIL)", n, quantity.Connections).Per(window).
		Named("connects that failed with EADDRNOTAVAIL"), true
}
