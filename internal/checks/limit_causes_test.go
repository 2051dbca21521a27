package checks

import (
	"slices"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
	"github.com/perfdoctor/perfdoctor/internal/checks/limits"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TestOneThrottlingVoice runs both throttling checks over every recording of either. Neither may repeat what the other
// says.
func TestOneThrottlingVoice(t *testing.T) {
	files := checktest.Find(t, "cpu-throttled*/*")
	if len(files) < 6 {
		t.Fatalf("%d recordings", len(files))
	}
	spoke := map[string]bool{}
	for _, f := range files {
		rec, err := recording.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		res := check.Run(rec, []*check.Check{
			named("cpu-throttled"), named("cpu-throttled-burst"),
			named("too-many-threads"), named("threads-vs-quota"),
		}, check.Options{})
		var names []string
		for _, x := range res.Findings {
			if x.Check == named("cpu-throttled").Name || x.Check == named("cpu-throttled-burst").Name {
				names = append(names, x.Check)
				spoke[x.Check] = true
			}
		}
		if len(names) > 1 {
			t.Errorf("%s: %v", f, names)
		}
	}
	if len(spoke) != 2 {
		t.Errorf("only %v spoke in any recording", spoke)
	}
}

// TestThrottlingIsTheCause: pools that are too large for a limit are a consequence of the throttling seen with them.
func TestThrottlingIsTheCause(t *testing.T) {
	rec := checktest.Open(t, "threads-vs-quota/firing")
	res := check.Run(rec, limits.Checks(), check.Options{Causes: Causes()})
	if p := res.Principal(); p == nil || p.Check != named("cpu-throttled-burst").Name {
		t.Fatalf("the principal finding is %+v, want that of %s", p, named("cpu-throttled-burst").Name)
	}
	i := slices.IndexFunc(res.Findings, func(f check.Finding) bool { return f.Check == named("threads-vs-quota").Name })
	if i < 0 || res.Findings[i].ExplainedBy != res.Principal().ID() {
		t.Errorf("%s is not a consequence: %+v", named("threads-vs-quota").Name, res.Findings)
	}
}
