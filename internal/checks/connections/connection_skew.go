package connections

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

var (
	paramSkewConnections = &check.Param{
		Name: "connections", Default: 8, Unit: quantity.Connections,
		Why: "with fewer, one connection more or less is already twice the fair share",
	}
	paramSkewFactor = &check.Param{
		Name: "factor", Default: 2, Unit: quantity.Ratio,
		Why: "random choice spreads eight connections within twice the fair share in most cases",
	}
	paramSkewPair = &check.Param{
		Name: "pair-share", Default: 0.9, Unit: quantity.Ratio,
		Why: "one of two peers cannot hold more than twice its fair half: nine in ten is as clear",
	}
	paramSkewRTT = &check.Param{
		Name: "rtt-factor", Default: 2, Unit: quantity.Ratio,
		Why: "peers of one pool answer alike: twice the round trip of the others is a peer that is late",
	}
)

var connectionSkew = &check.Check{
	Name:  "connection-skew",
	Stage: check.Connections,
	Doc: `Long-lived connections gather on one peer of a pool
A balancer that works per connection spreads connections, not requests. Long-lived ones stay where they were made: a
backend added or restarted later gets none, and one peer does the work of several.

Measured: connections that were established all through the window, per destination of one port and one subnet (/24,
or /64 of IPv6), and the bytes they carry. A peer with more than twice its fair share of both (of two peers: nine
tenths) is reported; as a warning only when its round trip is also twice that of the others, since roles may differ by
design (a primary and its replicas). The round trip is the kernel's (tcpi_rtt), which ends with the acknowledgement. So
it shows how late the peer answers only up to 40 ms (TCP_DELACK_MIN, include/net/tcp.h): then the peer's kernel
acknowledges by itself. A peer that is later than that is information.

Fix: a maximal age of connections in the client or the balancer, balancing per request (L7), subsetting by the client.
Disproved if the peers have different roles. A peer without any connection cannot be seen from here: compare with the
list of backends.`,
	URL:    "https://www.envoyproxy.io/docs/envoy/latest/faq/configuration/timeouts",
	Needs:  []metric.Metric{metric.DestinationSockets, metric.DestinationBytes},
	Uses:   []metric.Metric{metric.DestinationRTT, metric.DestinationOwner, metric.Sockets},
	Params: []*check.Param{paramSkewConnections, paramSkewFactor, paramSkewPair, paramSkewRTT},
	Beyond: "the roles of the peers",
	Run:    runConnectionSkew,
}

// A poolPeer is one destination of a pool.
type poolPeer struct {
	destination        string
	connections, bytes float64
}

func runConnectionSkew(p *check.Pass) error {
	pools, order := skewPools(p)
	assessed := 0
	for _, k := range order {
		if assessPool(p, k, pools[k]) {
			assessed++
		}
	}
	p.Read(quantity.Of("pools of two peers or more with enough long-lived connections", float64(assessed),
		quantity.None))
	return nil
}

// assessPool reports the peers that hold and carry too much; it returns false for a pool too small to tell.
func assessPool(p *check.Pass, name string, peers []poolPeer) bool {
	connections, bytes := 0.0, 0.0
	for _, x := range peers {
		connections, bytes = connections+x.connections, bytes+x.bytes
	}
	all := quantity.Of("long-lived connections to "+name, connections, quantity.Connections)
	if len(peers) < 2 || all.Below(p.Param(paramSkewConnections)) || bytes == 0 {
		return false
	}
	limit := skewLimit(p, len(peers))
	for _, x := range peers {
		held := quantity.Of("held", x.connections, quantity.Connections).Per(all).
			Named("its share of the %d peers' long-lived connections", len(peers))
		carried := quantity.Of("carried", x.bytes, quantity.Bytes).Per(quantity.Of("all", bytes, quantity.Bytes)).
			Named("its share of the bytes they carried in the window")
		if held.Above(limit) && carried.Above(limit) {
			p.Report(skewFinding(p, peers, x, held, carried))
		}
	}
	return true
}

// skewPools groups destinations by port and subnet: the peers of one pool share both, two services on port 443 seldom
// do.
func skewPools(p *check.Pass) (map[string][]poolPeer, []string) {
	held := map[string]float64{}
	var order []string
	for _, c := range evidence.ClientPaths(p) {
		if _, ok := held[c.Destination]; !ok {
			order = append(order, c.Destination)
		}
		held[c.Destination] += slices.Min(append(c.Count(evidence.Established), c.At(evidence.Established, 0)))
	}
	pools := map[string][]poolPeer{}
	var keys []string
	for _, d := range order {
		k := peerGroupOf(d)
		if held[d] == 0 || k == "" {
			continue
		}
		if pools[k] == nil {
			keys = append(keys, k)
		}
		pools[k] = append(pools[k], poolPeer{d, held[d], bytesGrown(p, d)})
	}
	return pools, keys
}

func bytesGrown(p *check.Pass, destination string) float64 {
	s, ok := evidence.First(p.Gauge(metric.DestinationBytes, "destination", destination))
	if !ok {
		return 0
	}
	return evidence.GaugeRise(s)
}

// peerGroupOf returns a group such as "10.0.0.0/24 port 443"; it is empty for an invalid address. Loopback peers are
// no pool: there, the port is the service.
func peerGroupOf(destination string) string {
	host := evidence.HostOf(destination)
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil || a.Unmap().IsLoopback() {
		return ""
	}
	bits := 64
	if a = a.Unmap(); a.Is4() {
		bits = 24
	}
	prefix, err := a.Prefix(bits)
	if err != nil {
		return ""
	}
	return prefix.String() + " port " + evidence.PortOf(destination)
}

// skewLimit is the share above which a peer holds too much. Twice the fair share of two peers would be everything.
func skewLimit(p *check.Pass, peers int) quantity.Value {
	if peers == 2 {
		return p.Param(paramSkewPair)
	}
	return quantity.Of("fair", 1/float64(peers), quantity.Ratio).Times(p.Param(paramSkewFactor))
}

func skewFinding(p *check.Pass, peers []poolPeer, x poolPeer, held, carried quantity.Value) check.Finding {
	fair := quantity.Of("fair share", 1/float64(len(peers)), quantity.Ratio)
	f := check.Finding{
		Subject:    check.Subject{Kind: "destination", ID: x.destination},
		Severity:   check.Info,
		Confidence: check.Medium,
		Summary: fmt.Sprintf("holds %s of the connections and %s of the bytes of %d peers; fair is %s", held.Text(),
			carried.Text(),
			len(peers), fair.Text()),
		Evidence: []quantity.Value{held, carried, fair},
		Notes:    append([]string{evidence.OwnersOf(p, x.destination)}, peerList(peers)),
		Remedies: []check.Remedy{{
			Action: "give connections a maximal age, or balance per request (L7) instead of per connection",
			Risk:   "reconnects cost handshakes: an age of minutes with jitter is enough",
			Effect: fmt.Sprintf("its share falls from %s towards %s within that age", held.Text(), fair.Text()),
		}},
		Disproof: "the peers have different roles, such as a primary and its replicas",
		Doubts: []string{"peers with one port in one subnet count as one pool; roles are not known, nor peers " +
			"without a connection"},
	}
	if slow, ok := skewHarm(p, peers, x); ok {
		f.Severity = check.Warning
		f.Evidence = append(f.Evidence, slow)
		f.Summary += fmt.Sprintf("; its round trip is %.1f × theirs", slow.Number())
	}
	return f
}

// skewHarm returns how much slower the crowded peer answers than the median of the others.
func skewHarm(p *check.Pass, peers []poolPeer, x poolPeer) (quantity.Value, bool) {
	mine, ok := evidence.DestinationRTT(p, x.destination)
	if !ok {
		return quantity.Value{}, false
	}
	var others []float64
	for _, o := range peers {
		if rtt, ok := evidence.DestinationRTT(p, o.destination); ok && o.destination != x.destination {
			others = append(others, rtt.Number())
		}
	}
	m := series.Median(others)
	if m <= 0 {
		return quantity.Value{}, false
	}
	// A ratio printed as "3" reads better than 300 %.
	factor := mine.Per(quantity.Of("median of the others", m, quantity.Seconds)).As(quantity.None).
		Named("its round trip over the others'")
	return factor, factor.As(quantity.Ratio).AtLeast(p.Param(paramSkewRTT))
}

// peersShown is how many peers a note lists.
const peersShown = 6

func peerList(peers []poolPeer) string {
	var s []string
	for i, x := range peers {
		if i == peersShown {
			s = append(s, fmt.Sprintf("and %d more", len(peers)-i))
			break
		}
		s = append(s, fmt.Sprintf("%s %.0f", x.destination, x.connections))
	}
	return "long-lived connections: " + strings.Join(s, ", ")
}
