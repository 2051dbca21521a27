package check_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// TestPromises: the promise of a finding replaces the words of its best fix.
func TestPromises(t *testing.T) {
	more := check.Promise{
		Metric: check.Throughput, Unit: "1/s", From: 195, Expect: 395, To: [2]float64{380, 410}, Law: "a law",
		Next: "CPU",
	}
	less := check.Promise{
		Metric: check.CPUPerRequest, Unit: "s", From: 0.105, Expect: 0.009, To: [2]float64{0.0082, 0.0101}, Law: "b",
	}
	most := check.Promise{Metric: check.RequestTime, Unit: "s", From: 1, Expect: 0.1, To: [2]float64{0, 0.2}, Law: "c"}
	f := check.Finding{Remedies: []check.Remedy{{Effect: "it gets better"}, {Effect: "so it does"}}}
	f.Promise()
	if got := f.Remedies[0].Effect; got != "it gets better" {
		t.Errorf("without a promise the effect is %q", got)
	}
	for _, p := range []check.Promise{more, less, most} {
		f.Promise(p)
	}
	want := "throughput 195/s -> 380/s to 410/s (a law); next limit: CPU; " +
		"CPU time per request 105 ms -> 8.2 ms to 10.1 ms (b); time of a request 1 s -> 200 ms at most (c)"
	if d := cmp.Diff([]string{want, "so it does"}, []string{f.Remedies[0].Effect, f.Remedies[1].Effect}); d != "" {
		t.Error(d)
	}
}

// TestBounds: a missing upper bound is null.
func TestBounds(t *testing.T) {
	for text, b := range map[string]check.Bounds{"[1,2]": {1, 2}, "[1,null]": {1, math.Inf(1)}} {
		out, err := json.Marshal(b)
		if err != nil || string(out) != text {
			t.Errorf("%v: %s, %v", b, out, err)
		}
		var again check.Bounds
		if err := json.Unmarshal(out, &again); err != nil || again != b || !again.Hold(1) || again.Hold(0.9) {
			t.Errorf("%s: %v, %v", out, again, err)
		}
	}
	p := check.Promise{Metric: check.Throughput, Unit: "1/s", From: 195, To: check.Bounds{380, math.Inf(1)}}
	if got := p.Bounds(); got != "380/s at least" {
		t.Error(got)
	}
}
