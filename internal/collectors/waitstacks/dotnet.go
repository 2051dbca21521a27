package waitstacks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/collectors/symbols"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// appendDotNet appends what .NET threads do, in the form of scripts: the system call, the methods that lead to it,
// and what the runtime does between the two. The runtime's own threads have no method, and are left out: up to .NET 5
// these include idle workers of its pool.
func (s *source) appendDotNet(ctx context.Context, a *recording.Appender, names *symbols.Symbolizer) {
	pids := slices.DeleteFunc(slices.Clone(s.pids), func(pid int) bool { return !s.managed[pid] })
	if len(pids) == 0 {
		return
	}
	for _, pid := range pids {
		if err := names.ReadMap(ctx, uint32(pid), false, s.dotNet); err != nil {
			a.Lost(1, fmt.Sprintf("names of methods in waits of process %d: %v", pid, err))
		}
	}
	b := stacks.NewBuilder(stacks.ScriptWall)
	outer := map[thread]outermost{}
	for at, list := range s.known {
		if s.managed[at.pid] {
			s.addWait(b, at, methodsIn(names, at, list), outer)
		}
	}
	for id, o := range outer { // what it runs is not known here, only which pool it belongs to
		if ran := s.ran[id]; ran > 0 {
			b.Add(stacks.Sample{
				Stack: numbers(b, o.frames), Thread: o.thread, State: stacks.Running, Count: 1, Value: int64(ran),
			})
		}
	}
	p := b.Profile()
	if len(p.Samples) == 0 {
		return
	}
	p.Engine = "perfdoctor, from the memory of the program"
	p.Duration = s.last.Sub(s.began)
	a.Profile(p)
}

// addWait adds the time at a place, if a method leads to it, and notes what its thread begins with.
func (s *source) addWait(b *stacks.Builder, at place, frames []stacks.Frame, outer map[thread]outermost) {
	if len(frames) == 0 {
		return
	}
	if at.call != "futex" { // the runtime waits for everything in a futex: its functions say more
		frames = slices.Insert(frames, 0, stacks.Frame{Name: at.call, Kind: stacks.Kernel})
	}
	of := b.Thread(stacks.Thread{ID: at.tid, Name: s.name(at)})
	b.Add(stacks.Sample{
		Stack: numbers(b, frames), Thread: of, State: stacks.Sleeping, Count: s.count[at], Value: int64(s.seen[at]),
	})
	if id := (thread{at.pid, at.tid}); s.seen[at] > outer[id].waited {
		outer[id] = outermost{entry(frames), of, s.seen[at]}
	}
}

// outermost has the frames that a thread begins with, from the place where it waits longest.
type outermost struct {
	frames []stacks.Frame
	thread int
	waited time.Duration
}

// entry returns the frames from the outermost to the first method that does not come with .NET.
func entry(frames []stacks.Frame) []stacks.Frame {
	for i := len(frames) - 1; i >= 0; i-- {
		if frames[i].Managed() && !strings.HasPrefix(frames[i].Name, "System.") {
			return frames[i:]
		}
	}
	return frames
}

// methodsIn returns the frames of a wait up to the outermost method, none if there is no method.
func methodsIn(names *symbols.Symbolizer, at place, list []uint64) (frames []stacks.Frame) {
	last := 0
	for i, ip := range list {
		if i > 0 {
			ip-- // the call is before the return address
		}
		frames = append(frames, names.UserFrames(uint32(at.pid), ip)...)
		if n := len(frames); n > 0 && frames[n-1].Managed() {
			last = n
		}
	}
	return frames[:last]
}

func numbers(b *stacks.Builder, frames []stacks.Frame) []int {
	out := make([]int, 0, len(frames))
	for _, f := range frames {
		out = append(out, b.Frame(f))
	}
	return out
}
