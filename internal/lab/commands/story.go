package commands

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/cli/command"
	"github.com/perfdoctor/perfdoctor/internal/compare"
	"github.com/perfdoctor/perfdoctor/internal/evidence/keynumber"
	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/report"
)

// addClimb adds the flags of stories.
func (s *scenarioRun) addClimb(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&s.climb.Order, "order", nil, "of a story: fix its faults in this order: `RUNGS` with commas "+
		"between")
	f.Uint64Var(&s.seed, "seed", 0, "of a story: leave two faults out, chosen by the number `N`; verify counts up "+
		"from it")
	f.StringVar(&s.climb.Rung, "rung", "", "of a story: only the fault `RUNG`, with those before it fixed, and "+
		"its fix")
	f.BoolVar(&s.climb.Healthy, "healthy", false, "of a story: only the system with all faults fixed")
}

// way returns the way through stories. run counts from zero.
func (s *scenarioRun) way(run int) scenario.Climb {
	c := s.climb
	if s.seeded {
		seed := s.seed + uint64(run)
		c.Seed = &seed
	}
	return c
}

// checkClimb reports story flags that contradict each other, or that do not fit the chosen scenarios.
func (s *scenarioRun) checkClimb(list []*scenario.Scenario) error {
	var given []string
	for flag, set := range map[string]bool{
		"--order": s.climb.Order != nil, "--seed": s.seeded, "--rung": s.climb.Rung != "", "--healthy": s.climb.Healthy,
	} {
		if set {
			given = append(given, flag)
		}
	}
	slices.Sort(given)
	if both := slices.Equal(given, []string{"--order", "--seed"}); len(given) > 1 && !both {
		return command.UsageErrorf("%s: give one of them, or --order with --seed", strings.Join(given, " and "))
	}
	if s.page != "" && len(list) != 1 {
		return command.UsageErrorf("--page is of one story: name it")
	}
	for _, sc := range list {
		if err := s.checkStory(sc, given); err != nil {
			return err
		}
	}
	return nil
}

func (s *scenarioRun) checkStory(sc *scenario.Scenario, given []string) error {
	if s.page != "" {
		given = append(slices.Clone(given), "--page")
	}
	switch {
	case !sc.Story() && len(given) > 0:
		return command.UsageErrorf("%s: %s has no rungs: that is for stories, which have", given[0], sc.Name)
	case sc.Story() && s.only != nil:
		return command.UsageErrorf("--only: %s is a story: use --rung", sc.Name)
	}
	if _, err := sc.PhaseNames(s.way(0)); err != nil {
		return command.UsageErrorf("%v", err)
	}
	return nil
}

// writePage writes the page of the only result. It leaves out details of this machine: its name, and paths.
func (s *scenarioRun) writePage(results []*scenario.Result) error {
	if s.page == "" {
		return nil
	}
	workloads, err := filepath.Abs(s.workloads)
	if err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := results[0].Page(&b, workloads, os.TempDir()+"/", name); err != nil {
		return err
	}
	if err := os.WriteFile(s.page, b.Bytes(), 0o644); err != nil { //nolint:gosec // a page for everybody
		return fmt.Errorf("--page: %w", err)
	}
	return nil
}

// words returns what the report says about the verdict.
func words(rec *recording.Recording, res *check.Result) string {
	var b strings.Builder
	if err := report.Build(rec, res).VerdictText(&b, report.TextOptions{}); err != nil {
		return ""
	}
	return b.String()
}

// compared returns what compare says got worse between two states of a story, and its text.
func compared(before, after *recording.Recording, requests [2]float64) (worse []string, text string) {
	data := compare.Compare(before, after, compare.Options{
		Checks: checks.Suite(), Check: check.Options{Causes: checks.Causes()},
		Load: [2]keynumber.Told{{Requests: requests[0]}, {Requests: requests[1]}},
	})
	var b strings.Builder
	if err := (report.Comparison{Data: data}).Text(&b, report.TextOptions{}); err != nil {
		return data.Verdict.Worse, ""
	}
	return data.Verdict.Worse, b.String()
}

// toRecord chooses the scenario and its only phase to record.
func (s *scenarioRun) toRecord(args []string) ([]*scenario.Scenario, error) {
	list, err := s.read(args)
	if err != nil {
		return nil, err
	}
	switch {
	case list[0].Story() && s.vm:
		return nil, command.UsageErrorf("%s is a story: it is recorded without --vm", list[0].Name)
	case list[0].Story() && s.phase == scenario.PhaseSick:
		s.climb = scenario.Climb{Rung: list[0].RungNames()[0], Alone: true}
	case list[0].Story():
		s.climb = scenario.Climb{Rung: s.phase, Alone: true}
	case s.phase == scenario.PhaseSick:
		s.only = []string{}
	default:
		s.only = []string{s.phase}
	}
	return s.choose(args)
}

// promised returns what was predicted for the verdict before, and what came of it, as in `perfdoctor compare`.
func promised(before, after *recording.Recording) (out []scenario.Promised) {
	d := compare.Compare(before, after, compare.Options{
		Checks: checks.Suite(), Check: check.Options{Causes: checks.Causes()},
	})
	for i := range d.Promises {
		x := &d.Promises[i]
		if x.Finding != d.Before.Verdict {
			continue // the fix is for the verdict
		}
		p := scenario.Promised{
			Finding: x.Finding, Metric: x.Metric, Label: x.Label(), From: x.From, Expect: x.Expect, To: x.To,
			Result: string(x.Kept), Text: x.Text(),
		}
		if x.Measured != nil {
			p.Measured = &x.Measured.Mean
		}
		out = append(out, p)
	}
	return out
}
