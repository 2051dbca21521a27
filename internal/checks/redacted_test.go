package checks

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/redact"
)

// TestRedactedSaysTheSame runs all checks over every recorded case, with its names and with pseudonyms. The same checks
// must speak, with the same severity and the same numbers.
func TestRedactedSaysTheSame(t *testing.T) {
	t.Parallel()
	files := checktest.Find(t, "*/*")
	if len(files) < 300 {
		t.Fatalf("%d cases, want all of testdata", len(files))
	}
	for _, file := range files {
		plain := checktest.OpenFile(t, file)
		hidden, err := plain.Redacted(redact.New([]byte("a key of a test")))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(said(plain), said(hidden)); d != "" {
			t.Errorf("%s: -plain +redacted:\n%s", file, d)
		}
	}
}

// said returns what must not depend on names: which checks found something, with confidence, severity and every number,
// and what was not assessed. Two equal findings may change places.
func said(rec *recording.Recording) []string {
	res := check.Run(rec, Suite(), check.Options{})
	var out []string
	for _, f := range res.Findings {
		line := fmt.Sprintf("%s %s (%s, %s, a consequence: %t):", f.Severity, f.Check, f.Confidence, f.Subject.Kind,
			f.ExplainedBy != "")
		var numbers []string
		for _, e := range f.Evidence {
			numbers = append(numbers, fmt.Sprintf("%g %s", e.Number(), e.Unit()))
		}
		slices.Sort(numbers)
		out = append(out, fmt.Sprint(line, numbers))
	}
	for _, o := range res.Outcomes {
		out = append(out, fmt.Sprint(o.Check, " ", o.State))
	}
	slices.Sort(out)
	return out
}
