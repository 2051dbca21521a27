package usage

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/perfdoctor/perfdoctor/internal/recording"
)

// A process as one made-up reading has it. Times are in seconds.
type process struct {
	pid         int
	comm        string
	own, waited float64
	age         float64
	parent      int
}

// moment makes one line of a recording's samples.
func moment(at float64, member string, list []process, more ...string) string {
	var cpu, waited, ages, who []string
	for _, p := range list {
		cpu = append(cpu, fmt.Sprintf(`["%d",%q,"user",%q,%v]`, p.pid, p.comm, member, p.own))
		if p.waited > 0 {
			waited = append(waited, fmt.Sprintf(`["%d",%q,"user",%q,%v]`, p.pid, p.comm, member, p.waited))
		}
		if p.age > 0 {
			ages = append(ages, fmt.Sprintf(`["%d",%q,%v]`, p.pid, p.comm, p.age))
		}
		if p.parent > 0 {
			who = append(who, fmt.Sprintf(`["%d",%q,"%d","","","",1]`, p.pid, p.comm, p.parent))
		}
	}
	parts := more
	for _, m := range []struct {
		name string
		rows []string
	}{
		{"process_cpu_seconds_total", cpu},
		{"process_children_cpu_seconds_total", waited},
		{"process_age_seconds", ages},
		{"process_info", who},
	} {
		if len(m.rows) > 0 {
			parts = append(parts, fmt.Sprintf("%q:[%s]", m.name, strings.Join(m.rows, ",")))
		}
	}
	return fmt.Sprintf(`{"t":%v,"m":{%s}}`, at, strings.Join(parts, ","))
}

// record reads lines as a recording of a target of that kind.
func record(t *testing.T, kind string, lines ...string) *recording.Recording {
	t.Helper()
	meta := fmt.Sprintf(`{"schema":1,"perfdoctor":"test","started":"2026-11-20T10:00:00Z","duration_seconds":10,`+
		`"interval_seconds":1,"asked_seconds":10,"target":{"kind":%q},"collectors":[],"cost":{}}`, kind)
	rec, err := recording.Read(fstest.MapFS{
		"meta.json": {Data: []byte(meta)}, "samples.jsonl": {Data: []byte(strings.Join(lines, "\n") + "\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestTree: whatever comes and goes between the readings, the time of a tree is what its processes used.
func TestTree(t *testing.T) {
	for name, tc := range map[string]struct {
		lines        []string
		used, unread float64
	}{
		"two that stay": {
			[]string{
				moment(0, MemberTarget, []process{{pid: 1, own: 100}, {pid: 2, own: 7}}),
				moment(10, MemberTarget, []process{{pid: 1, own: 103}, {pid: 2, own: 9}}),
			}, 5, 0,
		},
		// A loop of a shell: 63 % of two CPUs for 10 s, and no reading saw a process twice.
		"a storm of processes that nobody reads": {
			[]string{
				moment(0, MemberTarget, []process{{pid: 1, own: 1, waited: 5, age: 50}}),
				moment(10, MemberTarget, []process{{pid: 1, own: 2.05, waited: 16.5, age: 60}}),
			}, 12.55, 11.5,
		},
		// Each was read twice, 1 s apart, and ran all that time. By rates, that is ten times as much.
		"one after the other": {
			[]string{
				moment(0, MemberTarget, []process{{pid: 1, age: 50}, {pid: 2, own: 0.5, age: 0.5}}),
				moment(1, MemberTarget, []process{{pid: 1, age: 51}, {pid: 2, own: 1.5, age: 1.5}}),
				moment(2, MemberTarget, []process{{pid: 1, waited: 1.6, age: 52}, {pid: 3, own: 0.4, age: 0.4}}),
				moment(3, MemberTarget, []process{{pid: 1, waited: 1.6, age: 53}, {pid: 3, own: 1.4, age: 1.4}}),
				moment(4, MemberTarget, []process{{pid: 1, waited: 3.5, age: 54}}),
			}, 3, 0.6, // 1.6 - 0.5 of pid 2, 1.9 of pid 3; 0.1 and 0.5 of it after their last readings
		},
		"a worker with a long past is reaped": {
			[]string{
				moment(0, MemberTarget, []process{{pid: 1, age: 900}, {pid: 2, own: 500, waited: 40, age: 800}}),
				moment(5, MemberTarget, []process{{pid: 1, age: 905}, {pid: 2, own: 502, waited: 41, age: 805}}),
				moment(10, MemberTarget, []process{{pid: 1, waited: 543.25, age: 910}}),
			}, 3.25, 1.25,
		},
		"a member that nobody of the tree waits for": {
			[]string{
				moment(0, MemberTarget, []process{{pid: 1, age: 900}, {pid: 2, own: 500, age: 800}}),
				moment(5, MemberTarget, []process{{pid: 1, age: 905}, {pid: 2, own: 502, age: 805}}),
				moment(10, MemberTarget, []process{{pid: 1, age: 910}}),
			}, 2, 0,
		},
		"one that joins with a past": {
			[]string{
				moment(0, MemberTarget, []process{{pid: 1, age: 900}}),
				moment(5, MemberTarget, []process{{pid: 1, age: 905}, {pid: 2, own: 500, age: 800}}),
				moment(10, MemberTarget, []process{{pid: 1, age: 910}, {pid: 2, own: 503, age: 805}}),
			}, 3, 0,
		},
		"exec changes the name": {
			[]string{
				moment(0, MemberTarget, []process{{pid: 1, age: 900}, {pid: 2, comm: "sh", own: 0.1, age: 1}}),
				moment(10, MemberTarget, []process{{pid: 1, age: 910}, {pid: 2, comm: "cc1", own: 8.1, age: 11}}),
			}, 8, 0,
		},
		"a pid is given again": {
			[]string{
				moment(0, MemberTarget, []process{{pid: 1, age: 900}, {pid: 2, own: 2, age: 800}}),
				moment(5, MemberTarget, []process{{pid: 1, waited: 2.5, age: 905}, {pid: 2, own: 3, age: 4}}),
				moment(10, MemberTarget, []process{{pid: 1, waited: 2.5, age: 910}, {pid: 2, own: 7, age: 9}}),
			}, 7.5, 0.5,
		},
		// A worker, and then the process that waited for it, ended between three readings. 1 s of the worker was not
		// read, nor 0.2 s of its parent.
		"one generation after the other": {
			[]string{
				moment(0, MemberTarget, []process{{pid: 1, age: 900}, {pid: 2, age: 800, parent: 1}, {
					pid: 3, own: 1, age: 1, parent: 2,
				}}),
				moment(10, MemberTarget, []process{{pid: 1, age: 910}, {pid: 2, age: 810, parent: 1}, {
					pid: 3, own: 9, age: 11, parent: 2,
				}}),
				moment(20, MemberTarget, []process{{pid: 1, age: 920}, {pid: 2, waited: 10, age: 820, parent: 1}}),
				moment(30, MemberTarget, []process{{pid: 1, waited: 10.2, age: 930}}),
			}, 9.2, 1.2,
		},
		"waited for at a later reading": {
			[]string{
				moment(0, MemberTarget, []process{{pid: 1, age: 900}, {pid: 2, own: 1, age: 800, parent: 1}}),
				moment(10, MemberTarget, []process{{pid: 1, age: 910}, {pid: 2, own: 9, age: 810, parent: 1}}),
				moment(20, MemberTarget, []process{{pid: 1, age: 920}}),
				moment(30, MemberTarget, []process{{pid: 1, waited: 9.5, age: 930}}),
			}, 8.5, 0.5,
		},
		"missing from one reading": {
			[]string{
				moment(0, MemberTarget, []process{{pid: 1, age: 900}, {pid: 2, own: 2, age: 800}}),
				moment(5, MemberTarget, []process{{pid: 1, age: 905}}),
				moment(10, MemberTarget, []process{{pid: 1, age: 910}, {pid: 2, own: 5, age: 810}}),
			}, 3, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree, ok := Of(record(t, "process", tc.lines...), MemberTarget)
			if !ok || !near(tree.Used.Sum(), tc.used) || !near(tree.Unread.Sum(), tc.unread) {
				t.Fatalf("%v: %+v, want %v used and %v of it unread", ok, tree, tc.used, tc.unread)
			}
			if last := tree.Points[len(tree.Points)-1].Value; !near(last, tc.used) || tree.Points[0].Value != 0 {
				t.Errorf("points %v", tree.Points)
			}
		})
	}
	if _, ok := Of(record(t, "process", moment(0, MemberTarget, []process{{pid: 1}})), MemberTarget); ok {
		t.Error("an account of one reading")
	}
}

// TestChildren: the CPU time of an ended process belongs to the parent that waited for it, less what had been read of
// the process.
func TestChildren(t *testing.T) {
	rec := record(t, "host",
		moment(0, MemberHost, []process{
			{pid: 1, comm: "init", waited: 1000, parent: 0},
			{pid: 5, comm: "make", waited: 3, parent: 1},
			{pid: 6, comm: "sh", own: 0.25, waited: 0.5, parent: 5},
			{pid: 7, comm: "cc1", own: 2, parent: 6},
		}),
		moment(10, MemberHost, []process{
			{pid: 1, comm: "init", waited: 1000, parent: 0}, {pid: 5, comm: "make", waited: 13, parent: 1},
		}))
	tree, ok := Of(rec, MemberHost)
	if !ok || !near(tree.Unread.Sum(), 7.25) || !near(tree.Used.Sum(), 7.25) {
		t.Fatalf("%v: %+v", ok, tree)
	}
	for _, p := range tree.Processes {
		want := map[string]float64{"make": 7.25}[p.Comm]
		if !near(p.Children, want) || p.Ended != (p.PID > 5) {
			t.Errorf("%+v, want %v of children", p, want)
		}
	}
}

// TestLostToNobody: a process whose parent ended before it subtracts nothing from what others waited for.
func TestLostToNobody(t *testing.T) {
	rec := record(t, "host",
		moment(0, MemberHost, []process{
			{pid: 1, comm: "init", waited: 10},
			{pid: 5, comm: "sh", waited: 3, parent: 1},
			{pid: 6, comm: "daemon", own: 500, parent: 1},
		}),
		moment(10, MemberHost, []process{
			{pid: 1, comm: "init", waited: 10}, {pid: 5, comm: "sh", waited: 11, parent: 1},
		}))
	if tree, ok := Of(rec, MemberHost); !ok || !near(tree.Unread.Sum(), 8) {
		t.Errorf("%v: %+v, want 8 s of the shell's children", ok, tree)
	}
}

// cpus is a reading of /proc/stat of two CPUs that idled and worked for so long each.
func cpus(idle, user float64) string {
	return fmt.Sprintf(`"cpu_seconds_total":[["0","user",%[2]v],["0","idle",%[1]v],["1","user",%[2]v],["1","idle",%[1]v]]`,
		idle, user)
}

// TestSources: for a group, its own counter is trusted, and nobody used more than the machine.
func TestSources(t *testing.T) {
	group := func(n float64) string { return fmt.Sprintf(`"cgroup_cpu_seconds_total":[["/a","0",%v]]`, n) }
	for name, tc := range map[string]struct {
		kind        string
		own, group  float64
		idle        float64 // of each CPU
		want        float64
		source, say string
	}{
		"agree":              {"cgroup", 4, 4.1, 2, 4.1, byGroup, ""},
		"nobody waited":      {"cgroup", 4, 9, 2, 9, byGroup, "its control group counted 9 s, its processes"},
		"group of a process": {"process", 4, 9, 2, 4, byProcesses, ""},
		"more than there is": {"process", 25.1, 0, 0.5, 19, byMachine, "counted 19 s, its processes"},
	} {
		t.Run(name, func(t *testing.T) {
			rec := record(t, tc.kind,
				moment(0, MemberTarget, []process{{pid: 1, own: 1}}, cpus(0, 0), group(0)),
				moment(10, MemberTarget, []process{{pid: 1, own: 1 + tc.own}}, cpus(tc.idle, 10-tc.idle),
					group(tc.group)))
			got, ok := OfTarget(rec)
			if !ok || !near(got.Used.Sum(), tc.want) || got.Source != tc.source || got.Window != 10 {
				t.Fatalf("%v: %+v", ok, got)
			}
			notes := strings.Join(got.Notes(0), "\n")
			if (notes == "") != (tc.say == "") || !strings.Contains(notes, tc.say) {
				t.Errorf("notes %q, want %q", notes, tc.say)
			}
		})
	}
}

// TestMachine: CPU time that was not idle was busy, whatever the ticks say.
func TestMachine(t *testing.T) {
	m, ok := OfMachine(record(t, "host", `{"t":0,"m":{`+cpus(0, 0)+`}}`, `{"t":10,"m":{`+cpus(4, 5)+`}}`))
	if !ok || m.CPUs != 2 || !near(m.Busy, 1.2) || !near(m.Ticks, 1) || m.Window != 10 {
		t.Errorf("%v: %+v", ok, m)
	}
	if _, ok := OfMachine(record(t, "host", `{"t":0,"m":{`+cpus(0, 0)+`}}`)); ok {
		t.Error("a machine of one reading")
	}
}
