package compare

import (
	"cmp"
	"math"
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Better is the direction in which a number should go.
type Better string

// The directions. Neither is of numbers that go with the load, such as requests per second: more of them is no merit of the program.
const (
	Less    Better = "less"
	More    Better = "more"
	Neither Better = ""
)

// A Result is what two recordings say of a number, or of the whole.
type Result string

// The results. Same means that these samples can show no difference, not that there is none.
const (
	Same     Result = "same"
	Improved Result = "better"
	Worse    Result = "worse"
	Changed  Result = "changed" // a number without a direction
	Unknown  Result = "unknown" // of one of the two it is not known
)

// A Number is one of the key numbers of a comparison.
type Number struct {
	Name   string        `json:"name"`
	Label  string        `json:"label"`
	Unit   quantity.Unit `json:"unit"`
	Better Better        `json:"better,omitempty"`
	Before *Estimate     `json:"before,omitempty"`
	After  *Estimate     `json:"after,omitempty"`
	Change *Change       `json:"change,omitempty"`
	Result Result        `json:"result"`
	Reason string        `json:"reason,omitempty"` // why it is unknown
	Series [2][]float64  `json:"-"`                // before and after, an interval each
	Floor  float64       `json:"-"`                // below it the number is as good as none, whatever its ratio to another
}

// A measure is how a number is computed, and what of it is noise.
type measure struct {
	name, label string
	unit        quantity.Unit
	better      Better
	spread      float64 // standard deviation between runs of one program, as a share of the mean: measured, docs/decisions/0012
	least       float64 // the least change worth a word, as a share of the mean before
	floor       float64 // below it on both sides a number is as good as none, whatever its ratio
	of          func(*side) ([]obs, string)
}

// between gives the spread. All shares that are measured have a bound of one but the time that threads wait, of which there are many.
func (m *measure) between() spread {
	return spread{m.spread, m.unit == quantity.Ratio && m.name != "cpu_wait"}
}

// The spreads are those of docs/decisions/0012, rounded up.
const (
	spreadOfCPU = 0.02 // CPU time for the same work: placement in memory, which CPU, neighbours of a virtual machine
	spreadOfIPC = 0.02

	// In a virtual machine the core's other thread, or its clock, may be another guest's: a fixed loop beside a server and its clients took
	// 111 to 286 µs of CPU time, and programs that do nothing but compute 12 to 28 % more in one run than in the next, without a trace
	// in steal.
	spreadOfGuestCPU = 0.12

	spreadOfLoad    = 0.03 // what a closed loop of clients gets done
	spreadOfShares  = 0.05
	spreadOfWaits   = 0.25 // what depends on who else wants the CPUs
	spreadOfLatency = 0.2  // of seconds' 99th percentiles, beside their own scatter
	spreadOfMedian  = 0.15 // of seconds' medians: a bucket of the load generator's is up to 6 % wide, and the CPU time is in it
)

// cpuSpread gives the spread of CPU time between runs on the machines of recordings.
func cpuSpread(recs ...*recording.Recording) float64 {
	for _, rec := range recs {
		for _, h := range rec.Info(metric.HostInfo) {
			if v := h.Label("virtualization"); v != "" && v != "none" {
				return spreadOfGuestCPU
			}
		}
	}
	return spreadOfCPU
}

// measures lists the key numbers, in the order of the report, with the spreads between runs on the machines of recordings.
func measures(recs ...*recording.Recording) []measure {
	return []measure{
		{"cpu_per_request", "CPU time per request", quantity.Seconds, Less, cpuSpread(recs...), 0.03, 0, (*side).cpuPerWork},
		{"ipc", "instructions per cycle", quantity.None, More, spreadOfIPC, 0.03, 0, (*side).ipc},
		{"request_p50", "request p50, second by second", quantity.Seconds, Less, spreadOfMedian, 0.25, 1e-3, (*side).requestP50},
		{"request_p99", "request p99, second by second", quantity.Seconds, Less, spreadOfLatency, 0.25, 1e-3, (*side).requestP99},
		{"throttled_share", "throttled periods of the quota", quantity.Ratio, Less, spreadOfShares, 0.1, 0.01, (*side).throttled},
		{"slow_connects", "connects over the p99 before", quantity.Ratio, Less, spreadOfWaits, 0.5, 0.02, (*side).slowConnects},
		{"slow_cpu_waits", "waits for a CPU over the p99 before", quantity.Ratio, Less, spreadOfWaits, 0.5, 0.02, (*side).slowWaits},
		{"cpu_wait", "ready without a CPU, per CPU time", quantity.Ratio, Less, spreadOfWaits, 0.25, 0.2, (*side).cpuWait},
		{"gc_share", "time in GC pauses", quantity.Ratio, Less, spreadOfShares, 0.1, 0.01, (*side).gcShare},
		{"safepoint_share", "time at safepoints", quantity.Ratio, Less, spreadOfShares, 0.1, 0.01, (*side).safepointShare},
		{"retransmitted_share", "segments sent again", quantity.Ratio, Less, spreadOfWaits, 0.25, 0.002, (*side).retransmits},
		{"connects_failed_share", "connects that failed", quantity.Ratio, Less, spreadOfWaits, 0.1, 0.001, (*side).connectFailures},
		{"major_faults", "page faults that waited for a disk", "faults/s", Less, spreadOfWaits, 0.5, 5, (*side).majorFaults},
		{"requests", "requests", "1/s", Neither, spreadOfLoad, 0.05, 1, (*side).workRate},
		{"cpu_used", "CPUs used by the target", quantity.CPUs, Neither, spreadOfLoad, 0.05, 0.02, (*side).cpuUsed},
		{"switches", "context switches per CPU second", "1/s", Neither, spreadOfWaits, 0.25, 100, (*side).switches},
		{"resident", "resident memory", quantity.Bytes, Neither, spreadOfShares, 0.2, 1 << 20, (*side).resident},
	}
}

// asked are the numbers that a reader looks for: where they are not known, the comparison says why.
var asked = []string{"cpu_per_request", "ipc", "request_p99", "throttled_share"}

// numbers compares the key numbers. Those that neither recording has are left out, unless they are asked for.
func numbers(before, after *side) []Number {
	var out []Number
	var of []measure
	tests := 0
	for _, m := range measures(before.rec, after.rec) {
		n, known := m.read(before, after)
		if !known && !slices.Contains(asked, m.name) {
			continue
		}
		out, of = append(out, n), append(of, m)
		if n.Before != nil && n.After != nil && n.Before.Mean+n.After.Mean > 0 && m.better != Neither {
			tests++
		}
	}
	for i := range out {
		switch n := &out[i]; n.Name {
		case "slow_connects":
			n.Label = tailLabel("connects", before.slowConnect)
		case "slow_cpu_waits":
			n.Label = tailLabel("waits for a CPU", before.slowWait)
		}
		if n := &out[i]; n.Before != nil && n.After != nil {
			c := difference(*n.Before, *n.After, of[i].between(), tests)
			c.Low = max(c.Low, -n.Before.Mean) // none of them can be negative
			n.Change, n.Result = &c, of[i].judge(n.Before.Mean, n.After.Mean, c)
		}
	}
	return out
}

// read gives both estimates; known is false where neither recording has the number.
func (m *measure) read(before, after *side) (n Number, known bool) {
	n = Number{Name: m.name, Label: m.label, Unit: m.unit, Better: m.better, Result: Unknown}
	reasons := [2]string{}
	for i, s := range []*side{before, after} {
		list, why := m.of(s)
		e, ok := estimate(list)
		if !ok {
			reasons[i] = cmp.Or(why, "there are too few samples of it")
			continue
		}
		n.Series[i] = values(list)
		if i == 0 {
			n.Before = &e
		} else {
			n.After = &e
		}
	}
	switch {
	case n.Before == nil && n.After == nil && reasons[0] != reasons[1]:
		n.Reason = "before, " + reasons[0] + "; after, " + reasons[1]
	case n.Before == nil && n.After == nil:
		n.Reason = reasons[0]
	case n.Before == nil:
		n.Reason = "before, " + reasons[0]
	case n.After == nil:
		n.Reason = "after, " + reasons[1]
	}
	return n, n.Before != nil || n.After != nil
}

func values(list []obs) []float64 {
	var out []float64
	for _, o := range list {
		if o.base > 0 {
			out = append(out, o.num/o.base)
		}
	}
	return out
}

func (m *measure) judge(before, after float64, c Change) Result {
	size := max(math.Abs(before), math.Abs(after))
	switch {
	case !c.certain() || size <= m.floor || math.Abs(c.Absolute) < m.least*math.Abs(before):
		return Same
	case m.better == Neither:
		return Changed
	case (c.Absolute < 0) == (m.better == Less):
		return Improved
	}
	return Worse
}

// A side is one of the two recordings, and what of it is needed often.
type side struct {
	rec      *recording.Recording
	requests float64 // per second, as the caller says; 0 if that is not known

	slowConnect, slowWait float64 // 99th percentiles before, in seconds; 0 if not known
}

const notRecorded = "it was not recorded"

// cpu is the CPU time of the target: of its processes, of its cgroup, or of the host's CPUs.
func (s *side) cpu() curve {
	t := s.rec.Meta.Target
	if t.Kind == "host" {
		return s.busy()
	}
	if t.Kind == "cgroup" || t.Kind == "container" {
		if c := counters(s.rec, metric.CgroupCPU, "level", "0"); len(c.at) > 1 {
			return c
		}
	}
	return counters(s.rec, metric.ProcessCPU, "member", "target")
}

// busy is the CPU time of all CPUs without what they idled, or what another guest of the same machine had them for. It is what idle time
// leaves over: that is measured from one switch of tasks to the next, while what a CPU was busy with is counted by ticks, and work that a
// timer begins just after a tick falls between them. A server and its clients at 1.1 CPUs were 0.9 by ticks in one run and 1.2 in the next.
func (s *side) busy() curve {
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
	idle := sumOf(list, false)
	out := steady(float64(len(cpus)), idle.at)
	for i := range out.sum {
		out.sum[i] = max(out.sum[i]-idle.sum[i], 0)
	}
	return out
}

// leastWork is the rate from which on segments stand for requests: below, what else a host sends is a part of them.
const leastWork = 50

// work is what the target did: requests, if the caller knows them or a load generator's are recorded, else the segments with data that its
// network namespace sent.
func (s *side) work() (c curve, ok bool) {
	if c = s.answered(); len(c.at) > 1 && c.total() > 0 {
		return c, true
	}
	c = counters(s.rec, metric.TCPOrigDataSent, "netns", metric.NetNSTarget)
	if len(c.at) < 2 {
		return c, false
	}
	return c, c.perSecondTotal() >= leastWork
}

func (s *side) cpuPerWork() ([]obs, string) {
	w, ok := s.work()
	if !ok {
		return nil, "how many requests there were is not known (--requests)"
	}
	return s.cpu().per(w), ""
}

func (s *side) workRate() ([]obs, string) {
	w, ok := s.work()
	if !ok {
		return nil, "how many there were is not known (--requests)"
	}
	return w.perSecond(), ""
}

func (s *side) cpuUsed() ([]obs, string) { return s.cpu().perSecond(), notRecorded }

func (s *side) ipc() ([]obs, string) {
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

// throttled is of the level whose share is the highest, as the check cpu-throttled has it. No limit means nothing throttled.
func (s *side) throttled() ([]obs, string) {
	if !s.rec.Recorded(metric.CgroupPeriods) {
		return nil, notRecorded
	}
	var worst []obs
	highest := -1.0
	for _, p := range s.rec.Counter(metric.CgroupPeriods) {
		list := counters(s.rec, metric.CgroupThrottled, "cgroup", p.Label("cgroup"), "level", p.Label("level")).
			per(sumOf([]recording.CounterSeries{p}, false))
		if e, ok := estimate(list); ok && e.Mean > highest {
			worst, highest = list, e.Mean
		}
	}
	if worst == nil {
		return s.nothing()
	}
	return worst, ""
}

// nothing is what stands for a number that was looked for and cannot be there, such as throttling without a limit.
func (s *side) nothing() ([]obs, string) {
	list := s.cpu().perSecond()
	for i := range list {
		list[i].num = 0
	}
	return list, notRecorded
}

func (s *side) cpuWait() ([]obs, string) {
	return counters(s.rec, metric.ThreadRunDelay).per(counters(s.rec, metric.ThreadCPU)), notRecorded
}

func (s *side) switches() ([]obs, string) {
	return counters(s.rec, metric.ThreadSwitches).per(counters(s.rec, metric.ThreadCPU)), notRecorded
}

// gcShare leaves out what runs beside the program: only pauses stop it.
func (s *side) gcShare() ([]obs, string) {
	var list []recording.CounterSeries
	for _, c := range s.rec.Counter(metric.JVMGCSeconds) {
		if c.Label("kind") != "cycle" {
			list = append(list, c)
		}
	}
	return sumOf(list, false).perSecond(), notRecorded
}

func (s *side) safepointShare() ([]obs, string) {
	return counters(s.rec, metric.JVMSafepointSeconds).perSecond(), notRecorded
}

func (s *side) retransmits() ([]obs, string) {
	return counters(s.rec, metric.TCPRetransSegs, "netns", metric.NetNSTarget).
		per(counters(s.rec, metric.TCPOutSegs, "netns", metric.NetNSTarget)), notRecorded
}

func (s *side) connectFailures() ([]obs, string) {
	if len(s.rec.Counter(metric.ConnectAttempts)) == 0 {
		return nil, notRecorded
	}
	failed := sumOf(s.rec.Counter(metric.ConnectFailures, "netns", metric.NetNSTarget), true)
	tried := sumOf(s.rec.Counter(metric.ConnectAttempts, "netns", metric.NetNSTarget, "side", "client"), true)
	if len(failed.at) == 0 {
		failed = curve{tried.at, make([]float64, len(tried.at))}
	}
	return failed.per(tried), notRecorded
}

func (s *side) majorFaults() ([]obs, string) {
	return counters(s.rec, metric.ProcessFaults, "kind", "major").perSecond(), notRecorded
}

func (s *side) resident() ([]obs, string) {
	return readings(s.rec.Gauge(metric.ProcessRSS)), notRecorded
}

// Key gives the key numbers of one recording alone, each as After.
func Key(rec *recording.Recording) []Number {
	s := &side{rec: rec}
	var out []Number
	for _, m := range measures() {
		list, _ := m.of(s)
		if e, ok := estimate(list); ok {
			n := Number{Name: m.name, Label: m.label, Unit: m.unit, Better: m.better, After: &e, Result: Unknown, Floor: m.floor}
			n.Series[1] = values(list)
			out = append(out, n)
		}
	}
	return out
}
