package front

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
	"github.com/perfdoctor/perfdoctor/internal/daemon/flight"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var ended = time.Date(2026, 11, 22, 3, 16, 22, 0, time.UTC)

// hostile is what a program may call itself.
const hostile = "</bdi><script>alert(1)</script>\x1b[2J\u202e\" onload=x"

// sick is a host with one finding in full, an event that is over, and one that is FYI, all with hostile names.
func sick() exporter.State {
	finding := func(name string, severity check.Severity) check.Finding {
		return check.Finding{
			Check: name, Severity: severity, Confidence: check.High,
			Subject:  check.Subject{Kind: "pid", ID: "7 (" + hostile + ")"},
			Summary:  "summary of " + name + " " + hostile,
			Evidence: []quantity.Value{quantity.Of(hostile, 3, quantity.CPUs)},
			Remedies: []check.Remedy{{Action: "do " + hostile, Command: "renice 7", Risk: hostile, Effect: hostile}},
			Notes:    []string{hostile}, Placebos: []string{hostile}, Disproof: hostile, Doubts: []string{hostile},
		}
	}
	return exporter.State{Ended: ended, Standing: []exporter.Standing{
		{Target: "host", Finding: finding("cpu-hog", check.Critical), Since: ended.Add(-4 * time.Minute), Last: ended},
		{
			Target: "cgroup " + hostile, Finding: finding("oom-kills", check.Warning),
			Since: ended.Add(-3 * time.Minute), Last: ended.Add(-2 * time.Minute), Event: true, Absent: 8,
		},
		{Target: "host", Finding: finding("cpu-saturated", check.Info), Since: ended.Add(-time.Minute), Last: ended},
	}}
}

func incidents() []flight.File {
	return []flight.File{{
		Name: "x.zip", URL: "/recordings/x.zip", Report: "/recordings/x.zip/report", Began: ended, Check: "cpu-hog",
		Subject: hostile, Severity: "critical", Summary: hostile,
	}}
}

// serve requests the pages as the exporter serves them on loopback, under a name. A name other than the host's is not
// trusted.
func serve(t *testing.T, state exporter.State, path, host string) (*http.Response, string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, p := range Pages(Options{
		Host: "node-7", Version: "test", Window: 15 * time.Second,
		Checks: []*check.Check{{Name: "cpu-hog", Doc: "One program takes the CPUs"}},
		Now:    func() exporter.State { return state }, Incidents: incidents,
	}) {
		mux.Handle("GET "+p.Path, p.Handler)
	}
	l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(exporter.WebOptions{}.Guard(l, mux))
	_ = server.Listener.Close() // ours takes its place
	server.Listener = l
	server.Start()
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		req.Host = host
	}
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// TestPage: what somebody needs at 3 a.m. is there, as text, and no name becomes markup.
func TestPage(t *testing.T) {
	resp, page := serve(t, sick(), "/", "")
	text := elements(t, page)
	for _, want := range []string{
		"node-7", "critical since 03:12:22 UTC (4 min)", "summary of cpu-hog", "3 CPUs", "renice 7", "Expected effect",
		"Risk", "Won't help", "Disproved if", "03:14:22 UTC, 2 min ago", "Last incidents", "2026-11-22 03:16:22",
		"FYI", "summary of cpu-saturated", `\x1b[2J`, `\u202e`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	for _, want := range []string{
		`href="/recordings/x.zip/report"`, `href="` + checkPages + `cpu-hog.md"`, `href="/api/findings"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for header, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'sha256-", "Cache-Control": "no-store",
		"X-Content-Type-Options": "nosniff",
	} {
		if got := resp.Header.Get(header); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", header, got)
		}
	}
}

// elements returns the text of a page. It fails on an element or attribute that a name could have made.
func elements(t *testing.T, page string) string {
	t.Helper()
	var b strings.Builder
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return strings.Join(strings.Fields(b.String()), " ")
		case html.TextToken:
			b.Write(z.Text())
		case html.StartTagToken, html.SelfClosingTagToken:
			tag := z.Token()
			if tag.Data == "script" {
				t.Error("there is a script")
			}
			for _, a := range tag.Attr {
				if strings.HasPrefix(a.Key, "on") {
					t.Errorf("<%s> has the attribute %s", tag.Data, a.Key)
				}
			}
		case html.EndTagToken, html.CommentToken, html.DoctypeToken:
		}
	}
}

// TestStates: before the first window, and for a healthy host.
func TestStates(t *testing.T) {
	for want, state := range map[string]exporter.State{
		"The first window is not over":              {},
		"Nothing at warning or above":               {Ended: ended},
		"until 2026-11-22 03:16:22 UTC. Reload for": {Ended: ended},
		"cpu-hog": sick(),
	} {
		if _, page := serve(t, state, "/", ""); !strings.Contains(elements(t, page), want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

// TestReduced: an untrusted reader, like a browser page under a foreign name, reads what the metrics say and no more.
func TestReduced(t *testing.T) {
	_, page := serve(t, sick(), "/", "evil.example:9843")
	_, answer := serve(t, sick(), "/api/findings", "evil.example:9843")
	for _, body := range []string{page, answer} {
		for _, secret := range []string{"summary of", "renice", "3 CPUs", "/recordings/x", "node-7", "pid 7"} {
			if strings.Contains(body, secret) {
				t.Errorf("it tells %q to everybody:\n%s", secret, body)
			}
		}
		if !strings.Contains(body, "cpu-hog") || !strings.Contains(body, "critical") {
			t.Errorf("it does not tell what the metrics say:\n%s", body)
		}
	}
}

func TestJSON(t *testing.T) {
	_, answer := serve(t, sick(), "/api/findings", "")
	var v struct {
		Host     string
		Ended    time.Time `json:"window_ended"`
		Findings []struct {
			Check, Severity, Summary, Manual string
			Since                            time.Time
			Now                              bool
			Remedies                         []struct{ Command string }
		}
		Incidents []struct{ Report string }
	}
	if err := json.Unmarshal([]byte(answer), &v); err != nil {
		t.Fatalf("%v:\n%s", err, answer)
	}
	if len(v.Findings) != 3 || len(v.Incidents) != 1 || v.Host != "node-7" || !v.Ended.Equal(ended) {
		t.Fatalf("%+v", v)
	}
	f := v.Findings[0]
	if f.Check != "cpu-hog" || f.Severity != "critical" || !f.Now || f.Remedies[0].Command != "renice 7" ||
		v.Findings[1].Now || !f.Since.Equal(ended.Add(-4*time.Minute)) {
		t.Errorf("%+v", v)
	}
}

// TestBounded: if there are very many findings and incidents, the first are shown, and how many more there are.
func TestBounded(t *testing.T) {
	state := exporter.State{Ended: ended}
	for i := range 10 * maxFindings {
		state.Standing = append(state.Standing, exporter.Standing{
			Target: "host", Since: ended, Last: ended, Finding: check.Finding{
				Check: "cpu-hog", Severity: check.Warning, Subject: check.Subject{Kind: "pid", ID: fmt.Sprint(i)},
				Summary: strings.Repeat("x", 1000),
			},
		})
	}
	_, page := serve(t, state, "/", "")
	if n := len(page); n > 1<<20 || !strings.Contains(page, "900 more findings are not shown") {
		t.Errorf("a page of %d bytes", n)
	}
}
