// Package waitstacks samples where threads of machine-code programs wait. It needs no BPF: it walks their stacks with
// package symbols, as the CPU profile of a target does. BPF takes stacks of waits by frame pointers, and most C and
// C++ programs have none.
package waitstacks

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/dotnet"
	"github.com/perfdoctor/perfdoctor/internal/collectors/symbols"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/kernel/syscalls"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// pace: a look at a thread takes 15 µs, and the walk of a new stack 50.
var pace = collect.Passes{Share: 0.005, Least: 50 * time.Millisecond, Longest: time.Second}

const (
	// maxThreads bounds the threads of a pass. If there are more, the others have their turn in the next pass.
	maxThreads = 100
	// maxStacks bounds the stacks that are kept, of 1 KB each at most.
	maxStacks = 4096
	// membersLast is how long a list of the target's processes is used.
	membersLast = time.Second
	// maxInspected bounds the processes that are looked into at once, a millisecond each: the rest have their turn a
	// second later.
	maxInspected = 20
	// stackSize is how much of a stack is read, in bytes: as much as is taken of a running thread.
	stackSize = 16 << 10
)

// Collectors lists this package's collector.
func Collectors(dotNet *dotnet.Names) []collect.Collector {
	return []collect.Collector{{
		Name: "wait-stacks",
		Doc: "Where in a program of machine code its threads wait, as samples of their stacks: these are walked by " +
			"what the program says of its frames. And what threads of .NET do, with the names of methods, for which " +
			"its diagnostic port is asked when the window is over.",
		Overhead: "15 µs a thread and 50 µs a stack that was not met before, of so many that it takes 0.5 % of a CPU",
		Provides: []metric.Metric{metric.WaitProfileSamples, metric.ScriptWallProfileSamples},
		Pace:     collect.AtEnd,
		Open: func(ctx context.Context, env collect.Env) (collect.Source, error) {
			return open(ctx, env, dotNet)
		},
	}}
}

// A place is where a thread is, as far as that is known without its stack.
type place struct {
	pid, tid int
	call     string
	object   uint64 // the address of a futex
	sp, pc   uint64
}

// source samples in a goroutine of its own between Open and Sample.
type source struct {
	env    collect.Env
	walks  *symbols.Walker
	watch  *collect.Watch
	native map[host.TaskID]bool // of the processes that were looked into
	pids   []int                // of those that are native, and live
	listed time.Time
	turn   int
	buf    []byte
	stack  []byte
	known  map[place][]uint64
	seen   map[place]time.Duration
	count  map[place]int64
	names  map[int]string // of threads
	began  time.Time
	last   time.Time
	lost   int64
	fault  error // the last fault of perfdoctor itself

	dotNet  *dotnet.Names
	managed map[int]bool // processes of .NET
	ran     map[thread]time.Duration
}

// A thread is one of a process.
type thread struct{ pid, tid int }

func open(ctx context.Context, env collect.Env, dotNet *dotnet.Names) (collect.Source, error) {
	if env.Target.Kind == host.KindHost {
		return nil, collect.Unavailable(recording.StatusUnsupported,
			"name a target with --pid, --comm, --cgroup or --container",
			"it is read for a target only, and the whole host was diagnosed")
	}
	now := time.Now()
	s := &source{
		env: env, walks: symbols.NewWalker(env.Host.Proc), buf: make([]byte, 512), stack: make([]byte, stackSize),
		native: map[host.TaskID]bool{}, known: map[place][]uint64{}, seen: map[place]time.Duration{},
		count: map[place]int64{},
		names: map[int]string{}, began: now, last: now,
		dotNet: dotNet, managed: map[int]bool{}, ran: map[thread]time.Duration{},
	}
	s.watch = env.Watch(ctx, "stacks of waits", pace, s.pass)
	return s, nil
}

// pass looks at threads, or at some of them if there are many. Each stands for the time since the previous pass.
func (s *source) pass(ctx context.Context) (idle bool, err error) {
	now := time.Now()
	if now.Sub(s.listed) > membersLast {
		if err := s.list(ctx); err != nil {
			return false, err
		}
		s.listed = now
	}
	var all []place
	for _, pid := range s.pids {
		for _, tid := range s.env.Host.TIDs(pid) {
			all = append(all, place{pid: pid, tid: tid})
		}
	}
	stride := (len(all) + maxThreads - 1) / maxThreads
	since := now.Sub(s.last) * time.Duration(max(stride, 1))
	s.last = now
	s.turn++
	for i, at := range all {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if (i+s.turn)%stride == 0 {
			s.look(at, since)
		}
	}
	return len(all) == 0, nil
}

// list finds the target's programs that are walked. The others have collectors that know their functions.
func (s *source) list(ctx context.Context) error {
	members, err := s.env.Host.LateMembers(ctx, s.env.Target)
	if err != nil {
		return fmt.Errorf("list the target's processes: %w", err)
	}
	s.pids = s.pids[:0]
	inspected := 0
	for _, m := range members {
		id := m.Task()
		native, known := s.native[id]
		if !known && inspected < maxInspected {
			runtime := s.env.Host.RuntimeOf(m)
			native = walked(runtime)
			s.native[id], s.managed[m.PID] = native, runtime == host.RuntimeDotNet
			inspected++
		}
		if native {
			s.pids = append(s.pids, m.PID)
		}
	}
	return ctx.Err()
}

// walked reports whether a runtime's waits are visible only in machine code. This includes interpreters without a
// collector of their own, since their functions say what they wait for (rb_mutex_lock).
func walked(r host.Runtime) bool {
	switch r {
	case host.RuntimeNative, host.RuntimeRuby, host.RuntimePHP, host.RuntimeErlang, host.RuntimeDotNet:
		return true
	}
	return false
}

// look adds time to where a thread is, if it waits.
func (s *source) look(at place, since time.Duration) {
	file := filepath.Join(s.env.Host.Proc, strconv.Itoa(at.pid), "task", strconv.Itoa(at.tid), "syscall")
	text, err := host.ReadRecord(file, s.buf)
	if err != nil {
		return // it has ended
	}
	e, err := syscalls.Parse(text)
	if err == nil && (e.Running || e.Name == "") && s.managed[at.pid] { // or ready, as one that this look preempts is
		s.ran[thread{at.pid, at.tid}] += since
	}
	if err != nil || e.Running || e.Name == "" {
		return
	}
	at.call, at.sp, at.pc = e.Name, e.SP, e.PC
	if e.Name == "futex" {
		at.object = e.Args[0]
	}
	if _, known := s.known[at]; !known {
		if len(s.known) >= maxStacks {
			s.lost++
			return
		}
		s.known[at] = s.walk(at)
	}
	s.seen[at] += since
	s.count[at]++
}

// walk returns the addresses of a thread's stack, the innermost first. A thread that wakes up meanwhile has another
// stack by then: what is read belongs to the same place, or cannot be walked.
func (s *source) walk(at place) []uint64 {
	registers, stack := s.walks.Waiting(at.pid, at.pc, at.sp, s.stack)
	list, _, err := s.walks.Walk(uint32(at.pid), registers, stack)
	if err != nil {
		s.fault = err
	}
	return list
}

// Sample ends the sampling and appends the profile.
func (s *source) Sample(ctx context.Context, a *recording.Appender) error {
	if err := s.watch.Stop(); err != nil {
		return err
	}
	if s.fault != nil {
		return s.fault
	}
	b := stacks.NewBuilder(stacks.Waits)
	names := symbols.New(s.env.Host.Proc, nil)
	defer names.Close()
	names.Learn(s.walks, nil)
	s.appendDotNet(ctx, a, names)
	for at, list := range s.known {
		if s.managed[at.pid] {
			continue
		}
		b.Add(stacks.Sample{
			Stack: s.frames(b, names, at.pid, list), Thread: b.Thread(stacks.Thread{ID: at.tid, Name: s.name(at)}),
			Class: at.class(), State: stacks.Sleeping, Count: s.count[at], Value: int64(s.seen[at]),
		})
	}
	names.AppendNameless(a)
	p := b.Profile()
	others := slices.ContainsFunc(s.pids, func(pid int) bool { return !s.managed[pid] })
	if len(p.Samples) == 0 && !others {
		a.Missing(metric.WaitProfileSamples, recording.StatusUnsupported,
			"no process of the target waits in machine code alone: its runtime has a profile of its own, or none", "")
		return nil
	}
	p.Engine = "perfdoctor, from the memory of the program"
	p.Duration = s.last.Sub(s.began)
	p.Lost += s.lost
	a.Profile(p)
	return nil
}

func (s *source) frames(b *stacks.Builder, names *symbols.Symbolizer, pid int, list []uint64) (out []int) {
	for i, at := range list {
		if i > 0 {
			at-- // the call is before the return address
		}
		for _, f := range names.UserFrames(uint32(pid), at) {
			out = append(out, b.Frame(f))
		}
	}
	return out
}

// class returns the class of the off-CPU profile, as far as it is known.
func (at place) class() string {
	if at.object != 0 {
		return fmt.Sprintf("futex %#x", at.object)
	}
	return at.call
}

func (s *source) name(at place) string {
	name, known := s.names[at.tid]
	if !known {
		if st, _, err := s.env.Host.ReadStat(at.pid, at.tid, s.buf); err == nil {
			name = st.Comm
		}
		s.names[at.tid] = name
	}
	return name
}

// Close ends the sampling.
func (s *source) Close() error {
	_ = s.watch.Stop() // Sample reports an error
	s.walks.Close()
	return nil
}
