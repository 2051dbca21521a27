package checks

import (
	"fmt"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
)

// TestLostSample drops each sample of each collector in turn from every case and every recording of a healthy system. A
// diagnosis with one sample less may know less. It must not warn of what was fine before, and no check may fail.
func TestLostSample(t *testing.T) {
	files := checktest.Find(t, "*/*")
	if len(files) < 300 {
		t.Fatalf("%d cases, want all of testdata", len(files))
	}
	for _, f := range files {
		t.Run(f, func(t *testing.T) {
			t.Parallel()
			rec := checktest.OpenFile(t, f)
			before := severities(check.Run(rec, Suite(), check.Options{}))
			for _, collector := range rec.Meta.Collectors {
				for n := 0; ; n++ {
					lost := rec.WithoutSample(collector, n)
					if lost == nil {
						break
					}
					where := fmt.Sprintf("without sample %d of %s", n+1, collector.Name)
					res := check.Run(lost, Suite(), check.Options{})
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

// severities returns the severity of the worst finding of each check. A sample that names the offender changes the
// subject, but not whether it is found.
func severities(res *check.Result) map[string]check.Severity {
	out := map[string]check.Severity{}
	for _, f := range res.Findings {
		out[f.Check] = max(out[f.Check], f.Severity)
	}
	return out
}
