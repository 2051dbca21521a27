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
)

// PausesTooLong is the default of two checks: of what warns of pauses, and of what explains them.
const PausesTooLong = 0.05

// ParamGCShare is from where on collections are a fault.
var ParamGCShare = &check.Param{
	Name: "share", Default: PausesTooLong, Unit: quantity.Ratio,
	Why: "a healthy JVM under full load spends 1 to 3 % of its time in pauses; G1 and Parallel aim at 1 to 8 % " +
		"(GCTimeRatio)",
}

// OnlyJVM is the scope of the checks about a JVM and about Java code: another target has neither.
var OnlyJVM = &check.Scope{Fact: metric.JVMInfo, Name: "JVM"}

// OnlyRuntimes is that of the checks about what threads of Java and Python, and goroutines, wait for.
var OnlyRuntimes = &check.Scope{
	Fact: metric.JVMInfo, Name: "JVM", Or: &check.Scope{
		Fact: metric.GoRuntime, Name: "program in Go", Or: &check.Scope{Fact: metric.ScriptRuntime, Name: "script"},
	},
}

// HotSpots gives the pids of the target's HotSpot JVMs.
func HotSpots(p *check.Pass) (pids []string) {
	for _, s := range p.Info(metric.JVMInfo, "kind", "HotSpot") {
		pids = append(pids, s.Label("pid"))
	}
	return pids
}

// EachJVM runs a rule for each JVM. The rule tells whether it had what it reads; where it never had, nothing is known.
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

// JVMRise gives what a counter of one JVM rose by, and the time over which.
func JVMRise(p *check.Pass, c *metric.Counter, match ...string) (increase, span float64, ok bool) {
	for _, s := range p.Counter(c, match...) {
		n, known := s.Increase()
		if known && s.Span() > 0 {
			increase, span, ok = increase+n, max(span, s.Span().Seconds()), true
		}
	}
	return increase, span, ok
}

// ShareOfWall is a counter of seconds over the time it was watched.
func ShareOfWall(label string, seconds, span float64) quantity.Value {
	return quantity.Of(label, seconds, quantity.Seconds).Per(quantity.Of("window", span, quantity.Seconds)).
		Named("%s", label)
}

// GCPauses gives the time a JVM stood still for collections, where the JVM tells.
func GCPauses(p *check.Pass, pid string) (seconds, span float64, ok bool) {
	for _, kind := range metric.GCPauseKinds() {
		n, d, known := JVMRise(p, metric.JVMGCSeconds, "pid", pid, "kind", kind)
		if known {
			seconds, span, ok = seconds+n, max(span, d), true
		}
	}
	return seconds, span, ok
}

// GCShare is the share of wall time in collections; of Shenandoah and JDK 11's Z that of all safepoints, which are
// mostly theirs.
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
	// ParamRuntimeCPU is for what threads of the runtime use.
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

// ThreadCPU gives the CPUs that the threads with these names used, of a process.
func ThreadCPU(p *check.Pass, pid, label string, prefixes []string) (cpus quantity.Value, ok bool) {
	total, ok := ThreadsRate(p, metric.ThreadCPU, prefixes, "pid", pid)
	return quantity.Of(label, total, quantity.CPUs), ok
}

// ThreadsRate gives by how much a counter of threads rises in a second of the window, of those whose names begin with
// one of prefixes, or of all; not ok when no thread has a rate. A thread that lived for a part of the window counts for
// that part: HotSpot starts and ends compilers as it needs them (UseDynamicNumberOfCompilerThreads), and one that is
// busy for a second of ten is a tenth of a CPU. How long it lived is in its CPU time, which each sample reads of all
// threads; of many threads other counters are read in turns.
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

// livesOf gives for each thread the part of the window in which it was seen.
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

// ProcessCPU gives the CPUs that a process used.
func ProcessCPU(p *check.Pass, pid string) (quantity.Value, bool) {
	total, found := 0.0, false
	for _, s := range p.Counter(metric.ProcessCPU, "pid", pid) {
		if r, ok := s.Rate(); ok {
			total, found = total+r, true
		}
	}
	return quantity.Of("CPU of the process", total, quantity.CPUs), found && total > 0
}

// JVMFlag gives the value of a flag and where it is from, empty when it was not recorded.
func JVMFlag(p *check.Pass, pid, name string) (value, origin string) {
	for _, s := range p.Info(metric.JVMFlag, "pid", pid, "name", name) {
		return s.Label("value"), s.Label("origin")
	}
	return "", ""
}

// NumericFlag gives the value of a flag that is a positive number; ok is false of others.
func NumericFlag(p *check.Pass, pid, name string, unit quantity.Unit) (quantity.Value, bool) {
	value, _ := JVMFlag(p, pid, name)
	var n float64
	if _, err := fmt.Sscanf(value, "%g", &n); err != nil || n <= 0 {
		return quantity.Value{}, false
	}
	return quantity.Of("-XX:"+name, n, unit), true
}

// CollectorOf names the collector: Serial, Parallel, G1, Z, Shenandoah.
func CollectorOf(p *check.Pass, pid string) string {
	for _, s := range p.Info(metric.JVMVersion, "pid", pid) {
		return s.Label("collector")
	}
	return ""
}

// LeastForRise is the number of readings that a steady rise can be told from: two in each half.
const LeastForRise = 4

// OnlyRises tells a steady rise from coming and going: no fall of note, and some rise in both halves.
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

// ParamGrowthSoon is how soon something that grows must be at its limit to be a warning.
var ParamGrowthSoon = &check.Param{
	Name: "soon", Default: 600, Unit: quantity.Seconds,
	Why: "ten minutes are what is left to save a heap dump before the process is gone",
}

// ParallelCollectors are the threads that work together in a pause.
var ParallelCollectors = []string{"GC Thread", "ParGC Thread"}

// RunDelay gives how many of a process's threads wait for a CPU on average: those whose names begin with one of
// prefixes, or all.
func RunDelay(p *check.Pass, pid string, prefixes []string) float64 {
	waiting, _ := ThreadsRate(p, metric.ThreadRunDelay, prefixes, "pid", pid)
	return waiting
}

// JVMCPUs gives the CPUs that a JVM reckons with.
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

// TellJVM says why the JVM counts more CPUs than it has, and how to put that right.
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
