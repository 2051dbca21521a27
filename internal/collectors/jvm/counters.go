package jvm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/find"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/jvm/hsperf"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// counted are the metrics that come from the counters.
func counted() []metric.Metric {
	return []metric.Metric{
		metric.JVMVersion, metric.JVMUptime, metric.JVMGCSeconds, metric.JVMGCs, metric.JVMGCCause,
		metric.JVMGCsByCause,
		metric.JVMSafepoints,
		metric.JVMSafepointSeconds, metric.JVMSafepointSync, metric.JVMApplication, metric.JVMCompileSeconds,
		metric.JVMThreads,
		metric.JVMThreadsStarted, metric.JVMClassesLoaded, metric.JVMClassSeconds, metric.JVMSuperHash, metric.JVMGCCPU,
		metric.JVMSpace, metric.JVMMetaspace,
	}
}

// counterSource reads the counters of the target's JVMs.
type counterSource struct {
	list   []*machine
	more   int
	now    func() time.Time
	causes bool // count collections by their causes
}

func openCounters(ctx context.Context, env collect.Env, look *find.Look) (collect.Source, error) {
	list, more, err := machines(ctx, env, look)
	if err != nil {
		return nil, err
	}
	return &counterSource{list: list, more: more, now: time.Now, causes: true}, nil
}

// Standing returns the collector jvm for observing a target for hours: it looks for JVMs at each Open, since they
// come and go, and does not count collections by cause, because a thread would have to look at the causes 200 times a
// second.
func Standing() collect.Collector {
	c := Collectors(&find.Look{})[0]
	c.Provides = slices.DeleteFunc(c.Provides, func(m metric.Metric) bool { return m == metric.JVMGCsByCause })
	c.Open = func(ctx context.Context, env collect.Env) (collect.Source, error) {
		list, more, err := machines(ctx, env, &find.Look{})
		if err != nil {
			return nil, err
		}
		return &counterSource{list: list, more: more, now: time.Now}, nil
	}
	return c
}

// Close closes the counters' files.
func (s *counterSource) Close() error {
	var errs []error
	for _, m := range s.list {
		if m.causes != nil {
			m.causes.close()
		}
		if m.counters != nil {
			errs = append(errs, m.counters.Close())
		}
	}
	return errors.Join(errs...)
}

// Sample reads the counters of each JVM.
func (s *counterSource) Sample(ctx context.Context, a *recording.Appender) error {
	describe(a, s.list, s.more)
	if len(s.list) == 0 {
		a.None(counted()...)
	}
	for _, m := range s.list {
		if err := ctx.Err(); err != nil {
			return err
		}
		c, err := m.read()
		if err != nil {
			missing(a, counted(), err)
			continue
		}
		s.append(a, m, c)
		if !s.causes {
			continue
		}
		if err := m.appendCauses(a); err != nil {
			missing(a, []metric.Metric{metric.JVMGCsByCause}, err)
		}
	}
	return nil
}

// read reads the counters, and opens them first if needed: a JVM that is starting has none yet.
func (m *machine) read() (hsperf.Snapshot, error) {
	if m.counters == nil {
		c, err := m.OpenPerfData()
		if err != nil {
			return hsperf.Snapshot{}, err
		}
		m.counters = c
	}
	c, err := m.counters.Read()
	if errors.Is(err, hsperf.ErrStarting) {
		err = &jvm.Refusal{Cause: jvm.Starting, Reason: err.Error(), Remedy: "try again when it has started", Err: err}
	}
	return c, err
}

func (s *counterSource) append(a *recording.Appender, m *machine, c hsperf.Snapshot) {
	version := c.Texts["java.property.java.vm.version"]
	a.Info(metric.JVMVersion, m.pid, version, gcName(c))
	if born := c.Longs["sun.rt.createVmEndTime"]; born > 0 { // in ms since 1970
		a.Gauge(metric.JVMUptime, max(0, s.now().Sub(time.UnixMilli(born)).Seconds()), m.pid)
	}
	appendGC(a, m.pid, c)
	appendSafepoints(a, m.pid, c, major(version))
	appendSeconds(a, m.pid, c, metric.JVMApplication, "sun.rt.applicationTime")
	appendSeconds(a, m.pid, c, metric.JVMCompileSeconds, "java.ci.totalTime")
	appendSeconds(a, m.pid, c, metric.JVMClassSeconds, "sun.cls.time")
	appendSeconds(a, m.pid, c, metric.JVMSuperHash, "sun.cls.secondarySuperHashTime")
	appendSeconds(a, m.pid, c, metric.JVMGCCPU, "sun.threads.total_gc_cpu_time")
	for _, kind := range []string{"live", "daemon"} {
		if n, ok := c.Longs["java.threads."+kind]; ok && n >= 0 {
			a.Gauge(metric.JVMThreads, float64(n), m.pid, kind)
		}
	}
	if n, ok := c.Longs["java.threads.started"]; ok {
		a.Counter(metric.JVMThreadsStarted, float64(n), m.pid)
	}
	if n, ok := c.Longs["java.cls.loadedClasses"]; ok {
		a.Counter(metric.JVMClassesLoaded, float64(n+c.Longs["java.cls.sharedLoadedClasses"]), m.pid)
	}
	appendHeap(a, m.pid, c)
}

func appendSeconds(a *recording.Appender, pid string, c hsperf.Snapshot, to *metric.Counter, name string) {
	if v, ok := c.Seconds(name); ok {
		a.Counter(to, v, pid)
		return
	}
	a.Missing(to, recording.StatusUnsupported, "this JVM does not count "+name, "")
}

// gcName names the collector by its policy; Z and Shenandoah have none and are known by the names of their collections.
func gcName(c hsperf.Snapshot) string {
	names := map[string]string{
		"Copy:MSC": "Serial", "ParScav:MSC": "Parallel", "GarbageFirst": "G1",
		"ParNew:CMS": "CMS",
	}
	policy := c.Texts["sun.gc.policy.name"]
	switch {
	case names[policy] != "":
		return names[policy]
	case policy != "":
		return policy
	case strings.HasPrefix(c.Texts["sun.gc.collector.1.name"], "Shenandoah"):
		return "Shenandoah"
	case strings.HasPrefix(c.Texts["sun.gc.collector.2.name"], "Z"), c.Texts["sun.gc.generation.1.name"] == "old":
		return "Z" // JDK 11's has no collections among its counters
	}
	return "unknown"
}

// gcKind returns the kind of a collector's collections. In Serial, Parallel and G1, collector 0 is the young one and
// 1 the full one; in G1 and Z, collector 2 has the concurrent cycles (src/hotspot/share/gc/*/*MonitoringSupport.cpp,
// zServiceability.cpp). Shenandoah counts everything as "full", including the concurrent work.
func gcKind(c hsperf.Snapshot, n int) string {
	if strings.HasPrefix(c.Texts["sun.gc.collector.1.name"], "Shenandoah") {
		return map[int]string{1: "cycle"}[n]
	}
	return []string{"young", "full", "concurrent"}[n]
}

// collections returns the number of one collector's collections in the JVM's life, and the seconds that they took.
func collections(c hsperf.Snapshot, n int) (times int64, spent float64, ok bool) {
	prefix := fmt.Sprintf("sun.gc.collector.%d.", n)
	times, ok = c.Longs[prefix+"invocations"]
	spent, ok2 := c.Seconds(prefix + "time")
	return times, spent, ok && ok2
}

func appendGC(a *recording.Appender, pid string, c hsperf.Snapshot) {
	counted := false
	for n := range 3 {
		kind := gcKind(c, n)
		times, spent, ok := collections(c, n)
		if kind == "" || !ok {
			continue
		}
		counted = true
		a.Counter(metric.JVMGCSeconds, spent, pid, kind)
		a.Counter(metric.JVMGCs, float64(times), pid, kind)
	}
	if !counted {
		for _, m := range []metric.Metric{metric.JVMGCSeconds, metric.JVMGCs} {
			a.Missing(m, recording.StatusUnsupported, "this JVM's collector keeps no count of its collections (Z does "+
				"since JDK 15)", "")
		}
	}
	cause := c.Texts["sun.gc.cause"]
	if cause == "No GC" || cause == "" {
		cause = c.Texts["sun.gc.lastCause"]
	}
	if cause != "" {
		a.Info(metric.JVMGCCause, pid, cause)
	}
}

// safepointSplit is the first release whose safepointTime no longer includes the time to reach the safepoint:
// SafepointTracing::end in src/hotspot/share/runtime/safepoint.cpp of JDK 13, against
// RuntimeService::record_safepoint_end of JDK 11.
const safepointSplit = 13

func appendSafepoints(a *recording.Appender, pid string, c hsperf.Snapshot, release int) {
	stopped, ok := c.Seconds("sun.rt.safepointTime")
	reaching, ok2 := c.Seconds("sun.rt.safepointSyncTime")
	count, ok3 := c.Longs["sun.rt.safepoints"]
	if !ok || !ok2 || !ok3 {
		for _, m := range []metric.Metric{metric.JVMSafepoints, metric.JVMSafepointSeconds, metric.JVMSafepointSync} {
			a.Missing(m, recording.StatusUnsupported, "this JVM does not count its safepoints", "")
		}
		return
	}
	if release >= safepointSplit {
		stopped += reaching
	}
	a.Counter(metric.JVMSafepoints, float64(count), pid)
	a.Counter(metric.JVMSafepointSeconds, stopped, pid)
	a.Counter(metric.JVMSafepointSync, reaching, pid)
}

// version8 matches how HotSpot of JDK 8 and older names its version: 25.392-b08.
var version8 = regexp.MustCompile(`^[0-9]+\.[0-9]+-b[0-9]+$`)

// major returns the feature release of a version such as 17.0.15+6-Debian-1deb12u1, 0 if it has none.
func major(version string) int {
	if version8.MatchString(version) {
		return 8
	}
	end := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(version)
	}
	n, err := strconv.Atoi(version[:end])
	if err != nil {
		return 0
	}
	return n
}

// appendHeap appends the spaces: at most two generations of three spaces.
func appendHeap(a *recording.Appender, pid string, c hsperf.Snapshot) {
	for g := range 2 {
		generation := c.Texts[fmt.Sprintf("sun.gc.generation.%d.name", g)]
		for s := range 3 {
			prefix := fmt.Sprintf("sun.gc.generation.%d.space.%d.", g, s)
			for _, kind := range [][2]string{{"used", "used"}, {"capacity", "capacity"}, {"maxCapacity", "max"}} {
				if n, ok := c.Longs[prefix+kind[0]]; ok && n >= 0 {
					a.Gauge(metric.JVMSpace, float64(n), pid, role(generation, g), c.Texts[prefix+"name"], kind[1])
				}
			}
		}
	}
	for _, kind := range []string{"used", "capacity"} {
		if n, ok := c.Longs["sun.gc.metaspace."+kind]; ok && n >= 0 {
			a.Gauge(metric.JVMMetaspace, float64(n), pid, kind)
		}
	}
}

// role returns a generation's name, the same for all collectors: young, old, or heap if the heap is not divided.
func role(name string, n int) string {
	switch {
	case name == "Heap":
		return "heap" // Shenandoah
	case n == 0:
		return "young"
	}
	return "old" // Z without generations, too
}
