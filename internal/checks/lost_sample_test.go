package checks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TestLostSample drops each sample of each collector in turn from every case and every recording of a healthy system.
// A diagnosis with one sample less may know less; it must not warn of what it found fine before, and no check may
// fail.
func TestLostSample(t *testing.T) {
	files := checktest.Find(t, "*/*")
	if len(files) < 300 {
		t.Fatalf("%d cases, want all of testdata", len(files))
	}
	for _, f := range files {
		t.Run(f, func(t *testing.T) {
			t.Parallel()
			c := openSampled(t, f)
			before := severities(check.Run(c.without(t, -1, nil), Suite(), check.Options{}))
			for _, collector := range c.collectors {
				for i := range c.samples {
					if !c.has(i, collector) {
						continue
					}
					res := check.Run(c.without(t, i, collector.Metrics), Suite(), check.Options{})
					where := fmt.Sprintf("without the sample of %s in line %d of %d", collector.Name, i+1,
						len(c.samples))
					for _, f := range res.Findings {
						if f.Severity >= check.Warning && f.Severity > before[f.Check] {
							t.Errorf("%s: %s %s: %s", where, f.Severity, f.ID(), f.Summary)
						}
					}
					for _, o := range res.Outcomes {
						if strings.HasPrefix(o.Reason, "the check failed") {
							t.Errorf("%s: %s: %s", where, o.Check, o.Reason)
						}
					}
				}
			}
		})
	}
}

// severities gives how bad the worst finding of each check is. A sample that names the offender changes the subject,
// and not that it is found.
func severities(res *check.Result) map[string]check.Severity {
	out := map[string]check.Severity{}
	for _, f := range res.Findings {
		out[f.Check] = max(out[f.Check], f.Severity)
	}
	return out
}

// sampled is a recording as its file has it: one line a time.
type sampled struct {
	files      fstest.MapFS
	collectors []recording.CollectorStatus
	samples    []sampleLine
}

type sampleLine struct {
	T json.RawMessage            `json:"t"`
	M map[string]json.RawMessage `json:"m"`

	text []byte // as the file has it, with its end
}

func openSampled(t *testing.T, path string) *sampled {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &sampled{files: fstest.MapFS{}}
	for _, f := range txtar.Parse(data).Files {
		s.files[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	var meta recording.Meta
	if err := json.Unmarshal(s.files["meta.json"].Data, &meta); err != nil {
		t.Fatal(err)
	}
	s.collectors = meta.Collectors
	for line := range bytes.Lines(s.files["samples.jsonl"].Data) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var l sampleLine
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		l.text = append(bytes.TrimSpace(line), '\n')
		s.samples = append(s.samples, l)
	}
	return s
}

// has reports whether line i holds a sample of the collector.
func (s *sampled) has(i int, c recording.CollectorStatus) bool {
	return slices.ContainsFunc(c.Metrics, func(name string) bool { return s.samples[i].M[name] != nil })
}

// without gives the recording without these metrics in line i.
func (s *sampled) without(t *testing.T, i int, metrics []string) *recording.Recording {
	t.Helper()
	var b bytes.Buffer
	for k, l := range s.samples {
		if k == i {
			l.M = maps.Clone(l.M)
			maps.DeleteFunc(l.M, func(name string, _ json.RawMessage) bool { return slices.Contains(metrics, name) })
			line, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			l.text = append(line, '\n')
		}
		b.Write(l.text)
	}
	files := maps.Clone(s.files)
	files["samples.jsonl"] = &fstest.MapFile{Data: b.Bytes()}
	rec, err := recording.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}
