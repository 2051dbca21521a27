package checks

import (
	"cmp"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A threadWait is what one thread waited for in the kernel, by BPF.
type threadWait struct {
	pid, tid, comm, syscall, reason, on string
	seconds, count                      float64
}

// threadWaits gives all of them.
func threadWaits(p *check.Pass) []threadWait {
	counts := map[string]float64{}
	key := func(s recording.GaugeSeries) string { return strings.Join(s.Labels, "\x00") }
	for _, s := range p.Gauge(metric.ThreadWaits) {
		counts[key(s)] = s.Last()
	}
	var out []threadWait
	for _, s := range p.Gauge(metric.ThreadWaitTime) {
		out = append(out, threadWait{
			pid: s.Label("pid"), tid: s.Label("tid"), comm: s.Label("comm"), syscall: s.Label("syscall"), reason: s.Label("for"),
			on: s.Label("on"), seconds: s.Last(), count: counts[key(s)],
		})
	}
	return out
}

// wait tells what kind of wait it is.
func (w *threadWait) wait() hotcode.Wait { return hotcode.OffCPUWait(w.class()) }

// class is that of its samples in the off-CPU profile.
func (w *threadWait) class() string {
	if w.reason == "other" {
		return w.syscall
	}
	return strings.TrimSpace(w.reason + " " + w.on)
}

// offCPUWindow is the time in which threads were observed.
func offCPUWindow(p *check.Pass) (quantity.Value, error) {
	prof, ok := p.Ranked(stacks.OffCPU)
	if !ok || prof.Duration <= 0 {
		return quantity.Value{}, check.NotAssessed("profile for longer", "the waits of threads cover no time")
	}
	return quantity.Of("window", prof.Duration.Seconds(), quantity.Seconds), nil
}

// offCPUPaths gives where in the program threads wait for what matches, the longest first, as "62 %: a ← b ← c".
func offCPUPaths(p *check.Pass, match func(stacks.Sample) bool) []string {
	prof, ok := p.Ranked(stacks.OffCPU)
	if !ok {
		return nil
	}
	prof = prof.Filter(match)
	total := prof.Total().Value
	var out []string
	for _, g := range stacks.Group(prof, func(s stacks.Sample) string {
		return strings.Join(hotcode.NativePath(prof, s.Stack), " ← ")
	}) {
		where := cmp.Or(g.Key, "a place that the stacks do not show (the program keeps no frame pointers, or its symbols are stripped)")
		if len(out) < namedCulprits && total > 0 {
			out = append(out, partText(g.Value, total)+" of it at "+where)
		}
	}
	return out
}

// firstPath is the function of the longest of these, empty when it is not known.
func firstPath(p *check.Pass, match func(stacks.Sample) bool) string {
	prof, ok := p.Ranked(stacks.OffCPU)
	if !ok {
		return ""
	}
	prof = prof.Filter(match)
	for _, g := range stacks.Group(prof, func(s stacks.Sample) string {
		return hotcode.PlaceOf(hotcode.NativePath(prof, s.Stack))
	}) {
		if g.Key != "" {
			return g.Key
		}
	}
	return ""
}

// sortedBy orders the values of a map, the largest first, and equal ones by their key.
func sortedBy[V any](m map[string]V, size func(V) float64) []V {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(size(m[b]), size(m[a])), strings.Compare(a, b)) })
	out := make([]V, 0, len(keys))
	for _, k := range keys {
		out = append(out, m[k])
	}
	return out
}
