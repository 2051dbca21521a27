// Package episode detects when a finding begins and when it has ended, from the checks' results window after window.
//
// A finding that comes and goes is one episode, and a finding seen for a moment is none: a recording or a message for
// each window is of no use to anybody.
package episode

import (
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
)

// An Episode is a finding at warning or above over the time in which it held.
type Episode struct {
	Target  string        // name of the windows' target
	Finding check.Finding // as it was at its worst
	Begin   time.Time     // of the first window that had it
	End     time.Time     // of the last one so far
}

// Options say what counts as an episode.
type Options struct {
	// Hold is how long a finding has to last: the consecutive windows that have it cover at least this time. An event
	// need not last.
	Hold time.Duration
	// Clear is how many windows in a row must lack it before it ends.
	Clear int
}

// Defaults returns the usual options. Ten seconds are the default duration of a diagnosis; on a busy host a rate
// needs that long to be more than a burst. They are one window of the exporter's default length, and two of the
// shortest. Two windows without it are the least that tell a finding at its threshold, which comes and goes, from one
// that is over.
func Defaults() Options { return Options{Hold: 10 * time.Second, Clear: 2} }

// A Tracker follows the findings of all targets. It is for one goroutine.
type Tracker struct {
	o    Options
	open map[key]*state
	last map[string]time.Time // end of the last window of each target
}

type key struct{ target, id string }

type state struct {
	Episode
	begun  bool
	absent int // windows in a row without it
}

// NewTracker returns a tracker without any episode.
func NewTracker(o Options) *Tracker {
	return &Tracker{o: o, open: map[key]*state{}, last: map[string]time.Time{}}
}

// goneAfter is how long a target may lack a window before it counts as gone, and its findings with it: a group that
// uses little CPU for a moment is left out of some windows.
const goneAfter = 5 * time.Minute

// maxOpen bounds the memory: at worst a window has some tens of findings at warning or above.
const maxOpen = 1000

// Observe takes another window. It returns the episodes that begin with it and those that ended by it, in the order
// of the checks' findings. A consequence of another finding is not an episode. A check that could not be assessed
// says neither that its finding is there nor that it has gone.
func (t *Tracker) Observe(w exporter.Window) (begun, ended []Episode) {
	t.last[w.Name] = w.End
	seen := map[string]bool{}
	for i := range w.Result.Findings {
		f := &w.Result.Findings[i]
		s := t.open[key{w.Name, f.ID()}]
		if f.Severity < check.Warning || seen[f.ID()] || s == nil && (f.ExplainedBy != "" || len(t.open) >= maxOpen) {
			continue
		}
		seen[f.ID()] = true
		if s = t.add(w, f, s); !s.begun && (f.Event || s.End.Sub(s.Begin) >= t.o.Hold) {
			s.begun = true
			begun = append(begun, s.Episode)
		}
	}
	return begun, append(t.without(w, seen), t.gone(w.End)...)
}

func (t *Tracker) add(w exporter.Window, f *check.Finding, s *state) *state {
	if s == nil {
		s = &state{Episode: Episode{Target: w.Name, Finding: *f, Begin: w.Begin}}
		t.open[key{w.Name, f.ID()}] = s
	}
	s.End, s.absent = w.End, 0
	if f.Severity > s.Finding.Severity {
		s.Finding = *f
	}
	return s
}

// without updates the findings that the window does not have.
func (t *Tracker) without(w exporter.Window, seen map[string]bool) (ended []Episode) {
	for k, s := range t.open {
		if k.target != w.Name || seen[k.id] || unassessed(w, s.Finding.Check) {
			continue
		}
		s.absent++
		if s.begun && s.absent < t.o.Clear {
			continue
		}
		delete(t.open, k) // what has not begun has to hold from the start again
		if s.begun {
			ended = append(ended, s.Episode)
		}
	}
	slices.SortFunc(ended, func(x, y Episode) int { return x.Begin.Compare(y.Begin) })
	return ended
}

func unassessed(w exporter.Window, name string) bool {
	return slices.ContainsFunc(w.Result.Outcomes, func(o check.Outcome) bool {
		return o.Check == name &&
			o.State == check.Unassessed
	})
}

// gone forgets targets that have had no window for a while, and returns their episodes.
func (t *Tracker) gone(now time.Time) (ended []Episode) {
	for target, last := range t.last {
		if now.Sub(last) >= goneAfter {
			delete(t.last, target)
			ended = append(ended, t.forget(target)...)
		}
	}
	slices.SortFunc(ended, func(x, y Episode) int { return x.Begin.Compare(y.Begin) })
	return ended
}

func (t *Tracker) forget(target string) (ended []Episode) {
	for k, s := range t.open {
		if k.target != target {
			continue
		}
		delete(t.open, k)
		if s.begun {
			ended = append(ended, s.Episode)
		}
	}
	return ended
}
