package ebpf

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/symbols"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/host/unwind"
	"github.com/perfdoctor/perfdoctor/internal/kernel/syscalls"
	"github.com/perfdoctor/perfdoctor/internal/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// waitPace: a look at a thread takes 15 µs, and the walk of a stack that was not met before 50.
var waitPace = collect.Passes{Share: 0.005, Least: 50 * time.Millisecond, Longest: time.Second}

const (
	// maxWaiting bounds the threads of a pass. Of more, others have their turn in the next.
	maxWaiting = 100
	// maxWaitStacks bounds the stacks that are kept, of 1 KB each at most.
	maxWaitStacks = 4096
	// maxInspected bounds the processes that are looked into at once, a millisecond each: the rest is in a second.
	maxInspected = 20
	// waitStackSize is how much of a stack is read, in bytes: as much as is taken of one that runs.
	waitStackSize = 16 << 10
)

// waitStacksCollector needs no BPF: it is here for the walks and names that the profiles have, too. The stacks of waits
// that BPF takes follow frame pointers, which most programs in C and C++ have none of.
func waitStacksCollector() collect.Collector {
	return collect.Collector{
		Name: "wait-stacks",
		Doc: "Where in a program of machine code its threads wait, as samples of their stacks: these are walked by " +
			"what the program says of its frames.",
		Overhead: "15 µs a thread and 50 µs a stack that was not met before, of so many that it takes 0.5 % of a CPU",
		Provides: []metric.Metric{metric.WaitProfileSamples},
		Pace:     collect.AtEnd,
		Open:     openWaitStacks,
	}
}

// processID names a process for good: its id may be given to another after it has ended.
type processID struct {
	pid   int
	start uint64
}

// A waitPlace is where a thread stands, as far as that is seen without its stack.
type waitPlace struct {
	pid, tid int
	call     string
	object   uint64 // of a futex its address
	sp, pc   uint64
}

// waitStacks samples in a goroutine of its own between Open and Sample.
type waitStacks struct {
	env    collect.Env
	walks  *symbols.Walker
	watch  *collect.Watch
	native map[processID]bool // of those that were looked into
	pids   []int              // that are, and live
	listed time.Time
	turn   int
	buf    []byte
	stack  []byte
	known  map[waitPlace][]uint64
	seen   map[waitPlace]time.Duration
	count  map[waitPlace]int64
	names  map[int]string // of threads
	began  time.Time
	last   time.Time
	lost   int64
	fault  error // the last, of perfdoctor itself
}

func openWaitStacks(ctx context.Context, env collect.Env) (collect.Source, error) {
	if env.Target.Kind == host.KindHost {
		return nil, collect.Unavailable(recording.StatusUnsupported,
			"name a target with --pid, --comm, --cgroup or --container",
			"it is read for a target only, and the whole host was diagnosed")
	}
	now := time.Now()
	s := &waitStacks{
		env: env, walks: symbols.NewWalker(env.Host.Proc), buf: make([]byte, 512), stack: make([]byte, waitStackSize),
		native: map[processID]bool{}, known: map[waitPlace][]uint64{}, seen: map[waitPlace]time.Duration{},
		count: map[waitPlace]int64{},
		names: map[int]string{}, began: now, last: now,
	}
	s.watch = env.Watch(ctx, "stacks of waits", waitPace, s.pass)
	return s, nil
}

// pass looks at threads, of many at some. Each stands for the time since the pass before.
func (s *waitStacks) pass(ctx context.Context) (idle bool, err error) {
	now := time.Now()
	if now.Sub(s.listed) > membersLast {
		if err := s.list(ctx); err != nil {
			return false, err
		}
		s.listed = now
	}
	var all []waitPlace
	for _, pid := range s.pids {
		for _, tid := range s.env.Host.TIDs(pid) {
			all = append(all, waitPlace{pid: pid, tid: tid})
		}
	}
	stride := (len(all) + maxWaiting - 1) / maxWaiting
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

// list finds the target's programs of machine code. The others have collectors that know their functions.
func (s *waitStacks) list(ctx context.Context) error {
	members, err := s.env.Host.LateMembers(ctx, s.env.Target)
	if err != nil {
		return fmt.Errorf("list the target's processes: %w", err)
	}
	s.pids = s.pids[:0]
	inspected := 0
	for _, m := range members {
		id := processID{m.PID, m.StartTime}
		native, known := s.native[id]
		if !known && inspected < maxInspected {
			native = s.env.Host.RuntimeOf(m) == host.RuntimeNative
			s.native[id] = native
			inspected++
		}
		if native {
			s.pids = append(s.pids, m.PID)
		}
	}
	return ctx.Err()
}

// look adds time to where a thread stands, if it waits.
func (s *waitStacks) look(at waitPlace, since time.Duration) {
	file := filepath.Join(s.env.Host.Proc, strconv.Itoa(at.pid), "task", strconv.Itoa(at.tid), "syscall")
	text, err := host.ReadRecord(file, s.buf)
	if err != nil {
		return // it has ended
	}
	e, err := syscalls.Parse(text)
	if err != nil || e.Running || e.Name == "" {
		return
	}
	at.call, at.sp, at.pc = e.Name, e.SP, e.PC
	if e.Name == "futex" {
		at.object = e.Args[0]
	}
	if _, known := s.known[at]; !known {
		if len(s.known) >= maxWaitStacks {
			s.lost++
			return
		}
		s.known[at] = s.walk(at)
	}
	s.seen[at] += since
	s.count[at]++
}

// walk gives the addresses of a thread's stack, the innermost first. One that wakes up meanwhile has another stack by
// then: what is read is of the same place, or cannot be walked.
func (s *waitStacks) walk(at waitPlace) []uint64 {
	memory := door.MemoryOf(filepath.Join(s.env.Host.Proc, strconv.Itoa(at.pid)))
	n, _ := memory.ReadAt(s.stack, int64(at.sp)) // it ends where the stack does
	list, _, err := s.walks.Walk(uint32(at.pid), unwind.Registers{PC: at.pc, SP: at.sp, OnlySP: true}, s.stack[:n])
	if err != nil {
		s.fault = err
	}
	return list
}

// Sample ends the sampling and appends the profile.
func (s *waitStacks) Sample(_ context.Context, a *recording.Appender) error {
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
	for at, list := range s.known {
		b.Add(stacks.Sample{
			Stack: s.frames(b, names, at.pid, list), Thread: b.Thread(stacks.Thread{ID: at.tid, Name: s.name(at)}),
			Class: at.class(), State: stacks.Sleeping, Count: s.count[at], Value: int64(s.seen[at]),
		})
	}
	names.AppendNameless(a)
	p := b.Profile()
	if len(p.Samples) == 0 && len(s.pids) == 0 {
		a.Missing(metric.WaitProfileSamples, recording.StatusUnsupported,
			"no process of the target is a program of machine code", "")
		return nil
	}
	p.Engine = "perfdoctor, from the memory of the program"
	p.Duration = s.last.Sub(s.began)
	p.Lost += s.lost
	a.Profile(p)
	return nil
}

func (s *waitStacks) frames(b *stacks.Builder, names *symbols.Symbolizer, pid int, list []uint64) (out []int) {
	for i, at := range list {
		if i > 0 {
			at-- // the call is before where it returns to
		}
		for _, f := range names.UserFrames(uint32(pid), at) {
			out = append(out, b.Frame(f))
		}
	}
	return out
}

// class is that of the off-CPU profile, as far as it is known.
func (at waitPlace) class() string {
	if at.object != 0 {
		return fmt.Sprintf("futex %#x", at.object)
	}
	return at.call
}

func (s *waitStacks) name(at waitPlace) string {
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
func (s *waitStacks) Close() error {
	_ = s.watch.Stop() // Sample tells of an error
	s.walks.Close()
	return nil
}
