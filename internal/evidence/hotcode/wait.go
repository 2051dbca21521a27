package hotcode

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A Wait is what a thread waits for.
type Wait string

// The waits. Idle is a thread without work: a worker at its queue, an event loop at its selector, a server at accept.
const (
	NotWaiting Wait = "running"
	Idle       Wait = "idle"
	ForPool    Wait = "a pooled object" // a connection, a client, a permit of a Semaphore
	ForPermit  Wait = "a rate limiter"
	ForQueue   Wait = "room in a queue"
	ForItem    Wait = "an item of a queue" // for a thread that serves a request; others at a queue are idle
	ForNetwork Wait = "the network"
	ForName    Wait = "a name server" // for goroutines: a thread's is known by the port that it asks
	ForGC      Wait = "the collector" // garbage collector, for goroutines that have to assist it
	ForLock    Wait = "a lock"
	ForFuture  Wait = "another thread's result"
	ForThreads Wait = "other threads to get there" // at a latch, a barrier, a join
	ForChild   Wait = "a child process"
	ForFile    Wait = "a file"
	ForSleep   Wait = "a sleep"
	ForCarried Wait = "what a pinned virtual thread waits for"
	ForWakeUp  Wait = "a wake-up"     // parked or in Object.wait, for something in no row
	ForNative  Wait = "native code"   // asleep in a native call in no row
	ForCall    Wait = "a system call" // for a goroutine, in a call in no row
)

// A waitRow lists calls in which threads wait for one thing.
type waitRow struct {
	wait  Wait
	calls []Pattern
}

// A waitTable lists the known functions in which threads of one language wait.
type waitTable struct {
	// calls say what is waited for. The functions they park in say nothing, and are in no row.
	calls []waitRow
	// callers are calls whose name says more than the name of the call they make: a lease of a pool takes from a
	// queue, a rate limiter sleeps, and so does a worker without work. They count if no code of the application is
	// between them and the call.
	callers []waitRow
	// acquires are calls in which a thread waits for a lock of the program's own.
	acquires []Pattern
	// parks are calls in which any thread waits, for stacks whose state the profiler did not record.
	parks []Pattern
	// loops are the run loops of event loops.
	loops []Pattern
	// turns are pools whose threads take turns at a loop, so that no thread owns it.
	turns []Pattern
	// requests are calls of servers that have a request in hand. None of them is in the stack of a thread without a
	// request.
	requests []Pattern
	// tasks are calls of executors that have a task in hand; a worker that waits for a task has them, too.
	tasks []Pattern
	// mains are the methods that a program begins with.
	mains []Pattern
	// workers are the loops of a queue's workers, which have a task in hand or wait for one.
	workers []Pattern
	// opens are calls of a client that set up a connection, with its handshakes and the login, or end one.
	opens []Pattern
}

// Waits finds what the threads of samples of one wall-clock profile wait for.
type Waits struct {
	p              *stacks.Profile
	event          stacks.Event
	calls, callers []Wait     // by frame; empty for a frame in no row
	own            stacks.Set // code of the application: its callers say nothing about the wait
	program        stacks.Set // Java or Go code: all else is threads of the runtime itself, or its internals

	mains, acquires, parks, loops, turns, requests, tasks, workers, opens stacks.Set
}

// WaitsOf returns the Waits for a profile of a process, with the owners of its code.
func WaitsOf(p *stacks.Profile, owners Owners) *Waits {
	table := &javaWaits
	switch p.Event {
	case stacks.Goroutine:
		table = &goWaits
	case stacks.ScriptWall, stacks.Coroutine:
		table = &scriptWaits
	}
	w := &Waits{p: p, event: p.Event, calls: waitOfFrames(p, table.calls), callers: waitOfFrames(p, table.callers)}
	w.program = p.Set(func(f stacks.Frame) bool { return p.Event == stacks.Goroutine || f.Managed() })
	for i, f := range p.Frames {
		w.own = append(w.own, w.program[i] && w.callers[i] == "" && owners.Of(f) == Application)
	}
	w.mains, _ = Frames(p, table.mains)
	w.acquires, _ = Frames(p, table.acquires)
	w.parks, _ = Frames(p, table.parks)
	w.loops, _ = Frames(p, table.loops)
	w.turns, _ = Frames(p, table.turns)
	w.requests, _ = Frames(p, table.requests)
	w.tasks, _ = Frames(p, table.tasks)
	w.workers, _ = Frames(p, table.workers)
	w.opens, _ = Frames(p, table.opens)
	return w
}

// waitOfFrames returns the wait of each frame of a profile: the wait of the first row that matches it.
func waitOfFrames(p *stacks.Profile, rows []waitRow) []Wait {
	out := make([]Wait, len(p.Frames))
	for _, row := range rows {
		set, _ := Frames(p, row.calls)
		for i, in := range set {
			if in && out[i] == "" {
				out[i] = row.wait
			}
		}
	}
	return out
}

// Of returns what the thread of a sample waits for, and the index in its stack of the call that says so, 0 if none
// does. The innermost calls decide, up to the first of the application: the callers of that one, such as the executor
// at the bottom of each worker's stack, wait for nothing. A running thread is not waiting, whatever its frames are
// called: a thread that parses what it reads has read() in its stack all the time.
func (w *Waits) Of(s stacks.Sample) (wait Wait, at int) {
	wait, at, end := w.named(s)
	if wait != NotWaiting && w.hasNoWork(s, wait, end) {
		wait = Idle
	}
	if !w.stands(s, wait) {
		return NotWaiting, 0
	}
	return wait, at
}

// Blocked is Of for callers that know better whether a thread has work: it also returns what a thread without work
// waits for.
func (w *Waits) Blocked(s stacks.Sample) (wait Wait, at int) {
	if wait, at, _ = w.named(s); !w.stands(s, wait) {
		return NotWaiting, 0
	}
	return wait, at
}

// named returns what a thread waits for by its calls, and the index of the application's innermost call, or the
// length of the stack if there is none.
func (w *Waits) named(s stacks.Sample) (wait Wait, at, end int) {
	if s.State == stacks.Running {
		return NotWaiting, 0, 0
	}
	if end = s.Innermost(w.own); end < 0 {
		end = len(s.Stack)
	}
	if wait, at = w.called(s, end); wait == "" {
		wait, at = w.parked(s, end)
	}
	return wait, at, end
}

// called returns what the innermost calls up to end wait for by their names, or nothing if no row has any of them.
func (w *Waits) called(s stacks.Sample, end int) (wait Wait, at int) {
	for i, f := range s.Stack[:end] {
		if wait == "" && w.calls[f] != "" {
			wait, at = w.calls[f], i
		}
		if caller := w.callers[f]; caller != "" {
			if wait != "" && !w.yields(wait, caller, f) {
				return wait, at
			}
			if wait, at = caller, i; caller != ForWakeUp { // the caller of a wait for a condition says for which one
				return wait, at
			}
		}
	}
	return wait, at
}

// yields reports whether the caller of a call may say more about the wait. A wait for a lock, a file or an answer
// does not depend on the caller.
func (w *Waits) yields(call, caller Wait, frame int) bool {
	switch call {
	case ForItem, ForSleep, ForFuture, ForThreads, ForPool, ForWakeUp, ForQueue:
		return true
	case ForNetwork: // accept polls a socket, too
		// A thread of Ruby that sleeps or waits for another one polls for signals meanwhile (thread_pthread.c).
		return caller == Idle || builtin(w.p.Frames[frame].Name)
	case ForLock: // for a script the kernel knows only a futex; what no other row explains is a lock
		return w.event == stacks.ScriptWall
	}
	return false
}

// parked returns what a thread waits for if its calls are in no row.
func (w *Waits) parked(s stacks.Sample, end int) (wait Wait, at int) {
	inner := stacks.Sample{Stack: s.Stack[:end]}
	if i := inner.Outermost(w.acquires); i >= 0 {
		return ForLock, i
	}
	if i := inner.Outermost(w.parks); i >= 0 {
		return ForWakeUp, i
	}
	switch {
	case !w.Program(s):
		return Idle, 0 // threads of the runtime itself
	case w.event == stacks.Coroutine: // no row says who wakes it
		return ForWakeUp, 0
	case s.State == stacks.Sleeping && w.event != stacks.Wall:
		return ForCall, 0
	case s.State == stacks.Sleeping:
		return ForNative, 0
	}
	return NotWaiting, 0
}

// hasNoWork reports whether a thread waits for work, or for the end of the others: a consumer at its queue, a
// library's housekeeper without any code of the application, a main method that has started the rest. A thread with a
// request in hand has work.
func (w *Waits) hasNoWork(s stacks.Sample, wait Wait, end int) bool {
	if request, _ := w.Serves(s); request {
		return false
	}
	switch wait {
	case ForItem:
		return true
	case ForNetwork:
		// If a program wraps connections, its own code reads them, and a server calls that code for the next request.
		return w.event != stacks.Wall &&
			slices.ContainsFunc(s.Stack, func(f int) bool { return w.callers[f] == Idle })
	case ForWakeUp:
		return w.event != stacks.Wall || end == len(s.Stack) || w.isMain(s) // a select waits for work
	case ForThreads:
		return end == len(s.Stack) || w.isMain(s)
	case ForSleep:
		return end == len(s.Stack)
	}
	return false
}

// isMain reports whether a main method began the thread.
func (w *Waits) isMain(s stacks.Sample) bool {
	for i := len(s.Stack) - 1; i >= 0; i-- {
		if f := s.Stack[i]; w.program[f] {
			return w.mains[f]
		}
	}
	return false
}

// Serves reports whether a thread has a request of a server in hand, and whether it is a worker of an executor. An
// event loop serves requests.
func (w *Waits) Serves(s stacks.Sample) (request, task bool) {
	return s.Innermost(w.requests) >= 0 || w.Loops(s), s.Innermost(w.tasks) >= 0
}

// Works reports whether a thread is a worker of a queue, with or without a task.
func (w *Waits) Works(s stacks.Sample) bool { return s.Innermost(w.workers) >= 0 }

// Opens reports whether a thread sets up a connection, or ends one.
func (w *Waits) Opens(s stacks.Sample) bool { return s.Innermost(w.opens) >= 0 }

// Loops reports whether a thread is in the run loop of an event loop and does not take turns with others.
func (w *Waits) Loops(s stacks.Sample) bool {
	return s.Innermost(w.loops) >= 0 && s.Innermost(w.turns) < 0
}

// TakesTurn reports whether a thread is in a loop that it runs in turn with others of its pool.
func (w *Waits) TakesTurn(s stacks.Sample) bool {
	return s.Innermost(w.loops) >= 0 && s.Innermost(w.turns) >= 0
}

// stands reports whether a thread really waits, so that an unknown state does not count as a wait: the frames of a
// queue or pool are on the stack while it works, too.
func (w *Waits) stands(s stacks.Sample, wait Wait) bool {
	if s.State == stacks.Sleeping || wait == Idle || wait == ForSleep {
		return true
	}
	return s.Innermost(w.parks) >= 0 || len(s.Stack) > 0 && !w.p.Frames[s.Stack[0]].Managed()
}

// Program reports whether a stack contains the program's own code, not only the runtime's.
func (w *Waits) Program(s stacks.Sample) bool {
	return s.Innermost(w.program) >= 0
}

// A WaitTime is how long threads wait for one thing at one place of the code.
type WaitTime struct {
	For     Wait
	Method  string  // the application's method nearest to the wait, else a library's
	Line    int     //
	In      string  // the native JDK method that they stand in, such as java.lang.Thread.start0; else empty
	Threads float64 // that wait here at any moment, on average
}

// nativeMethod returns the native JDK method that a thread waits in.
func nativeMethod(p *stacks.Profile, owners Owners, s stacks.Sample, wait Wait) string {
	if wait != ForNative {
		return ""
	}
	for _, i := range s.Stack {
		if f := p.Frames[i]; f.Managed() {
			if owners.Of(f) == JDK {
				return ReadableName(f)
			}
			return ""
		}
	}
	return ""
}

// WaitTimes returns what threads with work wait for and where, at most n, the most first. Idle and running threads
// are left out.
func WaitTimes(p *stacks.Profile, owners Owners, n int) []WaitTime {
	type site struct {
		wait   Wait
		method string
		line   int
		in     string
	}
	waits := WaitsOf(p, owners)
	sums := stacks.Group(p, func(s stacks.Sample) site {
		wait, at := waits.Of(s)
		if wait == Idle || wait == NotWaiting {
			return site{wait: wait}
		}
		f := p.Frames[s.Stack[owners.Nearest(p, s.Stack, at, nil).At]]
		method, in := ReadableName(f), nativeMethod(p, owners, s, wait)
		if in == method {
			in = ""
		}
		return site{wait, method, f.Line, in}
	})
	var out []WaitTime
	for _, g := range sums {
		if g.Key.method != "" && p.Duration > 0 && len(out) < n {
			out = append(out, WaitTime{
				g.Key.wait, g.Key.method, g.Key.line, g.Key.in,
				float64(g.Value) / float64(p.Duration),
			})
		}
	}
	return out
}
