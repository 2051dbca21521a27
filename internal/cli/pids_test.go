package cli

import (
	"regexp"
	"slices"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// aNumber matches what stands alone as a number.
var aNumber = regexp.MustCompile(`\b[0-9]+\b`)

// TestNoProcessIDsInFindings runs all checks over every recorded case. No subject of a finding contains a process id of
// the recording.
func TestNoProcessIDsInFindings(t *testing.T) {
	t.Parallel()
	fired := map[string]bool{}
	for _, file := range checktest.Find(t, "*/firing*") {
		rec := checktest.OpenFile(t, file)
		ids := idsIn(rec)
		for _, f := range check.Run(rec, checks.Suite(), check.Options{}).Findings {
			fired[f.Check] = true
			label := exporter.SubjectLabel(f.Subject)
			for _, number := range aNumber.FindAllString(label, -1) {
				if ids[number] {
					t.Errorf("%s: %s has the process id %s in its subject %q", file, f.Check, number, label)
				}
			}
		}
	}
	for _, c := range checks.Suite() {
		if !fired[c.Name] {
			t.Logf("%s has no case that fires", c.Name)
		}
	}
	if len(fired) < len(checks.Suite())*3/4 {
		t.Errorf("%d of %d checks fired", len(fired), len(checks.Suite()))
	}
}

// idsIn returns the ids of processes and threads in a recording. It skips small ones, which are also ports, CPUs and
// counts.
func idsIn(rec *recording.Recording) map[string]bool {
	ofProcesses := []string{"pid", "tid", "waker_pid", "thread", "holder", "waker"}
	out := map[string]bool{}
	for _, m := range metric.All() {
		for _, label := range m.Describe().Labels {
			if !slices.Contains(ofProcesses, label) || !rec.Recorded(m) {
				continue
			}
			for _, s := range rec.SeriesOf(m) {
				if id := s.Label(label); len(id) > 2 {
					out[id] = true
				}
			}
		}
	}
	return out
}
