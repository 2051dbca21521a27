package episode

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/daemon/exporter"
)

var start = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)

// windowAt is the nth window of a length. A letter a window says what it has.
func windowAt(target string, n int, length time.Duration, has rune) exporter.Window {
	w := exporter.Window{Name: target, Begin: start.Add(time.Duration(n) * length), Result: &check.Result{}}
	w.End = w.Begin.Add(length)
	f := check.Finding{
		Check: "cpu-throttled", Subject: check.Subject{Kind: "cgroup", ID: "/a"},
		Severity: check.Warning,
	}
	o := check.Outcome{Check: f.Check, State: check.Found}
	switch has {
	case '.':
		o.State = check.Fine
	case 'i':
		f.Severity = check.Info
	case 'C':
		f.Severity = check.Critical
	case 'E':
		f.Event = true
	case 'e':
		f.ExplainedBy = "steal host"
	case '?':
		o.State = check.Unassessed
	}
	if o.State == check.Found {
		w.Result.Findings = []check.Finding{f}
	}
	w.Result.Outcomes = []check.Outcome{o}
	return w
}

func TestTracker(t *testing.T) {
	for _, tc := range []struct {
		what, windows string
		length        time.Duration
		want          []string
	}{
		{"nothing", "....", 15 * time.Second, nil},
		{"info", "iiii", 15 * time.Second, nil},
		{"one window is long enough", ".w...", 15 * time.Second, []string{"1 begins warning", "3 ends, held 15s"}},
		{"an event need not hold", ".E...", 5 * time.Second, []string{"1 begins warning", "3 ends, held 5s"}},
		{"it has to hold", ".w.w.ww...", 5 * time.Second, []string{"6 begins warning", "8 ends, held 10s"}},
		{"it comes and goes", ".w.w.wi.", 15 * time.Second, []string{"1 begins warning", "7 ends, held 1m15s"}},
		{"it gets worse", "wC..", 15 * time.Second, []string{"0 begins warning", "3 ends, held 30s"}},
		{"not assessed says nothing", "w????w..", 15 * time.Second, []string{"0 begins warning", "7 ends, held 1m30s"}},
		{"a consequence", "eee", 15 * time.Second, nil},
		{"it becomes a consequence", "wee..", 15 * time.Second, []string{"0 begins warning", "4 ends, held 45s"}},
		{"again", "w..w..", 15 * time.Second, []string{
			"0 begins warning", "2 ends, held 15s", "3 begins warning",
			"5 ends, held 15s",
		}},
	} {
		t.Run(tc.what, func(t *testing.T) {
			tr := NewTracker(Defaults())
			var got []string
			for n, has := range tc.windows {
				begun, ended := tr.Observe(windowAt("host", n, tc.length, has))
				for _, e := range begun {
					got = append(got, fmt.Sprintf("%d begins %s", n, e.Finding.Severity))
				}
				for _, e := range ended {
					got = append(got, fmt.Sprintf("%d ends, held %v", n, e.End.Sub(e.Begin)))
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestTargets: each target has its own episodes. A target that has gone takes its findings along.
func TestTargets(t *testing.T) {
	tr := NewTracker(Defaults())
	const length = time.Minute
	if begun, _ := tr.Observe(windowAt("pod", 0, length, 'w')); len(begun) != 1 || begun[0].Target != "pod" {
		t.Fatalf("%+v", begun)
	}
	if begun, _ := tr.Observe(windowAt("host", 0, length, 'w')); len(begun) != 1 {
		t.Fatal("the same finding of another target is another episode")
	}
	for n := 1; n < 5; n++ {
		if begun, ended := tr.Observe(windowAt("host", n, length, 'w')); len(begun)+len(ended) > 0 {
			t.Fatalf("window %d: %v, %v", n, begun, ended)
		}
	}
	_, ended := tr.Observe(windowAt("host", 5, length, 'w'))
	if len(ended) != 1 || ended[0].Target != "pod" || ended[0].End.Sub(ended[0].Begin) != length {
		t.Errorf("after five minutes without the pod: %+v", ended)
	}
	if len(tr.open) != 1 || len(tr.last) != 1 {
		t.Errorf("%d findings of %d targets are kept", len(tr.open), len(tr.last))
	}
}

func TestBounded(t *testing.T) {
	tr := NewTracker(Defaults())
	w := windowAt("host", 0, 15*time.Second, '.')
	for n := range 3 * maxOpen {
		w.Result.Findings = append(w.Result.Findings,
			check.Finding{Check: "c", Subject: check.Subject{ID: fmt.Sprint(n)}, Severity: check.Warning})
	}
	if begun, _ := tr.Observe(w); len(begun) != maxOpen {
		t.Errorf("%d episodes at a time, want %d", len(begun), maxOpen)
	}
}
