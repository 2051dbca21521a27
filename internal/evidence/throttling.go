package evidence

import (
	"fmt"
	"math"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// The thresholds of CPU throttling, shared by cpu-throttled and cpu-throttled-burst so that exactly one of them
// reports.
var (
	// ParamThrottledPeriods is the least number of periods for a share of them.
	ParamThrottledPeriods = &check.Param{
		Name: "periods", Default: 10, Unit: quantity.Periods,
		Why: "below ten periods one of them is already a tenth, so that a share says nothing",
	}
	// ParamThrottledShare is the share from which on throttled periods are a fault.
	ParamThrottledShare = &check.Param{
		Name: "throttled-share", Default: 0.05, Unit: quantity.Ratio,
		Why: "one period in twenty is where the 95th percentile of response times begins to hold a stop of up to a " +
			"period",
	}
	paramThrottledCritical = &check.Param{
		Name: "throttled-share-critical", Default: 0.25, Unit: quantity.Ratio,
		Why: "with every fourth period cut short the median request of several periods meets a stop too",
	}
	paramThrottledMeanUse = &check.Param{
		Name: "burst-mean-use", Default: 0.6, Unit: quantity.Ratio,
		Why: "below it a graph of mean CPU use looks idle enough that nobody suspects the limit",
	}
)

// ThrottlingParams returns the thresholds of both rules about throttling.
func ThrottlingParams() []*check.Param {
	return []*check.Param{ParamThrottledShare, paramThrottledCritical, ParamThrottledPeriods, paramThrottledMeanUse}
}

// Throttling is what the CPU limit of one cgroup level did over the window.
type Throttling struct {
	Cgroup, Level string
	Share         quantity.Value // throttled periods / periods
	Throttled     float64        // throttled periods
	Quota         quantity.Value
	Use           *quantity.Value // mean CPUs used; nil when not recorded
	Stopped       *quantity.Value // time stopped, summed over CPUs; nil when not recorded
	window        quantity.Value
	others        []string // what other levels with a limit did
}

// TightestThrottling returns the level with a limit, from the target's own to the root, that has the highest share of
// throttled periods: if a parent and a child both throttle, that is the tighter limit. It returns nil if no level has
// a limit.
func TightestThrottling(p *check.Pass) (*Throttling, error) {
	if len(p.Gauge(metric.CgroupQuota)) == 0 {
		p.Read(quantity.Of("cgroup levels with a CPU limit", 0, quantity.None))
		return nil, nil
	}
	var all []*Throttling
	most := 0.0
	for _, s := range p.Counter(metric.CgroupPeriods) {
		t, periods := throttlingOf(p, s)
		most = max(most, periods)
		if t != nil {
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return nil, check.NotAssessed("record longer (--duration), while the target is busy",
			"the limited groups ran in %v enforcement periods of the window: too few for a share", most)
	}
	return tightest(all), nil
}

// tightest returns the first with the highest share, and notes what the others did.
func tightest(all []*Throttling) *Throttling {
	best := all[0]
	for _, t := range all[1:] {
		if t.Share.Above(best.Share) {
			best = t
		}
	}
	for _, t := range all {
		if t != best {
			best.others = append(best.others,
				fmt.Sprintf("cgroup %s: throttled in %s of its periods, limit %s", t.Cgroup, t.Share.Text(),
					t.Quota.Text()))
		}
	}
	return best
}

func throttlingOf(p *check.Pass, s recording.CounterSeries) (t *Throttling, periods float64) {
	cgroup, level := s.Label("cgroup"), s.Label("level")
	quotas := p.Gauge(metric.CgroupQuota, "cgroup", cgroup, "level", level)
	stops := p.Counter(metric.CgroupThrottled, "cgroup", cgroup, "level", level)
	periods, ok := s.Increase()
	if !ok || len(quotas) == 0 || len(stops) == 0 {
		return nil, 0
	}
	throttled, ok := stops[0].Increase()
	all := quantity.Of("periods", periods, quantity.Periods)
	if !ok || all.Below(p.Param(ParamThrottledPeriods)) {
		return nil, periods
	}
	return &Throttling{
		Cgroup: cgroup, Level: level, Throttled: throttled,
		Share:   quantity.Of("throttled", throttled, quantity.Periods).Per(all).Named("throttled periods"),
		Quota:   quantity.Of("limit", quotas[0].Last(), quantity.CPUs),
		Use:     cgroupUse(p, cgroup),
		Stopped: stoppedTime(p, cgroup, level),
		window:  Span(s.Series),
	}, periods
}

// cgroupUse returns the mean use of the group. With cgroup v1 cpuacct may be another hierarchy, in which the process
// is in another group, such as the root with all of the host's use: only the same path counts as the same group.
func cgroupUse(p *check.Pass, cgroup string) *quantity.Value {
	for _, s := range p.Counter(metric.CgroupCPU, "cgroup", cgroup) {
		if n, ok := s.Increase(); ok && s.Span() > 0 {
			v := quantity.Of("CPU time", n, quantity.Seconds).Per(Span(s.Series)).As(quantity.CPUs).Named("mean use")
			return &v
		}
	}
	return nil
}

func stoppedTime(p *check.Pass, cgroup, level string) *quantity.Value {
	for _, s := range p.Counter(metric.CgroupThrottledTime, "cgroup", cgroup, "level", level) {
		if n, ok := s.Increase(); ok {
			v := quantity.Of("time stopped, summed over CPUs (so it may exceed the window)", n, quantity.Seconds)
			return &v
		}
	}
	return nil
}

// Bursty reports whether the mean use is far below the limit; false if the use is not known.
func (t *Throttling) Bursty(p *check.Pass) bool {
	return t.Use != nil && t.Use.Per(t.Quota).Below(p.Param(paramThrottledMeanUse))
}

// Finding returns what the two checks of throttling have in common; each adds its own summary, remedies and placebos.
func (t *Throttling) Finding(p *check.Pass) check.Finding {
	f := check.Finding{
		Subject:  check.Subject{Kind: "cgroup", ID: t.Cgroup},
		Severity: check.Warning,
		Weight:   min(1, t.Share.Number()), // in these periods its work waits for the next period
		Evidence: t.evidence(),
		Disproof: "nr_throttled stays the same under load: cat " + knobCPUStat.File(p, t.Cgroup, t.Level),
		Notes:    t.others,
	}
	if t.Share.AtLeast(p.Param(paramThrottledCritical)) {
		f.Severity = check.Critical
	}
	return f
}

// Where says at which level the limit is set.
func (t *Throttling) Where() string { return setWhere(t.Level) }

// setWhere says at which level a limit is set, because people look for a limit above the process in the wrong place.
func setWhere(level string) string {
	switch n, err := strconv.Atoi(level); {
	case err != nil || n == 0:
		return "in its own cgroup"
	case n == 1:
		return "set 1 level above the process"
	default:
		return fmt.Sprintf("set %d levels above the process", n)
	}
}

func (t *Throttling) evidence() []quantity.Value {
	out := []quantity.Value{t.Share}
	if t.Use != nil {
		out = append(out, t.useShare())
	} else {
		out = append(out, t.Quota)
	}
	if t.Stopped != nil {
		out = append(out, *t.Stopped, t.Wanted())
	}
	return out
}

// useShare returns the mean use of the limit in CPU time, which shows more digits than small numbers of CPUs.
func (t *Throttling) useShare() quantity.Value {
	return quantity.Of("CPU time", t.Use.Number()*t.window.Number(), quantity.Seconds).
		Per(quantity.Of("allowed", t.Quota.Number()*t.window.Number(), quantity.Seconds)).
		Named("CPU time used / allowed")
}

// Wanted estimates what the group would have used: its use (the limit if the use is not known) plus the time in which
// it was runnable but stopped. It is an upper estimate, because the same work may have waited.
func (t *Throttling) Wanted() quantity.Value {
	use := t.Quota.Number()
	if t.Use != nil {
		use = t.Use.Number()
	}
	return quantity.Of("", use, quantity.CPUs).Plus(t.Stopped.Per(t.window).As(quantity.CPUs)).Named("wanted, at most")
}

// FewerThreads returns the remedy on the side of the program.
func (t *Throttling) FewerThreads(p *check.Pass) check.Remedy {
	return check.Remedy{
		Action: fmt.Sprintf("Run no more threads at once than the limit of %s feeds: pools, event loops, GC threads "+
			"(%s).",
			t.Quota.Text(), TellCPUs(p, math.Ceil(t.Quota.Number()))),
		Risk:   "less parallel work within one request",
		Effect: "the quota lasts for more of each period; throttled periods fall, the mean use stays",
	}
}

// Period returns the enforcement period in seconds; the kernel's default is 100 ms (kernel/sched/fair.c
// default_cfs_period).
func (t *Throttling) Period(p *check.Pass) float64 {
	for _, s := range p.Gauge(metric.CgroupPeriod, "cgroup", t.Cgroup, "level", t.Level) {
		if n := s.Last(); n > 0 {
			return n
		}
	}
	return 0.1
}
