package report

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// wantsOfComparison are the golden sections of a comparison case.
var wantsOfComparison = []string{"want.txt", "want-verbose.txt", "want.md", "want.json"}

// TestCompareGolden prints the comparison of each case: two recordings below before/ and after/.
func TestCompareGolden(t *testing.T) {
	paths, err := filepath.Glob("../../testdata/report/compare/*.txtar")
	if err != nil || len(paths) < 3 {
		t.Fatalf("%d cases, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			ar, c := comparison(t, path)
			got := map[string]string{
				"want.txt": compareTextOf(t, c, TextOptions{}), "want-verbose.txt": compareTextOf(
					t, c, TextOptions{Verbose: true, Width: 100}),
				"want.md": rendered(t, c.Markdown), "want.json": rendered(t, c.JSON),
			}
			golden(t, path, ar, wantsOfComparison, got)
		})
	}
}

func compareTextOf(t *testing.T, c Comparison, opts TextOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := c.Text(&b, opts); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func comparison(t *testing.T, path string) (*txtar.Archive, Comparison) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	recs := recordings(t, path)
	return txtar.Parse(data),
		Comparison{compare.Compare(recs[0], recs[1], compare.Options{Checks: []*check.Check{throttling()}})}
}

// recordings reads both recordings of a case.
func recordings(t *testing.T, path string) (recs [2]*recording.Recording) {
	t.Helper()
	ar, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fsys, err := txtar.FS(ar)
	if err != nil {
		t.Fatal(err)
	}
	for i, dir := range []string{"before", "after"} {
		sub, err := fs.Sub(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		if recs[i], err = recording.Read(sub); err != nil {
			t.Fatal(err)
		}
	}
	return recs
}

// throttling stands for the checks, which are in another package.
func throttling() *check.Check {
	return &check.Check{
		Name: "cpu-throttled", Stage: check.Limits, Needs: []metric.Metric{metric.CgroupPeriods},
		Run: func(p *check.Pass) error {
			for _, s := range p.Counter(metric.CgroupThrottled) {
				if n, ok := s.Increase(); ok && n > 0 {
					p.Report(check.Finding{
						Subject: check.Subject{Kind: "cgroup", ID: s.Label("cgroup")}, Severity: check.Critical,
						Summary: "stopped, its *name* is |hostile| <b>",
					})
				}
			}
			return nil
		},
	}
}

// TestCompareLayout: lines fit, and no format contains anything that a terminal acts on, whatever a method or a cgroup
// is called.
func TestCompareLayout(t *testing.T) {
	_, c := comparison(t, "../../testdata/report/compare/planted.txtar")
	evil := "x\x1b[2J\nBETTER\u202e"
	c.Methods.Grown[0].Name, c.Before.Target.Name, c.Doubts = evil, evil, append(c.Doubts, evil)
	c.Findings = append(c.Findings, compare.Finding{
		ID: evil, Fate: compare.New, Doubt: evil,
		After: &check.Finding{
			Check: "a-check", Subject: check.Subject{Kind: "pid", ID: evil}, Severity: check.Warning,
			Summary: evil,
		},
	})
	for _, width := range []int{40, 80, 120} {
		for _, l := range strings.Split(compareTextOf(t, c, TextOptions{Width: width, Verbose: true}), "\n") {
			if utf8.RuneCountInString(l) > width {
				t.Errorf("at %d columns: %q", width, l)
			}
			if strings.HasPrefix(l, "BETTER") {
				t.Error("a name with a line break wrote a verdict of its own")
			}
		}
	}
	for name, s := range map[string]string{
		"text":     compareTextOf(t, c, TextOptions{}),
		"markdown": rendered(t, c.Markdown), "json": rendered(t, c.JSON),
	} {
		for _, r := range s {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%s holds %U", name, r)
			}
		}
	}
}

// TestCompareSchemaIsDocumented: every field of the comparison's JSON is in its documentation.
func TestCompareSchemaIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/report-schema.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"planted", "quota", "other"} {
		_, c := comparison(t, filepath.Join("../../testdata/report/compare", name+".txtar"))
		var v map[string]any
		if err := json.Unmarshal([]byte(rendered(t, c.JSON)), &v); err != nil {
			t.Fatal(err)
		}
		for _, k := range keys(v) {
			if !bytes.Contains(doc, []byte("`"+k+"`")) {
				t.Errorf("%s: field %q is not in docs/report-schema.md", name, k)
			}
		}
	}
}
