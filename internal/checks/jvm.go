package checks

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// onlyJVM is the scope of the checks about a JVM and about Java code: another target has neither.
var onlyJVM = &check.Scope{Fact: metric.JVMInfo, Name: "JVM"}

// hotspots gives the pids of the target's HotSpot JVMs.
func hotspots(p *check.Pass) (pids []string) {
	for _, s := range p.Info(metric.JVMInfo, "kind", "HotSpot") {
		pids = append(pids, s.Label("pid"))
	}
	return pids
}

// eachJVM runs a rule for each JVM. The rule tells whether it had what it reads; where it never had, nothing is known.
func eachJVM(p *check.Pass, rule func(pid string) (assessed bool)) error {
	assessed := false
	for _, pid := range hotspots(p) {
		assessed = rule(pid) || assessed
	}
	if !assessed {
		return check.NotAssessed("", "no HotSpot JVM of the target has the numbers for it, or they were read too seldom")
	}
	return nil
}

func jvmSubject(p *check.Pass, pid string) check.Subject {
	for _, s := range p.Info(metric.JVMInfo, "pid", pid) {
		return pidSubject(pid, s.Label("comm"))
	}
	return pidSubject(pid, "java")
}

// rose gives what a counter of one JVM rose by, and the time over which.
func rose(p *check.Pass, c *metric.Counter, match ...string) (increase, span float64, ok bool) {
	for _, s := range p.Counter(c, match...) {
		n, known := s.Increase()
		if known && s.Span() > 0 {
			increase, span, ok = increase+n, max(span, s.Span().Seconds()), true
		}
	}
	return increase, span, ok
}

// shareOfWall is a counter of seconds over the time it was watched.
func shareOfWall(label string, seconds, span float64) quantity.Value {
	return quantity.Of(label, seconds, quantity.Seconds).Per(quantity.Of("window", span, quantity.Seconds)).Named("%s", label)
}

// gcPauses gives the time a JVM stood still for collections, where the JVM tells.
func gcPauses(p *check.Pass, pid string) (seconds, span float64, ok bool) {
	for _, kind := range metric.GCPauseKinds() {
		n, d, known := rose(p, metric.JVMGCSeconds, "pid", pid, "kind", kind)
		if known {
			seconds, span, ok = seconds+n, max(span, d), true
		}
	}
	return seconds, span, ok
}

// gcShare is the share of wall time in collections; of Shenandoah and JDK 11's Z that of all safepoints, which are
// mostly theirs.
func gcShare(p *check.Pass, pid string) (quantity.Value, bool) {
	if n, span, ok := gcPauses(p, pid); ok {
		return shareOfWall("time in collections", n, span), true
	}
	if n, span, ok := rose(p, metric.JVMSafepointSeconds, "pid", pid); ok {
		return shareOfWall("time in safepoints, most of them for collections", n, span), true
	}
	return quantity.Value{}, false
}

// gcThreads and compilerThreads are HotSpot's names in the kernel, cut at 15 bytes.
var (
	gcThreads       = []string{"GC Thread", "ParGC Thread", "G1 ", "ZWorker", "XWorker", "ZDriver", "XDriver", "Shenandoah"}
	compilerThreads = []string{"C1 CompilerThre", "C2 CompilerThre"}
)

// threadCPU gives the CPUs that the threads with these names used, of a process.
func threadCPU(p *check.Pass, pid, label string, prefixes []string) (cpus quantity.Value, ok bool) {
	total, ok := threadsRate(p, metric.ThreadCPU, prefixes, "pid", pid)
	return quantity.Of(label, total, quantity.CPUs), ok
}

// threadsRate gives by how much a counter of threads rises in a second of the window, of those whose names begin with one of prefixes,
// or of all; not ok when no thread has a rate. A thread that lived for a part of the window counts for that part: HotSpot starts and ends
// compilers as it needs them (UseDynamicNumberOfCompilerThreads), and one that is busy for a second of ten is a tenth of a CPU. How long
// it lived is in its CPU time, which each sample reads of all threads; of many threads other counters are read in turns.
func threadsRate(p *check.Pass, m *metric.Counter, prefixes []string, labels ...string) (perSecond float64, ok bool) {
	lived := livesOf(p.Counter(metric.ThreadCPU, labels...))
	for _, s := range p.Counter(m, labels...) {
		r, known := s.Rate()
		if !known {
			continue
		}
		ok = true
		if prefixes != nil && !slices.ContainsFunc(prefixes, func(x string) bool { return strings.HasPrefix(s.Label("comm"), x) }) {
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

// processCPU gives the CPUs that a process used.
func processCPU(p *check.Pass, pid string) (quantity.Value, bool) {
	total, found := 0.0, false
	for _, s := range p.Counter(metric.ProcessCPU, "pid", pid) {
		if r, ok := s.Rate(); ok {
			total, found = total+r, true
		}
	}
	return quantity.Of("CPU of the process", total, quantity.CPUs), found && total > 0
}

// jvmFlag gives the value of a flag and where it is from, empty when it was not recorded.
func jvmFlag(p *check.Pass, pid, name string) (value, origin string) {
	for _, s := range p.Info(metric.JVMFlag, "pid", pid, "name", name) {
		return s.Label("value"), s.Label("origin")
	}
	return "", ""
}

func numericFlag(p *check.Pass, pid, name string, unit quantity.Unit) (quantity.Value, bool) {
	value, _ := jvmFlag(p, pid, name)
	var n float64
	if _, err := fmt.Sscanf(value, "%g", &n); err != nil || n <= 0 {
		return quantity.Value{}, false
	}
	return quantity.Of("-XX:"+name, n, unit), true
}

// gcOf names the collector: Serial, Parallel, G1, Z, Shenandoah.
func gcOf(p *check.Pass, pid string) string {
	for _, s := range p.Info(metric.JVMVersion, "pid", pid) {
		return s.Label("collector")
	}
	return ""
}

// uptime gives the age of a JVM at the end of the window.
func uptime(p *check.Pass, pid string) (quantity.Value, bool) {
	v, ok := lastOf(p.Gauge(metric.JVMUptime, "pid", pid))
	return quantity.Of("age of the JVM", v, quantity.Seconds), ok
}

// sawCause reports whether one of the causes was that of a collection in the window: the last before it is not counted
// unless it was seen again after a collection.
func sawCause(p *check.Pass, pid string, causes ...string) bool {
	for _, s := range p.Counter(metric.JVMGCsByCause, "pid", pid) {
		if slices.Contains(causes, s.Label("cause")) && s.Points[len(s.Points)-1].Value > 0 {
			return true
		}
	}
	for _, s := range p.Info(metric.JVMGCCause, "pid", pid) {
		if slices.Contains(causes, s.Label("cause")) && (len(s.Points) > 1 || s.Points[0].At > 0) {
			return true
		}
	}
	return false
}

// leastForRise is the number of readings that a steady rise can be told from: two in each half.
const leastForRise = 4

// onlyRises tells a steady rise from coming and going: no fall by more than a twentieth, and some rise in both halves.
func onlyRises(s recording.GaugeSeries) bool {
	n := len(s.Points)
	if n < leastForRise {
		return false
	}
	for i := 1; i < n; i++ {
		if s.Points[i].Value < s.Points[i-1].Value*0.95 {
			return false
		}
	}
	middle := s.Points[n/2].Value
	return middle > s.First() && s.Last() > middle
}
