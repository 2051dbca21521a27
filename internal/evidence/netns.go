package evidence

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// A Growth is how much a counter of the target's network namespace grew, and over which time.
type Growth struct{ N, Span quantity.Value }

// NetRise reads a counter that the check requires.
func NetRise(p *check.Pass, c *metric.Counter, label string) (Growth, error) {
	if r, ok := MaybeNetRise(p, c, label); ok {
		return r, nil
	}
	return Growth{}, check.NotAssessed(TwoSamples,
		"%s has fewer than two samples of the target's network namespace, and a counter says nothing by itself",
		c.Describe().Name)
}

// MaybeNetRise reads a counter that only some kernels have; ok is false if it was not recorded twice.
func MaybeNetRise(p *check.Pass, c *metric.Counter, label string) (r Growth, ok bool) {
	s, recorded := First(p.Counter(c, "netns", metric.NetNSTarget))
	if !recorded {
		return Growth{}, false
	}
	n, enough := s.Increase()
	if !enough || s.Span() <= 0 {
		return Growth{}, false
	}
	return Growth{N: quantity.Of(label, n, c.Describe().Unit), Span: Span(s.Series)}, true
}

// Rate returns the growth per second, with its arithmetic.
func (r Growth) Rate() quantity.Value { return r.N.Per(r.Span).Named("%s per second", r.N.Label()) }

// PerSecond returns the rate as a plain number.
func (r Growth) PerSecond() float64 { return r.N.Number() / r.Span.Number() }

// As returns the growth in another unit, so that two counters of different units can form a share.
func (r Growth) As(unit quantity.Unit) Growth {
	r.N = r.N.As(unit)
	return r
}

// Sustained reports whether the counter rose in at least half of the intervals: a lasting state, not one burst.
func Sustained(p *check.Pass, c *metric.Counter) bool {
	s, ok := First(p.Counter(c, "netns", metric.NetNSTarget))
	if !ok {
		return false
	}
	up, of := series.Intervals(func(r float64) bool { return r > 0 }, s.Points)
	return up > 0 && 2*up >= of
}

// Setting returns the newest value of a sysctl of the target's network namespace.
func Setting(p *check.Pass, g *metric.Gauge) (v float64, ok bool) {
	return LastOf(p.Gauge(g, "netns", metric.NetNSTarget))
}

// needSetting reads a sysctl that the check requires.
func needSetting(p *check.Pass, g *metric.Gauge) (float64, error) {
	if v, ok := Setting(p, g); ok {
		return v, nil
	}
	return 0, check.NotAssessed("run perfdoctor as root, so that it can enter the target's network namespace",
		"%s of the target's network namespace was not recorded", g.Describe().Source)
}

// GlobalSetting reads a sysctl that applies to the whole host. Only the initial network namespace has its file, so it
// is looked up in the target's namespace and then in the host's.
func GlobalSetting(p *check.Pass, g *metric.Gauge) (v float64, ok bool) {
	if v, ok := Setting(p, g); ok {
		return v, true
	}
	return LastOf(p.Gauge(g, "netns", metric.NetNSHost))
}

// NeedGlobalSetting reads such a sysctl for a check that requires it.
func NeedGlobalSetting(p *check.Pass, g *metric.Gauge) (float64, error) {
	if v, ok := GlobalSetting(p, g); ok {
		return v, nil
	}
	return 0, check.NotAssessed("run perfdoctor on the host, not in a container or network namespace",
		"%s is in the host's first network namespace only, and was not recorded", g.Describe().Source)
}

// NetnsOf returns the subject of a finding about the network namespace of a label, which may differ from the
// target's.
func NetnsOf(p *check.Pass, label string) check.Subject {
	switch label {
	case metric.NetNSTarget:
		return NetNSSubject(p)
	case metric.NetNSHost:
		return check.HostNetNS
	}
	return check.Subject{Kind: "netns", ID: label}
}

// InNetNS makes a command run in the target's network namespace, where its sysctls and counters are.
func InNetNS(p *check.Pass, command check.Command) check.Command {
	t := p.Meta.Target
	if !t.OwnNetNS || t.PID == 0 {
		return command
	}
	return check.Commandf("nsenter -t %d -n %s", t.PID, command)
}
