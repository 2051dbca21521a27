// Package front is the daemon's first page: what is wrong with the host now, since when, and what to do, and what
// went wrong last. The page is one file without a program, so that it opens in whatever is at hand at night. The same
// is available as JSON.
//
// Names on a host are hostile: package page escapes them, and control characters are shown as escapes. Over the
// network a client without a password reads no more here than in the metrics: see [exporter.Trusted].
package front

import (
	_ "embed"
	"net/http"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
	"github.com/perfdoctor/perfdoctor/internal/daemon/flight"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
	"github.com/perfdoctor/perfdoctor/internal/report"
	"github.com/perfdoctor/perfdoctor/internal/report/page"
)

// Paths of the page and of its JSON form.
const (
	pagePath = "/"
	apiPath  = "/api/findings"
)

// Bounds of an answer: nobody reads on beyond these, and /metrics counts all.
const (
	maxFindings  = 100
	maxIncidents = 10
)

// checkPages is the address of the checks' manual pages.
const checkPages = "https://github.com/perfdoctor/perfdoctor/blob/main/docs/checks/"

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
)

// Options say what to show.
type Options struct {
	Host    string // name of this host
	Version string
	Window  time.Duration // how long a window is
	Checks  []*check.Check
	Now     func() exporter.State
	// Incidents returns the flight recorder's recordings, the newest first; nil without a recorder.
	Incidents func() []flight.File
}

// Pages returns the page and its JSON form.
func Pages(o Options) []exporter.Page {
	f := &front{Options: o, titles: map[string]string{}, page: page.Must(page.Parse(pageText, functions()))}
	for _, c := range o.Checks {
		f.titles[c.Name] = c.Title()
	}
	return []exporter.Page{
		{Path: pagePath + "{$}", Handler: exporter.Limit(http.HandlerFunc(f.servePage))},
		{Path: apiPath, Handler: exporter.Limit(http.HandlerFunc(f.serveJSON))},
	}
}

type front struct {
	Options
	titles map[string]string
	page   *page.Template
}

// A Finding is what is wrong, or was a short while ago.
type Finding struct {
	Target string    `json:"target,omitempty"`
	Since  time.Time `json:"since"`     // beginning of the first window that had it
	Last   time.Time `json:"last_seen"` // end of the last one
	Now    bool      `json:"now"`       // the last window has it; if false, it is an event that is over
	Title  string    `json:"title"`     // of its check
	Manual string    `json:"manual"`    // the page of its check

	*check.Finding // for an untrusted client only what the metrics say
}

// View is the host now, and the answer at /api/findings.
type View struct {
	Schema    int           `json:"schema"` // rises when a field is removed or changes its meaning
	Version   string        `json:"perfdoctor"`
	Host      string        `json:"host,omitempty"`
	Ended     time.Time     `json:"window_ended"` // of the newest window; zero before the first
	Seconds   float64       `json:"window_seconds"`
	Findings  []Finding     `json:"findings"` // the one to act on first comes first
	More      int           `json:"more_findings,omitempty"`
	Incidents []flight.File `json:"incidents,omitempty"` // the newest first
	Reduced   bool          `json:"reduced,omitempty"`   // numbers and fixes are left out because there is no password
}

// schema is the version of the JSON answer.
const schema = 1

func (f *front) view(trusted bool) View {
	now := f.Now()
	v := View{
		Schema: schema, Version: f.Version, Ended: now.Ended.UTC(), Seconds: f.Window.Seconds(),
		Findings: []Finding{}, Reduced: !trusted,
	}
	for i := range now.Standing {
		if i == maxFindings {
			v.More = len(now.Standing) - maxFindings
			break
		}
		v.Findings = append(v.Findings, f.finding(&now.Standing[i], trusted))
	}
	if !trusted {
		return v
	}
	v.Host = f.Host
	if f.Incidents != nil {
		list := f.Incidents()
		v.Incidents = list[:min(len(list), maxIncidents)]
	}
	return v
}

func (f *front) finding(s *exporter.Standing, trusted bool) Finding {
	out := Finding{
		Since: s.Since.UTC(), Last: s.Last.UTC(), Now: s.Absent == 0, Title: f.titles[s.Finding.Check],
		Manual: checkPages + s.Finding.Check + ".md",
	}
	if trusted {
		out.Target, out.Finding = s.Target, &s.Finding
		return out
	}
	out.Finding = &check.Finding{
		Check: s.Finding.Check, Stage: s.Finding.Stage, Severity: s.Finding.Severity,
		Confidence: s.Finding.Confidence, Evidence: []quantity.Value{},
		Subject: check.Subject{Kind: exporter.SubjectLabel(s.Finding.Subject)},
	}
	return out
}

func (f *front) serveJSON(w http.ResponseWriter, r *http.Request) {
	harden(w)
	exporter.AnswerJSON(w, "the findings", f.view(exporter.Trusted(r)))
}

// pageData is the data for the page.
type pageData struct {
	View
	Recorder bool
	Style    page.Trusted
}

// functions are the functions that the page calls.
func functions() page.Funcs {
	const day, clock = "2006-01-02 15:04:05", "15:04:05"
	return page.Funcs{
		"shown": shown, "pair": pair, "isZero": time.Time.IsZero, "elsewhere": elsewhere,
		"clock":  func(t time.Time) string { return t.Format(clock) },
		"moment": func(t time.Time) string { return t.UTC().Format(day) },
		"ago":    func(t, now time.Time) string { return evidence.AgeText(max(0, now.Sub(t).Seconds())) },
	}
}

// elsewhere returns the target of a window, or "" for the whole host.
func elsewhere(target string) string {
	if target == "host" {
		return ""
	}
	return target
}

func (f *front) servePage(w http.ResponseWriter, r *http.Request) {
	data := pageData{f.view(exporter.Trusted(r)), f.Incidents != nil, page.Trusted(pageStyle)}
	text, err := f.page.Text("page", data)
	if err != nil {
		http.Error(w, "the page cannot be written", http.StatusInternalServerError)
		return
	}
	harden(w)
	exporter.AnswerPage(w, report.Escape(text, "\n\t"), pageStyle)
}

// harden keeps an answer out of caches and keeps browsers from treating it as another type.
func harden(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Referrer-Policy", "no-referrer")
}

// shown returns the findings that have their own block, or the others, which are FYI.
func shown(list []Finding, blocks bool) []Finding {
	var out []Finding
	for _, f := range list {
		if (f.Severity >= check.Warning) == blocks {
			out = append(out, f)
		}
	}
	return out
}

// dated is a finding, and the time from which its ages count back.
type dated struct {
	F     Finding
	Ended time.Time
}

func pair(f Finding, ended time.Time) dated { return dated{f, ended} }
