package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/checks"
	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
)

// root is the repository's.
const root = "../../.."

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T) map[string][]byte {
	t.Helper()
	all, err := generate()
	must(t, err)
	return all
}

func TestFresh(t *testing.T) {
	for name, want := range files(t) {
		got, err := os.ReadFile(filepath.Join(root, name))
		must(t, err)
		if d := cmp.Diff(string(want), string(got)); d != "" {
			t.Errorf("%s is stale, run make generate (-generated +committed):\n%s", name, d)
		}
	}
}

// TestEveryCheckHasAnAlert compares the alerts with the checks, by the page that each links to. The page must exist.
func TestEveryCheckHasAnAlert(t *testing.T) {
	var rules ruleFile
	must(t, yaml.Unmarshal(files(t)[alertFile], &rules))
	seen := map[string]bool{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			page, ok := strings.CutPrefix(r.Annotations["runbook_url"], pages)
			if _, err := os.Stat(filepath.Join(root, "docs/checks", page)); !ok || err != nil || seen[r.Alert] {
				t.Errorf("%s: page %q, %v; seen before: %v", r.Alert, page, err, seen[r.Alert])
			}
			seen[r.Alert] = true
		}
	}
	for _, c := range checks.Suite() {
		if !seen[alertName(c)] {
			t.Errorf("check %s has no alert", c.Name)
		}
	}
	if len(seen) != len(checks.Suite()) {
		t.Errorf("%d alerts for %d checks", len(seen), len(checks.Suite()))
	}
}

// TestRulesAreShort: a configuration map of Kubernetes has room for 1 MiB, and the reviewer of the rules reads them.
func TestRulesAreShort(t *testing.T) {
	most := 430 * len(checks.Suite()) // bytes: the six lines that an alert has, and a title
	if n := len(files(t)[alertFile]); n > most {
		t.Errorf("%s has %d bytes, more than %d: long texts belong on the page of the check", alertFile, n, most)
	}
}

func TestFleetRules(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Tool("promtool"))
	dir := filepath.Join(root, filepath.Dir(fleetFile))
	promtool(t, dir, "check", "rules", filepath.Base(fleetFile))
	promtool(t, dir, "test", "rules", "perfdoctor-fleet.test.yml")
}

// TestFleetCases expects a case that fires and one that is quiet for each alert of the rules across hosts.
func TestFleetCases(t *testing.T) {
	var rules ruleFile
	must(t, yaml.Unmarshal(files(t)[fleetFile], &rules))
	text, err := os.ReadFile(filepath.Join(root, "deploy/prometheus/perfdoctor-fleet.test.yml"))
	must(t, err)
	var tests testFile
	must(t, yaml.Unmarshal(text, &tests))
	cases := map[string][2]int{} // quiet, firing
	for _, c := range tests.Tests {
		for _, a := range c.Alerts {
			n := cases[a.Name]
			n[min(len(a.Expect), 1)]++
			cases[a.Name] = n
		}
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if n := cases[r.Alert]; r.Alert != "" && (n[0] == 0 || n[1] == 0) {
				t.Errorf("%s has %d quiet and %d firing cases: want one of each at least", r.Alert, n[0], n[1])
			}
		}
	}
}

// ownMetrics are those of the exporter that no recording has.
var ownMetrics = []string{
	"finding", "findings_dropped_total", "check_assessed", "collector_success", "collector_unsupported",
	"window_seconds",
	"window_end_timestamp_seconds", "build_info",
}

// TestNames finds queried metrics that no exporter has.
func TestNames(t *testing.T) {
	known := slices.Clone(ownMetrics)
	for _, m := range metric.All() {
		known = append(known, m.Describe().Name)
	}
	name := regexp.MustCompile(`\bperfdoctor_([a-z0-9_]+)\{|\(perfdoctor_([a-z0-9_]+)[)\[]`)
	found := 0
	for file, text := range files(t) {
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			found++
			if !slices.Contains(known, m[1]+m[2]) {
				t.Errorf("%s asks for perfdoctor_%s, which no exporter has", file, m[1]+m[2])
			}
		}
	}
	if found < 30 { // six stages of alerts, and twenty panels
		t.Errorf("%d metrics found: this test looks at the wrong text", found)
	}
}

// A board is what is checked of the dashboard's JSON.
type board struct {
	SchemaVersion int `json:"schemaVersion"`
	Panels        []struct {
		ID          int `json:"id"`
		Type, Title string
		GridPos     struct{ X, Y, W, H int } `json:"gridPos"`
		Targets     []struct {
			RefID string `json:"refId"`
			Expr  string `json:"expr"`
		}
	}
}

// TestDashboard reads the dashboard as Grafana lays it out: no two panels are in one place, each has an id of its own,
// and Prometheus can read the queries.
func TestDashboard(t *testing.T) {
	var b board
	must(t, json.Unmarshal(files(t)[dashboardFile], &b))
	taken, ids := map[[2]int]string{}, map[int]bool{}
	rules := ruleFile{Groups: []ruleGroup{{Name: "dashboard"}}}
	for _, p := range b.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have id %d", p.ID)
		}
		ids[p.ID] = true
		if p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W == 0 || p.GridPos.H == 0 {
			t.Errorf("%s does not fit into the 24 columns: %+v", p.Title, p.GridPos)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%q and %q overlap", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			rules.Groups[0].Rules = append(rules.Groups[0].Rules, rule{Record: "x", Expr: filled(target.Expr)})
		}
	}
	if len(rules.Groups[0].Rules) < len(maps.Collect(maps.All(panels()))) {
		t.Fatalf("only %d queries", len(rules.Groups[0].Rules))
	}
	testenv.Need(t, testenv.Tool("promtool"))
	text, err := asYAML(rules)
	must(t, err)
	file := filepath.Join(t.TempDir(), "queries.yml")
	must(t, os.WriteFile(file, text, 0o600))
	promtool(t, ".", "check", "rules", "--lint=none", file)
}

// filled is a query as Grafana sends it.
func filled(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$job", ".+", "$instance", ".+").Replace(expr)
}
