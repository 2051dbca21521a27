package ruby

import (
	"errors"
	"time"
)

// ErrChanged says that a thread ran on while its stack was read, so the stack is not known.
var ErrChanged = errors.New("the thread ran on while its stack was read")

// ErrNoThreads says that the threads of a virtual machine were not found: the machine did not begin for some seconds,
// or its version is not known.
var ErrNoThreads = errors.New("its threads were not found: MRI 3.0 to 3.4 is known")

// A Thread is a thread of Ruby.
type Thread struct {
	// ID is the kernel's id, in the pid namespace of the process; 0 where it is not known.
	ID      int
	address uint64
	native  uint64 // address of its structure for the kernel's thread
}

// Offsets in a thread (rb_thread_struct in vm_core.h), and how much is read of one.
const (
	nextThread    = 0
	threadRactor  = 24
	threadMachine = 32
	threadSize    = 128
	// nativeSize is how much is searched of a thread's structure for the kernel's thread (rb_native_thread in
	// thread_pthread.h).
	nativeSize = 64
	// machineSize is how much of the virtual machine is searched: the main thread is in the first 48 bytes.
	machineSize = 64
	// maxThreads bounds what is listed: a damaged list may be a ring.
	maxThreads = 2000
	// lockSize is how far into a thread, or its structure for the kernel's, its condition variables may be, in bytes.
	lockSize = 512
)

// A place is where the pthread_t of a thread is: an offset in the thread, or in its structure for the kernel's thread.
type place struct {
	found bool
	at    int
}

// A program that was just started has no virtual machine yet. It is looked for at most maxSearches times, at least
// searchPeriod apart: a search takes some milliseconds.
const (
	maxSearches  = 50
	searchPeriod = 100 * time.Millisecond
)

// start returns the address of the virtual machine, 0 if it has not begun yet.
func (p *Process) start() (uint64, error) {
	if p.began {
		return p.read.Word(p.machine)
	}
	if time.Since(p.searched) < searchPeriod {
		return 0, nil
	}
	if p.searches++; p.searches > maxSearches {
		return 0, ErrNoThreads
	}
	p.searched = time.Now()
	if p.machine == 0 {
		p.machine = p.findMachine()
	}
	machine, begun := p.begun()
	p.began = begun
	return machine, nil
}

// begun returns the address of the virtual machine, and whether it has its main thread already; the address is 0 if
// not.
func (p *Process) begun() (machine uint64, ok bool) {
	machine, err := p.read.Word(p.machine)
	if err != nil {
		return 0, false
	}
	if _, _, err := p.mainThread(machine); err != nil {
		return 0, false
	}
	return machine, true
}

// Threads lists the threads of the main ractor; a program that just begins has none. Ruby knows them by
// pthread_self(3), and ids says which numbers are threads of the process.
func (p *Process) Threads(ids func(int) bool) (list []Thread, err error) {
	machine, err := p.start()
	if err != nil || machine == 0 {
		return nil, err
	}
	first, ractor, err := p.mainThread(machine)
	if err != nil {
		return nil, err
	}
	node := first
	for n := 0; n <= maxThreads && (n == 0 || node != first); n++ {
		var text [threadSize]byte
		if p.read(node, text[:]) != nil {
			return nil, ErrChanged
		}
		// The head of the list is in the ractor, and is not a thread.
		if word64(text[:], threadRactor) == ractor && word64(text[:], threadMachine) == machine {
			list = append(list, p.thread(node, text[:], ids))
		}
		node = word64(text[:], nextThread)
	}
	return list, nil
}

// findMachine looks for the pointer to the virtual machine in the data of Ruby's file, where it has no symbol: in
// builds of 3.3 and later that were stripped. It returns 0 if there is none.
func (p *Process) findMachine() uint64 {
	for _, s := range p.data {
		text := make([]byte, s.size)
		if p.read(s.from, text) != nil {
			continue
		}
		for at := 0; at+word <= len(text); at += word {
			if _, _, err := p.mainThread(word64(text, at)); err == nil {
				return s.from + uint64(at)
			}
		}
	}
	return 0
}

// mainThread finds the main thread: the virtual machine has it behind its ractor, and the thread leads to both.
func (p *Process) mainThread(machine uint64) (thread, ractor uint64, err error) {
	var text [machineSize]byte
	if machine == 0 || machine%word != 0 || p.read(machine, text[:]) != nil {
		return 0, 0, ErrNoThreads
	}
	for at := 0; at+2*word <= len(text); at += word {
		ractor, thread := word64(text[:], at), word64(text[:], at+word)
		if ractor == 0 || thread == 0 || ractor%word != 0 || thread%word != 0 {
			continue
		}
		var leads [threadMachine + word]byte
		if p.read(thread, leads[:]) == nil && word64(leads[:], threadRactor) == ractor &&
			word64(leads[:], threadMachine) == machine {
			return thread, ractor, nil
		}
	}
	return 0, 0, ErrNoThreads
}

// thread returns what is known of the thread at an address.
func (p *Process) thread(at uint64, text []byte, ids func(int) bool) Thread {
	t := Thread{address: at, native: at}
	if p.layout.native != 0 {
		t.native = word64(text, int(p.layout.native))
		var native [nativeSize]byte
		if t.native == 0 || p.read(t.native, native[:]) != nil {
			return t // it runs on no kernel thread now
		}
		text = native[:]
	}
	if p.pthread.found {
		t.ID = p.read.ThreadID(word64(text, p.pthread.at), ids)
	}
	if t.ID != 0 {
		return t
	}
	// Other words lead to a number that is a thread's by chance. Such a place is none of the next thread's.
	for i := 0; i+word <= len(text); i += word {
		if t.ID = p.read.ThreadID(word64(text, i), ids); t.ID != 0 {
			p.pthread = place{true, i}
			break
		}
	}
	return t
}

// waitFunctions are the methods of Ruby's own in which a thread waits for another one, or for a time.
var waitFunctions = map[string]bool{
	"sleep": true, "sleep_forever": true, "stop": true, "join": true, "value": true, "lock": true,
	"synchronize": true, "wait": true, "pop": true, "shift": true, "deq": true, "push": true, "enq": true, "<<": true,
	"take": true, "receive": true, "select": true, "timeout": true,
}

// HasLockAt reports whether an address at which a thread waits is in its own structure. This has the condition
// variables for the lock of the virtual machine (GVL), for sleep and for mutexes of programs (thread_pthread.c).
func (t Thread) HasLockAt(address uint64) bool {
	return near(address, t.address) || near(address, t.native)
}

// WantLock reports whether a thread that waits there, in these calls, wants the lock of the virtual machine. It does
// if it is in none of the methods that wait for something else.
func WantLock(calls []Call) bool {
	if len(calls) == 0 {
		return false
	}
	return !calls[0].Core || calls[0].Function != "" && !waitFunctions[nameOf(calls[0].Function)]
}

func near(address, from uint64) bool { return address >= from && address-from < lockSize }
