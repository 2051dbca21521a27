package ebpf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	cilium "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/perfdoctor/perfdoctor/bpf"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// maxFlows bounds the recorded flows, up to 40 series each, and separately those without a process. The largest are
// kept; a flow that was recorded stays.
const maxFlows = 100

func connectionsCollector(l *Loader) collect.Collector {
	return collect.Collector{
		Name: "bpf-connections",
		Doc: "Every TCP connection that begins or ends: where to, by which process, how long it took and lived, how " +
			"it failed, " +
			"who closed it.",
		Overhead: "measured by the kernel in parts of the window and recorded as bpf_program_seconds_total: 1 µs a " +
			"connection with " +
			"both of its ends on this host, of which 0.6 µs are the kernel's for calling programs ten times; about " +
			"half with one end",
		Provides: append(Costs(), flowMetrics()...),
		Requires: requires(),
		Since:    collect.Floor{Release: "5.9", Brought: "the BPF helper bpf_skc_to_tcp_sock"},
		Open: func(ctx context.Context, env collect.Env) (collect.Source, error) {
			return openConnections(ctx, l, env)
		},
	}
}

func flowMetrics() []metric.Metric {
	return []metric.Metric{
		metric.ConnectAttempts, metric.Connects, metric.ConnectFailures, metric.ConnectSeconds, metric.ConnectDurations,
		metric.PortSearches, metric.PortSearchSeconds, metric.PortSearchLongest, metric.ConnectionsClosed,
		metric.ConnectionSeconds,
		metric.ConnectionLives, metric.ConnectionBytes, metric.ConnectionTurns, metric.ConnectionsTurnedAway,
		metric.RequestsGivenUp, metric.RequestsGivenUpSeconds, metric.ResetsUnanswered,
		metric.FlowRetransmits, metric.FlowResets,
		metric.ConnectsBound,
	}
}

// connections is the source of bpf-connections.
type connections struct {
	set    *set
	names  names
	netns  uint32 // the target's network namespace
	kept   map[bpf.ConnectionsFlow]bool
	totals map[bpf.ConnectionsFlow]bpf.ConnectionsTotals
}

func openConnections(ctx context.Context, l *Loader, env collect.Env) (collect.Source, error) {
	netns, err := targetNetNS(env)
	if err != nil {
		return nil, err
	}
	c := &connections{
		names: newNames(env.Host.Proc), netns: netns, kept: map[bpf.ConnectionsFlow]bool{},
		totals: map[bpf.ConnectionsFlow]bpf.ConnectionsTotals{},
	}
	hz, err := ticks()
	if err != nil {
		return nil, err
	}
	c.set, err = l.open(ctx, bpf.LoadConnections, func(spec *cilium.CollectionSpec, _ *btf.Spec) error {
		if err := spec.Variables[bpf.ConnectionsVarServerEnds].Set(env.Deep); err != nil {
			return err
		}
		if err := spec.Variables[bpf.ConnectionsVarSecond].Set(uint32(hz)); err != nil {
			return err
		}
		free := spec.Maps[bpf.ConnectionsMapFreeRows]
		for row := range free.MaxEntries {
			free.Contents = append(free.Contents, cilium.MapKV{Value: row})
		}
		if env.Target.Kind == host.KindHost {
			return nil // all namespaces: those of containers, too
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
	if _, err := c.set.appendLost(a,
		"connects of processes past the kernel's table of flows, which are counted per destination only",
		"connections past the kernel's table, whose end is not counted"); err != nil {
		return err
	}
	if err := c.read(); err != nil {
		return err
	}
	for _, f := range c.choose(a) {
		t := c.totals[f]
		labels := c.labels(f, &t)
		appendFlow(a, labels, &t, establishedOf(f, &t))
		appendCount(a, metric.ResetsUnanswered, t.ResetsOpen, 1, labels, "")
		if f.Side == sideServer {
			appendCount(a, metric.ConnectionsTurnedAway, t.TurnedAway, 1, labels, metric.ExchangesNone)
			appendCount(a, metric.ConnectionsTurnedAway, t.FewExchanges, 1, labels, metric.ExchangesFew)
		} else {
			appendCount(a, metric.RequestsGivenUp, t.GivenUp, 1, labels, "")
			appendCount(a, metric.RequestsGivenUpSeconds, t.GivenUpNs, 1e-9, labels, "")
		}
	}
	a.None(flowMetrics()...)
	return nil
}

// read reads the totals of all flows.
func (c *connections) read() error {
	clear(c.totals)
	rows := c.set.collection.Maps[bpf.ConnectionsMapRows]
	var failed error
	err := readHash(c.set.collection.Maps[bpf.ConnectionsMapFlows], func(f bpf.ConnectionsFlow, row *uint32) {
		var t bpf.ConnectionsTotals
		failed = errors.Join(failed, rows.Lookup(row, &t))
		c.totals[f] = t
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("read the flows: %w", err)
	}
	return nil
}

// choose returns the flows to record: those recorded before and the largest others. The rest, such as those of a
// program started anew for each connection, are added to one flow without a process per endpoint, so that an
// endpoint's sum is whole.
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
	for _, f := range others {
		room := len(c.kept) < maxFlows || f.Pid == 0 && len(c.kept) < 2*maxFlows
		switch {
		case c.kept[f]: // made for the rest of its endpoint a moment ago
		case room:
			c.kept[f] = true
			chosen = append(chosen, f)
		default:
			chosen = c.addToRest(a, chosen, f)
		}
	}
	return chosen
}

func (c *connections) addToRest(a *recording.Appender, chosen []bpf.ConnectionsFlow,
	f bpf.ConnectionsFlow,
) []bpf.ConnectionsFlow {
	rest := f
	rest.Pid = 0
	if rest == f || !c.kept[rest] && len(c.kept) >= 2*maxFlows {
		a.Lost(1, "flows to endpoints beyond the "+strconv.Itoa(2*maxFlows)+" recorded")
		return chosen
	}
	sum, more := c.totals[rest], c.totals[f]
	addTotals(&sum, &more)
	c.totals[rest] = sum
	if !c.kept[rest] || !slices.Contains(chosen, rest) {
		c.kept[rest] = true
		chosen = append(chosen, rest)
	}
	return chosen
}

// addTotals adds one flow to another.
func addTotals(to, from *bpf.ConnectionsTotals) {
	for _, n := range []struct {
		to   *uint64
		from uint64
	}{
		{&to.Attempts, from.Attempts},
		{&to.Unavailable, from.Unavailable},
		{&to.Refused, from.Refused},
		{&to.TimedOut, from.TimedOut},
		{&to.Unreachable, from.Unreachable},
		{&to.Failed, from.Failed},
		{&to.Bound, from.Bound},
		{&to.ConnectNs, from.ConnectNs},
		{&to.Searches, from.Searches},
		{&to.SearchNs, from.SearchNs},
		{&to.ClosedLocal, from.ClosedLocal},
		{&to.ClosedPeer, from.ClosedPeer},
		{&to.ClosedBoth, from.ClosedBoth},
		{&to.ClosedReset, from.ClosedReset},
		{&to.LifeNs, from.LifeNs},
		{&to.BytesSent, from.BytesSent},
		{&to.BytesReceived, from.BytesReceived},
		{&to.Turns, from.Turns},
		{&to.TurnedAway, from.TurnedAway},
		{&to.FewExchanges, from.FewExchanges},
		{&to.GivenUp, from.GivenUp},
		{&to.GivenUpNs, from.GivenUpNs},
		{&to.ResetsOpen, from.ResetsOpen},
		{&to.SynRetransmits, from.SynRetransmits},
		{&to.Retransmits, from.Retransmits},
		{&to.ResetsReceived, from.ResetsReceived},
		{&to.ResetsSent, from.ResetsSent},
	} {
		*n.to += n.from
	}
	to.SearchMaxNs = max(to.SearchMaxNs, from.SearchMaxNs)
	for i := range to.ConnectBuckets {
		to.ConnectBuckets[i] += from.ConnectBuckets[i]
		to.LifeBuckets[i] += from.LifeBuckets[i]
	}
}

// labels returns the labels of a flow's metrics: netns, side, endpoint, pid, comm.
func (c *connections) labels(f bpf.ConnectionsFlow, t *bpf.ConnectionsTotals) []string {
	netns, endpoint, pid, comm := netnsLabel(f.Netns, c.netns), endpointOf(f), "", ""
	if f.Pid != 0 {
		pid, comm = strconv.FormatUint(uint64(f.Pid), 10), c.names.of(f.Pid, t.Comm[:])
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

// endpointOf returns ip:port.
func endpointOf(f bpf.ConnectionsFlow) string {
	return netip.AddrPortFrom(addressOf(f.Addr), f.Port).String()
}

// boundOf returns the upper bound of bucket i of a flow's times, in seconds (bucket() in connections.bpf.c).
func boundOf(i, buckets int) string { return boundFrom(16384*time.Nanosecond, i, buckets) }

// boundFrom returns the upper bound in seconds of bucket i: the first bucket has the bound first, each next one four
// times the bound before, and the last "+Inf".
func boundFrom(first time.Duration, i, buckets int) string {
	if i == buckets-1 {
		return "+Inf"
	}
	return strconv.FormatFloat((first << (2 * i)).Seconds(), 'g', 6, 64)
}

// establishedOf adds up the connections of all durations; those that a server accepts are already established when
// they are first seen.
func establishedOf(f bpf.ConnectionsFlow, t *bpf.ConnectionsTotals) uint64 {
	if f.Side == sideServer {
		return t.Attempts
	}
	n := uint64(0)
	for _, count := range t.ConnectBuckets {
		n += count
	}
	return n
}

func appendFlow(a *recording.Appender, labels []string, t *bpf.ConnectionsTotals, established uint64) {
	a.Counter(metric.ConnectAttempts, float64(t.Attempts), labels...)
	a.Counter(metric.Connects, float64(established), labels...)
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
		{metric.ConnectsBound, t.Bound, 1, ""},
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

// appendCount leaves out what never happened: an absent counter is zero, since one that begins later began at zero.
func appendCount(a *recording.Appender, to *metric.Counter, count uint64, scale float64, labels []string, last string) {
	if count == 0 {
		return
	}
	if last != "" {
		labels = append(slices.Clip(labels), last)
	}
	a.Counter(to, float64(count)*scale, labels...)
}
