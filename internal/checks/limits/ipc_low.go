package limits

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// ipcUnit is the unit of instructions over cycles.
const ipcUnit = quantity.Unit("instructions/cycles")

var (
	paramIPC = &check.Param{
		Name: "ipc", Default: 1, Unit: ipcUnit,
		Why: "today's cores finish four and more instructions a cycle; below one most cycles only wait",
	}
	paramIPCLow = &check.Param{
		Name: "ipc-low", Default: 0.7, Unit: ipcUnit,
		Why: "ordinary memory-bound services lie between 0.7 and 1; type pollution was measured at 0.65",
	}
	paramIPCBusy = &check.Param{
		Name: "cpus-used", Default: 0.5, Unit: quantity.CPUs,
		Why: "below half a CPU there is nothing worth gaining, and wake-ups with cold caches dominate the ratio",
	}
	paramIPCHarm = &check.Param{
		Name: "cpus-used-warning", Default: 1, Unit: quantity.CPUs,
		Why: "from a whole CPU on, the cycles that wait are capacity somebody pays for",
	}
	paramIPCUser = &check.Param{
		Name: "user-share", Default: 0.7, Unit: quantity.Ratio,
		Why: "kernel code (small packets, system calls) runs at 0.5 to 0.8 on healthy servers; only user time is " +
			"the program's own",
	}
	paramRunningShare = &check.Param{
		Name: "running-share", Default: 0.9, Unit: quantity.Ratio,
		Why: "below it a tenth of the count is extrapolated from when the event was on a counter",
	}
)

var ipcLow = &check.Check{
	Name:  "ipc-low",
	Stage: check.Limits,
	Doc: `The CPU is busy but finishes few instructions per cycle

A busy CPU with few instructions per cycle waits: for memory, for cache lines
that other cores write (false sharing, type pollution in a JVM, contended
atomics), or after wrongly predicted branches. CPU use alone cannot tell this
from work.

Measured: instructions / cycles over the window for all threads of the target,
or for the host without a target, where at least the given CPU time was used;
with the miss ratios of branches and caches and the stalled share where the PMU
counts them. A low value is a level; it is a warning when the target uses a
whole CPU or more, most of it in user mode. The right value depends on the
program: compare with an earlier run.

Fix: find the stalling code (perf record -e cycles, perf c2c for shared lines,
a type-pollution agent for a JVM), then change layout or padding. Risk: padding
costs memory. Won't help: a higher clock frequency, which waits faster.
Disproof: the same load at an earlier, faster time had the same ratio.`,
	URL:    "https://man7.org/linux/man-pages/man2/perf_event_open.2.html",
	Needs:  []metric.Metric{metric.PerfEvents},
	Uses:   []metric.Metric{metric.PerfRunning, metric.PerfUnavailable, metric.ProcessCPU, metric.TargetInfo},
	Params: []*check.Param{paramIPC, paramIPCLow, paramIPCBusy, paramIPCHarm, paramIPCUser, paramRunningShare},
	Beyond: "an earlier, faster run of the same load",
	Run:    runIPCLow,
}

func runIPCLow(p *check.Pass) error {
	c, err := countersOf(p)
	if err != nil {
		return err
	}
	cpus := c.cpus()
	p.Read(cpus)
	if cpus.Below(p.Param(paramIPCBusy)) {
		return nil
	}
	ipc := c.ipc()
	p.Read(ipc)
	if ipc.AtLeast(p.Param(paramIPC)) {
		return nil
	}
	p.Report(ipcFinding(p, c, ipc, cpus))
	return nil
}

// hardwareCounters is the increase of each event over the window, for the target or else for the host.
type hardwareCounters struct {
	scope  string
	events map[string]float64
	span   float64
}

func countersOf(p *check.Pass) (*hardwareCounters, error) {
	for _, scope := range []string{metric.ScopeTarget, metric.ScopeHost} {
		h := &hardwareCounters{scope: scope, events: map[string]float64{}}
		for _, s := range p.Counter(metric.PerfEvents, "scope", scope) {
			if n, ok := s.Increase(); ok && s.Span() > 0 {
				h.events[s.Label("event")] = n
				h.span = s.Span().Seconds()
			}
		}
		if h.events["cycles"] > 0 && h.has("instructions") && h.has("task-clock") {
			return h, nil
		}
	}
	return nil, noPMU(p)
}

// noPMU returns the collector's own reason: software events may be recorded even if those of the hardware are not.
func noPMU(p *check.Pass) error {
	const remedy = "run where the CPU's counters can be read: the host itself, or a guest with a virtual PMU"
	for _, event := range []string{"cycles", "instructions"} {
		if u, ok := evidence.First(p.Info(metric.PerfUnavailable, "event", event)); ok {
			return check.NotAssessed(remedy, "%s cannot be counted: %s", event, u.Label("reason"))
		}
	}
	if reason, fix := p.Why(metric.PerfEvents); !p.Recorded(metric.PerfEvents) {
		return check.NotAssessed(fix, "%s", reason)
	}
	return check.NotAssessed(remedy, "instructions, cycles and task-clock were not all counted")
}

func (h *hardwareCounters) has(event string) bool { _, ok := h.events[event]; return ok }

// ipc counts in thousands of millions, which are easier to read.
func (h *hardwareCounters) ipc() quantity.Value {
	return quantity.Of("", h.events["instructions"]/1e9, "G instructions").
		Per(quantity.Of("", h.events["cycles"]/1e9, "G cycles")).As(ipcUnit).Named("instructions per cycle")
}

// cpus returns the CPUs used: task-clock counts nanoseconds.
func (h *hardwareCounters) cpus() quantity.Value {
	return quantity.Of("task-clock", h.events["task-clock"]/1e9, quantity.Seconds).
		Per(quantity.Of("window", h.span, quantity.Seconds)).As(quantity.CPUs).Named("CPUs used")
}

// ratios returns further numbers that show what it waits for, as far as this PMU counts them.
func (h *hardwareCounters) ratios() []quantity.Value {
	var out []quantity.Value
	for _, r := range []struct{ part, whole, label string }{
		{"branch-misses", "branches", "branches predicted wrongly"},
		{"cache-misses", "cache-references", "last-level cache accesses missed"},
		{"stalled-cycles-frontend", "cycles", "cycles without instructions to run"},
		{"stalled-cycles-backend", "cycles", "cycles waiting for memory or a unit"},
	} {
		if h.has(r.part) && h.events[r.whole] > 0 {
			v := quantity.Of("", h.events[r.part]/1e6, "M events").
				Per(quantity.Of("", h.events[r.whole]/1e6, "M events"))
			out = append(out, v.Named("%s", r.label))
		}
	}
	return out
}

func ipcFinding(p *check.Pass, c *hardwareCounters, ipc, cpus quantity.Value) check.Finding {
	subject := check.Host
	if c.scope == metric.ScopeTarget {
		subject = evidence.TargetSubject(p)
	}
	f := check.Finding{
		Subject:    subject,
		Severity:   check.Info,
		Confidence: check.Medium,
		Summary:    fmt.Sprintf("%s busy at %.2f instructions per cycle: most cycles wait.", cpus.Text(), ipc.Number()),
		Evidence:   append([]quantity.Value{ipc, cpus}, c.ratios()...),
		Remedies: []check.Remedy{{
			Action: "Find the code that waits, and whether threads write to one cache line; a JVM: look for type " +
				"pollution (JDK-8180450).",
			Command: evidence.C2CCommand(p),
			Risk:    "records with some per cent of overhead for the time it runs",
			Effect: fmt.Sprintf("at %.0f per cycle the same work would take %s instead of %s", p.Param(paramIPC).
				Number(),
				quantity.Of("", cpus.Number()*ipc.Number()/p.Param(paramIPC).Number(), quantity.CPUs).Text(),
				cpus.Text()),
		}},
		Placebos: []string{"A higher clock frequency: it waits faster."},
		Disproof: "An earlier, faster run of the same load had the same ratio.",
		Doubts:   []string{"there is no earlier run to compare with, and the right ratio depends on the program"},
	}
	user, ok := userShare(p)
	if ok {
		f.Evidence = append(f.Evidence, user)
	}
	low := ipc.Below(p.Param(paramIPCLow)) && cpus.AtLeast(p.Param(paramIPCHarm))
	if low && ok && user.AtLeast(p.Param(paramIPCUser)) && c.scope == metric.ScopeTarget {
		f.Severity = check.Warning
	}
	if run, ok := leastRunning(p, c.scope); ok && run.Below(p.Param(paramRunningShare)) {
		f.Confidence = check.Low
		f.Doubts = append(f.Doubts,
			fmt.Sprintf("the events shared too few counters: they ran in %s of the time, the rest is extrapolated",
				run.Text()))
	}
	return f
}

// userShare returns the part of the target's CPU time that is spent in user mode.
func userShare(p *check.Pass) (quantity.Value, bool) {
	total, user := 0.0, 0.0
	for _, s := range p.Counter(metric.ProcessCPU, "member", "target") {
		if n, ok := s.Increase(); ok {
			total += n
			if s.Label("mode") == "user" {
				user += n
			}
		}
	}
	if total <= 0 {
		return quantity.Value{}, false
	}
	return quantity.Of("user", user, quantity.Seconds).Per(quantity.Of("CPU time", total, quantity.Seconds)).
		Named("user mode"), true
}

func leastRunning(p *check.Pass, scope string) (least quantity.Value, ok bool) {
	for _, event := range []string{"instructions", "cycles"} {
		for _, s := range p.Gauge(metric.PerfRunning, "scope", scope, "event", event) {
			if v := quantity.Of("running", s.Min(), quantity.Ratio); !ok || v.Below(least) {
				least, ok = v, true
			}
		}
	}
	return least, ok
}
