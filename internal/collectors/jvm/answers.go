package jvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/find"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/jvm"
	"github.com/perfdoctor/perfdoctor/internal/jvm/jcmd"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const (
	// maxThreads bounds the threads with a series of their own; the busy ones are among the first.
	maxThreads = 2000
	// maxPools bounds the pools: a program whose thread names differ in more than numbers has no pools.
	maxPools = 300
	// maxWaits bounds the locks and sites that threads wait at.
	maxWaits = 200
)

func fromInfo() []metric.Metric {
	return []metric.Metric{
		metric.JVMCPUs, metric.JVMLimit, metric.JVMMemoryLimit, metric.JVMCode, metric.JVMCodeFull, metric.JVMAgent,
		metric.JVMOperations,
	}
}

func fromDump() []metric.Metric {
	return []metric.Metric{
		metric.JVMThread, metric.JVMPools, metric.JVMPoolAllocated, metric.JVMStates, metric.JVMMonitorWaiters,
		metric.JVMDeadlock,
		metric.JVMDumpSeconds,
	}
}

func answered() []metric.Metric {
	return slices.Concat(fromInfo(), fromDump(), fromHistogram(), []metric.Metric{metric.JVMFlag})
}

// answerSource asks the target's JVMs after the window, so that the cost of the answers is not part of what was
// measured.
type answerSource struct {
	proc   string
	window time.Duration
	list   []*machine
}

func openAnswers(ctx context.Context, env collect.Env, look *find.Look) (collect.Source, error) {
	list, _, err := machines(ctx, env, look) // the other collector says what is beyond the bound
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		m.begin()
	}
	return &answerSource{proc: env.Host.Proc, window: env.Duration, list: list}, nil
}

// Close closes the counters' files.
func (s *answerSource) Close() error { return (&counterSource{list: s.list}).Close() }

// Sample asks each JVM.
func (s *answerSource) Sample(ctx context.Context, a *recording.Appender) error {
	if len(s.list) == 0 {
		a.None(answered()...)
	}
	for _, m := range s.list {
		if r := m.Attachable(); r != nil {
			missing(a, answered(), r)
			continue
		}
		m.appendInfo(ctx, a, s.window)
		m.appendFlags(ctx, a)
		m.appendDump(ctx, a, s.proc)
		m.appendClasses(ctx, a)
	}
	return nil
}

// parsed reads a JVM's answer to a command.
func parsed[T any](pid, command, answer string, parse func(string) (T, error)) (T, error) {
	result, err := firewall.Parse("the answer", func() (T, error) { return parse(answer) })
	if err != nil {
		return result, fmt.Errorf("pid %s: %s: %w", pid, command, err)
	}
	return result, nil
}

func (m *machine) appendInfo(ctx context.Context, a *recording.Appender, window time.Duration) {
	text, err := m.Jcmd(ctx, "VM.info")
	if err != nil {
		missing(a, fromInfo(), err)
		return
	}
	info, err := parsed(m.pid, "VM.info", text, jcmd.ParseInfo)
	if err != nil {
		missing(a, fromInfo(), err)
		return
	}
	a.None(metric.JVMLimit, metric.JVMMemoryLimit, metric.JVMAgent)
	appendOperations(a, m.pid, info, window)
	from := "detected"
	if m.Options.Flags["ActiveProcessorCount"].Value != "" || info.FromFlag {
		from = "ActiveProcessorCount"
	}
	a.Gauge(metric.JVMCPUs, float64(info.Active), m.pid, from)
	if info.Quota > 0 {
		a.Gauge(metric.JVMLimit, info.Quota, m.pid)
	}
	if info.Memory > 0 {
		a.Gauge(metric.JVMMemoryLimit, float64(info.Memory), m.pid)
	}
	m.appendCode(a, info.Code)
	for _, agent := range m.agents(info) {
		a.Info(metric.JVMAgent, m.pid, agent[0], agent[1])
	}
}

func appendOperations(a *recording.Appender, pid string, info jcmd.Info, window time.Duration) {
	a.None(metric.JVMOperations)
	counts := map[jcmd.Operation]int{}
	for _, o := range info.Operations {
		if o.At >= info.Uptime-window.Seconds() {
			counts[jcmd.Operation{Name: o.Name, Cause: o.Cause}]++
		}
	}
	for o, n := range counts {
		a.Gauge(metric.JVMOperations, float64(n), pid, o.Name, o.Cause)
	}
}

func (m *machine) appendCode(a *recording.Appender, c jcmd.CodeCache) {
	for _, h := range c.Heaps {
		a.Gauge(metric.JVMCode, float64(h.Used), m.pid, h.Name, "used")
		a.Gauge(metric.JVMCode, float64(h.Max), m.pid, h.Name, "max_used")
		a.Gauge(metric.JVMCode, float64(h.Size), m.pid, h.Name, "size")
	}
	state := "disabled"
	if c.Enabled {
		state = "enabled"
	}
	a.Gauge(metric.JVMCodeFull, float64(c.Full), m.pid, state)
}

// agents returns the name and kind of everything that watches the JVM, from the JVM's own list or its options, and
// from what is mapped. It leaves out what perfdoctor loads.
func (m *machine) agents(info jcmd.Info) [][2]string {
	list := info.Agents
	if !info.AgentsKnown {
		list = jcmd.AgentsOf(info.Args)
	}
	var out [][2]string
	add := func(name, kind string) {
		if name != "" && !slices.ContainsFunc(out, func(x [2]string) bool { return x[0] == name }) {
			out = append(out, [2]string{name, kind})
		}
	}
	mapped := slices.DeleteFunc(slices.Clone(m.Agents), func(x jvm.Agent) bool { return x.Own })
	for _, agent := range list {
		if agent.Java {
			add(path.Base(agent.Name), "java")
			continue
		}
		if !m.own(agent) && !slices.ContainsFunc(mapped, func(x jvm.Agent) bool { return sameLibrary(x.Path, agent) }) {
			add(agent.Name, "library")
		}
	}
	for _, agent := range mapped {
		switch {
		case strings.HasPrefix(path.Base(agent.Path), "libinstrument"): // the JDK's, for the jars above
		case agent.Profiler:
			add(agent.Name, "profiler")
		default:
			add(agent.Name, "library")
		}
	}
	return out
}

// own reports whether an agent is one of perfdoctor's libraries, by what was mapped when the JVM was opened and by
// name: the profiler may have been loaded since, and the JVM lists it by name, without a path.
func (m *machine) own(a jcmd.Agent) bool {
	return jvm.IsOwnFile(path.Base(a.Name)) || jvm.IsOwnFile(path.Base(a.Path)) ||
		slices.ContainsFunc(m.Agents, func(x jvm.Agent) bool { return x.Own && x.Path == a.Path })
}

func sameLibrary(mapped string, a jcmd.Agent) bool {
	return mapped == a.Path || path.Base(mapped) == "lib"+a.Name+".so" || path.Base(mapped) == a.Name
}

// readFlags are the flags that the checks read, besides those that choose the garbage collector.
var readFlags = []string{
	"ActiveProcessorCount", "CICompilerCount", "ConcGCThreads", "DisableExplicitGC", "ExplicitGCInvokesConcurrent",
	"InitialHeapSize", "MaxDirectMemorySize", "MaxHeapSize", "MaxRAMPercentage", "ParallelGCThreads",
	"ReservedCodeCacheSize",
	"UseContainerSupport", "UseDynamicNumberOfGCThreads", "UseSecondarySupersTable",
}

var collectorFlag = regexp.MustCompile(`^Use(Serial|Parallel|G1|Z|Shenandoah|ConcMarkSweep|Epsilon)GC$`)

func (m *machine) appendFlags(ctx context.Context, a *recording.Appender) {
	text, err := m.Jcmd(ctx, "VM.flags -all")
	var flags map[string]jcmd.Flag
	if err == nil {
		flags, err = parsed(m.pid, "VM.flags", text, jcmd.ParseFlags)
	}
	if err != nil {
		missing(a, []metric.Metric{metric.JVMFlag}, err)
		return
	}
	for name, f := range flags {
		if slices.Contains(readFlags, name) || collectorFlag.MatchString(name) && f.Value == "true" {
			a.Info(metric.JVMFlag, m.pid, name, f.Value, f.Origin)
		}
	}
}

func (m *machine) appendDump(ctx context.Context, a *recording.Appender, proc string) {
	before, known := m.stopped()
	text, err := m.Jcmd(ctx, "Thread.print -e") // not -l: that walks the heap with all threads stopped
	after, _ := m.stopped()
	var dump jcmd.Dump
	if err == nil {
		dump, err = parsed(m.pid, "Thread.print", text, jcmd.ParseThreads)
	}
	if err != nil {
		missing(a, fromDump(), err)
		return
	}
	if known {
		a.Gauge(metric.JVMDumpSeconds, max(0, after-before), m.pid)
	} else {
		a.Missing(metric.JVMDumpSeconds, recording.StatusUnsupported, "the JVM has no counters that would tell", "")
	}
	a.None(metric.JVMMonitorWaiters, metric.JVMDeadlock, metric.JVMPools, metric.JVMPoolAllocated, metric.JVMThread)
	m.appendThreads(a, dump, proc)
	m.appendPools(a, dump)
	m.appendWaits(a, dump)
	m.appendDeadlocks(a, dump)
}

// stopped returns the seconds that the JVM's threads have been stopped so far.
func (m *machine) stopped() (float64, bool) {
	c, err := m.read()
	if err != nil {
		return 0, false
	}
	v, ok := c.Seconds("sun.rt.safepointTime")
	return v, ok
}

func (m *machine) appendThreads(a *recording.Appender, dump jcmd.Dump, proc string) {
	ids, err := m.hostIDs(proc)
	if err != nil {
		a.Missing(metric.JVMThread, recording.StatusFailed, fmt.Sprintf("the threads of pid %s: %v", m.pid, err), "")
		return
	}
	list := slices.Clone(dump.Threads)
	slices.SortStableFunc(list, func(x, y jcmd.Thread) int { return cmp.Compare(y.CPU, x.CPU) })
	a.Lost(len(list)-maxThreads, fmt.Sprintf("names of threads beyond the %d with the most CPU time", maxThreads))
	for _, t := range list[:min(len(list), maxThreads)] {
		if id := ids(t.ID); id > 0 {
			a.Info(metric.JVMThread, m.pid, strconv.Itoa(id), t.Name, pool(t.Name))
		}
	}
}

// hostIDs returns a function that maps the target's thread ids to perfdoctor's, 0 for a thread that has ended. A
// target in a pid namespace of its own has other ids; the last number of NSpid in /proc/PID/task/TID/status is its
// own id (fs/proc/array.c).
func (m *machine) hostIDs(proc string) (func(int) int, error) {
	if !m.OtherPID {
		return func(id int) int { return id }, nil
	}
	dir := path.Join(proc, m.pid, "task")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	ids := make(map[int]int, len(entries))
	for _, e := range entries {
		text, err := os.ReadFile(path.Join(dir, e.Name(), "status"))
		if err != nil {
			continue // it ended meanwhile
		}
		host, err1 := strconv.Atoi(e.Name())
		inner, err2 := innerID(string(text))
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("%s/%s/status: %w", dir, e.Name(), err)
		}
		ids[inner] = host
	}
	return func(id int) int { return ids[id] }, nil
}

func innerID(status string) (int, error) {
	_, rest, ok := strings.Cut(status, "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	words := strings.Fields(line)
	if !ok || len(words) == 0 {
		return 0, errors.New("no line NSpid (before Linux 4.1)")
	}
	return strconv.Atoi(words[len(words)-1])
}

var numbers = regexp.MustCompile(`[0-9]+`)

// pool returns the part of a thread's name that all threads of its pool share: "http-nio-8080-exec-7" belongs to
// http-nio-*-exec-*.
func pool(name string) string { return numbers.ReplaceAllString(name, "*") }

func (m *machine) appendPools(a *recording.Appender, dump jcmd.Dump) {
	threads, bytes, states := map[string]int{}, map[string]int64{}, map[string]int{}
	for _, t := range dump.Threads {
		p := pool(t.Name)
		threads[p]++
		bytes[p] += max(0, t.Allocated)
		if t.State != "" {
			states[t.State]++
		}
	}
	names := largest(threads, maxPools)
	a.Lost(len(threads)-len(names), fmt.Sprintf("thread pools beyond the %d largest", maxPools))
	for _, p := range names {
		a.Gauge(metric.JVMPools, float64(threads[p]), m.pid, p)
		if bytes[p] > 0 {
			a.Gauge(metric.JVMPoolAllocated, float64(bytes[p]), m.pid, p)
		}
	}
	for s, n := range states {
		a.Gauge(metric.JVMStates, float64(n), m.pid, s)
	}
}

// largest returns the n keys with the greatest counts.
func largest[K cmp.Ordered](counts map[K]int, n int) []K {
	keys := make([]K, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y K) int { return cmp.Or(cmp.Compare(counts[y], counts[x]), cmp.Compare(x, y)) })
	return keys[:min(len(keys), n)]
}

// appendWaits appends who waits for which lock, and where its holder is. Threads in Object.wait wait for a
// notification, not for a lock, and parked threads wait for a lock only if their blocker is one.
func (m *machine) appendWaits(a *recording.Appender, dump jcmd.Dump) {
	type wait struct{ lock, class, at string }
	waits := map[wait]int{}
	key := func(w wait) string { return w.lock + "\x00" + w.class + "\x00" + w.at }
	byKey, counts := map[string]wait{}, map[string]int{}
	for _, t := range dump.Threads {
		for _, l := range t.Locks {
			if l.Use == jcmd.Entering || l.Use == jcmd.Reentering || l.Use == jcmd.Parking && isLock(l.Class) {
				w := wait{l.Address, l.Class, site(t, l.Frame)}
				waits[w]++
				byKey[key(w)], counts[key(w)] = w, waits[w]
				break // it waits for one lock at a time
			}
		}
	}
	names := largest(counts, maxWaits)
	a.Lost(len(counts)-len(names), fmt.Sprintf("locks and places where threads wait, beyond %d", maxWaits))
	for _, k := range names {
		w := byKey[k]
		holder, at, in := holderOf(dump, w.lock)
		a.Gauge(metric.JVMMonitorWaiters, float64(counts[k]), m.pid, w.lock, w.class, holder, at, in, w.at)
	}
}

// isLock reports whether a class is an inner class of java.util.concurrent's locks, such as
// ReentrantLock$NonfairSync, and not of its queues and conditions.
func isLock(class string) bool { return strings.HasSuffix(class, "Sync") }

func site(t jcmd.Thread, frame int) string {
	if frame < len(t.Frames) {
		return t.Frames[frame].String()
	}
	return ""
}

// holderOf returns the thread that holds a monitor, where it took it, and the call it is in. A thread in Object.wait
// has released the monitor, although the dump still shows it as locked by the thread.
func holderOf(dump jcmd.Dump, lock string) (holder, at, in string) {
	for _, t := range dump.Threads {
		i := slices.IndexFunc(t.Locks, func(l jcmd.Lock) bool { return l.Address == lock })
		if i < 0 || t.Locks[i].Use != jcmd.Held {
			continue // the innermost use decides
		}
		return t.Name, site(t, t.Locks[i].Frame), site(t, 0)
	}
	return "", "", ""
}

func (m *machine) appendDeadlocks(a *recording.Appender, dump jcmd.Dump) {
	for n, d := range dump.Deadlocks {
		for _, w := range d.Waits {
			at := ""
			for _, t := range dump.Threads {
				if t.Name == w.Thread {
					at = site(t, 0)
				}
			}
			a.Info(metric.JVMDeadlock, m.pid, strconv.Itoa(n+1), w.Thread, w.Class, w.Holder, at)
		}
	}
}
