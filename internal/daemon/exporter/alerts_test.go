package exporter

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// The clock of the tests of alerts: windows of the default length, and Prometheus' default scrape interval.
const (
	testWindow = 15 * time.Second
	testScrape = time.Minute
)

var midnight = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// scrapes returns what Prometheus sees of the findings, scrape by scrape. The first scrape is so long after midnight.
// during returns the findings of the window that ends then.
func scrapes(phase, until time.Duration, during func(end time.Duration) []check.Finding) []map[string]bool {
	s := &snapshot{registry: prometheus.NewRegistry(), targets: map[string]*told{}}
	o := Options{MaxFindings: 1000}
	var out []map[string]bool
	window := testWindow
	for at := phase; at < until; at += testScrape {
		for ; window <= at; window += testWindow {
			s.put(Window{
				Name: HostName, Result: &check.Result{Findings: during(window)},
				Begin: midnight.Add(window - testWindow), End: midnight.Add(window),
			}, nil, o)
		}
		seen := map[string]bool{}
		if families := s.ready.Load(); families != nil {
			for _, mf := range *families {
				for _, m := range mf.GetMetric() {
					seen[seriesName(mf.GetName(), m)] = true
				}
			}
		}
		out = append(out, seen)
	}
	return out
}

func seriesName(name string, m *dto.Metric) string {
	labels := []string{`instance="node1:9843"`, `job="perfdoctor"`}
	for _, l := range m.GetLabel() {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	return name + "{" + strings.Join(labels, ",") + "}"
}

// asSeries writes scrapes as promtool reads them. stale is what Prometheus records for a missing series.
func asSeries(seen []map[string]bool) string {
	names := map[string]bool{}
	for _, s := range seen {
		maps.Copy(names, s)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var values []string
		for i, s := range seen {
			switch {
			case s[name]:
				values = append(values, "1")
			case i > 0 && seen[i-1][name]:
				values = append(values, "stale")
			default:
				values = append(values, "_")
			}
		}
		fmt.Fprintf(&b, "      - series: '%s'\n        values: '%s'\n", name, strings.Join(values, " "))
	}
	return b.String()
}

// testRules runs promtool on tests of the committed rules.
func testRules(t *testing.T, tests string) {
	t.Helper()
	testenv.Need(t, testenv.Tool("promtool"))
	rules, err := filepath.Abs("../../../deploy/prometheus/perfdoctor.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "test.yml")
	text := fmt.Sprintf("rule_files: [%s]\nevaluation_interval: 1m\ntests:\n%s", rules, tests)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%.4000s", err, out)
	}
}

// alerted returns the checks of the rules by their groups' stages: those of events, whose alerts do not wait, and the
// others.
func alerted(t *testing.T) (events, states []check.Finding) {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/prometheus/perfdoctor.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr string
				For         *string
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	stages := map[string]check.Stage{}
	for s := check.Path; s <= check.Code; s++ {
		stages["perfdoctor-"+s.String()] = s
	}
	name := regexp.MustCompile(`check="([a-z0-9-]+)"`)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			f := check.Finding{
				Check: name.FindStringSubmatch(r.Expr)[1], Stage: stages[g.Name], Severity: check.Critical,
				Subject: check.Host, Event: r.For == nil,
			}
			if f.Event {
				events = append(events, f)
			} else {
				states = append(states, f)
			}
		}
	}
	if len(events) < 6 || len(states) < 100 {
		t.Fatalf("%d alerts of events and %d of states", len(events), len(states))
	}
	return events, states
}

// TestEventsAlert: an event of one window is in at least two scrapes and alerts at the first one, wherever the event
// and the scrapes fall. It tests every check of events, at 2:30, 5, 7:30 and 10 minutes after midnight.
func TestEventsAlert(t *testing.T) {
	t.Parallel()
	const until = 20 * time.Minute
	var tests strings.Builder
	events, _ := alerted(t)
	for _, f := range events {
		c := f.Check
		for _, at := range []time.Duration{150 * time.Second, 300 * time.Second, 450 * time.Second, 600 * time.Second} {
			for _, phase := range []time.Duration{time.Second, 16 * time.Second, 31 * time.Second, 46 * time.Second} {
				seen := scrapes(phase, until, func(end time.Duration) []check.Finding {
					if at < end-testWindow || at >= end {
						return nil
					}
					return []check.Finding{f}
				})
				first := slices.IndexFunc(seen, func(s map[string]bool) bool { return len(s) > 0 })
				if first < 1 || len(seen[first+1]) == 0 || len(seen[first-1]) > 0 {
					t.Fatalf("%s at %v, scraped from %v on: first in scrape %d of %v", c, at, phase, first, seen)
				}
				fmt.Fprintf(&tests, "  - interval: 1m\n    name: %s at %v, scraped from %v on\n    input_series:\n%s"+
					"    promql_expr_test:\n", c, at, phase, asSeries(seen))
				for i, n := range map[int]int{first - 1: 0, first: 2, first + 1: 2, len(seen) - 1: 0} {
					samples := ""
					if n > 0 {
						samples = fmt.Sprintf("\n        exp_samples: [{labels: '{}', value: %d}]", n)
					}
					fmt.Fprintf(&tests, "      - expr: count(ALERTS{alertstate='firing',check=%q})\n", c)
					fmt.Fprintf(&tests, "        eval_time: %dm%s\n", i, samples)
				}
			}
		}
	}
	testRules(t, tests.String())
}

// TestHealthyDayIsQuiet: a day of windows of a healthy host alerts nobody. Each check has a level that is FYI in one
// window of four, and each state is a fault for one window in an hour.
func TestHealthyDayIsQuiet(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	events, states := alerted(t)
	levels := slices.Concat(events, states)
	for i := range levels {
		levels[i].Severity = check.Info
	}
	seen := scrapes(time.Second, day, func(end time.Duration) []check.Finding {
		var list []check.Finding
		if end%testScrape == 0 {
			list = slices.Clone(levels)
		}
		if end%time.Hour == 0 {
			list = append(list, states...)
		}
		return list
	})
	var tests strings.Builder
	fmt.Fprintf(&tests, "  - interval: 1m\n    name: a healthy day\n    input_series:\n%s    promql_expr_test:\n",
		asSeries(seen))
	fmt.Fprintf(&tests, "      - expr: count(max_over_time(ALERTS{alertstate='firing'}[1d]))\n")
	fmt.Fprintf(&tests, "        eval_time: %dm\n", len(seen)-1)
	testRules(t, tests.String())
}

// TestEventsStand: the reason why a group was killed stays after the group's end, since its beginning and no longer
// than necessary, even if the clock is set back.
func TestEventsStand(t *testing.T) {
	t.Parallel()
	o := Options{MaxFindings: 10}
	e := &Exporter{o: o, snapshot: &snapshot{registry: prometheus.NewRegistry(), targets: map[string]*told{}}}
	window := func(target string, n int, list ...check.Finding) Window {
		begin := midnight.Add(time.Duration(n) * testWindow)
		return Window{Name: target, Result: &check.Result{Findings: list}, Begin: begin, End: begin.Add(testWindow)}
	}
	state := check.Finding{Check: "cpu-hog", Severity: check.Warning, Subject: check.Host}
	event := check.Finding{
		Check: "oom-kills", Severity: check.Critical, Subject: check.Subject{Kind: "cgroup", ID: "/a"}, Event: true,
	}
	put := func(w Window) { e.snapshot.put(w, nil, o) }
	standing := func() string {
		var list []string
		for _, s := range e.Now().Standing {
			list = append(list, fmt.Sprintf("%s since %d, absent %d", s.Finding.Check,
				int(s.Since.Sub(midnight)/testWindow), s.Absent))
		}
		return strings.Join(list, "; ")
	}
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() { put(window(HostName, 0, state)) }, "cpu-hog since 0, absent 0"},
		{func() { put(window(HostName, 1)) }, ""},
		{func() { put(window(HostName, 2, state)) }, "cpu-hog since 0, absent 0"}, // it came and went
		{func() { put(window("cgroup /a", 2, event)) }, "oom-kills since 2, absent 0; cpu-hog since 0, absent 0"},
		{func() { e.snapshot.forget("cgroup /a", o) }, "oom-kills since 2, absent 1; cpu-hog since 0, absent 0"},
		{func() { put(window(HostName, 3)); put(window(HostName, 4)) }, "oom-kills since 2, absent 1"},
		{func() { put(window(HostName, 5, state)) }, "oom-kills since 2, absent 1; cpu-hog since 5, absent 0"},
		{func() { put(window(HostName, 21)) }, "oom-kills since 2, absent 1"},
		{func() { put(window(HostName, 22)) }, ""},
		{func() { put(window(HostName, 23, event)); put(window(HostName, -100)) }, ""},
	} {
		step.do()
		if got := standing(); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}
