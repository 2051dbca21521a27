package scenario

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// runs are results with everything that output can show.
func runs() []*Result {
	started := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	measured, foretold, none := 992.3, 1000.0, 0.0
	return []*Result{
		{
			Scenario: "ports", Title: "ports run out", Started: started, Seconds: 18.26, Status: Failed,
			Gaps: []GapNote{{"bind-without-no-port", "needs a trace of bind(2)"}},
			Phases: []Phase{
				{
					Name: PhaseSick, Kind: KindSick, Title: "ports run out", Verdict: "short-connection-ceiling",
					Severity: "critical",
					Subject:  "destination 10.0.0.2:9000", Arithmetic: "1000 ports / 60 s = 16.67 connections/s",
					Findings: []string{"short-connection-ceiling destination 10.0.0.2:9000 (critical)"},
					Measured: measures{Throughput: 16.5, P99: 0.002, Errors: 2540},
					Assertions: []Assertion{
						{
							What: verdictWhat + "short-connection-ceiling", Kind: "verdict", Held: true,
							Got: "short-connection-ceiling",
						},
						{What: "syn-retransmits is found", Kind: "required", Held: true},
						{What: "cpu-saturated is not raised", Kind: "forbidden", Got: "cpu-saturated <host> & others"},
					},
				},
				{
					Name: "reuse", Kind: KindCure, Title: "tcp_tw_reuse=1", Verdict: VerdictNone, Findings: []string{},
					Before:   PhaseSick,
					Measured: measures{Throughput: measured, P99: 0.001, Errors: 0}, BusyBefore: 0.35,
					Foretold: []Prediction{
						{Metric: Errors, Because: "a port is free", Bounds: "0 errors/s or less", Measured: &none},
						{Metric: Throughput, Because: "1000 ports / 1 s", Foretold: &foretold, Measured: &measured},
					},
					Assertions: []Assertion{{What: "short-connection-ceiling is gone", Kind: "gone", Held: true}},
				},
			},
		},
		{
			Scenario: "idle", Title: "nothing happens", Started: started, Seconds: 7, Status: Held,
			Guest: "kernel 6.12.94-amd64, tcg",
			Phases: []Phase{{
				Name: PhaseSick, Kind: KindSick, Title: "nothing happens", Verdict: VerdictNone, Findings: []string{},
				Measured:   measures{},
				Assertions: []Assertion{{What: healthyWhat, Kind: "verdict", Held: true}},
			}},
		},
		{
			Scenario: "docker", Title: "a bridge", Started: started, Status: Skipped, Reason: "not installed: docker",
			Phases: []Phase{},
		},
		{
			Scenario: "nginx", Title: "a proxy", Started: started, Status: Broken, Reason: "as-is: process nginx ended",
			Phases: []Phase{},
		},
	}
}

// climbed is a run of a story with a placebo, a fix out of turn, and a move that was not predicted.
func climbed() *Result {
	phase := func(name, kind, verdict string, measured measures, a ...Assertion) Phase {
		p := Phase{
			Name: name, Kind: kind, Title: "title of " + name, Verdict: verdict, Findings: []string{},
			Measured: measured, Assertions: a,
			Words: "WORDS of box17.example about " + verdict + "\n",
		}
		if verdict != VerdictNone {
			p.Subject, p.Severity, p.Arithmetic = "pid 7 (java)", "warning", "3 | 4 s = 0.75/s"
		}
		return p
	}
	right := Assertion{What: "the verdict is right", Kind: "verdict", Held: true}
	phases := []Phase{
		phase("1-rules", KindRung, "bridge-nat-cost", measures{Throughput: 500, P99: 0.5}, right),
		phase("2-buckets", KindPlacebo, "bridge-nat-cost", measures{Throughput: 505, P99: 0.5}, right,
			Assertion{What: "throughput x 1.1 or less", Kind: "moves", Held: true}),
		phase("3-rules", KindRung, "bridge-nat-cost", measures{Throughput: 510, P99: 0.4}, right),
		phase("4-healthy", KindHealthy, VerdictNone, measures{Throughput: 1000, P99: 0.01, Errors: 2}, right,
			Assertion{What: "throughput x 3 or more", Kind: "moves", Got: "510 -> 1000"}),
	}
	for i, before := range []string{"", "1-rules", "1-rules", "3-rules"} {
		phases[i].Before = before
	}
	phases[3].Foretold = []Prediction{{Metric: Throughput, Because: "half the packets", Bounds: "x 3 or more"}}
	moves := []Move{{Metric: Throughput}, {Metric: Throughput}, {Metric: P99}}
	r := &Result{
		Scenario: "way", Title: "a way up", Started: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC), Seconds: 61,
		Status:  Failed,
		LeftOut: []string{"ports"}, Phases: phases,
		Machine: &Machine{
			Version: "v1.2.3", Kernel: "6.18.44-mine", CPUs: 2, CPUModel: "a CPU", Memory: 8 << 30,
			JVMs: []string{"17.0.9"},
		},
	}
	r.Steps = steps([]phaseSpec{
		{name: "1-rules", kind: KindRung},
		{name: "2-buckets", kind: KindPlacebo, rung: &Rung{
			Name: "buckets", Placebo: true,
			Cure: Cure{Title: "fewer buckets"},
		}, moves: moves[:1]},
		{
			name: "3-rules", kind: KindRung, rung: &Rung{Name: "parser", Cure: Cure{Title: "no parsing"}}, moves: moves,
			loose: true,
		},
		{
			name: "4-healthy", kind: KindHealthy, rung: &Rung{Name: "rules", Cure: Cure{Title: "off the bridge"}},
			moves: moves, from: 2,
		},
	}, phases)
	return r
}

func TestOutput(t *testing.T) {
	v := NewVerification("v1.2.3", 2, time.Date(2026, 11, 20, 23, 59, 0, 0, time.UTC))
	for _, r := range runs() {
		v.Add([]*Result{r, r})
	}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"run.txt":     func(b *bytes.Buffer) error { return Text(b, runs()) },
		"run.json":    func(b *bytes.Buffer) error { return JSON(b, runs()) },
		"run.xml":     func(b *bytes.Buffer) error { return JUnit(b, runs()) },
		"story.txt":   func(b *bytes.Buffer) error { return Text(b, []*Result{climbed()}) },
		"story.json":  func(b *bytes.Buffer) error { return JSON(b, []*Result{climbed()}) },
		"story.md":    func(b *bytes.Buffer) error { return climbed().Page(b, "box17.example", "") },
		"verify.txt":  func(b *bytes.Buffer) error { return v.Text(b) },
		"verify.json": func(b *bytes.Buffer) error { return JSON(b, v) },
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := write(&got); err != nil {
				t.Fatal(err)
			}
			path := "testdata/" + name
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestConfusion(t *testing.T) {
	v := NewVerification("", 1, time.Now())
	for _, r := range runs() {
		v.Add([]*Result{r})
	}
	got := v.Total
	got.Disagreements, got.Seconds = nil, 0
	want := Confusion{
		Scenario: "total", Runs: 2, Broken: 1, Verdict: 2, VerdictAsked: 2, Required: 2, RequiredAsked: 2, Forbidden: 1,
		ForbiddenAsked: 2,
		Trials:         1, TrialsAsked: 1, NotYetAssessed: 1, Noisy: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("total (-want +got):\n%s", diff)
	}
}

// TestConfusionOfStory: each state counts as a scenario without changes, and each predicted change as a fix or placebo.
func TestConfusionOfStory(t *testing.T) {
	v := NewVerification("", 1, time.Now())
	v.Add([]*Result{climbed()})
	c := v.Total
	if got, want := []int{c.Verdict, c.VerdictAsked, c.Trials, c.TrialsAsked}, []int{3, 3, 1, 2}; !slices.Equal(
		got, want) {
		t.Errorf("verdicts right and asked, changes right and asked: %v, want %v", got, want)
	}
}

// TestMachine reads what this machine and this process have used, which rises.
func TestMachine(t *testing.T) {
	before, err := readCPU()
	if err != nil || before.busy <= 0 || before.idle <= 0 || before.softirq > before.busy {
		t.Fatalf("CPU time %+v, %v", before, err)
	}
	for began := time.Now(); time.Since(began) < 200*time.Millisecond; {
		continue
	}
	after, err := readCPU()
	if used := after.busy - before.busy; err != nil || used < 0.05 {
		t.Errorf("CPU time rose by %v s, %v, while 0.2 s passed with a CPU busy", used, err)
	}
	if _, err := readSoftnet(); err != nil {
		t.Error(err)
	}
	if peak, err := peakOf(os.Getpid()); err != nil || peak < 1<<20 {
		t.Errorf("resident memory of this process at most: %v, %v", peak, err)
	}
	if peak, err := peakOf(1 << 30); err == nil { // past the largest pid_max
		t.Errorf("a process that is not has %v", peak)
	}
}

// TestMoves tests each bound on both sides.
func TestMoves(t *testing.T) {
	n := func(f float64) *float64 { return &f }
	sick := &Phase{Measured: measures{Throughput: 100, P99: 2}}
	for _, tt := range []struct {
		name  string
		move  Move
		after measures
		held  bool
	}{
		{"factor reached", Move{Metric: Throughput, FactorAtLeast: n(3)}, measures{Throughput: 300}, true},
		{"factor not reached", Move{Metric: Throughput, FactorAtLeast: n(3)}, measures{Throughput: 299}, false},
		{"factor below", Move{Metric: P99, FactorAtMost: n(0.5)}, measures{P99: 1}, true},
		{"factor above", Move{Metric: P99, FactorAtMost: n(0.5)}, measures{P99: 1.01}, false},
		{"at least", Move{Metric: Throughput, AtLeast: n(50)}, measures{Throughput: 50}, true},
		{"less", Move{Metric: Throughput, AtLeast: n(50)}, measures{Throughput: 49}, false},
		{"at most", Move{Metric: Errors, AtMost: n(0)}, measures{Errors: 0}, true},
		{"more", Move{Metric: Errors, AtMost: n(0)}, measures{Errors: 0.1}, false},
		{"not measured", Move{Metric: Errors, AtMost: n(0)}, measures{}, false},
		{"not measured before", Move{Metric: Errors, FactorAtMost: n(1)}, measures{Errors: 0}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := judge{phase: &Phase{Measured: tt.after}, replace: strings.NewReplacer()}
			j.move(&tt.move, sick)
			if got := j.phase.Assertions; len(got) != 1 || got[0].Held != tt.held {
				t.Errorf("assertions %+v, want one that is %v", got, tt.held)
			}
		})
	}
}
