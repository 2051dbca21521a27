package checks

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// The states of the kernel's TCP sockets that the rules tell apart (include/net/tcp_states.h).
const (
	timeWait    = "TIME_WAIT"
	established = "ESTABLISHED"
	synSent     = "SYN_SENT"
	closeWait   = "CLOSE_WAIT"
)

// A clientPath is the client-side sockets from one local address to one destination, sample by sample: the kernel's unit
// of local ports, since a port is taken per (source address, destination address and port).
type clientPath struct {
	source, destination string
	times               []time.Duration
	states              map[string][]float64 // by state, one number a sample; none recorded is zero
	young               []float64            // TIME_WAIT entered in the second before the sample
}

// clientPaths gives every recorded path, in order of source and destination.
func clientPaths(p *check.Pass) []*clientPath {
	times := sampleTimes(p)
	byKey := map[[2]string]*clientPath{}
	var out []*clientPath
	path := func(source, destination string) *clientPath {
		k := [2]string{source, destination}
		if byKey[k] == nil {
			byKey[k] = &clientPath{
				source: source, destination: destination, times: times,
				states: map[string][]float64{}, young: make([]float64, len(times)),
			}
			out = append(out, byKey[k])
		}
		return byKey[k]
	}
	for _, s := range p.Gauge(metric.DestinationSockets) {
		path(s.Label("source"), s.Label("destination")).states[s.Label("state")] = rowOf(s, times)
	}
	for _, s := range p.Gauge(metric.DestinationYoungTW) {
		path(s.Label("source"), s.Label("destination")).young = rowOf(s, times)
	}
	return out
}

// rowOf gives a series' value at each of the times, zero where it has none.
func rowOf(s recording.GaugeSeries, times []time.Duration) []float64 {
	row := make([]float64, len(times))
	for _, pt := range s.Points {
		if i, ok := slices.BinarySearch(times, pt.At); ok {
			row[i] = pt.Value
		}
	}
	return row
}

// sampleTimes gives the times at which sockets were counted. The totals by state are always there, so where they come from the
// same dumps they also mark the samples in which a destination had no socket.
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

// at is the number of sockets in a state at sample i.
func (c *clientPath) at(state string, i int) float64 {
	if row := c.states[state]; row != nil {
		return row[i]
	}
	return 0
}

// live is the number of sockets in any state but TIME_WAIT at sample i.
func (c *clientPath) live(i int) float64 {
	n := 0.0
	for state, row := range c.states {
		if state != timeWait {
			n += row[i]
		}
	}
	return n
}

// total is the number of sockets in all states at sample i.
func (c *clientPath) total(i int) float64 { return c.live(i) + c.at(timeWait, i) }

// each gives f of every sample.
func (c *clientPath) each(f func(i int) float64) []float64 {
	out := make([]float64, len(c.times))
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// count gives the sockets of a state, sample by sample.
func (c *clientPath) count(state string) []float64 {
	return c.each(func(i int) float64 { return c.at(state, i) })
}

// seconds is the time from the first to the last sample.
func (c *clientPath) seconds() float64 {
	if len(c.times) == 0 {
		return 0
	}
	return (c.times[len(c.times)-1] - c.times[0]).Seconds()
}

// slope is how much a number grew per second from the first to the last sample; zero with one sample.
func (c *clientPath) slope(row []float64) float64 {
	s := c.seconds()
	if s <= 0 {
		return 0
	}
	return (row[len(row)-1] - row[0]) / s
}

// loopback reports whether one end is a loopback address: tcp_tw_reuse=2 asks no more (tcp_twsk_unique in
// net/ipv4/tcp_ipv4.c).
func (c *clientPath) loopback() bool {
	return isLoopback(c.source) || isLoopback(c.destination)
}

// isLoopback reports whether an address, or the address of an endpoint with its port, is of the host itself.
func isLoopback(endpoint string) bool {
	if ap, err := netip.ParseAddrPort(endpoint); err == nil {
		return ap.Addr().Unmap().IsLoopback()
	}
	a, err := netip.ParseAddr(strings.Trim(endpoint, "[]"))
	return err == nil && a.Unmap().IsLoopback()
}

// hostOf is the address of "10.0.0.5:443" or "[::1]:443"; portOf its port.
func hostOf(endpoint string) string {
	i := strings.LastIndexByte(endpoint, ':')
	if i < 0 {
		return endpoint
	}
	return strings.Trim(endpoint[:i], "[]")
}

func portOf(endpoint string) string { return endpoint[strings.LastIndexByte(endpoint, ':')+1:] }

func mean(row []float64) float64 {
	if len(row) == 0 {
		return 0
	}
	t := 0.0
	for _, v := range row {
		t += v
	}
	return t / float64(len(row))
}

func median(row []float64) float64 {
	if len(row) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(row))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func peak(row []float64) (at int, v float64) {
	for i, x := range row {
		if x > v {
			at, v = i, x
		}
	}
	return at, v
}

// ownersShown is how many processes a finding names: more would not fit a line, and the largest is the one to look at.
const ownersShown = 3

// ownersOf says whose the sockets to a destination are: the processes that BPF programs saw connecting, with their rates; else
// those seen holding one; else the namespace they are in, because a socket in TIME_WAIT belongs to nobody.
func ownersOf(p *check.Pass, destination string) string {
	if names := openersOf(p, destination); names != "" {
		return names
	}
	list := holdersOf(p, destination)
	if len(list) == 0 {
		return unseenOwner(p)
	}
	var names []string
	for i, h := range list {
		if i == ownersShown {
			names = append(names, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		names = append(names, "pid "+h.name)
	}
	return "opened by " + strings.Join(names, ", ")
}

// A holder is a process that holds sockets to a destination.
type holder struct {
	name    string
	sockets float64 // the most at once, of those that were looked at
}

// holdersOf gives them, the largest first.
func holdersOf(p *check.Pass, destination string) []holder {
	var list []holder
	for _, s := range p.Gauge(metric.DestinationOwner, "destination", destination) {
		if s.Max() > 0 {
			list = append(list, holder{pidName(s.Label("pid"), s.Label("comm")), s.Max()})
		}
	}
	slices.SortStableFunc(list, func(a, b holder) int { return cmp.Compare(b.sockets, a.sockets) })
	return list
}

// heldBy says who holds the sockets of a path that are more than a TIME_WAIT, and how many: who connects in the window may be a
// victim of who has connected before. Empty when nobody was seen to.
func heldBy(p *check.Pass, c *clientPath, live float64) string {
	list := holdersOf(p, c.destination)
	known := 0.0
	for _, h := range list {
		known += h.sockets
	}
	of := fmt.Sprintf("of the %.0f looked at", known)
	if 2*known > live { // most were, so that it is a count and not a sample; one that connects all the time is seen with some more or fewer
		of = "sockets"
	}
	var names []string
	for i, h := range list {
		if i == ownersShown {
			names = append(names, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		names = append(names, fmt.Sprintf("pid %s: %.0f %s", h.name, h.sockets, of))
	}
	if len(names) == 0 {
		return ""
	}
	return "held by " + strings.Join(names, "; ")
}

func unseenOwner(p *check.Pass) string {
	t := p.Meta.Target
	if t.PID == 0 {
		return "no live socket to it had a readable owner, so its process is not known"
	}
	return "opened in the network namespace of pid " + pidName(fmt.Sprint(t.PID), t.Name)
}

// destinationRTT is the median round trip to a destination over the window; ok is false when no connection told one.
func destinationRTT(p *check.Pass, destination string) (rtt quantity.Value, ok bool) {
	s, ok := first(p.Gauge(metric.DestinationRTT, "destination", destination))
	if !ok {
		return quantity.Value{}, false
	}
	var row []float64
	for _, pt := range s.Points {
		row = append(row, pt.Value)
	}
	return quantity.Of("round trip", median(row), quantity.Seconds), true
}
