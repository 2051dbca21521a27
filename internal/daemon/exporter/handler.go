package exporter

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	metricsPath = "/metrics"
	healthyPath = "/-/healthy"
	readyPath   = "/-/ready"

	collectorsPath = "/collectors"
)

// A Page is a page served beside the metrics.
type Page struct {
	Path    string // as http.ServeMux wants it, with a slash at the end for everything below
	Handler http.Handler
}

// Handler serves the metrics, health and the pages. It is ready once there was a window of the host.
func (e *Exporter) Handler(pages ...Page) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+metricsPath,
		Limit(promhttp.HandlerFor(e.snapshot, promhttp.HandlerOpts{EnableOpenMetrics: true})))
	mux.HandleFunc("GET "+healthyPath, func(w http.ResponseWriter, _ *http.Request) { answer(w, "healthy") })
	mux.HandleFunc("GET "+readyPath, e.serveReady)
	mux.HandleFunc("GET "+collectorsPath, e.serveCollectors)
	for _, p := range pages {
		mux.Handle("GET "+p.Path, p.Handler)
	}
	return mux
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

// AnswerPage writes an HTML page that loads nothing and has style as its only style sheet.
func AnswerPage(w http.ResponseWriter, text, style string) {
	sum := sha256.Sum256([]byte(style))
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+
		base64.StdEncoding.EncodeToString(sum[:])+"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, text) // a peer that is gone has no use for it
}

// AnswerJSON writes v. A value without a form in JSON, such as a number that is not finite, is an error 500 that
// names what.
func AnswerJSON(w http.ResponseWriter, what string, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		http.Error(w, what+" cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b.Bytes()) // a peer that is gone has no use for it
}

// serveCollectors lists what does not work, as text.
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
