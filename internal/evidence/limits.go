package evidence

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/series"
)

// ParamPoolFloor excludes pools that are small on every host.
var ParamPoolFloor = &check.Param{
	Name: "pool-floor", Default: 4, Unit: quantity.Threads,
	Why: "reactor-netty starts at least four event loops and HotSpot up to three compiler threads however few CPUs " +
		"there are",
}

// CPUSizedPools are the name prefixes of pools that runtimes and frameworks size by the number of CPUs they see. The
// kernel cuts names at 15 bytes (TASK_COMM_LEN). Pools that are sized by load, such as http-nio-8080-exec, and Go's
// Ms do not belong here.
var CPUSizedPools = []string{
	"GC Thread", "ParGC Thread", "G1 Conc", "G1 Refine", "ZWorker", "Shenandoah GC", // HotSpot collectors
	"C1 CompilerThre", "C2 CompilerThre", // HotSpot compilers
	"epollEventLoopG", "nioEventLoopGro", "multiThreadIoEv", // Netty 4.1, 4.2
	"reactor-http-ep", "reactor-http-ni", "vert.x-eventloo", // on top of Netty
	"ForkJoinPool", "RxComputationTh", "akka.actor.defa", "io-compute", // JVM libraries
	"tokio-runtime-w", // Rust
	".NET Server GC",  // one per CPU
}

// HostSizedPools returns the target's pools that are sized by the number of CPUs and have at least so many threads,
// the largest first.
func HostSizedPools(p *check.Pass, atLeast quantity.Value) []quantity.Value {
	var out []quantity.Value
	for _, s := range p.Gauge(metric.ThreadPools) {
		v := quantity.Of(s.Label("pool"), s.Last(), quantity.Threads)
		known := slices.ContainsFunc(CPUSizedPools,
			func(name string) bool { return strings.HasPrefix(v.Label(), name) })
		if known && v.AtLeast(atLeast) && v.Above(p.Param(ParamPoolFloor)) {
			out = append(out, v)
		}
	}
	slices.SortStableFunc(out, func(a, b quantity.Value) int { return cmp.Compare(b.Number(), a.Number()) })
	return out
}

// targetRuntime returns the target's runtime ("jvm", "go", "node" …); empty if it is not known.
func targetRuntime(p *check.Pass) string {
	for _, s := range p.Info(metric.TargetInfo) {
		if r := s.Label("runtime"); r != "" {
			return r
		}
	}
	return p.Meta.Target.Runtime
}

// ScriptRuntimeOf returns the runtime of the scripts of a process, such as CPython 3.11.7 or Node.js 22; empty if
// none was read.
func ScriptRuntimeOf(p *check.Pass, pid int) string {
	for _, s := range p.Info(metric.ScriptRuntime) {
		if s.Label("pid") == strconv.Itoa(pid) {
			return s.Label("runtime")
		}
	}
	return ""
}

// RuntimeOf returns what a process of the target runs: "CPython 3.11", "Node.js 20", "go" and the like.
func RuntimeOf(p *check.Pass, pid int) string {
	if runtime := ScriptRuntimeOf(p, pid); runtime != "" {
		return runtime
	}
	for _, s := range p.Info(metric.TargetInfo) {
		if s.Label("pid") == strconv.Itoa(pid) {
			return s.Label("runtime")
		}
	}
	return ""
}

// TargetIsGo reports whether the target's runtime is Go's.
func TargetIsGo(p *check.Pass) bool { return targetRuntime(p) == "go" }

// TargetIsJVM reports whether the target's runtime is a JVM.
func TargetIsJVM(p *check.Pass) bool { return targetRuntime(p) == "jvm" }

// TargetIsDotNet reports whether the target's runtime is .NET.
func TargetIsDotNet(p *check.Pass) bool { return targetRuntime(p) == "dotnet" }

// TellCPUs returns the setting that tells the target's runtime how many CPUs it has.
func TellCPUs(p *check.Pass, cpus float64) string {
	n := fmt.Sprintf("%.0f", cpus)
	switch targetRuntime(p) {
	case "jvm":
		return "-XX:ActiveProcessorCount=" + n
	case "go":
		return "GOMAXPROCS=" + n
	}
	return "JVM: -XX:ActiveProcessorCount=" + n + ", Go: GOMAXPROCS=" + n + ", .NET: DOTNET_PROCESSOR_COUNT=" + n
}

// OnlineCPUs returns the number of online CPUs of the host.
func OnlineCPUs(p *check.Pass) (quantity.Value, bool) {
	for _, s := range p.Gauge(metric.CPUsOnline) {
		if n := s.Last(); n > 0 {
			return quantity.Of("CPUs online", n, quantity.CPUs), true
		}
	}
	return quantity.Value{}, false
}

// OfHost returns the share of the host's CPU time that is in use, and the share that a use in CPUs has of it.
func OfHost(p *check.Pass, use quantity.Value) (busy, part quantity.Value, ok bool) {
	_, all, err := CPUTimes(p)
	host, known := OnlineCPUs(p)
	if err != nil || !known {
		return busy, part, false
	}
	return all.Load(), use.Per(host), true
}

// A Runnable is how long the target's threads ran, and how long they waited for a CPU.
type Runnable struct{ Ran, Waited quantity.Value }

// RunnableOf returns the Runnable of the window; ok is false if either was not recorded, or the threads did neither.
func RunnableOf(p *check.Pass) (r Runnable, ok bool) {
	waited, _, ok := Rise("its threads waited for a CPU", p.Counter(metric.ThreadRunDelay))
	ran, _, known := Rise("ran", p.Counter(metric.ThreadCPU))
	return Runnable{ran, waited}, ok && known && ran.Number()+waited.Number() > 0
}

// WaitShare returns the share of waiting in the time in which they ran or were runnable.
func (r Runnable) WaitShare() quantity.Value {
	return r.Waited.Per(quantity.Of("they ran or waited", r.Ran.Number()+r.Waited.Number(), quantity.Seconds)).
		Named("of the time in which its threads run or could, they wait")
}

// Waiting returns how many of them waited at any moment.
func (r Runnable) Waiting(p *check.Pass) quantity.Value {
	return r.Waited.Per(p.Window()).As(quantity.Threads).Named("threads that wait for a CPU at any moment")
}

// HolderWaits returns the part of a wait for a lock in which its holder waits for a CPU. It is the share of their
// runnable time that the target's threads wait for a CPU. If fewer than one of them waits at any moment, the holder
// is seldom that one. It is zero if their waits were not recorded.
func HolderWaits(p *check.Pass) (part quantity.Value) {
	r, ok := RunnableOf(p)
	if !ok {
		return part
	}
	return quantity.Of("", min(1, r.Waiting(p).Number())*r.WaitShare().Number(), quantity.Ratio)
}

// HolderWaitsText says why such a wait is not the lock's fault.
func HolderWaitsText(part quantity.Value) string {
	return fmt.Sprintf("the holder of the lock waits for a CPU for some %s of that time, like all threads here: "+
		"more CPU time shortens it", part.Text())
}

// EffectiveCPUs returns how many CPUs the target can use at most: the least of the host's CPUs, the cpusets and the
// CPU limits of its cgroup and all ancestors. The label says which of them it is. ok is false if none of them is
// known.
func EffectiveCPUs(p *check.Pass) (least quantity.Value, ok bool) {
	least, ok = OnlineCPUs(p)
	take := func(v quantity.Value) {
		if v.Number() > 0 && (!ok || v.Below(least)) {
			least, ok = v, true
		}
	}
	if may, known := AllowedCPUs(p); known {
		take(may)
	}
	for _, s := range p.Gauge(metric.CgroupCpuset) {
		take(quantity.Of(fmt.Sprintf("CPUs in the cpuset of %s", s.Label("cgroup")), s.Last(), quantity.CPUs))
	}
	for _, s := range p.Gauge(metric.CgroupQuota) {
		take(quantity.Of(fmt.Sprintf("CPU limit of %s", s.Label("cgroup")), s.Last(), quantity.CPUs))
	}
	return least, ok
}

// nearWhole is how far from a whole number of threads an interval may be. CPU time is counted in ticks of 10 ms
// (USER_HZ), a hundred per second, and a thread is accounted when it leaves the CPU.
const nearWhole = 0.1

// leastFlat is how many intervals must be alike: a changing load is not the same whole number in five of them.
const leastFlat = 5

// AtOnce returns how many of the target's threads run or are runnable, if that is the same whole number all the time:
// a runtime or a lock, such as GOMAXPROCS or an interpreter's lock, lets no more run at once. ok is false if it
// changes. One interval may differ: the first includes what perfdoctor itself asks of the target.
func AtOnce(p *check.Pass) (threads quantity.Value, ok bool) {
	var rates [][]series.Point
	for _, s := range slices.Concat(p.Counter(metric.ThreadCPU), p.Counter(metric.ThreadRunDelay)) {
		rates = append(rates, series.Rates(s.Points))
	}
	all := series.Values(series.Sum(rates...))
	whole, others := math.Round(series.Median(all)), 0
	for _, n := range all {
		if math.Abs(n-whole) > nearWhole {
			others++
		}
	}
	if whole < 1 || len(all) < leastFlat || others > 1 {
		return quantity.Value{}, false
	}
	return quantity.Of("threads that run or are ready to, all the time", whole, quantity.Threads), true
}

// OneAtATime returns the processes whose interpreter runs one of their threads at a time: CPython (PEP 703 explains
// why) and Ruby without Ractors (rb_thread_call_without_gvl in its thread.c). Node has one thread for its scripts.
func OneAtATime(p *check.Pass) (pids []int) {
	for _, s := range p.Info(metric.ScriptRuntime) {
		if pid, err := strconv.Atoi(s.Label("pid")); err == nil && strings.HasPrefix(s.Label("runtime"), "CPython") {
			pids = append(pids, pid)
		}
	}
	for _, s := range p.Info(metric.TargetInfo) {
		if pid, err := strconv.Atoi(s.Label("pid")); err == nil && s.Label("runtime") == "ruby" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// AllowedCPUs returns the number of CPUs on which some thread of the target may run; ok is false if that was not
// read.
func AllowedCPUs(p *check.Pass) (n quantity.Value, ok bool) {
	sum := 0.0
	for _, s := range p.Gauge(metric.TargetCPUs) {
		sum += s.Last()
	}
	return quantity.Of("CPUs that it may use", sum, quantity.CPUs), sum > 0
}

// WholeCPUs rounds up, as runtimes do: no program can run with less than one thread.
func WholeCPUs(v quantity.Value) quantity.Value {
	if n := math.Ceil(v.Number()); n != v.Number() {
		return quantity.Of(v.Label()+", rounded up", n, quantity.CPUs)
	}
	return v
}

// TwoSamples is the remedy of every check that found a counter read less than twice.
const TwoSamples = "record at least two samples (--duration of two intervals or more)"

// ParamFullSoon is how soon something must be full to be a warning.
var ParamFullSoon = &check.Param{
	Name: "full-within", Default: 600, Unit: quantity.Seconds,
	Why: "ten minutes are about what a person needs to be reached and to act",
}

// A LimitShare is how full something with a limit is, and when it will be full.
type LimitShare struct {
	series recording.GaugeSeries
	Used   quantity.Value
	Limit  quantity.Value
	Share  quantity.Value
	left   *quantity.Value // time until full at the rate of the window; nil if it does not grow
	growth quantity.Value
}

// FullestShare returns the pair with equal labels that has the highest share of its limit; nil if nothing has a
// limit.
func FullestShare(p *check.Pass, used, limit *metric.Gauge) *LimitShare {
	var best *LimitShare
	for _, s := range LimitShares(p, used, limit) {
		if best == nil || s.Share.Above(best.Share) {
			best = s
		}
	}
	return best
}

// LimitShares returns the pairs with equal labels that have a limit.
func LimitShares(p *check.Pass, used, limit *metric.Gauge) []*LimitShare {
	var out []*LimitShare
	for _, l := range p.Gauge(limit) {
		names := limit.Describe().Labels
		var match []string
		for i, name := range names {
			match = append(match, name, l.Labels[i])
		}
		for _, u := range p.Gauge(used, match...) {
			if l.Last() > 0 {
				out = append(out, shareOf(u, l))
			}
		}
	}
	return out
}

func shareOf(u, l recording.GaugeSeries) *LimitShare {
	unit := u.Metric.Describe().Unit
	s := &LimitShare{
		series: u, Used: quantity.Of("in use", u.Last(), unit),
		Limit: quantity.Of("limit", l.Last(), unit),
	}
	s.Share = s.Used.Per(s.Limit).Named("in use / limit")
	rise, apart := RiseOfHalves(u.Points)
	if rise <= 0 || apart <= 0 {
		return s
	}
	s.growth = quantity.Of("rise", rise, unit).Per(quantity.Of("time between", apart, quantity.Seconds)).
		Named("growth, first half of the window to the second")
	if free := s.Limit.Minus(s.Used); free.Number() > 0 {
		left := quantity.Of("free", free.Number(), unit).Per(s.growth).As(quantity.Seconds).Named("full in")
		if left.Number() <= foreseen {
			s.left = &left
		}
	}
	return s
}

// foreseen is how far ahead a growth is worth mentioning, in seconds: a forecast of a month from a window of seconds
// is noise.
const foreseen = 30 * 24 * 3600

// RiseOfHalves returns by how much the mean of the second half of the points exceeds the mean of the first half, and
// how many seconds their mean times are apart: one outlier at an end makes no trend.
func RiseOfHalves(points []recording.Point) (rise, apart float64) {
	n := len(points) / 2
	for i := range n {
		first, second := points[i], points[len(points)-n+i]
		rise += (second.Value - first.Value) / float64(n)
		apart += (second.At - first.At).Seconds() / float64(n)
	}
	return rise, apart
}

// Soon reports whether it will be full within the time of the parameter.
func (s *LimitShare) Soon(p *check.Pass) bool {
	return s.left != nil && !s.left.Above(p.Param(ParamFullSoon))
}

// Evidence returns the share and, if it grows, the growth with the time that is left.
func (s *LimitShare) Evidence() []quantity.Value {
	out := []quantity.Value{s.Share}
	if s.left != nil {
		out = append(out, s.growth, *s.left)
	}
	return out
}

// Forecast returns the end of a summary: when it will be full, if that is soon.
func (s *LimitShare) Forecast(p *check.Pass) string {
	if !s.Soon(p) {
		return "."
	}
	return fmt.Sprintf("; at this growth full in %s.", s.left.Text())
}

// Label returns a label of what is in use.
func (s *LimitShare) Label(name string) string { return s.series.Label(name) }

// LevelsAbove says how far above the process a cgroup's limit is set.
func (s *LimitShare) LevelsAbove() string {
	return setWhere(s.Label("level"))
}
