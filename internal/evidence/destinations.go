package evidence

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// The states of the kernel's TCP sockets that the rules distinguish (include/net/tcp_states.h).
const (
	TimeWait    = "TIME_WAIT"
	Established = "ESTABLISHED"
	SynSent     = "SYN_SENT"
	CloseWait   = "CLOSE_WAIT"
)

// A ClientPath is the client-side sockets from one local address to one destination, sample by sample: the kernel's
// unit of local ports, since a port is taken per (source address, destination address and port).
type ClientPath struct {
	Source, Destination string
	Times               []time.Duration
	states              map[string][]float64 // by state, one number per sample; zero if none was recorded
	Young               []float64            // TIME_WAIT entered in the second before the sample
}

// ClientPaths returns every recorded path, in order of source and destination.
func ClientPaths(p *check.Pass) []*ClientPath {
	times := sampleTimes(p)
	byKey := map[[2]string]*ClientPath{}
	var out []*ClientPath
	path := func(source, destination string) *ClientPath {
		k := [2]string{source, destination}
		if byKey[k] == nil {
			byKey[k] = &ClientPath{
				Source: source, Destination: destination, Times: times,
				states: map[string][]float64{}, Young: make([]float64, len(times)),
			}
			out = append(out, byKey[k])
		}
		return byKey[k]
	}
	for _, s := range p.Gauge(metric.DestinationSockets) {
		path(s.Label("source"), s.Label("destination")).states[s.Label("state")] = rowOf(s, times)
	}
	for _, s := range p.Gauge(metric.DestinationYoungTW) {
		path(s.Label("source"), s.Label("destination")).Young = rowOf(s, times)
	}
	return out
}

// rowOf returns a series' value at each of the times, zero where it has none.
func rowOf(s recording.GaugeSeries, times []time.Duration) []float64 {
	row := make([]float64, len(times))
	for _, pt := range s.Points {
		if i, ok := slices.BinarySearch(times, pt.At); ok {
			row[i] = pt.Value
		}
	}
	return row
}

// sampleTimes returns the times at which sockets were counted. The totals by state are always there, so if they come
// from the same dumps they also mark the samples in which a destination had no socket.
func sampleTimes(p *check.Pass) []time.Duration {
	own := gaugeTimes(p, metric.DestinationSockets, metric.DestinationYoungTW)
	all := gaugeTimes(p, metric.Sockets)
	for _, t := range own {
		if _, ok := slices.BinarySearch(all, t); !ok {
			return own
		}
	}
	return all
}

func gaugeTimes(p *check.Pass, gauges ...*metric.Gauge) []time.Duration {
	var out []time.Duration
	for _, g := range gauges {
		for _, s := range p.Gauge(g) {
			for _, pt := range s.Points {
				out = append(out, pt.At)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// At returns the number of sockets in a state at sample i.
func (c *ClientPath) At(state string, i int) float64 {
	if row := c.states[state]; row != nil {
		return row[i]
	}
	return 0
}

// Live returns the number of sockets in any state but TIME_WAIT at sample i.
func (c *ClientPath) Live(i int) float64 {
	n := 0.0
	for state, row := range c.states {
		if state != TimeWait {
			n += row[i]
		}
	}
	return n
}

// Total returns the number of sockets in all states at sample i.
func (c *ClientPath) Total(i int) float64 { return c.Live(i) + c.At(TimeWait, i) }

// Each returns f of every sample.
func (c *ClientPath) Each(f func(i int) float64) []float64 {
	out := make([]float64, len(c.Times))
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// Count returns the number of sockets in a state, sample by sample.
func (c *ClientPath) Count(state string) []float64 {
	return c.Each(func(i int) float64 { return c.At(state, i) })
}

// seconds returns the time from the first to the last sample.
func (c *ClientPath) seconds() float64 {
	if len(c.Times) == 0 {
		return 0
	}
	return (c.Times[len(c.Times)-1] - c.Times[0]).Seconds()
}

// Slope returns how much a number grew per second from the first to the last sample; zero with one sample.
func (c *ClientPath) Slope(row []float64) float64 {
	s := c.seconds()
	if s <= 0 {
		return 0
	}
	return (row[len(row)-1] - row[0]) / s
}

// loopback reports whether one end is a loopback address: tcp_tw_reuse=2 requires no more (tcp_twsk_unique in
// net/ipv4/tcp_ipv4.c).
func (c *ClientPath) loopback() bool {
	return IsLoopback(c.Source) || IsLoopback(c.Destination)
}

// IsLoopback reports whether an address, or the address of an endpoint with its port, is a loopback address.
func IsLoopback(endpoint string) bool {
	if ap, err := netip.ParseAddrPort(endpoint); err == nil {
		return ap.Addr().Unmap().IsLoopback()
	}
	a, err := netip.ParseAddr(strings.Trim(endpoint, "[]"))
	return err == nil && a.Unmap().IsLoopback()
}

// HostOf returns the address of "10.0.0.5:443" or "[::1]:443".
func HostOf(endpoint string) string {
	i := strings.LastIndexByte(endpoint, ':')
	if i < 0 {
		return endpoint
	}
	return strings.Trim(endpoint[:i], "[]")
}

// PortOf returns the port of "10.0.0.5:443".
func PortOf(endpoint string) string { return endpoint[strings.LastIndexByte(endpoint, ':')+1:] }

// OwnersShown is how many processes a finding names: more would not fit a line, and the largest is the one to look at.
const OwnersShown = 3

// OwnersOf names the owners of the sockets to a destination: the processes that BPF programs saw connecting, with
// their rates; else the processes seen holding one; else the namespace they are in, because a socket in TIME_WAIT
// belongs to nobody.
func OwnersOf(p *check.Pass, destination string) string {
	if names := OpenersOf(p, destination); names != "" {
		return names
	}
	list := HoldersOf(p, destination)
	if len(list) == 0 {
		return unseenOwner(p)
	}
	var names []string
	for i, h := range list {
		if i == OwnersShown {
			names = append(names, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		names = append(names, "pid "+h.Name)
	}
	return "opened by " + strings.Join(names, ", ")
}

// A Holder is a process that holds sockets to a destination.
type Holder struct {
	Name    string
	Sockets float64 // the most at once, of the sockets that were looked at
}

// HoldersOf returns the holders of sockets to a destination, the largest first.
func HoldersOf(p *check.Pass, destination string) []Holder {
	var list []Holder
	for _, s := range p.Gauge(metric.DestinationOwner, "destination", destination) {
		if s.Max() > 0 {
			list = append(list, Holder{PIDName(s.Label("pid"), s.Label("comm")), s.Max()})
		}
	}
	slices.SortStableFunc(list, func(a, b Holder) int { return cmp.Compare(b.Sockets, a.Sockets) })
	return list
}

func unseenOwner(p *check.Pass) string {
	t := p.Meta.Target
	if t.PID == 0 {
		return "no live socket to it had a readable owner, so its process is not known"
	}
	return "opened in the network namespace of pid " + PIDName(fmt.Sprint(t.PID), t.Name)
}

// DestinationRTT returns the median round trip to a destination over the window; ok is false if no connection
// reported one.
func DestinationRTT(p *check.Pass, destination string) (rtt quantity.Value, ok bool) {
	s, ok := First(p.Gauge(metric.DestinationRTT, "destination", destination))
	if !ok {
		return quantity.Value{}, false
	}
	return quantity.Of("round trip", series.Median(series.Values(s.Points)), quantity.Seconds), true
}

// An Answer is how long a destination takes to answer, and how much of that is the way there and back.
type Answer struct {
	Takes quantity.Value // seconds, median
	Line  quantity.Value // seconds, a round trip
	Share quantity.Value // of the line
}

// slowestACK is the longest time, in seconds, that a peer delays an acknowledgement to send it with its answer: 40 ms
// (TCP_DELACK_MIN of Linux 6.18, include/net/tcp.h) and a tick. The shortest round trip of a connection of some
// minutes may be that delay instead of the line.
const slowestACK = 0.05

const (
	// mostlyLine is the line's part of an answer from which on less than half of that is left for the destination;
	// times are known to a sixteenth.
	mostlyLine = 0.7
	// longLine is a round trip in seconds: it takes less within a host or a rack.
	longLine = 0.001
)

// AnswersAtOnce reports whether a destination that the target asks answers at once, so that the line takes the time.
// ok is also false if answers were not timed, or if the round trip is not known for sure, either by handshakes in the
// window or by round trips longer than [slowestACK].
func AnswersAtOnce(p *check.Pass, destination string) (a Answer, ok bool) {
	line := lineTo(p, destination)
	for _, e := range *check.Shared(p, readExchanges) {
		if e.Side == "client" && e.Endpoint == destination && e.Count >= leastTimed && line > 0 && e.P50 > 0 {
			a.Takes = quantity.Of("time from a request to its answer, median", e.P50, quantity.Seconds)
			a.Line = quantity.Of("round trip to "+destination, line, quantity.Seconds)
			a.Share = a.Line.Per(a.Takes).Named("share of the line in this")
			return a, a.Share.Number() >= mostlyLine && line >= longLine
		}
	}
	return a, false
}

// lineTo returns the round trip to a destination in seconds, 0 if it is not known.
func lineTo(p *check.Pass, destination string) (seconds float64) {
	for _, f := range ClientFlows(p) {
		if f.Destination == destination && f.connects > 0 { // lost SYNs are in the mean
			seconds = f.Handshake().Number()
		}
	}
	s, ok := First(p.Gauge(metric.DestinationMin, "destination", destination))
	if !ok {
		return seconds
	}
	if least := slices.Min(series.Values(s.Points)); seconds > least || seconds == 0 && least > slowestACK {
		seconds = least
	}
	return seconds
}

// AnswerMetrics returns the metrics that [AnswersAtOnce] reads.
func AnswerMetrics() []metric.Metric {
	return append(FlowUses(), metric.DestinationMin, metric.ExchangeDurations, metric.ExchangesCounted)
}

// OfTarget reports whether a process of the target holds connections to the destination, or no process is known to.
func OfTarget(p *check.Pass, destination string) bool {
	owners := p.Gauge(metric.DestinationOwner, "destination", destination)
	if len(owners) == 0 {
		return true
	}
	for _, o := range owners {
		for _, c := range p.Counter(metric.ProcessCPU, "pid", o.Label("pid")) {
			if c.Label("member") == "target" {
				return true
			}
		}
	}
	return false
}
