package hotcode

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// namedLocks are functions that wait for a lock whose futex does not look like a lock: in Ruby each thread waits on a
// condition variable of its own (thread_sync.c and thread_pthread.c), Rust's parking_lot parks the thread, and Rust's
// own RwLock counts its waiters in the futex (library/std/src/sys/sync/rwlock/futex.rs).
var namedLocks = []string{
	"rb_mutex_lock", "rb_mutex_synchronize",
	"parking_lot::raw_mutex::RawMutex::lock_slow", "parking_lot::raw_rwlock::RawRwLock::lock_",
	"std::sys::sync::rwlock::futex::RwLock::read_contended", "std::sys::sync::rwlock::futex::RwLock::write_contended",
}

// parkers are the functions that namedLocks call to wait.
var parkers = []string{"rb_native_", "parking_lot_core::"}

// A NamedLock is a place where threads wait for a lock that is recognised by the function they wait in.
type NamedLock struct {
	Function string
	At       string            // the first function of the program that called it, else Function
	Threads  map[string]string // those that ever waited there: their names, by thread id
	Count    int64             // samples
	Value    int64             // nanoseconds, of all threads
}

// NamedLocks returns the named locks of a profile of waits, by their callers, the longest waits first.
func NamedLocks(p *stacks.Profile) []*NamedLock {
	by := map[[2]string]*NamedLock{}
	for _, s := range p.Samples {
		function, at := lockOf(p, s.Stack)
		if function == "" {
			continue
		}
		l := by[[2]string{function, at}]
		if l == nil {
			l = &NamedLock{Function: function, At: at, Threads: map[string]string{}}
			by[[2]string{function, at}] = l
		}
		thread := p.ThreadOf(s)
		l.Threads[strconv.Itoa(thread.ID)] = thread.Name
		l.Count += s.Count
		l.Value += s.Value
	}
	var out []*NamedLock
	for _, l := range by {
		out = append(out, l)
	}
	slices.SortFunc(out, func(x, y *NamedLock) int {
		return cmp.Or(cmp.Compare(y.Value, x.Value), cmp.Compare(x.Function, y.Function), cmp.Compare(x.At, y.At))
	})
	return out
}

// lockOf returns the lock that a stack waits for, "" if it waits for something else: a wait for a condition variable
// has the lock's functions further out.
func lockOf(p *stacks.Profile, stack []int) (function, at string) {
	for i, index := range stack {
		f := p.Frames[index]
		switch {
		case f.Kind == stacks.Kernel, stacks.IsUnnamed(f.Name), machinery(f.Module, systemModules),
			machinery(f.Name, parkers):
			continue
		case !machinery(f.Name, namedLocks):
			return "", ""
		}
		if path := NativePath(p, stack[i+1:]); len(path) > 0 && !machinery(f.Name, []string{"rb_"}) {
			return f.Name, PlaceOf(path)
		}
		return f.Name, f.Name // what Ruby runs has no name in its machine code
	}
	return "", ""
}
