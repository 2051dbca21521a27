package scenario

import (
	"slices"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// TestCPUOfTarget: user and system time of the target count. Without throughput there is no CPU time per request.
func TestCPUOfTarget(t *testing.T) {
	rec, err := recording.Read(fstest.MapFS{
		"meta.json": {Data: []byte(`{"schema": 1, "perfdoctor": "test", "started": "2026-11-20T10:00:00Z", "duration_seconds": 10,
			"interval_seconds": 1, "asked_seconds": 10, "target": {"kind": "process", "pid": 7, "name": "java"},
			"collectors": [{"name": "composed", "status": "ok", "metrics": ["process_cpu_seconds_total", "cgroup_cpu_throttled_seconds_total", "jvm_gc_seconds_total"]}], "cost": {}}`)},
		"samples.jsonl": {Data: []byte(`{"t":1.0,"m":{"process_cpu_seconds_total":[["7","java","user","target",50.0],["7","java","system","target",5.0]],"cgroup_cpu_throttled_seconds_total":[["/pod","0",1.0]],"jvm_gc_seconds_total":[["7","young",3.0],["7","full",0.5],["7","cycle",2.0]]}}
{"t":9.0,"m":{"process_cpu_seconds_total":[["7","java","user","target",55.0],["7","java","system","target",8.0]],"cgroup_cpu_throttled_seconds_total":[["/pod","0",3.0]],"jvm_gc_seconds_total":[["7","young",4.0],["7","full",1.5],["7","cycle",6.0]]}}
`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := measures{Throughput: 1000}
	m.ofTarget(rec)
	if got, want := m[TargetCPU], 0.001; got != want { // 8 s in 8 s, for 1000 a second
		t.Errorf("%v s a request, want %v", got, want)
	}
	if m[CPU] != 1 {
		t.Errorf("%v CPUs, want 1", m[CPU])
	}
	if m[Stopped] != 0.25 { // 2 s in 8 s
		t.Errorf("stopped for %v of the time, want 0.25", m[Stopped])
	}
	if m[Paused] != 0.25 { // 1 s and 1 s in 8 s, without the concurrent work of cycles
		t.Errorf("paused for %v of the time, want 0.25", m[Paused])
	}
	idle := measures{}
	idle.ofTarget(rec)
	if _, ok := idle[TargetCPU]; ok {
		t.Errorf("%v s a request without requests", idle[TargetCPU])
	}
}

// TestCPUOfProcesses: each process of the scenario has its own CPU time per unit of load, whichever of them is
// diagnosed.
func TestCPUOfProcesses(t *testing.T) {
	rec, err := recording.Read(fstest.MapFS{
		"meta.json": {Data: []byte(`{"schema": 1, "perfdoctor": "test", "started": "2026-11-20T10:00:00Z", "duration_seconds": 10,
			"interval_seconds": 1, "asked_seconds": 10, "target": {"kind": "process", "pid": 7, "name": "java"},
			"collectors": [{"name": "composed", "status": "ok", "metrics": ["process_cpu_seconds_total"]}], "cost": {}}`)},
		"samples.jsonl": {Data: []byte(`{"t":1.0,"m":{"process_cpu_seconds_total":[["7","java","user","target",50.0],["9","pd-answer","user","host",1.0]]}}
{"t":9.0,"m":{"process_cpu_seconds_total":[["7","java","user","target",58.0],["9","pd-answer","user","host",3.0]]}}
`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := measures{Throughput: 100}
	m.ofProcesses(rec, map[string]int{"booking": 7, "edge": 9, "idle": 11})
	want := measures{Throughput: 100, "cpu_per_request of booking": 0.01, "cpu_per_request of edge": 0.0025}
	if d := cmp.Diff(want, m); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	r := Result{Phases: []Phase{{Measured: m}}}
	if got := r.metrics(); !slices.Contains(got, "cpu_per_request of edge") || !slices.Contains(got, P99) {
		t.Errorf("metrics to print: %v", got)
	}
	if got := metricText("cpu_per_request of edge", 0.0025); got != "2.5 ms" {
		t.Errorf("%q, want 2.5 ms", got)
	}
}
