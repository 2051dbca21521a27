package main

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// schemaVersion is that of Grafana 10; later ones read it.
const schemaVersion = 39

// A panel is a chart of the dashboard, in fix order.
type panel struct {
	title, about string
	unit         string // Grafana's name
	queries      []query
}

type query struct{ expr, legend string }

// host matches the series of the host that the reader chose.
const host = `job=~"$job",instance=~"$instance"`

// rate is the increase of a counter in a second, summed by labels; match is more to match, and begins with a comma.
func rate(by, counter, match string) string {
	return fmt.Sprintf("sum by (%s) (rate(perfdoctor_%s{%s%s}[$__rate_interval]))", by, counter, host, match)
}

// noGuests leaves out the time of guests, which is in user time as well.
const noGuests = `,mode!~"guest|guest_nice"`

// panels are those of all stages.
func panels() map[check.Stage][]panel {
	all := hostPanels()
	maps.Copy(all, limitPanels())
	return all
}

// hostPanels of a stage go from what is used (rates and shares) over what is full or waits, to what fails, as far as
// one host can see it.
func hostPanels() map[check.Stage][]panel {
	return map[check.Stage][]panel{
		check.Path: {
			{"Traffic", "Bytes received and sent by all devices.", "Bps", []query{
				{rate("instance, direction", "net_device_bytes_total", ""), "{{instance}} {{direction}}"},
			}},
			{"Packet drops", "By a device, its driver or its queue, and by a CPU's backlog.", "pps", []query{
				{rate("instance", "net_device_drops_total", ""), "{{instance}} devices"},
				{rate("instance", "softnet_dropped_packets_total", ""), "{{instance}} backlog"},
			}},
			{
				"Softirq against its peers", "Share of CPU time; above twice the median of the job it is an alert.",
				"percentunit",
				[]query{
					{rate("instance", "cpu_seconds_total", `,mode="softirq"`) + " / " +
						rate("instance", "cpu_seconds_total", noGuests), "{{instance}}"},
				},
			},
		},
		check.Connections: {
			{
				"Sockets by state", "TCP sockets. Many in TIME_WAIT: short connections; in CLOSE_WAIT: a leak.",
				"short",
				[]query{
					{
						`sum by (instance, state) (perfdoctor_tcp_sockets{` + host + `,target=~"(host)?"})`,
						"{{instance}} {{state}}",
					},
				},
			},
			{"TCP retransmits", "As a share of those sent.", "percentunit", []query{
				{rate("instance", "tcp_retransmitted_segments_total", "") + " / " +
					rate("instance", "tcp_out_segments_total", ""), "{{instance}}"},
			}},
			{"Listen-queue overflows", "Connections that found an accept queue full.", "cps", []query{
				{rate("instance", "tcp_listen_overflows_total", ""), "{{instance}}"},
			}},
		},
		check.Kernel: {
			{"CPU time", "In CPUs, by mode, idle left out.", "short", []query{
				{
					rate("instance, mode", "cpu_seconds_total", `,mode!~"idle|guest|guest_nice"`),
					"{{instance}} {{mode}}",
				},
			}},
			{"Run queue", "Above the number of CPUs, some wait.", "short", []query{
				{`perfdoctor_procs_running{` + host + `,target=~"(host)?"}`, "{{instance}} threads"},
				{`perfdoctor_cpus_online{` + host + `,target=~"(host)?"}`, "{{instance}} CPUs"},
			}},
			{"Available memory", "Without swapping.", "bytes", []query{
				{`perfdoctor_memory_available_bytes{` + host + `,target=~"(host)?"}`, "{{instance}}"},
			}},
		},
	}
}

// limitPanels are of what the targets may use, and of perfdoctor itself.
func limitPanels() map[check.Stage][]panel {
	return map[check.Stage][]panel{
		check.Limits: {
			{
				"CPU of the targets", "In CPUs: the control groups that the exporter watches, and the host's root.",
				"short",
				[]query{
					{
						"topk(20, " + rate("instance, cgroup", "cgroup_cpu_seconds_total", "") + ")",
						"{{instance}} {{cgroup}}",
					},
				},
			},
			{"Findings by stage", "The last window's.", "short", []query{
				{`sum by (stage) (perfdoctor_finding{` + host + `}) or vector(0)`, "{{stage}}"},
			}},
		},
		check.Runtime: {
			{
				"Checks that could not run", "A right, a kernel feature or a runtime is missing: their subject is " +
					"unknown.",
				"short",
				[]query{
					{
						`count by (instance) (perfdoctor_check_assessed{` + host + `,target="host"} == 0) or vector(0)`,
						"{{instance}}",
					},
				},
			},
		},
		check.Code: {
			{
				"CPU used by perfdoctor", "In CPUs; its BPF programs are in the time of whatever they ran in.",
				"short",
				[]query{
					{`rate(process_cpu_seconds_total{` + host + `}[$__rate_interval])`, "{{instance}}"},
				},
			},
			{
				"Memory used by perfdoctor", "Resident.", "bytes",
				[]query{{`process_resident_memory_bytes{` + host + `}`, "{{instance}}"}},
			},
			{"Failing collectors", "Those that this host cannot run are not among them.", "short", []query{
				{
					`sum by (instance, collector) (1 - perfdoctor_collector_success{` + host + `,target="host"})`,
					"{{instance}} {{collector}}",
				},
			}},
		},
	}
}

// rowTitle names a stage's row. The last two stages are the program's own: a recording says more of them than a chart.
var rowTitles = map[check.Stage]string{
	check.Path: "1 Path", check.Connections: "2 Connections", check.Kernel: "3 Kernel", check.Limits: "4 Limits",
	check.Runtime: "5 Runtime and code", check.Code: "perfdoctor itself",
}

// dashboard is the JSON of the dashboard, as Grafana imports it.
func dashboard(suite []*check.Check) ([]byte, error) {
	layout := &grid{}
	layout.add(map[string]any{
		"type": "table", "title": "Findings", "datasource": source,
		"description": "What the last window of each host says, in fix order. A check's name " +
			"leads to its page.",
		"targets": []any{target("A", query{expr: `max without (target) (perfdoctor_finding{` + host + `})`},
			"table")},
		"transformations": []any{map[string]any{"id": "organize", "options": map[string]any{
			"excludeByName": map[string]bool{"Time": true, "Value": true, "__name__": true, "job": true},
			"indexByName":   map[string]int{"severity": 0, "stage": 1, "check": 2, "subject": 3, "instance": 4},
		}}},
		"fieldConfig": map[string]any{"defaults": map[string]any{}, "overrides": []any{map[string]any{
			"matcher": map[string]string{"id": "byName", "options": "check"},
			"properties": []any{map[string]any{"id": "links", "value": []any{map[string]any{
				"title": "what it means", "url": pages + "${__value.raw}.md", "targetBlank": true,
			}}}},
		}}},
	}, 24, 9)
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

// source is the Prometheus that the reader chooses above the dashboard.
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
