package cli_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// compared is what the tests read of a comparison (docs/report-schema.md).
type compared struct {
	Verdict struct {
		Result  string `json:"result"`
		Summary string `json:"summary"`
	} `json:"verdict"`
	Findings []struct {
		ID    string `json:"id"`
		Fate  string `json:"fate"`
		Doubt string `json:"doubt"`
		After struct {
			Check string `json:"check"`
		} `json:"after"`
		Before struct {
			Check string `json:"check"`
		} `json:"before"`
	} `json:"findings"`
	Methods struct {
		Uncounted string `json:"uncounted"`
	} `json:"methods"`
}

func compareFiles(t *testing.T, before, after string) (c compared, code int) {
	t.Helper()
	code, out, stderr := run(t, "compare", before, after, "--fail-on", "regression", "-o", "json")
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		t.Fatalf("exit code %d, %v: %s", code, err, stderr)
	}
	return c, code
}

// TestCures: from a scenario's recording to that of its cure it got better, by the fault that was planted; the other
// way round it got worse by it. The recordings are cut to what the comparison and the fault's check read.
func TestCures(t *testing.T) {
	for _, tt := range []struct{ sick, cured, check string }{
		{"fd-leak-as-is", "fd-leak-close", "fd-limit"}, // which comes up within the window
		{"quota-closed-loop-as-is", "quota-closed-loop-no-quota", "cpu-throttled"},
		// after which a hundred times as much is done
		{"port-cliff-as-is", "port-cliff-keep-alive", "short-connection-ceiling"},
		// with the work in another method since
		{"java-date-format-as-is", "java-date-format-shared", "date-format"},
	} {
		t.Run(tt.sick, func(t *testing.T) {
			sick, cured := "testdata/cures/"+tt.sick+".txtar", "testdata/cures/"+tt.cured+".txtar"
			c, code := compareFiles(t, sick, cured)
			if c.Verdict.Result != "better" || code != 0 || !slices.Contains(c.counted("gone"), tt.check) {
				t.Errorf("cured: exit code %d, %s; gone: %q", code, c.Verdict.Summary, c.counted("gone"))
			}
			c, code = compareFiles(t, cured, sick)
			if c.Verdict.Result != "worse" || code != 3 || !slices.Contains(c.counted("new"), tt.check) {
				t.Errorf("sick: exit code %d, %s; new: %q", code, c.Verdict.Summary, c.counted("new"))
			}
			if c, code := compareFiles(t, sick, sick); c.Verdict.Result != "same" || code != 0 {
				t.Errorf("with itself: exit code %d, %s", code, c.Verdict.Summary)
			}
		})
	}
}

// counted gives the checks whose findings had that fate, and count.
func (c *compared) counted(fate string) []string {
	var out []string
	for _, f := range c.Findings {
		if f.Fate == fate && f.Doubt == "" {
			out = append(out, f.Before.Check+f.After.Check)
		}
	}
	return out
}

// TestDifferentPrograms: what two programs do is not compared, unless somebody insists.
func TestDifferentPrograms(t *testing.T) {
	const one, other = "testdata/cures/fd-leak-as-is.txtar", "testdata/cures/java-date-format-as-is.txtar"
	code, out, stderr := run(t, "compare", one, other)
	if code != 2 || out != "" || !strings.Contains(stderr, "different programs") ||
		!strings.Contains(stderr, "--force") {
		t.Errorf("exit code %d, %q, %q", code, out, stderr)
	}
	if code, out, stderr := run(t, "compare", "--force", one, other); code != 0 || !strings.Contains(out, "before ") {
		t.Errorf("with --force: exit code %d, %q, %q", code, out, stderr)
	}
}
