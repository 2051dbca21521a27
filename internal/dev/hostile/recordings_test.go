package hostile_test

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// toRead is how long it may take to read a recording and print its content.
const toRead = 20 * time.Second

const (
	hostileMeta   = `{"schema":1,"duration_seconds":10,"target":{"kind":"host"},"collectors":[]}`
	hostileSample = `{"t":%d,"m":{"memory_total_bytes":[[%s]]}}` + "\n"
)

// zipOf writes a recording of these files and returns its path.
func zipOf(t *testing.T, files map[string][]byte) string {
	t.Helper()
	content, err := packed(files)
	if err != nil {
		t.Fatal(err)
	}
	return written(t, "attack.zip", content)
}

// packed returns a zip of these files.
func packed(files map[string][]byte) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range files {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
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

// Attack 7, and its like in every other part of a recording: small in the file, large in memory.
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
		return map[string][]byte{
			"meta.json":     []byte(`{"schema":1,"` + field + `":[` + list + `]}`),
			"samples.jsonl": sample,
		}
	}
	line := func(rows string) map[string][]byte {
		return map[string][]byte{"meta.json": []byte(hostileMeta), "samples.jsonl": []byte(`{"t":0,"m":{` + rows +
			"}}\n")}
	}
	many := map[string][]byte{"meta.json": []byte(hostileMeta), "samples.jsonl": sample}
	for i := range 200 {
		many[fmt.Sprintf("f%d", i)] = nil
	}
	tests := map[string]struct {
		files map[string][]byte
		names string // what the error names
	}{
		"empty pprof samples":   {pprof("\x12\x00", 30<<20), "profiles/cpu.pb.gz"},
		"62 MB of pprof":        {pprof("\x12\x00", 62<<20), "profiles/cpu.pb.gz"},
		"empty pprof locations": {pprof("\x22\x00", 30<<20), "profiles/cpu.pb.gz"},
		"empty pprof strings":   {pprof("\x32\x00", 30<<20), "profiles/cpu.pb.gz"},
		"empty pprof labels":    {pprof("\x12\x06\x1a\x00\x1a\x00\x1a\x00", 30<<20), "profiles/cpu.pb.gz"},
		"empty pprof lines":     {pprof("\x22\x06\x22\x00\x22\x00\x22\x00", 30<<20), "profiles/cpu.pb.gz"},
		"empty collectors":      {meta("collectors", "{}"), "meta.json"},
		"rows without a cell": {
			line(`"memory_total_bytes":[` + strings.Repeat("[],", 5<<20) + `[]]`),
			"samples.jsonl",
		},
		"a line too long":        {line(`"x":"` + strings.Repeat("a", 40<<20) + `"`), "samples.jsonl"},
		"more files than it has": {many, "files"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := zipOf(t, tt.files)
			o := perfdoctor(t, toRead, "diagnose", "--from", path)
			if o.code != 2 || !strings.Contains(o.stderr, tt.names) ||
				!strings.Contains(o.stderr, "not a usable recording") {
				t.Errorf("exit code %d, stderr %.300q, want 2 and an error about %s", o.code, o.stderr, tt.names)
			}
		})
	}
}

// Attack 9: numbers that no kernel counts make sums infinite. No format can hold those.
func TestHugeNumbers(t *testing.T) {
	for _, number := range []string{"1e300", "-1e300", "1e999", "NaN", "1e-300"} {
		path := zipOf(t, map[string][]byte{
			"meta.json": []byte(hostileMeta), "samples.jsonl": []byte(fmt.Sprintf(hostileSample, 1, number)),
		})
		for _, format := range []string{"text", "json"} {
			o := perfdoctor(t, toRead, "diagnose", "--from", path, "--output", format)
			if o.code != 2 || !strings.Contains(o.stderr, "samples.jsonl line 1") ||
				strings.Contains(o.stderr, "panic") {
				t.Errorf("%s as %s: exit code %d, stderr %.300q, want 2 and an error about line 1", number, format,
					o.code, o.stderr)
			}
		}
	}
}

// Attack 16: a broken file, or one that is being written, does not end a trend.
func TestTrendWithABrokenFile(t *testing.T) {
	dir := t.TempDir()
	source, err := os.Open("../../checks/limits/testdata/cpu-throttled/firing-own.txtar")
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

// zeros is a deflate stream (RFC 1951) of 10 GB. A stream of 64 MiB ends on a byte and refers to nothing before it, so
// it can be repeated.
func zeros(t *testing.T) []byte {
	t.Helper()
	var once, all bytes.Buffer
	w, err := flate.NewWriter(&once, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.Write(make([]byte, 64<<20)); err == nil {
		err = w.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 160 {
		all.Write(once.Bytes())
	}
	all.Write([]byte{1, 0, 0, 0xff, 0xff}) // an empty block, the last
	return all.Bytes()
}

// liar writes a zip whose file has these bytes but claims to have 100.
func liar(t *testing.T, name string, packed []byte, size uint64) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, plain := range []struct{ name, text string }{
		{"meta.json", hostileMeta}, {"samples.jsonl", fmt.Sprintf(hostileSample, 0, "1")},
	} {
		if plain.name == name {
			continue
		}
		if w, err := z.Create(plain.name); err != nil {
			t.Fatal(err)
		} else if _, err := io.WriteString(w, plain.text); err != nil {
			t.Fatal(err)
		}
	}
	w, err := z.CreateRaw(&zip.FileHeader{
		Name: name, Method: zip.Deflate, CompressedSize64: uint64(len(packed)), UncompressedSize64: size,
	})
	if err == nil {
		_, err = w.Write(packed)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return written(t, "liar.zip", b.Bytes())
}

// TestZipBombs: 10 GB of zeros in 45 KB or 10 MB, with sizes that are true or not, a zip in a zip, and headers that
// disagree.
func TestZipBombs(t *testing.T) {
	bomb := zeros(t)
	nested := zipOf(t, map[string][]byte{"meta.json": []byte(hostileMeta), "samples.jsonl": []byte("PK")})
	inner, err := os.ReadFile(liar(t, "samples.jsonl", bomb, 100))
	if err != nil {
		t.Fatal(err)
	}
	twice := gzipped(t, gzipped(t, make([]byte, 256<<20)))
	plain := zipOf(t, map[string][]byte{
		"meta.json":     []byte(hostileMeta),
		"samples.jsonl": []byte(fmt.Sprintf(hostileSample, 0, "1")),
	})
	content, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	// The first local header names another file, and another method, than the directory.
	disagrees := bytes.Clone(content)
	disagrees[8] = 99
	disagrees = bytes.Replace(disagrees, []byte("meta.json"), []byte("beta.json"), 1)
	cut := content[:len(content)-30]
	for name, path := range map[string]string{
		"true size":     liar(t, "samples.jsonl", bomb, 160*64<<20),
		"says 100":      liar(t, "samples.jsonl", bomb, 100),
		"meta says 100": liar(t, "meta.json", bomb, 100),
		"says 2^63":     liar(t, "samples.jsonl", bomb, 1<<63),
		"profile":       liar(t, "profiles/cpu.pb.gz", bomb, 1000),
		"packed twice": zipOf(t, map[string][]byte{
			"meta.json":     []byte(hostileMeta),
			"samples.jsonl": []byte(fmt.Sprintf(hostileSample, 0, "1")), "profiles/cpu.pb.gz": twice,
		}),
		"zip in a zip":   zipOf(t, map[string][]byte{"meta.json": inner, "samples.jsonl": inner}),
		"zip as samples": nested,
		"cut":            written(t, "cut.zip", cut),
	} {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{
				{"diagnose", "--from", path},
				{"report", path, "-o", "json"},
				{"compare", path, path},
			} {
				o := perfdoctor(t, toRead, args...)
				if o.code != 2 || !strings.Contains(o.stderr, "not a usable recording") ||
					strings.Contains(o.stderr, "panic") {
					t.Errorf("%s: exit code %d, stderr %.300q, want 2", args[0], o.code, o.stderr)
				}
			}
		})
	}
	// The directory counts, so that both readers agree on what the recording is.
	if o := perfdoctor(t, toRead, "report", written(t, "disagrees.zip", disagrees)); o.code == 1 ||
		strings.Contains(o.stderr, "panic") {
		t.Errorf("headers that disagree: exit code %d, stderr %.300q", o.code, o.stderr)
	}
}
