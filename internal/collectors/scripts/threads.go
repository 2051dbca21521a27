package scripts

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/kernel/syscalls"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

const (
	// listPeriod is how often threads are listed: the threads of a pool for one piece of work live for some 10 ms.
	listPeriod = 20 * time.Millisecond
	// maxThreads bounds the threads of a process in one pass, 40 µs each. The others come in the next pass.
	maxThreads = 100
	// tries is how often a stack is read if the thread changes it meanwhile.
	tries = 3
	// waitShare is the part of a CPU that looking at all threads may take: a stack takes 100 µs. waitPeriod is the
	// shortest time between two looks: a wait that matters shows up in a hundred looks.
	waitShare  = 0.005
	waitPeriod = 50 * time.Millisecond
)

// A reader reads the stacks of an interpreter's threads. The error of both methods is [errChanged] where the threads
// ran on meanwhile.
type reader interface {
	name() string
	// list lists the threads; ids says which numbers are threads of the process. It returns the kernel's id of each,
	// in the pid namespace of the process, and 0 where it is not known.
	list(ids func(int) bool) ([]int, error)
	// stack returns the calls of a thread, by its place in the list, the innermost first.
	stack(i int) ([]stacks.Frame, error)
	// wantsLock reports whether a thread that waits in futex(2) at an address wants the interpreter's lock.
	wantsLock(i int, address uint64) bool
}

// errChanged says that a thread ran on while its stack was read.
var errChanged = errors.New("the thread ran on while its stack was read")

// A threadedProcess is an interpreter with a lock that lets one thread run at a time. Its threads are looked at while
// they run.
type threadedProcess struct {
	pid     int
	scripts reader
	ended   bool
	ids     map[int]int // of its threads, by those in its pid namespace
	named   time.Time   // when they were read
	list    []int       // of the reader
	next    time.Time   // when its threads are to be listed again
	passes  int
	dead    uint64 // ticks of the threads that had ended when it was opened
	looks   int    // at which threads want the lock
	wants   int    // threads that did, all looks together

	lastWaits, nextWaits time.Time // looks at what all threads do
}

func (p *threadedProcess) runtime() string { return p.scripts.name() }

func (p *threadedProcess) close() {}

func (p *threadedProcess) unseen(s *source) uint64 {
	now := s.ticksOfEnded(p.pid)
	return max(now, p.dead) - p.dead
}

// ticksOfEnded returns the CPU time of the threads of a process that have ended: what the process has used, less its
// living threads; 0 where that is not known.
func (s *source) ticksOfEnded(pid int) uint64 {
	st, buf, err := s.env.Host.ReadStat(pid, 0, s.buf)
	s.buf = buf
	if err != nil {
		return 0
	}
	all, living := st.UTime+st.STime, uint64(0)
	for _, tid := range s.env.Host.ThreadIDs(pid) {
		if st, s.buf, err = s.env.Host.ReadStat(pid, tid, s.buf); err == nil {
			living += st.UTime + st.STime
		}
	}
	return max(all, living) - living
}

func (p *threadedProcess) wanting() (threads float64, ok bool) {
	if p.looks == 0 {
		return 0, false
	}
	return float64(p.wants) / float64(p.looks), true
}

// lookAtWaits counts the threads that wait for the interpreter's lock, and at times samples what all threads do. If
// there are many, it looks at only some.
func (p *threadedProcess) lookAtWaits(s *source) {
	stride := (len(p.list) + maxThreads - 1) / maxThreads
	p.looks++
	began := collect.ThreadCPU()
	var since time.Duration
	if now := time.Now(); now.After(p.nextWaits) {
		since, p.lastWaits = now.Sub(p.lastWaits)*time.Duration(max(stride, 1)), now
	}
	for i, id := range p.list {
		tid := p.ids[id]
		if tid == 0 || (i+p.looks)%stride != 0 {
			continue
		}
		e, err := s.standsIn(p.pid, tid)
		if err != nil {
			continue // it has ended
		}
		wants := e.Name == "futex" && p.scripts.wantsLock(i, e.Args[0])
		if wants {
			p.wants += stride
		}
		if since > 0 {
			p.sampleWait(s, i, tid, e, wants, since)
		}
	}
	if since > 0 {
		cost := time.Duration(float64(collect.ThreadCPU()-began) / waitShare)
		p.nextWaits = p.lastWaits.Add(max(cost, waitPeriod))
	}
}

// standsIn returns the system call that a thread is in.
func (s *source) standsIn(pid, tid int) (syscalls.Entry, error) {
	text, err := host.ReadRecord(fmt.Sprintf("%s/%d/task/%d/syscall", s.env.Host.Proc, pid, tid), s.buf)
	if err != nil {
		return syscalls.Entry{}, err
	}
	return syscalls.Parse(text)
}

// sampleWait adds what a thread does: its functions, and below them the system call that it waits in. A thread that
// wants the interpreter's lock is ready to run.
func (p *threadedProcess) sampleWait(
	s *source, i, tid int, e syscalls.Entry, wants bool, since time.Duration,
) {
	seen, state := s.thread(p.pid, tid)
	calls, err := p.scripts.stack(i)
	if seen == nil || err != nil || len(calls) == 0 {
		return // it has ended, or runs on
	}
	sample := stacks.Sample{State: stacks.Running, Count: 1, Value: int64(since)}
	if !wants && state != 'R' && !e.Running && e.Name != "" {
		sample.State = stacks.Sleeping
		sample.Stack = append(sample.Stack, s.waits.Frame(stacks.Frame{Name: e.Name, Kind: stacks.Kernel}))
	}
	for _, c := range calls {
		sample.Stack = append(sample.Stack, s.waits.Frame(c))
	}
	sample.Thread = s.waits.Thread(stacks.Thread{ID: tid, Name: seen.comm})
	s.waits.Add(sample)
}

// pass looks at the threads; if there are many, at some of them.
func (p *threadedProcess) pass(s *source) {
	if p.ended || time.Now().After(p.next) && !p.listThreads(s) {
		return
	}
	stride := (len(p.list) + maxThreads - 1) / maxThreads
	p.passes++
	for i, id := range p.list {
		if (i+p.passes)%stride != 0 {
			continue
		}
		if tid := p.ids[id]; tid != 0 {
			if seen := s.running(p.pid, tid); seen != nil {
				p.sample(s, i, tid, seen)
			}
		}
	}
}

// listThreads lists the threads; it returns false if they cannot be read. It takes 20 µs a thread, and as much to
// learn their ids, which it does less often unless there is an unknown one. Together they take at most as much of a
// CPU as the passes.
func (p *threadedProcess) listThreads(s *source) bool {
	began := collect.ThreadCPU()
	if len(p.ids) == 0 || time.Since(p.named) > lookPeriod {
		p.ids, p.named = s.env.Host.ThreadIDs(p.pid), time.Now()
	}
	list, err := p.threads()
	if slices.ContainsFunc(list, func(id int) bool { return p.ids[id] == 0 }) {
		// A thread began since, as in a pool that is made anew for each piece of work.
		p.ids, p.named = s.env.Host.ThreadIDs(p.pid), time.Now()
		list, err = p.threads()
	}
	if err != nil {
		p.ended = !errors.Is(err, errChanged)
		s.lost++
		return false
	}
	p.list = list
	p.lookAtWaits(s)
	cost := time.Duration(float64(collect.ThreadCPU()-began) / pace.Share)
	p.next = time.Now().Add(max(cost, listPeriod))
	return true
}

func (p *threadedProcess) threads() ([]int, error) {
	return p.scripts.list(func(id int) bool { return p.ids[id] != 0 })
}

// sample reads the stack of a thread that runs, by its place in the list.
func (p *threadedProcess) sample(s *source, i, tid int, t *thread) {
	var calls []stacks.Frame
	var err error
	for range tries {
		if calls, err = p.scripts.stack(i); !errors.Is(err, errChanged) {
			break
		}
	}
	if err != nil {
		s.lost++
		return
	}
	where := s.whereNow(p.pid, tid, t)
	b := s.profiles[where]
	s.frames = s.frames[:0]
	for _, c := range calls {
		s.frames = append(s.frames, b.Frame(c))
	}
	s.add(t, where)
}

// whereNow returns the profile in which to keep a sample of a thread whose stack was just read.
func (s *source) whereNow(pid, tid int, t *thread) int {
	switch {
	case s.running(pid, tid) != t:
		return left
	case s.waitsForCPU(pid, tid):
		return ready
	}
	return onCPU
}

// waitsForCPU reports whether a runnable thread waits for a CPU: a thread that was just woken still stands where it
// waited, and would take the share of what it computes. The kernel shows a stack for such a thread. For one that is on
// a CPU it shows none on amd64 (__unwind_start in arch/x86/kernel/unwind_orc.c), and an old one on arm64.
func (s *source) waitsForCPU(pid, tid int) bool {
	text, err := host.ReadFile(fmt.Sprintf("%s/%d/task/%d/stack", s.env.Host.Proc, pid, tid), s.buf)
	if err != nil {
		return false // it needs root
	}
	s.buf = text
	return len(text) > 0
}
