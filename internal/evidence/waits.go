package evidence

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A GroupWait is what the threads of a control group, without the groups below it, did in the window, in seconds
// summed over threads.
type GroupWait struct {
	Path                 string
	Ran, Waited, Stopped float64
}

// GroupWaits returns the waits of all groups, the longest wait for a CPU first; none without --deep.
func GroupWaits(p *check.Pass) []GroupWait {
	byPath := map[string]*GroupWait{}
	add := func(g *metric.Gauge, to func(*GroupWait, float64)) {
		for _, s := range p.Gauge(g) {
			path := s.Label("cgroup")
			if byPath[path] == nil {
				byPath[path] = &GroupWait{Path: path}
			}
			to(byPath[path], s.Last())
		}
	}
	add(metric.CgroupCPURun, func(w *GroupWait, n float64) { w.Ran += n })
	add(metric.CgroupCPUWait, func(w *GroupWait, n float64) { w.Waited += n })
	add(metric.CgroupThrottledWait, func(w *GroupWait, n float64) { w.Stopped += n })
	var out []GroupWait
	for _, w := range byPath {
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b GroupWait) int {
		return cmp.Or(cmp.Compare(b.Waited, a.Waited), strings.Compare(a.Path, b.Path))
	})
	return out
}

// A ThreadWait is what one thread waited for in the kernel, by BPF.
type ThreadWait struct {
	PID, TID, Comm, Syscall, Reason, On string
	Seconds, Count                      float64
}

// ThreadWaits returns all waits of threads.
func ThreadWaits(p *check.Pass) []ThreadWait {
	counts := map[string]float64{}
	key := func(s recording.GaugeSeries) string { return strings.Join(s.Labels, "\x00") }
	for _, s := range p.Gauge(metric.ThreadWaits) {
		counts[key(s)] = s.Last()
	}
	var out []ThreadWait
	for _, s := range p.Gauge(metric.ThreadWaitTime) {
		out = append(out, ThreadWait{
			PID: s.Label("pid"), TID: s.Label("tid"), Comm: s.Label("comm"), Syscall: s.Label("syscall"),
			Reason: s.Label("for"),
			On:     s.Label("on"), Seconds: s.Last(), Count: counts[key(s)],
		})
	}
	return out
}

// OffCPUWindow returns the time in which threads were observed.
func OffCPUWindow(p *check.Pass) (quantity.Value, error) {
	prof, ok := p.Ranked(stacks.OffCPU)
	if !ok || prof.Duration <= 0 {
		return quantity.Value{}, check.NotAssessed("profile for longer", "the waits of threads cover no time")
	}
	return quantity.Of("window", prof.Duration.Seconds(), quantity.Seconds), nil
}

// offCPU returns the matching part of the off-CPU profile, which has exact times, or of the samples of waits if these
// name more of it: their stacks do not need frame pointers.
func offCPU(p *check.Pass, match func(stacks.Sample) bool) (best *stacks.Profile, ok bool) {
	most := -1.0
	for _, e := range []stacks.Event{stacks.OffCPU, stacks.Waits} {
		prof, known := p.Ranked(e)
		if !known {
			continue
		}
		prof = prof.Filter(match)
		named, all := 0.0, 0.0
		for _, s := range prof.Samples {
			all += float64(s.Value)
			if len(hotcode.NativePath(prof, s.Stack)) > 0 {
				named += float64(s.Value)
			}
		}
		if part := named / max(all, 1); part > most {
			best, most = prof, part
		}
	}
	return best, best != nil
}

// Wakers says which threads ended waits for a futex, and where.
func Wakers(p *check.Pass, on string) []string {
	var out []string
	for _, w := range hotcode.WakersOf(p.Recording, on, NamedCulprits) {
		out = append(out, fmt.Sprintf("%s of the waits were ended at %s, most by thread %s",
			quantity.Of("", w.Share, quantity.Ratio).Text(), cmp.Or(w.At, "an unknown place"), w.Thread))
	}
	return out
}

// OffCPUPaths returns where in the program threads are in matching waits, the longest first, as "62 %: a ← b ← c".
func OffCPUPaths(p *check.Pass, match func(stacks.Sample) bool) []string {
	prof, ok := offCPU(p, match)
	if !ok {
		return nil
	}
	total := prof.Total().Value
	var out []string
	for _, g := range stacks.Group(prof, func(s stacks.Sample) string {
		return strings.Join(hotcode.NativePath(prof, s.Stack), " ← ")
	}) {
		where := cmp.Or(g.Key, "an unknown place (the program keeps no frame pointers, or its "+
			"symbols are stripped)")
		if len(out) < NamedCulprits && total > 0 {
			out = append(out, PartText(g.Value, total)+" of it at "+where)
		}
	}
	return out
}

// FirstOffCPUPath returns the function of the longest of these; empty if it is not known.
func FirstOffCPUPath(p *check.Pass, match func(stacks.Sample) bool) string {
	prof, ok := offCPU(p, match)
	if !ok {
		return ""
	}
	for _, g := range stacks.Group(prof, func(s stacks.Sample) string {
		return hotcode.PlaceOf(hotcode.NativePath(prof, s.Stack))
	}) {
		if g.Key != "" {
			return g.Key
		}
	}
	return ""
}

// NameFunction adds to a finding about a place of the ledger the function in which the threads stand there, if a
// stack shows it. native is the native JDK method that they stand in, if any.
func NameFunction(p *check.Pass, f *check.Finding, at ledger.Place) (native string) {
	if function, path := scriptAt(p, at); function != "" {
		f.Summary += ", at " + function
		f.Notes = append(f.Notes, path)
		return ""
	}
	if prof, ok := p.Ranked(stacks.Wall); ok { // to the kernel all Java waits are for a futex
		for _, w := range hotcode.WaitTimes(prof, hotcode.OwnersOf(p.Recording), 1) {
			if native = w.In; native != "" {
				f.Summary += ", in " + native
			}
			f.Summary += ", at " + hotcode.At(w.Method, w.Line)
		}
		return native
	}
	match := func(s stacks.Sample) bool {
		what, on, _ := strings.Cut(s.Class, " ")
		if at.Call == "futex" {
			return (what == "futex" || what == "mutex") && on == at.On
		}
		return at.Call != "" && what == at.Call
	}
	if function := FirstOffCPUPath(p, match); function != "" {
		f.Summary += ", at " + function
		f.Notes = append(f.Notes, OffCPUPaths(p, match)...)
	}
	return ""
}

// scriptAt returns the function of a script with most of the waiting time at a place, and the calls that lead there.
func scriptAt(p *check.Pass, at ledger.Place) (function, path string) {
	prof, ok := p.Ranked(stacks.ScriptWall)
	if !ok {
		return "", ""
	}
	var hits []Hit
	for _, s := range prof.Samples {
		if s.State == stacks.Sleeping && prof.Frames[s.Stack[0]].Name == at.Call {
			hits = append(hits, Hit{Sample: s})
		}
	}
	list := Culprits(prof, hotcode.OwnersOf(p.Recording), hits, nil)
	if len(list) == 0 {
		return "", ""
	}
	return list[0].Name(), strings.Join(list[0].Path, " ← ")
}

// StackMetrics returns the metrics that [NameFunction] reads.
func StackMetrics() []metric.Metric {
	return []metric.Metric{
		metric.OffCPUProfileSamples, metric.WaitProfileSamples, metric.ScriptWallProfileSamples,
		metric.WallProfileSamples,
	}
}

// SortedBy returns the values of a map, the largest first, and equal ones by their key.
func SortedBy[V any](m map[string]V, size func(V) float64) []V {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(size(m[b]), size(m[a])),
			strings.Compare(a, b))
	})
	out := make([]V, 0, len(keys))
	for _, k := range keys {
		out = append(out, m[k])
	}
	return out
}

// Interval states the sampling error of a share of samples, and whether it could be below a limit by chance.
func Interval(k, n int64, limit quantity.Value) (note string, doubts []string) {
	low, high := hotcode.Interval(k, n)
	text := func(v float64) string { return quantity.Of("", v, quantity.Ratio).Text() }
	if low < limit.Number() {
		doubts = append(doubts, fmt.Sprintf("by chance alone it could be below %s", limit.Text()))
	}
	return fmt.Sprintf("95 %% sure to lie between %s and %s: %d of %d samples", text(low), text(high), k, n), doubts
}

// SampledSeverity returns the severity of a share beyond its limit that so many samples show: information if the
// samples are too few to believe and the share could be below the limit by chance.
func SampledSeverity(count int64, byChance bool) check.Severity {
	if count < FewSamples && byChance {
		return check.Info
	}
	return check.Warning
}

// SampledConfidence returns the confidence in a finding from so many samples.
func SampledConfidence(count int64, doubts []string) check.Confidence {
	switch {
	case count < FewSamples:
		return check.Low
	case len(doubts) > 0:
		return check.Medium
	}
	return check.High
}
