package checks

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// A growth is how much a counter of the target's network namespace grew, over which time.
type growth struct{ n, span quantity.Value }

// netRise reads a counter the check cannot do without.
func netRise(p *check.Pass, c *metric.Counter, label string) (growth, error) {
	if r, ok := maybeRise(p, c, label); ok {
		return r, nil
	}
	return growth{}, check.NotAssessed(twoSamples,
		"%s has fewer than two samples of the target's network namespace, and a counter says nothing by itself", c.Describe().Name)
}

// maybeRise reads a counter that only some kernels have; ok is false when it was not recorded twice.
func maybeRise(p *check.Pass, c *metric.Counter, label string) (r growth, ok bool) {
	s, recorded := first(p.Counter(c, "netns", metric.NetNSTarget))
	if !recorded {
		return growth{}, false
	}
	n, enough := s.Increase()
	if !enough || s.Span() <= 0 {
		return growth{}, false
	}
	return growth{n: quantity.Of(label, n, c.Describe().Unit), span: span(s.Series)}, true
}

// first gives the only series of labels that leave room for one; ok is false when it was not recorded.
func first[S any](series []S) (s S, ok bool) {
	if len(series) == 0 {
		return s, false
	}
	return series[0], true
}

// rate is the growth per second, with its arithmetic.
func (r growth) rate() quantity.Value { return r.n.Per(r.span).Named("%s per second", r.n.Label()) }

// perSecond is the bare rate.
func (r growth) perSecond() float64 { return r.n.Number() / r.span.Number() }

// as counts the same events under another unit, so that two counters of different units can form a share.
func (r growth) as(unit quantity.Unit) growth {
	r.n = r.n.As(unit)
	return r
}

// sustained reports whether the counter rose in at least half of the intervals: a lasting state, not one burst.
func sustained(p *check.Pass, c *metric.Counter) bool {
	s, ok := first(p.Counter(c, "netns", metric.NetNSTarget))
	if !ok {
		return false
	}
	rates := s.Rates()
	up := 0
	for _, r := range rates {
		if r > 0 {
			up++
		}
	}
	return up > 0 && 2*up >= len(rates)
}

// setting gives the newest value of a sysctl of the target's network namespace.
func setting(p *check.Pass, g *metric.Gauge) (v float64, ok bool) {
	return lastOf(p.Gauge(g, "netns", metric.NetNSTarget))
}

func lastOf(series []recording.GaugeSeries) (v float64, ok bool) {
	s, ok := first(series)
	if !ok {
		return 0, false
	}
	return s.Last(), true
}

// needSetting reads a sysctl the check cannot do without.
func needSetting(p *check.Pass, g *metric.Gauge) (float64, error) {
	if v, ok := setting(p, g); ok {
		return v, nil
	}
	return 0, check.NotAssessed("run perfdoctor as root, so that it can enter the target's network namespace",
		"%s of the target's network namespace was not recorded", g.Describe().Source)
}

// globalSetting reads a sysctl that is one for the whole host. Only the first network namespace has its file, so it is looked for in
// the target's and then in the host's.
func globalSetting(p *check.Pass, g *metric.Gauge) (v float64, ok bool) {
	if v, ok := setting(p, g); ok {
		return v, true
	}
	return lastOf(p.Gauge(g, "netns", metric.NetNSHost))
}

// needGlobalSetting reads such a sysctl for a check that cannot do without.
func needGlobalSetting(p *check.Pass, g *metric.Gauge) (float64, error) {
	if v, ok := globalSetting(p, g); ok {
		return v, nil
	}
	return 0, check.NotAssessed("run perfdoctor on the host, not in a container or network namespace",
		"%s is in the host's first network namespace only, and was not recorded", g.Describe().Source)
}

// netns is the subject of a finding about the target's whole network namespace.
func netns(p *check.Pass) check.Subject {
	t := p.Meta.Target
	if t.PID == 0 {
		return check.Subject{Kind: "netns", ID: "of the host"}
	}
	return check.Subject{Kind: "netns", ID: "of pid " + pidName(fmt.Sprint(t.PID), t.Name)}
}

// inNetNS puts a command into the target's network namespace, where its sysctls and counters are.
func inNetNS(p *check.Pass, command check.Command) check.Command {
	t := p.Meta.Target
	if !t.OwnNetNS || t.PID == 0 {
		return command
	}
	return check.Commandf("nsenter -t %d -n %s", t.PID, command)
}

// pidName is "4021 (java)".
func pidName(pid, comm string) string {
	if comm == "" {
		return pid
	}
	return pid + " (" + comm + ")"
}

// gaugeRise is how far a gauge rose from the first to the last sample; a fall is none. It serves for sums over the
// connections that exist now, which fall when one of them ends.
func gaugeRise(s recording.GaugeSeries) float64 { return max(0, s.Last()-s.First()) }

// span is the time between a series' first and last point, as a quantity.
func span(s *recording.Series) quantity.Value {
	return quantity.Of("window", s.Span().Seconds(), quantity.Seconds)
}
