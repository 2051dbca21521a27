package evidence

import (
	"maps"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A BusyGoroutine does the work of a Go program. The scheduler moves it from thread to thread, so no thread looks
// full.
type BusyGoroutine struct {
	Name string
	Runs quantity.Value // CPUs that it uses or waits for
	// Works is Runs plus the time in which it assists the collector or waits for it, and the time in calls for files:
	// all of this time only this host works for it.
	Works quantity.Value
}

// BusiestGoroutine returns the goroutine that runs most, by samples of all of them. Runnable goroutines look the same
// as running ones: if two or more run or are runnable at any moment they queue for a thread, and ok is false.
func BusiestGoroutine(p *check.Pass) (g BusyGoroutine, ok bool) {
	w, err := WaitingOf(p)
	if err != nil || !w.InGo() {
		return g, false
	}
	runs, works, all := map[int]float64{}, map[int]float64{}, 0.0
	for _, s := range w.Samples {
		seconds := float64(s.Value) / 1e9
		wait, _ := w.Waits.Of(s)
		switch {
		case s.State == stacks.Running:
			all += seconds
			runs[s.Thread] += seconds
		case wait != hotcode.ForGC && wait != hotcode.ForFile:
			continue
		}
		works[s.Thread] += seconds
	}
	delete(runs, -1) // those beyond the bound, added up
	if len(runs) == 0 || all >= 2*w.Duration.Seconds() {
		return g, false
	}
	at := slices.MaxFunc(slices.Sorted(maps.Keys(runs)), func(x, y int) int { return int(1e3 * (runs[x] - runs[y])) })
	window := quantity.Of("window", w.Duration.Seconds(), quantity.Seconds)
	g.Name = strings.TrimPrefix(w.Profile.Threads[at].Name, "runtime.") // runtime.main, which calls main.main
	g.Runs = quantity.Of("it runs", runs[at], quantity.Seconds).Per(window).As(quantity.CPUs).
		Named("CPUs used or waited for by goroutine %s", g.Name)
	g.Works = quantity.Of("runs, helps the collector or writes files", works[at], quantity.Seconds).Per(window).
		Named("goroutine %s runs, waits for the collector or for files", g.Name)
	return g, true
}
