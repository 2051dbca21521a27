// Package stacks holds sampled stacks: where a program spends CPU time, waits, allocates or contends for locks.
//
// A Profile is independent of its source: any profiler measures it (async-profiler, perf events with BPF), a
// recording keeps it, and checks and reports read it. Names are as a person writes them: java.lang.String.concat,
// tcp_sendmsg, JVM_FillInStackTrace.
package stacks

import "time"

// An Event is what the values of a profile count.
type Event string

// The events. Values of Alloc are bytes, all others are nanoseconds.
const (
	CPU     Event = "cpu"        // the target on a CPU
	HostCPU Event = "host-cpu"   // any process on a CPU; a thread's id is its process's, its name the thread's
	Script  Event = "script-cpu" // what interpreters of the target run on a CPU, as functions of their scripts
	Wall    Event = "wall"       // each thread in turn, whether it runs or waits
	// Goroutine is each goroutine of a program in Go, whether it runs or waits. A thread is a goroutine: its id is
	// the runtime's, its name the function with which it began. For a running goroutine no other function is known.
	Goroutine Event = "goroutine"
	Alloc     Event = "alloc" // objects allocated, by class
	Lock      Event = "lock"  // time waited for a monitor or in LockSupport.park, by class of the lock
	// ScriptWall is each thread of an interpreter in turn, as functions of its scripts. The innermost frame of a
	// waiting thread is the system call in which it waits. For Node.js it is the event loop while that waits for no
	// event.
	ScriptWall Event = "script-wall"
	// Coroutine is each Python coroutine that stands at an await, as functions of its scripts. A thread is a
	// coroutine that no other one awaits. Its id is a number of its own, and its name is its function.
	Coroutine Event = "coroutine"
	OffCPU    Event = "off-cpu" // time not on a CPU, from switch to switch
	Waits     Event = "waits"   // threads of a program that wait in a system call, whenever one looked
)

// A Kind is what sort of code a frame is.
type Kind uint8

// The kinds of frame. Interpreted, Compiled and Inlined are frames of a managed runtime such as HotSpot.
const (
	Unknown     Kind = iota // an address without a symbol
	Interpreted             // bytecode in the interpreter
	Compiled                // a method compiled at run time
	Inlined                 // a method inlined into a compiled one
	Native                  // machine code of a program or library
	Kernel                  //
)

// A Frame is one call of a stack.
type Frame struct {
	Name   string // java.util.regex.Pattern.compile, memcpy, tcp_sendmsg; never empty
	Module string // of native and kernel frames: the file's base name, such as libjvm.so; may be empty
	Line   int    // of the source, 0 if unknown
	Kind   Kind
}

// Managed reports whether a runtime such as HotSpot compiled or interpreted the frame: it is Java.
func (f Frame) Managed() bool {
	return f.Kind == Interpreted || f.Kind == Compiled || f.Kind == Inlined
}

// A State is what a thread did when a wall-clock sample was taken.
type State uint8

// The states of wall-clock samples.
const (
	StateUnknown State = iota
	Running            // on a CPU, or ready for one
	Sleeping           // waiting: lock, sleep, blocking call
)

// A Thread is one thread of the target.
type Thread struct {
	ID   int    // the kernel's thread id in the host's pid namespace; 0 if unknown
	Name string // the full name, if the runtime knows it
}

// A Sample is one stack of one thread, with everything counted for it in one time bucket.
type Sample struct {
	Stack  []int         // indices into Profile.Frames, the innermost call first
	Thread int           // index into Profile.Threads, -1 if unknown
	Class  string        // Alloc: what was allocated; Lock: its class; OffCPU and Waits: what was waited for
	State  State         // Wall
	At     time.Duration // the beginning of the time bucket, since the profile began
	Count  int64         // samples or events
	Value  int64         // nanoseconds or bytes, already scaled by the sampling interval
}

// A Profile is what was sampled of one event in one window.
type Profile struct {
	Event    Event
	Engine   string        // what took the samples, such as "async-profiler 4.6 perf_events"
	Interval int64         // between samples, in the unit of the values; 0 if every event was counted
	Duration time.Duration // of the window
	Bucket   time.Duration // that each time bucket lasts; 0 if the samples have no times
	Lost     int64         // samples that were taken and not kept
	Frames   []Frame       // each at most once
	Threads  []Thread      // each at most once
	Samples  []Sample
}

// Events lists all events, in the order in which reports show them.
func Events() []Event {
	return []Event{CPU, Script, HostCPU, Wall, Goroutine, ScriptWall, Coroutine, OffCPU, Waits, Lock, Alloc}
}
