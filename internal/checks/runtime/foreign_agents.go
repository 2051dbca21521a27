package runtime

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/evidence"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric"
	"github.com/perfdoctor/perfdoctor/internal/recording/metric/quantity"
)

var paramAgentCPU = &check.Param{
	Name: "cpu-share", Default: 0.1, Unit: quantity.Ratio,
	Why: "vendors promise 1 to 3 %; a tenth of the process's CPU time is a service of its own",
}

// agentThreads are prefixes of the full names of threads that agents start.
var agentThreads = []string{
	"dd-", "datadog", "BatchSpanProcessor", "OpenTelemetry", "otel", "PeriodicMetricReader", "OkHttp https://otlp",
	"elastic-apm", "apm-",
	"New Relic", "ruxit", "OneAgent", "Dynatrace", "AppDynamics", "AD " +
		"Thread", "SkywalkingAgent", "Pinpoint", "glowroot", "Glowroot", "jmx_prometheus",
	"YJPAgent", "YourKit", "_jprofiler", "JProfiler", "JDWP", "async-profiler", "pyroscope", "contrast", "sealights",
}

var foreignAgents = &check.Check{
	Name:  "foreign-agents",
	Stage: check.Runtime,
	Only:  evidence.OnlyJVM,
	Doc: `Agents, profilers and debuggers run inside the JVM

An agent rewrites classes while they are loaded, samples threads or counts
calls. Every request pays for it, and every profile shows it; a second profiler
disturbs the first.

Measured: what the JVM lists as its agents (before JDK 21: its options) and the
libraries of known ones that are mapped; CPU time of threads with the names of
known agents. It is a warning when these use a tenth of the process's CPU time;
their work on the program's own threads is not included.

Fix: measure once without it. Risk: its monitoring is missing meanwhile.
Disproof: the load costs the same without the agent.`,
	URL:    "https://docs.oracle.com/en/java/javase/17/docs/api/java.instrument/java/lang/instrument/package-summary.html",
	Needs:  []metric.Metric{metric.JVMInfo, metric.JVMAgent},
	Uses:   []metric.Metric{metric.JVMThread, metric.ThreadCPU, metric.ProcessCPU, metric.JVMCPUs},
	Params: []*check.Param{paramAgentCPU},
	Beyond: "the same load without the agents",
	Run: func(p *check.Pass) error {
		return evidence.EachJVM(p, func(pid string) bool { return runForeignAgents(p, pid) })
	},
}

func runForeignAgents(p *check.Pass, pid string) bool {
	list := p.Info(metric.JVMAgent, "pid", pid)
	p.Read(quantity.Of("agents", float64(len(list)), "agents"))
	if len(list) == 0 {
		return len(p.Gauge(metric.JVMCPUs, "pid", pid)) > 0
	}
	var names []string
	for _, s := range list {
		names = append(names, fmt.Sprintf("%s (%s)", s.Label("name"), s.Label("kind")))
	}
	f := check.Finding{
		Subject: evidence.JVMSubject(p, pid), Severity: check.Info,
		Summary: "In the JVM: " + strings.Join(names, ", ") + ".",
		Remedies: []check.Remedy{{
			Action: "Measure once without them, under the same load.",
			Risk:   "their monitoring is missing meanwhile; a restart",
			Effect: "what they cost on the program's own threads shows as the difference",
		}},
		Disproof: "The same load costs the same without them.",
	}
	cpu, ok := agentCPU(p, pid)
	all, ok2 := evidence.ProcessCPU(p, pid)
	if ok && ok2 && cpu.Number() > 0 {
		share := cpu.Per(all).Named("their threads' share of the CPU time")
		f.Evidence = append(f.Evidence, share)
		if share.AtLeast(p.Param(paramAgentCPU)) {
			f.Severity = check.Warning
			f.Summary += fmt.Sprintf(" Their threads use %s of its CPU time.", share.Text())
		}
	}
	p.Report(f)
	return true
}

func agentCPU(p *check.Pass, pid string) (quantity.Value, bool) {
	total, found := 0.0, false
	for _, s := range p.Info(metric.JVMThread, "pid", pid) {
		known := slices.ContainsFunc(agentThreads, func(x string) bool { return strings.HasPrefix(s.Label("name"), x) })
		n, span, ok := evidence.JVMRise(p, metric.ThreadCPU, "pid", pid, "tid", s.Label("tid"))
		found = found || ok
		if known && ok {
			total += n / span
		}
	}
	return quantity.Of("CPU of agents' threads", total, quantity.CPUs), found
}
