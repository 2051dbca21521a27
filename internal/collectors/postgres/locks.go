package postgres

import (
	"slices"

	"github.com/perfdoctor/perfdoctor/internal/host/memory"
)

// A wait is what a session waits for in the lock manager.
type wait struct {
	lock, request uint64 // addresses
	mode          uint32
}

// A server is a PostgreSQL server: the postmaster and its processes. They are forks of it, so all have the symbols
// and the shared memory at the same addresses.
type server struct {
	pid              int // of the postmaster; of a session if that is the target
	version          string
	states           []string // by their number
	myProc, myStatus uint64
	portal           uint64 // of ActivePortal; 0 where the symbol is missing
	memory           uint64 // of CurrentMemoryContext; 0 where the symbol is missing
	event            uint64 // of my_wait_event_info; 0 where the symbol is missing
	errorStack       uint64 // of error_context_stack; 0 where the symbol is missing
	is18             bool   // 18 or newer
	// waitAt is where the wait is in a PGPROC; 0 until a session has been seen to wait.
	waitAt int
}

// waitOf reads what the session with a PGPROC waits for; ok is false if it waits for no lock.
func (s *server) waitOf(read memory.Reader, proc uint64) (w wait, ok bool, err error) {
	var b [procSize]byte
	if err := read(proc, b[:]); err != nil {
		return wait{}, false, err
	}
	first, last := waitFirst, procSize-waitSize
	if s.waitAt != 0 {
		first, last = s.waitAt, s.waitAt
	}
	for at := first; at <= last; at += 8 {
		w = wait{lock: word(b[:], at), request: word(b[:], at+8), mode: half(b[:], at+16)}
		if w.mode < 1 || int(w.mode) >= len(conflicts) || !isAddress(w.lock) || !isAddress(w.request) {
			continue
		}
		var r [requestSize]byte
		if read(w.request, r[:]) == nil && word(r[:], requestLock) == w.lock && word(r[:], requestProc) == proc {
			s.waitAt = at
			return w, true, nil
		}
	}
	return wait{}, false, nil
}

// isAddress reports whether a number may be the address of a structure: in user space, and a multiple of eight.
func isAddress(a uint64) bool { return a >= 1<<16 && a < 1<<56 && a%8 == 0 }

// A request is a session's request for a lock.
type request struct {
	proc, leader uint64
	held         uint32 // modes, as bits
}

// maxRequests bounds the requests that are read of one lock: a server has some thousand sessions at most.
const maxRequests = 2000

// A lock is what one pass read of a lock: its kind, and the requests of those who have or want it; none if these
// changed meanwhile.
type lock struct {
	kind     string
	requests []request
}

// readLock reads the lock of a wait. The list must lead through the wait's own request, and back to its head.
func readLock(read memory.Reader, w *wait) lock {
	var b [lockSize]byte
	if read(w.lock, b[:]) != nil {
		return lock{kind: otherKind}
	}
	out, own := lock{kind: otherKind}, false
	if kind := int(b[lockType]); kind < len(kinds) {
		out.kind = kinds[kind]
	}
	head := w.lock + lockHolds
	for next := word(b[:], lockHolds+8); next != head; {
		at := next - requestLink
		var r [requestSize]byte
		if !isAddress(next) || len(out.requests) == maxRequests || read(at, r[:]) != nil ||
			word(r[:], requestLock) != w.lock {
			return lock{kind: out.kind}
		}
		own = own || at == w.request
		out.requests = append(out.requests,
			request{word(r[:], requestProc), word(r[:], requestLeader), half(r[:], requestHeld)})
		next = word(r[:], requestNext)
	}
	if !own {
		return lock{kind: out.kind}
	}
	return out
}

// A scene is what one pass saw of a server: the waits of its sessions by the addresses of their PGPROCs.
type scene struct {
	read  memory.Reader // of any of its processes
	waits map[uint64]*wait
	locks map[uint64]lock
}

// lockOf returns the lock that a session waits for.
func (s *scene) lockOf(w *wait) lock {
	l, ok := s.locks[w.lock]
	if !ok {
		l = readLock(s.read, w)
		s.locks[w.lock] = l
	}
	return l
}

// blocker returns the session that keeps a waiting one from its lock: one that has it in a conflicting mode, else one
// that wants it in a conflicting mode and was there before. Members of the same parallel query do not block each
// other.
func (s *scene) blocker(proc uint64) (uint64, bool) {
	w := s.waits[proc]
	list := s.lockOf(w).requests
	own := slices.IndexFunc(list, func(r request) bool { return r.proc == proc })
	if own < 0 {
		return 0, false
	}
	wanted := conflicts[w.mode]
	for _, r := range list {
		if r.held&wanted != 0 && r.proc != proc && r.leader != list[own].leader {
			return r.proc, true
		}
	}
	for _, r := range list {
		other := s.waits[r.proc]
		if other != nil && r.proc != proc && other.lock == w.lock && 1<<other.mode&wanted != 0 {
			return r.proc, true
		}
	}
	return 0, false
}

// maxChain bounds a chain of sessions, each waiting for the next: PostgreSQL itself ends a ring after a second.
const maxChain = 64

// root follows a wait to the session that waits for no lock itself. It also returns the session that waits directly
// for that one; ok is false if the chain does not end at such a session.
func (s *scene) root(proc uint64) (root, first uint64, ok bool) {
	first = proc
	for range maxChain {
		if s.waits[proc] == nil {
			return proc, first, true
		}
		next, ok := s.blocker(proc)
		if !ok {
			return 0, 0, false
		}
		proc, first = next, proc
	}
	return 0, 0, false
}

// behind is what a session waits for, which session holds it, and which is the first in line; these are nil if they
// are not known.
type behind struct {
	kind          string
	holder, first *glance
}

// stuck returns the sessions that wait for a lock, by the addresses of their PGPROCs. A lock that is held for a
// millisecond changes hands while its list is read. If the session at the end of a wait is not known, stuck looks at
// the waiting session again, and at all others that wait: one that has gone on meanwhile no longer waits.
func (s *server) stuck(glances []glance) map[uint64]behind {
	out := map[uint64]behind{}
	byProc := map[uint64]*glance{}
	all := make([]*glance, 0, len(glances))
	for i := range glances {
		byProc[glances[i].proc] = &glances[i]
		all = append(all, &glances[i])
	}
	open := slices.Clone(all)
	for range tries {
		view := s.view(all)
		open = slices.DeleteFunc(open, func(g *glance) bool {
			delete(out, g.proc)
			w := view.waits[g.proc]
			if w == nil {
				return true
			}
			root, first, _ := view.root(g.proc)
			out[g.proc] = behind{kind: view.lockOf(w).kind, holder: byProc[root], first: byProc[first]}
			return byProc[root] != nil
		})
		if len(open) == 0 {
			break
		}
	}
	return out
}

// view reads what sessions wait for.
func (s *server) view(glances []*glance) *scene {
	v := &scene{read: glances[0].read, waits: map[uint64]*wait{}, locks: map[uint64]lock{}}
	for _, g := range glances {
		if w, ok, err := s.waitOf(g.read, g.proc); err == nil && ok {
			v.waits[g.proc] = &w
		}
	}
	return v
}
