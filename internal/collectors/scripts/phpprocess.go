package scripts

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collectors/scripts/php"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// A phpProcess runs PHP in its first thread. The thread is looked at while it runs, and at times while it waits.
type phpProcess struct {
	pid     int
	scripts *php.Process
	waits   time.Time // when its wait was last looked at
}

func (p *phpProcess) runtime() string { return strings.TrimSpace("PHP " + p.scripts.Version()) }

// wanting returns none: there is one thread, and no lock.
func (p *phpProcess) wanting() (threads float64, ok bool) { return 0, false }

// unseen returns nothing: there is one thread, which ends with the process.
func (p *phpProcess) unseen(*source) uint64 { return 0 }

func (p *phpProcess) close() {}

func (p *phpProcess) pass(s *source) {
	t, state := s.thread(p.pid, p.pid)
	switch {
	case t == nil: // it has ended
	case state == 'R':
		p.sample(s, t)
	case time.Since(p.waits) > waitPeriod:
		p.sampleWait(s, t)
	}
}

// calls reads the stack of the script; there are none where no script runs.
func (p *phpProcess) calls(s *source) (calls []php.Call, err error) {
	for range tries {
		if calls, err = p.scripts.Stack(); !errors.Is(err, php.ErrChanged) {
			return calls, err
		}
	}
	s.lost++
	return nil, err
}

// framesOf appends the numbers of the frames in a profile.
func framesOf(calls []php.Call, b *stacks.Builder, into []int) []int {
	for _, c := range calls {
		into = append(into, b.Frame(frameOfPHP(c)))
	}
	return into
}

// sample adds what the script runs; PHP's own work between scripts has no function.
func (p *phpProcess) sample(s *source, t *thread) {
	calls, err := p.calls(s)
	if errors.Is(err, php.ErrNoStack) {
		s.refused = fmt.Errorf("process %d: %w", p.pid, err)
	}
	if err != nil {
		return
	}
	where := s.whereNow(p.pid, p.pid, t)
	s.frames = framesOf(calls, s.profiles[where], s.frames[:0])
	s.add(t, where)
}

// sampleWait adds what a worker with a script does: its functions, and below them the system call that it waits in. A
// worker that waits for a request runs no script.
func (p *phpProcess) sampleWait(s *source, t *thread) {
	now := time.Now()
	since := now.Sub(p.waits)
	p.waits = now
	e, err := s.standsIn(p.pid, p.pid)
	if err != nil {
		return
	}
	calls, err := p.calls(s)
	if err != nil || len(calls) == 0 {
		return
	}
	x := stacks.Sample{State: stacks.Running, Count: 1, Value: int64(since)}
	if !e.Running && e.Name != "" {
		x.State = stacks.Sleeping
		x.Stack = append(x.Stack, s.waits.Frame(stacks.Frame{Name: e.Name, Kind: stacks.Kernel}))
	}
	x.Stack = framesOf(calls, s.waits, x.Stack)
	x.Thread = s.waits.Thread(stacks.Thread{ID: p.pid, Name: t.comm})
	s.waits.Add(x)
}

func frameOfPHP(c php.Call) stacks.Frame {
	file := c.File
	if file == "" {
		file = "php:core"
	}
	return stacks.Frame{Name: "PHP:" + c.Function + " " + file, Line: c.Line, Kind: stacks.Interpreted}
}
