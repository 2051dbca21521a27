package network

import (
	"context"
	"errors"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/kernel/netfilter"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

func netfilterCollector() collect.Collector {
	return collect.Collector{
		Name:     "netfilter",
		Doc:      "Packet filter rules per hook and rules that translate addresses.",
		Overhead: "18 ms for 20,000 rules, once",
		Provides: []metric.Metric{metric.NATRules, metric.NetfilterRules},
		Pace:     collect.Once,
		Open: func(_ context.Context, env collect.Env) (collect.Source, error) {
			return collect.SourceFunc(func(ctx context.Context, a *recording.Appender) error {
				return sampleRules(ctx, env, a)
			}), nil
		},
	}
}

func sampleRules(ctx context.Context, env collect.Env, a *recording.Appender) error {
	for _, n := range namespaces(env) {
		var s netfilter.Summary
		err := n.enter(env, func() (err error) {
			s, err = netfilter.Read(ctx)
			return err
		})
		if err == nil {
			appendRules(a, n, s)
			continue
		}
		if n.label == metric.NetNSTarget {
			return unavailableRules(err)
		}
	}
	return nil
}

func unavailableRules(err error) error {
	switch {
	case errors.Is(err, netfilter.ErrPermission):
		return collect.Unavailable(recording.StatusDenied, "run as root or with CAP_NET_ADMIN", "%v", err)
	case errors.Is(err, netfilter.ErrUnsupported):
		return collect.Unavailable(recording.StatusUnsupported, "", "%v", err)
	}
	return err
}

// appendRules adds up the rules of nftables and of the legacy tables: a packet walks both. The nat chains are left
// out of the hooks, because only the first packet of a connection walks them.
func appendRules(a *recording.Appender, n namespace, s netfilter.Summary) {
	walked := map[string]int{}
	for hook, h := range s.IPv4 {
		walked[hook] += h.Packet + h.PacketJumped
	}
	for _, t := range s.Legacy {
		if t.Family != "ip" || t.Name == "nat" {
			continue
		}
		for hook, entries := range t.EntriesByHook {
			walked[hook] += entries
		}
	}
	if s.Truncated && s.NATRules == 0 { // a rule that translates may be among those that were not read
		a.Missing(metric.NATRules, recording.StatusTimeout, "the rules that were read in time translate no address, "+
			"and there are more",
			"a longer --interval leaves more time")
	} else {
		a.Gauge(metric.NATRules, float64(s.NATRules), n.label)
	}
	a.None(metric.NetfilterRules)
	for hook, rules := range walked {
		a.Gauge(metric.NetfilterRules, float64(rules), n.label, hook)
	}
	if s.Truncated {
		a.Lost(1, "rule set larger than is read, or than there was time for: the numbers of rules are too low")
	}
}
