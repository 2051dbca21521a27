package flight

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
	"github.com/perfdoctor/perfdoctor/internal/report/page"
)

// listPath is where the recordings are served.
const listPath = "/recordings"

// maxDownloads is how many recordings are read from the disk at a time: it is the disk of a sick host.
const maxDownloads = 4

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

// Pages are what the exporter serves of the recorder: the list, with a link to it, and all below.
func (r *Recorder) Pages() []exporter.Page {
	h := r.Handler()
	return []exporter.Page{
		{
			Path: listPath, Text: "Recordings", Description: "what was measured before and after findings began",
			Handler: h,
		},
		{Path: listPath + "/", Handler: h},
	}
}

// Handler serves the list at /recordings, as JSON or as a page for a browser, and each recording below it.
func (r *Recorder) Handler() http.Handler {
	template := pageTemplate()
	style := sha256.Sum256([]byte(pageStyle))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(style[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	mux := http.NewServeMux()
	list := func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Vary", "Accept")
		w.Header().Set("Cache-Control", "no-store")
		if strings.Contains(req.Header.Get("Accept"), "text/html") {
			w.Header().Set("Content-Security-Policy", policy)
			r.servePage(w, template)
			return
		}
		r.serveJSON(w)
	}
	bounded := exporter.Limit(http.HandlerFunc(list)) // of 1,000 recordings it is some 500 KB
	mux.Handle("GET "+listPath, bounded)
	mux.Handle("GET "+listPath+"/{$}", bounded)
	downloads := make(chan struct{}, maxDownloads)
	mux.HandleFunc("GET "+listPath+"/{name}", func(w http.ResponseWriter, req *http.Request) {
		select {
		case downloads <- struct{}{}:
			defer func() { <-downloads }()
			r.serveFile(w, req)
		default:
			w.Header().Set("Retry-After", "10") // seconds, in which a recording of some MB is through
			http.Error(w, "too many downloads at once", http.StatusServiceUnavailable)
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, req)
	})
}

// A list is the answer to who asks for all recordings.
type list struct {
	Recordings []File `json:"recordings"` // the newest first
	Bytes      int64  `json:"bytes"`
	MaxBytes   int64  `json:"max_bytes"`
}

func (r *Recorder) all() list {
	files := r.store.list()
	return list{Recordings: append([]File{}, files...), Bytes: sum(files), MaxBytes: r.o.MaxBytes}
}

func (r *Recorder) serveJSON(w http.ResponseWriter) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(r.all()); err != nil { // a time or a number that JSON has no form for
		http.Error(w, "the list cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b.Bytes()) // a peer that is gone has no use for it
}

// pageTemplate is the list as a page.
func pageTemplate() *page.Template {
	return page.Must(page.Parse(pageText, page.Funcs{
		"began": func(f File) string { return f.Began.UTC().Format("2006-01-02 15:04:05") },
	}))
}

// pageData is what the page is filled with.
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
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, text)
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
