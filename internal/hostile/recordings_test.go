package hostile_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	meta    = `{"schema":1,"started":"2026-11-24T00:00:00Z","duration_seconds":2,"target":{"kind":"host"}}`
	samples = `{"t":0,"m":{"memory_total_bytes":[[%s]]}}` + "\n" + `{"t":1,"m":{"memory_total_bytes":[[%s]]}}` + "\n"
)

// recordingZip writes a recording of these files.
func recordingZip(t *testing.T, path string, files map[string]string) {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range files {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func packed(t *testing.T, content []byte) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestRecordings: attacks 7 and 9. A recording that would take more memory than it may, or holds a number beyond bounds, is
// refused, and no renderer fails for one that is read.
func TestRecordings(t *testing.T) {
	row := strings.Repeat("[1],", 1<<20)
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string // in the error; "" of a recording that is read
	}{
		{"sound", map[string]string{"samples.jsonl": fmt.Sprintf(samples, "1e18", "-1e18")}, ""},
		{"empty messages", map[string]string{
			"samples.jsonl": fmt.Sprintf(samples, "1", "1"), "profiles/cpu.pb.gz": packed(t, bytes.Repeat([]byte{0x12, 0}, 31<<20)),
		}, "MiB of memory"},
		{"huge number", map[string]string{"samples.jsonl": fmt.Sprintf(samples, "-1.7e308", "1.7e308")}, "beyond"},
		{"many rows", map[string]string{"samples.jsonl": `{"t":0,"m":{"memory_total_bytes":[` + row + "[1]]}}\n"}, "rows"},
		{"unpacks to much", map[string]string{"samples.jsonl": strings.Repeat(" ", 64<<20)}, "longer than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "recording.zip")
			tt.files["meta.json"] = meta
			recordingZip(t, path, tt.files)
			for _, format := range []string{"text", "json", "markdown", "junit"} {
				o := perfdoctor(t, 0, "diagnose", "--from", path, "-o", format)
				switch {
				case tt.want == "" && (o.code != 0 && o.code != 3 && o.code != 4 || o.stdout == ""):
					t.Errorf("%s: exit code %d: %s", format, o.code, o.stderr)
				case tt.want != "" && (o.code != 2 || !strings.Contains(o.stderr, tt.want)):
					t.Errorf("%s: exit code %d, want 2 and an error about %q: %s", format, o.code, tt.want, o.stderr)
				}
			}
			if tt.want != "" {
				return
			}
			page := filepath.Join(t.TempDir(), "report.html")
			if o := perfdoctor(t, 0, "report", path, "--html", page); o.code != 0 && o.code != 3 && o.code != 4 {
				t.Errorf("html: exit code %d: %s", o.code, o.stderr)
			}
		})
	}
}

// TestTrendOfBrokenFiles: attack 16. A broken recording is left out by name, and one that is being written does not count.
func TestTrendOfBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	for i := range 4 {
		recordingZip(t, filepath.Join(dir, fmt.Sprintf("night-%d.zip", i)), map[string]string{
			"meta.json": strings.Replace(meta, "11-24", fmt.Sprintf("11-%02d", i+1), 1), "samples.jsonl": fmt.Sprintf(samples, "1", "1"),
		})
	}
	if err := os.WriteFile(filepath.Join(dir, "broken.zip"), []byte("PK"), 0o600); err != nil {
		t.Fatal(err)
	}
	partial := filepath.Join(dir, ".night-9.77.partial")
	if err := os.Mkdir(partial, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(partial, "meta.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := perfdoctor(t, 0, "trend", dir)
	if o.code != 0 || !strings.Contains(o.stderr, "broken.zip") || strings.Contains(o.stdout+o.stderr, "partial") {
		t.Errorf("exit code %d\n%s\n%s", o.code, o.stdout, o.stderr)
	}
}
