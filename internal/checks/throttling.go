package checks

import (
	"fmt"
	"math"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// The thresholds of CPU throttling, shared by cpu-throttled and cpu-throttled-burst so that exactly one of them speaks.
var (
	paramThrottledPeriods = &check.Param{
		Name: "periods", Default: 10, Unit: quantity.Periods,
		Why: "below ten periods one of them is already a tenth, so that a share says nothing",
	}
	paramThrottledShare = &check.Param{
		Name: "throttled-share", Default: 0.05, Unit: quantity.Ratio,
		Why: "one period in twenty is where the 95th percentile of response times begins to hold a stop of up to a period",
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

func throttlingParams() []*check.Param {
	return []*check.Param{paramThrottledShare, paramThrottledCritical, paramThrottledPeriods, paramThrottledMeanUse}
}

// throttlingExplains are what follows from a CPU limit, whether it stops bursts or steady load.
func throttlingExplains() []*check.Check {
	return []*check.Check{tooManyThreads, threadsVsQuota, cpuSaturated, contextSwitchStorm, acceptQueueOverflow, timeToSafepoint}
}

// throttling is what the CPU limit of one cgroup level did over the window.
type throttling struct {
	cgroup, level string
	share         quantity.Value // throttled periods / periods
	throttled     float64        // throttled periods
	quota         quantity.Value
	use           *quantity.Value // mean CPUs used; nil when not recorded
	stopped       *quantity.Value // time stopped, summed over CPUs; nil when not recorded
	window        quantity.Value
	others        []string // what other levels with a limit did
}

// tightestThrottling gives the level with a limit, from the target's own to the root, whose share of throttled
// periods is the highest: where a parent and a child both throttle, that is the tighter limit. It is nil where no
// level has a limit.
func tightestThrottling(p *check.Pass) (*throttling, error) {
	if len(p.Gauge(metric.CgroupQuota)) == 0 {
		p.Read(quantity.Of("cgroup levels with a CPU limit", 0, quantity.None))
		return nil, nil
	}
	var all []*throttling
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

// tightest picks the first with the highest share, and notes what the others did.
func tightest(all []*throttling) *throttling {
	best := all[0]
	for _, t := range all[1:] {
		if t.share.Above(best.share) {
			best = t
		}
	}
	for _, t := range all {
		if t != best {
			best.others = append(best.others,
				fmt.Sprintf("cgroup %s: throttled in %s of its periods, limit %s", t.cgroup, t.share.Text(), t.quota.Text()))
		}
	}
	return best
}

func throttlingOf(p *check.Pass, s recording.CounterSeries) (t *throttling, periods float64) {
	cgroup, level := s.Label("cgroup"), s.Label("level")
	quotas := p.Gauge(metric.CgroupQuota, "cgroup", cgroup, "level", level)
	stops := p.Counter(metric.CgroupThrottled, "cgroup", cgroup, "level", level)
	periods, ok := s.Increase()
	if !ok || len(quotas) == 0 || len(stops) == 0 {
		return nil, 0
	}
	throttled, ok := stops[0].Increase()
	all := quantity.Of("periods", periods, quantity.Periods)
	if !ok || all.Below(p.Param(paramThrottledPeriods)) {
		return nil, periods
	}
	return &throttling{
		cgroup: cgroup, level: level, throttled: throttled,
		share:   quantity.Of("throttled", throttled, quantity.Periods).Per(all).Named("throttled periods"),
		quota:   quantity.Of("limit", quotas[0].Last(), quantity.CPUs),
		use:     cgroupUse(p, cgroup),
		stopped: stoppedTime(p, cgroup, level),
		window:  span(s.Series),
	}, periods
}

// cgroupUse gives the mean use of the group. With cgroup v1 cpuacct may be another hierarchy, in which the process is in
// another group, such as the root with all of the host's use: only the same path is taken for the same group.
func cgroupUse(p *check.Pass, cgroup string) *quantity.Value {
	for _, s := range p.Counter(metric.CgroupCPU, "cgroup", cgroup) {
		if n, ok := s.Increase(); ok && s.Span() > 0 {
			v := quantity.Of("CPU time", n, quantity.Seconds).Per(span(s.Series)).As(quantity.CPUs).Named("mean use")
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

// bursty reports that the mean use is far below the limit; false when the use is not known.
func (t *throttling) bursty(p *check.Pass) bool {
	return t.use != nil && t.use.Per(t.quota).Below(p.Param(paramThrottledMeanUse))
}

// finding is what the two checks of throttling say alike; the summary, cures and placebos are their own.
func (t *throttling) finding(p *check.Pass) check.Finding {
	f := check.Finding{
		Subject:  check.Subject{Kind: "cgroup", ID: t.cgroup},
		Severity: check.Warning,
		Evidence: t.evidence(),
		Disproof: "nr_throttled stays the same under load: cat " + knobCPUStat.file(p, t.cgroup, t.level),
		Notes:    t.others,
	}
	if t.share.AtLeast(p.Param(paramThrottledCritical)) {
		f.Severity = check.Critical
	}
	return f
}

func (t *throttling) where() string { return setWhere(t.level) }

// setWhere says at which level a limit is, for one that is set above the process is looked for in the wrong place.
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

func (t *throttling) evidence() []quantity.Value {
	out := []quantity.Value{t.share}
	if t.use != nil {
		out = append(out, t.useShare())
	} else {
		out = append(out, t.quota)
	}
	if t.stopped != nil {
		out = append(out, *t.stopped, t.wanted())
	}
	return out
}

// waits adds what the limit cost the group's threads, and what they waited for a CPU beside it: where that is more, a higher limit alone
// moves them from one queue into another.
func (t *throttling) waits(p *check.Pass, f *check.Finding) {
	stopped, waited, ok := waitsOf(p, t.cgroup)
	if !ok {
		return
	}
	f.Evidence = append(f.Evidence, stopped, waited)
	if waited.Above(stopped) {
		f.Notes = append(f.Notes, "its threads waited longer for a CPU than for their quota: a higher limit alone moves them from one "+
			"queue into the other")
	}
}

// useShare shows the mean use of the limit in CPU time, whose digits say more than those of small numbers of CPUs.
func (t *throttling) useShare() quantity.Value {
	return quantity.Of("CPU time", t.use.Number()*t.window.Number(), quantity.Seconds).
		Per(quantity.Of("allowed", t.quota.Number()*t.window.Number(), quantity.Seconds)).Named("CPU time used / allowed")
}

// wanted estimates what the group would have used: its use, which the limit bounds where it is not known, and the time in
// which it was runnable but stopped. It is an upper estimate, for the work that waited may have been the same.
func (t *throttling) wanted() quantity.Value {
	use := t.quota.Number()
	if t.use != nil {
		use = t.use.Number()
	}
	return quantity.Of("", use, quantity.CPUs).Plus(t.stopped.Per(t.window).As(quantity.CPUs)).Named("wanted, at most")
}

// newQuota rounds what was wanted up to a tenth of a CPU, and doubles the limit where that is not known; more than
// the host or a level above grants is pointless.
func (t *throttling) newQuota(p *check.Pass) quantity.Value {
	n := 2 * t.quota.Number()
	if t.stopped != nil {
		n = max(math.Ceil(t.wanted().Number()*10)/10, math.Ceil(t.quota.Number()*11)/10)
	}
	if most := t.ceiling(p); most > t.quota.Number() {
		n = min(n, most)
	}
	return quantity.Of("new limit", n, quantity.CPUs)
}

// ceiling is what no limit of this level can lift: the host's CPUs and the limits of the levels above; 0 when neither
// is known.
func (t *throttling) ceiling(p *check.Pass) float64 {
	most := 0.0
	if host, ok := onlineCPUs(p); ok {
		most = host.Number()
	}
	own, err := strconv.Atoi(t.level)
	for _, s := range p.Gauge(metric.CgroupQuota) {
		at, bad := strconv.Atoi(s.Label("level"))
		if err == nil && bad == nil && at > own && (most == 0 || s.Last() < most) {
			most = s.Last()
		}
	}
	return most
}

// raise is the cure that always works.
func (t *throttling) raise(p *check.Pass) check.Remedy {
	q := t.newQuota(p)
	period := t.period(p)
	us := math.Round(q.Number() * period * 1e6)
	return check.Remedy{
		Action: fmt.Sprintf("Raise the CPU limit to %s (Kubernetes: limits.cpu %.0fm), "+
			"or remove it and keep the request.", q.Text(), q.Number()*1000),
		Command: knobCPULimit.set(p, t.cgroup, t.level, fmt.Sprintf("%.0f %.0f", us, period*1e6), fmt.Sprintf("%.0f", us)),
		Risk:    "its neighbours on the host get less when all are busy; without any limit a runtime sizes its pools to the whole host",
		Effect:  fmt.Sprintf("throttled periods %s -> near 0 %%, limit %s -> %s", t.share.Text(), t.quota.Text(), q.Text()),
	}
}

func (t *throttling) fewerThreads(p *check.Pass) check.Remedy {
	return check.Remedy{
		Action: fmt.Sprintf("Run no more threads at once than the limit of %s feeds: pools, event loops, GC threads (%s).",
			t.quota.Text(), tellCPUs(p, math.Ceil(t.quota.Number()))),
		Risk:   "less parallel work within one request",
		Effect: "the quota lasts for more of each period; throttled periods fall, the mean use stays",
	}
}

// period gives the enforcement period in seconds; the kernel's default is 100 ms (kernel/sched/fair.c
// default_cfs_period).
func (t *throttling) period(p *check.Pass) float64 {
	for _, s := range p.Gauge(metric.CgroupPeriod, "cgroup", t.cgroup, "level", t.level) {
		if n := s.Last(); n > 0 {
			return n
		}
	}
	return 0.1
}
