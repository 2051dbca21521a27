package exporter

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"
)

const (
	metricsPath = "/metrics"
	healthyPath = "/-/healthy"
	readyPath   = "/-/ready"
)

// A Page is something to be served beside the metrics.
type Page struct {
	Path        string // as http.ServeMux wants it, with a slash at the end for all below
	Text        string // of its link
	Description string // one sentence
	Handler     http.Handler
}

// Handler serves the metrics of the registry, health, pages, and a page with links to them all. Ready is what it is once there was a window.
func (e *Exporter) Handler(registry *prometheus.Registry, pages ...Page) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.Handle("GET "+metricsPath, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET "+healthyPath, func(w http.ResponseWriter, _ *http.Request) { answer(w, "healthy") })
	mux.HandleFunc("GET "+readyPath, e.serveReady)
	links := []web.LandingLinks{
		{Address: metricsPath, Text: "Metrics", Description: "for Prometheus, of the last window"},
		{Address: readyPath, Text: "Ready", Description: "whether there was a window"},
	}
	for _, p := range pages {
		mux.Handle(p.Path, p.Handler)
		links = append(links, web.LandingLinks{Address: p.Path, Text: p.Text, Description: p.Description})
	}
	landing, err := web.NewLandingPage(web.LandingConfig{
		Name: "perfdoctor exporter", Description: "What holds this host back, for Prometheus", Version: e.o.Version, Links: links,
		Profiling: "false",
	})
	if err != nil {
		return nil, fmt.Errorf("write the landing page: %w", err)
	}
	mux.Handle("GET /", landing)
	return mux, nil
}

func (e *Exporter) serveReady(w http.ResponseWriter, _ *http.Request) {
	if e.windows.Load() == 0 {
		http.Error(w, "the first window is not over", http.StatusServiceUnavailable)
		return
	}
	answer(w, "ready")
}

// answer writes one line. A peer that is gone has no use for it.
func answer(w http.ResponseWriter, line string) { _, _ = fmt.Fprintln(w, "perfdoctor is "+line+".") }
