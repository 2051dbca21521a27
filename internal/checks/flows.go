package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// flowUses are the metrics of connections that BPF programs see begin and end. They name the process and count exactly; without
// them the checks do with what sockets and counters tell.
func flowUses() []metric.Metric {
	return []metric.Metric{
		metric.ConnectAttempts, metric.Connects, metric.ConnectFailures, metric.PortSearches, metric.PortSearchSeconds,
		metric.ConnectionsClosed, metric.ConnectionTurns, metric.FlowRetransmits, metric.BPFRuns, // which tells from when they count
	}
}

// flowRise gives what a counter of connections from this namespace to a destination rose by, over all processes; with pairs of
// label and value, over those that match. It counts from the recording's beginning: a series that begins later began at
// zero, unlike any counter of the kernel.
func flowRise(p *check.Pass, c *metric.Counter, destination string, match ...string) float64 {
	began, _ := flowSpan(p)
	n := 0.0
	for _, s := range p.Counter(c, append([]string{"netns", metric.NetNSTarget, "side", "client", "endpoint", destination}, match...)...) {
		n += riseSince(s, began)
	}
	return n
}

func riseSince(s recording.CounterSeries, began time.Duration) float64 {
	n, _ := s.Increase()
	if s.Points[0].At > began {
		n += s.Points[0].Value
	}
	return n
}

// flowSpan is when flows were counted first, and for how long.
func flowSpan(p *check.Pass) (began time.Duration, window quantity.Value) {
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

// flowsSeen says whether flows were counted for some time.
func flowsSeen(p *check.Pass) bool {
	_, window := flowSpan(p)
	return p.Recorded(metric.ConnectAttempts) && window.Number() > 0
}

// A clientFlow is one process's connections to one destination in the window.
type clientFlow struct {
	destination, pid, comm  string
	attempts, closed, turns float64
}

// name gives "pid 4021 (java)"; a flow without a process is of several.
func (f clientFlow) name() string {
	if f.pid == "" {
		return "processes that were too many to name"
	}
	return "pid " + pidName(f.pid, f.comm)
}

// single tells that the connections that ended had hardly more than one request each. With few that ended, those that were opened
// tell: a pool opens few.
func (f clientFlow) single(most quantity.Value) bool {
	if f.closed == 0 {
		return false
	}
	return quantity.Of("", f.turns/f.closed, most.Unit()).Below(most)
}

// clientFlows gives the flows of the target's namespace, those with most connections first.
func clientFlows(p *check.Pass) []clientFlow {
	began, _ := flowSpan(p)
	rises := func(c *metric.Counter, s *recording.Series) float64 {
		n := 0.0
		for _, o := range p.Counter(c, "netns", metric.NetNSTarget, "side", "client", "endpoint", s.Label("endpoint"), "pid",
			s.Label("pid"), "comm", s.Label("comm")) {
			n += riseSince(o, began)
		}
		return n
	}
	var out []clientFlow
	for _, s := range p.Counter(metric.ConnectAttempts, "netns", metric.NetNSTarget, "side", "client") {
		out = append(out, clientFlow{
			destination: s.Label("endpoint"), pid: s.Label("pid"), comm: s.Label("comm"), attempts: riseSince(s, began),
			closed: rises(metric.ConnectionsClosed, s.Series), turns: rises(metric.ConnectionTurns, s.Series),
		})
	}
	slices.SortStableFunc(out, func(a, b clientFlow) int { return cmp.Compare(b.attempts, a.attempts) })
	return out
}

// openersOf names the processes that connect to a destination with their connects per second; empty when none was seen.
func openersOf(p *check.Pass, destination string) string {
	if !flowsSeen(p) {
		return ""
	}
	_, window := flowSpan(p)
	var names []string
	more := 0
	for _, f := range clientFlows(p) {
		switch {
		case f.destination != destination || f.attempts == 0:
		case len(names) == ownersShown:
			more++
		default:
			rate := quantity.Of("", f.attempts, quantity.Connections).Per(window)
			names = append(names, f.name()+", "+rate.Text())
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

// An endpointFlow is what a counter of one endpoint's connections, of one side, rose by in the target's namespace.
type endpointFlow struct {
	side, endpoint, pid, comm string
	n                         float64
}

// flowsBy gives the flows of which a counter rose, the largest first; with pairs of label and value, of those that match. Connections that
// were there before have neither endpoint nor process, and are left out.
func flowsBy(p *check.Pass, c *metric.Counter, match ...string) []endpointFlow {
	if !flowsSeen(p) {
		return nil
	}
	began, _ := flowSpan(p)
	by := map[endpointFlow]float64{}
	for _, s := range p.Counter(c, append([]string{"netns", metric.NetNSTarget}, match...)...) {
		f := endpointFlow{side: s.Label("side"), endpoint: s.Label("endpoint"), pid: s.Label("pid"), comm: s.Label("comm")}
		if f.endpoint != "" {
			by[f] += riseSince(s, began)
		}
	}
	var out []endpointFlow
	for f, n := range by {
		if f.n = n; n > 0 {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b endpointFlow) int {
		return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.endpoint, b.endpoint), strings.Compare(a.pid, b.pid),
			strings.Compare(a.side, b.side))
	})
	return out
}

// text says whose connections they are.
func (f endpointFlow) text() string {
	switch {
	case f.side == "server":
		return "connections accepted at " + f.endpoint
	case f.pid == "":
		return "connections to " + f.endpoint
	}
	return "connections of pid " + pidName(f.pid, f.comm) + " to " + f.endpoint
}

// unavailable gives the connects per second to a destination that found no local port; ok is false when none was counted.
func unavailable(p *check.Pass, destination string) (rate quantity.Value, ok bool) {
	if !flowsSeen(p) {
		return quantity.Value{}, false
	}
	_, window := flowSpan(p)
	n := flowRise(p, metric.ConnectFailures, destination, "error", "EADDRNOTAVAIL")
	return quantity.Of("connects without a local port (EADDRNOTAVAIL)", n, quantity.Connections).Per(window).
		Named("connects that failed with EADDRNOTAVAIL"), true
}

// portSearch gives how long a connect to a destination searched for a local port on average, and how many threads were at it at any
// moment; ok is false when none was measured. It is time on the wall: on a crowded host, waiting for a CPU is in it.
func portSearch(p *check.Pass, destination string) (mean, threads quantity.Value, ok bool) {
	n, spent := flowRise(p, metric.PortSearches, destination), flowRise(p, metric.PortSearchSeconds, destination)
	_, window := flowSpan(p)
	if n == 0 || window.Number() <= 0 {
		return quantity.Value{}, quantity.Value{}, false
	}
	time := quantity.Of("searched", spent, quantity.Seconds)
	mean = time.Per(quantity.Of("connects", n, quantity.Connections)).As(quantity.Seconds).Named("search for a local port per connect")
	return mean, time.Per(window).As(quantity.Threads).Named("threads searching at any moment"), true
}
