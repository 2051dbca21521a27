package checks

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TestThresholdsInForce sets each threshold of each check to other values, over each case that fires. If another value
// is in force, a finding must never name the default as the bound, as in "disproved if it is below 20 ms".
func TestThresholdsInForce(t *testing.T) {
	t.Parallel()
	compared := 0
	for _, c := range Suite() {
		files, err := filepath.Glob(filepath.Join("*", "testdata", c.Name, "firing*.txtar"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			rec, err := recording.Open(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range c.Params {
				for _, factor := range []float64{0.5, 0.93, 1.07, 2} {
					compared += len(saysDefault(t, f, rec, c, p, factor*p.Default))
				}
			}
		}
	}
	if compared < 1000 {
		t.Errorf("only %d findings under other thresholds: this test looks at too little", compared)
	}
}

// saysDefault reports findings that name the default of a threshold as the bound while another value is set. It returns
// all findings.
func saysDefault(t *testing.T, file string, rec *recording.Recording, c *check.Check, p *check.Param,
	value float64,
) []check.Finding {
	t.Helper()
	set := map[*check.Param]float64{}
	for _, o := range c.Params {
		if o.Default == p.Default { // else its default would still be in force
			set[o] = value
		}
	}
	findings := check.Run(rec, []*check.Check{c}, check.Options{Params: set}).Findings
	bound := boundBy(p)
	for _, f := range findings {
		for _, said := range append([]string{f.Summary, f.Disproof}, f.Doubts...) {
			if text := bound.FindString(said); text != "" {
				t.Errorf("%s: with %s=%g it says %q: %s", file, p.Name, value, text, said)
			}
		}
	}
	return findings
}

// boundBy finds words of a bound before the default, as text with its unit or as a bare number.
func boundBy(p *check.Param) *regexp.Regexp {
	bare := regexp.QuoteMeta(fmt.Sprintf("%g", p.Default))
	with := regexp.QuoteMeta(p.Value().Text())
	return regexp.MustCompile(`\b(below|less than|under|above|over|more than|at least|at most) (by )?(` +
		strings.Join([]string{with, bare}, "|") +
		`)($|[^\d.]|\.\D|\.$)`)
}
