package runtime

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramThreadGrowth = &check.Param{
		Name: "growth", Default: 10, Unit: quantity.Threads,
		Why: "a pool that is filled gets a few more; ten that are never given back are a pattern",
	}
	paramManyThreads = &check.Param{
		Name: "threads", Default: 500, Unit: quantity.Threads,
		Why: "a servlet container's pool of 200 and its neighbours fit below; growth beyond is no pool that fills up",
	}
)

var threadGrowth = &check.Check{
	Name:  "thread-growth",
	Stage: check.Runtime,
	Only:  evidence.OnlyJVM,
	Doc: `The number of Java threads grows and grows

Threads that are started and never end: an executor for each request that nobody
shuts down, a client that is built again and again, a pool without a bound. Each
costs a stack and a place below pids.max, and at the limit the JVM says "unable
to create native thread".

Measured: live threads as the JVM counts them, rising through the whole window
without a fall, and the pool that grew, by thread name. It is a warning when they
are already many and the limit of the control group is forecast soon, or when
there are more than any usual pool; else information: a pool may be filling up.

Fix: shut the executor down, build the client once, bound the pool. Risk: a
bound makes callers wait.
Won't help: a higher limit; a smaller -Xss.
Disproof: the number stays after some minutes (jstack PID | grep -c tid=).`,
	URL:   "https://docs.oracle.com/en/java/javase/17/docs/api/java.base/java/util/concurrent/ExecutorService.html",
	Needs: []metric.Metric{metric.JVMInfo, metric.JVMThreads},
	Uses: []metric.Metric{
		metric.JVMPools, metric.JVMThreadsStarted, metric.ThreadPools, metric.CgroupPIDs,
		metric.CgroupPIDsLimit,
	},
	Params: []*check.Param{paramThreadGrowth, paramManyThreads, evidence.ParamGrowthSoon, evidence.ParamRiseFall},
	Run: func(p *check.Pass) error {
		return evidence.EachJVM(p, func(pid string) bool { return runThreadGrowth(p, pid) })
	},
}

func runThreadGrowth(p *check.Pass, pid string) bool {
	live, ok := evidence.First(p.Gauge(metric.JVMThreads, "pid", pid, "kind", "live"))
	if !ok || live.Span() <= 0 {
		return false
	}
	grown := quantity.Of("more threads", live.Last()-live.First(), quantity.Threads)
	now := quantity.Of("live threads", live.Last(), quantity.Threads)
	p.Read(now)
	if grown.Below(p.Param(paramThreadGrowth)) {
		return true
	}
	if len(live.Points) < evidence.LeastForRise {
		return false
	}
	if !evidence.OnlyRises(p, live) {
		return true
	}
	rate := grown.Per(quantity.Of("", live.Span().Seconds(), quantity.Seconds)).Named("growth")
	f := check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Info, Confidence: check.Medium,
		Summary:  fmt.Sprintf("Java threads grow by %s without a fall: %s now.", rate.Text(), now.Text()),
		Evidence: []quantity.Value{rate, now},
		Notes:    grownPools(p, pid),
		Remedies: []check.Remedy{{
			Action: "Find who starts them (the pool's name, the stack of one of them) and end or bound what it " +
				"builds.",
			Command: check.Commandf("jcmd %s Thread.print | grep '^\"'", pid),
			Risk:    "a bound makes callers wait where they did not",
			Effect:  now.Text() + " -> a number that stays",
		}},
		Placebos: []string{"A higher limit or smaller stacks: it takes longer until none is left."},
		Disproof: "The number stays after some minutes: then a pool was filling up.",
	}
	if now.AtLeast(p.Param(paramManyThreads)) {
		f.Severity = check.Warning
	}
	threadForecast(p, &f, rate)
	p.Report(f)
	return true
}

// threadForecast adds when the control group will have no thread left.
func threadForecast(p *check.Pass, f *check.Finding, rate quantity.Value) {
	for _, s := range p.Gauge(metric.CgroupPIDsLimit) {
		used, ok := evidence.LastOf(p.Gauge(metric.CgroupPIDs, "cgroup", s.Label("cgroup"), "level", s.Label("level")))
		if !ok || s.Last() <= used {
			continue
		}
		left := quantity.Of("pids.max", s.Last(), quantity.Threads).
			Minus(quantity.Of("in use", used, quantity.Threads)).Per(rate).
			As(quantity.Seconds).
			Named("until the limit of %s, at this rate", s.Label("cgroup"))
		if left.Below(p.Param(evidence.ParamGrowthSoon)) {
			f.Severity = check.Warning
			f.Evidence = append(f.Evidence, left)
			f.Summary += fmt.Sprintf(" At this rate none is left in %s.", left.Text())
			return
		}
	}
}

var threadNumbers = regexp.MustCompile(`[0-9]+`)

// grownPools names the pools that grew most. It goes by the kernel's names, which are cut at 15 bytes, with each
// number as "*", and shows the full name that begins so.
func grownPools(p *check.Pass, pid string) []string {
	grown, now := map[string]float64{}, map[string]float64{}
	for _, s := range p.Gauge(metric.ThreadPools) {
		name := threadNumbers.ReplaceAllString(s.Label("pool"), "*")
		now[name] += s.Last()
		if s.Points[0].At < time.Second/2 {
			grown[name] += s.Last() - s.First()
		} else {
			grown[name] += s.Last() // it came in the window
		}
	}
	names := slices.SortedFunc(maps.Keys(grown), func(a, b string) int {
		return cmp.Or(cmp.Compare(grown[b], grown[a]), strings.Compare(a, b))
	})
	var out []string
	for _, name := range names[:min(len(names), 3)] {
		if grown[name] >= 2 {
			out = append(out, fmt.Sprintf("threads %s: %.0f more, %.0f now", fullPool(p, pid, name), grown[name],
				now[name]))
		}
	}
	return out
}

// fullPool returns the largest pool whose full name begins like the one that the kernel has cut.
func fullPool(p *check.Pass, pid, cut string) string {
	best, most := cut, 0.0
	for _, s := range p.Gauge(metric.JVMPools, "pid", pid) {
		if strings.HasPrefix(s.Label("pool"), cut) && s.Last() > most {
			best, most = s.Label("pool"), s.Last()
		}
	}
	return best
}
