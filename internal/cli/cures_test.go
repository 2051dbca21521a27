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

// TestCures compares a scenario's recording with that of its fix. It got better, by the fault that was planted. In the
// other direction it got worse by that fault. The recordings are cut to what the comparison and the fault's check read.
func TestCures(t *testing.T) {
	for _, tt := range []struct{ sick, cured, check string }{
		{"fd-leak-as-is", "fd-leak-close", "fd-limit"}, // it comes up within the window
		{"quota-closed-loop-as-is", "quota-closed-loop-no-quota", "cpu-throttled"},
		// after the fix a hundred times as much is done
		{"port-cliff-as-is", "port-cliff-keep-alive", "short-connection-ceiling"},
		// the work is in another method since
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

// counted returns the checks whose findings had that fate and count.
func (c *compared) counted(fate string) []string {
	var out []string
	for _, f := range c.Findings {
		if f.Fate == fate && f.Doubt == "" {
			out = append(out, f.Before.Check+f.After.Check)
		}
	}
	return out
}

// TestDifferentPrograms: two different programs are not compared, unless the user insists.
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

// TestDisproveCures: after the fix, the findings of before fall. A check that finds nothing falls by its own recording.
func TestDisproveCures(t *testing.T) {
	const dir = "testdata/cures/"
	for _, tt := range []struct {
		args []string
		code int
		want []string
	}{
		{
			[]string{dir + "quota-closed-loop-as-is.txtar", dir + "quota-closed-loop-no-quota.txtar"},
			3,
			[]string{"falls  cpu-throttled", "CPUs in use 0.2 CPUs -> 0.69 CPUs", "disproved if"},
		},
		{
			[]string{dir + "fd-leak-as-is.txtar", dir + "fd-leak-close.txtar"},
			4,
			[]string{"cannot be told  fd-limit", "how much there was to do in both windows is not known"},
		},
		{
			[]string{dir + "quota-closed-loop-as-is.txtar"},
			0,
			[]string{"stands  cpu-throttled", "each half of the recording has it"},
		},
		{
			[]string{dir + "quota-closed-loop-no-quota.txtar", "--check", "cpu-throttled"},
			3,
			[]string{"falls  cpu-throttled", "the recording passes this check"},
		},
		{
			[]string{dir + "java-date-format-as-is.txtar", dir + "java-date-format-shared.txtar", "-o", "json"},
			3,
			[]string{`"finding": "date-format pid 10930 (java)"`, `"result": "falls"`, `"second"`, `"looks"`},
		},
	} {
		code, out, stderr := run(t, append([]string{"disprove"}, tt.args...)...)
		if code != tt.code || stderr != "" {
			t.Errorf("%v: exit code %d, want %d: %s", tt.args, code, tt.code, stderr)
		}
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v: no %q in\n%s", tt.args, want, out)
			}
		}
	}
}

// TestWhatIf: for a method that takes a tenth of its time, the promise is the time that Amdahl's law leaves.
func TestWhatIf(t *testing.T) {
	const rec = "testdata/cures/java-date-format-as-is.txtar"
	code, out, stderr := run(t, "diagnose", "--from", rec, "--what-if", "*Dates.stampAnew*=0.1")
	const want = "*Dates.stampAnew*=0.1: CPU time per request 1.55 µs -> 0.13 µs to 0.3 µs (Amdahl's law)\n"
	if code != 0 || out != want || stderr != "" {
		t.Errorf("exit code %d, %q, want %q; %s", code, out, want, stderr)
	}
	code, out, stderr = run(t, "diagnose", "--from", rec, "--what-if", "*Dates.stampAnew*=0.1", "-o", "json")
	var got struct {
		WhatIf   string `json:"what_if"`
		Promises []struct {
			Metric string    `json:"metric"`
			From   float64   `json:"from"`
			To     []float64 `json:"to"`
		} `json:"promises"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, stderr)
	}
	if len(got.Promises) != 1 || got.Promises[0].Metric != "cpu_per_request" || len(got.Promises[0].To) != 2 ||
		got.Promises[0].To[1] >= got.Promises[0].From {
		t.Errorf("%+v", got)
	}
}
