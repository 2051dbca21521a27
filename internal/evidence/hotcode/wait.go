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
	ForItem    Wait = "an item of a queue" // of a thread that serves a request; others at a queue are idle
	ForNetwork Wait = "the network"
	ForName    Wait = "a name server" // of goroutines: a thread's is known by the port that it asks
	ForGC      Wait = "the collector" // of garbage, of goroutines that are to help it
	ForLock    Wait = "a lock"
	ForFuture  Wait = "another thread's result"
	ForThreads Wait = "other threads to get there" // at a latch, a barrier, a join
	ForChild   Wait = "a child process"
	ForFile    Wait = "a file"
	ForSleep   Wait = "a sleep"
	ForWakeUp  Wait = "a wake-up"     // parked or in Object.wait, for what no row knows
	ForNative  Wait = "native code"   // asleep in a call of machine code that no row knows
	ForCall    Wait = "a system call" // of a goroutine, in one that no row knows
)

// A waitRow are calls in which threads wait for one thing.
type waitRow struct {
	wait  Wait
	calls []Pattern
}

// A waitTable has what is known of the functions in which threads of one language wait.
type waitTable struct {
	// calls say what is waited for. What they park with says nothing, and is in no row.
	calls []waitRow
	// callers are calls whose name says more than that of the call in them: a lease of a pool takes from a queue, a
	// rate limiter sleeps, and so does a worker that has no work. They count where no code of the application is
	// between them and the call.
	callers []waitRow
	// acquires are how a thread waits for a lock that is nobody's but the program's own.
	acquires []Pattern
	// parks are how a thread waits at all, for stacks whose state the profiler did not tell.
	parks []Pattern
	// loops are the run loops of event loops.
	loops []Pattern
	// turns are pools whose threads take turns at a loop, so that none of them is its own.
	turns []Pattern
	// requests are of servers that have a request in hand. None of them is in the stack of a thread without one.
	requests []Pattern
	// tasks are of executors that have a task in hand; a worker that waits for one has them, too.
	tasks []Pattern
	// mains are the methods that a program begins with.
	mains []Pattern
	// workers are the loops of a queue's workers, which have a task in hand or wait for one.
	workers []Pattern
	// opens are calls of a client that make a connection ready for use, with its handshakes and the login, or end one.
	opens []Pattern
}

// Waits tells of samples of one wall-clock profile what their threads wait for.
type Waits struct {
	p              *stacks.Profile
	event          stacks.Event
	calls, callers []Wait     // by frame; empty for one that is in no row
	own            stacks.Set // code of the application: what calls it says nothing of the wait
	program        stacks.Set // what is Java or Go: all else are threads of the runtime itself, or its insides

	mains, acquires, parks, loops, turns, requests, tasks, workers, opens stacks.Set
}

// WaitsOf prepares for a profile of a process whose code is told apart by owners.
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

// waitOfFrames gives the wait of each frame of a profile: that of the first row that has it.
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

// Of tells what the thread of a sample waits for, and the place in its stack of the call that says so, 0 when none
// does. The innermost calls decide, up to the first that is the application's: what called that one, such as the
// executor at the bottom of each worker's stack, waits for nothing. A thread that runs is not waiting, whatever its
// frames are called: one that parses what it reads has read() in its stack all the time.
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

// Blocked is Of for those who know better whether there is work: what a thread without any waits for.
func (w *Waits) Blocked(s stacks.Sample) (wait Wait, at int) {
	if wait, at, _ = w.named(s); !w.stands(s, wait) {
		return NotWaiting, 0
	}
	return wait, at
}

// named gives what a thread waits for by its calls, and the place of the innermost that is the application's: the
// length of the stack if none is.
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

// called gives what the innermost calls up to end wait for by their names, nothing where no row knows one.
func (w *Waits) called(s stacks.Sample, end int) (wait Wait, at int) {
	for i, f := range s.Stack[:end] {
		if wait == "" && w.calls[f] != "" {
			wait, at = w.calls[f], i
		}
		if caller := w.callers[f]; caller != "" {
			if wait != "" && !w.yields(wait, caller, f) {
				return wait, at
			}
			if wait, at = caller, i; caller != ForWakeUp { // who waits for a condition is called by who says for which
				return wait, at
			}
		}
	}
	return wait, at
}

// yields tells the calls whose callers may say more. Who waits for a lock, a file or an answer does so, whoever calls.
func (w *Waits) yields(call, caller Wait, frame int) bool {
	switch call {
	case ForItem, ForSleep, ForFuture, ForThreads, ForPool, ForWakeUp, ForQueue:
		return true
	case ForNetwork: // accept polls a socket, too
		// A thread of Ruby that sleeps or waits for another one polls for signals meanwhile (thread_pthread.c).
		return caller == Idle || builtin(w.p.Frames[frame].Name)
	case ForLock: // of a script the kernel knows a futex: a lock is what is left of it
		return w.event == stacks.ScriptWall
	}
	return false
}

// parked gives what a thread waits for whose calls no row knows.
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
	case w.event == stacks.Coroutine: // by whom it is woken no row knows
		return ForWakeUp, 0
	case s.State == stacks.Sleeping && w.event != stacks.Wall:
		return ForCall, 0
	case s.State == stacks.Sleeping:
		return ForNative, 0
	}
	return NotWaiting, 0
}

// hasNoWork tells threads that wait for work to come, or for the end of the others: a consumer at its queue, a
// library's housekeeper without any code of the application, a main method that has started the rest. One with a
// request in hand has work.
func (w *Waits) hasNoWork(s stacks.Sample, wait Wait, end int) bool {
	if request, _ := w.Serves(s); request {
		return false
	}
	switch wait {
	case ForItem:
		return true
	case ForNetwork:
		// A connection that a program has wrapped is read by its own code, which a server calls for the next request.
		return w.event != stacks.Wall &&
			slices.ContainsFunc(s.Stack, func(f int) bool { return w.callers[f] == Idle })
	case ForWakeUp:
		return w.event != stacks.Wall || end == len(s.Stack) || w.isMain(s) // a select is how to wait for work
	case ForThreads:
		return end == len(s.Stack) || w.isMain(s)
	case ForSleep:
		return end == len(s.Stack)
	}
	return false
}

// isMain tells the threads that a main method began.
func (w *Waits) isMain(s stacks.Sample) bool {
	for i := len(s.Stack) - 1; i >= 0; i-- {
		if f := s.Stack[i]; w.program[f] {
			return w.mains[f]
		}
	}
	return false
}

// Serves tells whether a thread has a request of a server in hand, or else is a worker of an executor. An event loop
// serves requests.
func (w *Waits) Serves(s stacks.Sample) (request, task bool) {
	return s.Innermost(w.requests) >= 0 || w.Loops(s), s.Innermost(w.tasks) >= 0
}

// Works tells whether a thread is a worker of a queue, with a task or without.
func (w *Waits) Works(s stacks.Sample) bool { return s.Innermost(w.workers) >= 0 }

// Opens tells whether a thread makes a connection ready for use, or ends one.
func (w *Waits) Opens(s stacks.Sample) bool { return s.Innermost(w.opens) >= 0 }

// Loops tells whether a thread is in the run loop of an event loop, and no other takes its turn.
func (w *Waits) Loops(s stacks.Sample) bool {
	return s.Innermost(w.loops) >= 0 && s.Innermost(w.turns) < 0
}

// TakesTurn tells whether a thread is in a loop that others of its pool run in turn with it.
func (w *Waits) TakesTurn(s stacks.Sample) bool {
	return s.Innermost(w.loops) >= 0 && s.Innermost(w.turns) >= 0
}

// stands keeps an unknown state from being taken for a wait: a queue's or pool's frames are there while it works, too.
func (w *Waits) stands(s stacks.Sample, wait Wait) bool {
	if s.State == stacks.Sleeping || wait == Idle || wait == ForSleep {
		return true
	}
	return s.Innermost(w.parks) >= 0 || len(s.Stack) > 0 && !w.p.Frames[s.Stack[0]].Managed()
}

// Program tells whether the program's own code is in a stack, or only the runtime's.
func (w *Waits) Program(s stacks.Sample) bool {
	return s.Innermost(w.program) >= 0
}

// WaitTime is how long threads wait for one thing at one place of the code.
type WaitTime struct {
	For     Wait
	Method  string  // the application's method nearest to the wait, else a library's
	Line    int     //
	In      string  // the native method of the JDK that they stand in, such as java.lang.Thread.start0; else empty
	Threads float64 // that wait so at any moment, on average
}

// nativeMethod names the JDK's method in whose machine code a thread waits.
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

// WaitTimes gives what threads with work wait for and where, at most n, the most first. Idle threads and those that run
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
