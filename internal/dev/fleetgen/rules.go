package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/checks"
)

// pages is where the recipient of an alert reads the page of a check.
const pages = "https://github.com/perfdoctor/perfdoctor/blob/main/docs/checks/"

// The files, by their path from the root of the repository.
const (
	alertFile     = "deploy/prometheus/perfdoctor.rules.yml"
	fleetFile     = "deploy/prometheus/perfdoctor-fleet.rules.yml"
	dashboardFile = "deploy/grafana/perfdoctor.json"
)

// generated tells editors where a file comes from.
const generated = "# Written by internal/dev/fleetgen from the checks: change it there, then `make generate`.\n"

// A ruleFile is a file of rules as Prometheus reads it.
type ruleFile struct {
	Groups []ruleGroup `yaml:"groups"`
}

type ruleGroup struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

// A rule is an alert or a recording rule.
type rule struct {
	Record      string            `yaml:"record,omitempty"`
	Alert       string            `yaml:"alert,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

// A patience is how long the findings of a stage must last before somebody is alerted.
type patience struct {
	stage check.Stage
	wait  time.Duration
	why   string
}

// patiences returns multiples of the exporter's window of 15 s. One window is only a moment, and a problem that
// passes by itself wakes nobody.
func patiences() []patience {
	return []patience{
		{check.Path, 2 * time.Minute, "eight windows: a link that flaps or a route that moves is over, and " +
			"what lasts " +
			"hits every request"},
		{check.Connections, 2 * time.Minute, "twice the 60 s of TIME_WAIT: a burst is over, and a port range that " +
			"fills is nearly full"},
		{check.Kernel, 5 * time.Minute, "a backup, a deployment or a rotation of logs keeps the kernel busy for " +
			"minutes"},
		{check.Limits, 5 * time.Minute, "a container uses up its quota while it starts, for minutes, and is well " +
			"afterwards"},
		{check.Runtime, 10 * time.Minute, "a runtime compiles and sizes its heap in its first minutes under load"},
		{check.Code, 30 * time.Minute, "code is not changed at night: a job of half an hour is not how the service is"},
	}
}

// generate makes all files, by their path from the root of the repository.
func generate() (map[string][]byte, error) {
	suite := checks.Suite()
	alerts, err := alertRules(suite)
	if err != nil {
		return nil, err
	}
	fleet, err := fleetRules(suite)
	if err != nil {
		return nil, err
	}
	board, err := dashboard(suite)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{dashboardFile: board}
	for name, content := range map[string]any{alertFile: alerts, fleetFile: fleet} {
		text, err := asYAML(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = append([]byte(heading(name)), text...)
	}
	return files, nil
}

// heading returns what a reader of a file needs to know first.
func heading(name string) string {
	if name != alertFile {
		return generated
	}
	var b strings.Builder
	b.WriteString(generated + "#\n# How long a finding must last before it is an alert, by the stage of its check:\n")
	for _, p := range patiences() {
		fmt.Fprintf(&b, "#   %-12s %-4s %s\n", p.stage, prometheusTime(p.wait), p.why)
	}
	b.WriteString("# An alert without a time to wait is of an event: to have happened once is enough, and the " +
		"exporter tells of it for\n# 5 minutes.\n" +
		"# A critical finding is a warning too, so that one that becomes worse does not begin to wait anew: it has " +
		"both\n# alerts, and the inhibition in docs/deploy.md leaves the critical one.\n")
	return b.String()
}

func asYAML(content any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := e.Encode(content); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// alertRules returns one alert for each check, in a group for each stage.
func alertRules(suite []*check.Check) (ruleFile, error) {
	var f ruleFile
	for _, p := range patiences() {
		g := ruleGroup{Name: "perfdoctor-" + p.stage.String(), Rules: []rule{standing(p.stage)}}
		for _, c := range suite {
			if c.Stage == p.stage {
				g.Rules = append(g.Rules, alertOf(c, p.wait))
			}
		}
		f.Groups = append(f.Groups, g)
	}
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			for _, text := range r.Annotations {
				if n := strings.Count(text, "{{"); n != strings.Count(text, "{{ $labels.") {
					return f, fmt.Errorf("%s: Prometheus would take a part of %q for a template: write it in "+
						"another way", r.Alert, text)
				}
			}
		}
	}
	return f, nil
}

// finding is the series that standing records and the alerts use.
const finding = "perfdoctor:finding"

// standing records the findings of a stage at warning or above. It records critical ones also as warnings. The series
// is by subject, without target, because a window of the host and one of a container may find the same. Prometheus
// does not tell an alert whether it scrapes with TLS. The label scheme does; docs/deploy.md says how the job adds it.
func standing(stage check.Stage) rule {
	return rule{
		Record: finding,
		Expr: fmt.Sprintf(`label_replace(max without (target) (
    perfdoctor_finding{stage=%[1]q,severity=~"warning|critical"}
  or
    label_replace(perfdoctor_finding{stage=%[1]q,severity="critical"}, "severity", "warning", "", "")
), "scheme", "http", "scheme", "")`, stage),
	}
}

// alertOf returns the alert of one check. The alert of an event does not wait.
func alertOf(c *check.Check, wait time.Duration) rule {
	r := rule{
		Alert: alertName(c),
		Expr:  fmt.Sprintf("%s{check=%q}", finding, c.Name),
		Annotations: map[string]string{
			"summary":     "{{ $labels.instance }}, {{ $labels.subject }}: " + c.Title() + ".",
			"host_url":    hostPage,
			"runbook_url": pages + c.Name + ".md",
		},
	}
	if !c.Event {
		r.For = prometheusTime(wait)
	}
	return r
}

// hostPage is the exporter's page, which has the current numbers and the fix.
const hostPage = "{{ $labels.scheme }}://{{ $labels.instance }}/"

// alertName turns cpu-throttled into PerfdoctorCpuThrottled.
func alertName(c *check.Check) string {
	var b strings.Builder
	b.WriteString("Perfdoctor")
	for word := range strings.SplitSeq(c.Name, "-") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// prometheusTime writes whole minutes or seconds as Prometheus does: Go's 2m0s is not a duration to it.
func prometheusTime(d time.Duration) string {
	if d%time.Minute == 0 {
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// threshold returns the default of a check's parameter, so that a rule across hosts uses the same number as the check
// on each host.
func threshold(suite []*check.Check, checkName, param string) (float64, error) {
	i := slices.IndexFunc(suite, func(c *check.Check) bool { return c.Name == checkName })
	if i < 0 {
		return 0, fmt.Errorf("there is no check %s: a rule across hosts takes a threshold from it", checkName)
	}
	for _, p := range suite[i].Params {
		if p.Name == param {
			return p.Default, nil
		}
	}
	return 0, fmt.Errorf("check %s has no parameter %s: a rule across hosts takes its threshold from it", checkName,
		param)
}
