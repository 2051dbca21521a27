package scripts

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/python"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

const (
	// listPeriod is how often threads are listed: those of a pool for one piece of work live for some 10 ms.
	listPeriod = 20 * time.Millisecond
	// maxThreads bounds the threads of a process in one pass, 40 µs each. The others have their turn in the next.
	maxThreads = 100
	// tries is how often a stack is read that the thread changes meanwhile.
	tries = 3
)

// A pythonProcess is a CPython interpreter, whose threads are looked at while they run.
type pythonProcess struct {
	pid     int
	scripts *python.Process
	ended   bool
	ids     map[int]int // of its threads, by those in its pid namespace
	named   time.Time   // when they were read
	list    []python.Thread
	next    time.Time // when its threads are to be listed again
	passes  int
	dead    uint64 // ticks of the threads that had ended when it was opened
}

func (p *pythonProcess) runtime() string { return "CPython " + p.scripts.Version.String() }

func (p *pythonProcess) close() {}

func (p *pythonProcess) unseen(s *source) uint64 {
	now := s.ticksOfEnded(p.pid)
	return max(now, p.dead) - p.dead
}

// ticksOfEnded is the CPU time of the threads of a process that have ended: what it has used without its living ones; 0
// where that is not known.
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

// pass looks at the threads, of many at some.
func (p *pythonProcess) pass(s *source) {
	if p.ended || time.Now().After(p.next) && !p.listThreads(s) {
		return
	}
	stride := (len(p.list) + maxThreads - 1) / maxThreads
	p.passes++
	for i, t := range p.list {
		if (i+p.passes)%stride != 0 {
			continue
		}
		if tid := p.ids[t.ID]; tid != 0 {
			if seen := s.running(p.pid, tid); seen != nil {
				p.sample(s, t, tid, seen)
			}
		}
	}
}

// listThreads lists the threads, of which one that has ended has none. It takes 20 µs a thread, and as much to learn
// their ids, which is done less often unless one is there that is not known; both take as much of a CPU as the passes
// at most.
func (p *pythonProcess) listThreads(s *source) bool {
	began := collect.ThreadCPU()
	if len(p.ids) == 0 || time.Since(p.named) > lookPeriod {
		p.ids, p.named = s.env.Host.ThreadIDs(p.pid), time.Now()
	}
	list, err := p.threads()
	if slices.ContainsFunc(list, func(t python.Thread) bool { return p.ids[t.ID] == 0 }) {
		// One began since, as of a pool that is made anew for each piece of work.
		p.ids, p.named = s.env.Host.ThreadIDs(p.pid), time.Now()
		list, err = p.threads()
	}
	if err != nil {
		p.ended = !errors.Is(err, python.ErrChanged)
		s.lost++
		return false
	}
	p.list = list
	cost := time.Duration(float64(collect.ThreadCPU()-began) / pace.Share)
	p.next = time.Now().Add(max(cost, listPeriod))
	return true
}

func (p *pythonProcess) threads() ([]python.Thread, error) {
	return p.scripts.Threads(func(id int) bool { return p.ids[id] != 0 })
}

// sample reads the stack of a thread that runs.
func (p *pythonProcess) sample(s *source, at python.Thread, tid int, t *thread) {
	var calls []python.Call
	var err error
	for range tries {
		if calls, err = p.scripts.Stack(at); !errors.Is(err, python.ErrChanged) {
			break
		}
	}
	if err != nil {
		s.lost++
		return
	}
	where := onCPU
	switch {
	case s.running(p.pid, tid) != t:
		where = left
	case s.waitsForCPU(p.pid, tid):
		where = ready
	}
	b := s.profiles[where]
	s.frames = s.frames[:0]
	for _, c := range calls {
		s.frames = append(s.frames, b.Frame(stacks.Frame{
			// As CPython itself writes it into a file for perf (Python/perf_trampoline.c).
			Name: "py::" + c.Function + ":" + c.File, Line: c.Line, Kind: stacks.Interpreted,
		}))
	}
	s.add(t, where)
}

// waitsForCPU tells whether a thread that is to run waits for a CPU: a thread that was just woken still stands where it
// waited, and would have the share of what it computes. The kernel shows a stack of such a thread, and on amd64 none of
// one that is on a CPU (__unwind_start in arch/x86/kernel/unwind_orc.c); on arm64 it shows an old one.
func (s *source) waitsForCPU(pid, tid int) bool {
	text, err := host.ReadFile(fmt.Sprintf("%s/%d/task/%d/stack", s.env.Host.Proc, pid, tid), s.buf)
	if err != nil {
		return false // it takes root
	}
	s.buf = text
	return len(text) > 0
}
