package flight

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/collect"
	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

var start = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)

const length = 15 * time.Second

// source is a recording of a real host, as each window has it.
func source(t *testing.T) *recording.Recording {
	t.Helper()
	rec, err := recording.Open("../../checks/limits/testdata/cpu-throttled/firing-ancestor.txtar")
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// windowAt is the nth window of a target. Each word of has is a check with a finding.
func windowAt(rec *recording.Recording, target string, n int, has ...string) exporter.Window {
	w := exporter.Window{
		Name: target, Recording: rec.WithoutProfiles(), Begin: start.Add(time.Duration(n) * length),
		Result: &check.Result{},
	}
	w.End, w.Recording.Meta.Started = w.Begin.Add(length), w.Begin
	for _, name := range has {
		w.Result.Findings = append(w.Result.Findings, check.Finding{
			Check: name, Subject: check.Subject{Kind: "cgroup", ID: "/a"}, Severity: check.Warning, Summary: name +
				" <b>by far</b>",
		})
	}
	return w
}

func options(t *testing.T) Options {
	t.Helper()
	return Options{
		Dir: filepath.Join(t.TempDir(), "recordings"), MaxBytes: 10 << 20, Memory: 64 << 20, Before: 30 * time.Second,
		After:    15 * time.Second,
		Cooldown: 10 * time.Minute, Host: "node 1/é", Log: slog.New(slog.DiscardHandler),
	}
}

// running runs a recorder. The returned function stops it and waits for its end.
func running(t *testing.T, o Options) (r *Recorder, stop func()) {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return r, stop
}

func eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not reached: " + what)
		}
	}
}

func (r *Recorder) counted(outcome string) float64 { return testutil.ToFloat64(r.outcome(outcome)) }

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// TestBeforeAndAfter: what was measured before and after the beginning is in one file, for that target only.
func TestBeforeAndAfter(t *testing.T) {
	rec, o := source(t), options(t)
	r, stop := running(t, o)
	for n, has := range []string{"", "", "", "", "a", "a b", "", "a", "a"} {
		r.Observe(windowAt(rec, "host", n, strings.Fields(has)...))
		r.Observe(windowAt(rec, "pod", n))
	}
	eventually(t, "one is written", func() bool { return r.counted("written") == 1 })
	stop()
	want := []string{"20261122T030100Z-node_1__-a.zip"}
	if d := cmp.Diff(want, names(t, o.Dir)); d != "" {
		t.Fatal(d)
	}
	path := filepath.Join(o.Dir, want[0])
	got, err := recording.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	// Two windows before, the one with the beginning, and one after. The last has the measured part of its 15 s.
	if got.Meta.Duration != 45+rec.Meta.Duration {
		t.Errorf("%v s are recorded", got.Meta.Duration)
	}
	incident := recording.Incident{
		From: 30, To: 45 + rec.Meta.Duration, Check: "a", Subject: "cgroup /a", Severity: "warning",
		Summary: "a <b>by far</b>",
		Others:  []string{"b cgroup /a"},
		Windows: []float64{0, 15, 30, 45},
		Timeline: []recording.IncidentSpan{
			{From: 30, To: 60, Check: "a", Subject: "cgroup /a", Severity: "warning", Summary: "a <b>by far</b>"},
			{From: 45, To: 60, Check: "b", Subject: "cgroup /a", Severity: "warning", Summary: "b <b>by far</b>"},
		},
	}
	if d := cmp.Diff(&incident, got.Meta.Incident); d != "" {
		t.Error(d)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if got.Meta.EndedEarly != "" {
		t.Errorf("ended early: %s", got.Meta.EndedEarly)
	}
}

// TestCooldown: the same check and subject is recorded only once in a while, even after a restart and for another
// target.
func TestCooldown(t *testing.T) {
	rec, o := source(t), options(t)
	r, stop := running(t, o)
	episode := func(r *Recorder, target string, n int, name string) {
		r.Observe(windowAt(rec, target, n, name))
		for i := 1; i < 4; i++ {
			r.Observe(windowAt(rec, target, n+i))
		}
	}
	episode(r, "host", 0, "a")
	episode(r, "host", 5, "a")
	episode(r, "pod", 10, "a")
	episode(r, "host", 15, "b")
	eventually(t, "two are written", func() bool { return r.counted("written") == 2 && r.counted("cooldown") == 2 })
	stop()
	r, stop = running(t, o)
	if n := len(r.store.list()); n != 2 {
		t.Fatalf("a restart finds %d recordings", n)
	}
	episode(r, "host", 20, "a")
	eventually(t, "the restarted one cools down", func() bool { return r.counted("cooldown") == 1 })
	episode(r, "host", 41, "a")
	eventually(t, "it is over after ten minutes", func() bool { return r.counted("written") == 1 })
	stop()
}

// TestStopped: a recording in progress is written when the exporter ends, and says that it is shorter.
func TestStopped(t *testing.T) {
	rec, o := source(t), options(t)
	o.After = time.Hour
	r, stop := running(t, o)
	r.Observe(windowAt(rec, "host", 0, "a"))
	stop()
	list := r.store.list()
	if len(list) != 1 || r.counted("written") != 1 {
		t.Fatalf("%+v", list)
	}
	meta, err := recording.OpenMeta(filepath.Join(o.Dir, list[0].Name))
	if err != nil || !strings.Contains(meta.EndedEarly, "stopped") {
		t.Errorf("ended early: %q, %v", meta.EndedEarly, err)
	}
}

// TestLimit: the oldest go first. Files that are not ours or half written do not count as recordings.
func TestLimit(t *testing.T) {
	rec, o := source(t), options(t)
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	half := ".20261122T030000Z-h-a.zip.77.perfdoctor.partial"
	for _, name := range []string{"notes.txt", half, "20261122T000000Z-h-x.zip"} {
		if err := os.WriteFile(filepath.Join(o.Dir, name), []byte("no zip"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var sizes []int64
	s, err := openStore(o.Dir, 1<<30, o.Log)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(names(t, o.Dir), half) {
		t.Error("what a killed exporter left half written is still there")
	}
	if list := s.list(); len(list) != 1 || list[0].Damaged == "" {
		t.Errorf("a damaged file is listed as %+v", list)
	}
	for n := range 3 {
		name, err := s.add(rec, fileName(start.Add(time.Duration(n)*time.Hour), "h", "a"))
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(filepath.Join(o.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, st.Size())
	}
	if name, err := s.add(rec, fileName(start.Add(2*time.Hour), "h", "a")); err != nil ||
		name != "20261122T050000Z-h-a-2.zip" {
		t.Errorf("a second one of the same second is %s, %v", name, err)
	}
	s, err = openStore(o.Dir, 2*sizes[0]+1, o.Log)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"20261122T050000Z-h-a-2.zip", "20261122T050000Z-h-a.zip", "notes.txt"}
	if d := cmp.Diff(want, names(t, o.Dir)); d != "" {
		t.Errorf("with room for two: %s", d)
	}
	if s.bytes() > 2*sizes[0]+1 {
		t.Errorf("%d bytes", s.bytes())
	}
	s.max = 10
	if _, err := s.add(rec, fileName(start, "h", "b")); err == nil || !strings.Contains(err.Error(),
		"--flight.max-bytes") {
		t.Errorf("one that is larger than all may be: %v", err)
	}
}

// TestDiskFails: a recording that cannot be written is counted, and the next one can be.
func TestDiskFails(t *testing.T) {
	rec, o := source(t), options(t)
	r, _ := running(t, o)
	if err := os.Rename(o.Dir, o.Dir+".away"); err != nil {
		t.Fatal(err)
	}
	r.Observe(windowAt(rec, "host", 0, "a"))
	r.Observe(windowAt(rec, "host", 1))
	eventually(t, "the failure is counted", func() bool { return r.counted("failed") == 1 })
	if err := os.Rename(o.Dir+".away", o.Dir); err != nil {
		t.Fatal(err)
	}
	r.Observe(windowAt(rec, "host", 2, "b"))
	r.Observe(windowAt(rec, "host", 3))
	eventually(t, "the next one is written", func() bool { return r.counted("written") == 1 })
}

// TestNeverBlocks: if nobody takes windows, the queue fills and the rest is counted.
func TestNeverBlocks(t *testing.T) {
	r, err := New(options(t))
	if err != nil {
		t.Fatal(err)
	}
	w := windowAt(source(t), "host", 0)
	for range maxQueue + 7 {
		r.Observe(w)
	}
	if n := testutil.ToFloat64(r.dropped); n != 7 {
		t.Errorf("%v windows are counted as dropped, want 7", n)
	}
}

// TestMemory: memory does not grow with time or with the number of targets. A recording in progress ends if there is no
// room.
func TestMemory(t *testing.T) {
	rec := source(t)
	size := rec.Size()
	var r ring
	for n := range 100 {
		r.add(windowAt(rec, "host", n), time.Minute, 1<<40)
	}
	if len(r.entries) != 5 || r.held != 5*size { // four have ended within the minute, and one just then
		t.Errorf("%d windows of the last minute, %d bytes", len(r.entries), r.held)
	}
	r.add(windowAt(rec, "host", 100), time.Hour, 3*size)
	if len(r.entries) != 3 || r.held != 3*size {
		t.Errorf("%d windows, %d bytes in memory for three", len(r.entries), r.held)
	}

	o := options(t)
	o.Memory, o.Before, o.After = 3*size, time.Hour, 24*time.Hour
	rr, stop := running(t, o)
	for n := range 10 {
		rr.Observe(windowAt(rec, "host", n, "a"))
	}
	eventually(t, "it is written without an end", func() bool { return rr.counted("written") == 1 })
	stop()
	meta, err := recording.OpenMeta(filepath.Join(o.Dir, names(t, o.Dir)[0]))
	if err != nil || !strings.Contains(meta.EndedEarly, "memory") || meta.Duration < 30 || meta.Duration > 60 {
		t.Errorf("%v s, ended early: %q, %v", meta.Duration, meta.EndedEarly, err)
	}
	if rr.ring.held > o.Memory {
		t.Errorf("%d bytes are held, of %d", rr.ring.held, o.Memory)
	}
}

// TestProfile: the recording has a profile of the offender. There is one at a time, and none without a JVM, which uses
// nothing of the budget.
func TestProfile(t *testing.T) {
	rec, o := source(t), options(t)
	profile, err := recording.Open("../../checks/runtime/testdata/lock-contention/firing.txtar")
	if err != nil {
		t.Fatal(err)
	}
	events := profile.WithoutProfiles() // the ones it has
	if len(events.Meta.Collectors) == 0 {
		t.Fatal("no collectors")
	}
	calls := make(chan string, 10)
	o.Cooldown = 0
	o.Profile = func(_ context.Context, _ exporter.Window, f *check.Finding) (*recording.Recording, error) {
		calls <- f.Check
		switch f.Check {
		case "none":
			return nil, nil
		case "bad":
			return nil, errors.New("it does not answer")
		}
		return profile, nil
	}
	r, stop := running(t, o)
	n := 0
	incident := func(name string) {
		r.Observe(windowAt(rec, "host", n, name))
		<-calls
		eventually(t, "the profile of "+name, func() bool {
			return testutil.ToFloat64(r.profileOutcome("taken"))+testutil.ToFloat64(r.profileOutcome("failed")) > 0 ||
				name == "none"
		})
		for i := 1; i < 4; i++ {
			r.Observe(windowAt(rec, "host", n+i))
		}
		n += 10
	}
	incident("none")
	incident("a")
	incident("bad")
	eventually(t, "three are written", func() bool { return r.counted("written") == 3 })
	stop()
	if n := testutil.ToFloat64(r.profileOutcome("failed")); n != 1 {
		t.Errorf("%v profiles failed, want 1", n)
	}
	if len(r.profiles) != 2 {
		t.Errorf("%d profiles of the hour are used up, want 2", len(r.profiles))
	}
	for _, f := range r.store.list() {
		z, err := zip.OpenReader(filepath.Join(o.Dir, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		profiled := slices.ContainsFunc(z.File,
			func(f *zip.File) bool { return strings.HasPrefix(f.Name, "profiles/") })
		z.Close()
		if profiled != (f.Check == "a") {
			t.Errorf("%s: profiled %v", f.Name, profiled)
		}
	}
}

func TestProfileBudget(t *testing.T) {
	rec, o := source(t), options(t)
	o.Cooldown = 0
	o.Profile = func(context.Context, exporter.Window, *check.Finding) (*recording.Recording, error) { return rec, nil }
	r, _ := running(t, o)
	taken := func() float64 { return testutil.ToFloat64(r.profileOutcome("taken")) }
	over := func() float64 { return testutil.ToFloat64(r.profileOutcome("budget")) }
	for n := range profilesPerHour + 2 {
		r.Observe(windowAt(rec, "host", 5*n, "a"))
		for i := 1; i < 5; i++ {
			r.Observe(windowAt(rec, "host", 5*n+i))
		}
		eventually(t, "each is answered", func() bool { return taken()+over() == float64(n+1) })
	}
	if taken() != profilesPerHour || over() != 2 {
		t.Errorf("%v profiles were taken in ten minutes, %v were not", taken(), over())
	}
	r.Observe(windowAt(rec, "host", 300, "a"))
	eventually(t, "an hour later", func() bool { return taken() == profilesPerHour+1 })
}

func get(t *testing.T, h http.Handler, path, accept string) (*http.Response, string) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	req.URL.Path = path // as it is: nothing cleans it on the way
	req.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	resp := w.Result()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestHandler(t *testing.T) {
	rec, o := source(t), options(t)
	r, stop := running(t, o)
	r.Observe(windowAt(rec, "host", 0, "a"))
	stop()
	h := r.Handler()
	name := names(t, o.Dir)[0]

	resp, body := get(t, h, "/recordings", "*/*")
	var l list
	if err := json.Unmarshal([]byte(body), &l); err != nil || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%v, %v", err, resp.Header)
	}
	if len(l.Recordings) != 1 || l.Recordings[0].URL != "/recordings/"+name || l.Recordings[0].Check != "a" ||
		l.Bytes <= 0 {
		t.Errorf("%s", body)
	}

	resp, body = get(t, h, "/recordings/", "text/html,*/*;q=0.8")
	if strings.Contains(body, "<b>") || !strings.Contains(body, "&lt;b&gt;by far") ||
		!strings.Contains(body, `href="/recordings/`+name) {
		t.Errorf("the page is\n%s", body)
	}
	policy := resp.Header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	style := body[strings.Index(body, "<style>")+len("<style>") : strings.Index(body, "</style>")]
	if style != pageStyle {
		t.Error("the page's style is not the one that the policy allows")
	}

	resp, body = get(t, h, "/recordings/"+name, "*/*")
	content, err := os.ReadFile(filepath.Join(o.Dir, name))
	if err != nil || body != string(content) || resp.Header.Get("Content-Type") != "application/zip" {
		t.Errorf("%v, %d bytes served of %d, %v", err, len(body), len(content), resp.Header)
	}
	if got := resp.Header.Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("X-Content-Type-Options %q", got)
	}
}

// TestPages: the exporter serves the list and what is below it.
func TestPages(t *testing.T) {
	r, err := New(options(t))
	if err != nil {
		t.Fatal(err)
	}
	e := exporter.New(exporter.Options{TargetCollectors: func() []collect.Collector { return nil }})
	h := e.Handler(r.Pages()...)
	for path, want := range map[string]int{
		"/recordings": http.StatusOK, "/recordings/": http.StatusOK, "/recordings/x.zip": http.StatusNotFound,
		"/recordings/x.zip/report": http.StatusNotFound,
	} {
		if resp, body := get(t, h, path, "*/*"); resp.StatusCode != want {
			t.Errorf("%s: %s\n%s", path, resp.Status, body)
		}
	}
}

// TestReport: each recording opens as a page. A file that is not a recording says so and shows nothing of itself. The
// timeline has the windows as they were.
func TestReport(t *testing.T) {
	rec, o := source(t), options(t)
	o.Report = func(w io.Writer, rec *recording.Recording) error {
		_, err := fmt.Fprintf(w, "<!DOCTYPE html>%.0f s of %s", rec.Meta.Duration, rec.Meta.Incident.Check)
		return err
	}
	r, stop := running(t, o)
	for n, has := range []string{"", "b", "a b", "b", "a"} {
		r.Observe(windowAt(rec, "host", n, strings.Fields(has)...))
	}
	eventually(t, "one is written", func() bool { return r.counted("written") == 1 })
	stop()
	name := names(t, o.Dir)[0]
	if err := os.WriteFile(filepath.Join(o.Dir, "20261122T030000Z-h-broken.zip"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		name + "/report":                       "s of b",
		"20261122T030000Z-h-broken.zip/report": "cannot be read",
	} {
		resp, body := get(t, r.Handler(), "/recordings/"+path, "text/html")
		if !strings.Contains(body, want) || strings.Contains(body, "secret") {
			t.Errorf("%s: %s: %s", path, resp.Status, body)
		}
	}
	m, err := recording.OpenMeta(filepath.Join(o.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	var spans []string
	for _, s := range m.Incident.Timeline {
		spans = append(spans, fmt.Sprintf("%s %v-%v", s.Check, s.From, s.To))
	}
	if d := cmp.Diff([]string{"b 15-45", "a 30-45"}, spans); d != "" || len(m.Incident.Windows) != 3 {
		t.Errorf("%s%v", d, m.Incident.Windows)
	}
}

// TestNoTraversal: only recordings of the directory are served.
func TestNoTraversal(t *testing.T) {
	o := options(t)
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(filepath.Dir(o.Dir), "20261122T030000Z-h-secret.zip")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(o.Dir, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := "20261122T030000Z-h-link.zip"
	if err := os.Symlink(secret, filepath.Join(o.Dir, link)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(o.Dir, "20261122T030000Z-h-dir.zip"), 0o700); err != nil {
		t.Fatal(err)
	}
	base := filepath.Base(secret)
	for _, name := range []string{
		"../" + base, "..%2f" + base, "%2e%2e/" + base, "..", ".", "secret", "secret.zip", link,
		"20261122T030000Z-h-dir.zip", secret,
		"20261122T030000Z-h-x.zip\x00", "20261122T030000Z-../../" + base, strings.Repeat("a", 5000),
	} {
		resp, body := get(t, r.Handler(), "/recordings/"+name, "*/*")
		if resp.StatusCode == http.StatusOK || strings.Contains(body, "secret\n") || body == "secret" {
			t.Errorf("%q is served: %d %q", name, resp.StatusCode, body)
		}
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "/recordings/"+base, nil)
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, req)
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("DELETE is answered with %d", w.Code)
	}
	if list := r.store.list(); len(list) != 0 {
		t.Errorf("listed: %+v", list)
	}
}

func TestNewFails(t *testing.T) {
	o := options(t)
	o.Dir = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(o.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "--flight.dir") {
		t.Errorf("a file for a directory: %v", err)
	}
}

func TestFileName(t *testing.T) {
	for host, want := range map[string]string{
		"node-1.example.org":     "20261122T030000Z-node-1.example.org-a.zip",
		"../../etc":              "20261122T030000Z-.._.._etc-a.zip",
		strings.Repeat("h", 300): fmt.Sprintf("20261122T030000Z-%s-a.zip", strings.Repeat("h", 63)),
		"":                       "20261122T030000Z--a.zip",
	} {
		if got := fileName(start, host, "a"); got != want || !ours.MatchString(got) {
			t.Errorf("%q gives %s, want %s", host, got, want)
		}
	}
}
