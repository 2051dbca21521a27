package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
)

// newTestScorer has the real vocabulary and table, which are frozen.
func newTestScorer(t *testing.T) *scorer {
	t.Helper()
	s, err := (&exam{dir: theExam, cache: "/c", here: "/h"}).newScorer()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var half = 0.5

func testCase(name string) *Case {
	return &Case{
		Name: name, Title: "semver: a range", Family: "advisories", Runtime: "node",
		Truth: Truth{Mechanism: "regex-backtracking", Component: []string{"semver", "parseRange"}, Because: "it does"},
		Cure:  Cure{Title: "the fixed version", Moves: &scenario.Move{Metric: scenario.P99, FactorAtMost: &half}},
	}
}

// The names of an open and of a sealed case.
const (
	openName   = "semver-range"
	sealedName = "b"
)

func TestSealedNames(t *testing.T) {
	if testCase(openName).Sealed() || !testCase(sealedName).Sealed() {
		t.Errorf("Sealed: %v and %v, want false and true", testCase(openName).Sealed(), testCase(sealedName).Sealed())
	}
}

// TestAnswers: each check has a row, and each row a check. Checks, signatures among them, have a generated page each:
// the exam knows the pages and no rule.
func TestAnswers(t *testing.T) {
	rows := map[string]bool{}
	for _, row := range newTestScorer(t).answers.Checks {
		rows[row.Check] = true
	}
	pages, err := filepath.Glob(filepath.Join(theExam, "..", "docs", "checks", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		check := strings.TrimSuffix(filepath.Base(page), ".md")
		if check == "README" || check == "causes" { // about all of them
			continue
		}
		if !rows[check] {
			t.Errorf("%s has no row for the check %s", answersFile, check)
		}
		delete(rows, check)
	}
	for name := range rows {
		t.Errorf("%s: there is no check %s", answersFile, name)
	}
}

func TestUnknownAnswer(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, answersFile)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("checks: {io-wait: {says: [io-weight]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newTestScorer(t)
	if _, err := readAnswers(dir, s.words); err == nil || !strings.Contains(err.Error(), `no "io-weight"`) {
		t.Errorf("an unknown word: %v", err)
	}
	if _, err := (&Answers{}).reply(&Report{Findings: []Finding{{Check: "new"}}}); err == nil {
		t.Error("a check without a row was marked")
	}
}

// TestMarks: hand-made reports of each outcome.
func TestMarks(t *testing.T) {
	archive, err := txtar.ParseFile(filepath.Join("testdata", "marks.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	s, c := newTestScorer(t), testCase(openName)
	for _, file := range archive.Files {
		t.Run(file.Name, func(t *testing.T) {
			p := &PhaseResult{Phase: phaseFault, Doctor: DoctorResult{Report: file.Data}}
			got, err := s.phase(c, p)
			if err != nil {
				t.Fatal(err)
			}
			if want, _, _ := strings.Cut(file.Name, ":"); string(got.Mark) != want {
				t.Errorf("marked %s (%s), want %s", got.Mark, got.Why, want)
			}
		})
	}
}

func TestNoReport(t *testing.T) {
	s, c := newTestScorer(t), testCase(openName)
	got, err := s.phase(c, &PhaseResult{Phase: phaseFault, Doctor: DoctorResult{Failed: "no answer in 1m0s"}})
	if err != nil || got.Mark != Missed {
		t.Errorf("a doctor that fails: %+v, %v, want missed", got, err)
	}
	got, err = s.phase(c, &PhaseResult{Phase: phaseFault, Broken: "no such package"})
	if err != nil || got.Mark != Broken {
		t.Errorf("a case that cannot be built: %+v, %v, want broken", got, err)
	}
}

// TestRandom: one of 60 words or so is right, and it names no component.
func TestRandom(t *testing.T) {
	s := newTestScorer(t)
	got := random(&testCase(openName).Truth, s.words)
	all := float64(len(s.words.Mechanisms))
	// Two of its symptoms are mechanisms, too: event-loop-blocked and single-thread-bound.
	want := map[Mark]float64{Partly: 1 / all, Missed: 2 / all, Wrong: (all - 3) / all}
	for _, m := range append([]Mark{Exact, Abstained}, Partly, Missed, Wrong) {
		if math.Abs(got[m]-want[m]) > 1e-9 {
			t.Errorf("%s: %v, want %v", m, got[m], want[m])
		}
	}
}

func TestBusiest(t *testing.T) {
	r, err := parseReport([]byte(`{"cpu_time": {"methods": [{"name": "a", "own_share": 0.2},
		{"name": "semver.parse", "own_share": 0.5}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	processes := []Usage{{"node", 0.9}, {"wrk", 0.1}}
	for _, c := range []struct {
		name   string
		report *Report
		cpus   float64
		want   Reply
	}{
		{"a method", r, 0.9, Reply{First: &Said{[]string{"hot-code"}, "semver.parse"}}},
		{"a process", &Report{}, 0.9, Reply{First: &Said{[]string{"hot-code"}, "node"}}},
		{"idle", r, 0.1, Reply{First: &Said{Words: []string{"threads-waiting"}}}},
	} {
		if diff := cmp.Diff(&c.want, busiest(c.report, c.cpus, processes)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// report is a report with a warning of the check, or with none.
func report(check string) json.RawMessage {
	if check == "" {
		return json.RawMessage(`{"verdict": {"result": "no bottleneck found", "summary": "fine"}, "findings": []}`)
	}
	return json.RawMessage(strings.ReplaceAll(`{"verdict": {"result": "bottleneck", "principal": "C pid 7",
		"summary": "the verdict"}, "findings": [{"id": "C pid 7", "role": "principal", "check": "C",
		"severity": "warning", "confidence": "high", "subject": {"kind": "pid", "id": "7"},
		"summary": "in /c/0123/semver.js", "evidence": [{"label": "share", "text": "80 %"}]}]}`, "C", check))
}

func testPhases(fault, cure string) map[string]*PhaseResult {
	day := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	phase := func(name, check string, p99 float64) *PhaseResult {
		return &PhaseResult{
			Phase: name, Date: day, Measured: map[string]float64{scenario.P99: p99}, Version: "v1", Kernel: "6.1",
			Target: 0.9, Processes: []Usage{{"node", 0.9}},
			Doctor: DoctorResult{Seconds: 10.5, Report: report(check)},
		}
	}
	return map[string]*PhaseResult{phaseFault: phase(phaseFault, fault, 1), phaseCure: phase(phaseCure, cure, 0.1)}
}

func TestScore(t *testing.T) {
	s := newTestScorer(t)
	got, err := s.score(testCase(openName), testPhases("regex-backtracking", "regex-backtracking"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Fault.Mark != Exact || got.Fault.Verdict.Summary != "in 0123/semver.js" {
		t.Errorf("fault: %+v, want exact, without the directory of this machine", got.Fault)
	}
	if *got.Silenced || !*got.CureWorks || !got.healthy().Alarm {
		t.Errorf("silenced %v, works %v, alarm %v; want false, true, true", *got.Silenced, *got.CureWorks,
			got.healthy().Alarm)
	}
	got, err = s.score(testCase(openName), testPhases("cpu-throttled", ""))
	if err != nil {
		t.Fatal(err)
	}
	if !*got.Silenced || got.healthy().Alarm || got.Fault.Mark != Wrong {
		t.Errorf("silenced %v, alarm %v, %s; want true, false, wrong", *got.Silenced, got.healthy().Alarm,
			got.Fault.Mark)
	}
	phases := testPhases("cpu-throttled", "")
	phases[phaseCure].Broken = "it ended"
	if got, err = s.score(testCase(openName), phases); err != nil || got.CureWorks != nil || got.Silenced != nil {
		t.Errorf("a broken cure: %+v, %v, want nothing about it", got, err)
	}
}
