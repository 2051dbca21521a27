package hostile_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// toRead is how long reading a recording and saying what is in it may take.
const toRead = 20 * time.Second

const (
	hostileMeta   = `{"schema":1,"duration_seconds":10,"target":{"kind":"host"},"collectors":[]}`
	hostileSample = `{"t":%d,"m":{"memory_total_bytes":[[%s]]}}` + "\n"
)

// zipOf writes a recording of these files and gives its path.
func zipOf(t *testing.T, files map[string][]byte) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range files {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return written(t, "attack.zip", b.Bytes())
}

func written(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func gzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Attack 7, and its like in every other part of a recording: what is small in the file is large in memory.
func TestHeavyRecordings(t *testing.T) {
	sample := []byte(fmt.Sprintf(hostileSample, 0, "1"))
	pprof := func(content string, size int) map[string][]byte {
		return map[string][]byte{
			"meta.json": []byte(hostileMeta), "samples.jsonl": sample,
			"profiles/cpu.pb.gz": gzipped(t, bytes.Repeat([]byte(content), size/len(content))),
		}
	}
	meta := func(field, item string) map[string][]byte {
		list := strings.TrimSuffix(strings.Repeat(item+",", 4_000_000/(len(item)+1)), ",")
		return map[string][]byte{"meta.json": []byte(`{"schema":1,"` + field + `":[` + list + `]}`), "samples.jsonl": sample}
	}
	line := func(rows string) map[string][]byte {
		return map[string][]byte{"meta.json": []byte(hostileMeta), "samples.jsonl": []byte(`{"t":0,"m":{` + rows + "}}\n")}
	}
	many := map[string][]byte{"meta.json": []byte(hostileMeta), "samples.jsonl": sample}
	for i := range 200 {
		many[fmt.Sprintf("f%d", i)] = nil
	}
	tests := map[string]struct {
		files map[string][]byte
		names string // what the error names
	}{
		"empty pprof samples":    {pprof("\x12\x00", 30<<20), "profiles/cpu.pb.gz"},
		"62 MB of pprof":         {pprof("\x12\x00", 62<<20), "profiles/cpu.pb.gz"},
		"empty pprof locations":  {pprof("\x22\x00", 30<<20), "profiles/cpu.pb.gz"},
		"empty pprof strings":    {pprof("\x32\x00", 30<<20), "profiles/cpu.pb.gz"},
		"empty pprof labels":     {pprof("\x12\x06\x1a\x00\x1a\x00\x1a\x00", 30<<20), "profiles/cpu.pb.gz"},
		"empty pprof lines":      {pprof("\x22\x06\x22\x00\x22\x00\x22\x00", 30<<20), "profiles/cpu.pb.gz"},
		"empty collectors":       {meta("collectors", "{}"), "meta.json"},
		"rows without a cell":    {line(`"memory_total_bytes":[` + strings.Repeat("[],", 5<<20) + `[]]`), "samples.jsonl"},
		"a line too long":        {line(`"x":"` + strings.Repeat("a", 40<<20) + `"`), "samples.jsonl"},
		"more files than it has": {many, "files"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := zipOf(t, tt.files)
			o := perfdoctor(t, toRead, "diagnose", "--from", path)
			if o.code != 2 || !strings.Contains(o.stderr, tt.names) || !strings.Contains(o.stderr, "not a usable recording") {
				t.Errorf("exit code %d, stderr %.300q, want 2 and an error about %s", o.code, o.stderr, tt.names)
			}
		})
	}
}

// Attack 9: numbers that no kernel counts make sums infinite, which no format can hold.
func TestHugeNumbers(t *testing.T) {
	for _, number := range []string{"1e300", "-1e300", "1e999", "NaN", "1e-300"} {
		path := zipOf(t, map[string][]byte{
			"meta.json": []byte(hostileMeta), "samples.jsonl": []byte(fmt.Sprintf(hostileSample, 1, number)),
		})
		for _, format := range []string{"text", "json"} {
			o := perfdoctor(t, toRead, "diagnose", "--from", path, "--output", format)
			if o.code != 2 || !strings.Contains(o.stderr, "samples.jsonl line 1") || strings.Contains(o.stderr, "panic") {
				t.Errorf("%s as %s: exit code %d, stderr %.300q, want 2 and an error about line 1", number, format, o.code, o.stderr)
			}
		}
	}
}

// Attack 16: a broken file, and one that is being written, end no trend.
func TestTrendWithABrokenFile(t *testing.T) {
	dir := t.TempDir()
	source, err := os.Open("../../checks/testdata/cpu-throttled/firing-own.txtar")
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	content, err := io.ReadAll(source)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"broken\x1b[31m.zip": []byte("PK"), ".e.zip.12.partial/meta.json": []byte("{"),
		"a.txtar": content, "b.txtar": content, "c.txtar": content, "d.txtar": content,
	}
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := perfdoctor(t, toRead, "trend", dir)
	if o.code != 0 || !strings.Contains(o.stderr, `broken\x1b[31m.zip`) || strings.Contains(o.stderr, "partial") {
		t.Errorf("exit code %d, stderr %.500q, want 0 and a note about the broken file alone", o.code, o.stderr)
	}
}
