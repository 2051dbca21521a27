package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab"
	"github.com/perfdoctor/perfdoctor/internal/lab/labtest"
)

// recordings is the part of the list of recordings that the test reads.
type recordings struct {
	Recordings []struct{ URL, Check, Subject string }
}

// cloudEvent is the part of an event that the test reads.
type cloudEvent struct{ Type, Subject string }

// patience is how long each part of an incident may take to be noticed. The incident lasts 20 s and is known a window
// or two later.
const patience = 2 * time.Minute

// TestFlightRecorder is a fault at night. A service that has run well within its quota wants four CPUs for 20 s while
// nobody looks. In the morning the recording is there, and names the cause. Somebody was alerted, too.
func TestFlightRecorder(t *testing.T) {
	t.Parallel()
	l := labtest.New(t)
	host := newHost(t, l, "host")
	group, err := l.Cgroup("service")
	must(t, err)
	must(t, group.SetQuota(100*time.Millisecond, 50*time.Millisecond))
	spin := func(d time.Duration, o lab.SpinOptions) {
		_, err := host.StartChild(group, lab.ChildOptions{Mode: lab.ModeSpin, Duration: d, Spin: o})
		must(t, err)
	}
	spin(loadTime, lab.SpinOptions{Threads: 1, Burst: 10 * time.Millisecond, Every: 50 * time.Millisecond})

	hook, events := webhook(t)
	dir := filepath.Join(t.TempDir(), "flight")
	x := startExporter(t, "--flight.dir", dir, "--flight.after", "5s", "--push.webhook", hook)
	observed := regexp.MustCompile(`(?m)^perfdoctor_flight_memory_bytes [1-9]`)
	eventually(t, "the recorder has windows", patience,
		func() bool { return observed.MatchString(x.body(t, "/metrics")) })
	if status := x.get(t, "/recordings", "", ""); status != http.StatusUnauthorized {
		t.Errorf("without a password the list is answered with %d", status)
	}

	spin(20*time.Second, lab.SpinOptions{Threads: 4})
	want := "cgroup " + group.Path()
	url := ""
	eventually(t, "the recording of the fault is there", patience, func() bool {
		var all recordings
		must(t, json.Unmarshal([]byte(x.body(t, "/recordings")), &all))
		for _, r := range all.Recordings {
			if r.Check == "cpu-throttled" && r.Subject == want {
				url = r.URL
			}
		}
		return url != ""
	})
	for _, state := range []string{"began", "ended"} {
		eventually(t, "the webhook is told that it "+state, patience, func() bool {
			return events(cloudEvent{"io.github.perfdoctor.finding." + state, "cpu-throttled " + want})
		})
	}
	if status := x.get(t, url, "", ""); status != http.StatusUnauthorized {
		t.Errorf("without a password the recording is answered with %d", status)
	}
	morning := filepath.Join(t.TempDir(), "incident.zip")
	must(t, os.WriteFile(morning, []byte(x.body(t, url)), 0o600))
	for _, path := range []string{morning, filepath.Join(dir, filepath.Base(url))} {
		out, err := exec.Command(perfdoctor(t), "diagnose", "--from", path, "-o", "json").Output()
		if err == nil {
			t.Fatalf("%s: no finding", path)
		}
		var got reportJSON
		must(t, json.Unmarshal(out, &got))
		// On a shared machine, busy CPUs may be as severe, and belong to an earlier stage.
		id := "cpu-throttled " + want
		named := slices.ContainsFunc(got.Findings, func(raw json.RawMessage) bool {
			var f finding
			return json.Unmarshal(raw, &f) == nil && f.ID == id && f.Severity == "critical"
		})
		if !named || got.Verdict.Principal != id && !strings.HasPrefix(got.Verdict.Principal, "cpu-saturated ") {
			t.Errorf("the verdict is %q, want %q: %s", got.Verdict.Principal, id, out)
		}
		t.Logf("%s: %s", got.Verdict.Principal, got.Verdict.Summary)
	}
}

// body requests a path with the password, and expects an answer.
func (s *scraped) body(t *testing.T, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+path, nil)
	must(t, err)
	req.SetBasicAuth(s.user, s.pass)
	resp, err := s.client.Do(req)
	must(t, err)
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s is answered with %s", path, resp.Status)
	}
	return string(content)
}

// webhook accepts events, and tells whether one has come.
func webhook(t *testing.T) (url string, came func(cloudEvent) bool) {
	t.Helper()
	var mu sync.Mutex
	seen := map[cloudEvent]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e cloudEvent
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		seen[e] = true
	}))
	t.Cleanup(s.Close)
	return s.URL, func(e cloudEvent) bool {
		mu.Lock()
		defer mu.Unlock()
		return seen[e]
	}
}
