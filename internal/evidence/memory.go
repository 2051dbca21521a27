package evidence

import (
	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// ParamMemoryStalled is the harm that reclaim, swapping and refaults must do to be a warning.
var ParamMemoryStalled = &check.Param{
	Name: "stalled", Default: 0.1, Unit: quantity.Ratio,
	Why: "PSI memory: someone waited for memory in a tenth of the time; copying a large file through a full page " +
		"cache stays below",
}

// AddMemoryStalls adds the memory pressure to a finding and reports whether it does harm. Without PSI that is
// unknown, and the finding stays a fact.
func AddMemoryStalls(p *check.Pass, f *check.Finding) bool {
	share, ok := Pressure(p, "memory", "some")
	if !ok {
		f.Confidence = check.Medium
		f.Doubts = append(f.Doubts, "this kernel has no pressure stall information: whether work waited for memory "+
			"is not known")
		return false
	}
	f.Evidence = append(f.Evidence, share)
	return share.AtLeast(p.Param(ParamMemoryStalled))
}

// AddMemoryLeft adds how much memory was left at the worst moment.
func AddMemoryLeft(p *check.Pass, f *check.Finding) {
	left, total := p.Gauge(metric.MemoryAvailable), p.Gauge(metric.MemoryTotal)
	if len(left) == 0 || len(total) == 0 || total[0].Last() <= 0 {
		return
	}
	f.Evidence = append(f.Evidence, quantity.Of("", left[0].Min(), quantity.Bytes).
		Per(quantity.Of("", total[0].Last(), quantity.Bytes)).Named("memory available, least"))
}

// MoreMemory returns the remedy that reclaim and swapping share.
func MoreMemory(effect string) check.Remedy {
	return check.Remedy{
		Action:  "Find what takes the memory, then shrink it, move it away, or add memory.",
		Command: "ps -eo pid,comm,rss --sort=-rss | head; grep -E 'Mem|Swap|Slab|Shmem' /proc/meminfo",
		Risk:    "A smaller heap or cache moves the cost to garbage collection or misses.",
		Effect:  effect,
	}
}

// MemoryLeft returns the least memory that the target's control groups may still take, below the limit of any of them.
// What the kernel can simply drop, the inactive page cache, counts as free.
func MemoryLeft(p *check.Pass) (least quantity.Value, ok bool) {
	for _, s := range p.Gauge(metric.CgroupMemoryLimit) {
		used, known := LastOf(p.Gauge(metric.CgroupWorkingSet, "cgroup", s.Label("cgroup"), "level",
			s.Label("level")))
		v := quantity.Of("limit", s.Last(), quantity.Bytes).Minus(quantity.Of("used", used, quantity.Bytes)).
			Named("free below the memory limit")
		if known && v.Number() > 0 && (!ok || v.Below(least)) {
			least, ok = v, true
		}
	}
	return least, ok
}
