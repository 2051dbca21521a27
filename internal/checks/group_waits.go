package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
)

// groupWait is what the threads of a control group, not of those below it, did in the window, in seconds summed over threads.
type groupWait struct {
	path                 string
	ran, waited, stopped float64
}

// groupWaits gives them, those that waited longest for a CPU first; none without --deep.
func groupWaits(p *check.Pass) []groupWait {
	byPath := map[string]*groupWait{}
	add := func(g *metric.Gauge, to func(*groupWait, float64)) {
		for _, s := range p.Gauge(g) {
			path := s.Label("cgroup")
			if byPath[path] == nil {
				byPath[path] = &groupWait{path: path}
			}
			to(byPath[path], s.Last())
		}
	}
	add(metric.CgroupCPURun, func(w *groupWait, n float64) { w.ran += n })
	add(metric.CgroupCPUWait, func(w *groupWait, n float64) { w.waited += n })
	add(metric.CgroupThrottledWait, func(w *groupWait, n float64) { w.stopped += n })
	var out []groupWait
	for _, w := range byPath {
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b groupWait) int {
		return cmp.Or(cmp.Compare(b.waited, a.waited), strings.Compare(a.path, b.path))
	})
	return out
}

// namedGroups is how many control groups a finding names.
const namedGroups = 3

// queueByGroup says whose threads the queue for the CPUs is made of: the share of the group that waits the most, and the first few.
func queueByGroup(p *check.Pass, f *check.Finding) {
	list := groupWaits(p)
	total := 0.0
	for _, w := range list {
		total += w.waited
	}
	if total <= 0 {
		return
	}
	f.Evidence = append(f.Evidence, quantity.Of("", list[0].waited, quantity.Seconds).
		Per(quantity.Of("", total, quantity.Seconds)).Named("of all threads' waits for a CPU, those of cgroup %s", list[0].path))
	var parts []string
	for _, w := range list[:min(len(list), namedGroups)] {
		if w.waited > 0 {
			parts = append(parts, fmt.Sprintf("%s %s (ran %s)", w.path, quantity.Of("", w.waited, quantity.Seconds).Text(),
				quantity.Of("", w.ran, quantity.Seconds).Text()))
		}
	}
	f.Notes = append(f.Notes, "waits for a CPU by control group, summed over threads, without those for a quota: "+
		strings.Join(parts, ", "))
}

// waitsOf adds up a group and those below it; ok is false where that was not measured.
func waitsOf(p *check.Pass, cgroup string) (stopped, waited quantity.Value, ok bool) {
	var sum groupWait
	for _, w := range groupWaits(p) {
		if w.path == cgroup || strings.HasPrefix(w.path, strings.TrimSuffix(cgroup, "/")+"/") {
			sum.stopped, sum.waited, ok = sum.stopped+w.stopped, sum.waited+w.waited, true
		}
	}
	return quantity.Of("runnable threads stopped by the limit, summed", sum.stopped, quantity.Seconds),
		quantity.Of("threads waiting for a CPU with quota left, summed", sum.waited, quantity.Seconds), ok
}
