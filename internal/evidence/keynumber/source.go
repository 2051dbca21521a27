package keynumber

import (
	"math"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/evidence/usage"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// A Source is a recording that numbers are read from.
type Source struct {
	rec  *recording.Recording
	told Told

	slowConnect, slowWait float64 // bounds in seconds, from [Source.SlowerThan]; 0 if unknown
}

// Told is what the caller knows about the load that is not in the recording: what a load generator printed. 0 means
// unknown.
type Told struct {
	Requests float64 // per second
	P99      float64 // seconds that 99 % of the requests did not exceed
}

// NewSource returns the source of a recording and what else is known about its load.
func NewSource(rec *recording.Recording, told Told) *Source { return &Source{rec: rec, told: told} }

const notRecorded = "it was not recorded"

// cpu returns the CPU time of the target: of its processes, its cgroup, or the host's CPUs.
func (s *Source) cpu() curve {
	t := s.rec.Meta.Target
	if t.Kind == "host" {
		return s.busy()
	}
	if t.Kind == "cgroup" || t.Kind == "container" {
		if c := counters(s.rec, metric.CgroupCPU, "level", "0"); len(c.at) > 1 {
			return c
		}
	}
	var c curve
	if tree, ok := usage.Of(s.rec, usage.MemberTarget); ok { // with those of its processes that came and went
		for _, p := range tree.Points {
			c.at, c.sum = append(c.at, p.At.Seconds()), append(c.sum, p.Value)
		}
	}
	return c
}

// busy returns the CPU time of all CPUs without idle, iowait and steal time. It is computed as what idle time leaves
// over: idle time is measured from one context switch to the next, while busy time is counted by ticks, which miss
// work that a timer begins just after a tick. A server and its clients at 1.1 CPUs were 0.9 by ticks in one run and
// 1.2 in the next.
func (s *Source) busy() curve {
	var list []recording.CounterSeries
	cpus := map[string]bool{}
	for _, c := range s.rec.Counter(metric.CPUSeconds) {
		switch c.Label("mode") {
		case "idle", "iowait", "steal":
			cpus[c.Label("cpu")] = true
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return curve{}
	}
	idle := sumOf(list)
	out := steady(float64(len(cpus)), idle.at)
	for i := range out.sum {
		out.sum[i] = max(out.sum[i]-idle.sum[i], 0)
	}
	return out
}

// Busy returns how many of the host's CPUs were busy on average, and how many there are; ok is false if that was not
// recorded.
func (s *Source) Busy() (busy, cpus float64, ok bool) {
	c := s.busy()
	if len(c.at) < 2 {
		return 0, 0, false
	}
	return c.perSecondTotal(), float64(len(s.rec.Counter(metric.CPUSeconds, "mode", "idle"))), true
}

// Others returns the CPUs that were busy with anything but the target; ok is false if that is not known, or the
// target is the host.
func (s *Source) Others() (cpus float64, ok bool) {
	busy, own := s.busy(), s.cpu()
	if s.rec.Meta.Target.Kind == "host" || len(busy.at) < 2 || len(own.at) < 2 {
		return 0, false
	}
	return max(busy.perSecondTotal()-own.perSecondTotal(), 0), true
}

// Used returns how many CPUs the target used on average; ok is false if that was not recorded.
func (s *Source) Used() (cpus float64, ok bool) {
	c := s.cpu()
	return c.perSecondTotal(), len(c.at) > 1
}

func (s *Source) cpuUsed() ([]Interval, string) { return s.cpu().perSecond(), notRecorded }

func (s *Source) ipc() ([]Interval, string) {
	scope := metric.ScopeTarget
	if s.rec.Meta.Target.Kind == "host" {
		scope = metric.ScopeHost
	}
	done := counters(s.rec, metric.PerfEvents, "scope", scope, "event", "instructions")
	cycles := counters(s.rec, metric.PerfEvents, "scope", scope, "event", "cycles")
	why := notRecorded
	for _, u := range s.rec.Info(metric.PerfUnavailable, "scope", scope, "event", "cycles") {
		why = u.Label("reason")
	}
	return done.per(cycles), why
}

// throttled returns the numbers of the cgroup level with the highest share, as the check cpu-throttled does. No limit
// means no throttling.
func (s *Source) throttled() ([]Interval, string) {
	if !s.rec.Recorded(metric.CgroupPeriods) {
		return nil, notRecorded
	}
	var worst []Interval
	highest := -1.0
	for _, p := range s.rec.Counter(metric.CgroupPeriods) {
		list := counters(s.rec, metric.CgroupThrottled, "cgroup", p.Label("cgroup"), "level", p.Label("level")).
			per(sumOf([]recording.CounterSeries{p}))
		if e, ok := Mean(list); ok && e.Mean > highest {
			worst, highest = list, e.Mean
		}
	}
	if worst == nil {
		return s.nothing()
	}
	return worst, ""
}

// nothing returns zeros for a number that was looked for and cannot exist, such as throttling without a limit.
func (s *Source) nothing() ([]Interval, string) {
	list := s.cpu().perSecond()
	for i := range list {
		list[i].Num = 0
	}
	return list, notRecorded
}

func (s *Source) cpuWait() ([]Interval, string) {
	return counters(s.rec, metric.ThreadRunDelay).per(counters(s.rec, metric.ThreadCPU)), notRecorded
}

func (s *Source) switches() ([]Interval, string) {
	return counters(s.rec, metric.ThreadSwitches).per(counters(s.rec, metric.ThreadCPU)), notRecorded
}

func (s *Source) switchesPerWork() ([]Interval, string) {
	return s.perWork(counters(s.rec, metric.ThreadSwitches))
}

// gcPauses leaves out concurrent cycles: only pauses stop the program.
func (s *Source) gcPauses() curve {
	var list []recording.CounterSeries
	for _, c := range s.rec.Counter(metric.JVMGCSeconds) {
		if c.Label("kind") != "cycle" {
			list = append(list, c)
		}
	}
	return sumOf(list)
}

func (s *Source) gcShare() ([]Interval, string) { return s.gcPauses().perSecond(), notRecorded }

func (s *Source) gcPerWork() ([]Interval, string) { return s.perWork(s.gcPauses()) }

func (s *Source) safepointShare() ([]Interval, string) {
	return counters(s.rec, metric.JVMSafepointSeconds).perSecond(), notRecorded
}

func (s *Source) safepointPerWork() ([]Interval, string) {
	return s.perWork(counters(s.rec, metric.JVMSafepointSeconds))
}

func (s *Source) retransmits() ([]Interval, string) {
	return counters(s.rec, metric.TCPRetransSegs, "netns", metric.NetNSTarget).
		per(counters(s.rec, metric.TCPOutSegs, "netns", metric.NetNSTarget)), notRecorded
}

func (s *Source) connectFailures() ([]Interval, string) {
	if len(s.rec.Counter(metric.ConnectAttempts)) == 0 {
		return nil, notRecorded
	}
	failed := s.connections(s.rec.Counter(metric.ConnectFailures, "netns", metric.NetNSTarget))
	tried := s.connections(s.rec.Counter(metric.ConnectAttempts, "netns", metric.NetNSTarget, "side", "client"))
	return failed.per(tried), notRecorded
}

// connections adds up counters of the BPF programs that follow connections, from the time those programs started:
// earlier counts cover an unknown time, and a series that begins later began at zero. It is empty if nothing counted.
func (s *Source) connections(series []recording.CounterSeries) curve {
	began := firstOf(slices.Concat(s.rec.Counter(metric.BPFRuns, "program", "set_state"),
		s.rec.Counter(metric.ConnectAttempts), series))
	if math.IsInf(began, 1) {
		return curve{}
	}
	rises := risesSince(series, began)
	for _, c := range s.rec.Counter(metric.ConnectAttempts) {
		for _, p := range c.Points {
			rises[p.At.Seconds()] += 0 // it was looked at then
		}
	}
	rises[began] += 0
	return cumulated(rises)
}

func (s *Source) majorFaults() ([]Interval, string) {
	return counters(s.rec, metric.ProcessFaults, "kind", "major").perSecond(), notRecorded
}

func (s *Source) resident() ([]Interval, string) {
	return Readings(s.rec.Gauge(metric.ProcessRSS)), notRecorded
}

// IsGuest reports whether rec was recorded in a virtual machine.
func IsGuest(rec *recording.Recording) bool {
	for _, h := range rec.Info(metric.HostInfo) {
		if v := h.Label("virtualization"); v != "" && v != "none" {
			return true
		}
	}
	return false
}
