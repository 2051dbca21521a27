package checks

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TestHealthy runs the whole suite over healthy machines: no check may warn.
func TestHealthy(t *testing.T) {
	files := checktest.Find(t, "healthy/*")
	for _, f := range files {
		rec, err := recording.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, finding := range check.Run(rec, Suite(), check.Options{Causes: Causes()}).Findings {
			if finding.Severity >= check.Warning {
				t.Errorf("%s: %s %s: %s", f, finding.Severity, finding.ID(), finding.Summary)
			}
		}
	}
}

// TestSNATExplainsItsConsequences: the full core of a gateway stays the one cause above all its consequences.
func TestSNATExplainsItsConsequences(t *testing.T) {
	rec := checktest.Open(t, "causes/snat-single-core")
	res := check.Run(rec, Suite(), check.Options{Causes: Causes()})
	if p := res.Principal(); p == nil || p.ID() != "snat-single-core cpu 1" {
		t.Fatalf("the principal finding is %v", p)
	}
	got := map[string]string{}
	for _, f := range res.Findings[1:] {
		got[f.ID()] = f.ExplainedBy
	}
	want := map[string]string{
		"softirq-imbalance cpu 1":                     "snat-single-core cpu 1",
		"softnet-drops cpu 1":                         "snat-single-core cpu 1",
		"nic-drops device vloaded transmit":           "snat-single-core cpu 1",
		"path-rtt-under-load destination 10.0.9.2:80": "snat-single-core cpu 1",
		"cpu-in-softirq host":                         "snat-single-core cpu 1",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("explained by, -want +got:\n%s", d)
	}
}
