package checks

import (
	"flag"
	"slices"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

var update = flag.Bool("update", false, "write what the suite says into the recordings in testdata/causes")

// TestSuiteIsValid checks the catalogue: the names, documents and parameters that a user meets.
func TestSuiteIsValid(t *testing.T) {
	if err := check.Validate(Suite()); err != nil {
		t.Error(err)
	}
}

// TestStages: each check is in the package of its stage.
func TestStages(t *testing.T) {
	if !slices.IsSortedFunc(Suite(), func(a, b *check.Check) int { return int(a.Stage - b.Stage) }) {
		t.Error("the suite is not in fix order")
	}
}

// named returns the check of a name. A test that names an unknown check fails.
func named(name string) *check.Check {
	list := Suite()
	return list[slices.IndexFunc(list, func(c *check.Check) bool { return c.Name == name })]
}

func parseCase(t *testing.T, data []byte) *recording.Recording {
	t.Helper()
	fsys, err := txtar.FS(txtar.Parse(data))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := recording.Read(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// explainedBy returns the cause of a check's finding. A missing finding has no cause either.
func explainedBy(res *check.Result, name string) string {
	for _, f := range res.Findings {
		if f.Check == name {
			return f.ExplainedBy
		}
	}
	return ""
}

func wantSection(t *testing.T, path string, ar *txtar.Archive, got string) {
	t.Helper()
	checktest.Golden(t, path, ar, got, *update)
}
