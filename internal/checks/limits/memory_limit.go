package limits

import (
	"fmt"
	"math"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var (
	paramMemoryShare = &check.Param{
		Name: "memory-share", Default: 0.9, Unit: quantity.Ratio,
		Why: "with a tenth left for page cache the kernel begins to reclaim what is in use",
	}
	paramMemoryHigh = &check.Param{
		Name: "memory-share-high", Default: 0.95, Unit: quantity.Ratio,
		Why: "one garbage collection cycle or one more thread pool takes a twentieth: then the OOM killer acts",
	}
)

var memoryLimit = &check.Check{
	Name:  "memory-limit",
	Stage: check.Limits,
	Doc: `The working set comes near a memory limit

Near its limit a cgroup must reclaim page cache for each new page, which costs
CPU time in the allocating thread and reads files again; at the limit the OOM
killer ends a process.

Measured: the working set (memory less inactive page cache, which can simply be
dropped) against the limit, in the target's cgroup and every ancestor; the
fullest level is named. It is a warning when the limit was also hit in the
window, or when hardly anything is left; else it is a level only. Usage with
page cache is not used: it fills every limit on a healthy host.

Fix: raise the limit, or lower the heap, caches and thread stacks. Risk: the
host's memory may then be overcommitted.
Won't help: dropping caches; swap beside a limit.
Disproof: memory.events of the group shows no further max or high events under
load.`,
	URL:    "https://docs.kernel.org/admin-guide/cgroup-v2.html#memory",
	Needs:  []metric.Metric{metric.CgroupWorkingSet, metric.CgroupMemoryLimit},
	Uses:   []metric.Metric{metric.CgroupMemoryMax, metric.CgroupDir},
	Params: []*check.Param{paramMemoryShare, paramMemoryHigh, evidence.ParamFullSoon},
	Run:    runMemoryLimit,
}

func runMemoryLimit(p *check.Pass) error {
	s := evidence.FullestShare(p, metric.CgroupWorkingSet, metric.CgroupMemoryLimit)
	if s == nil {
		return nil
	}
	p.Read(s.Share.Named("working set / limit"))
	if s.Share.Below(p.Param(paramMemoryShare)) {
		return nil
	}
	cgroup := s.Label("cgroup")
	f := check.Finding{
		Subject:  check.Subject{Kind: "cgroup", ID: cgroup},
		Severity: check.Info,
		Summary: fmt.Sprintf("The working set is %s of the memory limit %s%s", s.Share.Text(), s.LevelsAbove(),
			s.Forecast(p)),
		Evidence: s.Evidence(),
		Remedies: []check.Remedy{raiseMemoryLimit(p, s)},
		Placebos: []string{"Dropping caches: the working set is what cannot be dropped."},
		Disproof: "The count of hits does not rise under load: cat " +
			evidence.KnobMemoryEvents.File(p, cgroup, s.Label("level")),
	}
	hits, ok := limitHits(p, s)
	switch {
	case !ok:
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "whether the limit was hit was not recorded")
	case hits.Number() > 0:
		f.Evidence = append(f.Evidence, hits)
	}
	if hits.Number() > 0 || s.Share.AtLeast(p.Param(paramMemoryHigh)) {
		f.Severity = check.Warning
	}
	p.Report(f)
	return nil
}

func limitHits(p *check.Pass, s *evidence.LimitShare) (quantity.Value, bool) {
	for _, c := range p.Counter(metric.CgroupMemoryMax, "cgroup", s.Label("cgroup"), "level", s.Label("level")) {
		if n, ok := c.Increase(); ok {
			return quantity.Of("times the limit was hit in the window", n, quantity.Events), true
		}
	}
	return quantity.Value{}, false
}

// raiseMemoryLimit aims at a working set of three quarters of the limit, which leaves the page cache its part.
func raiseMemoryLimit(p *check.Pass, s *evidence.LimitShare) check.Remedy {
	const mib = 1 << 20
	want := math.Ceil(s.Used.Number()/0.75/mib) * mib
	v := quantity.Of("", want, quantity.Bytes)
	return check.Remedy{
		Action: fmt.Sprintf("Raise the limit to %s, or shrink heap, caches and thread stacks.",
			v.Text()),
		Command: evidence.KnobMemoryLimit.Set(p, s.Label("cgroup"), s.Label("level"), fmt.Sprintf("%.0f", want),
			fmt.Sprintf("%.0f", want)),
		Risk:   "the host must have it free, else the host itself comes short",
		Effect: fmt.Sprintf("working set / limit %s -> 75 %%", s.Share.Text()),
	}
}
