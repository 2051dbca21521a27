package evidence

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// PausesTooLong is the default of two checks: the one that warns of pauses, and the one that explains them.
const PausesTooLong = 0.05

// ParamGCShare is the share of time from which on collections are a fault.
var ParamGCShare = &check.Param{
	Name: "share", Default: PausesTooLong, Unit: quantity.Ratio,
	Why: "a healthy JVM under full load spends 1 to 3 % of its time in pauses; G1 and Parallel aim at 1 to 8 % " +
		"(GCTimeRatio)",
}

// ParamStopsMost is the share of time from which on stops of all threads state [StopsMost].
var ParamStopsMost = &check.Param{
	Name: "share-most", Default: 0.5, Unit: quantity.Ratio,
	Why: "from half of the time on, a wait for another thread is mostly a wait until it may run again",
}

// OnlyJVM is the scope of the checks about a JVM and about Java code: other targets have neither.
var OnlyJVM = &check.Scope{Fact: metric.JVMInfo, Name: "JVM"}

// OnlyRuntimes is the scope of the checks about what Java and Python threads, and goroutines, wait for.
var OnlyRuntimes = &check.Scope{
	Fact: metric.JVMInfo, Name: "JVM", Or: &check.Scope{
		Fact: metric.GoRuntime, Name: "program in Go", Or: &check.Scope{Fact: metric.ScriptRuntime, Name: "script"},
	},
}

// HotSpots returns the pids of the target's HotSpot JVMs.
func HotSpots(p *check.Pass) (pids []string) {
	for _, s := range p.Info(metric.JVMInfo, "kind", "HotSpot") {
		pids = append(pids, s.Label("pid"))
	}
	return pids
}

// EachJVM runs a rule for each JVM. The rule reports whether it had the data it reads; if it never had, the check is
// not assessed.
func EachJVM(p *check.Pass, rule func(pid string) (assessed bool)) error {
	assessed := false
	for _, pid := range HotSpots(p) {
		assessed = rule(pid) || assessed
	}
	if !assessed {
		return check.NotAssessed("", "no HotSpot JVM of the target has the numbers for it, or they were read too "+
			"seldom")
	}
	return nil
}

// JVMRise returns the increase of a counter of one JVM, and the time that it covers.
func JVMRise(p *check.Pass, c *metric.Counter, match ...string) (increase, span float64, ok bool) {
	for _, s := range p.Counter(c, match...) {
		n, known := s.Increase()
		if known && s.Span() > 0 {
			increase, span, ok = increase+n, max(span, s.Span().Seconds()), true
		}
	}
	return increase, span, ok
}

// ShareOfWall returns a counter of seconds over the time it was observed.
func ShareOfWall(label string, seconds, span float64) quantity.Value {
	return quantity.Of(label, seconds, quantity.Seconds).Per(quantity.Of("window", span, quantity.Seconds)).
		Named("%s", label)
}

// GCPauses returns the time a JVM was stopped for collections, if the JVM reports it.
func GCPauses(p *check.Pass, pid string) (seconds, span float64, ok bool) {
	for _, kind := range metric.GCPauseKinds() {
		n, d, known := JVMRise(p, metric.JVMGCSeconds, "pid", pid, "kind", kind)
		if known {
			seconds, span, ok = seconds+n, max(span, d), true
		}
	}
	return seconds, span, ok
}

// GCShare returns the share of wall time in collections; for Shenandoah and JDK 11's ZGC the share of all safepoints,
// which are mostly for collections.
func GCShare(p *check.Pass, pid string) (quantity.Value, bool) {
	if n, span, ok := GCPauses(p, pid); ok {
		return ShareOfWall("time in collections", n, span), true
	}
	if n, span, ok := JVMRise(p, metric.JVMSafepointSeconds, "pid", pid); ok {
		return ShareOfWall("time in safepoints, most of them for collections", n, span), true
	}
	return quantity.Value{}, false
}

var (
	// ParamRuntimeCPU is the CPU use from which on threads of the runtime matter.
	ParamRuntimeCPU = &check.Param{
		Name: "least-cpu", Default: 0.1, Unit: quantity.CPUs,
		Why: "a tenth of a CPU holds nobody up, however small the rest of the process",
	}
	// ParamRiseFall is how far a series that only rises may fall between two readings.
	ParamRiseFall = &check.Param{
		Name: "fall", Default: 0.05, Unit: quantity.Ratio,
		Why: "what falls by more than a twentieth from one reading to the next comes and goes; less is jitter",
	}
)

// ThreadCPU returns the CPUs that the threads of a process with these name prefixes used.
func ThreadCPU(p *check.Pass, pid, label string, prefixes []string) (cpus quantity.Value, ok bool) {
	total, ok := ThreadsRate(p, metric.ThreadCPU, prefixes, "pid", pid)
	return quantity.Of(label, total, quantity.CPUs), ok
}

// ThreadsRate returns the rate per second of the window of a counter of threads, over the threads whose names begin
// with one of prefixes, or over all; ok is false if no thread has a rate. A thread that lived for a part of the
// window counts for that part: HotSpot starts and ends compilers as it needs them
// (UseDynamicNumberOfCompilerThreads), and a compiler that is busy for one second in ten is a tenth of a CPU. How
// long a thread lived comes from its CPU time, which each sample reads for all threads; if there are many threads,
// other counters are read in turns.
func ThreadsRate(p *check.Pass, m *metric.Counter, prefixes []string, labels ...string) (perSecond float64, ok bool) {
	lived := livesOf(p.Counter(metric.ThreadCPU, labels...))
	for _, s := range p.Counter(m, labels...) {
		r, known := s.Rate()
		if !known {
			continue
		}
		ok = true
		if prefixes != nil && !slices.ContainsFunc(prefixes,
			func(x string) bool { return strings.HasPrefix(s.Label("comm"), x) }) {
			continue
		}
		if part, known := lived[threadOf(s)]; known {
			r *= part
		}
		perSecond += r
	}
	return perSecond, ok
}

// livesOf returns for each thread the part of the window in which it was seen.
func livesOf(threads []recording.CounterSeries) map[string]float64 {
	first, last := math.Inf(1), 0.0
	for _, s := range threads {
		first, last = min(first, s.Points[0].At.Seconds()), max(last, s.Points[len(s.Points)-1].At.Seconds())
	}
	parts := map[string]float64{}
	for _, s := range threads {
		if last > first {
			parts[threadOf(s)] = s.Span().Seconds() / (last - first)
		}
	}
	return parts
}

func threadOf(s recording.CounterSeries) string { return s.Label("pid") + " " + s.Label("tid") }

// ProcessCPU returns the CPUs that a process used.
func ProcessCPU(p *check.Pass, pid string) (quantity.Value, bool) {
	total, found := 0.0, false
	for _, s := range p.Counter(metric.ProcessCPU, "pid", pid) {
		if r, ok := s.Rate(); ok {
			total, found = total+r, true
		}
	}
	return quantity.Of("CPU of the process", total, quantity.CPUs), found && total > 0
}

// JVMFlag returns the value and the origin of a flag; empty if it was not recorded.
func JVMFlag(p *check.Pass, pid, name string) (value, origin string) {
	for _, s := range p.Info(metric.JVMFlag, "pid", pid, "name", name) {
		return s.Label("value"), s.Label("origin")
	}
	return "", ""
}

// NumericFlag returns the value of a flag that is a positive number; ok is false for others.
func NumericFlag(p *check.Pass, pid, name string, unit quantity.Unit) (quantity.Value, bool) {
	value, _ := JVMFlag(p, pid, name)
	var n float64
	if _, err := fmt.Sscanf(value, "%g", &n); err != nil || n <= 0 {
		return quantity.Value{}, false
	}
	return quantity.Of("-XX:"+name, n, unit), true
}

// CollectorOf returns the name of the collector: Serial, Parallel, G1, Z, Shenandoah.
func CollectorOf(p *check.Pass, pid string) string {
	for _, s := range p.Info(metric.JVMVersion, "pid", pid) {
		return s.Label("collector")
	}
	return ""
}

// LeastForRise is the least number of readings that can show a steady rise: two in each half.
const LeastForRise = 4

// OnlyRises reports whether a series rises steadily instead of coming and going: no notable fall, and some rise in
// both halves.
func OnlyRises(p *check.Pass, s recording.GaugeSeries) bool {
	n := len(s.Points)
	if n < LeastForRise {
		return false
	}
	for i := 1; i < n; i++ {
		before := quantity.Of("", s.Points[i-1].Value, quantity.None)
		fall := before.Minus(quantity.Of("", s.Points[i].Value, quantity.None))
		if before.Number() > 0 && fall.Per(before).Above(p.Param(ParamRiseFall)) {
			return false
		}
	}
	middle := s.Points[n/2].Value
	return middle > s.First() && s.Last() > middle
}

// ParamGrowthSoon is how soon something that grows must reach its limit to be a warning.
var ParamGrowthSoon = &check.Param{
	Name: "soon", Default: 600, Unit: quantity.Seconds,
	Why: "ten minutes are what is left to save a heap dump before the process is gone",
}

// ParallelCollectors are the threads that work together in a pause.
var ParallelCollectors = []string{"GC Thread", "ParGC Thread"}

// RunDelay returns how many of a process's threads wait for a CPU on average, among those whose names begin with one
// of prefixes, or among all.
func RunDelay(p *check.Pass, pid string, prefixes []string) float64 {
	waiting, _ := ThreadsRate(p, metric.ThreadRunDelay, prefixes, "pid", pid)
	return waiting
}

// JVMCPUs returns the number of CPUs that a JVM assumes.
func JVMCPUs(p *check.Pass, pid string) (quantity.Value, bool) {
	s, ok := First(p.Gauge(metric.JVMCPUs, "pid", pid))
	if !ok {
		return quantity.Value{}, false
	}
	label := "CPUs that the JVM reckons with"
	if s.Label("from") == "ActiveProcessorCount" {
		label += ", set by -XX:ActiveProcessorCount"
	}
	return quantity.Of(label, s.Last(), quantity.CPUs), true
}

// TellJVM says why the JVM counts more CPUs than it has, and how to fix that.
func TellJVM(p *check.Pass, pid string, cpus, threads quantity.Value) check.Remedy {
	n := WholeCPUs(cpus).Number()
	r := check.Remedy{
		Action:  fmt.Sprintf("Tell the JVM how many CPUs it has: %.0f.", n),
		Command: check.Commandf("-XX:ActiveProcessorCount=%.0f", n),
		Risk:    "every pool that is sized by the CPUs shrinks with it; a restart; to be changed along with the limit",
		Effect:  fmt.Sprintf("%s -> %.0f", threads.Text(), n),
	}
	set, _ := JVMFlag(p, pid, "ActiveProcessorCount")
	support, _ := JVMFlag(p, pid, "UseContainerSupport")
	switch {
	case set != "" && set != "-1":
		r.Action = fmt.Sprintf("Remove -XX:ActiveProcessorCount=%s, so that the JVM reads its limit, or set it to "+
			"%.0f.", set, n)
	case support == "false":
		r.Action = fmt.Sprintf("Remove -XX:-UseContainerSupport, so that the JVM reads its limit, or set "+
			"ActiveProcessorCount to %.0f.", n)
	}
	return r
}

// DumpedMethod strips the file and line from a frame of a thread dump: java.lang.Object.wait(Native Method).
func DumpedMethod(frame string) string {
	if i := strings.IndexAny(frame, "(:"); i >= 0 {
		return frame[:i]
	}
	return frame
}

// ShortMethod returns Object.wait for java.lang.Object.wait.
func ShortMethod(name string) string {
	return ShortName(stacks.Frame{Name: name, Kind: stacks.Compiled})
}
