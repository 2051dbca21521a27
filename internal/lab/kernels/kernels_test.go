package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/collect"
)

// TestList: everything that the matrix lists exists, so that a renamed test does not get lost.
func TestList(t *testing.T) {
	if err := checkList(features(), floors()); err != nil {
		t.Error(err)
	}
	names := map[string]bool{}
	for _, f := range features() {
		if names[f.name] || len(f.tests) == 0 {
			t.Errorf("feature %q is listed twice or has no test", f.name)
		}
		names[f.name] = true
		for _, test := range f.tests {
			if !declared(t, f.pkg, test) {
				t.Errorf("feature %q: package %s has no %s", f.name, f.pkg, test)
			}
		}
	}
}

func declared(t *testing.T, pkg, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`(?m)^func ` + test + `\(t \*testing\.T\)`)
	return slices.ContainsFunc(files, func(name string) bool {
		source, err := os.ReadFile(name)
		return err == nil && form.Match(source)
	})
}

func TestBadLists(t *testing.T) {
	known := map[string]collect.Floor{"a": {Release: "5.5"}}
	for want, list := range map[string][]feature{
		"no collector b":      {{name: "x", collector: "a"}, {name: "y", collector: "b"}},
		"no feature":          {{name: "x"}},
		"belong together":     {{name: "x", collector: "a", only: []kernel{arm612}}},
		"reason belong":       {{name: "x", collector: "a", because: "of nothing"}},
		"feature of the list": nil,
	} {
		if err := checkList(list, known); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error about %q", list, err, want)
		}
	}
}

// events is the output of `go tool test2json` for a run.
const events = `{"Action":"start"}
{"Action":"run","Test":"TestGood"}
{"Action":"output","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"pass","Test":"TestGood","Elapsed":0.1}
{"Action":"output","Test":"TestTimed","Output":"    x_test.go:5: measured: 7 µs\n"}
{"Action":"pass","Test":"TestTimed","Elapsed":0.1}
{"Action":"run","Test":"TestSkipped"}
{"Action":"output","Test":"TestSkipped","Output":"    x_test.go:7: Linux 5.4 is older than 5.9: no helper\n"}
{"Action":"output","Test":"TestSkipped","Output":"--- SKIP: TestSkipped (0.00s)\n"}
{"Action":"skip","Test":"TestSkipped"}
{"Action":"run","Test":"TestPart/good"}
{"Action":"pass","Test":"TestPart/good"}
{"Action":"output","Test":"TestPart/missing","Output":"    x_test.go:9: not today\n"}
{"Action":"skip","Test":"TestPart/missing"}
{"Action":"pass","Test":"TestPart"}
{"Action":"output","Test":"TestBad","Output":"    x_test.go:8: 1 is not 2\n"}
{"Action":"fail","Test":"TestBad"}
{"Action":"run","Test":"TestHung"}
{"Action":"fail"}
`

func TestJudge(t *testing.T) {
	outcomes, err := parseEvents([]byte(events))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tests string
		old   bool
		want  cell
	}{
		{"TestGood", false, cell{status: ok}},
		{"TestGood TestTimed", false, cell{ok, "7 µs"}},
		{"TestGood", true, cell{failed, "works on a kernel that is older than the feature declares: the declared one " +
			"is wrong"}},
		{"TestSkipped", true, cell{tooOld, "Linux 5.4 is older than 5.9: no helper"}},
		{"TestSkipped", false, cell{failed, "skipped on a kernel that is not older than the feature declares: " +
			"Linux 5.4 is older than 5.9: no helper"}},
		{"TestPart", false, cell{failed, "skipped on a kernel that is not older than the feature declares: not today"}},
		{"TestBad", false, cell{failed, "TestBad: x_test.go:8: 1 is not 2"}},
		{"TestBad", true, cell{failed, "TestBad: x_test.go:8: 1 is not 2"}},
		{"TestHung", false, cell{failed, "TestHung: did not end\n"}},
		{"TestGood TestGone", false, cell{failed, "TestGone: was not run"}},
	} {
		if got := judge(strings.Fields(c.tests), outcomes, c.old); got != c.want {
			t.Errorf("%s, older %v: %+v, want %+v", c.tests, c.old, got, c.want)
		}
	}
	if _, err := parseEvents([]byte("no JSON")); err == nil {
		t.Error("what is no JSON: no error")
	}
}

// TestAfter: a test that passes when run again reports that it failed first. A test that fails again is as it was found
// last.
func TestAfter(t *testing.T) {
	first := cell{failed, "1 is not 2"}
	for _, c := range []struct{ again, want cell }{
		{cell{status: ok}, cell{ok, "held when it was run again, alone. At first: 1 is not 2"}},
		{cell{ok, "7 µs"}, cell{ok, "7 µs; held when it was run again, alone. At first: 1 is not 2"}},
		{cell{failed, "3 is not 4"}, cell{failed, "3 is not 4"}},
	} {
		if got := c.again.after(first); got != c.want {
			t.Errorf("%+v again: %+v, want %+v", c.again, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	m := &matrix{
		floors: map[string]collect.Floor{"a": {Release: "6.1"}},
		features: []feature{
			{name: "first", collector: "a"}, {
				name: "second", since: collect.Floor{Release: "5.9"},
				only: []kernel{arm612}, because: "only there",
			},
		},
		cells: map[place]cell{
			{"first", "5.10"}: {tooOld, "no iterator"}, {"first", "6.1"}: {failed, "2 is not 3"},
			{"first", "6.12 arm64"}: {status: ok},
			{"second", "5.10"}:      {notThere, "only there"}, {"second", "6.1"}: {notThere, "only there"},
			{"second", "6.12 arm64"}: {status: ok},
		},
		releases: map[kernel]string{linux510: "5.10.0-46", linux61: "6.1.0-56", arm612: "6.12.117"},
	}
	columns := []kernel{linux510, linux61, arm612}
	const want = `feature  since  5.10      6.1       6.12 arm64
first    6.1    not here  FAILED    ok
second   5.9    -         -         ok
5.10 is 5.10.0-46
6.1 is 6.1.0-56
6.12 arm64 is 6.12.117
first, 5.10: not here: no iterator
first, 6.1: FAILED: 2 is not 3
second, 5.10, 6.1: -: only there
`
	if diff := cmp.Diff(want, m.text(columns)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	page := string(m.document(columns, time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)))
	for _, line := range []string{
		"result of 2026-03-01.", "| feature | since | 5.10 | 6.1 | 6.12 arm64 |", "| --- | --- | --- | --- | --- |",
		"| first | 6.1 | not here | FAILED | ok |", "- 6.1 is 6.1.0-56", "- first, 5.10: not here: no iterator",
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the page lacks %q:\n%s", line, page)
		}
	}
	if n := m.failed(); n != 1 {
		t.Errorf("%d cells failed, want 1", n)
	}
}

func TestChosen(t *testing.T) {
	if all, err := chosen(nil); err != nil || len(all) != len(kernels()) {
		t.Errorf("no name: %v, %v", all, err)
	}
	if some, err := chosen([]string{"6.12 arm64"}); err != nil || len(some) != 1 || some[0] != arm612 {
		t.Errorf("one name: %v, %v", some, err)
	}
	if _, err := chosen([]string{"2.6"}); err == nil {
		t.Error("an unknown name: no error")
	}
}
