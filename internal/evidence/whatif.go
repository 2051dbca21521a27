package evidence

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// What a change may affect, besides a method.
const (
	WhatIfQuota = "quota" // the target's CPU limit, in CPUs
	WhatIfPool  = "pool"  // the size of the pool that threads wait for
)

// WhatIf returns a check whose only finding holds the promises of a hypothetical change: what is "quota", "pool", or
// a method that takes x times its present CPU time. It is not assessed if the recording supports no number.
func WhatIf(what string, x float64) *check.Check {
	run := func(p *check.Pass, f *check.Finding) error { return fasterMethod(p, f, what, x) }
	switch what {
	case WhatIfQuota:
		run = func(p *check.Pass, f *check.Finding) error { return otherQuota(p, f, x) }
	case WhatIfPool:
		run = func(p *check.Pass, f *check.Finding) error { return otherPool(p, f, x) }
	}
	return &check.Check{
		Name: "what-if", Stage: check.Code, Doc: "A change that somebody thinks of", Params: ThrottlingParams(),
		Run: func(p *check.Pass) error {
			f := check.Finding{Subject: TargetSubject(p), Severity: check.Info}
			if err := run(p, &f); err != nil {
				return err
			}
			if len(f.Promises) == 0 {
				return check.NotAssessed("", "%s", whyNothing(p))
			}
			p.Report(f)
			return nil
		},
	}
}

// whyNothing says what a promise is missing.
func whyNothing(p *check.Pass) string {
	s := servedOf(p)
	switch {
	case p.Meta.Target.Kind == "host":
		return "the recording is of a whole host, whose requests nobody knows: record a process (--pid)"
	case !s.known[check.Throughput]:
		return "the recording has no requests on the target's own ports"
	}
	return "what it brings is less than what the recording's numbers scatter, or clients do not ask for more than is " +
		"answered"
}

func fasterMethod(p *check.Pass, f *check.Finding, method string, x float64) error {
	if x >= 1 {
		return check.NotAssessed("", "%s: a factor of %v saves nothing: give one from 0 to below 1", method, x)
	}
	c, ok := hotcode.CPUOf(p.Recording)
	if !ok || c.Total() <= 0 {
		return check.NotAssessed("", "the recording has no CPU profile of the target")
	}
	pattern := hotcode.ParsePattern(method)
	frames := c.Set(func(f stacks.Frame) bool {
		return pattern.Frame(f) || pattern.Text(ShortName(f)) // by its name in the profile, and in the report
	})
	part := partOf(c, frames)
	if part.Share == 0 {
		return check.NotAssessed("", "no function of the profile is named %s: give the name as the report has it; * "+
			"stands for any characters", method)
	}
	WithoutCPU(p, f, part.Times(1-x))
	return nil
}

func otherQuota(p *check.Pass, f *check.Finding, to float64) error {
	if !p.Recorded(metric.CgroupQuota) {
		return check.NotAssessed("", "the recording has no CPU limits")
	}
	t, err := TightestThrottling(p)
	switch {
	case err != nil:
		return err
	case t == nil || t.Use == nil:
		return check.NotAssessed("", "the target has no CPU limit in the recording")
	case to <= t.Quota.Number():
		return check.NotAssessed("", "the limit is %s: give a higher one", t.Quota.Text())
	}
	WithQuota(p, f, t.Use.Number(), to)
	return nil
}

func otherPool(p *check.Pass, f *check.Finding, size float64) error {
	w, err := WaitingOf(p)
	if err != nil {
		return err
	}
	sites := w.Leases(p)
	if len(sites) == 0 {
		return check.NotAssessed("", "no thread waits for a pool in the recording")
	}
	waiters, holders := w.Threads("", sites[0].Value), w.Threads("", sites[0].Inside)
	more := size - holders.Number()
	if more <= 0 {
		return check.NotAssessed("", "%s have one of the pool, on average: give a larger size", holders.Text())
	}
	WithoutWait(p, f, WaitPart(p, min(waiters.Number(), more)).Times(1)) // and nothing else changes
	return nil
}
