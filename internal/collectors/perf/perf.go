// Package perf counts hardware and software events with perf_event_open(2): of the target's threads, or, when the
// whole host is the target, of all its CPUs. It does not count both at once, because they would share the CPU's few
// counters.
//
// An event that this machine or user cannot count has no series but says why in perf_events_unavailable_info. What is
// counted at all depends on what it costs the target: see groupsFor and countsCycles.
package perf

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/kernel/perfevent"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

const (
	// busySwitches is the target's rate of context switches from which on only the hardware's core events are counted.
	// A switch of a counted thread costs it 2.1 µs for the software events alone (package perfevent), so this rate
	// costs 2 % of one CPU.
	busySwitches = 10_000
	// manyThreads is the number of threads from which on fewer groups are counted, too: each event of each thread is
	// a descriptor, 18 in all.
	manyThreads = 200
	// maxProcesses bounds the processes counted at one time: opening one takes 1 ms. A build starts thousands.
	maxProcesses = 100
	// cpuShare is the share of one CPU's time that samples may take: 500 threads take 0.1 % at one sample a second.
	cpuShare = 0.015
	// rateWindow is how long the rate of context switches is looked at before anything is opened; other collectors
	// open meanwhile.
	rateWindow = 20 * time.Millisecond
)

// Collectors lists this package's collectors.
func Collectors() []collect.Collector {
	return []collect.Collector{{
		Name: "perf-events",
		Doc: "Cycles, instructions, cache and branch misses of the target's threads or of all CPUs, where the CPU's " +
			"counters " +
			"can be had.",
		Overhead: "1 µs a thread and group a sample (500 threads: 1 ms), 1 ms to open a process; the target pays " +
			"2 µs a " +
			"context switch of its own, and above " + strconv.Itoa(busySwitches) +
			" a second only hardware events are counted; of thousands of threads samples are left out to stay " +
			"below 1.5 % of a CPU",
		Share:    cpuShare,
		Provides: []metric.Metric{metric.PerfEvents, metric.PerfRunning, metric.PerfUnavailable},
		Open:     open,
	}}
}

// OfGroup returns a collector that counts cycles and instructions of the target's control group, for observing many
// targets as long as they run: it follows no processes, and has the same series as the collector of a diagnosis.
func OfGroup() collect.Collector {
	return collect.Collector{
		Name: "perf-events-of-group",
		Doc:  "Cycles and instructions of the target's control group (v2), where the CPU's counters can be had.",
		Overhead: "two descriptors a CPU; each switch from one group to another costs its CPU 1 to 2 µs, whichever " +
			"groups they are " +
			"(kernel/events/core.c, perf_cgroup_switch)",
		Provides: []metric.Metric{metric.PerfEvents, metric.PerfRunning, metric.PerfUnavailable},
		Open:     openGroup,
	}
}

func openGroup(_ context.Context, env collect.Env) (collect.Source, error) {
	levels := env.Target.Cgroups
	if len(levels) == 0 {
		return nil, collect.Unavailable(recording.StatusUnsupported, "diagnose the process itself",
			"the target's control group is not known")
	}
	if slices.ContainsFunc(levels, func(l host.CgroupLevel) bool { return l.Version == 1 }) {
		return nil, collect.Unavailable(recording.StatusUnsupported,
			"boot with systemd.unified_cgroup_hierarchy=1, or diagnose the process itself",
			"the target's control group is of v1, where counters need a hierarchy of their own")
	}
	cpus, err := env.Host.OnlineCPUs()
	if err != nil {
		return nil, err
	}
	set, err := perfevent.OpenCgroup(levels[0].Dir, cpus)
	if err != nil {
		return nil, fmt.Errorf("count what runs in %s: %w", levels[0].Dir, err)
	}
	s := newSource(metric.ScopeTarget)
	s.sets[0] = set
	return s, nil
}

func open(ctx context.Context, env collect.Env) (collect.Source, error) {
	if env.Target.Kind == host.KindHost {
		return openHost(env.Host)
	}
	if env.Host.Proc != "/proc" {
		return nil, collect.Unavailable(recording.StatusUnsupported, "run perfdoctor in the host's pid namespace",
			"pids in %s may not be those of perf_event_open, which knows perfdoctor's own pid namespace", env.Host.Proc)
	}
	if err := countsCycles(); err != nil {
		return nil, err
	}
	s := newSource(metric.ScopeTarget)
	s.env = env
	tids, all := targetThreads(ctx, env)
	rate, err := switchRate(ctx, tids)
	if err != nil {
		return nil, err
	}
	s.groups, s.leftOut = groupsFor(rate*float64(all)/float64(max(1, len(tids))), all)
	if err := s.openMembers(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// countsCycles returns an error if this machine, or the user, cannot count the cycles of a process, as in most
// virtual machines. Only the kernel's own events are left then. /proc has them as well, and counting them costs the
// target 2 µs a switch.
func countsCycles() error {
	set, err := perfevent.OpenProcess(os.Getpid(), perfevent.Core)
	if err != nil {
		return nil // for want of descriptors: the target's own set will say so
	}
	defer set.Close()
	counts, _ := set.Read(nil) // what cannot be read has its reason
	why := map[string]unavailable{}
	addReasons(why, counts)
	cycles, not := why[string(perfevent.Cycles)]
	if !not {
		return nil
	}
	status, remedy := cycles.status()
	return collect.Unavailable(status, remedy, "%s: %s", perfevent.Cycles, cycles.reason)
}

func openHost(h *host.Host) (collect.Source, error) {
	cpus, err := h.OnlineCPUs()
	if err != nil {
		return nil, err
	}
	set, err := perfevent.OpenHost(cpus)
	if err != nil {
		return nil, err
	}
	s := newSource(metric.ScopeHost)
	s.sets[0] = set
	return s, nil
}

// groupsFor chooses what to count, nil for all, and says why the rest is not.
func groupsFor(switches float64, threads int) (groups []perfevent.Group, leftOut string) {
	switch {
	case switches > busySwitches:
		return []perfevent.Group{perfevent.Core},
			fmt.Sprintf("left out to spare the target: its threads are switched %.0f times "+
				"a second, and each event makes a switch dearer (bound: %d)", switches, busySwitches)
	case threads > manyThreads:
		return []perfevent.Group{perfevent.Core, perfevent.Software},
			fmt.Sprintf("left out to spare descriptors: the target has %d "+
				"threads (bound: %d)", threads, manyThreads)
	}
	return nil, ""
}

// targetThreads returns the task directories of the target's threads, at most manyThreads of them, and how many there
// are.
func targetThreads(ctx context.Context, env collect.Env) (dirs []string, all int) {
	list, err := env.Host.LateMembers(ctx, env.Target)
	if err != nil {
		return nil, 0 // the target has ended: opening it says so
	}
	for _, p := range list {
		all += p.Threads
		if len(dirs) >= manyThreads {
			continue
		}
		found, err := filepath.Glob(fmt.Sprintf("%s/%d/task/*", env.Host.Proc, p.PID))
		if err == nil { // only a malformed pattern, which this is not
			dirs = append(dirs, found[:min(len(found), manyThreads-len(dirs))]...)
		}
	}
	return dirs, all
}

// switchRate returns the context switches per second of threads.
func switchRate(ctx context.Context, dirs []string) (float64, error) {
	before, began := map[string]uint64{}, time.Now()
	for _, dir := range dirs {
		if n, ok := taskSwitches(dir); ok {
			before[dir] = n
		}
	}
	if err := clock.Sleep(ctx, rateWindow); err != nil {
		return 0, err
	}
	elapsed, switches := time.Since(began), uint64(0)
	for dir, then := range before {
		if now, ok := taskSwitches(dir); ok && now > then {
			switches += now - then
		}
	}
	return float64(switches) / elapsed.Seconds(), nil
}

// taskSwitches returns the context switches of a thread; ok is false if it has ended or hides its numbers: it then
// does not count.
func taskSwitches(dir string) (n uint64, ok bool) {
	b, err := os.ReadFile(dir + "/status")
	if err != nil {
		return 0, false
	}
	st, err := host.ParseStatus(b)
	return st.VoluntarySwitch + st.InvoluntarySwitch, err == nil
}

// unavailable is why an event has no series.
type unavailable struct {
	reason string
	denied bool
}

// status says what kind of reason it is, and what makes the event countable.
func (u unavailable) status() (st recording.Status, remedy string) {
	if u.denied {
		return recording.StatusDenied, "run perfdoctor as root, or grant CAP_PERFMON and CAP_SYS_PTRACE"
	}
	return recording.StatusUnsupported,
		"run where the CPU's counters can be read: the host itself, or a guest with a virtual PMU"
}

// targetEvents lists all events that can be counted for threads.
func targetEvents() []perfevent.Event {
	return []perfevent.Event{
		perfevent.Cycles, perfevent.Instructions, perfevent.Branches, perfevent.BranchMisses, perfevent.CacheReferences,
		perfevent.CacheMisses, perfevent.StalledCyclesFront, perfevent.StalledCyclesBack, perfevent.DTLBLoadMisses,
		perfevent.TaskClock, perfevent.ContextSwitches, perfevent.CPUMigrations, perfevent.MinorFaults,
		perfevent.MajorFaults,
	}
}

// total is what was counted of one event.
type total struct {
	value            float64
	enabled, running uint64 // ns
}

// source counts one scope. Its maps are by pid (0 for the CPUs) and by event.
type source struct {
	scope   string
	env     collect.Env // if processes are followed, else empty
	groups  []perfevent.Group
	leftOut string // why not all groups are counted
	sets    map[int]*perfevent.Set
	fresh   map[int]bool // sets opened since the last sample
	opened  bool         // the processes that were there at first are
	ended   map[perfevent.Event]total
	said    map[string]bool // what was said to be unavailable
	counts  []perfevent.Count
	beyond  map[int]bool // processes past maxProcesses
	trouble error        // why a process could not be opened or read
	samples int
}

func newSource(scope string) *source {
	return &source{
		scope: scope, sets: map[int]*perfevent.Set{}, fresh: map[int]bool{}, ended: map[perfevent.Event]total{},
		said: map[string]bool{}, beyond: map[int]bool{},
	}
}

// Close closes all counters.
func (s *source) Close() error {
	for _, set := range s.sets {
		set.Close()
	}
	s.sets = nil
	return nil
}

// openMembers opens the processes that have joined the target and retires those that have ended. Threads are
// inherited.
func (s *source) openMembers(ctx context.Context) error {
	list, err := s.env.Host.LateMembers(ctx, s.env.Target)
	switch {
	case errors.Is(err, host.ErrPermission):
		return collect.Unavailable(recording.StatusDenied, "run perfdoctor as root", "%v", err)
	case ended(err): // what was counted until then is still there to be read
	case err != nil:
		return fmt.Errorf("list the target's processes: %w", err)
	}
	live := map[int]bool{}
	for _, p := range list {
		live[p.PID] = true
	}
	for pid := range s.sets {
		if !live[pid] {
			s.retire(pid)
		}
	}
	for _, p := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.openProcess(p.PID)
	}
	s.opened = true
	return nil
}

func ended(err error) bool {
	return errors.Is(err, host.ErrNoSuchProcess) || errors.Is(err, host.ErrNoSuchCgroup) ||
		errors.Is(err, host.ErrNoSuchContainer)
}

// openProcess opens one process unless it is counted already, maybe by the set of its parent.
func (s *source) openProcess(pid int) {
	switch {
	case s.sets[pid] != nil || s.beyond[pid]:
		return
	case s.opened && s.inherits(): // it was forked by a process that is counted with its children
		return
	case len(s.sets) >= maxProcesses:
		s.beyond[pid] = true
		return
	}
	set, err := perfevent.OpenProcess(pid, s.groups...)
	if errors.Is(err, os.ErrNotExist) {
		return // ended meanwhile
	}
	if err != nil {
		s.trouble = err
		return
	}
	s.sets[pid], s.fresh[pid] = set, true
}

func (s *source) inherits() bool {
	for _, set := range s.sets {
		return set.Children()
	}
	return false
}

// retire keeps the counts of a process that has ended and closes its descriptors.
func (s *source) retire(pid int) {
	set := s.sets[pid]
	s.counts, _ = set.Read(s.counts[:0]) // a count that can no longer be read stays at its last value
	addCounts(s.ended, s.counts)
	set.Close()
	delete(s.sets, pid)
}

// Sample appends the totals since the counters were opened.
func (s *source) Sample(ctx context.Context, a *recording.Appender) error {
	if s.env.Host != nil {
		if err := s.openMembers(ctx); err != nil {
			return err
		}
	}
	s.samples++
	totals := maps.Clone(s.ended)
	why := map[string]unavailable{}
	for pid, set := range s.sets {
		if s.fresh[pid] {
			_ = set.Refresh() // threads born while it was opened; the next listing shows if the process has ended
			delete(s.fresh, pid)
		}
		var err error
		if s.counts, err = set.Read(s.counts[:0]); err != nil {
			s.trouble = err
		}
		addCounts(totals, s.counts)
		addReasons(why, s.counts)
		s.reportSet(a, set)
	}
	a.Lost(len(s.beyond), fmt.Sprintf("processes of the target not counted, beyond %d", maxProcesses))
	s.appendTotals(a, totals, why)
	s.addLeftOut(why, totals)
	s.appendReasons(a, why)
	return nil
}

func (s *source) reportSet(a *recording.Appender, set *perfevent.Set) {
	what := "CPUs"
	if s.env.Host != nil {
		what = "threads"
	}
	a.Lost(set.Truncated(), what+" not counted for want of descriptors (raise RLIMIT_NOFILE)")
	a.Lost(set.Unsure(), what+" born while counting began, of which some may not be counted")
	if n, _ := set.Skipped(); set.Targets() > 0 {
		a.Lost(n, what+" that the kernel refused to count")
	}
}

// addCounts adds up one set. An event that is in several groups counts in the first that can be opened: the same one
// in every set and sample, because what can be opened depends on the machine and the user.
func addCounts(totals map[perfevent.Event]total, counts []perfevent.Count) {
	done := map[perfevent.Event]bool{}
	for _, c := range counts {
		if done[c.Event] || !opened(c) {
			continue
		}
		done[c.Event] = true
		t := totals[c.Event]
		totals[c.Event] = total{t.value + c.Value, t.enabled + c.Enabled, t.running + c.Running}
	}
}

// opened reports whether the event could be opened, even if no thread has run since. If it could not, perfevent
// begins the reason with the system call.
func opened(c perfevent.Count) bool {
	return c.Status == perfevent.Counted || c.Status == perfevent.NotCounted && !strings.HasPrefix(c.Reason,
		"perf_event_open")
}

// addReasons notes what the machine or the user cannot count.
func addReasons(why map[string]unavailable, counts []perfevent.Count) {
	counted := map[perfevent.Event]bool{}
	for _, c := range counts {
		event := string(c.Event)
		switch {
		case opened(c):
			counted[c.Event] = true
			delete(why, event)
			if c.UserOnly {
				why[event+":k"] = unavailable{reason: "only user mode is counted: run as root, grant CAP_PERFMON " +
					"or set " +
					"kernel.perf_event_paranoid below 2", denied: true}
			}
		case !counted[c.Event]:
			why[event] = unavailable{c.Reason, c.Status == perfevent.Denied}
		}
	}
}

// appendTotals appends what was counted. An event that should have had time on a counter but had none is unknown, not
// zero; an event of threads that did not run is zero.
func (s *source) appendTotals(a *recording.Appender, totals map[perfevent.Event]total, why map[string]unavailable) {
	counted := false
	for event, t := range totals {
		if t.enabled > 0 && t.running == 0 {
			if s.samples > 1 { // at the first it may not have had its turn yet
				why[string(event)] = unavailable{reason: "it had no time on a counter: others hold them (another " +
					"perf, the NMI watchdog)"}
			}
			continue
		}
		counted = true
		a.Counter(metric.PerfEvents, t.value, s.scope, string(event))
		if t.enabled > 0 {
			a.Gauge(metric.PerfRunning, float64(t.running)/float64(t.enabled), s.scope, string(event))
		}
	}
	if counted {
		return
	}
	for _, m := range []metric.Metric{metric.PerfEvents, metric.PerfRunning} {
		s.missing(a, m, why)
	}
}

// missing says why nothing was counted. A refusal stands for all events, because it can be fixed; without one, the
// reason of some event does.
func (s *source) missing(a *recording.Appender, m metric.Metric, why map[string]unavailable) {
	if s.trouble != nil {
		a.Missing(m, recording.StatusFailed, s.trouble.Error(), "")
		return
	}
	events := slices.Sorted(maps.Keys(why))
	if len(events) == 0 { // the target has ended, which the run notices by itself
		return
	}
	event := events[0]
	if _, ok := why[string(perfevent.Cycles)]; ok { // the one a reader knows
		event = string(perfevent.Cycles)
	}
	if i := slices.IndexFunc(events, func(e string) bool { return why[e].denied }); i >= 0 {
		event = events[i]
	}
	status, remedy := why[event].status()
	a.Missing(m, status, event+": "+why[event].reason, remedy)
}

// addLeftOut notes the events that were not even tried.
func (s *source) addLeftOut(why map[string]unavailable, totals map[perfevent.Event]total) {
	if s.leftOut == "" || len(s.sets) == 0 {
		return
	}
	for _, event := range targetEvents() {
		_, counted := totals[event]
		_, known := why[string(event)]
		if !counted && !known {
			why[string(event)] = unavailable{reason: s.leftOut}
		}
	}
}

// appendReasons appends each reason once, because it does not change and is long.
func (s *source) appendReasons(a *recording.Appender, why map[string]unavailable) {
	a.None(metric.PerfUnavailable)
	for event, u := range why {
		if key := event + " " + u.reason; !s.said[key] {
			s.said[key] = true
			a.Info(metric.PerfUnavailable, s.scope, event, u.reason)
		}
	}
}
