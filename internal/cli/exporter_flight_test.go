package cli_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
	"github.com/perfdoctor/perfdoctor/internal/daemon/flight"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TestIncidentsOfAllChecks turns the recordings of each check's test cases into windows: quiet ones around one that
// fires. It gives them to a flight recorder and diagnoses the file that the recorder writes. The findings are those of
// the one window.
func TestIncidentsOfAllChecks(t *testing.T) {
	t.Parallel()
	suite := checks.Suite()
	compared := 0
	for _, c := range suite {
		dir := filepath.Join("../checks/*/testdata", c.Name)
		quiet, firing := openCase(t, dir, "quiet"), openCase(t, dir, "firing")
		if quiet == nil || firing == nil {
			continue
		}
		want := check.Run(firing, []*check.Check{c}, check.Options{})
		if want.Principal() == nil {
			continue // a note is not an incident
		}
		t.Run(c.Name, func(t *testing.T) {
			quiet.Meta.Target = firing.Meta.Target // the windows of one target are joined
			file := recordIncident(t, c, []*recording.Recording{quiet, quiet, firing, quiet, quiet})
			rec, err := recording.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			if whole := rec.Meta.Duration; whole < 60 {
				t.Errorf("the recording has %v s", whole)
			}
			got := check.Run(rec.AtIncident(), []*check.Check{c}, check.Options{})
			// Seconds are binary fractions: a time that was shifted there and back may differ in its last digit.
			near := cmpopts.EquateApprox(1e-6, 1e-9)
			if d := cmp.Diff(texts(want), texts(got), near); d != "" {
				t.Error(d)
			}
			compared++
		})
	}
	if compared < 40 {
		t.Errorf("only %d checks were compared", compared)
	}
}

// texts are what the findings say.
func texts(r *check.Result) []string {
	var out []string
	for _, f := range r.Findings {
		out = append(out, fmt.Sprintf("%s %s: %s", f.Severity, f.ID(), f.Summary))
		for _, e := range f.Evidence {
			out = append(out, e.String())
		}
	}
	return out
}

// openCase opens the first test case of a kind; nil if there is none.
func openCase(t *testing.T, dir, kind string) *recording.Recording {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, kind+"*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		return nil
	}
	rec, err := recording.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// recordIncident gives recordings as windows of 15 s to a recorder and waits for its file.
func recordIncident(t *testing.T, c *check.Check, windows []*recording.Recording) string {
	t.Helper()
	dir := t.TempDir()
	r, err := flight.New(flight.Options{
		Dir: dir, MaxBytes: 64 << 20, Memory: 64 << 20, Before: 2 * time.Minute, After: 20 * time.Second,
		Cooldown: time.Hour, Host: "h",
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	const length = 15 * time.Second
	start := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	for i, rec := range windows {
		begin := start.Add(time.Duration(i) * length)
		r.Observe(exporter.Window{
			Name: exporter.HostName, Recording: rec, Result: check.Run(rec, []*check.Check{c}, check.Options{}),
			Begin: begin, End: begin.Add(length),
		})
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		files, err := filepath.Glob(filepath.Join(dir, "*.zip"))
		if err != nil || len(files) > 1 || time.Now().After(deadline) {
			t.Fatalf("files %v, %v", files, err)
		}
		if len(files) == 1 && testutil.CollectAndCount(r, "perfdoctor_flight_recordings_total") > 0 {
			return files[0]
		}
	}
}

// TestDiagnoseIncident: --from reads the part with the incident and says so; --whole reads everything.
func TestDiagnoseIncident(t *testing.T) {
	t.Parallel()
	dir := "../checks/limits/testdata/cpu-throttled"
	var c *check.Check
	for _, x := range checks.Suite() {
		if x.Name == "cpu-throttled" {
			c = x
		}
	}
	quiet, firing := openCase(t, dir, "quiet"), openCase(t, dir, "firing")
	file := recordIncident(t, c, []*recording.Recording{quiet, firing, quiet, quiet})
	code, out, errs := run(t, "diagnose", "--from", file, "--check", "cpu-throttled")
	if code != 3 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{
		"cpu-throttled: cgroup", "that a flight recorder kept, the part with cpu-throttled",
		"--whole",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	st, err := os.Stat(file)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	for flags, want := range map[string]string{"-o json": `"whole": false`, "-o json --whole": `"whole": true`} {
		_, js, _ := run(t, append([]string{"report", file, "--check", "cpu-throttled"}, strings.Fields(flags)...)...)
		if !strings.Contains(js, want) {
			t.Errorf("%s: the report does not say which part it is about:\n%s", flags, js)
		}
	}
	wantUsage(t, "--whole is about a recording of a flight recorder", "diagnose", "--whole")
}

func TestExporterFlags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args string
		want string
	}{
		{"--flight.before 1m", "goes with --flight.dir"},
		{"--flight.dir x --flight.before 2h", "--flight.before"},
		{"--flight.dir x --flight.max-bytes 5", "--flight.max-bytes"},
		{"--push.otlp localhost:4318", "--push.otlp is no URL"},
		{"--cri.socket tcp://127.0.0.1:1", "is not the path of a socket"},
		{"--push.webhook ftp://user:secret@host", "--push.webhook is no URL"},
		{"--push.otlp.config.file x", "--push.otlp.config.file goes with --push.otlp"},
		{
			"--push.otlp http://h --push.otlp.config.file /none.yml",
			"--push.otlp.config.file: open /none.yml: no such file",
		},
	} {
		wantUsage(t, tc.want, append([]string{"exporter"}, strings.Fields(tc.args)...)...)
	}
}
