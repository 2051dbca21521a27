package flight

import (
	"bytes"
	_ "embed"
	"errors"
	"io/fs"
	"net/http"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/report/page"
)

// listPath is where the recordings are served.
const listPath = "/recordings"

// reportPath follows the path of a recording: the recording as a page.
const reportPath = "/report"

// maxDownloads is how many recordings are read from the disk at a time: the disk belongs to a sick host.
const maxDownloads = 4

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

// Pages are the recorder's pages that the exporter serves: the list, and everything below.
func (r *Recorder) Pages() []exporter.Page {
	h := r.Handler()
	return []exporter.Page{{Path: listPath, Handler: h}, {Path: listPath + "/", Handler: h}}
}

// Incidents returns the existing recordings, the newest first.
func (r *Recorder) Incidents() []File { return r.store.list() }

// Handler serves the list at /recordings, as JSON or as a page for a browser, and each recording below it.
func (r *Recorder) Handler() http.Handler {
	template := pageTemplate()
	mux := http.NewServeMux()
	list := func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Vary", "Accept")
		w.Header().Set("Cache-Control", "no-store")
		if strings.Contains(req.Header.Get("Accept"), "text/html") {
			r.servePage(w, template)
			return
		}
		exporter.AnswerJSON(w, "the list", r.all())
	}
	bounded := exporter.Limit(http.HandlerFunc(list)) // for 1,000 recordings it is some 500 KB
	mux.Handle("GET "+listPath, bounded)
	mux.Handle("GET "+listPath+"/{$}", bounded)
	downloads := make(chan struct{}, maxDownloads)
	mux.HandleFunc("GET "+listPath+"/{name}", func(w http.ResponseWriter, req *http.Request) {
		select {
		case downloads <- struct{}{}:
			defer func() { <-downloads }()
			r.serveFile(w, req)
		default:
			w.Header().Set("Retry-After", "10") // seconds, enough to send a recording of some MB
			http.Error(w, "too many downloads at once", http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET "+listPath+"/{name}"+reportPath, exporter.Limit(r.oneReport()))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, req)
	})
}

// oneReport writes one report at a time: each takes the memory of its recording and some tenths of a second of a CPU.
func (r *Recorder) oneReport() http.Handler {
	turn := make(chan struct{}, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
			r.serveReport(w, req)
		case <-req.Context().Done():
			http.Error(w, "another report is being written: try again", http.StatusServiceUnavailable)
		}
	})
}

// serveReport writes the report of a recording as a page for a browser: of the part with the finding, or with ?whole
// of all of it. The page brings its own content security policy.
func (r *Recorder) serveReport(w http.ResponseWriter, req *http.Request) {
	f, _, err := r.store.open(req.PathValue("name"))
	if err != nil || r.o.Report == nil {
		http.Error(w, "there is no such recording", http.StatusNotFound)
		return
	}
	_ = f.Close() // only read
	rec, err := recording.Open(f.Name())
	if err != nil {
		http.Error(w, "the recording cannot be read: the exporter's log says why", http.StatusInternalServerError)
		r.o.Log.Error("flight recorder: a recording cannot be read", "err", err)
		return
	}
	if !req.URL.Query().Has("whole") {
		rec = rec.AtIncident()
	}
	var page bytes.Buffer
	if err := r.o.Report(&page, rec); err != nil {
		http.Error(w, "the report cannot be written: the exporter's log says why", http.StatusInternalServerError)
		r.o.Log.Error("flight recorder: a report cannot be written", "file", f.Name(), "err", err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Security-Policy", "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page.Bytes()) // a peer that is gone has no use for it
}

// A list is the answer to a request for all recordings.
type list struct {
	Recordings []File `json:"recordings"` // the newest first
	Bytes      int64  `json:"bytes"`
	MaxBytes   int64  `json:"max_bytes"`
}

func (r *Recorder) all() list {
	files := r.store.list()
	return list{Recordings: append([]File{}, files...), Bytes: sum(files), MaxBytes: r.o.MaxBytes}
}

// pageTemplate is the list as a page.
func pageTemplate() *page.Template {
	return page.Must(page.Parse(pageText, page.Funcs{
		"began": func(f File) string { return f.Began.UTC().Format("2006-01-02 15:04:05") },
	}))
}

// pageData is the data for the page.
type pageData struct {
	list
	Style page.Trusted
}

func (r *Recorder) servePage(w http.ResponseWriter, t *page.Template) {
	text, err := t.Text("page", pageData{r.all(), page.Trusted(pageStyle)})
	if err != nil {
		http.Error(w, "the page cannot be written", http.StatusInternalServerError)
		return
	}
	exporter.AnswerPage(w, text, pageStyle)
}

func (r *Recorder) serveFile(w http.ResponseWriter, req *http.Request) {
	name := req.PathValue("name")
	f, st, err := r.store.open(name)
	if err != nil {
		status := http.StatusNotFound
		if !errors.Is(err, fs.ErrNotExist) {
			status = http.StatusForbidden
		}
		http.Error(w, "there is no such recording", status)
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/zip")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	http.ServeContent(w, req, name, st.ModTime(), f)
}
