package e2e

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/lab"
)

// TestDisprove: a finding about a process in a group with a CPU limit stands while the limit is there. It falls once
// the limit is lifted.
func TestDisprove(t *testing.T) {
	t.Parallel()
	outer, child := limited(t, lab.SpinOptions{Threads: 1})
	saved := filepath.Join(t.TempDir(), "first.zip")
	if out, code := output(t, "diagnose", "--pid", pid(child), "-d", "3", "--save", saved); code != 3 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	throttled := func(want string) {
		t.Helper()
		out, code := output(t, "disprove", saved, "--pid", pid(child), "-d", "3", "--check", "cpu-throttled",
			"-o", "json")
		var got struct {
			Findings []struct {
				Finding string `json:"finding"`
				Result  string `json:"result"`
				Because string `json:"because"`
			} `json:"findings"`
		}
		must(t, json.Unmarshal(out, &got))
		if len(got.Findings) != 1 || got.Findings[0].Result != want || (code == 3) != (want == "falls") {
			t.Errorf("exit code %d, %+v, want that it %s", code, got.Findings, want)
		}
	}
	throttled("stands")
	must(t, outer.SetQuota(100*time.Millisecond, 0))
	throttled("falls")
}
