package exporter

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "web.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const (
	tlsOnly   = "tls_server_config: {cert_file: c, key_file: k}\n"
	usersOnly = "basic_auth_users: {p: x}\n"
)

// Attack 14: only those who are allowed reach the port.
func TestDefaultAddress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		config string
		given  []string
		want   string
	}{
		{"", nil, "127.0.0.1:9843"},
		{tlsOnly, nil, "127.0.0.1:9843"},
		{usersOnly, nil, "127.0.0.1:9843"},
		{tlsOnly + usersOnly, nil, ":9843"},
		{"tls_server_config: {client_auth_type: RequireAndVerifyClientCert}", nil, ":9843"},
		{"", []string{":1"}, ":1"},
	} {
		got, err := WebOptions{ConfigFile: writeConfig(t, tc.config), ListenAddresses: tc.given}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{tc.want}, got.ListenAddresses); d != "" {
			t.Errorf("%q: %s", tc.config, d)
		}
	}
}

// Attack 14: recordings need a password, or a listener of this host and a name that no name server made.
func TestPrivatePages(t *testing.T) {
	t.Parallel()
	inner := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, tc := range []struct {
		address, host, path, config string
		want                        int
	}{
		{"127.0.0.1:0", "127.0.0.1:9843", "/recordings/x.zip", "", 200},
		{"127.0.0.1:0", "localhost:9843", "/recordings", "", 200},
		{"127.0.0.1:0", "[::1]:9843", "/recordings", "", 200},
		{"127.0.0.1:0", "evil.example:9843", "/recordings/x.zip", "", 403},
		{"127.0.0.1:0", "evil.example", "/metrics", "", 200},
		{"127.0.0.1:0", "", "/recordings", "", 200},
		{"127.0.0.1:0", "doctor.example:9843", "/recordings", "", 200},
		{"0.0.0.0:0", "127.0.0.1:9843", "/recordings", "", 403},
		{"0.0.0.0:0", "127.0.0.1:9843", "/recordings/x.zip", tlsOnly, 403},
		{"0.0.0.0:0", "127.0.0.1:9843", "/x/..//recordings/", "", 403},
		{"0.0.0.0:0", "node1:9843", "/recordings/x.zip", usersOnly, 200},
		{"0.0.0.0:0", "node1:9843", "/metrics", "", 200},
	} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", tc.address)
		if err != nil {
			t.Fatal(err)
		}
		o := WebOptions{
			ConfigFile: writeConfig(t, tc.config), Private: []string{"/recordings"},
			ListenAddresses: []string{"doctor.example:9843"},
		}
		h := o.Guard(l, inner)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.path, nil)
		r.Host = tc.host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tc.want {
			t.Errorf("%s at %s as %s, %q: %d, want %d", tc.path, tc.address, tc.host, tc.config, w.Code, tc.want)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Attack 15: a process that restarts leaves no series behind.
func TestFindingsNameNoProcess(t *testing.T) {
	t.Parallel()
	var findings []check.Finding
	for pid := range 100 {
		subject := check.Subject{Kind: "pid", ID: fmt.Sprintf("%d (java)", 4000+pid)}
		findings = append(findings, check.Finding{Check: "c", Subject: subject, Severity: check.Warning})
	}
	mf, dropped := findingFamily(findings, 20)
	if len(mf.GetMetric()) != 1 || dropped != 0 || !strings.Contains(mf.GetMetric()[0].String(), `"process java"`) {
		t.Errorf("%d dropped of %v", dropped, mf.GetMetric())
	}
}

func TestSubjectLabel(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ kind, id, want string }{
		{"pid", "4021 (java)", "process java"},
		{"pid", "4021 (a) (b)", "process a) (b"},
		{"pid", "4021", "process"},
		{"netns", "of pid 4021 (nginx)", "netns of process nginx"},
		{"netns", "of the host", "netns of the host"},
		{"lock", "lab.useShared (futex 0x11ee5b545c68)", "lock lab.useShared (futex 0x)"},
		{"cgroup", "/pod4021", "cgroup /pod4021"},
		{"destination", "10.0.0.5:443", "destination 10.0.0.5:443"},
		{"host", "", "host"},
	} {
		if got := SubjectLabel(check.Subject{Kind: tc.kind, ID: tc.id}); got != tc.want {
			t.Errorf("%s %s: %q, want %q", tc.kind, tc.id, got, tc.want)
		}
	}
}

// Attack 15: a client that reads its answer slowly, or not at all, holds up no other. Answers have a bound of size.
func TestLimit(t *testing.T) {
	t.Parallel()
	l := Limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 1 << 20
		if r.URL.Path == "/large" {
			n = maxAnswer + 1
		}
		_, _ = w.Write(make([]byte, n)) // kept by a buffer
	}))
	release := make(chan struct{})
	var slow sync.WaitGroup
	statuses := make(chan int, 2*maxUnwritten>>20)
	for range cap(statuses) {
		slow.Go(func() {
			w := &stuckWriter{ResponseRecorder: httptest.NewRecorder(), release: release}
			l.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			statuses <- w.Code
		})
	}
	for len(statuses) == 0 { // one that found no room
		time.Sleep(time.Millisecond)
	}
	if status, _ := get(t, l, "/"); status != http.StatusServiceUnavailable {
		t.Errorf("beyond the bound: %d", status)
	}
	close(release)
	slow.Wait()
	if status, _ := get(t, l, "/"); status != http.StatusOK {
		t.Errorf("afterwards: %d", status)
	}
	if status, _ := get(t, l, "/large"); status != http.StatusInternalServerError {
		t.Errorf("an answer without bound: %d", status)
	}
}

// stuckWriter accepts nothing of a good answer until it is released.
type stuckWriter struct {
	*httptest.ResponseRecorder
	release chan struct{}
}

func (w *stuckWriter) Write(p []byte) (int, error) {
	if w.Code == http.StatusOK {
		<-w.release
	}
	return w.ResponseRecorder.Write(p)
}
