package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// Incident is why a flight recorder made the recording. The window is the part in which the finding held, unless
// Whole.
type Incident struct {
	Check    string    `json:"check"`
	Subject  string    `json:"subject"`
	Severity string    `json:"severity"`
	Summary  string    `json:"summary"`          // of the finding, as it began
	Began    time.Time `json:"began"`            // the first window that had the finding
	Others   []string  `json:"others,omitempty"` // further findings that began in the meantime
	Recorded float64   `json:"recorded_seconds"`
	Whole    bool      `json:"whole"`
	Timeline []Span    `json:"timeline,omitempty"` // what each window said, oldest first

	windows []float64 // beginnings of the windows, from the beginning of the report's window
	spans   []recording.IncidentSpan
}

// A Span is a finding at warning or above in consecutive windows.
type Span struct {
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended"`
	Check    string    `json:"check"`
	Subject  string    `json:"subject"`
	Severity string    `json:"severity"`
	Summary  string    `json:"summary"`
	Trigger  bool      `json:"trigger,omitempty"` // the recording was made for it
}

// Bounds of a timeline that somebody else may have written. The recorder's own has at most 100 spans, and the windows
// of 5 s of an hour.
const (
	maxSpans   = 100
	maxWindows = 1000
	farthest   = 86400 // seconds
)

// incidentOf returns nil for a recording without an incident.
func incidentOf(m recording.Meta) *Incident {
	i := m.Incident
	if i == nil {
		return nil
	}
	at := func(seconds float64) time.Time {
		seconds = min(max(seconds, -farthest), farthest)
		return m.Started.Add(time.Duration(seconds * float64(time.Second))).UTC()
	}
	out := &Incident{
		Check: i.Check, Subject: i.Subject, Severity: i.Severity, Summary: i.Summary, Others: i.Others,
		Recorded: i.Recorded, Began: at(i.From),
		windows: i.Windows[:min(len(i.Windows), maxWindows)], spans: i.Timeline[:min(len(i.Timeline), maxSpans)],
	}
	for _, s := range out.spans {
		out.Timeline = append(out.Timeline, Span{
			Began: at(s.From), Ended: at(s.To), Check: s.Check, Subject: s.Subject, Severity: s.Severity,
			Summary: s.Summary, Trigger: s.Check == i.Check && s.Subject == i.Subject,
		})
	}
	if out.Recorded == 0 {
		out.Recorded, out.Whole = m.Duration, true
	}
	return out
}

// headline puts the finding that a flight recorder recorded for before all others, at the severity that it had then.
// A longer time dilutes it, and a finding in only part of the windows may be none over all of them; but whoever opens
// an incident wants to read why it was kept.
func headline(i *recording.Incident, res *check.Result) *check.Result {
	if i == nil || !slices.ContainsFunc(res.Outcomes, func(o check.Outcome) bool { return o.Check == i.Check }) {
		return res // its check was not asked for, or no check has that name
	}
	out := &check.Result{Findings: slices.Clone(res.Findings), Outcomes: res.Outcomes}
	at := slices.IndexFunc(out.Findings, func(f check.Finding) bool {
		return f.Check == i.Check && f.Subject.String() == i.Subject
	})
	f := asRecorded(i, res)
	if at >= 0 {
		now := out.Findings[at]
		if now.Severity < check.Warning {
			now.Notes = append(slices.Clone(now.Notes), "over the time of this report: "+now.Summary)
			now.Severity, now.Summary = f.Severity, f.Summary
		}
		f = now
		out.Findings = slices.Delete(out.Findings, at, at+1)
	}
	if f.ExplainedBy != "" {
		f.Notes = append(slices.Clone(f.Notes), "it follows from "+f.ExplainedBy+", see below")
		f.ExplainedBy = ""
	}
	f.Beside = false
	out.Findings = slices.Insert(out.Findings, 0, f)
	return out
}

// asRecorded is the finding as the recorder noted it, for a report over a time in which its check finds nothing.
func asRecorded(i *recording.Incident, res *check.Result) check.Finding {
	kind, id, _ := strings.Cut(i.Subject, " ")
	f := check.Finding{
		Check: i.Check, Subject: check.Subject{Kind: kind, ID: id}, Severity: check.Warning, Confidence: check.Medium,
		Summary: i.Summary,
		Doubts: []string{
			"it is as the flight recorder noted it: over the time of this report the check does not find it",
		},
		Disproof: "the part of the recording with the finding does not show it either: leave out --whole",
	}
	if i.Severity == check.Critical.String() {
		f.Severity = check.Critical
	}
	for _, o := range res.Outcomes {
		if o.Check == i.Check {
			f.Stage = o.Stage
		}
	}
	return f
}

// Text says which part of a flight recorder's recording the report is about, and why it was kept.
func (i *Incident) Text() string {
	recorded := quantity.Of("", i.Recorded, quantity.Seconds).Text()
	if i.Whole {
		return fmt.Sprintf("all of the %s that a flight recorder kept because of %s: %s, which began at %s", recorded,
			i.Check, i.Subject,
			i.Began.Format("15:04:05 UTC"))
	}
	return fmt.Sprintf("from %s that a flight recorder kept, the part with %s: %s; --whole shows all of it", recorded,
		i.Check, i.Subject)
}

// Bounds of the timeline in text: findings that have a line without -v, and windows that have their own place.
const (
	shownSpans   = 8
	shownWindows = 30
)

// timeline prints a line for each finding that the windows of an incident had, with a mark for each window that had
// it.
func (t *text) timeline() {
	i := t.d.Incident
	if i == nil || len(i.spans) == 0 {
		return
	}
	t.blank()
	t.line(bold, "TIMELINE  ", "  ", i.timelineHead())
	shown := i.Timeline
	if !t.verbose {
		shown = shown[:min(len(shown), shownSpans)]
	}
	for n := range shown {
		s := &shown[n]
		head := fmt.Sprintf("  %s %s  ", i.strip(i.spans[n]), s.Began.Format("15:04:05"))
		what := s.Severity + " " + s.Check + ": " + s.Subject
		if s.Trigger {
			what += " (recorded for this)"
		}
		t.line(plain, head, strings.Repeat(" ", 4), what)
	}
	if left := len(i.Timeline) - len(shown); left > 0 {
		t.line(faint, "  ", "  ", fmt.Sprintf("and %d more (-v shows them)", left))
	}
}

func (i *Incident) timelineHead() string {
	return fmt.Sprintf("%s; █ has the finding, · has not", plural(len(i.windows), "window"))
}

// strip draws which windows have a finding. If there are more windows than places, several share a place.
func (i *Incident) strip(s recording.IncidentSpan) string {
	n := len(i.windows)
	places := min(n, shownWindows)
	marks := []rune(strings.Repeat("·", places))
	for w, begin := range i.windows {
		if begin >= s.From && begin < s.To {
			marks[w*places/n] = '█'
		}
	}
	return string(marks)
}
