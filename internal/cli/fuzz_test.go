package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"testing"
	"testing/fstest"
	"unicode"
	"unicode/utf8"

	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/report"
	"github.com/perfdoctor/perfdoctor/internal/report/html"
)

// FuzzRecording reads a recording, runs all checks on it and writes it in every format. If the reader accepts a
// recording, no renderer may fail on it, and no output may contain terminal controls.
func FuzzRecording(f *testing.F) {
	for _, name := range []string{
		"cpu-throttled/firing-own", "hash-collisions/firing", "nic-drops/firing", "lock-contention/firing",
		"no-keepalive/firing",
		"gc-overhead/firing", "java-deadlock/firing", "event-loop-blocked/quiet-no-loop",
	} {
		a, err := txtar.ParseFile(checktest.Find(f, name)[0])
		if err != nil {
			f.Fatal(err)
		}
		parts := map[string][]byte{}
		for _, file := range a.Files {
			parts[file.Name] = file.Data
		}
		f.Add(parts["meta.json"], parts["samples.jsonl"], parts["profiles/cpu.txt"], []byte(nil))
	}
	suite := checks.Suite()
	f.Fuzz(func(t *testing.T, meta, samples, text, pprof []byte) {
		files := fstest.MapFS{"meta.json": {Data: meta}, "samples.jsonl": {Data: samples}}
		if len(text) > 0 {
			files["profiles/cpu.txt"] = &fstest.MapFile{Data: text}
		}
		if len(pprof) > 0 {
			files["profiles/alloc.pb.gz"] = &fstest.MapFile{Data: packed(t, pprof)}
		}
		rec, err := recording.Read(files)
		if err != nil {
			if !errors.Is(err, recording.ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		renderAll(t, rec, suite)
	})
}

func packed(t *testing.T, content []byte) []byte {
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

func renderAll(t *testing.T, rec *recording.Recording, suite []*check.Check) {
	t.Helper()
	data := report.Build(rec, check.Run(rec, suite, check.Options{Causes: checks.Causes()}))
	c := report.Comparison{Data: compare.Compare(rec, rec, compare.Options{Checks: suite})}
	source := compare.Source{Name: "a", Open: func() (*recording.Recording, error) { return rec, nil }}
	sources := []compare.Source{source, source, source, source}
	trend := report.Trend{Trend: compare.MakeTrend(sources, suite, check.Options{Causes: checks.Causes()})}
	plain := func(write func(io.Writer, report.TextOptions) error) func(io.Writer) error {
		return func(w io.Writer) error { return write(w, report.TextOptions{}) }
	}
	for name, write := range map[string]func(io.Writer) error{
		"text": plain(data.Text), "verdict": plain(data.VerdictText), "json": data.JSON, "markdown": data.Markdown,
		"junit": data.JUnit,
		"html": func(w io.Writer) error {
			return html.Write(w, html.Input{Report: data, Recording: rec, Checks: suite})
		},
		"compare text": plain(c.Text), "compare json": c.JSON, "compare markdown": c.Markdown,
		"trend text": plain(trend.Text), "trend json": trend.JSON, "trend markdown": trend.Markdown,
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wellFormed(t, name, b.Bytes())
	}
}

func wellFormed(t *testing.T, name string, out []byte) {
	t.Helper()
	switch name {
	case "html": // its program has what it likes
		return
	case "json", "compare json", "trend json":
		if !json.Valid(out) {
			t.Fatalf("%s is none:\n%s", name, out)
		}
	case "junit":
		if err := xml.Unmarshal(out, new(struct{})); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	if !utf8.Valid(out) {
		t.Fatalf("%s is no UTF-8:\n%q", name, out)
	}
	for _, r := range string(out) {
		if r != '\n' && r != '\t' && r != '\u00a0' && !unicode.IsPrint(r) {
			t.Fatalf("%s has %U:\n%q", name, r, out)
		}
	}
}
