package kernel

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// A running process: what it used and waited in ten seconds.
type running struct {
	pid         int
	comm        string
	used, kids  float64
	waited      float64
	delayUnseen bool
}

// machine makes a recording of two CPUs. Each of them idled for so long in ten seconds.
func machine(t *testing.T, kind string, idle, forks float64, list ...running) *recording.Recording {
	t.Helper()
	line := func(at float64) string {
		cpu, kids, delay := "", "", ""
		member := map[string]string{"host": "host"}[kind]
		if member == "" {
			member = "target"
		}
		share := at / 10
		for i, p := range list {
			if i > 0 {
				cpu, kids = cpu+",", kids+","
			}
			cpu += fmt.Sprintf(`["%d",%q,"user",%q,%v]`, p.pid, p.comm, member, 50+p.used*share)
			kids += fmt.Sprintf(`["%d",%q,"user",%q,%v]`, p.pid, p.comm, member, 50+p.kids*share)
			if !p.delayUnseen {
				if delay != "" {
					delay += ","
				}
				delay += fmt.Sprintf(`["%d",%q,%v]`, p.pid, p.comm, 50+p.waited*share)
			}
		}
		return fmt.Sprintf(`{"t":%v,"m":{"cpu_seconds_total":[["0","idle",%[2]v],["0","user",%[3]v],["1","idle",%[2]v],`+
			`["1","user",%[3]v]],"forks_total":[[%[4]v]],"process_cpu_seconds_total":[%[5]s],`+
			`"process_children_cpu_seconds_total":[%[6]s],"host_process_run_delay_seconds":[%[7]s]}}`+"\n",
			at, idle*share, (10-idle)*share, forks*share, cpu, kids, delay)
	}
	meta := fmt.Sprintf(`{"schema":1,"perfdoctor":"test","started":"2026-11-20T10:00:00Z","duration_seconds":10,`+
		`"interval_seconds":1,"asked_seconds":10,"target":{"kind":%q,"pid":7,"name":"sh"},"collectors":[],"cost":{}}`, kind)
	rec, err := recording.Read(fstest.MapFS{
		"meta.json": {Data: []byte(meta)}, "samples.jsonl": {Data: []byte(line(0) + line(10))},
	})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// says returns severity and subject of a check's only finding, "" if there is none.
func says(t *testing.T, c *check.Check, rec *recording.Recording) string {
	t.Helper()
	res := check.Run(rec, []*check.Check{c}, check.Options{})
	switch len(res.Findings) {
	case 0:
		return string(res.Outcomes[0].State)
	case 1:
		return res.Findings[0].Severity.String() + " " + res.Findings[0].Subject.String()
	}
	t.Fatalf("%d findings", len(res.Findings))
	return ""
}

// TestHog: to hold the CPUs is a fact. It is a fault if others suffer.
func TestHog(t *testing.T) {
	server := running{pid: 9, comm: "api", used: 4, waited: 6}
	for name, tc := range map[string]struct {
		kind string
		idle float64
		list []running
		want string
	}{
		"others wait": {
			"host", 0.2, []running{{pid: 7, comm: "sh", used: 15}, server}, "warning pid 7 (sh)",
		},
		"processes of one name": {
			"host", 0.2,
			[]running{{pid: 7, comm: "sh", used: 7}, {pid: 8, comm: "sh", used: 8}, server},
			"warning pid 8 (sh)",
		},
		"its own threads wait": {
			"host", 0.2, []running{{pid: 7, comm: "make", used: 19, waited: 60}}, "info pid 7 (make)",
		},
		"idle CPUs": {
			"host", 4,
			[]running{{pid: 7, comm: "zstd", used: 10}, {pid: 9, comm: "api", used: 1, waited: 6}},
			"info pid 7 (zstd)",
		},
		"a benchmark and its server": {
			"host", 0.1, []running{
				{pid: 7, comm: "wrk", used: 9.7, waited: 5}, {pid: 9, comm: "nginx", used: 9.7, waited: 5},
			}, "info pid 7 (wrk)",
		},
		"waits unknown": {
			"host", 0.2, []running{
				{pid: 7, comm: "sh", used: 15, delayUnseen: true}, {pid: 9, comm: "api", used: 4, delayUnseen: true},
			}, "info pid 7 (sh)",
		},
		"one CPU of two, and nobody waits": {
			"host", 0.6,
			[]running{{pid: 7, comm: "sh", used: 9.5}, {pid: 9, comm: "api", used: 9.2, waited: 1}},
			"info pid 7 (sh)",
		},
		"two that only together have most, beside an idle CPU": {
			"host", 2.1,
			[]running{{pid: 7, comm: "sh", used: 8.8}, {pid: 9, comm: "api", used: 7, waited: 1}},
			"fine",
		},
		"others wait for two that have the CPUs together": {
			"host", 0.1, []running{
				{pid: 7, comm: "perl", used: 8}, {pid: 8, comm: "python3", used: 8}, server,
			}, "warning pid 7 (perl)",
		},
		"a target": {"process", 0.2, []running{{pid: 7, comm: "sh", used: 15}}, "not assessed"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := says(t, cpuHog, machine(t, tc.kind, tc.idle, 10, tc.list...)); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// TestForks: many processes that do little are a storm, whatever the target is.
func TestForks(t *testing.T) {
	for name, tc := range map[string]struct {
		kind  string
		forks float64
		kids  float64
		want  string
	}{
		"a loop of a shell":   {"host", 10000, 10, "warning pid 7 (sh)"},
		"few processes":       {"host", 900, 10, "fine"},
		"a build":             {"host", 1500, 18, "fine"},
		"threads, no process": {"host", 10000, 0, "fine"},
	} {
		t.Run(name, func(t *testing.T) {
			rec := machine(t, tc.kind, 1, tc.forks, running{pid: 7, comm: "sh", used: 1, kids: tc.kids})
			if got := says(t, forkStorm, rec); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}
