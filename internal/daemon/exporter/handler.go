package exporter

import (
	_ "embed"
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/perfdoctor/perfdoctor/internal/report/page"
)

const (
	metricsPath = "/metrics"
	healthyPath = "/-/healthy"
	readyPath   = "/-/ready"

	collectorsPath = "/collectors"
)

// A Page is something to be served beside the metrics.
type Page struct {
	Path        string // as http.ServeMux wants it, with a slash at the end for all below
	Text        string // of its link; "" for none
	Description string // one sentence
	Handler     http.Handler
}

//go:embed landing.html
var landingText string

// landingData is what the page of links is filled with.
type landingData struct {
	Version string
	Links   []Page
}

// Handler serves the metrics, health, pages, and a page with links to them all. It is ready once there was a window of
// the host.
func (e *Exporter) Handler(pages ...Page) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.Handle("GET "+metricsPath,
		Limit(promhttp.HandlerFor(e.snapshot, promhttp.HandlerOpts{EnableOpenMetrics: true})))
	mux.HandleFunc("GET "+healthyPath, func(w http.ResponseWriter, _ *http.Request) { answer(w, "healthy") })
	mux.HandleFunc("GET "+readyPath, e.serveReady)
	mux.HandleFunc("GET "+collectorsPath, e.serveCollectors)
	links := []Page{
		{Path: metricsPath, Text: "Metrics", Description: "for Prometheus, of the last window"},
		{Path: readyPath, Text: "Ready", Description: "whether there was a window"},
		{Path: collectorsPath, Text: "Collectors", Description: "what cannot be measured here, why, and what would " +
			"change that"},
	}
	for _, p := range pages {
		mux.Handle("GET "+p.Path, p.Handler)
		if p.Text != "" {
			links = append(links, p)
		}
	}
	landing, err := page.Must(page.Parse(landingText, nil)).Text("page", landingData{e.o.Version, links})
	if err != nil {
		return nil, fmt.Errorf("write the landing page: %w", err)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, landing)
	})
	return mux, nil
}

func (e *Exporter) serveReady(w http.ResponseWriter, _ *http.Request) {
	if !e.ready.Load() {
		http.Error(w, "the first window is not over", http.StatusServiceUnavailable)
		return
	}
	answer(w, "ready")
}

// answer writes one line. A peer that is gone has no use for it.
func answer(w http.ResponseWriter, line string) { _, _ = fmt.Fprintln(w, "perfdoctor is "+line+".") }

// serveCollectors lists what does not work, as text: the landing page is written once, and this changes.
func (e *Exporter) serveCollectors(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	hints := e.hints.Load()
	switch {
	case hints == nil:
		_, _ = fmt.Fprintln(w, "The first window is not over.")
		return
	case len(*hints) == 0:
		_, _ = fmt.Fprintln(w, "All collectors work.")
	}
	for _, c := range *hints {
		_, _ = fmt.Fprintf(w, "%s: %s: %s\n", c.Name, c.Status, c.Reason)
		if c.Remedy != "" {
			_, _ = fmt.Fprintf(w, "  -> %s\n", c.Remedy)
		}
	}
}
