package hotcode

import (
	"math"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// TestTreeOfProcesses: the samples of a target are compared with all that its tree used, even if most of it belongs to
// processes that nobody read. A process that was read twice ran for one second between the readings. Its rate, over the
// whole window, would make 10 s.
func TestTreeOfProcesses(t *testing.T) {
	rec, err := recording.Read(fstest.MapFS{
		"meta.json": {Data: []byte(`{"schema":1,"perfdoctor":"test","started":"2026-11-20T10:00:00Z",` +
			`"duration_seconds":10,"interval_seconds":1,"asked_seconds":10,` +
			`"target":{"kind":"process","pid":7,"name":"sh"},"collectors":[],"cost":{}}`)},
		"samples.jsonl": {Data: []byte(
			`{"t":0,"m":{"process_cpu_seconds_total":[["7","sh","user","target",1]],` +
				`"process_age_seconds":[["7","sh",60]]}}` + "\n" +
				`{"t":2,"m":{"process_cpu_seconds_total":[["7","sh","user","target",1],["8","cc","user","target",0.5]],` +
				`"process_age_seconds":[["7","sh",62],["8","cc",0.5]]}}` + "\n" +
				`{"t":3,"m":{"process_cpu_seconds_total":[["7","sh","user","target",1],["8","cc","user","target",1.5]],` +
				`"process_age_seconds":[["7","sh",63],["8","cc",1.5]]}}` + "\n" +
				`{"t":10,"m":{"process_cpu_seconds_total":[["7","sh","user","target",2]],` +
				`"process_children_cpu_seconds_total":[["7","sh","user","target",6],["7","sh","system","target",2]],` +
				`"process_age_seconds":[["7","sh",70]]}}` + "\n",
		)},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := stacks.NewBuilder(stacks.HostCPU)
	b.Add(stacks.Sample{
		Stack:  []int{b.Frame(stacks.Frame{Name: "main", Kind: stacks.Native})},
		Thread: b.Thread(stacks.Thread{ID: 7, Name: "sh"}), Count: 100, Value: 1e9,
	})
	p := b.Profile()
	p.Duration = 10e9
	with := recording.NewBuilder()
	a := with.Appender()
	a.Profile(p)
	a.Commit()
	rec = rec.WithProfiles(0, with.Done(recording.Meta{Duration: 10}))
	c, ok := CPUOf(rec)
	// The shell has 1 s, and its children have 8 s; cc has 1.5 s of them.
	if !ok || math.Abs(c.Kernel-9) > 1e-9 || math.Abs(c.System-2) > 1e-9 {
		t.Fatalf("%v: %+v", ok, c)
	}
	notes := strings.Join(Notes(rec), "\n")
	if !strings.Contains(notes, "6.5 s of the CPU time are of processes that ended") {
		t.Errorf("notes %q", notes)
	}
}
