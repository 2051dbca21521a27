// Package scripts samples the functions of scripts that a target runs: in CPython, Ruby, Node.js and PHP.
//
// The samples of the CPUs show an interpreter's own machine code, or code that was made at run time and has no name,
// but not whose work it does. This package reads the stacks of scripts from the memory of the process ([python],
// [ruby], [node], [php]). It attaches, stops and writes nothing.
package scripts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/node"
	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/php"
	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/python"
	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/ruby"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// pace is the pace of the passes: one takes 0.1 ms for one busy thread, so that a single one is sampled 100 times a
// second.
var pace = collect.Passes{Share: 0.01, Least: 10 * time.Millisecond, Longest: 2 * time.Second}

const (
	// lookPeriod is how often the collector looks for processes that started meanwhile.
	lookPeriod = time.Second
	// maxProcesses bounds the interpreters that are read, those with the most CPU time first, and maxInspected the
	// processes that may be one: each costs 1 ms, most of it for the list of its mappings.
	maxProcesses, maxInspected = 32, 100
	// maxOpening bounds the CPU time for that: a process that is made to waste it takes seconds.
	maxOpening = 3 * time.Second
)

// Collectors lists this package's collector.
func Collectors() []collect.Collector {
	return []collect.Collector{{
		Name: "script-profile",
		Doc: "Functions that the target's scripts run on the CPUs: those of CPython 3.8 to 3.15, of Ruby " +
			"3.0 to 3.4 (tried with 3.1), of Node.js and of PHP 7.3 to 8.4 (tried with 8.2); how many threads of " +
			"CPython and Ruby want the interpreter's lock; and what coroutines and greenlets of CPython and async " +
			"functions of Node.js await.",
		Overhead: "0.1 ms for a sample of a thread, so many that it takes 1 % of a CPU: 100 a second of one busy " +
			"thread, 20 of five; once 5 to 50 ms for each interpreter; 1 % of a CPU to search for " +
			"coroutines, 50 ms for 100 MiB of its memory",
		Provides: []metric.Metric{
			metric.ScriptProfileSamples, metric.ScriptRuntime, metric.ScriptLockWait,
			metric.ScriptWallProfileSamples, metric.CoroutineProfileSamples,
		},
		Pace: collect.AtEnd,
		Open: open,
	}}
}

// A thread is what was seen of a thread.
type thread struct {
	key        host.TaskID
	pid        int
	comm       string
	young      bool         // it began after the first pass
	begin, end uint64       // CPU time in ticks, when it was first and last looked at
	samples    [kinds]int64 // by profile: see onCPU
	index      [kinds]int   // in the profiles
}

// An interpreter reads a process that runs scripts.
type interpreter interface {
	// pass takes samples of its threads.
	pass(s *source)
	// wanting returns the mean number of threads that wait for the interpreter's lock. ok is false if the interpreter
	// has none, or was not looked at.
	wanting() (threads float64, ok bool)
	// runtime returns the interpreter's name, for people.
	runtime() string
	// unseen returns the CPU time in ticks, since the interpreter was opened, of threads of scripts that have ended by
	// now.
	unseen(s *source) uint64
	close()
}

// A process is a process of the target that runs scripts.
type process struct {
	pid         int
	interpreter interpreter
}

// source samples in a goroutine of its own between Open and Sample.
type source struct {
	env        collect.Env
	began      time.Time
	hz         int
	mu         sync.Mutex     // of all below: one pass at a time
	watch      *collect.Watch // of threads
	tasksWatch *collect.Watch // of coroutines, and async functions
	buf        []byte
	processes  []process
	known      map[host.TaskID]bool // processes looked into, interpreters or not, by their first threads
	opening    time.Duration        // CPU time that looking into processes took
	refused    error                // why a process could not be read
	looked     time.Time
	threads    map[host.TaskID]*thread
	profiles   [kinds]*stacks.Builder // see onCPU
	// what threads of Python and Ruby do, also while they wait, and what event loops of Node.js and scripts of PHP
	// wait for
	waits    *stacks.Builder
	searches []*tasks
	tasks    *stacks.Builder // what coroutines of Python and async functions of Node.js wait for
	frames   []int           // reused
	lost     int64
	first    bool // the first pass is not over yet
}

func open(ctx context.Context, env collect.Env) (collect.Source, error) {
	if env.Target.Kind == host.KindHost {
		return nil, collect.Unavailable(recording.StatusUnsupported,
			"name a target with --pid, --comm, --cgroup or --container",
			"it is read for a target only, and the whole host was diagnosed")
	}
	s := &source{
		env: env, began: time.Now(), hz: env.Host.Facts().UserHZ, known: map[host.TaskID]bool{},
		threads: map[host.TaskID]*thread{}, first: true, waits: stacks.NewBuilder(stacks.ScriptWall),
		tasks: stacks.NewBuilder(stacks.Coroutine),
	}
	for i := range s.profiles {
		s.profiles[i] = stacks.NewBuilder(stacks.Script)
	}
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	s.watch = env.Watch(ctx, "stacks of scripts", pace, s.pass)
	s.tasksWatch = env.Watch(ctx, "coroutines", taskPace, s.search)
	return s, nil
}

// look finds interpreters among the target's processes that were not looked into before.
func (s *source) look(ctx context.Context) error {
	s.looked = time.Now()
	members, err := s.env.Host.LateMembers(ctx, s.env.Target)
	if err != nil {
		return fmt.Errorf("list the target's processes: %w", err)
	}
	slices.SortStableFunc(members, func(x, y host.Process) int {
		return int(y.UTime+y.STime) - int(x.UTime+x.STime) // ticks since it began
	})
	for _, m := range members[:min(len(members), maxInspected)] {
		key := m.Task()
		if s.known[key] || ctx.Err() != nil || len(s.processes) >= maxProcesses || s.opening > maxOpening {
			continue
		}
		began := collect.ThreadCPU()
		p, err := firewall.Parse(fmt.Sprintf("process %d", m.PID), func() (interpreter, error) { return s.open(m.PID) })
		s.opening += collect.ThreadCPU() - began
		switch {
		case err == nil:
			s.known[key] = true
			s.processes = append(s.processes, process{m.PID, p})
		case errors.Is(err, errNone):
			s.known[key] = true
		default: // it may only start
			s.refused = fmt.Errorf("process %d: %w", m.PID, err)
		}
	}
	return ctx.Err()
}

// errNone says that a process runs no scripts that this package reads.
var errNone = errors.New("it runs no scripts")

// open looks into a process for an interpreter of each kind.
func (s *source) open(pid int) (interpreter, error) {
	dir := s.env.Host.Proc + "/" + strconv.Itoa(pid)
	py, err := python.Open(dir, pid)
	if err == nil {
		return s.python(pid, py), nil
	}
	if !errors.Is(err, python.ErrNone) {
		return nil, err
	}
	rb, err := ruby.Open(dir, pid)
	if err == nil {
		return s.threaded(pid, &rubyReader{process: rb}), nil
	}
	if !errors.Is(err, ruby.ErrNone) {
		return nil, err
	}
	page, err := php.Open(dir, pid)
	if err == nil {
		return &phpProcess{pid: pid, scripts: page, waits: time.Now()}, nil
	}
	if !errors.Is(err, php.ErrNone) {
		return nil, err
	}
	js, err := node.Open(dir, pid)
	if errors.Is(err, node.ErrNone) {
		return nil, errNone
	}
	if err != nil {
		return nil, err
	}
	return s.node(pid, js), nil
}

// python returns a process of Python. Its coroutines or greenlets are looked for where they can be found.
func (s *source) python(pid int, of *python.Process) *threadedProcess {
	scripts := &pythonReader{process: of}
	p := s.threaded(pid, scripts)
	switch {
	case of.HasGreenlets():
		s.tasksBy(scripts.greenlets)
	case of.KnowsCoroutines():
		s.tasksBy(scripts.tasks)
	}
	return p
}

func (s *source) threaded(pid int, scripts reader) *threadedProcess {
	return &threadedProcess{pid: pid, scripts: scripts, dead: s.ticksOfEnded(pid), lastWaits: time.Now()}
}

// pass looks at the threads of all interpreters.
func (s *source) pass(ctx context.Context) (idle bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) > lookPeriod {
		if err := s.look(ctx); err != nil {
			return false, err
		}
	}
	for _, p := range s.processes {
		if ctx.Err() == nil {
			p.interpreter.pass(s)
		}
	}
	s.first = false
	return len(s.processes) == 0, nil
}

// thread returns what is known of a thread, and its state; nil if it has ended.
func (s *source) thread(pid, tid int) (*thread, byte) {
	st, buf, err := s.env.Host.ReadStat(pid, tid, s.buf)
	s.buf = buf
	if err != nil {
		return nil, 0
	}
	key := st.Task()
	t := s.threads[key]
	if t == nil {
		t = &thread{key: key, pid: pid, comm: st.Comm, young: !s.first}
		for i, b := range s.profiles {
			t.index[i] = b.Thread(stacks.Thread{ID: tid, Name: st.Comm})
		}
		if s.first {
			t.begin = st.UTime + st.STime
		}
		s.threads[key] = t
	}
	t.end = st.UTime + st.STime
	return t, st.State
}

// running returns a thread if it is on a CPU or ready for one, and nil otherwise.
func (s *source) running(pid, tid int) *thread {
	t, state := s.thread(pid, tid)
	if state != 'R' {
		return nil
	}
	return t
}

// add counts a sample of a thread. Its stack is in s.frames.
func (s *source) add(t *thread, where int) {
	t.samples[where]++
	s.profiles[where].Add(stacks.Sample{Stack: s.frames, Thread: t.index[where], Count: 1})
}

// The profiles in which samples are kept: of threads that were on a CPU before and after the stack was read, of
// threads that were ready for one, and of threads that had left it meanwhile.
const (
	onCPU = iota
	ready
	left
	kinds
)

// leastOnCPU is the share of the samples that threads which stayed on a CPU must have to stand for all. Threads that
// hand over to each other after some 10 µs are never there for the 100 µs that it takes to read a stack.
const leastOnCPU = 0.1

// Sample ends the sampling and appends the profile.
func (s *source) Sample(_ context.Context, a *recording.Appender) error {
	if err := errors.Join(s.watch.Stop(), s.tasksWatch.Stop()); err != nil {
		return err
	}
	for _, t := range s.searches {
		t.add(s, time.Now())
	}
	p, waits := s.weighed(), s.waits.Profile()
	if s.refused != nil && len(p.Samples) == 0 && len(waits.Samples) == 0 {
		return collect.Unavailable(recording.StatusUnsupported, "", "%v", s.refused)
	}
	if len(s.processes) == 0 {
		a.None(metric.ScriptRuntime, metric.ScriptLockWait)
		a.Missing(metric.ScriptProfileSamples, recording.StatusUnsupported,
			"no process of the target runs Python (CPython), Ruby, Node.js or PHP", "")
		a.Missing(metric.ScriptWallProfileSamples, recording.StatusUnsupported,
			"no process of the target runs Python (CPython), Ruby, Node.js or PHP", "")
		a.Missing(metric.CoroutineProfileSamples, recording.StatusUnsupported, noCoroutines, "")
		return nil
	}
	a.None(metric.ScriptLockWait)
	for _, x := range s.processes {
		a.Info(metric.ScriptRuntime, strconv.Itoa(x.pid), x.interpreter.runtime())
		if threads, ok := x.interpreter.wanting(); ok {
			a.Gauge(metric.ScriptLockWait, threads*time.Since(s.began).Seconds(), strconv.Itoa(x.pid))
		}
	}
	a.Profile(p)
	for _, more := range []*stacks.Profile{waits, s.tasks.Profile()} {
		if len(more.Samples) > 0 {
			more.Engine, more.Duration = p.Engine, p.Duration
			a.Profile(more)
		}
	}
	return nil
}

// noCoroutines says why there is no profile of them.
const noCoroutines = "no process of the target runs Python 3.8 to 3.15, or Node.js"

// weighed gives each sample the CPU time that it stands for: that of its thread, divided by its samples. So the sums
// are those that the kernel counted, however many threads were ready and had no CPU. The unseen CPU time of threads
// that have ended is spread over the samples of those that began meanwhile.
func (s *source) weighed() *stacks.Profile {
	where := s.kind()
	p := s.profiles[where].Profile()
	each, young := map[int]float64{}, map[int][]*thread{} // ticks of a sample, by thread; by process
	for _, t := range s.threads {
		if t.samples[where] == 0 {
			continue
		}
		// A thread has run for at least a part of a tick.
		each[t.key.ID] = float64(max(t.end-t.begin, 1)) / float64(t.samples[where])
		if t.young {
			young[t.pid] = append(young[t.pid], t)
		}
	}
	for _, x := range s.processes {
		s.spread(each, young[x.pid], float64(x.interpreter.unseen(s)), where)
	}
	tick := float64(time.Second) / float64(s.hz)
	for i := range p.Samples {
		x := &p.Samples[i]
		x.Value = int64(float64(x.Count) * each[p.ThreadOf(*x).ID] * tick)
	}
	p.Engine = "perfdoctor, from the memory of the interpreter"
	p.Duration = time.Since(s.began)
	p.Lost += s.lost
	return p
}

// spread divides the ticks that threads had together, less those that were seen, among all of their samples.
func (s *source) spread(each map[int]float64, threads []*thread, ticks float64, where int) {
	samples := 0.0
	for _, t := range threads {
		ticks -= float64(t.end - t.begin)
		samples += float64(t.samples[where])
	}
	if samples == 0 || ticks <= 0 {
		return
	}
	for _, t := range threads {
		each[t.key.ID] += ticks / samples
	}
}

// kind returns which samples stand for all: those of threads that stayed on a CPU, unless they are few; otherwise
// those of ready threads, where the kernel does not tell these apart; otherwise those of threads that had left the
// CPU.
func (s *source) kind() int {
	var n [kinds]float64
	for _, t := range s.threads {
		for i := range n {
			n[i] += float64(t.samples[i])
		}
	}
	switch {
	case n[onCPU] > 0 && n[onCPU] >= leastOnCPU*(n[onCPU]+n[left]):
		return onCPU
	case n[ready] > n[left]:
		return ready
	}
	return left
}

// Close ends the sampling.
func (s *source) Close() error {
	_, _ = s.watch.Stop(), s.tasksWatch.Stop() // Sample reports their errors
	for _, p := range s.processes {
		p.interpreter.close()
	}
	return nil
}
