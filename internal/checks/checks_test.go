package checks

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

var update = flag.Bool("update", false, "rewrite the want sections of the cases")

// TestCases runs every testdata/<check>/<case>.txtar: a comment that says where the recording came from, meta.json, samples.jsonl and
// want. A case's name says what it must show: firing*, quiet* or not-assessed*. Every check has at least one of each.
func TestCases(t *testing.T) {
	for _, c := range Suite() {
		t.Run(c.Name, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join("testdata", c.Name, "*.txtar"))
			if err != nil {
				t.Fatal(err)
			}
			need := map[string]bool{"firing": !neverFires[c.Name], "quiet": true, "not-assessed": true}
			for _, f := range files {
				kind := caseKind(f)
				delete(need, kind)
				t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) { runCase(t, c, f, kind) })
			}
			for kind := range need {
				if !need[kind] {
					continue
				}
				t.Errorf("no %s case: add testdata/%s/%s.txtar", kind, c.Name, kind)
			}
		})
	}
}

// neverFires lists checks that say what nobody measured: they have no firing case until a collector feeds them.
var neverFires = map[string]bool{
	"false-sharing": true, // HITM events need precise memory sampling
}

func caseKind(path string) string {
	for _, k := range []string{"firing", "quiet", "not-assessed"} {
		if strings.HasPrefix(filepath.Base(path), k) {
			return k
		}
	}
	return "unknown"
}

func runCase(t *testing.T, c *check.Check, path, kind string) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ar := txtar.Parse(data)
	if len(bytes.TrimSpace(ar.Comment)) < 20 {
		t.Error("the comment must say where the recording came from")
	}
	fsys, err := txtar.FS(ar)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := recording.Read(fsys)
	if err != nil {
		t.Fatal(err)
	}
	res := check.Run(rec, []*check.Check{c}, check.Options{})
	checkKind(t, res, kind)
	wantSection(t, path, ar, describe(res))
}

// wantSection compares the want section of a case, or with -update writes it.
func wantSection(t *testing.T, path string, ar *txtar.Archive, got string) {
	t.Helper()
	i := indexOf(ar, "want")
	if *update {
		if i < 0 {
			ar.Files = append(ar.Files, txtar.File{Name: "want"})
			i = len(ar.Files) - 1
		}
		ar.Files[i].Data = []byte(got)
		if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if i < 0 {
		t.Fatal("no want section: run the test with -update and read what it wrote")
	}
	if d := cmp.Diff(string(ar.Files[i].Data), got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func indexOf(ar *txtar.Archive, name string) int {
	for i, f := range ar.Files {
		if f.Name == name {
			return i
		}
	}
	return -1
}

func checkKind(t *testing.T, res *check.Result, kind string) {
	o := res.Outcomes[0]
	want := map[string]check.State{"firing": check.Found, "not-assessed": check.Unassessed}
	switch {
	case kind == "unknown":
		t.Error("the case's name must begin with firing, quiet or not-assessed")
	case kind == "quiet":
		for _, f := range res.Findings {
			if f.Severity >= check.Warning {
				t.Errorf("a quiet case has a %s: %s", f.Severity, f.Summary)
			}
		}
		if o.State == check.Unassessed {
			t.Errorf("a quiet case was not assessed: %s", o.Reason)
		}
	case o.State != want[kind]:
		t.Errorf("state %q (%s), want %q", o.State, o.Reason, want[kind])
	}
}

// describe is the golden text of a result: everything a reader would see.
func describe(res *check.Result) string {
	var b strings.Builder
	for _, f := range res.Findings {
		fmt.Fprintf(&b, "%s %s (%s confidence): %s\n  %s\n", f.Severity, f.Check, f.Confidence, f.Subject, f.Summary)
		for _, e := range f.Evidence {
			fmt.Fprintf(&b, "  evidence: %s\n", e)
		}
		for _, n := range f.Notes {
			fmt.Fprintf(&b, "  note: %s\n", n)
		}
		for _, r := range f.Remedies {
			fmt.Fprintf(&b, "  cure: %s\n    command: %s\n    risk: %s\n    effect: %s\n", r.Action, r.Command, r.Risk, r.Effect)
		}
		for _, id := range f.MendFirst {
			fmt.Fprintf(&b, "  mend first: %s\n", id)
		}
		for _, p := range f.Placebos {
			fmt.Fprintf(&b, "  does not help: %s\n", p)
		}
		fmt.Fprintf(&b, "  wrong if: %s\n", f.Disproof)
		for _, d := range f.Doubts {
			fmt.Fprintf(&b, "  doubt: %s\n", d)
		}
	}
	for _, o := range res.Outcomes {
		fmt.Fprintf(&b, "%s: %s\n", o.Check, o.State)
		for _, r := range o.Read {
			fmt.Fprintf(&b, "  read: %s\n", r)
		}
		if o.Reason != "" {
			fmt.Fprintf(&b, "  because: %s\n  would be, with: %s\n", o.Reason, o.Remedy)
		}
	}
	return b.String()
}

// TestSuiteIsValid keeps the catalogue whole: names, documents and parameters that a user meets.
func TestSuiteIsValid(t *testing.T) {
	if err := check.Validate(Suite()); err != nil {
		t.Error(err)
	}
}
