package push

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	logs "go.opentelemetry.io/proto/slim/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

var start = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)

// A request is what a server received.
type request struct {
	url, contentType, auth string
	body                   []byte
}

// server answers each request with the next of the statuses, and then with 200.
func server(t *testing.T, statuses ...int) (s *httptest.Server, got func() []request) {
	t.Helper()
	var mu sync.Mutex
	var all []request
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		user, password, _ := r.BasicAuth()
		all = append(all, request{r.URL.String(), r.Header.Get("Content-Type"), user + ":" + password, body})
		if n := len(all); n <= len(statuses) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(statuses[n-1])
		}
	}))
	t.Cleanup(s.Close)
	return s, func() []request {
		mu.Lock()
		defer mu.Unlock()
		return append([]request{}, all...)
	}
}

// running runs a pusher until the test ends.
func running(t *testing.T, o Options) *Pusher {
	t.Helper()
	o.Host, o.Version, o.firstPause = "node-1", "v1", time.Millisecond
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

func eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not reached: " + what)
		}
	}
}

func (p *Pusher) counted(to, outcome string) float64 {
	return testutil.ToFloat64(p.sent.WithLabelValues(to, outcome))
}

// windowAt is the nth window of the host, with a finding or without.
func windowAt(n int, has bool) exporter.Window {
	w := exporter.Window{
		Name: "host", Recording: &recording.Recording{},
		Begin: start.Add(time.Duration(n) * 15 * time.Second),
	}
	w.End, w.Result = w.Begin.Add(15*time.Second), &check.Result{}
	if has {
		w.Result.Findings = []check.Finding{{
			Check: "cpu-throttled", Stage: check.Limits, Subject: check.Subject{Kind: "cgroup", ID: "/a\xff"},
			Severity:   check.Critical,
			Confidence: check.High, Summary: "throttled in 90 % of the periods",
			Remedies: []check.Remedy{{Action: "raise it", Command: "echo max > cpu.max"}},
		}}
	}
	return w
}

// incident is windows of a finding that begins, lasts and ends.
func incident(p *Pusher) {
	for n, has := range []bool{false, true, true, true, false, false, false} {
		p.Observe(windowAt(n, has))
	}
}

func TestCloudEvents(t *testing.T) {
	s, got := server(t)
	p := running(t, Options{Webhook: Server{URL: s.URL + "/hook?key=1"}})
	incident(p)
	eventually(t, "both are sent", func() bool { return p.counted("webhook", "ok") == 2 })
	ids := map[string]bool{}
	for i, want := range []struct{ state, at string }{
		{"began", "2026-11-22T03:00:15Z"},
		{"ended", "2026-11-22T03:01:00Z"},
	} {
		r := got()[i]
		if r.url != "/hook?key=1" || r.contentType != "application/cloudevents+json; charset=utf-8" {
			t.Errorf("%s, %s", r.url, r.contentType)
		}
		var e cloudevents.Event // as the library of CloudEvents reads it
		if err := json.Unmarshal(r.body, &e); err != nil {
			t.Fatalf("%v: %s", err, r.body)
		}
		if err := e.Validate(); err != nil {
			t.Error(err)
		}
		ids[e.ID()] = true
		if e.Type() != eventType+want.state || e.Time().Format(time.RFC3339) != want.at ||
			e.Source() != "/perfdoctor/node-1" {
			t.Errorf("%s", e)
		}
		var data struct {
			State, Host, Target string
			Finding             struct{ Check, Summary, Severity string }
		}
		if err := e.DataAs(&data); err != nil {
			t.Fatal(err)
		}
		if data.State != want.state || data.Finding.Check != "cpu-throttled" || data.Finding.Severity != "critical" ||
			data.Host != "node-1" {
			t.Errorf("%+v", data)
		}
	}
	if len(ids) != 2 {
		t.Error("both events have the same id")
	}
}

func TestLogs(t *testing.T) {
	s, got := server(t)
	p := running(t, Options{OTLP: Server{URL: strings.Replace(s.URL, "http://", "http://user:pass@", 1)}})
	incident(p)
	eventually(t, "both are sent", func() bool { return p.counted("otlp", "ok") == 2 })
	var records []*logs.LogRecord
	for _, r := range got() {
		if r.url != "/v1/logs" || r.contentType != "application/x-protobuf" || r.auth != "user:pass" {
			t.Errorf("%s, %s, %s", r.url, r.contentType, r.auth)
		}
		var m collector.ExportLogsServiceRequest
		if err := proto.Unmarshal(r.body, &m); err != nil {
			t.Fatal(err)
		}
		records = append(records, m.ResourceLogs[0].ScopeLogs[0].LogRecords...)
	}
	var said []string
	for _, r := range records {
		line := fmt.Sprintf("%s %s %s %s", time.Unix(0, int64(r.TimeUnixNano)).UTC().Format(time.TimeOnly),
			r.SeverityNumber, r.EventName,
			r.Body.GetStringValue())
		for _, a := range r.Attributes {
			if a.Key == "perfdoctor.subject" || a.Key == "perfdoctor.remedy" {
				line += "; " + a.Value.GetStringValue()
			}
		}
		said = append(said, line)
	}
	want := []string{
		"03:00:15 SEVERITY_NUMBER_ERROR perfdoctor.finding.began throttled in 90 % of the periods; cgroup /a\uFFFD; " +
			"raise it echo max > cpu.max",
		"03:01:00 SEVERITY_NUMBER_INFO perfdoctor.finding.ended throttled in 90 % of the periods; cgroup /a\uFFFD; " +
			"raise it echo max > cpu.max",
	}
	if d := cmp.Diff(want, said); d != "" {
		t.Error(d)
	}
}

func TestProfiles(t *testing.T) {
	rec, err := recording.Open("../../checks/runtime/testdata/lock-contention/firing.txtar")
	if err != nil {
		t.Fatal(err)
	}
	s, got := server(t)
	p := running(t, Options{Pyroscope: Server{URL: s.URL + "/tenant/"}})
	w := windowAt(0, false)
	w.Name, w.Recording = "/kube{pods},a b", rec
	p.Observe(w)
	n := 0
	for _, e := range stacks.Events() {
		if prof, ok := rec.Profile(e); ok && len(prof.Samples) > 0 {
			n++
		}
	}
	if n == 0 {
		t.Fatal("the recording has no profile")
	}
	eventually(t, "all are sent", func() bool { return p.counted("pyroscope", "ok") == float64(n) })
	for _, r := range got() {
		u, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		q := u.URL.Query()
		name := q.Get("name")
		if u.URL.Path != "/tenant/ingest" || q.Get("format") != "pprof" || !strings.HasPrefix(name, "perfdoctor.") ||
			!strings.HasSuffix(name, "{host=node-1,target=/kube_pods__a_b}") || q.Get("from") >= q.Get("until") {
			t.Errorf("%s", r.url)
		}
		prof, types := readForm(t, r)
		want, ok := rec.Profile(prof.Event)
		if !ok || want.Total() != prof.Total() || name[:strings.Index(name, "{")] != "perfdoctor."+string(prof.Event) {
			t.Errorf("%s: %+v, want %+v", name, prof.Total(), want.Total())
		}
		if _, ok := types[prof.ValueType()]; !ok || len(types) != 2 {
			t.Errorf("types %v", types)
		}
	}
}

// readForm reads a message as Pyroscope's server does.
func readForm(t *testing.T, r request) (p *stacks.Profile, types map[string]any) {
	t.Helper()
	_, params, err := mime.ParseMediaType(r.contentType)
	if err != nil {
		t.Fatal(err)
	}
	form, err := multipart.NewReader(bytes.NewReader(r.body), params["boundary"]).ReadForm(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for field, read := range map[string]func(io.Reader) error{
		"profile":            func(f io.Reader) (err error) { p, err = stacks.ParsePprof(f); return err },
		"sample_type_config": func(f io.Reader) error { return json.NewDecoder(f).Decode(&types) },
	} {
		f, err := form.File[field][0].Open()
		if err != nil {
			t.Fatal(err)
		}
		if err := read(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return p, types
}

// TestAnswers: a message is retried if it is worth it, within bounds, and everything is counted.
func TestAnswers(t *testing.T) {
	for _, tc := range []struct {
		what     string
		statuses []int
		outcome  string
		tries    int
	}{
		{"at once", []int{202}, "ok", 1},
		{"too many", []int{429, 503, 204}, "ok", 3},
		{"broken", []int{500, 502, 500, 500, 500, 500, 500}, "failed", maxTries},
		{"refused", []int{401}, "refused", 1},
		{"sent elsewhere", []int{307}, "refused", 1},
	} {
		t.Run(tc.what, func(t *testing.T) {
			s, got := server(t, tc.statuses...)
			p := running(t, Options{Webhook: Server{URL: s.URL}})
			p.Observe(windowAt(0, true))
			eventually(t, "it is "+tc.outcome, func() bool { return p.counted("webhook", tc.outcome) == 1 })
			if n := len(got()); n != tc.tries {
				t.Errorf("%d tries, want %d", n, tc.tries)
			}
			first := got()[0]
			for _, r := range got() {
				if !bytes.Equal(r.body, first.body) {
					t.Error("a second try is another message")
				}
			}
		})
	}
}

// TestHangingServer: a hanging server holds up neither the exporter nor another destination. What is too much for it is
// counted. The end of the program does not wait for it.
func TestHangingServer(t *testing.T) {
	released := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-released }))
	defer hanging.Close()
	defer close(released)
	s, _ := server(t)
	p, err := New(Options{
		Webhook: Server{URL: hanging.URL}, OTLP: Server{URL: s.URL}, Host: "h", Log: slog.New(slog.DiscardHandler),
		firstPause: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	const events = 2 * maxQueue
	for n := range events {
		w := windowAt(0, true)
		w.Name = fmt.Sprint(n) // each target's finding begins
		p.Observe(w)
		if n%16 == 0 { // the other server must keep up
			eventually(t, "the other one has it", func() bool { return p.counted("otlp", "ok") == float64(n+1) })
		}
	}
	eventually(t, "the other one has all", func() bool { return p.counted("otlp", "ok") == events })
	if n := p.counted("webhook", "dropped"); n < events-maxQueue-1 {
		t.Errorf("%v are counted as dropped", n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestNoSecretInLog: the password in a URL is in no message.
func TestNoSecretInLog(t *testing.T) {
	var mu sync.Mutex
	var b bytes.Buffer
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close() // nobody listens
	p := running(t, Options{
		Webhook: Server{URL: strings.Replace(s.URL, "http://", "http://user:hunter2@", 1)},
		Log:     slog.New(slog.NewTextHandler(locked{&mu, &b}, nil)),
	})
	p.Observe(windowAt(0, true))
	eventually(t, "it has failed", func() bool { return p.counted("webhook", "failed") == 1 })
	eventually(t, "it is said", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(b.String(),
			"a message is lost")
	})
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(b.String(), "hunter2") || !strings.Contains(b.String(), "connection refused") {
		t.Error(b.String())
	}
}

type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// TestOff: without a URL nothing is kept or counted.
func TestOff(t *testing.T) {
	p := running(t, Options{})
	incident(p)
	if n := testutil.CollectAndCount(p); n != 0 {
		t.Errorf("%d series", n)
	}
}

func TestNewFails(t *testing.T) {
	for _, u := range []string{"localhost:4318", "ftp://x", "http://", "http://user:hunter2@h:port", "%zz"} {
		if _, err := New(Options{OTLP: Server{URL: u}}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", u, err)
		}
	}
}
