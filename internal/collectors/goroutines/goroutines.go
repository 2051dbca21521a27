// Package goroutines samples what the goroutines of a target's Go programs do. The kernel sees only their threads,
// and these wait in one place for all goroutines.
//
// It reads the runtime's own structures from the memory of the process (docs/decisions/0094): nothing is attached,
// stopped or written, and the program needs neither symbols nor what it was built from. The owner of the process
// controls what its memory holds, so everything has a bound.
package goroutines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/host"
	"github.com/perfdoctor/perfdoctor/internal/host/door"
	"github.com/perfdoctor/perfdoctor/internal/host/gotable"
	"github.com/perfdoctor/perfdoctor/internal/input/firewall"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// pace: a pass over a hundred goroutines takes 0.3 ms.
var pace = collect.Passes{Share: 0.005, Least: 50 * time.Millisecond, Longest: time.Second}

const (
	// maxPrograms bounds the programs that are read, those with the most CPU time first, and maxInspected the
	// processes that are checked for being one: each costs 1 ms, most of it for the list of its mappings.
	maxPrograms, maxInspected = 8, 50
	// maxIDs bounds the goroutines that are told apart, 50 bytes each in a recording. Goroutines that started later
	// are not: a server has a new one for each request, and none of them can stay in one place for the whole window.
	maxIDs = 10_000
)

// Collectors lists this package's collector.
func Collectors() []collect.Collector {
	return []collect.Collector{{
		Name: "goroutines",
		Doc: "What the goroutines of programs in Go (1.21 to 1.27) run or wait for, as samples of their stacks, from " +
			"the runtime's own structures.",
		Overhead: "3 µs for a goroutine, so many that it takes 0.5 % of a CPU: 100 of them 15 times a second, 10,000 " +
			"every 6 s; once 2 to 20 ms for each program",
		Provides: []metric.Metric{metric.GoroutineProfileSamples, metric.GoRuntime},
		Pace:     collect.AtEnd,
		Open:     open,
	}}
}

// source samples in a goroutine of its own between Open and Sample.
type source struct {
	programs []*program
	watch    *collect.Watch
	profile  *stacks.Builder
	ids      map[uint64]bool // of the goroutines that were there at first
	began    time.Time
	last     time.Time // when the last pass was
	lost     int64
}

func open(ctx context.Context, env collect.Env) (collect.Source, error) {
	if env.Target.Kind == host.KindHost {
		return nil, collect.Unavailable(recording.StatusUnsupported,
			"name a target with --pid, --comm, --cgroup or --container",
			"it is read for a target only, and the whole host was diagnosed")
	}
	members, err := env.Host.LateMembers(ctx, env.Target)
	if err != nil {
		return nil, fmt.Errorf("list the target's processes: %w", err)
	}
	slices.SortStableFunc(members, func(x, y host.Process) int {
		return int(y.UTime+y.STime) - int(x.UTime+x.STime) // ticks since it began
	})
	s := &source{ids: map[uint64]bool{}, profile: stacks.NewBuilder(stacks.Goroutine)}
	var refused error
	left := door.NewTableBudget()
	for _, m := range members[:min(len(members), maxInspected)] {
		if len(s.programs) == maxPrograms || ctx.Err() != nil {
			break
		}
		p, err := firewall.Parse(fmt.Sprintf("process %d", m.PID), func() (*program, error) {
			return openProgram(env.Host.Proc+"/"+strconv.Itoa(m.PID), m.PID, left)
		})
		switch {
		case err == nil:
			s.programs = append(s.programs, p)
		case !errors.Is(err, errNone):
			refused = fmt.Errorf("process %d: %w", m.PID, err)
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, errors.Join(ctx.Err(), s.closeAll())
	case len(s.programs) == 0 && refused != nil:
		return nil, collect.Unavailable(recording.StatusUnsupported, "", "%v", refused)
	}
	s.began = time.Now()
	s.last = s.began
	s.watch = env.Watch(ctx, "goroutines", pace, s.pass)
	return s, nil
}

// pass looks at goroutines of all programs. Each stands for the time since the previous pass.
func (s *source) pass(ctx context.Context) (idle bool, err error) {
	now := time.Now()
	since := now.Sub(s.last)
	s.last = now
	for _, p := range s.programs {
		if ctx.Err() != nil || p.ended {
			continue
		}
		var seen []stacks.Sample
		each, lost, err := p.look(func(g *goroutine) { seen = append(seen, s.sample(p, g)) })
		s.lost += int64(lost)
		for _, x := range seen {
			x.Value = int64(float64(since) * each)
			s.profile.Add(x)
		}
		p.ended = p.ended || err != nil
	}
	return len(s.programs) == 0, nil
}

// sample returns what was seen of a goroutine. A goroutine in a system call counts as waiting: a pass hardly ever
// meets a call that returns at once.
func (s *source) sample(p *program, g *goroutine) stacks.Sample {
	x := stacks.Sample{State: stacks.Sleeping, Count: 1}
	if g.state == ready || g.state == runs {
		x.State = stacks.Running
	}
	frames := g.frames
	if len(frames) == 0 {
		frames = []gotable.Call{{Name: g.entry}}
	}
	for _, f := range frames {
		x.Stack = append(x.Stack, s.profile.Frame(stacks.Frame{
			Name: f.Name, Module: p.module, Line: f.Line, Kind: stacks.Native,
		}))
	}
	t := stacks.Thread{Name: g.entry}
	if p.looks <= p.blocks && len(s.ids) < maxIDs {
		s.ids[g.id] = true
	}
	if s.ids[g.id] {
		t.ID = int(g.id)
	}
	x.Thread = s.profile.Thread(t)
	return x
}

// Sample ends the sampling and appends the profile.
func (s *source) Sample(_ context.Context, a *recording.Appender) error {
	if err := s.watch.Stop(); err != nil {
		return err
	}
	if len(s.programs) == 0 {
		a.None(metric.GoRuntime)
		a.Missing(metric.GoroutineProfileSamples, recording.StatusUnsupported,
			"no process of the target is a program in Go", "")
		return nil
	}
	for _, x := range s.programs {
		a.Info(metric.GoRuntime, strconv.Itoa(x.pid), x.version)
	}
	p := s.profile.Profile()
	p.Engine = "perfdoctor, from the memory of the runtime of Go"
	p.Duration = s.last.Sub(s.began)
	p.Lost += s.lost
	a.Profile(p)
	return nil
}

// Close ends the sampling.
func (s *source) Close() error {
	_ = s.watch.Stop() // Sample reports an error
	return s.closeAll()
}

func (s *source) closeAll() error {
	for _, p := range s.programs {
		p.close()
	}
	return nil
}
