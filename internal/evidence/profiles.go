package evidence

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var (
	// ParamIdle is the CPU use below which a program's code is not worth a look.
	ParamIdle = &check.Param{
		Name: "idle", Default: 0.05, Unit: quantity.CPUs,
		Why: "of a twentieth of a CPU no share is worth a change, and 10 s have 50 samples of 10 ms",
	}
	// ParamBusy is the CPU use from which on a program's code holds something back.
	ParamBusy = &check.Param{
		Name: "busy", Default: 0.25, Unit: quantity.CPUs,
		Why: "below a quarter of a CPU the code is not what holds anything back: its share is a fact and no warning",
	}
	// ParamServed is the CPU use from which on a server computes for others.
	ParamServed = &check.Param{
		Name: "served", Default: 0.1, Unit: quantity.CPUs,
		Why: "below a tenth of a CPU it may be what a server does by itself now and then, such as its metrics",
	}
	// ParamAsked is the request rate from which on a server computes for others.
	ParamAsked = &check.Param{
		Name: "asked", Default: 1, Unit: "requests/s",
		Why: "fewer are probes of a program that works for somebody else, and what it computes is not for them",
	}
)

// ProfileMetric returns the metric that says whether there is a profile of an event.
func ProfileMetric(e stacks.Event) metric.Metric {
	return map[stacks.Event]metric.Metric{
		stacks.CPU: metric.CPUProfileSamples, stacks.Wall: metric.WallProfileSamples,
		stacks.Alloc: metric.AllocProfileSamples, stacks.Script: metric.ScriptProfileSamples,
		stacks.Waits:      metric.WaitProfileSamples,
		stacks.ScriptWall: metric.ScriptWallProfileSamples, stacks.Coroutine: metric.CoroutineProfileSamples,
		stacks.Goroutine: metric.GoroutineProfileSamples,
		stacks.Lock:      metric.LockProfileSamples, stacks.OffCPU: metric.OffCPUProfileSamples,
	}[e]
}

// ProfileOf returns the non-empty profile of an event, or an error that says why there is none.
func ProfileOf(p *check.Pass, e stacks.Event) (*stacks.Profile, error) {
	const remedy = "run perfdoctor diagnose with the profiler on, for a time in which the process works"
	prof, ok := p.Ranked(e)
	if !ok {
		if m := ProfileMetric(e); !p.Recorded(m) {
			reason, fix := p.Why(m)
			return nil, check.NotAssessed(fix, "%s", reason)
		}
		return nil, check.NotAssessed(remedy, "the recording has no %s profile", e)
	}
	return prof, nil
}

// coverage is how far samples and the kernel's count may lie apart: a kernel that counts by ticks is off by some per
// cent for threads that run for parts of a tick.
const coverage = 0.2

// CPUDoubts says why shares of a process's CPU time are less certain than the number of samples suggests.
func CPUDoubts(c *hotcode.CPU) []string {
	switch {
	case c.Kernel == 0:
		return []string{"the kernel's count of the process's CPU time was not recorded: shares are of the samples"}
	case c.Sampled() < c.Kernel*(1-coverage) || c.Sampled() > c.Kernel*(1+coverage):
		return []string{fmt.Sprintf("the samples stand for %s, the kernel counted %s",
			quantity.Of("", c.Sampled(), quantity.Seconds).Text(), quantity.Of("", c.Kernel, quantity.Seconds).Text())}
	}
	return nil
}

// ScriptPlace returns the end of a summary that names the function of a script with most of the CPU time, for what no
// profile of scripts shows. It is empty where no scripts are read, or several functions share the time.
func ScriptPlace(p *check.Pass) string {
	c, ok := hotcode.ScriptsOf(p.Recording)
	if !ok || c.Sampled() <= 0 {
		return ""
	}
	h, ok := c.Hottest(c.Sampled() / 2)
	if !ok {
		return ""
	}
	share := quantity.Of("", float64(h.Inclusive.Value)/1e9/c.Sampled(), quantity.Ratio)
	return fmt.Sprintf("; its scripts are in %s for %s of their time", hotcode.At(h.Name, h.Line), share.Text())
}
