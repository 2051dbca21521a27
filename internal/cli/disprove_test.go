package cli

import (
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// recordedCases are the recordings of the rules' own tests, by check and case.
func recordedCases(t *testing.T, kind string) map[string]*recording.Recording {
	t.Helper()
	paths, err := filepath.Glob("../checks/*/testdata/*/" + kind + "*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("no recorded cases", err)
	}
	out := map[string]*recording.Recording{}
	for _, p := range paths {
		rec, err := recording.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		dir, name := filepath.Split(p)
		out[filepath.Base(dir)+"/"+name] = rec
	}
	return out
}

// divided returns the halves of a recording as two windows.
func divided(rec *recording.Recording) (first, second *recording.Recording) {
	length := time.Duration(rec.Meta.Duration * float64(time.Second))
	return rec.Between(0, length/2), rec.Between(length/2, length)
}

func testOf(t *testing.T, name string, first, second *recording.Recording) *compare.Test {
	t.Helper()
	c, err := FindCheck(checks.Suite(), name)
	if err != nil {
		t.Fatal(err)
	}
	return compare.Disprove(first, second, nil, compare.Options{Checks: []*check.Check{c}})
}

// At least so many findings must stand, and findings of so many rules must fall.
const (
	leastStanding = 20
	leastFallen   = 10
)

// TestTrueFindingsStand: neither half of a recording overturns what both halves have.
func TestTrueFindingsStand(t *testing.T) {
	stand := 0
	for name, rec := range recordedCases(t, "firing") {
		first, second := divided(rec)
		for _, f := range testOf(t, path.Dir(name), first, second).Findings {
			switch f.Result {
			case compare.Stands:
				stand++
			case compare.Falls:
				t.Errorf("%s: %s falls: %s", name, f.Finding, f.Because)
			}
		}
	}
	if stand < leastStanding {
		t.Errorf("%d findings stand, want %d", stand, leastStanding)
	}
	t.Logf("%d findings stand, none falls", stand)
}

// TestPlantedFindingsFall: the rule's author says that the fault is not in the recording of the second window, so no
// finding may stand. If a finding cannot be told, the recordings lack the load, because they are cut to what the rule
// reads.
func TestPlantedFindingsFall(t *testing.T) {
	fallen := map[string]bool{}
	quiet := recordedCases(t, "quiet")
	for name, first := range recordedCases(t, "firing") {
		for other, second := range quiet {
			if path.Dir(other) != path.Dir(name) {
				continue
			}
			for _, f := range testOf(t, path.Dir(name), first, second).Findings {
				switch f.Result {
				case compare.Stands:
					t.Errorf("%s against %s: %s stands: %s", name, other, f.Finding, f.Because)
				case compare.Falls:
					fallen[path.Dir(name)] = true
				}
			}
		}
	}
	if len(fallen) < leastFallen {
		t.Errorf("findings of %d rules fall, want %d", len(fallen), leastFallen)
	}
	t.Logf("findings of %d rules fall, none stands", len(fallen))
}

// TestFallOrCannotBeTold: an absent problem disproves nothing if it could not have been seen.
func TestFallOrCannotBeTold(t *testing.T) {
	c, err := FindCheck(checks.Suite(), "cpu-steal")
	if err != nil {
		t.Fatal(err)
	}
	const dir = "../checks/kernel/testdata/cpu-steal/"
	sick, err := recording.Open(dir + "firing.txtar")
	if err != nil {
		t.Fatal(err)
	}
	none := withEdit(t, sick, "cpu_seconds_total{mode=steal}=0")
	short := none.Meta
	short.Duration = sick.Meta.Duration / 3
	lost := none.Meta
	lost.Collectors = []recording.CollectorStatus{{
		Name: "cpu", Metrics: []string{"cpu_seconds_total"}, Lost: []recording.Loss{{What: "late samples", Count: 3}},
	}}
	for _, tt := range []struct {
		name   string
		second *recording.Recording
		want   compare.Standing
		why    string
	}{
		{"there again", sick, compare.Stands, "the second window has it"},
		{"gone", none, compare.Falls, "CPUs in use"},
		{"too short", none.WithMeta(short), compare.Unsure, "observe for longer"},
		{"samples were lost", none.WithMeta(lost), compare.Unsure, "samples were lost there"},
		{"idle", withEdit(t, none, "cpu_seconds_total{mode=idle}=x20"), compare.Unsure, "there is less to do"},
		{"not read", none.Cut(nil), compare.Unsure, "the second window cannot tell"},
		{"no second window", nil, compare.Stands, "each half of the recording has it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := compare.Disprove(sick, tt.second, nil, compare.Options{Checks: []*check.Check{c}})
			if len(got.Findings) != 1 || got.Findings[0].Result != tt.want ||
				!strings.Contains(got.Findings[0].Because, tt.why) {
				t.Errorf("%+v, want %s: %s", got.Findings, tt.want, tt.why)
			}
		})
	}
}

func withEdit(t *testing.T, rec *recording.Recording, text string) *recording.Recording {
	t.Helper()
	out, err := rec.Edit(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
