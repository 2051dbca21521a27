package evidence

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/evidence/ledger"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// GroupWait is what the threads of a control group, not of those below it, did in the window, in seconds summed over
// threads.
type GroupWait struct {
	Path                 string
	Ran, Waited, Stopped float64
}

// GroupWaits gives them, those that waited longest for a CPU first; none without --deep.
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

// ThreadWaits gives all of them.
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

// OffCPUWindow is the time in which threads were observed.
func OffCPUWindow(p *check.Pass) (quantity.Value, error) {
	prof, ok := p.Ranked(stacks.OffCPU)
	if !ok || prof.Duration <= 0 {
		return quantity.Value{}, check.NotAssessed("profile for longer", "the waits of threads cover no time")
	}
	return quantity.Of("window", prof.Duration.Seconds(), quantity.Seconds), nil
}

// offCPU gives what matches of the off-CPU profile, whose times are exact, or of the samples of waits where these name
// more of it: their stacks do not need frame pointers.
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

// OffCPUPaths gives where in the program threads wait for what matches, the longest first, as "62 %: a ← b ← c".
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

// FirstOffCPUPath is the function of the longest of these, empty when it is not known.
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

// NameFunction adds to a finding about a place of the account of threads' time the function in which they stand there,
// where a stack shows it.
func NameFunction(p *check.Pass, f *check.Finding, at ledger.Place) {
	if function, path := scriptAt(p, at); function != "" {
		f.Summary += ", at " + function
		f.Notes = append(f.Notes, path)
		return
	}
	if prof, ok := p.Ranked(stacks.Wall); ok { // to the kernel all that Java waits for is a futex
		for _, w := range hotcode.WaitTimes(prof, hotcode.OwnersOf(p.Recording), 1) {
			f.Summary += ", at " + hotcode.At(w.Method, w.Line)
		}
		return
	}
	object, _, _ := strings.Cut(at.On, " ") // of a lock also who holds it
	match := func(s stacks.Sample) bool {
		what, on, _ := strings.Cut(s.Class, " ")
		if at.Call == "futex" {
			return (what == "futex" || what == "mutex") && on == object
		}
		return at.Call != "" && what == at.Call
	}
	if function := FirstOffCPUPath(p, match); function != "" {
		f.Summary += ", at " + function
		f.Notes = append(f.Notes, OffCPUPaths(p, match)...)
	}
}

// scriptAt gives the function of a script in which most of the time at a place is waited, and the calls that lead
// there.
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

// StackMetrics are those that [NameFunction] reads.
func StackMetrics() []metric.Metric {
	return []metric.Metric{
		metric.OffCPUProfileSamples, metric.WaitProfileSamples, metric.ScriptWallProfileSamples,
		metric.WallProfileSamples,
	}
}

// SortedBy orders the values of a map, the largest first, and equal ones by their key.
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

// Waiting is a wall-clock profile, prepared to be asked what threads wait for, or the same of goroutines.
type Waiting struct {
	*stacks.Profile
	Waits  *hotcode.Waits
	Owners hotcode.Owners
}

// WaitingOf gives the wall-clock profile of the recording, else that of goroutines, else that of scripts.
func WaitingOf(p *check.Pass) (*Waiting, error) {
	event := stacks.Wall
	_, java := p.Ranked(stacks.Wall)
	_, script := p.Ranked(stacks.ScriptWall)
	switch {
	case java:
	case len(p.Info(metric.GoRuntime)) > 0:
		event = stacks.Goroutine
	case script:
		event = stacks.ScriptWall
	}
	prof, err := ProfileOf(p, event)
	if err != nil {
		return nil, err
	}
	if prof.Duration <= 0 || len(prof.Samples) == 0 {
		return nil, check.NotAssessed("profile for longer", "the wall-clock profile has no samples")
	}
	owners := hotcode.OwnersOf(p.Recording)
	return &Waiting{prof, hotcode.WaitsOf(prof, owners), owners}, nil
}

// IsJava tells whether its threads are those of a JVM.
func (w *Waiting) IsJava() bool { return w.Event == stacks.Wall }

// InGo tells whether its threads are goroutines.
func (w *Waiting) InGo() bool { return w.Event == stacks.Goroutine }

// Unit is what its threads are called.
func (w *Waiting) Unit() quantity.Unit {
	if w.InGo() {
		return quantity.Goroutines
	}
	return quantity.Threads
}

// Who is what its threads are called, in a sentence.
func (w *Waiting) Who() string { return string(w.Unit()) }

// Threads turns time summed over threads into how many threads that is at any moment.
func (w *Waiting) Threads(label string, value int64) quantity.Value {
	return quantity.Of("", float64(value)/1e9, quantity.Seconds).
		Per(quantity.Of("window", w.Duration.Seconds(), quantity.Seconds)).
		As(w.Unit()).Named("%s", label)
}

// mostFull is the part of the CPUs from which on goroutines that wait for each other may wait for a CPU in truth: what
// is left is in pieces too short for more work.
const mostFull = 0.9

// CPUsFull tells of goroutines whether as many run, or are ready to, as there are CPUs: those who wait for one of them
// wait for a CPU in truth, and what the others do is not known, as the stack of one that runs is not.
func (w *Waiting) CPUsFull(p *check.Pass) (full quantity.Value, ok bool) {
	cpus, ok := EffectiveCPUs(p)
	if !ok || w.IsJava() {
		return full, false
	}
	runs := w.Filter(func(s stacks.Sample) bool { return s.State == stacks.Running }).Total()
	full = w.Threads(w.Who()+" that run or are ready to", runs.Value)
	return full, full.Number() >= mostFull*cpus.Number()
}

// CPUMetrics are those that [Waiting.CPUsFull] reads.
func CPUMetrics() []metric.Metric {
	return []metric.Metric{metric.CPUsOnline, metric.TargetCPUs, metric.CgroupCpuset, metric.CgroupQuota}
}

// Pool gives the pool of a sample's thread; goroutines that begin with the same function are one.
func (w *Waiting) Pool(s stacks.Sample) string {
	if w.InGo() {
		return w.ThreadOf(s).Name
	}
	return metric.PoolOf(w.ThreadOf(s).Name)
}

// Event loops by the names of their threads; their run loops' frames show them, too.
var loopThreads = hotcode.ParsePatterns(
	"nioEventLoopGroup-*", "epollEventLoopGroup-*", "kqueueEventLoopGroup-*", "multiThreadIoEventLoopGroup-*",
	"reactor-http-*",
	"reactor-tcp-*", "lettuce-*EventLoop*", "vert.x-eventloop-thread-*", "XNIO-*I/O-*", "ktor-*", "*-eventloop-*",
)

// EventLoops gives the threads, by their index in the profile, that run event loops.
func (w *Waiting) EventLoops() map[int]bool {
	out := map[int]bool{}
	for _, s := range w.Samples {
		name := w.ThreadOf(s).Name
		if s.Thread >= 0 && !out[s.Thread] && (w.Waits.Loops(s) ||
			slices.ContainsFunc(loopThreads, func(t hotcode.Pattern) bool { return t.Text(name) })) {
			out[s.Thread] = true
		}
	}
	return out
}

// A WaitSite is a method of the application in which threads wait for one kind of thing.
type WaitSite struct {
	Culprit
	Wait   hotcode.Wait
	Frame  string // the call that waits, such as HikariPool.getConnection
	Pool   string // of the threads
	Holder string // the method in which others have what these wait for
	Count  int64  // samples
	Inside int64  // of threads in the same method that do not wait so, in nanoseconds
	Hits   []Hit  // of those that wait

	callers []string // methods of the application that call it, the nearest first
}

// callers gives the methods of the application that call the one at a place of a stack.
func (w *Waiting) callers(s stacks.Sample, at int) (out []string) {
	for _, f := range s.Stack[at+1:] {
		if w.Owners.Of(w.Frames[f]) == hotcode.Application {
			out = append(out, w.nameOf(f))
		}
	}
	return out
}

// callName names the call that waits; those of Go's compiler by what stands in the source.
func callName(f stacks.Frame) string {
	for prefix, name := range map[string]string{
		"runtime.chansend": "a send to a channel", "runtime.chanrecv": "a receive from a channel",
		"runtime.selectgo": "a select", "internal/poll.runtime_pollWait": "the network",
	} {
		if strings.HasPrefix(f.Name, prefix) {
			return name
		}
	}
	return ShortName(f)
}

// mostHeld is the share of the time of goroutines that are past a channel, from which on it is them who hold what
// others wait for there: they work, or wait for something else than each other.
const mostHeld = 0.5

// Leases gives the sites where threads wait for something that others in the same method have: of a pool, or a permit.
// A queue is often one, and in Go a channel: a send or receive is a lease where others that came past it, in the same
// function or in the one that calls it, do their work there, and a queue where they wait for what became of it.
//
// Where nothing in its stack says that a thread has a request in hand, a lease looks like a worker that waits for work.
// Then the requests have to be as many as those that wait there and those that are past it.
func (w *Waiting) Leases(p *check.Pass) []*WaitSite {
	out := w.Sites(hotcode.ForPool)
	kinds := []hotcode.Wait{hotcode.ForQueue, hotcode.ForItem, hotcode.ForWakeUp}
	if w.IsJava() {
		kinds = []hotcode.Wait{hotcode.ForItem} // its channels are queues
	}
	for _, wait := range kinds {
		sites := slices.DeleteFunc(w.Sites(wait), func(s *WaitSite) bool { return !w.isLease(s) })
		if len(sites) == 0 {
			sites = slices.DeleteFunc(w.sites(wait, w.Waits.Blocked), func(s *WaitSite) bool {
				return !w.isLease(s) || !w.AreRequests(p, s)
			})
		}
		out = append(out, sites...)
	}
	slices.SortStableFunc(out, func(a, b *WaitSite) int { return cmp.Compare(b.Value, a.Value) })
	return out
}

// sameNumber is how far the requests that nobody past a site has may be from the threads that wait there, as a part:
// both are means of some ten looks.
const sameNumber = 0.2

// AreRequests tells whether the threads that wait at a site have a request each: there are as many in progress as these
// and those that are past it. Workers without work are more than that.
func (w *Waiting) AreRequests(p *check.Pass, site *WaitSite) bool {
	r, ok := RequestsOf(p)
	wait, past := w.Threads("", site.Value).Number(), w.Threads("", site.Inside).Number()
	return ok && math.Abs(r.InProgress.Number()-past-wait) <= sameNumber*wait
}

// isLease tells of a site at a channel whether it is a lease, whose holders' method it notes.
func (w *Waiting) isLease(site *WaitSite) bool {
	for _, method := range append([]string{site.Method}, site.callers[:min(len(site.callers), 2)]...) {
		inside, held := w.heldIn(method, site.Wait)
		if held > 0 && float64(held) >= mostHeld*float64(inside) {
			site.Holder, site.Inside = method, inside
			return true
		}
	}
	return false
}

// heldIn gives the time of threads in a method that do not wait as given, and the part of it in which they do not wait
// for each other.
func (w *Waiting) heldIn(method string, except hotcode.Wait) (inside, held int64) {
	in := w.Set(func(f stacks.Frame) bool { return hotcode.ReadableName(f) == method })
	for _, s := range w.Samples {
		wait, _ := w.Waits.Of(s)
		if s.Innermost(in) < 0 || wait == except || wait == hotcode.Idle {
			continue
		}
		inside += s.Value
		switch wait {
		case hotcode.ForQueue, hotcode.ForItem, hotcode.ForWakeUp, hotcode.ForThreads, hotcode.ForFuture:
		default:
			held += s.Value
		}
	}
	return inside, held
}

// Queues gives the sites where threads wait for room in a queue.
func (w *Waiting) Queues() []*WaitSite {
	out := w.Sites(hotcode.ForQueue)
	if !w.IsJava() {
		out = slices.DeleteFunc(out, w.isLease)
	}
	return out
}

// Sites groups the samples that wait for one kind of thing by the method of the application, the most time first.
func (w *Waiting) Sites(wait hotcode.Wait) []*WaitSite { return w.sites(wait, w.Waits.Of) }

// nameOf is that of a frame, as its author knows it.
func (w *Waiting) nameOf(frame int) string { return hotcode.ReadableName(w.Frames[frame]) }

func (w *Waiting) sites(wait hotcode.Wait, of func(stacks.Sample) (hotcode.Wait, int)) []*WaitSite {
	var hits []Hit
	first := map[string]*WaitSite{}
	for _, s := range w.Samples {
		is, at := of(s)
		if is != wait {
			continue
		}
		h := Hit{Sample: s, At: at}
		hits = append(hits, h)
		place := w.Owners.Nearest(w.Profile, s.Stack, h.At, nil)
		name := w.nameOf(s.Stack[place.At])
		if first[name] == nil {
			first[name] = &WaitSite{
				Wait: wait, Frame: callName(w.Frames[s.Stack[h.At]]), Pool: w.Pool(s), callers: w.callers(s, place.At),
			}
		}
		first[name].Count += s.Count
		first[name].Hits = append(first[name].Hits, h)
	}
	var out []*WaitSite
	for _, c := range Culprits(w.Profile, w.Owners, hits, nil) {
		site := first[c.Method]
		site.Culprit, site.Holder = *c, c.Method
		site.Inside, _ = w.Inside(c.Method, wait)
		out = append(out, site)
	}
	return out
}

// Inside gives the time of threads in a method that do not wait for the given thing, and what they do, the most first:
// where threads wait for a lock or a connection in a method, others in it have one.
func (w *Waiting) Inside(method string, except hotcode.Wait) (total int64, parts []string) {
	in := w.Set(func(f stacks.Frame) bool { return hotcode.ReadableName(f) == method })
	sums := map[string]int64{}
	for _, s := range w.Samples {
		at := s.Innermost(in)
		wait, _ := w.Waits.Of(s)
		if at < 0 || wait == except || wait == hotcode.Idle {
			continue
		}
		what := "run"
		if wait != hotcode.NotWaiting {
			what = "wait for " + string(wait)
		}
		if at > 0 {
			what += " in " + ShortName(w.Frames[s.Stack[at-1]])
		}
		sums[what] += s.Value
		total += s.Value
	}
	var names []string
	for n := range sums {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]),
			strings.Compare(a, b))
	})
	for _, n := range names[:min(len(names), NamedCulprits)] {
		parts = append(parts, fmt.Sprintf("%s %s", quantity.Of("", float64(sums[n])/float64(total), quantity.Ratio).
			Text(), n))
	}
	return total, parts
}

// OthersWithWork says what threads do that have work and no request: what those with a request wait for is made by one
// of them, or by none.
func (w *Waiting) OthersWithWork() (out []string) {
	sums := stacks.Group(w.Profile, func(s stacks.Sample) string {
		wait, at := w.Waits.Of(s)
		if request, _ := w.Waits.Serves(s); request || wait == hotcode.Idle || len(s.Stack) == 0 {
			return ""
		}
		what := "running"
		if wait != hotcode.NotWaiting {
			what = "waiting for " + string(wait)
			if place := w.Owners.Nearest(w.Profile, s.Stack, at, nil); place.Owner == hotcode.Application {
				what += " in " + w.nameOf(s.Stack[place.At])
			}
		}
		return w.Pool(s) + " (" + what + ")"
	})
	for _, g := range sums {
		if threads := w.Threads("", g.Value); g.Key != "" && len(out) < NamedCulprits &&
			threads.Number() >= leastWithWork {
			out = append(out, fmt.Sprintf("%s of %s", threads.Text(), g.Key))
		}
	}
	return out
}

// leastWithWork is how many threads do one thing, on average, that are worth a word.
const leastWithWork = 0.1

// WithoutShare cuts the share off what [Waiting.Inside] says: "wait for a sleep in Dao.find" of "96 % wait for …".
func WithoutShare(part string) string {
	_, what, _ := strings.Cut(part, " % ")
	return what
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

// SampledSeverity is that of a share beyond its limit, which so many samples show: information where they are too few
// to believe in, and by chance alone the share could be below the limit.
func SampledSeverity(count int64, byChance bool) check.Severity {
	if count < FewSamples && byChance {
		return check.Info
	}
	return check.Warning
}

// SampledConfidence is that of a finding of so many samples.
func SampledConfidence(count int64, doubts []string) check.Confidence {
	switch {
	case count < FewSamples:
		return check.Low
	case len(doubts) > 0:
		return check.Medium
	}
	return check.High
}
