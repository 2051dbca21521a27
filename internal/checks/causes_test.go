package checks

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks/checktest"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TestCausesAreValid: every name and fact exists. The whole graph has no cycle, edges that depend on numbers included.
func TestCausesAreValid(t *testing.T) {
	if err := Causes().Validate(Suite()); err != nil {
		t.Error(err)
	}
}

// TestCauses runs the whole suite over the recordings in testdata/causes. want lists the findings as a reader sees
// them, each with its cause.
func TestCauses(t *testing.T) {
	files := checktest.Find(t, "causes/*")
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, x := range check.Run(parseCase(t, data), Suite(), check.Options{Causes: Causes()}).Findings {
				fmt.Fprintf(&got, "%s %s", x.Severity, x.ID())
				if x.ExplainedBy != "" {
					fmt.Fprintf(&got, " <- %s", x.ExplainedBy)
				}
				got.WriteString("\n")
			}
			wantSection(t, f, txtar.Parse(data), got.String())
		})
	}
}

// TestEachEdgeIsUsed: if an edge of the table is taken out, a finding of some recording has another cause or none. One
// edge of a family stands for all.
func TestEachEdgeIsUsed(t *testing.T) {
	t.Parallel()
	files := checktest.Find(t, "*/*")
	if len(files) < len(Suite()) {
		t.Fatalf("%d recordings", len(files))
	}
	table := Causes()
	used := map[string]bool{}
	for _, f := range files {
		rec, err := recording.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		found := foundAgain(check.Run(rec, Suite(), check.Options{}).Findings)
		whole := explanations(rec, found, table)
		for i, e := range table {
			if name := edgeName(e); !used[name] && whole[e.Effect] != nil {
				without := explanations(rec, found, slices.Delete(slices.Clone(table), i, i+1))
				used[name] = !cmp.Equal(whole, without)
			}
		}
	}
	for _, e := range table {
		if !used[edgeName(e)] {
			t.Errorf("no recording uses %s: make a case of it, or take it out of the table", edgeName(e))
		}
	}
}

func edgeName(e check.Edge) string {
	if e.Family != "" {
		return e.Family + " -> " + e.Effect
	}
	return e.Cause + " -> " + e.Effect
}

// foundAgain makes checks that report what was found. So the explanations of many tables need no new assessment.
func foundAgain(findings []check.Finding) []*check.Check {
	var out []*check.Check
	for _, c := range Suite() {
		var mine []check.Finding
		for _, f := range findings {
			if f.Check == c.Name {
				mine = append(mine, f)
			}
		}
		if mine == nil {
			continue
		}
		out = append(out, &check.Check{Name: c.Name, Stage: c.Stage, Facts: c.Facts, Run: func(p *check.Pass) error {
			for _, f := range mine {
				p.Report(f)
			}
			return nil
		}})
	}
	return out
}

// explanations maps each check that found something to the explanations of its findings.
func explanations(rec *recording.Recording, found []*check.Check, causes check.Causes) map[string][]string {
	out := map[string][]string{}
	for _, f := range check.Run(rec, found, check.Options{Causes: causes}).Findings {
		out[f.Check] = append(out[f.Check], f.ID()+" <- "+f.ExplainedBy)
	}
	for _, list := range out {
		slices.Sort(list) // a finding without a cause has another place
	}
	return out
}

// TestNothingThroughAFineCheck has the recording that made a reader change a cable. Receive errors of 0.5 %, which did
// no harm, explained a queue for the CPUs, by way of connects that did not pile up.
func TestNothingThroughAFineCheck(t *testing.T) {
	res := check.Run(checktest.Open(t, "causes/nic-errors-apart"), Suite(), check.Options{Causes: Causes()})
	if p := res.Principal(); p == nil || p.Check != "cpu-saturated" {
		t.Fatalf("the principal finding is %+v", p)
	}
	for _, f := range res.Findings {
		if f.ExplainedBy != "" {
			t.Errorf("%s is explained by %s", f.ID(), f.ExplainedBy)
		}
	}
	for _, o := range res.Outcomes {
		if o.Check == "syn-sent-pileup" && o.State != check.Fine {
			t.Errorf("syn-sent-pileup is %s: this test looks at the wrong recording", o.State)
		}
	}
}
