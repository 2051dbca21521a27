package evidence

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence/hotcode"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

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
	return waitingIn(p, event)
}

// CoroutinesOf gives the profile of coroutines.
func CoroutinesOf(p *check.Pass) (*Waiting, error) { return waitingIn(p, stacks.Coroutine) }

func waitingIn(p *check.Pass, event stacks.Event) (*Waiting, error) {
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

// MostWaited gives the kind of wait with the most time, and its samples; of equal ones the first by name.
func MostWaited(waits map[hotcode.Wait][]Hit) (wait hotcode.Wait, most []Hit) {
	for _, kind := range slices.Sorted(maps.Keys(waits)) {
		if hits := waits[kind]; Weigh(hits).Value > Weigh(most).Value {
			wait, most = kind, hits
		}
	}
	return wait, most
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

// WithWork is how many threads wait and have work, on average.
func (w *Waiting) WithWork() quantity.Value {
	return w.Threads("threads with work that wait, mean", w.Filter(func(s stacks.Sample) bool {
		wait, _ := w.Waits.Of(s)
		return wait != hotcode.NotWaiting && wait != hotcode.Idle
	}).Total().Value)
}

// Opening is how many threads wait for the network while they make a connection ready for use or end one, on average,
// and how many wait for the network at all.
func (w *Waiting) Opening() (opening, network quantity.Value) {
	waits := w.Filter(func(s stacks.Sample) bool {
		wait, _ := w.Waits.Of(s)
		return wait == hotcode.ForNetwork
	})
	return w.Threads(w.Who()+" that open or close a connection, mean", waits.Filter(w.Waits.Opens).Total().Value),
		w.Threads(w.Who()+" that wait for the network, mean", waits.Total().Value)
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

// Pool gives the pool of a sample's thread; goroutines that begin with the same function are one, and threads of a
// script of Python or PHP, which have no names of their own.
func (w *Waiting) Pool(s stacks.Sample) string {
	if w.Event == stacks.ScriptWall {
		for i := len(s.Stack) - 1; i >= 0; i-- {
			f := w.Frames[s.Stack[i]]
			if strings.HasPrefix(f.Name, "RUBY:") { // which names threads by their pool, or where they begin
				break
			}
			for _, outside := range []string{"py::<module>:", "PHP:{main} "} { // of functions, also of bin/gunicorn
				if script, ok := strings.CutPrefix(f.Name, outside); ok && !strings.HasPrefix(script, "<") {
					return path.Base(script)
				}
			}
			if w.Owners.Of(f) == hotcode.Application {
				return w.nameOf(s.Stack[i])
			}
		}
	}
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
