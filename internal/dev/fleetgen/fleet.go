package main

import (
	"fmt"

	"github.com/perfdoctor/perfdoctor/internal/check"
)

// Constants of the rules across hosts. No check on a single host has them.
const (
	// fewestPeers is how many peers a meaningful median needs: with two, both are equally far from it.
	fewestPeers = 3
	// softirqFactor is how far above the median of its peers a node is remarkable. An even balancer leaves a few
	// percent between nodes. One flow that sticks to a node, or a NAT that only this node does, doubles its share.
	softirqFactor = 2
	// ipcFall is the remaining share of yesterday's instructions per cycle. The mix of requests moves it by some
	// percent from one day to the next.
	ipcFall = 0.8
	// staleWindows is how many windows may be missing: on a busy host one is late, but four are not coming.
	staleWindows = 4
)

// fleetRules returns rules about what one host cannot see, and about the exporters themselves.
func fleetRules(suite []*check.Check) (ruleFile, error) {
	t := map[string]float64{}
	for _, of := range [][2]string{
		{"cpu-in-softirq", "level"},
		{"connection-skew", "connections"},
		{"connection-skew", "factor"},
	} {
		n, err := threshold(suite, of[0], of[1])
		if err != nil {
			return ruleFile{}, err
		}
		t[of[0]+"."+of[1]] = n
	}
	return ruleFile{Groups: []ruleGroup{
		{Name: "perfdoctor-fleet-softirq", Rules: softirqRules(t["cpu-in-softirq.level"])},
		{Name: "perfdoctor-fleet-skew", Rules: skewRules(t["connection-skew.connections"],
			t["connection-skew.factor"])},
		{Name: "perfdoctor-fleet-ipc", Rules: ipcRules()},
		{Name: "perfdoctor-fleet-findings", Rules: findingRules()},
		{Name: "perfdoctor-itself", Rules: ownRules()},
	}}, nil
}

func page(check string) string { return pages + check + ".md" }

// softirqRules compares one node's share of CPU time in softirq with the median of its job.
func softirqRules(level float64) []rule {
	return []rule{
		{
			Record: "instance:perfdoctor_softirq_cpu:ratio_rate5m",
			Expr: `sum by (job, instance) (rate(perfdoctor_cpu_seconds_total{mode="softirq"}[5m]))
/
sum by (job, instance) (rate(perfdoctor_cpu_seconds_total{mode!~"guest|guest_nice"}[5m]))`, // user includes guest time
		},
		{
			Alert: "PerfdoctorSoftirqUnlikePeers",
			Expr: fmt.Sprintf(`instance:perfdoctor_softirq_cpu:ratio_rate5m > %v
and
instance:perfdoctor_softirq_cpu:ratio_rate5m
  > on (job) group_left () %d * quantile by (job) (0.5, instance:perfdoctor_softirq_cpu:ratio_rate5m)
and on (job)
count by (job) (instance:perfdoctor_softirq_cpu:ratio_rate5m) >= %d`, level, softirqFactor, fewestPeers),
			For:    "10m", // twice the 5 min of the rate: by then one burst is out of it
			Labels: map[string]string{"severity": "warning", "stage": check.Path.String()},
			Annotations: map[string]string{
				"summary": "{{ $labels.instance }} spends {{ $value | humanizePercentage }} of its CPU time in " +
					"softirq, " +
					"over twice the median of its peers.",
				"description": "The nodes of job {{ $labels.job }} are taken for peers. One that handles more " +
					"packets " +
					"than they do " +
					"has a flow that sticks to it, does NAT for others, or has its interrupts on one CPU: see " +
					"`perfdoctor diagnose` there.",
				"runbook_url": page("cpu-in-softirq"),
			},
		},
	}
}

// skewRules compares the connections of one pod with those of the other pods of its service. Each host knows the
// connections that its own processes opened. Their sum over all hosts, by destination, is what each pod has. A pod
// without connections is in no host's list, but kube-state-metrics knows that it exists.
func skewRules(connections, factor float64) []rule {
	return []rule{
		{
			Record: "endpoint:perfdoctor_connections:sum",
			Expr: `sum by (namespace, endpoint, ip, port_number) (
  label_replace(
    label_replace(
      sum by (destination) (max by (instance, source, destination) (perfdoctor_tcp_destination_sockets{state="ESTABLISHED"})),
      "ip", "$1", "destination", "\\[?(.+?)\\]?:[0-9]+"),
    "port_number", "$1", "destination", ".+:([0-9]+)")
  * on (ip, port_number) group_right ()
  max by (namespace, endpoint, ip, port_number) (kube_endpoint_address{ready="true"})
)
or
0 * max by (namespace, endpoint, ip, port_number) (kube_endpoint_address{ready="true"})`,
		},
		{
			Alert: "PerfdoctorConnectionSkewBetweenPods",
			Expr: fmt.Sprintf(`endpoint:perfdoctor_connections:sum
  > on (namespace, endpoint, port_number) group_left ()
  %v * avg by (namespace, endpoint, port_number) (endpoint:perfdoctor_connections:sum)
and on (namespace, endpoint, port_number)
sum by (namespace, endpoint, port_number) (endpoint:perfdoctor_connections:sum) >= %v
and on (namespace, endpoint, port_number)
count by (namespace, endpoint, port_number) (endpoint:perfdoctor_connections:sum) >= %d`, factor, connections, fewestPeers),
			For:    "10m", // a deployment moves connections for minutes; a skew stays for hours
			Labels: map[string]string{"severity": "warning", "stage": check.Connections.String()},
			Annotations: map[string]string{
				"summary": "{{ $labels.ip }}:{{ $labels.port_number }} has {{ $value }} connections, " +
					"over twice the mean of the pods of {{ $labels.namespace }}/{{ $labels.endpoint }}.",
				"description": "Long-lived connections stay where they were made: a pod added or restarted " +
					"later gets " +
					"none, and one does " +
					"the work of several. Give connections a maximal age, or balance by request. Hosts without " +
					"perfdoctor, and clients " +
					"from outside, are not counted.",
				"runbook_url": page("connection-skew"),
			},
		},
	}
}

// ipcRules compares the instructions per cycle of a container's image with those of its image a day before.
func ipcRules() []rule {
	byImage := func(event string) string {
		return fmt.Sprintf(`sum by (namespace, container, image) (
  label_replace(label_replace(label_replace(
    sum by (target) (rate(perfdoctor_perf_events_total{scope="target",event=%q}[15m])),
    "namespace", "$1", "target", %[2]q), "pod", "$2", "target", %[2]q), "container", "$3", "target", %[2]q)
  * on (namespace, pod, container) group_left (image)
  max by (namespace, pod, container, image) (kube_pod_container_info)
)`, event, podTarget)
	}
	return []rule{
		{Record: "image:perfdoctor_ipc:ratio_rate15m", Expr: byImage("instructions") + "\n/\n" + byImage("cycles")},
		{
			Alert: "PerfdoctorIpcFellWithVersion",
			Expr: fmt.Sprintf(`(
  image:perfdoctor_ipc:ratio_rate15m
    < on (namespace, container) group_left ()
  %v * max by (namespace, container) (image:perfdoctor_ipc:ratio_rate15m offset 1d)
)
unless
image:perfdoctor_ipc:ratio_rate15m offset 1d`, ipcFall),
			For:    "30m", // caches and compilers of a new version warm up; twice the 15 min of the rate
			Labels: map[string]string{"severity": "info", "stage": check.Code.String()},
			Annotations: map[string]string{
				"summary": "{{ $labels.image }} does {{ printf `%.2f` $value }} instructions per cycle, " +
					"over a fifth less than {{ $labels.namespace }}/{{ $labels.container }} did a day before.",
				"description": "A version that waits more for memory does less per cycle at the same CPU use. " +
					"It is a " +
					"fact, no harm by " +
					"itself: compare recordings of both versions with `perfdoctor compare`. It needs exporters with " +
					"--deep, where the " +
					"CPU's counters can be had.",
				"runbook_url": page("ipc-low"),
			},
		},
	}
}

// podTarget extracts namespace, pod and container from the name of a pod's window.
const podTarget = `pod ([^/]+)/([^/]+)/(.+)`

// findingRules counts the findings of each kind that a job had. It is for long ranges, in the dashboard and in a
// capacity plan.
func findingRules() []rule {
	return []rule{{
		Record: "job:perfdoctor_findings:count",
		Expr:   `count by (job, check, stage, severity) (max without (target) (perfdoctor_finding))`,
	}}
}

// ownRules returns rules about the exporters: a doctor that does not look finds nothing.
func ownRules() []rule {
	return []rule{
		{
			Alert: "PerfdoctorStale",
			Expr: fmt.Sprintf(`time() - max by (job, instance) (perfdoctor_window_end_timestamp_seconds)
  > %d * max by (job, instance) (perfdoctor_window_seconds)`, staleWindows),
			For:    "2m",
			Labels: map[string]string{"severity": "warning"},
			Annotations: map[string]string{
				"summary": "perfdoctor on {{ $labels.instance }} has finished no window for {{ $value | " +
					"humanizeDuration }}.",
				"description": "It is scraped, but does not look any more, so that it finds nothing. See its log.",
			},
		},
		{
			Alert:  "PerfdoctorCollectorFails",
			Expr:   `max without (target) (perfdoctor_collector_success{target="host"} == 0 unless perfdoctor_collector_unsupported == 1)`,
			For:    "10m",
			Labels: map[string]string{"severity": "info"},
			Annotations: map[string]string{
				"summary": "Collector {{ $labels.collector }} of perfdoctor on {{ $labels.instance }} fails.",
				"description": "Checks that need it are not assessed. `perfdoctor preflight` there says why; " +
					"a right that is missing is named.",
			},
		},
		{
			Alert:  "PerfdoctorFindingsDropped",
			Expr:   `increase(perfdoctor_findings_dropped_total[15m]) > 0`,
			Labels: map[string]string{"severity": "info"},
			Annotations: map[string]string{
				"summary":     "perfdoctor on {{ $labels.instance }} had more findings than --finding.max.",
				"description": "The rest is not in its metrics, and no alert can see it.",
			},
		},
	}
}
