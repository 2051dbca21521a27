package cli_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// originals are in every place of the planted recording where a host may put a name. None of them may be in redacted
// output.
var originals = []string{
	"10.77.3", "fd12:3456", "2a00:77", "alicesecret", "acmeprod", "billing-pod7", "9f8e7d6c5b4a", "acmenet",
}

// plantedLabels are values of labels with names in them. For the other labels any value does.
var plantedLabels = map[string]string{
	"destination": "10.77.3.9:8443", "endpoint": "[fd12:3456::7]:443", "source": "10.77.3.1",
	"listener": "10.77.3.1:80", "peer": "2a00:77::5",
	"user": "alicesecret", "uid": "1234", "container": "9f8e7d6c5b4a", "cgroup": "/acmeprod.slice/billing-pod7.scope",
	"dir": "/sys/fs/cgroup/acmeprod.slice/billing-pod7.scope", "path": "/opt/acmeprod/libx.so", "device": "acmenet0",
	"comm": "w 10.77.3.9", "waker_comm": "w 10.77.3.9", "thread": "conn db1.acmeprod.internal:5432",
	"holder": "conn 10.77.3.9",
	"pool":   "conn 10.77.3.", "load": "wrk 10.77.3.9", "name": "/opt/acmeprod/agent.jar",
	"value":  "/export/alicesecret/heap.bin",
	"reason": "open /export/alicesecret/x: permission denied", "at": "~get /srv/acmeprod/app.js:1",
	"holder_at": "get /srv/acmeprod/app.js:1",
	"holder_in": "get /srv/acmeprod/app.js:1", "waiter_at": "get /srv/acmeprod/app.js:1",
	"waker": "get /srv/acmeprod/app.js:1",
	"class": "get /srv/acmeprod/app.js:1",
}

// planted is a recording in which every metric, every profile and every text contains a name.
func planted(t *testing.T) string {
	t.Helper()
	b := recording.NewBuilder()
	for range 2 {
		a := b.Appender()
		for _, m := range metric.All() {
			if !strings.HasSuffix(m.Describe().Name, "_profile_samples") {
				plant(a, m)
			}
		}
		a.Commit()
	}
	a := b.Appender()
	for _, e := range stacks.Events() {
		p := stacks.NewBuilder(e)
		s := stacks.Sample{
			Count: 100, Value: 1e9,
			Thread: p.Thread(stacks.Thread{ID: 4021, Name: "conn db1.acmeprod.internal:5432"}),
		}
		s.Stack = []int{
			p.Frame(stacks.Frame{Name: "~get /srv/acmeprod/app.js:1", Kind: stacks.Compiled}),
			p.Frame(stacks.Frame{Name: "main", Module: "/opt/acmeprod/server", Kind: stacks.Native}),
		}
		p.Add(s)
		profile := p.Profile()
		profile.Engine = "test"
		a.Profile(profile)
	}
	a.Commit()
	const text = "open /export/alicesecret/x on db1.acmeprod.internal (10.77.3.9, user alicesecret, container " +
		"9f8e7d6c5b4a, acmenet0): denied"
	rec := b.Done(recording.Meta{
		Schema: recording.SchemaVersion, Duration: 10, Asked: 20, Interval: 1, EndedEarly: text,
		Target: recording.Target{
			Kind: "process", PID: 4021, Name: "server", User: "alicesecret", Container: "9f8e7d6c5b4a",
			Cmdline: []string{
				"/opt/acmeprod/server", "--db=db1.acmeprod.internal", "-ualicesecret",
				"10.77.3.9:80",
			},
			Cgroup:      "/acmeprod.slice/billing-pod7.scope",
			NetNSDenied: text, ExitStatus: text,
		},
		Collectors: []recording.CollectorStatus{{
			Name: "memory", Status: recording.StatusDenied, Reason: text, Remedy: text,
			Metrics: []string{"oom_kills_total"},
			Lost:    []recording.Loss{{What: text, Count: 1}},
		}},
		Unsupported: []recording.Missing{{
			Metric: "cpus_online", Status: recording.StatusDenied, Reason: text,
			Remedy: text,
		}},
	}).WithIncident(recording.Incident{
		To: 10, Check: "fd-limit", Subject: "destination 10.77.3.9:8443", Summary: text,
		Others: []string{text},
	})
	path := filepath.Join(t.TempDir(), "plain.zip")
	if err := rec.Save(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func plant(a *recording.Appender, m metric.Metric) {
	var labels []string
	for _, l := range m.Describe().Labels {
		value := plantedLabels[l]
		if value == "" {
			value = "4021"
		}
		labels = append(labels, value)
	}
	switch m := m.(type) {
	case *metric.Counter:
		a.Counter(m, 1000, labels...)
	case *metric.Gauge:
		a.Gauge(m, 1000, labels...)
	case *metric.Info:
		a.Info(m, labels...)
	}
}

// TestRedactedHasNoName looks for the planted names in every output and every byte of the redacted recording.
func TestRedactedHasNoName(t *testing.T) {
	from := planted(t)
	assertPlanted(t, from)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("a secret of a team, for a test"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(t.TempDir(), "redacted.zip")
	code, out, stderr := run(t, "diagnose", "--from", from, "--redact="+key, "--save", kept, "-v")
	if code == 1 || code == 2 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	noName(t, "text", out+stderr)
	if !strings.Contains(out, "Redacted: ") {
		t.Errorf("the report does not say that names are pseudonyms:\n%s", out)
	}
	for name, content := range unpacked(t, kept) {
		noName(t, name, content)
	}
	for _, format := range []string{"json", "markdown", "junit"} {
		page := filepath.Join(t.TempDir(), "report.html")
		_, out, stderr := run(t, "report", from, "--redact="+key, "-o", format, "--html", page)
		noName(t, format, out+stderr)
		if !strings.Contains(out, "edacted") {
			t.Errorf("%s does not say that names are pseudonyms", format)
		}
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		noName(t, "html", string(content))
		_, again, _ := run(t, "report", kept, "-o", format)
		if again != out {
			t.Errorf("%s of the redacted recording is not that of the plain one, redacted with the same key", format)
		}
	}
	_, other, _ := run(t, "report", from, "--redact")
	if _, third, _ := run(t, "report", from, "--redact"); third == other {
		t.Error("two random keys gave the same pseudonyms")
	}
	wantUsage(t, "redacted already", "report", kept, "--redact")
	wantUsage(t, "only to keep a redacted one", "diagnose", "--from", from, "--save",
		filepath.Join(t.TempDir(), "x.zip"))
	if err := os.WriteFile(key, []byte("too short"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantUsage(t, "holds 9 bytes, a key has 16 to 4096", "report", from, "--redact="+key)
	wantUsage(t, "is no file", "report", from, "--redact=/dev/zero")
}

func noName(t *testing.T, where, content string) {
	t.Helper()
	for _, o := range originals {
		if at := strings.Index(content, o); at >= 0 {
			t.Errorf("%s has %q: …%s…", where, o, content[max(0, at-60):min(len(content), at+60)])
		}
	}
}

// assertPlanted makes sure that the search finds what is there.
func assertPlanted(t *testing.T, path string) {
	t.Helper()
	all := strings.Builder{}
	for _, content := range unpacked(t, path) {
		all.WriteString(content)
	}
	for _, o := range originals {
		if !strings.Contains(all.String(), o) {
			t.Fatalf("%q is not in the plain recording", o)
		}
	}
}

// unpacked returns the files of a recording, with profiles uncompressed.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	out := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f.Name, ".gz") {
			g, err := gzip.NewReader(bytes.NewReader(content))
			if err == nil {
				content, err = io.ReadAll(g)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		out[f.Name] = string(content)
	}
	return out
}
