package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// schemaVersion is the version of Grafana 10. Later ones read it.
const schemaVersion = 39

// A panel is a chart of the dashboard, in fix order.
type panel struct {
	title, about string
	unit         string // Grafana's name
	queries      []query
}

type query struct{ expr, legend string }

// host matches the series of the host that the user chose.
const host = `job=~"$job",instance=~"$instance"`

// rate returns the per-second increase of a counter, summed by labels. match holds more matchers, and begins with a
// comma.
func rate(by, counter, match string) string {
	return fmt.Sprintf("sum by (%s) (rate(perfdoctor_%s{%s%s}[$__rate_interval]))", by, counter, host, match)
}

// noGuests leaves out guest time, because user time includes it.
const noGuests = `,mode!~"guest|guest_nice"`

// panels returns the panels of all stages.
func panels() map[check.Stage][]panel {
	all := hostPanels()
	maps.Copy(all, limitPanels())
	return all
}

// hostPanels returns the panels of the host. Within a stage they go from what is used (rates and shares) over what is
// full or waits to what fails, as far as one host can see it.
func hostPanels() map[check.Stage][]panel {
	return map[check.Stage][]panel{
		check.Path: {
			{"Traffic", "Bytes received and sent on all devices.", "Bps", []query{
				{rate("instance, direction", "net_device_bytes_total", ""), "{{instance}} {{direction}}"},
			}},
			{"Packet drops", "By a device, its driver or queue, or a CPU's backlog (softnet).", "pps", []query{
				{rate("instance", "net_device_drops_total", ""), "{{instance}} devices"},
				{rate("instance", "softnet_dropped_packets_total", ""), "{{instance}} backlog"},
			}},
			{
				"Softirq CPU share", "Share of CPU time; above twice the median of the job it is an alert.",
				"percentunit",
				[]query{
					{rate("instance", "cpu_seconds_total", `,mode="softirq"`) + " / " +
						rate("instance", "cpu_seconds_total", noGuests), "{{instance}}"},
				},
			},
		},
		check.Connections: {
			{
				"TCP sockets by state", "Many in TIME_WAIT: short connections; in CLOSE_WAIT: a leak.",
				"short",
				[]query{
					{
						`sum by (instance, state) (perfdoctor_tcp_sockets{` + host + `,target=~"(host)?"})`,
						"{{instance}} {{state}}",
					},
				},
			},
			{"TCP retransmits", "Retransmitted segments / segments sent.", "percentunit", []query{
				{rate("instance", "tcp_retransmitted_segments_total", "") + " / " +
					rate("instance", "tcp_out_segments_total", ""), "{{instance}}"},
			}},
			{"Listen-queue overflows", "Connections dropped at a full accept queue.", "cps", []query{
				{rate("instance", "tcp_listen_overflows_total", ""), "{{instance}}"},
			}},
		},
		check.Kernel: {
			{"CPU time by mode", "CPUs in use, without idle.", "short", []query{
				{
					rate("instance, mode", "cpu_seconds_total", `,mode!~"idle|guest|guest_nice"`),
					"{{instance}} {{mode}}",
				},
			}},
			{"Run queue", "Runnable threads. Above the number of CPUs, threads wait.", "short", []query{
				{`perfdoctor_procs_running{` + host + `,target=~"(host)?"}`, "{{instance}} threads"},
				{`perfdoctor_cpus_online{` + host + `,target=~"(host)?"}`, "{{instance}} CPUs"},
			}},
			{"Available memory", "MemAvailable: what programs can get without swapping.", "bytes", []query{
				{`perfdoctor_memory_available_bytes{` + host + `,target=~"(host)?"}`, "{{instance}}"},
			}},
		},
	}
}

// limitPanels returns panels about the limits of the targets, and about perfdoctor itself.
func limitPanels() map[check.Stage][]panel {
	return map[check.Stage][]panel{
		check.Limits: {
			{
				"CPU by control group", "CPUs used by the groups that the exporter watches, and the host's root.",
				"short",
				[]query{
					{
						"topk(20, " + rate("instance, cgroup", "cgroup_cpu_seconds_total", "") + ")",
						"{{instance}} {{cgroup}}",
					},
				},
			},
			{"Findings by stage", "Of the last window.", "short", []query{
				{`sum by (stage) (perfdoctor_finding{` + host + `}) or vector(0)`, "{{stage}}"},
			}},
		},
		check.Runtime: jvmPanels(),
		check.Code: {
			{
				"Checks run", "Of all that apply. /collectors on the host says what others need.", "short",
				[]query{
					{
						`count by (instance) (perfdoctor_check_assessed{` + host + `,target="host"} == 1)`,
						"{{instance}} run",
					},
					{`count by (instance) (perfdoctor_check_assessed{` + host + `,target="host"})`, "{{instance}} all"},
				},
			},
			{
				"CPU used by perfdoctor", "CPUs used. The time of its BPF programs counts for what they interrupt.",
				"short",
				[]query{
					{`rate(process_cpu_seconds_total{` + host + `}[$__rate_interval])`, "{{instance}}"},
				},
			},
			{
				"Memory used by perfdoctor", "Resident memory (RSS).", "bytes",
				[]query{{`process_resident_memory_bytes{` + host + `}`, "{{instance}}"}},
			},
			{"Failing collectors", "Without those that this host does not support.", "short", []query{
				{
					`sum by (instance, collector) (1 - perfdoctor_collector_success{` + host + `,target="host"})`,
					"{{instance}} {{collector}}",
				},
			}},
		},
	}
}

// jvmPanels returns panels about the JVMs of all targets. They are by program: the exporter adds up JVMs of one name.
func jvmPanels() []panel {
	return []panel{
		{
			"GC", "Share of the time spent in collections, by kind. Concurrent collectors count their pauses.",
			"percentunit",
			[]query{{rate("instance, target, kind", "jvm_gc_seconds_total", ""), "{{instance}} {{target}} {{kind}}"}},
		},
		{
			"Heap", "Used and committed, as of the last collection.", "bytes",
			[]query{{
				`sum by (instance, target, kind) (perfdoctor_jvm_heap_space_bytes{` + host + `})`,
				"{{instance}} {{target}} {{kind}}",
			}},
		},
		{
			"Threads", "Platform threads of Java that live.", "short",
			[]query{{
				`sum by (instance, target) (perfdoctor_jvm_threads{` + host + `,kind="live"})`, "{{instance}} {{target}}",
			}},
		},
	}
}

// rowTitles has the title of each stage's row. Code has no charts: a profile is not a time series.
var rowTitles = map[check.Stage]string{
	check.Path: "1 Network path", check.Connections: "2 Connections", check.Kernel: "3 CPU, memory and kernel",
	check.Limits: "4 Limits", check.Runtime: "5 JVM", check.Code: "perfdoctor itself",
}

// dashboard returns the JSON of the dashboard, as Grafana imports it.
func dashboard(suite []*check.Check) ([]byte, error) {
	layout := &grid{}
	layout.add(findingsTable(suite), 24, 9)
	all := panels()
	for stage := check.Path; stage <= check.Code; stage++ {
		layout.add(map[string]any{"type": "row", "title": rowTitles[stage], "collapsed": false, "panels": []any{}}, 24,
			1)
		for _, p := range all[stage] {
			layout.add(p.object(), 24/len(all[stage]), 8)
		}
		layout.line()
	}
	board := map[string]any{
		"title": "perfdoctor", "uid": "perfdoctor", "schemaVersion": schemaVersion, "version": 1, "editable": true,
		"description": fmt.Sprintf("Written by internal/dev/fleetgen: %d checks, in fix order.",
			len(suite)),
		"tags": []string{"perfdoctor"}, "time": map[string]string{"from": "now-1h", "to": "now"},
		"refresh":  "30s",
		"timezone": "browser", "panels": layout.panels, "templating": map[string]any{"list": variables()},
		"annotations": map[string]any{"list": []any{}}, "links": []any{},
	}
	text, err := json.MarshalIndent(board, "", "  ")
	return append(text, '\n'), err
}

// severityColors are the colors of the reports.
var severityColors = map[string]string{"critical": "red", "warning": "orange", "info": "blue"}

// findingsTable returns a table with a row for each finding: what is wrong, where, and what to do. Prometheus has
// only the check's name. Its meaning is mapped here, so that no scrape carries it.
func findingsTable(suite []*check.Check) map[string]any {
	problems, fixes, colors := map[string]any{}, map[string]any{}, map[string]any{}
	for i, c := range suite {
		problems[c.Name] = map[string]any{"text": c.Title(), "index": i}
		fixes[c.Name] = map[string]any{"text": fixOf(c), "index": i}
	}
	for severity, color := range severityColors {
		colors[severity] = map[string]any{"color": color}
	}
	expr := `max without (target) (perfdoctor_finding{` + host + `})`
	for _, column := range []string{"problem", "fix"} {
		expr = fmt.Sprintf(`label_replace(%s, %q, "$1", "check", "(.+)")`, expr, column)
	}
	expr = fmt.Sprintf(`label_replace(%s, "scheme", "http", "scheme", "")`, expr)
	return map[string]any{
		"type": "table", "title": "Findings", "datasource": source,
		"description": "What the last window of each host says, and events of the last 5 minutes. A check leads " +
			"to its page, an instance to the host's own page with the numbers and the fix.",
		"targets": []any{target("A", query{expr: expr}, "table")},
		"transformations": []any{map[string]any{"id": "organize", "options": map[string]any{
			"excludeByName": map[string]bool{"Time": true, "Value": true, "__name__": true, "job": true, "stage": true},
			"indexByName": map[string]int{
				"severity": 0, "instance": 1, "problem": 2, "subject": 3, "fix": 4, "check": 5,
			},
		}}},
		"fieldConfig": map[string]any{"defaults": map[string]any{"noValue": "no finding"}, "overrides": []any{
			override("severity", "custom.cellOptions", map[string]string{"type": "color-background", "mode": "basic"},
				"mappings", mapped(colors)),
			override("problem", "mappings", mapped(problems)),
			override("fix", "mappings", mapped(fixes), "custom.cellOptions",
				map[string]any{"type": "auto", "wrapText": true}),
			override("check", "links", links("what it means", pages+"${__value.raw}.md")),
			override("instance", "links", links("this host now", "${__data.fields.scheme}://${__value.raw}/")),
			override("scheme", "custom.hidden", true),
		}},
	}
}

// override sets properties of a column. properties are names and values in turn.
func override(column string, properties ...any) any {
	var list []any
	for i := 0; i < len(properties); i += 2 {
		list = append(list, map[string]any{"id": properties[i], "value": properties[i+1]})
	}
	return map[string]any{"matcher": map[string]string{"id": "byName", "options": column}, "properties": list}
}

func mapped(options map[string]any) any {
	return []any{map[string]any{"type": "value", "options": options}}
}

func links(title, url string) any {
	return []any{map[string]any{"title": title, "url": url, "targetBlank": true}}
}

// aFix matches what the manual of a check says to do, up to its next topic.
var aFix = regexp.MustCompile(`\bFix(?:es)?: (.+?)(?: Risk| Won't help| Disproof| Disproved| Measured|$)`)

// fixOf returns what to do in a sentence or two, as far as that is possible without the numbers.
func fixOf(c *check.Check) string {
	doc := strings.Join(strings.Fields(c.Doc), " ")
	if m := aFix.FindStringSubmatch(doc); m != nil {
		return m[1]
	}
	return "See the page of the check."
}

// source is the Prometheus that the user chooses above the dashboard.
var source = map[string]string{"type": "prometheus", "uid": "${datasource}"}

func variables() []any {
	label := func(name, of string) any {
		q := fmt.Sprintf("label_values(perfdoctor_build_info%s, %s)", of, name)
		return map[string]any{
			"name": name, "type": "query", "datasource": source, "query": q, "definition": q, "refresh": 2, "sort": 1,
			"multi": true, "includeAll": true, "allValue": ".+", "current": map[string]any{
				"text":  "All",
				"value": "$__all",
			},
		}
	}
	return []any{
		map[string]any{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
		label("job", ""), label("instance", `{job=~"$job"}`),
	}
}

func (p panel) object() map[string]any {
	var targets []any
	for i, q := range p.queries {
		targets = append(targets, target(string(rune('A'+i)), q, "time_series"))
	}
	return map[string]any{
		"type": "timeseries", "title": p.title, "description": p.about, "datasource": source, "targets": targets,
		"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.unit, "min": 0}, "overrides": []any{}},
	}
}

func target(ref string, q query, format string) any {
	return map[string]any{
		"refId": ref, "expr": q.expr, "legendFormat": q.legend, "datasource": source, "format": format,
		"instant": format == "table",
		"range":   format != "table",
	}
}

// A grid places panels from left to right, 24 columns wide, as Grafana does.
type grid struct {
	panels      []any
	x, y, below int
}

func (g *grid) add(p map[string]any, width, height int) {
	if g.x+width > 24 {
		g.line()
	}
	p["id"] = len(g.panels) + 1
	p["gridPos"] = map[string]int{"x": g.x, "y": g.y, "w": width, "h": height}
	g.panels = append(g.panels, p)
	g.x += width
	g.below = max(g.below, g.y+height)
}

func (g *grid) line() { g.x, g.y = 0, g.below }
