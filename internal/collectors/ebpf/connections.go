package ebpf

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	cilium "github.com/cilium/ebpf"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// maxFlows bounds the flows recorded, up to 40 series each. The largest are kept; one that is recorded stays.
const maxFlows = 100

func connectionsCollector(l *loader) collect.Collector {
	return collect.Collector{
		Name: "bpf-connections",
		Doc: "Every TCP connection that begins or ends: where to, by which process, how long it took and lived, how it failed, " +
			"who closed it.",
		Overhead: "measured by the kernel and recorded as bpf_program_seconds_total: about 0.3 µs of a connection's change of state, " +
			"1 µs for each end of a connection",
		Provides: append(costs(), flowMetrics()...),
		Requires: requires(),
		Open: func(ctx context.Context, env collect.Env) (collect.Source, error) {
			return openConnections(ctx, l, env)
		},
	}
}

func flowMetrics() []metric.Metric {
	return []metric.Metric{
		metric.ConnectAttempts, metric.Connects, metric.ConnectFailures, metric.ConnectSeconds, metric.ConnectDurations,
		metric.PortSearches, metric.PortSearchSeconds, metric.PortSearchLongest, metric.ConnectionsClosed, metric.ConnectionSeconds,
		metric.ConnectionLives, metric.ConnectionBytes, metric.ConnectionSegments, metric.ConnectionTurns, metric.FlowRetransmits,
		metric.FlowResets,
	}
}

// connections is the source of bpf-connections.
type connections struct {
	set    *set
	netns  uint32 // the target's network namespace
	kept   map[bpf.ConnectionsFlow]bool
	totals map[bpf.ConnectionsFlow]bpf.ConnectionsTotals
}

func openConnections(ctx context.Context, l *loader, env collect.Env) (*connections, error) {
	netns := env.Target.Namespaces.Net
	if netns.Inode == 0 {
		return nil, collect.Unavailable(recording.StatusDenied, "run perfdoctor as root",
			"the target's network namespace is not known: %s", netns.Reason)
	}
	c := &connections{
		netns: uint32(netns.Inode), kept: map[bpf.ConnectionsFlow]bool{},
		totals: map[bpf.ConnectionsFlow]bpf.ConnectionsTotals{},
	}
	var err error
	c.set, err = l.open(ctx, bpf.LoadConnections, func(spec *cilium.CollectionSpec) error {
		if err := spec.Variables[bpf.ConnectionsVarServerEnds].Set(env.Deep); err != nil {
			return err
		}
		if env.Target.Kind == host.KindHost {
			return nil // of all namespaces: that of the containers, too
		}
		return spec.Variables[bpf.ConnectionsVarOnlyNetns].Set(c.netns)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Close unloads the programs.
func (c *connections) Close() error { return c.set.Close() }

// Sample appends the totals since the programs were loaded.
func (c *connections) Sample(_ context.Context, a *recording.Appender) error {
	if err := c.set.appendCost(a); err != nil {
		return err
	}
	if err := c.appendLost(a); err != nil {
		return err
	}
	clear(c.totals)
	err := readHash(c.set.collection.Maps[bpf.ConnectionsMapFlows], func(f bpf.ConnectionsFlow, t *bpf.ConnectionsTotals) {
		c.totals[f] = *t
	})
	if err != nil {
		return err
	}
	for _, f := range c.choose(a) {
		t := c.totals[f]
		appendFlow(a, c.labels(f, &t), &t)
	}
	a.None(flowMetrics()...)
	return nil
}

func (c *connections) appendLost(a *recording.Appender) error {
	for kind, what := range []string{
		"connects of processes past the kernel's table of flows, which are counted per destination only",
		"connections past the kernel's table, whose end is not counted",
	} {
		var n uint64
		if err := c.set.collection.Maps[bpf.ConnectionsMapLost].Lookup(uint32(kind), &n); err != nil {
			return fmt.Errorf("read the number of lost events: %w", err)
		}
		a.Lost(int(n), what)
	}
	return nil
}

// choose gives the flows to record: those recorded before and the largest others.
func (c *connections) choose(a *recording.Appender) []bpf.ConnectionsFlow {
	var chosen, others []bpf.ConnectionsFlow
	for f := range c.totals {
		if c.kept[f] {
			chosen = append(chosen, f)
		} else {
			others = append(others, f)
		}
	}
	slices.SortFunc(others, func(x, y bpf.ConnectionsFlow) int {
		return cmp.Compare(c.totals[y].Attempts, c.totals[x].Attempts)
	})
	room := max(0, maxFlows-len(chosen))
	a.Lost(len(others)-room, "flows (destination and process) beyond the "+strconv.Itoa(maxFlows)+" recorded")
	for _, f := range others[:min(room, len(others))] {
		c.kept[f] = true
		chosen = append(chosen, f)
	}
	return chosen
}

// labels are those of a flow's metrics: netns, side, endpoint, pid, comm.
func (c *connections) labels(f bpf.ConnectionsFlow, t *bpf.ConnectionsTotals) []string {
	netns, endpoint, pid, comm := metric.NetNSTarget, endpointOf(f), "", ""
	if f.Netns != c.netns {
		netns = fmt.Sprintf("net:[%d]", f.Netns)
	}
	if f.Pid != 0 {
		pid = strconv.FormatUint(uint64(f.Pid), 10)
		name, _, _ := bytes.Cut(t.Comm[:], []byte{0})
		comm = string(name)
	}
	side := "unknown"
	switch f.Side {
	case sideClient:
		side = "client"
	case sideServer:
		side = "server"
	default:
		endpoint = ""
	}
	return []string{netns, side, endpoint, pid, comm}
}

// The sides of a connection in connections.bpf.c.
const (
	sideClient = 1
	sideServer = 2
)

// endpointOf gives ip:port. The words of the address are in network order.
func endpointOf(f bpf.ConnectionsFlow) string {
	var b [16]byte
	for i, w := range f.Addr {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(b).Unmap(), f.Port).String()
}

// boundOf is the upper bound of bucket i of a flow's times, "+Inf" of the last (bucket() in connections.bpf.c).
func boundOf(i, buckets int) string {
	if i == buckets-1 {
		return "+Inf"
	}
	return strconv.FormatFloat((time.Duration(16384) << (2 * i)).Seconds(), 'g', 6, 64)
}

func appendFlow(a *recording.Appender, labels []string, t *bpf.ConnectionsTotals) {
	a.Counter(metric.ConnectAttempts, float64(t.Attempts), labels...)
	a.Counter(metric.Connects, float64(t.Established), labels...)
	plain := []struct {
		to    *metric.Counter
		count uint64
		scale float64
		last  string // value of the last label
	}{
		{metric.ConnectFailures, t.Unavailable, 1, "EADDRNOTAVAIL"},
		{metric.ConnectFailures, t.Refused, 1, "ECONNREFUSED"},
		{metric.ConnectFailures, t.TimedOut, 1, "ETIMEDOUT"},
		{metric.ConnectFailures, t.Unreachable, 1, "EHOSTUNREACH"},
		{metric.ConnectFailures, t.Failed, 1, "other"},
		{metric.ConnectSeconds, t.ConnectNs, 1e-9, ""},
		{metric.PortSearches, t.Searches, 1, ""},
		{metric.PortSearchSeconds, t.SearchNs, 1e-9, ""},
		{metric.ConnectionsClosed, t.ClosedLocal, 1, "local"},
		{metric.ConnectionsClosed, t.ClosedPeer, 1, "peer"},
		{metric.ConnectionsClosed, t.ClosedBoth, 1, "both"},
		{metric.ConnectionsClosed, t.ClosedReset, 1, "reset"},
		{metric.ConnectionSeconds, t.LifeNs, 1e-9, ""},
		{metric.ConnectionBytes, t.BytesSent, 1, "sent"},
		{metric.ConnectionBytes, t.BytesReceived, 1, "received"},
		{metric.ConnectionSegments, t.DataSent, 1, "sent"},
		{metric.ConnectionSegments, t.DataReceived, 1, "received"},
		{metric.ConnectionTurns, t.Turns, 1, ""},
		{metric.FlowRetransmits, t.SynRetransmits, 1, "syn"},
		{metric.FlowRetransmits, t.Retransmits, 1, "data"},
		{metric.FlowResets, t.ResetsSent, 1, "sent"},
		{metric.FlowResets, t.ResetsReceived, 1, "received"},
	}
	for _, p := range plain {
		appendCount(a, p.to, p.count, p.scale, labels, p.last)
	}
	for i := range t.ConnectBuckets {
		bound := boundOf(i, len(t.ConnectBuckets))
		appendCount(a, metric.ConnectDurations, t.ConnectBuckets[i], 1, labels, bound)
		appendCount(a, metric.ConnectionLives, t.LifeBuckets[i], 1, labels, bound)
	}
	if t.SearchMaxNs > 0 {
		a.Gauge(metric.PortSearchLongest, float64(t.SearchMaxNs)*1e-9, labels...)
	}
}

// appendCount leaves out what never happened: it is zero by its absence, as a counter that begins later began at zero.
func appendCount(a *recording.Appender, to *metric.Counter, count uint64, scale float64, labels []string, last string) {
	if count == 0 {
		return
	}
	if last != "" {
		labels = append(slices.Clip(labels), last)
	}
	a.Counter(to, float64(count)*scale, labels...)
}
