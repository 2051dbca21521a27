package scenario

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

// sickResult is a result with a verdict, its consequence, and something that is merely info.
func sickResult() *check.Result {
	ports := check.Finding{
		Check: "short-connection-ceiling", Subject: check.Subject{Kind: "destination", ID: "10.0.0.2:9000"},
		Severity: check.Critical,
		Summary:  "ports run out", Evidence: []quantity.Value{
			quantity.Of("ports", 1000, quantity.Ports),
			quantity.Of("ports", 1000, quantity.Ports).Per(quantity.Of("time", 60, quantity.Seconds)).Named("ceiling"),
		},
		Remedies: []check.Remedy{{Action: "use keep-alive"}}, Notes: []string{"opened by pid 42 (client)"},
	}
	return &check.Result{Findings: []check.Finding{
		ports,
		{Check: "cpu-in-system", Subject: check.Host, Severity: check.Info},
		{Check: "cpu-saturated", Subject: check.Host, Severity: check.Warning, ExplainedBy: ports.ID()},
	}}
}

func TestExpect(t *testing.T) {
	for _, tt := range []struct {
		name   string
		expect Expect
		wrong  []string // kinds of the assertions that do not hold
	}{
		{"all of it", Expect{
			Verdict: "short-connection-ceiling", Severity: "critical", Subject: "10.0.0.2:9000",
			Evidence:  []string{"1000 ports / 60 s", "keep-alive", "pid ${pid client}"},
			Required:  []string{"cpu-saturated", "cpu-in-system"},
			Forbidden: []string{"fd-limit"},
		}, nil},
		{"another verdict", Expect{Verdict: "fd-limit"}, []string{"verdict"}},
		{"one of two", Expect{Verdict: "fd-limit", Or: []string{"short-connection-ceiling"}}, nil},
		{"none of two", Expect{Verdict: "fd-limit", Or: []string{"cpu-saturated"}}, []string{"verdict"}},
		{"a healthy system", Expect{Verdict: VerdictNone}, []string{"verdict"}},
		{"not asserted", Expect{Verdict: VerdictOpen}, nil},
		{"another severity", Expect{Severity: "warning"}, []string{"severity"}},
		{"another subject", Expect{Subject: "10.0.0.3"}, []string{"subject"}},
		{"other evidence", Expect{Evidence: []string{"1000 ports", "61 s"}}, []string{"evidence"}},
		{"a finding that is missing", Expect{Required: []string{"fd-limit"}}, []string{"required"}},
		{"the verdict is forbidden", Expect{Forbidden: []string{"short-connection-ceiling"}}, []string{"forbidden"}},
		{"a consequence is forbidden", Expect{Forbidden: []string{"cpu-saturated"}}, nil},
		{"what is merely info is forbidden", Expect{Forbidden: []string{"cpu-in-system"}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := judge{phase: &Phase{}, result: sickResult(), replace: strings.NewReplacer("${pid client}", "42")}
			j.describe()
			j.expect(&tt.expect)
			if diff := cmp.Diff(tt.wrong, wrong(j.phase)); diff != "" {
				t.Errorf("assertions that do not hold (-want +got):\n%s\n%+v", diff, j.phase.Assertions)
			}
		})
	}
}

func wrong(p *Phase) []string {
	var kinds []string
	for _, a := range p.Assertions {
		if !a.Held {
			kinds = append(kinds, a.Kind)
		}
	}
	return kinds
}

// TestTrialDefaults: a fix removes what was expected, and a placebo leaves it.
func TestTrialDefaults(t *testing.T) {
	sick := Expect{Verdict: "short-connection-ceiling", Required: []string{"cpu-saturated"}}
	for _, tt := range []struct {
		kind   string
		trial  Trial
		result *check.Result
		wrong  []string
	}{
		{KindCure, Trial{}, sickResult(), []string{"gone", "gone"}},
		{KindCure, Trial{}, &check.Result{}, nil},
		{KindCure, Trial{Gone: []string{"fd-limit"}}, sickResult(), nil},
		{KindCure, Trial{Still: []string{"short-connection-ceiling"}}, sickResult(), nil},
		{KindCure, Trial{Verdict: VerdictNone}, sickResult(), []string{"verdict"}},
		{KindPlacebo, Trial{}, sickResult(), nil},
		{KindPlacebo, Trial{}, &check.Result{}, []string{"still"}},
		{KindPlacebo, Trial{Gone: []string{"short-connection-ceiling"}}, sickResult(), []string{"gone"}},
	} {
		j := judge{phase: &Phase{}, result: tt.result, replace: strings.NewReplacer()}
		j.describe()
		j.phaseOf(&sick, phaseSpec{kind: tt.kind, trial: &tt.trial}, []Phase{{}})
		if diff := cmp.Diff(tt.wrong, wrong(j.phase)); diff != "" || len(j.phase.Assertions) == 0 {
			t.Errorf("%s %+v: %d assertions, those that do not hold (-want +got):\n%s", tt.kind, tt.trial,
				len(j.phase.Assertions), diff)
		}
	}
}

func TestForetold(t *testing.T) {
	within := 0.2
	for measured, held := range map[float64]bool{800: true, 799: false, 1200: true, 1201: false} {
		j := judge{phase: &Phase{Measured: measures{Throughput: measured}}}
		j.foretold([]Foretold{{Metric: Throughput, Value: 1000, Because: "1000 ports / 1 s", Within: &within}})
		if got := wrong(j.phase) == nil; got != held {
			t.Errorf("%v measured, 1000 foretold within 20 %%: held is %v", measured, got)
		}
	}
	j := judge{phase: &Phase{Measured: measures{}}}
	j.foretold([]Foretold{{Metric: Throughput, Value: 0, Because: "nothing", Within: &within}})
	if wrong(j.phase) == nil {
		t.Error("what was not measured held")
	}
}
