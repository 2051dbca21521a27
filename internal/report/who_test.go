package report

import (
	"strings"
	"testing"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// whoText is the block of the text report, with single blanks.
func whoText(d *Data, verbose bool) string {
	t := &text{page: newPage(TextOptions{}), d: d, verbose: verbose}
	t.who()
	return strings.Join(strings.Fields(t.b.String()), " ")
}

func someConsumers() *evidence.Consumption {
	c := &evidence.Consumption{
		Window: 10, CPUs: 2, Busy: 1.9, Interrupts: 0.1, Unaccounted: 0.3, Created: 1200,
		List: []evidence.Consumer{
			{
				Command: "python3", PID: 4021, User: "app", Cgroup: "/app.slice", Age: 11000, CPUs: 0.95,
				Memory: 40 << 20,
				Read:   1 << 21,
			},
			{Command: "true", ShortLived: true, Parent: "sh", ParentPID: 812, CPUs: 0.5},
			{Command: "sh", PID: 812, Cgroup: "/", User: "root", CPUs: 0.05, Memory: 1 << 20},
			{Command: "postgres", PID: 31, Memory: 1 << 30},
		},
		Notes: []string{"two counts are apart"},
	}
	return c
}

// TestWho: one line each for those that use the machine, with their owner, and the time that nobody accounts for.
func TestWho(t *testing.T) {
	d := &Data{Target: recording.Target{Kind: "host"}, Consumers: someConsumers()}
	got := whoText(d, false)
	for _, want := range []string{
		"WHO USES THE MACHINE 1.9 of 2 CPUs busy, 0.1 of it in interrupts; 0.3 CPUs not attributed (processes " +
			"that started and ended between two samples); 1200 processes and threads started per second",
		"0.95 CPUs 40 MiB python3 (pid 4021), cgroup /app.slice, user app, for 3 h 3 min, read 2 MiB and wrote 0 B",
		"0.5 CPUs short-lived true, most started by sh (pid 812) 0.05 CPUs 1 MiB sh (pid 812) and 1 more",
		"and 1 more (-v shows them); most memory: postgres (pid 31), 1 GiB two counts are apart",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if all := whoText(d, true); !strings.Contains(all, "0 CPUs 1 GiB postgres (pid 31)") {
		t.Errorf("-v leaves out an idle one:\n%s", all)
	}
}

// TestBusy: if the CPUs are full and nothing is wrong, the answer says who has them, and what a target does with its
// part.
func TestBusy(t *testing.T) {
	note := Finding{Role: Note, Finding: check.Finding{Lead: check.Lead{
		Heading: "busy", State: "thread 4022 (worker) is full", Why: "search takes 98 % of the CPU time",
	}}}
	d := &Data{
		Target: recording.Target{Kind: "process", PID: 4021}, Consumers: someConsumers(), Findings: []Finding{note},
		Verdict: Verdict{Result: NoBottleneck},
	}
	d.Verdict.Fine = 90
	d.Verdict.decide(d)
	const want = "The CPUs are full: python3 (pid 4021) and short-lived true, most started by sh (pid 812) have " +
		"1.45 of 2 CPUs; search takes 98 % of the CPU time. "
	if got := d.Verdict.Summary; !strings.HasPrefix(got, want) || d.Heading() != "busy, no bottleneck found" {
		t.Errorf("%s: %q, want %q", d.Heading(), got, want)
	}
	d.Consumers.List, d.Consumers.Unaccounted = d.Consumers.List[2:], 1.7
	d.Verdict.decide(d)
	const rest = "sh (pid 812) has 0.05 of 2 CPUs, and processes that started and ended meanwhile have 1.7"
	if !strings.Contains(d.Verdict.Summary, rest) {
		t.Errorf("%q, want %q", d.Verdict.Summary, rest)
	}
	d.Consumers.Busy = 1.5
	d.Verdict.decide(d)
	const thread = "Thread 4022 (worker) is full: search takes 98 % of the CPU time. 90 checks"
	if got := d.Verdict.Summary; !strings.HasPrefix(got, thread) || d.Heading() != "busy, no bottleneck found" {
		t.Errorf("%s: %q, want %q", d.Heading(), got, thread)
	}
	d.Findings = nil
	d.Verdict.decide(d)
	if d.Heading() != "no bottleneck found" || strings.Contains(d.Verdict.Summary, "full") {
		t.Errorf("%s: %q, with CPUs to spare", d.Heading(), d.Verdict.Summary)
	}
	statement := Finding{Role: Note, Finding: check.Finding{Lead: check.Lead{
		Heading: "busy", Why: "91 % of the statements' time reads all of table orders",
	}}}
	d.Findings = []Finding{statement}
	d.Verdict.decide(d)
	if d.Heading() != "no bottleneck found" || strings.Contains(d.Verdict.Summary, "orders") {
		t.Errorf("%s: %q, of a statement beside CPUs to spare", d.Heading(), d.Verdict.Summary)
	}
	d.Findings = append(d.Findings, Finding{Role: Note, Finding: check.Finding{Check: "cpu-saturated"}})
	d.Verdict.decide(d)
	if got := d.Verdict.Summary; !strings.HasPrefix(got, "The CPUs are full: ") || !strings.Contains(got, "orders") {
		t.Errorf("%q, with a queue at CPUs that are busy for 75 %% of the time", got)
	}
}

// TestNext: a healthy host's next command is about its busiest process, and never about perfdoctor. A healthy target is
// looked at when it is slow.
func TestNext(t *testing.T) {
	well := Verdict{Result: NoBottleneck}
	d := &Data{Verdict: well, Target: recording.Target{Kind: "host"}, Consumers: someConsumers()}
	want := "perfdoctor diagnose --pid 4021 (looks inside python3, which uses 0.95 CPUs)"
	if got := d.Next(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	d.Consumers.List[0].Command = "perfdoctor"
	if got := d.Next(); !strings.Contains(got, "perfdoctor NAME") {
		t.Errorf("%q where all others are idle or gone", got)
	}
	d = &Data{Verdict: well, Target: recording.Target{Kind: "process", PID: 4021}, Consumers: someConsumers()}
	if got := d.Next(); !strings.Contains(got, "--save") {
		t.Errorf("%q of a target", got)
	}
	d.Verdict.Result = Incomplete
	if got := d.Next(); got != "" {
		t.Errorf("%q of a report that is incomplete", got)
	}
}

// TestBesideIt: a target has a line, and there is none if nothing was recorded.
func TestBesideIt(t *testing.T) {
	c := someConsumers()
	c.List[0].Target = true
	d := &Data{Target: recording.Target{Kind: "process", PID: 4021}, Consumers: c}
	want := "REST OF THE HOST other processes use 0.85 of 2 CPUs, most by short-lived true, " +
		"most started by sh (pid 812): 0.5"
	if got := whoText(d, false); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := whoText(&Data{}, false); got != "" {
		t.Errorf("%q of nothing", got)
	}
	m := &markdown{d: d}
	m.who()
	if got := m.b.String(); !strings.Contains(got, "**Rest of the host:** other processes use 0.85 of 2 CPUs") {
		t.Errorf("markdown: %q", got)
	}
}
