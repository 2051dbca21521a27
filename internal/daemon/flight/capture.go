package flight

import (
	"slices"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/daemon/episode"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// A capture is a recording in progress: the windows of a target before and after the beginning of an episode.
type capture struct {
	episode.Episode
	others  []string // further findings that began in the meantime
	entries []*entry
	until   time.Time

	profiling bool
	profile   *recording.Recording // nil for none
}

// maxOthers bounds the other findings that are named: whoever needs more looks into the recording.
const maxOthers = 20

func (c *capture) alsoBegun(e episode.Episode) {
	if len(c.others) < maxOthers {
		c.others = append(c.others, e.Finding.ID())
	}
}

// due reports whether the recording is complete. It waits a while for a profile in progress.
func (c *capture) due(now time.Time) bool {
	return !now.Before(c.until) && (!c.profiling || now.Sub(c.until) > profileGrace)
}

// join makes the recording. If the recording ends early, why says the reason.
func (c *capture) join(why string) *recording.Recording {
	first := c.entries[0].Begin
	parts := make([]recording.Part, len(c.entries))
	incident := recording.Incident{
		Check: c.Finding.Check, Subject: c.Finding.Subject.String(), Severity: c.Finding.Severity.String(),
		Summary: c.Finding.Summary,
		Others:  c.others, From: -1,
	}
	told := timeline{}
	end := time.Duration(0)
	for i, e := range c.entries {
		at := e.Begin.Sub(first)
		if at < 0 || i > 0 && at <= parts[i-1].At {
			at = end // the clock was set back: put the window after the one before it
		}
		parts[i] = recording.Part{At: at, Recording: e.Recording}
		incident.Windows = append(incident.Windows, at.Seconds())
		told.window(e.Result, at.Seconds(), (at + e.End.Sub(e.Begin)).Seconds())
		end = at + e.End.Sub(e.Begin)
		if !has(e.Result, c.Finding.ID()) || e.Begin.Before(c.Begin) {
			// a profile cannot be divided: keep only the incident's
			parts[i].Recording = e.Recording.WithoutProfiles()
			continue
		}
		if incident.From < 0 {
			incident.From = parts[i].At.Seconds()
		}
		incident.To = parts[i].At.Seconds() + e.Recording.Meta.Duration
		incident.Late = e.Recording.Late().Seconds()
	}
	incident.Timeline = told.spans
	rec := recording.Join(parts...)
	if c.profile != nil {
		rec = rec.WithProfiles(c.profile.Meta.Started.Sub(rec.Meta.Started), c.profile)
	}
	m := rec.WithIncident(incident).Meta
	m.EndedEarly = why
	return rec.WithMeta(m)
}

// maxSpans bounds the timeline: over the usual two and a half minutes that is ten findings per window that come and
// go.
const maxSpans = 100

// A timeline is what the checks said about the windows so far.
type timeline struct {
	spans []recording.IncidentSpan
	open  map[string]int // the spans that reach to the last window, by finding
}

// window adds the findings of another window at warning or above.
func (t *timeline) window(r *check.Result, from, to float64) {
	before := t.open
	t.open = map[string]int{}
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Severity < check.Warning {
			continue
		}
		at, lasts := before[f.ID()]
		if _, again := t.open[f.ID()]; again { // a check may say two things about one subject: the first is graver
			continue
		}
		if !lasts {
			if len(t.spans) >= maxSpans {
				continue
			}
			at = len(t.spans)
			t.spans = append(t.spans, recording.IncidentSpan{From: from, Check: f.Check, Subject: f.Subject.String()})
		}
		t.open[f.ID()] = at
		s := &t.spans[at]
		s.To = to
		if s.Severity == "" || f.Severity > check.Warning && s.Severity == check.Warning.String() {
			s.Severity, s.Summary = f.Severity.String(), f.Summary
		}
	}
}

// has reports whether a window has the finding at warning or above.
func has(r *check.Result, id string) bool {
	return slices.ContainsFunc(r.Findings, func(f check.Finding) bool {
		return f.Severity >= check.Warning &&
			f.ID() == id
	})
}
