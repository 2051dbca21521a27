package jvm

import "strings"

// Agent is a native library in the process that watches it.
type Agent struct {
	Name     string // the product
	Path     string // as the target sees it
	Profiler bool   // it samples with signals or perf events, or may do so
	Own      bool   // perfdoctor placed it there
}

// knownAgents lists libraries by the beginning of their name. It marks the profilers that use the process-wide means
// of sampling (SIGPROF, SIGVTALRM, perf events, JVMTI's AsyncGetCallTrace).
var knownAgents = []struct {
	prefix   string
	name     string
	profiler bool
}{
	{"libasyncProfiler", "async-profiler", true}, // also in Pyroscope, Elastic APM, IntelliJ IDEA
	{"libjavaProfiler", "Datadog profiler", true},
	{"liblagent", "honest-profiler", true},
	{"libyjpagent", "YourKit", true},
	{"libjprofilerti", "JProfiler", true},
	{"libprofilerinterface", "NetBeans or VisualVM profiler", true},
	{"liboneagentjava", "Dynatrace OneAgent", true},
	{"libperfmap", "perf-map-agent", false},
	{"libjdwp", "debugger (JDWP)", false},
	{"libinstrument", "Java agent (java.lang.instrument)", false},
}

func agentsOf(files []string) []Agent {
	var found []Agent
	for _, file := range files {
		full := strings.TrimSuffix(file, deletedMark)
		name := baseName(file)
		if own, ok := ownFile(name); ok {
			// A library placed by perfdoctor is unlinked when the run ends and stays mapped: HotSpot never unloads one.
			found = append(found, Agent{Name: own, Path: full, Own: true})
			continue
		}
		for _, known := range knownAgents {
			if strings.HasPrefix(name, known.prefix) && strings.Contains(name, ".so") {
				found = append(found, Agent{Name: known.name, Path: full, Profiler: known.profiler})
				break
			}
		}
	}
	return found
}
