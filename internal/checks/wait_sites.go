package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// waiting is a wall-clock profile, prepared to be asked what threads wait for.
type waiting struct {
	*stacks.Profile
	waits  *hotcode.Waits
	owners hotcode.Owners
}

// waitingOf gives the wall-clock profile of the recording.
func waitingOf(p *check.Pass) (*waiting, error) {
	prof, err := profileOf(p, stacks.Wall)
	if err != nil {
		return nil, err
	}
	if prof.Duration <= 0 || len(prof.Samples) == 0 {
		return nil, check.NotAssessed("profile for longer", "the wall-clock profile has no samples")
	}
	return &waiting{prof, hotcode.WaitsOf(prof), hotcode.OwnersOf(p.Recording)}, nil
}

// threads turns time summed over threads into how many threads that is at any moment.
func (w *waiting) threads(label string, value int64) quantity.Value {
	return quantity.Of("", float64(value)/1e9, quantity.Seconds).Per(quantity.Of("window", w.Duration.Seconds(), quantity.Seconds)).
		As(quantity.Threads).Named("%s", label)
}

// pool gives the pool of a sample's thread.
func (w *waiting) pool(s stacks.Sample) string { return poolOf(w.ThreadOf(s).Name) }

// A waitSite is a method of the application in which threads wait for one kind of thing.
type waitSite struct {
	culprit
	frame  string // the call that waits, such as HikariPool.getConnection
	pool   string // of the threads
	count  int64  // samples
	inside int64  // of threads in the same method that do not wait so, in nanoseconds
}

// sites groups the samples that wait for one kind of thing by the method of the application, the most time first.
func (w *waiting) sites(wait hotcode.Wait) []*waitSite {
	var hits []hit
	first := map[string]*waitSite{}
	for _, s := range w.Samples {
		if w.waits.Of(s) != wait {
			continue
		}
		h := hit{sample: s, at: w.waits.At(s, wait)}
		hits = append(hits, h)
		place := w.owners.Nearest(w.Profile, s.Stack, h.at, nil)
		name := w.Frames[s.Stack[place.At]].Name
		if first[name] == nil {
			first[name] = &waitSite{frame: shortName(w.Frames[s.Stack[h.at]]), pool: w.pool(s)}
		}
		first[name].count += s.Count
	}
	var out []*waitSite
	for _, c := range culprits(w.Profile, w.owners, hits, nil) {
		site := first[c.method]
		site.culprit = *c
		site.inside, _ = w.inside(c.method, wait)
		out = append(out, site)
	}
	return out
}

// inside gives the time of threads in a method that do not wait for the given thing, and what they do, the most first: where
// threads wait for a lock or a connection in a method, others in it have one.
func (w *waiting) inside(method string, except hotcode.Wait) (total int64, parts []string) {
	in := w.Set(func(f stacks.Frame) bool { return f.Name == method })
	sums := map[string]int64{}
	for _, s := range w.Samples {
		at := s.Innermost(in)
		wait := w.waits.Of(s)
		if at < 0 || wait == except || wait == hotcode.Idle {
			continue
		}
		what := "run"
		if wait != hotcode.NotWaiting {
			what = "wait for " + string(wait)
		}
		if at > 0 {
			what += " in " + shortName(w.Frames[s.Stack[at-1]])
		}
		sums[what] += s.Value
		total += s.Value
	}
	var names []string
	for n := range sums {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), strings.Compare(a, b)) })
	for _, n := range names[:min(len(names), namedCulprits)] {
		parts = append(parts, fmt.Sprintf("%s %s", quantity.Of("", float64(sums[n])/float64(total), quantity.Ratio).Text(), n))
	}
	return total, parts
}

// busiestThreads names the threads that run most, as a share of the window: what others wait for is often one of them.
func (w *waiting) busiestThreads() []string {
	sums := stacks.Group(w.Filter(func(s stacks.Sample) bool { return s.State == stacks.Running }),
		func(s stacks.Sample) string { return w.ThreadOf(s).Name })
	var parts []string
	for _, g := range sums[:min(len(sums), namedCulprits)] {
		parts = append(parts, fmt.Sprintf("%s %s", g.Key, quantity.Of("", float64(g.Value)/float64(w.Duration), quantity.Ratio).Text()))
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"threads that run most meanwhile: " + strings.Join(parts, ", ")}
}

// interval states the sampling error of a share of samples, and whether it could be below a limit by chance.
func interval(k, n int64, limit quantity.Value) (note string, doubts []string) {
	low, high := hotcode.Interval(k, n)
	text := func(v float64) string { return quantity.Of("", v, quantity.Ratio).Text() }
	if low < limit.Number() {
		doubts = append(doubts, fmt.Sprintf("by chance alone it could be below %s", limit.Text()))
	}
	return fmt.Sprintf("95 %% sure to lie between %s and %s: %d of %d samples", text(low), text(high), k, n), doubts
}

// sampledConfidence is that of a finding of so many samples.
func sampledConfidence(count int64, doubts []string) check.Confidence {
	switch {
	case count < fewSamples:
		return check.Low
	case len(doubts) > 0:
		return check.Medium
	}
	return check.High
}
