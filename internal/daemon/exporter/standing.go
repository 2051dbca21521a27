package exporter

import (
	"cmp"
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// eventHold is how long an event is exported: two scrapes see it, wherever they fall, if they are at most 2 min
// apart. That is the longest interval that Prometheus advises (its lookback is 5 min, and a scrape may fail).
const eventHold = 5 * time.Minute

// clearWindows is how many windows in a row must lack a finding before a similar one counts as another. An episode
// does the same, since a finding at its threshold comes and goes.
const clearWindows = 2

// A Standing is a finding that holds, or an event that happened a short while ago.
type Standing struct {
	Target  string // name of the windows' target
	Finding check.Finding
	Since   time.Time // beginning of the first window that had it
	Last    time.Time // end of the last one
	Event   bool
	Absent  int // windows in a row without it
}

// told reports whether it is exported: findings of the last window, and events.
func (x *Standing) told() bool { return x.Absent == 0 || x.Event }

// gone reports whether it is over. A clock that was set back must not keep it longer.
func (x *Standing) gone(now time.Time) bool {
	if x.Event {
		return x.Absent > 0 && now.Sub(x.Last).Abs() >= eventHold
	}
	return x.Absent >= clearWindows
}

// stand returns the findings of a target after another window. Their number is bounded: the window's own, the
// remembered ones of clearWindows, and o.MaxFindings events.
func stand(before []Standing, w Window, o Options) []Standing {
	var out []Standing
	at := map[string]int{}
	for i := range w.Result.Findings {
		f := w.Result.Findings[i]
		if j, ok := at[f.ID()]; ok { // a check may say two things about one subject
			if f.Severity > out[j].Finding.Severity {
				out[j].Finding, out[j].Event = f, f.Event && f.Severity >= check.Warning
			}
			continue
		}
		at[f.ID()] = len(out)
		out = append(out, Standing{
			Target: w.Name, Finding: f, Since: w.Begin, Last: w.End,
			Event: f.Severity >= check.Warning && f.Event,
		})
	}
	events := 0
	for _, x := range before {
		i, again := at[x.Finding.ID()]
		if again && (out[i].Event || !x.Event) {
			out[i].Since = x.Since
			continue
		}
		if x.Absent++; x.Event {
			events++
		}
		if !x.gone(w.End) && (!x.Event || events <= o.MaxFindings) {
			out = append(out, x)
		}
	}
	return out
}

// over returns only the events. No window has them any more.
func over(list []Standing, o Options) []Standing {
	var out []Standing
	for _, x := range list {
		if x.Event && len(out) < o.MaxFindings {
			x.Absent++
			out = append(out, x)
		}
	}
	return out
}

// A State is what stands now.
type State struct {
	Ended    time.Time  // of the newest window; zero before the first
	Standing []Standing // of all targets, the one to act on first comes first
}

// Now returns what stands: causes before consequences, the gravest first. A finding in several targets' windows is
// there once.
func (e *Exporter) Now() State {
	s := e.snapshot
	s.mu.Lock()
	defer s.mu.Unlock()
	out := State{Ended: s.now}
	for _, t := range s.targets {
		for i := range t.standing {
			if t.standing[i].told() {
				out.Standing = append(out.Standing, t.standing[i])
			}
		}
	}
	slices.SortStableFunc(out.Standing, compareStanding)
	seen := map[string]bool{}
	out.Standing = slices.DeleteFunc(out.Standing, func(x Standing) bool {
		again := seen[x.Finding.ID()]
		seen[x.Finding.ID()] = true
		return again
	})
	return out
}

func compareStanding(a, b Standing) int {
	return cmp.Or(cmp.Compare(explained(a), explained(b)),
		cmp.Compare(b.Finding.Severity, a.Finding.Severity), cmp.Compare(b.Finding.Weight, a.Finding.Weight),
		cmp.Compare(a.Finding.Stage, b.Finding.Stage), a.Since.Compare(b.Since),
		cmp.Compare(elsewhere(a), elsewhere(b)), cmp.Compare(a.Target, b.Target),
		cmp.Compare(a.Finding.ID(), b.Finding.ID()))
}

func elsewhere(x Standing) int {
	if x.Target != HostName {
		return 1
	}
	return 0
}

func explained(x Standing) int {
	if x.Finding.ExplainedBy != "" {
		return 1
	}
	return 0
}
