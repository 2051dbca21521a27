package evidence

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// consumed reads a recording of ten seconds with a first and a last line.
func consumed(t *testing.T, target, first, last string) *recording.Recording {
	t.Helper()
	meta := `{"schema":1,"perfdoctor":"test","started":"2026-11-20T10:00:00Z","duration_seconds":10,` +
		`"interval_seconds":1,"asked_seconds":10,"target":` + target + `,"collectors":[],"cost":{}}`
	rec, err := recording.Read(fstest.MapFS{
		"meta.json":     {Data: []byte(meta)},
		"samples.jsonl": {Data: fmt.Appendf(nil, "{\"t\":0,\"m\":{%s}}\n{\"t\":10,\"m\":{%s}}\n", first, last)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// profiled adds samples of all CPUs: seconds by process and program.
func profiled(rec *recording.Recording, seconds map[stacks.Thread]float64) *recording.Recording {
	b := stacks.NewBuilder(stacks.HostCPU)
	for thread, n := range seconds {
		b.Add(stacks.Sample{
			Stack: []int{b.Frame(stacks.Frame{Name: "work"})}, Thread: b.Thread(thread), Count: int64(100 * n),
			Value: int64(n * 1e9),
		})
	}
	p := b.Profile()
	p.Duration = 10e9
	with := recording.NewBuilder()
	a := with.Appender()
	a.Profile(p)
	a.Commit()
	return rec.WithProfiles(0, with.Done(recording.Meta{Duration: 10}))
}

const wholeHost = `{"kind":"host"}`

// twoCPUs is a reading of /proc/stat in which each of two CPUs had idled for so long and served interrupts.
func twoCPUs(idle, softirq float64) string {
	var rows []string
	for cpu := range 2 {
		rows = append(rows, fmt.Sprintf(`["%d","idle",%v],["%d","softirq",%v]`, cpu, idle, cpu, softirq))
	}
	return `"cpu_seconds_total":[` + strings.Join(rows, ",") + `]`
}

// rounded removes rounding noise from consumers.
func rounded() cmp.Option { return cmpopts.EquateApprox(0, 1e-9) }

func addsUp(t *testing.T, c *Consumption) {
	t.Helper()
	if sum := c.sum() + c.Interrupts + c.Unaccounted; math.Abs(sum-c.Busy) > 1e-9 {
		t.Errorf("the parts add up to %v of %v", sum, c.Busy)
	}
}

// TestConsumers: each process with what is known of it, and the rest of the busy time with its name.
func TestConsumers(t *testing.T) {
	rec := consumed(t, wholeHost,
		twoCPUs(0, 0)+`,"process_cpu_seconds_total":[["7","python3","user","host",5],["8","sshd","user","host",1]],`+
			`"host_process_io_bytes_total":[["7","python3","read",10]],`+
			`"host_process_run_delay_seconds":[["7","python3",4],["8","sshd",9]],"forks_total":[[100]]`,
		twoCPUs(4, 0.5)+`,"process_cpu_seconds_total":[["7","python3","user","host",14.5],["8","sshd","user","host",1]],`+
			`"process_info":[["7","python3","1","/app.slice","","app",1]],"process_age_seconds":[["7","python3",3600]],`+
			`"host_process_resident_bytes":[["7","python3",1048576],["8","sshd",4096]],`+
			`"host_process_io_bytes_total":[["7","python3","read",30]],`+
			`"host_process_run_delay_seconds":[["7","python3",5.5],["8","sshd",2]],"forks_total":[[150]]`)
	c, ok := Consumers(rec)
	if !ok {
		t.Fatal("no consumers")
	}
	want := &Consumption{
		Window: 10, CPUs: 2, Busy: 1.2, Interrupts: 0.1, Unaccounted: 0.15, Created: 5, Delayed: 1.5,
		List: []Consumer{
			{
				Command: "python3", PID: 7, User: "app", Cgroup: "/app.slice", Age: 3600, CPUs: 0.95, Memory: 1 << 20,
				Read: 20, Delayed: 1.5,
			},
			{Command: "sshd", PID: 8, Memory: 4096},
		},
		Notes: []string{
			"the CPUs' ticks count 0.1 CPUs of work, and 1.2 CPUs did not idle: 1.1 CPUs apart; the idle time is " +
				"believed, which is measured",
		},
	}
	if diff := cmp.Diff(want, c, rounded()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	addsUp(t, c)
}

// storm is a shell that starts one process after another: 12 s of CPU time that nobody reads.
func storm(t *testing.T) *recording.Recording {
	t.Helper()
	return consumed(t, wholeHost,
		twoCPUs(0, 0)+`,"process_cpu_seconds_total":[["7","sh","user","host",0],["9","true","user","host",0.01]],`+
			`"process_children_cpu_seconds_total":[["7","sh","system","host",3]],`+
			`"process_info":[["7","sh","1","","","",1],["9","true","7","","","",1]]`,
		twoCPUs(3, 0)+`,"process_cpu_seconds_total":[["7","sh","user","host",1]],`+
			`"process_children_cpu_seconds_total":[["7","sh","system","host",13.01]],`+
			`"process_info":[["7","sh","1","","","",1]]`)
}

// TestShortLived: their parent shows how much CPU time it was, and samples show which programs.
func TestShortLived(t *testing.T) {
	for name, tc := range map[string]struct {
		samples map[stacks.Thread]float64
		want    []Consumer
		left    float64
	}{
		"parents alone": {
			nil,
			[]Consumer{{ShortLived: true, Parent: "sh", ParentPID: 7, CPUs: 1}, {Command: "sh", PID: 7, CPUs: 0.1}},
			0.3,
		},
		"fewer samples than the parent tells": {
			map[stacks.Thread]float64{{ID: 20, Name: "true"}: 3, {ID: 21, Name: "ls"}: 1, {ID: 7, Name: "sh"}: 1},
			[]Consumer{
				{Command: "true", ShortLived: true, Parent: "sh", ParentPID: 7, CPUs: 0.75},
				{Command: "ls", ShortLived: true, CPUs: 0.25},
				{Command: "sh", PID: 7, CPUs: 0.1},
			},
			0.3,
		},
		"children that nobody waits for": {
			map[stacks.Thread]float64{{ID: 20, Name: "true"}: 9, {ID: 9, Name: "true"}: 3, {ID: 7, Name: "sh"}: 1},
			[]Consumer{
				{Command: "true", ShortLived: true, Parent: "sh", ParentPID: 7, CPUs: 1.2},
				{Command: "sh", PID: 7, CPUs: 0.1},
			},
			0.1,
		},
		"more samples than there was time": {
			map[stacks.Thread]float64{{ID: 20, Name: "true"}: 15},
			[]Consumer{
				{Command: "true", ShortLived: true, Parent: "sh", ParentPID: 7, CPUs: 1.3},
				{Command: "sh", PID: 7, CPUs: 0.1},
			},
			0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rec := storm(t)
			if tc.samples != nil {
				rec = profiled(rec, tc.samples)
			}
			c, ok := Consumers(rec)
			if !ok {
				t.Fatal("no consumers")
			}
			if diff := cmp.Diff(tc.want, c.List, rounded()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if math.Abs(c.Unaccounted-tc.left) > 1e-9 {
				t.Errorf("%v CPUs unaccounted, want %v", c.Unaccounted, tc.left)
			}
			addsUp(t, c)
		})
	}
}

// TestOthersOfTarget: beside a target are the host's other processes, and the time that nobody accounts for.
func TestOthersOfTarget(t *testing.T) {
	c, ok := Consumers(consumed(t, `{"kind":"process","pid":7,"name":"app"}`,
		twoCPUs(0, 0)+`,"process_cpu_seconds_total":[["7","app","user","target",5],["8","other","user","host",1]]`,
		twoCPUs(4, 0)+`,"process_cpu_seconds_total":[["7","app","user","target",14],["8","other","user","host",2]]`))
	if !ok || len(c.List) != 2 || !c.List[0].Target || c.List[0].Command != "app" || math.Abs(c.Others()-0.3) > 1e-9 {
		t.Errorf("%v: %+v", ok, c)
	}
	addsUp(t, c)
}

// TestCountsApart: if processes report more time than the CPUs were busy, the result says so.
func TestCountsApart(t *testing.T) {
	c, ok := Consumers(consumed(t, wholeHost,
		twoCPUs(0, 0)+`,"process_cpu_seconds_total":[["7","app","user","host",5]]`,
		twoCPUs(9, 0)+`,"process_cpu_seconds_total":[["7","app","user","host",10]]`))
	if !ok || c.Unaccounted != 0 || !strings.Contains(strings.Join(c.Notes, "\n"),
		"the processes counted 0.5 CPUs and the CPUs were busy for 0.2 CPUs: 0.3 CPUs apart") {
		t.Errorf("%v: %+v", ok, c)
	}
	if _, ok := Consumers(consumed(t, wholeHost, twoCPUs(0, 0), twoCPUs(9, 0))); ok {
		t.Error("consumers without processes")
	}
}

func TestAgeText(t *testing.T) {
	for seconds, want := range map[float64]string{
		0.4: "0 s", 59.9: "59 s", 60: "1 min", 61: "1 min 1 s", 3600: "1 h", 11000: "3 h 3 min", 90000: "1 d 1 h",
	} {
		if got := AgeText(seconds); got != want {
			t.Errorf("%v s: %q, want %q", seconds, got, want)
		}
	}
}
