// Package checktest runs checks over their cases: recordings that stand beside a rule, each with what the rule must say
// of it.
package checktest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// Cases runs every testdata/<check>/<case>.txtar of a room: a comment that says where the recording came from,
// meta.json, samples.jsonl and want. A case's name says what it must show: firing*, quiet* or not-assessed*. Every
// check has at least one of each, but those that never fire. With update it writes what the checks say into the cases.
//
// The words of remedies, placebos and disproofs are wanted once for a check, in the first case that has them: the
// example of the check's page, which stands first, or another where the example lacks them. So another wording changes
// one case. The commands are wanted everywhere: what a recording holds is in them.
func Cases(t *testing.T, checks []*check.Check, update bool, neverFire ...string) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.Name, func(t *testing.T) {
			need := map[string]bool{"firing": !slices.Contains(neverFire, c.Name), "quiet": true, "not-assessed": true}
			told := &wording{said: map[string]bool{}}
			for i, path := range files(t, c) {
				kind := kindOf(path)
				delete(need, kind)
				told.all = i == 0          // a page's example is whole
				one := read(c, path, told) // even when only another case is asked for, which must not depend on that
				t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"),
					func(t *testing.T) { one.run(t, kind, update) })
			}
			for kind, missing := range need {
				if missing {
					t.Errorf("no %s case: add testdata/%s/%s.txtar", kind, c.Name, kind)
				}
			}
		})
	}
}

// files gives the cases of a check, the example of its page first.
func files(t *testing.T, c *check.Check) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join("testdata", c.Name, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	example := slices.IndexFunc(list, func(f string) bool { return filepath.Base(f) == "firing.txtar" })
	if example < 0 {
		example = slices.IndexFunc(list, func(f string) bool { return kindOf(f) == "firing" })
	}
	if example > 0 {
		list = slices.Concat(list[example:example+1], list[:example], list[example+1:])
	}
	return list
}

func kindOf(path string) string {
	for _, k := range []string{"firing", "quiet", "not-assessed"} {
		if strings.HasPrefix(filepath.Base(path), k) {
			return k
		}
	}
	return "unknown"
}

// A result is what a check says of one case.
type result struct {
	path    string
	archive *txtar.Archive
	res     *check.Result
	said    string
	err     error
}

func read(c *check.Check, path string, told *wording) *result {
	r := &result{path: path}
	data, err := os.ReadFile(path)
	if err != nil {
		r.err = err
		return r
	}
	r.archive = txtar.Parse(data)
	fsys, err := txtar.FS(r.archive)
	if err != nil {
		r.err = err
		return r
	}
	rec, err := recording.Read(fsys)
	if err != nil {
		r.err = err
		return r
	}
	r.res = check.Run(rec, []*check.Check{c}, check.Options{})
	r.said = describe(r.res, told)
	return r
}

func (r *result) run(t *testing.T, kind string, update bool) {
	t.Helper()
	if r.err != nil {
		t.Fatal(r.err)
	}
	if len(bytes.TrimSpace(r.archive.Comment)) < 20 {
		t.Error("the comment must say where the recording came from")
	}
	checkKind(t, r.res, kind)
	Golden(t, r.path, r.archive, r.said, update)
}

// Golden compares what was got with the section want of a recording in a txtar file, or writes it there.
func Golden(t testing.TB, path string, ar *txtar.Archive, got string, update bool) {
	t.Helper()
	i := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == "want" })
	if update {
		if i < 0 {
			ar.Files = append(ar.Files, txtar.File{Name: "want"})
			i = len(ar.Files) - 1
		}
		ar.Files[i].Data = []byte(got)
		if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil { //nolint:gosec // source code
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

func checkKind(t *testing.T, res *check.Result, kind string) {
	t.Helper()
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

// A wording is what was said already, apart from the numbers and names in it.
type wording struct {
	said map[string]bool
	all  bool // say everything again
}

// particulars are quoted names, and numbers with their units: 1 CPU, 2 CPUs.
var particulars = regexp.MustCompile(`"[^"]*"|'[^']*'|[\w./:-]*\d[\w./:-]*( [%\pL/]+)?`)

// wanted reports whether the text is to be said here.
func (w *wording) wanted(text string) bool {
	key := particulars.ReplaceAllString(text, "#")
	first := !w.said[key]
	w.said[key] = true
	return first || w.all
}

// describe is the golden text of a result: everything a reader would see, less the wording that another case shows.
func describe(res *check.Result, told *wording) string {
	var b strings.Builder
	words := func(format, text string) {
		if told.wanted(fmt.Sprintf(format, text)) {
			fmt.Fprintf(&b, format, text)
		}
	}
	for _, f := range res.Findings {
		fmt.Fprintf(&b, "%s %s (%s confidence): %s\n  %s\n", f.Severity, f.Check, f.Confidence, f.Subject, f.Summary)
		for _, e := range f.Evidence {
			fmt.Fprintf(&b, "  evidence: %s\n", e)
		}
		for _, n := range f.Notes {
			fmt.Fprintf(&b, "  note: %s\n", n)
		}
		for _, r := range f.Remedies {
			words("  fix: %s\n", r.Action)
			if r.Command != "" {
				fmt.Fprintf(&b, "    command: %s\n", r.Command)
			}
			words("    risk: %s\n", r.Risk)
			words("    expected effect: %s\n", r.Effect)
		}
		for _, id := range f.FixFirst {
			fmt.Fprintf(&b, "  fix first: %s\n", id)
		}
		for _, p := range f.Placebos {
			words("  won't help: %s\n", p)
		}
		words("  disproved if: %s\n", f.Disproof)
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
