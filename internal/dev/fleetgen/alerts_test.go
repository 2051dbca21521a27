package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/dev/testenv"
)

// step is the interval of the tests' samples and evaluations. All waits are multiples of it.
const step = time.Minute

// lead is how long everything is well before a finding begins.
const lead = time.Minute

// A testFile is a file of tests as promtool reads it.
type testFile struct {
	RuleFiles          []string   `yaml:"rule_files"`
	EvaluationInterval string     `yaml:"evaluation_interval"`
	Tests              []ruleTest `yaml:"tests"`
}

type ruleTest struct {
	Name   string      `yaml:"name"`
	Step   string      `yaml:"interval"`
	Series []series    `yaml:"input_series"`
	Alerts []alertTest `yaml:"alert_rule_test"`
}

type series struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type alertTest struct {
	At     string   `yaml:"eval_time"`
	Name   string   `yaml:"alertname"`
	Expect []firing `yaml:"exp_alerts"`
}

type firing struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

// alertTests proves of every alert that it is silent until its finding has lasted, then fires, and is silent again one
// step after the finding is gone. An event's alert fires at the first of two samples. A finding that is info alerts
// nobody.
func alertTests(rules ruleFile) testFile {
	f := testFile{RuleFiles: []string{"perfdoctor.rules.yml"}, EvaluationInterval: prometheusTime(step)}
	for i, p := range patiences() {
		t := ruleTest{Name: rules.Groups[i].Name, Step: prometheusTime(step)}
		for _, r := range rules.Groups[i].Rules {
			if r.Alert != "" {
				t.add(r, p)
			}
		}
		f.Tests = append(f.Tests, t)
	}
	return f
}

// add returns one alert's series and what is expected of it. The finding lasts one step longer than it must.
func (t *ruleTest) add(r rule, p patience) {
	if r.For == "" {
		p.wait = 0
	}
	name := strings.TrimSuffix(strings.TrimPrefix(r.Annotations["runbook_url"], pages), ".md")
	found := func(severity, subject string) string {
		return fmt.Sprintf(
			`perfdoctor_finding{instance="node1:9843",job="perfdoctor",check=%q,stage=%q,severity=%q,subject=%q}`,
			name, p.stage, severity, subject)
	}
	lasts := fmt.Sprintf("_x%d 1x%d stale", lead/step, p.wait/step+1)
	t.Series = append(t.Series,
		series{found("warning", "pid 7 (shop)"), lasts}, series{found("critical", "host"), lasts},
		series{found("info", "pid 8 (quiet)"), lasts})
	begin := lead
	t.Alerts = append(t.Alerts,
		alertTest{At: prometheusTime(begin + p.wait - step), Name: r.Alert},
		alertTest{At: prometheusTime(begin + p.wait), Name: r.Alert, Expect: []firing{
			fires(r, name, p, "warning", "pid 7 (shop)"), fires(r, name, p, "critical", "host"),
			fires(r, name, p, "warning", "host"),
		}},
		alertTest{At: prometheusTime(begin + p.wait + 2*step), Name: r.Alert})
}

func fires(r rule, name string, p patience, severity, subject string) firing {
	const instance = "node1:9843"
	f := firing{
		Labels: map[string]string{
			"instance": instance, "job": "perfdoctor", "check": name, "stage": p.stage.String(), "severity": severity,
			"subject": subject, "scheme": "http",
		},
		Annotations: map[string]string{},
	}
	filled := strings.NewReplacer("{{ $labels.scheme }}", "http", "{{ $labels.instance }}", instance,
		"{{ $labels.subject }}", subject)
	for key, text := range r.Annotations {
		f.Annotations[key] = filled.Replace(text)
	}
	return f
}

// promtool runs in a directory, and fails the test if it reports a problem.
func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	testenv.Need(t, testenv.Tool("promtool"))
	all := files(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "perfdoctor.rules.yml"), all[alertFile], 0o600))
	var rules ruleFile
	must(t, yaml.Unmarshal(all[alertFile], &rules))
	tests, err := asYAML(alertTests(rules))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "test.yml"), tests, 0o600))
	promtool(t, dir, "check", "rules", "perfdoctor.rules.yml")
	promtool(t, dir, "test", "rules", "test.yml")
}
