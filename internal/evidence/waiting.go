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

// A Waiting is a wall-clock profile of threads or goroutines, prepared to find what they wait for.
type Waiting struct {
	*stacks.Profile
	Waits  *hotcode.Waits
	Owners hotcode.Owners
}

// WaitingOf returns the wall-clock profile of the recording, else its profile of goroutines, else its profile of
// scripts.
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

// CoroutinesOf returns the profile of coroutines.
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

// MostWaited returns the kind of wait with the most time, and its samples; the first by name of equals.
func MostWaited(waits map[hotcode.Wait][]Hit) (wait hotcode.Wait, most []Hit) {
	for _, kind := range slices.Sorted(maps.Keys(waits)) {
		if hits := waits[kind]; Weigh(hits).Value > Weigh(most).Value {
			wait, most = kind, hits
		}
	}
	return wait, most
}

// IsJava reports whether the threads belong to a JVM.
func (w *Waiting) IsJava() bool { return w.Event == stacks.Wall }

// InGo reports whether the threads are goroutines.
func (w *Waiting) InGo() bool { return w.Event == stacks.Goroutine }

// Unit returns the unit of its threads.
func (w *Waiting) Unit() quantity.Unit {
	if w.InGo() {
		return quantity.Goroutines
	}
	return quantity.Threads
}

// Who returns what its threads are called in a sentence.
func (w *Waiting) Who() string { return string(w.Unit()) }

// Threads turns time summed over threads into how many threads that is at any moment.
func (w *Waiting) Threads(label string, value int64) quantity.Value {
	return quantity.Of("", float64(value)/1e9, quantity.Seconds).
		Per(quantity.Of("window", w.Duration.Seconds(), quantity.Seconds)).
		As(w.Unit()).Named("%s", label)
}

// WithWork returns how many threads wait and have work, on average.
func (w *Waiting) WithWork() quantity.Value {
	return w.Threads("threads with work that wait, mean", w.Filter(func(s stacks.Sample) bool {
		wait, _ := w.Waits.Of(s)
		return wait != hotcode.NotWaiting && wait != hotcode.Idle
	}).Total().Value)
}

// Opening returns how many threads wait for the network while they set up a connection or end one, on average, and
// how many wait for the network at all.
func (w *Waiting) Opening() (opening, network quantity.Value) {
	waits := w.Filter(func(s stacks.Sample) bool {
		wait, _ := w.Waits.Of(s)
		return wait == hotcode.ForNetwork
	})
	return w.Threads(w.Who()+" that open or close a connection, mean", waits.Filter(w.Waits.Opens).Total().Value),
		w.Threads(w.Who()+" that wait for the network, mean", waits.Total().Value)
}

// mostFull is the share of the CPUs from which on goroutines that wait for each other may really wait for a CPU: what
// is left is in pieces too short for more work.
const mostFull = 0.9

// CPUsFull reports whether as many goroutines run or are runnable as there are CPUs: goroutines that wait for one of
// them really wait for a CPU, and what the running ones do is unknown, because the stack of a running goroutine is
// not.
func (w *Waiting) CPUsFull(p *check.Pass) (full quantity.Value, ok bool) {
	cpus, ok := EffectiveCPUs(p)
	if !ok || w.IsJava() {
		return full, false
	}
	runs := w.Filter(func(s stacks.Sample) bool { return s.State == stacks.Running }).Total()
	full = w.Threads(w.Who()+" that run or are ready to", runs.Value)
	return full, full.Number() >= mostFull*cpus.Number()
}

// CPUMetrics returns the metrics that [Waiting.CPUsFull] reads.
func CPUMetrics() []metric.Metric {
	return []metric.Metric{metric.CPUsOnline, metric.TargetCPUs, metric.CgroupCpuset, metric.CgroupQuota}
}

// Pool returns the pool of a sample's thread. Goroutines that begin with the same function are one pool, and so are
// threads of a Python or PHP script, which have no names of their own.
func (w *Waiting) Pool(s stacks.Sample) string {
	if w.Event == stacks.ScriptWall {
		for i := len(s.Stack) - 1; i >= 0; i-- {
			f := w.Frames[s.Stack[i]]
			if strings.HasPrefix(f.Name, "RUBY:") { // Ruby names threads by their pool, or where they begin
				break
			}
			for _, outside := range []string{"py::<module>:", "PHP:{main} "} { // around all functions, or bin/gunicorn
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

// loopThreads are event loops by the names of their threads; the frames of their run loops show them, too.
var loopThreads = hotcode.ParsePatterns(
	"nioEventLoopGroup-*", "epollEventLoopGroup-*", "kqueueEventLoopGroup-*", "multiThreadIoEventLoopGroup-*",
	"reactor-http-*",
	"reactor-tcp-*", "lettuce-*EventLoop*", "vert.x-eventloop-thread-*", "XNIO-*I/O-*", "ktor-*", "*-eventloop-*",
)

// EventLoops returns the threads that run event loops, by their index in the profile.
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
