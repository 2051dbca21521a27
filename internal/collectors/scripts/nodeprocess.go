package scripts

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/node"
	"github.com/perfdoctor/perfdoctor/internal/collectors/symbols"
	"github.com/perfdoctor/perfdoctor/internal/kernel/perfevent"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

const (
	// stackPeriod is the CPU time of a thread between two samples of it. Each takes some 50 µs to read.
	stackPeriod = 10 * time.Millisecond
	// maxStackThreads bounds the threads whose stacks are taken, 0.5 MiB each. Most of Node's threads run no script.
	maxStackThreads = 32
)

// A nodeProcess is a Node.js process. The kernel takes the stacks of its threads.
type nodeProcess struct {
	pid     int
	scripts *node.Process
	threads map[int]*nodeThread
	watched int
	listed  time.Time
	refused bool
	walker  *symbols.Walker
	stack   []byte    // reused
	waits   time.Time // when the event loop's wait was last looked at
}

func (s *source) node(pid int, js *node.Process) *nodeProcess {
	p := &nodeProcess{pid: pid, scripts: js, threads: map[int]*nodeThread{}, waits: time.Now()}
	if js.KnowsAsync() {
		s.tasksBy(p.async)
	}
	return p
}

// async returns the functions that stand at an await.
func (p *nodeProcess) async() (list []task, whole bool, err error) {
	found, whole, err := p.scripts.Async()
	for _, a := range found {
		list = append(list, taskOf(a.Address, a.Calls, frameOfCall))
	}
	return list, whole, err
}

// A nodeThread is a thread of a Node.js process. Its stacks are not taken until it was seen to run.
type nodeThread struct {
	ticks  uint64 // CPU time when it was last looked at
	stacks *perfevent.StackSampler
}

// wanting returns none: JavaScript has no lock that threads share.
func (p *nodeProcess) wanting() (threads float64, ok bool) { return 0, false }

func (p *nodeProcess) runtime() string { return strings.TrimSpace("Node.js, V8 " + p.scripts.Version) }

func (p *nodeProcess) close() {
	if p.walker != nil {
		p.walker.Close()
	}
	for _, t := range p.threads {
		t.close()
	}
}

func (t *nodeThread) close() {
	if t.stacks != nil {
		t.stacks.Close()
		t.stacks = nil
	}
}

// pass takes the stacks that the kernel kept since the last one.
func (p *nodeProcess) pass(s *source) {
	if time.Since(p.listed) > listPeriod {
		p.list(s)
	}
	p.lookAtWait(s)
	for tid, t := range p.threads {
		if t.stacks == nil {
			continue
		}
		seen, _ := s.thread(p.pid, tid)
		if seen == nil {
			t.close() // it has ended
			continue
		}
		lost, err := t.stacks.Read(func(x perfevent.StackSample) { p.sample(s, seen, x) })
		s.lost += int64(lost)
		if err != nil {
			s.lost++
		}
	}
}

// lookAtWait samples what the event loop, the first thread of the process, waits for within a handler: the system
// call, and the functions that lead to it. While the loop waits for events, its stack has no code of V8.
func (p *nodeProcess) lookAtWait(s *source) {
	now := time.Now()
	since := now.Sub(p.waits)
	if since < waitPeriod {
		return
	}
	p.waits = now
	e, err := s.standsIn(p.pid, p.pid)
	if err != nil || e.Running || e.Name == "" {
		return
	}
	if p.walker == nil {
		p.walker, p.stack = symbols.NewWalker(s.env.Host.Proc), make([]byte, perfevent.StackSize)
	}
	registers, stack := p.walker.Waiting(p.pid, e.PC, e.SP, p.stack)
	fp, ok, err := p.walker.Beyond(uint32(p.pid), registers, stack)
	if err != nil {
		s.lost++
	}
	if !ok {
		return
	}
	calls := p.scripts.Stack(perfevent.StackSample{PC: e.PC, SP: e.SP, FP: fp, Stack: stack})
	seen, _ := s.thread(p.pid, p.pid)
	if len(calls) == 0 || seen == nil {
		return // it has ended, or waits for something of the runtime's
	}
	x := stacks.Sample{State: stacks.Sleeping, Count: 1, Value: int64(since)}
	x.Stack = append(x.Stack, s.waits.Frame(stacks.Frame{Name: e.Name, Kind: stacks.Kernel}))
	for _, c := range calls {
		x.Stack = append(x.Stack, s.waits.Frame(frameOfCall(c)))
	}
	x.Thread = s.waits.Thread(stacks.Thread{ID: p.pid, Name: seen.comm})
	s.waits.Add(x)
}

// unseen returns nothing: the threads that run JavaScript live as long as the process.
func (p *nodeProcess) unseen(*source) uint64 { return 0 }

// list finds threads that run. It keeps those that ended: the kernel does not reuse their numbers soon.
func (p *nodeProcess) list(s *source) {
	p.listed = time.Now()
	for _, tid := range s.env.Host.ThreadIDs(p.pid) {
		seen, state := s.thread(p.pid, tid)
		if seen == nil {
			continue
		}
		t := p.threads[tid]
		if t == nil {
			t = &nodeThread{ticks: seen.end}
			p.threads[tid] = t
		}
		if t.stacks == nil && (seen.end > t.ticks || state == 'R') {
			p.watch(s, tid, t)
		}
		t.ticks = seen.end
	}
}

// watch has the kernel take the stacks of a thread.
func (p *nodeProcess) watch(s *source, tid int, t *nodeThread) {
	if p.watched >= maxStackThreads || p.refused {
		return
	}
	sampler, err := perfevent.OpenStacks(tid, stackPeriod)
	switch {
	case errors.Is(err, unix.ESRCH): // it has ended
	case err != nil:
		p.refused, s.refused = true, fmt.Errorf("process %d: %w", p.pid, err)
	default:
		t.stacks = sampler
		p.watched++
	}
}

func (p *nodeProcess) sample(s *source, t *thread, x perfevent.StackSample) {
	b := s.profiles[onCPU]
	s.frames = s.frames[:0]
	for _, c := range p.scripts.Stack(x) {
		s.frames = append(s.frames, b.Frame(frameOfCall(c)))
	}
	s.add(t, onCPU)
}

func frameOfCall(c node.Call) stacks.Frame {
	return stacks.Frame{Name: nameOfCall(c), Line: c.Line, Kind: stacks.Compiled}
}

// nameOfCall names a function as V8 does in a file for perf (src/logging/log.cc), without the mark of its compiler.
func nameOfCall(c node.Call) string {
	function, file := c.Function, c.File
	if function == "" {
		function = "(anonymous)"
	}
	if file == "" {
		file = "node:v8"
	}
	return "JS:" + strings.ReplaceAll(function, " ", "_") + " " + file
}
