// Package scripts samples the functions that the interpreters of a target run: those of CPython.
//
// The samples of the CPUs show an interpreter's own machine code, and not whose work it does. This reads the stacks of
// scripts from the memory of the process ([python]): nothing is attached, stopped or written.
package scripts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/python"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// pace: passes take 0.1 ms for one busy thread, so that a single one is sampled 100 times a second.
var pace = collect.Passes{Share: 0.01, Least: 10 * time.Millisecond, Longest: 2 * time.Second}

const (
	// lookPeriod is how often processes that started meanwhile are looked for, and listPeriod threads.
	lookPeriod, listPeriod = time.Second, 100 * time.Millisecond
	// maxProcesses bounds the interpreters that are read, those with the most CPU time first, and maxInspected the
	// processes that may be one: each costs 1 ms, most of it for the list of its mappings.
	maxProcesses, maxInspected = 32, 100
	// maxThreads bounds the threads of a process in one pass, 40 µs each. The others have their turn in the next.
	maxThreads = 100
	// tries is how often a stack is read that the thread changes meanwhile.
	tries = 3
)

// Collectors lists this package's collector.
func Collectors() []collect.Collector {
	return []collect.Collector{{
		Name: "script-profile",
		Doc:  "Functions that the target's interpreters run on the CPUs: those of CPython 3.8 to 3.14.",
		Overhead: "0.1 ms for a busy thread and pass, of which there are so many that it takes 1 % of a CPU: 100 a " +
			"second of one thread, 20 of five; once 5 to 20 ms for each interpreter",
		Provides: []metric.Metric{metric.ScriptProfileSamples, metric.ScriptRuntime},
		Pace:     collect.AtEnd,
		Open:     open,
	}}
}

// threadKey names a thread for good: its id may be given to another after it has ended.
type threadKey struct {
	tid   int
	start uint64
}

// A thread is what was seen of one.
type thread struct {
	key        threadKey
	begin, end uint64   // CPU time in ticks, when it was first and last looked at
	samples    [2]int64 // by where they are kept: see source
	index      [2]int   // in the profiles
}

// A process is an interpreter of the target.
type process struct {
	pid     int
	scripts *python.Process
	ended   bool
	ids     map[int]int // of its threads, by those in its pid namespace
	named   time.Time   // when they were read
	list    []python.Thread
	next    time.Time // when its threads are to be listed again
	passes  int
}

// source samples in a goroutine of its own between Open and Sample.
type source struct {
	env       collect.Env
	began     time.Time
	hz        int
	watch     *collect.Watch
	buf       []byte
	processes []*process
	known     map[threadKey]bool // processes that are interpreters, and that are none, by their first threads
	refused   error              // why one could not be read
	looked    time.Time
	threads   map[threadKey]*thread
	// Samples of threads on a CPU, and of those that are ready for one.
	profiles [2]*stacks.Builder
	frames   []int // reused
	lost     int64
	first    bool // the pass that is the first
}

func open(ctx context.Context, env collect.Env) (collect.Source, error) {
	if env.Target.Kind == host.KindHost {
		return nil, collect.Unavailable(recording.StatusUnsupported,
			"name a target with --pid, --comm, --cgroup or --container",
			"it is read for a target only, and the whole host was diagnosed")
	}
	s := &source{
		env: env, began: time.Now(), hz: env.Host.Facts().UserHZ, known: map[threadKey]bool{},
		threads: map[threadKey]*thread{}, first: true,
		profiles: [2]*stacks.Builder{stacks.NewBuilder(stacks.Script), stacks.NewBuilder(stacks.Script)},
	}
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	s.watch = collect.StartWatch(ctx, "stacks of scripts", pace, s.pass)
	return s, nil
}

// look finds interpreters among the target's processes that were not looked into before.
func (s *source) look(ctx context.Context) error {
	s.looked = time.Now()
	members, err := s.env.Host.Members(ctx, s.env.Target)
	if err != nil {
		return fmt.Errorf("list the target's processes: %w", err)
	}
	slices.SortStableFunc(members, func(x, y host.Process) int {
		return int(y.UTime+y.STime) - int(x.UTime+x.STime) // ticks since it began
	})
	for _, m := range members[:min(len(members), maxInspected)] {
		key := threadKey{m.PID, m.StartTime}
		if s.known[key] || ctx.Err() != nil || len(s.processes) >= maxProcesses {
			continue
		}
		p, err := firewall.Parse(fmt.Sprintf("process %d", m.PID), func() (*python.Process, error) {
			return python.Open(s.env.Host.Proc+"/"+strconv.Itoa(m.PID), m.PID)
		})
		switch {
		case err == nil:
			s.known[key] = true
			s.processes = append(s.processes, &process{pid: m.PID, scripts: p})
		case errors.Is(err, python.ErrNone):
			s.known[key] = true
		default: // it may only start
			s.refused = fmt.Errorf("process %d: %w", m.PID, err)
		}
	}
	return ctx.Err()
}

// pass looks at the threads of all interpreters.
func (s *source) pass(ctx context.Context) (idle bool, err error) {
	if time.Since(s.looked) > lookPeriod {
		if err := s.look(ctx); err != nil {
			return false, err
		}
	}
	for _, p := range s.processes {
		if !p.ended && ctx.Err() == nil {
			s.passOf(p)
		}
	}
	s.first = false
	return len(s.processes) == 0, nil
}

// passOf looks at the threads of one, of many at some.
func (s *source) passOf(p *process) {
	if time.Now().After(p.next) && !s.list(p) {
		return
	}
	stride := (len(p.list) + maxThreads - 1) / maxThreads
	p.passes++
	for i, t := range p.list {
		if (i+p.passes)%stride != 0 {
			continue
		}
		if tid := p.ids[t.ID]; tid != 0 {
			if seen := s.running(p, tid); seen != nil {
				s.sample(p, t, tid, seen)
			}
		}
	}
}

// list lists the threads of a process, of which one that has ended has none. It takes 20 µs a thread, and as much to
// learn their ids, which is done less often; both take as much of a CPU as the passes at most.
func (s *source) list(p *process) bool {
	began := collect.ThreadCPU()
	if len(p.ids) == 0 || time.Since(p.named) > lookPeriod {
		p.ids, p.named = s.env.Host.ThreadIDs(p.pid), time.Now()
	}
	list, err := p.scripts.Threads(func(id int) bool { return p.ids[id] != 0 })
	if err != nil {
		p.ended = !errors.Is(err, python.ErrChanged)
		s.lost++
		return false
	}
	p.list = list
	cost := time.Duration(float64(collect.ThreadCPU()-began) / pace.Share)
	p.next = time.Now().Add(max(cost, listPeriod))
	return true
}

// running looks at a thread, and gives it where it is on a CPU or ready for one.
func (s *source) running(p *process, tid int) *thread {
	st, buf, err := s.env.Host.ReadStat(p.pid, tid, s.buf)
	s.buf = buf
	if err != nil {
		return nil
	}
	key := threadKey{tid, st.StartTime}
	t := s.threads[key]
	if t == nil {
		t = &thread{key: key}
		for i, b := range s.profiles {
			t.index[i] = b.Thread(stacks.Thread{ID: tid, Name: st.Comm})
		}
		if s.first {
			t.begin = st.UTime + st.STime
		}
		s.threads[key] = t
	}
	t.end = st.UTime + st.STime
	if st.State != 'R' {
		return nil
	}
	return t
}

// sample reads the stack of a thread that runs, unless it does not run any more when that was read.
func (s *source) sample(p *process, at python.Thread, tid int, t *thread) {
	var calls []python.Call
	var err error
	for range tries {
		if calls, err = p.scripts.Stack(at); !errors.Is(err, python.ErrChanged) {
			break
		}
	}
	if err != nil {
		s.lost++
		return
	}
	if s.running(p, tid) != t {
		return
	}
	where := onCPU
	if s.waitsForCPU(p.pid, tid) {
		where = ready
	}
	b := s.profiles[where]
	s.frames = s.frames[:0]
	for _, c := range calls {
		s.frames = append(s.frames, b.Frame(stacks.Frame{
			// As CPython itself writes it into a file for perf (Python/perf_trampoline.c).
			Name: "py::" + c.Function + ":" + c.File, Line: c.Line, Kind: stacks.Interpreted,
		}))
	}
	t.samples[where]++
	b.Add(stacks.Sample{Stack: s.frames, Thread: t.index[where], Count: 1})
}

// Where samples are kept.
const (
	onCPU = iota
	ready
)

// waitsForCPU tells whether a thread that is to run waits for a CPU: a thread that was just woken still stands where it
// waited, and would have the share of what it computes. The kernel shows a stack of such a thread, and on amd64 none of
// one that is on a CPU (__unwind_start in arch/x86/kernel/unwind_orc.c); on arm64 it shows an old one.
func (s *source) waitsForCPU(pid, tid int) bool {
	text, err := host.ReadFile(fmt.Sprintf("%s/%d/task/%d/stack", s.env.Host.Proc, pid, tid), s.buf)
	if err != nil {
		return false // it takes root
	}
	s.buf = text
	return len(text) > 0
}

// Sample ends the sampling and appends the profile.
func (s *source) Sample(_ context.Context, a *recording.Appender) error {
	if err := s.watch.Stop(); err != nil {
		return err
	}
	if len(s.processes) == 0 {
		if s.refused != nil {
			return collect.Unavailable(recording.StatusUnsupported, "", "%v", s.refused)
		}
		a.None(metric.ScriptRuntime)
		a.Missing(metric.ScriptProfileSamples, recording.StatusUnsupported,
			"no process of the target is a CPython interpreter", "")
		return nil
	}
	for _, p := range s.processes {
		a.Info(metric.ScriptRuntime, strconv.Itoa(p.pid), "CPython "+p.scripts.Version.String())
	}
	a.Profile(s.weighed())
	return nil
}

// weighed gives each sample the CPU time that it stands for: that of its thread, over its samples. So the sums are
// those that the kernel counted, however many threads were ready and had no CPU.
func (s *source) weighed() *stacks.Profile {
	p, where := s.profiles[onCPU].Profile(), onCPU
	if len(p.Samples) == 0 { // the kernel does not tell
		p, where = s.profiles[ready].Profile(), ready
	}
	each := map[int]int64{}
	for _, t := range s.threads {
		if t.samples[where] == 0 {
			continue
		}
		// A thread has run for a part of a tick at least.
		ran := time.Duration(max(t.end-t.begin, 1)) * time.Second / time.Duration(s.hz)
		each[t.key.tid] = int64(ran) / t.samples[where]
	}
	for i := range p.Samples {
		x := &p.Samples[i]
		x.Value = x.Count * each[p.ThreadOf(*x).ID]
	}
	p.Engine = "perfdoctor, from the memory of the interpreter"
	p.Duration = time.Since(s.began)
	p.Lost += s.lost
	return p
}

// Close ends the sampling.
func (s *source) Close() error {
	_ = s.watch.Stop() // Sample tells of an error
	return nil
}
