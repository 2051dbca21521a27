package experiment

import (
	"os"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	// CPUs, threads that wait, share of periods, CPUs of the suspect
	w := func(n ...float64) Window {
		return Window{Seconds: 5, CPUs: n[0], Waiting: n[1], Throttled: n[2], SuspectCPUs: n[3]}
	}
	for name, tt := range map[string]struct {
		quota                 bool
		before, during, after Window
		want                  Outcome
		because               string
	}{
		"more CPU time": {
			true, w(0.5, 0.5, 1, 0), w(1, 0, 0, 0), w(0.5, 0.5, 1, 0), Stands,
			"used 1.00 CPUs instead of 0.50",
		},
		"bursts wait less": {
			true, w(0.2, 0.2, 0.3, 0), w(0.2, 0.01, 0, 0), w(0.2, 0.2, 0.3, 0), Stands,
			"waited 0.05 s for each second of CPU time instead of 1.00 s",
		},
		"nothing gained": {true, w(0.5, 0.5, 1, 0), w(0.5, 0.5, 0, 0), w(0.5, 0.5, 1, 0), Falls, "took nothing away"},
		"within the noise": {
			true, w(0.5, 0, 1, 0), w(0.55, 0, 0, 0), w(0.5, 0, 1, 0), Falls, "took nothing away",
		},
		"not throttled":  {true, w(0.5, 0.5, 0, 0), w(1, 0, 0, 0), w(0.5, 0.5, 0, 0), Unsure, "did not stop the group"},
		"nothing to do":  {true, w(0, 0, 0, 0), w(0, 0, 0, 0), w(0, 0, 0, 0), Unsure, "next to nothing to do"},
		"the load went":  {true, w(0.5, 0.5, 1, 0), w(0.1, 0, 0, 0), w(0.5, 0.5, 1, 0), Unsure, "less to do"},
		"the load came":  {true, w(0.5, 0.5, 1, 0), w(1, 0, 0, 0), w(1, 0, 0, 0), Unsure, "lasted when it was undone"},
		"worse after":    {true, w(1, 0, 1, 0), w(1, 0, 0, 0), w(0.5, 0, 1, 0), Unsure, "got worse"},
		"a neighbour":    {false, w(0.5, 0.5, 0, 0.5), w(1, 0, 0, 0), w(0.5, 0.5, 0, 0.5), Stands, "as before"},
		"an idle one":    {false, w(0.5, 0.5, 0, 0.02), w(1, 0, 0, 0), w(0.5, 0.5, 0, 0), Unsure, "0.02 CPUs before"},
		"one not paused": {false, w(0.5, 0.5, 0, 1), w(1, 0, 0, 1), w(0.5, 0.5, 0, 1), Unsure, "went on"},
		"one elsewhere":  {false, w(1, 0.1, 0, 1), w(1, 0.1, 0, 0), w(1, 0.1, 0, 1), Falls, "took nothing away"},
	} {
		e := &Experiment{}
		if tt.quota {
			e.stat = "cpu.stat"
		}
		got, because := e.judge(tt.before, tt.during, tt.after)
		if got != tt.want || !strings.Contains(because, tt.because) {
			t.Errorf("%s: %s: %s; want %s: %s", name, got, because, tt.want, tt.because)
		}
	}
}

// TestOpenControl: only a file of a cgroup file system is written to, and the printed command can be typed.
func TestOpenControl(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/cpu.max", []byte("1 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	for where, want := range map[string]string{
		dir:             "no directory of a cgroup file system",
		dir + "/none":   "no such file",
		dir + "/a\x1bb": "cannot be printed",
	} {
		if _, err := openControl(where, "cpu.max"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", where, err, want)
		}
	}
	k := knob{name: "/sys/it's/cpu.max", before: "1 2"}
	if got, want := k.byHand(), `echo '1 2' > '/sys/it'\''s/cpu.max'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func FuzzDelay(f *testing.F) {
	f.Add("1 2 3")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		r := reading{delay: map[int]uint64{}}
		if err := r.delayOf("7", text); err == nil && len(strings.Fields(text)) != 3 {
			t.Errorf("%q is taken", text)
		}
	})
}
