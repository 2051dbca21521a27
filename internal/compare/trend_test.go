package compare

import (
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// history records a program once a day. change makes the program of a day what it was then.
func history(t *testing.T, days int, change func(day int, p *program)) []Source {
	t.Helper()
	var out []Source
	for day := range days {
		p := shop(uint64(1000 + day))
		change(day, &p)
		p.started = time.Date(2026, 11, 1+day, 2, 0, 0, 0, time.UTC)
		rec := p.record(t)
		open := func() (*recording.Recording, error) { return rec, nil }
		out = append([]Source{{fmt.Sprintf("day%d.zip", day), rec.Meta.Started, open}}, out...) // in disorder
	}
	return out
}

func TestTrend(t *testing.T) {
	steady := func(int, *program) {}
	dearer := func(day int, p *program) {
		if day >= 5 {
			p.cpu *= 1.12
		}
	}
	planted := func(day int, p *program) {
		if day >= 5 {
			p.cpu *= 1.05
			p.methods["main.tax"] += 0.05
		}
	}
	leaking := func(day int, p *program) {
		if day >= 3 {
			p.timeWait = 500
		}
	}
	for _, tt := range []struct {
		name   string
		change func(int, *program)
		at     int
		step   string
		result Result
	}{
		{"steady", steady, 0, "", Same},
		{"dearer", dearer, 5, "cpu_per_request", Worse},
		{"planted", planted, 5, "cpu_per_request", Worse},
		{"a finding", leaking, 3, "time-wait", Worse},
	} {
		tr := MakeTrend(history(t, 10, tt.change), []*check.Check{backlog()}, check.Options{})
		if tr.Verdict != tt.result || len(tr.Runs) != 10 || tr.Runs[0].Name != "day0.zip" {
			t.Errorf("%s: %s, %d recordings from %s", tt.name, tr.Verdict, len(tr.Runs), tr.Runs[0].Name)
		}
		if tt.step == "" {
			if len(tr.Steps) > 0 {
				t.Errorf("%s: %+v", tt.name, tr.Steps)
			}
			continue
		}
		if len(tr.Steps) != 1 || tr.Steps[0].Name != tt.step || tr.Steps[0].At != tt.at ||
			tr.Regressed() != (tt.result == Worse) {
			t.Errorf("%s: %+v", tt.name, tr.Steps)
			continue
		}
		if m := tr.Steps[0].Methods; tt.name == "planted" && (m == nil || len(m.Grown) != 1 ||
			m.Grown[0].Name != "main.tax") {
			t.Errorf("%s: %+v", tt.name, m)
		}
	}
}

// TestTrendNamesWhatItCannotOpen: a recording may disappear between the listing and its turn.
func TestTrendNamesWhatItCannotOpen(t *testing.T) {
	list := history(t, 5, func(int, *program) {})
	list[0].Open = func() (*recording.Recording, error) { return nil, os.ErrNotExist }
	tr := MakeTrend(list, nil, check.Options{})
	want := list[0].Name + " is left out: file does not exist"
	if len(tr.Runs) != 4 || !slices.Contains(tr.Doubts, want) {
		t.Errorf("%d recordings, doubts %q; want 4, and %q", len(tr.Runs), tr.Doubts, want)
	}
}

// TestTrendByOutcome: faster answers that let the same clients ask more are better. What comes with more work done is
// where the bottleneck moved to. More of everything is a load.
func TestTrendByOutcome(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		latency float64
		want    Result
	}{
		{"the same clients", 0.02, Improved},
		{"four times as many", 0.08, Same},
	} {
		list := history(t, 10, func(day int, p *program) {
			p.latency = 0.08
			if day >= 5 {
				p.requests, p.latency, p.timeWait = 4*p.requests, tt.latency, 500
			}
		})
		tr := MakeTrend(list, []*check.Check{backlog()}, check.Options{})
		if tr.Verdict != tt.want || tr.Regressed() {
			t.Errorf("%s: %s, %+v", tt.name, tr.Verdict, tr.Steps)
		}
	}
}

// TestOneRunIsNotLasting: one bad night is not a step.
func TestOneRunIsNotLasting(t *testing.T) {
	tr := MakeTrend(history(t, 9, func(day int, p *program) {
		if day == 4 {
			p.cpu *= 1.5
			p.timeWait = 500
		}
	}), []*check.Check{backlog()}, check.Options{})
	if len(tr.Steps) > 0 || len(tr.Marks) != 1 {
		t.Errorf("%+v, %+v", tr.Steps, tr.Marks)
	}
}

// TestFixed: a step for the worse that was taken back is history.
func TestFixed(t *testing.T) {
	tr := MakeTrend(history(t, 12, func(day int, p *program) {
		if day >= 4 && day < 8 {
			p.cpu *= 1.3
		}
	}), []*check.Check{backlog()}, check.Options{})
	if len(tr.Steps) != 2 || tr.Steps[0].Result != Worse || tr.Steps[0].At != 4 || tr.Steps[1].Result != Improved ||
		tr.Steps[1].At != 8 || tr.Regressed() {
		t.Errorf("%s, %+v", tr.Verdict, tr.Steps)
	}
}

// TestHiddenStep: all profiles together show what no number shows.
func TestHiddenStep(t *testing.T) {
	tr := MakeTrend(history(t, 12, func(day int, p *program) {
		if day >= 7 {
			p.cpu *= 1.03
			p.methods["main.tax"] += 0.03
		}
	}), []*check.Check{backlog()}, check.Options{})
	if len(tr.Steps) != 1 || tr.Steps[0].Name != "methods" || tr.Steps[0].At < 6 || tr.Steps[0].At > 8 ||
		tr.Steps[0].Methods.Grown[0].Name != "main.tax" {
		t.Errorf("%+v", tr.Steps)
	}
}

// TestRequestsOf: if two recordings have 100 and 300 requests, the second's scatter counts nine times as much. A
// recording with unknown requests leaves the sum unknown.
func TestRequestsOf(t *testing.T) {
	known := []point{{work: requests{100, 0.04}}, {work: requests{300, 0.04}}}
	if got, want := requestsOf(known), (requests{400, 0.025}); math.Abs(got.variance-want.variance) > 1e-12 ||
		got.count != want.count {
		t.Errorf("requestsOf(%v) = %v, want %v", known, got, want)
	}
	if got := requestsOf(append(known, point{})); got.count != 0 {
		t.Errorf("one is not known: %v, want none", got)
	}
}
